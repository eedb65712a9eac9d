"""DQueue's dialect: tasks that workers lease, ack and nack by the task's id.

A task is a message of the topic ``tasks`` (model/tasks.py), workers are members of one work group.
DQueue names a task and a worker where the native API names a lease, so a settle first asks the
partition who holds it. A task's own ``max_retries`` is counted here: a nack after its last attempt
becomes a reject, and so does the next lease of a task whose last lease ran out.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from raftline.gateways.fan import Call, Fan
from raftline.gateways.http.connection import Exchange
from raftline.gateways.http.deliveries import delay_of, duration_ms
from raftline.gateways.http.dialects.tasks import (
    DEAD,
    DONE,
    LEASED,
    PARTITION,
    PENDING,
    STATUSES,
    State,
    Task,
    add_story,
    retries_of,
    task_of,
)
from raftline.gateways.http.fields import Int
from raftline.gateways.http.items import NewItem
from raftline.gateways.http.messages import MessageRoutes
from raftline.gateways.http.routes import Request, Router
from raftline.gateways.http.topics import decode
from raftline.gateways.message_ids import parse_any_id
from raftline.gateways.ports import Calls
from raftline.gateways.publication import Result
from raftline.machines.delivery.commands import ACK, EXTEND, NACK, REJECT, Settle
from raftline.model.calls import ReadReply, Received, Settled
from raftline.model.errors import (
    InvalidArgument,
    LeaseLost,
    RaftlineError,
    UnknownMessage,
)
from raftline.model.limits import (
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    MEMBER_ID_CHARS_MAX,
    READ_BYTES_DEFAULT,
    REASON_CHARS_MAX,
    WAIT_MS_MAX,
)
from raftline.model.message import Message
from raftline.model.records import open_batch, open_batches
from raftline.model.tasks import (
    TASK_GROUP,
    TASK_KEY_HEADER,
    TASK_RETRIES_HEADER,
    TASK_RETRIES_MAX,
    TASK_TOPIC,
    TASK_TYPE_CHARS_MAX,
    TASK_TYPE_HEADER,
)

LIST_DEFAULT, LIST_MAX = 50, 500
BURIALS_MAX = 100  # tasks without attempts left that one lease may come across
EXAMPLE = '{"type": "email", "payload": {"to": "user@example.com"}}'
TAG = "dqueue"


class NewTask(msgspec.Struct, forbid_unknown_fields=True):
    """What is to be done."""

    type: str
    payload: msgspec.Raw | UnsetType = UNSET
    priority: Int | str | None = None
    max_retries: Int | None = None
    idempotency_key: str | None = None
    delay: str | Int | None = None
    run_at: str | Int | None = None


class LeaseBody(msgspec.Struct, forbid_unknown_fields=True):
    """Who wants a task."""

    worker_id: str
    wait: str | Int = 0  # long poll
    lease: str | Int = 0  # 0: the topic's own


class SettleBody(msgspec.Struct, forbid_unknown_fields=True):
    """Who is done with a task, and how it went."""

    worker_id: str
    reason: str = ""
    delay: str | Int | None = None  # nack: instead of the backoff
    lease: str | Int | None = None  # extend


class NewTaskForm(msgspec.Struct, forbid_unknown_fields=True):
    """What is to be done; the payload is any JSON."""

    type: str
    payload: Any = None
    priority: Int | str | None = None
    max_retries: Int | None = None
    idempotency_key: str | None = None
    delay: str | Int | None = None
    run_at: str | Int | None = None


class SettledTask(msgspec.Struct):
    """What became of it."""

    id: str
    status: str
    attempts: int


class TaskList(msgspec.Struct):
    """A page of tasks; ``next`` is the ``after`` of the next one."""

    tasks: list[Task]
    next: str | None


class TaskStats(msgspec.Struct):
    """How many tasks there are of each kind; ``delayed`` are pending and not due."""

    pending: int
    leased: int
    done: int
    dead: int
    delayed: int
    total: int
    topics: int
    nodes: int
    uptime_ms: int


class DqueueRoutes:
    """The routes under ``/tasks``."""

    __slots__ = ("_calls", "_messages", "_retries")

    def __init__(self, calls: Calls, messages: MessageRoutes, *, max_retries: int) -> None:
        self._calls = calls
        self._messages = messages
        self._retries = max_retries

    def add_to(self, router: Router) -> None:
        """Add the routes."""
        add = router.add
        add("POST", "/tasks", self.enqueue, body=NewTaskForm, answer=Task, status=201, tag=TAG)
        query = "status limit after"
        add("GET", "/tasks", self.list, query=query, answer=TaskList, tag=TAG)
        lease: dict[str, Any] = {"body": LeaseBody, "answer": Task, "empty_status": 204}
        add("POST", "/tasks/lease", self.lease, **lease, tag=TAG)
        add("GET", "/tasks/{id}", self.show, answer=Task, tag=TAG)
        for verb, told in ((ACK, "ack"), (NACK, "nack"), (EXTEND, "extend")):
            add(
                "POST",
                "/tasks/{id}/" + told,
                self._settling(verb),
                summary=f"Settle a task that this worker leased: {told}.",
                body=SettleBody,
                answer=SettledTask,
                tag=TAG,
            )
        add("GET", "/stats", self.stats, answer=TaskStats, tag=TAG)

    # ------------------------------------------------------------------ enqueue

    def enqueue(self, exchange: Exchange, request: Request) -> None:
        """Enqueue a task; the same idempotency key again is the same task."""
        body = decode(request.body, NewTask, EXAMPLE)
        item = self._item(body)

        def stored(results: list[Result], error: RaftlineError | None) -> None:
            result = results[0]
            if error is not None or result.id is None:
                exchange.fail(error or UnknownMessage(TASK_TOPIC))
                return
            status = 200 if result.duplicate is True else 201
            self._show(exchange, request, result.id, status)

        def publish(_: "list[int]") -> None:
            self._messages.publish_items(
                exchange, TASK_TOPIC, [item], request.timeout_ms, PARTITION, finish=stored
            )

        # The topic first: it has settings of its own.
        self._messages.choose(TASK_TOPIC, [None], request.timeout_ms, exchange.then(publish))

    def _item(self, body: NewTask) -> NewItem:
        """Return the message of a task. Raises RaftlineError."""
        if not 0 < len(body.type) <= TASK_TYPE_CHARS_MAX:
            raise InvalidArgument(
                f"a type has 1 to {TASK_TYPE_CHARS_MAX} characters", f"the body is like {EXAMPLE}"
            )
        retries = self._retries if body.max_retries is None else body.max_retries
        if not 0 <= retries <= TASK_RETRIES_MAX:
            text = f"max_retries={retries} is out of bounds"
            raise InvalidArgument(text, f"allowed is 0 to {TASK_RETRIES_MAX}")
        headers: dict[str, Any] = {TASK_TYPE_HEADER: body.type, TASK_RETRIES_HEADER: str(retries)}
        if body.idempotency_key:
            headers[TASK_KEY_HEADER] = body.idempotency_key
        payload = b"null" if body.payload is UNSET else bytes(body.payload)
        return NewItem(
            value=payload.decode(),
            headers=headers,
            priority=body.priority,
            delay=body.delay,
            deliver_at=body.run_at,
            dedup_key=body.idempotency_key or None,
        )

    def _has_topic(self) -> bool:
        return any(row.name == TASK_TOPIC for row in self._calls.catalog().topics)

    # ------------------------------------------------------------------ lease

    def lease(self, exchange: Exchange, request: Request) -> None:
        """Lease the next task, or learn that there is none (204)."""
        body: LeaseBody = decode(request.body, LeaseBody, '{"worker_id": "worker-1"}')
        _check_worker(body.worker_id)
        wait_ms = duration_ms("wait", body.wait, 0, WAIT_MS_MAX)
        lease_ms = duration_ms("lease", body.lease, 0, LEASE_MS_MAX)
        if 0 < lease_ms < LEASE_MS_MIN:
            raise InvalidArgument(f"a lease of {lease_ms} ms is too short", f"{LEASE_MS_MIN} ms up")
        if not self._has_topic():
            exchange.empty()  # nothing was ever enqueued
            return
        self._lease(exchange, request, body.worker_id, lease_ms, wait_ms, BURIALS_MAX)

    def _lease(
        self,
        exchange: Exchange,
        request: Request,
        worker: str,
        lease_ms: int,
        wait_ms: int,
        burials: int,
    ) -> None:
        def again() -> None:
            self._lease(exchange, request, worker, lease_ms, 0, burials - 1)

        def answer(received: Received) -> None:
            if not received.spans:
                exchange.empty()
                return
            start, _, attempt, generation = received.spans[:4]
            message = next(m for m in open_batches(received.batches) if m.offset == start)
            retries = retries_of(message, self._retries)
            if attempt > retries + 1 and burials > 0:
                name = (received.term, received.sequence, attempt, generation, start)
                self._bury(exchange, request, name, again)
                return
            state: State = {
                "state": "leased",
                "attempts": attempt,
                "member": worker,
                "time_ms": received.deadline_ms,
            }
            exchange.json(task_of(message, state, self._retries))

        self._calls.receive(
            TASK_TOPIC,
            TASK_GROUP,
            PARTITION,
            1,
            READ_BYTES_DEFAULT,
            lease_ms,
            wait_ms,
            worker,
            wait_ms + request.timeout_ms,
            exchange.then(answer),
            is_wanted=exchange.is_wanted,
        )

    def _bury(
        self,
        exchange: Exchange,
        request: Request,
        name: tuple[int, int, int, int, int],
        then: Callable[[], None],
    ) -> None:
        """Give up on a task whose last lease ran out; go on with the next."""
        term, sequence, attempt, generation, offset = name
        reason = f"no attempt left: it was delivered {attempt - 1} times"
        settle = Settle(
            TASK_GROUP,
            REJECT,
            term,
            sequence,
            attempt,
            generation,
            [offset, offset + 1],
            0,
            reason,
        )
        settled = exchange.then(lambda _: then())
        self._calls.settle(TASK_TOPIC, PARTITION, [settle], request.timeout_ms, settled)

    # ------------------------------------------------------------------ settle

    def _settling(self, verb: int) -> Callable[[Exchange, Request], None]:
        def settle(exchange: Exchange, request: Request) -> None:
            body: SettleBody = decode(request.body, SettleBody, '{"worker_id": "worker-1"}')
            _check_worker(body.worker_id)
            delay_ms = delay_of(verb, body.delay, body.lease)
            reason = body.reason[:REASON_CHARS_MAX]
            name = request.params["id"]

            def found(state: State) -> None:
                if verb == ACK and state["state"] == "settled":
                    self._was_acked(exchange, request, state, body.worker_id)
                    return
                if state["state"] != "leased" or state["member"] != body.worker_id:
                    raise LeaseLost(f"task {name}")
                if verb != NACK:
                    self._settle(exchange, request, verb, state, delay_ms, reason)
                    return

                def read(message: Message) -> None:
                    last = state["attempts"] > retries_of(message, self._retries)
                    kind, delay = (REJECT, 0) if last else (NACK, delay_ms)
                    self._settle(exchange, request, kind, state, delay, reason)

                self._read(exchange, request, state["offset"], read)

            self._state(exchange, request, name, found)

        return settle

    def _was_acked(self, exchange: Exchange, request: Request, state: State, worker: str) -> None:
        """Answer a repeat (the first answer got lost) as the first; 409 to anybody else."""
        name = request.params["id"]

        def told(answer: dict[str, Any]) -> None:
            events = [row for row in answer["events"] if row.get("group") == TASK_GROUP]
            given = [row for row in events if row["kind"] == "given"]
            if not given or given[-1]["member"] != worker:
                raise LeaseLost(f"task {name}")
            exchange.json(SettledTask(name, DONE, int(given[-1]["attempt"])))

        self._ask(request, "trace.show", {"offset": state["offset"]}, exchange.then(told))

    def _settle(
        self,
        exchange: Exchange,
        request: Request,
        verb: int,
        state: State,
        delay_ms: int,
        reason: str,
    ) -> None:
        name, offset = request.params["id"], int(state["offset"])
        settle = Settle(
            TASK_GROUP,
            verb,
            state["term"],
            state["sequence"],
            state["attempts"],
            state["generation"],
            [offset, offset + 1],
            delay_ms,
            reason,
        )
        status = {ACK: DONE, NACK: PENDING, REJECT: DEAD, EXTEND: LEASED}[verb]

        def answer(settled: Settled) -> None:
            if settled.lost[0]:
                raise LeaseLost(f"task {name}")
            exchange.json(SettledTask(name, status, state["attempts"]))

        self._calls.settle(
            TASK_TOPIC, PARTITION, [settle], request.timeout_ms, exchange.then(answer)
        )

    # ------------------------------------------------------------------ looking

    def show(self, exchange: Exchange, request: Request) -> None:
        """Show a task: what is to be done, how far it got."""
        self._show(exchange, request, request.params["id"], 200)

    def _show(self, exchange: Exchange, request: Request, name: str, status: int) -> None:
        def found(state: State) -> None:
            offset = int(state["offset"])

            def read(message: Message) -> None:
                task = task_of(message, state, self._retries, name)
                if task.status not in (DONE, DEAD):
                    exchange.json(task, status)
                    return
                told = exchange.then(lambda a: exchange.json(add_story(task, a["events"]), status))
                self._ask(request, "trace.show", {"offset": offset}, told)

            def waits(answer: dict[str, Any]) -> None:
                if "batch" not in answer:
                    raise UnknownMessage(name, "it is not kept")
                (message,) = open_batch(answer["batch"])
                exchange.json(task_of(message, state, self._retries, name), status)

            if offset >= 0:
                self._read(exchange, request, offset, read)
            else:
                number = {"number": state["number"]}
                self._ask(request, "waiting.show", number, exchange.then(waits))

        self._state(exchange, request, name, found)

    def _state(
        self, exchange: Exchange, request: Request, name: str, then: Callable[[State], None]
    ) -> None:
        """Find out what a task is to the workers; 404 if there is none."""
        try:
            topic, partition, offset, number = parse_any_id(name)
        except InvalidArgument as error:
            raise UnknownMessage(name[:100], "an id is what enqueue answered") from error
        if (topic, partition) != (TASK_TOPIC, PARTITION) or not self._has_topic():
            raise UnknownMessage(name[:100], "it is no task")
        wanted = {"numbers": [number]} if number else {"offsets": [offset]}

        def answer(reply: dict[str, Any]) -> None:
            state = reply["rows"][0]
            if state["state"] in ("unknown", "released"):
                raise UnknownMessage(name, "it never was, or it is not kept any more")
            then(state)

        self._ask(request, "group.messages", {"group": TASK_GROUP, **wanted}, exchange.then(answer))

    def _ask(
        self, request: Request, name: str, asked: dict[str, Any], done: Callable[[Any], None]
    ) -> None:
        self._calls.ask(TASK_TOPIC, PARTITION, name, asked, request.timeout_ms, done)

    def _read(
        self, exchange: Exchange, request: Request, offset: int, then: Callable[[Message], None]
    ) -> None:
        def answer(reply: ReadReply) -> None:
            for message in open_batches(reply.batches):
                if message.offset == offset:
                    then(message)
                    return
            raise UnknownMessage(request.params.get("id", TASK_TOPIC), "it is not kept any more")

        self._reading(request, offset)(exchange.then(answer))

    def _reading(self, request: Request, offset: int) -> Call:
        return lambda take: self._calls.read(
            TASK_TOPIC, PARTITION, offset, 1, 0, request.timeout_ms, take
        )

    def list(self, exchange: Exchange, request: Request) -> None:
        """List tasks, oldest first; those that are delayed come last."""
        status = request.query.get("status", "")
        if status and status not in STATUSES:
            raise InvalidArgument(f"no status {status[:40]!r}", "one of " + ", ".join(STATUSES))
        limit = request.number("limit", LIST_DEFAULT, 1, LIST_MAX)
        after = request.query.get("after", "")
        if not self._has_topic():
            exchange.json(TaskList([], None))
        else:
            TaskPage(self._calls, exchange, request, status, limit, self._retries).start(after)

    def stats(self, exchange: Exchange, request: Request) -> None:
        """Count tasks by status."""
        if not self._has_topic():
            exchange.json(self._stats({}, {}))
            return
        timeout_ms = request.timeout_ms

        def asking(name: str) -> Call:
            asked: dict[str, object] = {"group": TASK_GROUP}
            return lambda take: self._calls.ask(
                TASK_TOPIC, PARTITION, name, asked, timeout_ms, take
            )

        def answer(answers: list[Any]) -> None:
            group, waiting, bounds = answers
            if isinstance(waiting, RaftlineError) or isinstance(bounds, RaftlineError):
                raise waiting if isinstance(waiting, RaftlineError) else bounds
            if isinstance(group, RaftlineError):  # nobody leased anything yet
                size = bounds["next_offset"] - bounds["log_start"]
                group = {"fresh": size, **bounds}
            exchange.json(self._stats(group, waiting))

        Fan(
            [asking("group.show"), asking("waiting.stats"), asking("group.messages")],
            lambda answers: exchange.guard(answer, answers),
        ).start()

    def _stats(self, group: dict[str, Any], waiting: dict[str, Any]) -> TaskStats:
        counts = {name: int(group.get(name, 0)) for name in ("fresh", "resting", "ready")}
        leased, dead = int(group.get("leased", 0)), int(group.get("dead", 0))
        dead += int(group.get("dying", 0))
        total = int(group.get("next_offset", 0)) - int(group.get("log_start", 0))
        delayed = int(waiting.get("waiting", 0))
        pending, status = sum(counts.values()), self._calls.status()
        return TaskStats(
            pending + delayed,
            leased,
            max(0, total - pending - leased - dead),
            dead,
            delayed,
            total + delayed,
            len(self._calls.catalog().topics),
            len(status.nodes),
            status.uptime_ms,
        )


class TaskPage:
    """One page of tasks: found by state, then read, then told."""

    __slots__ = ("_calls", "_exchange", "_limit", "_request", "_retries", "_status")

    def __init__(
        self,
        calls: Calls,
        exchange: Exchange,
        request: Request,
        status: str,
        limit: int,
        retries: int,
    ) -> None:
        self._calls = calls
        self._exchange = exchange
        self._request = request
        self._status = status
        self._limit = limit
        self._retries = retries

    def start(self, after: str) -> None:
        """Begin behind ``after``: an offset, or what stands in the list of delayed tasks."""
        if after.startswith("w"):
            parts = after[1:].split(".")
            if len(parts) != 2 or not all(p.isascii() and p.isdigit() for p in parts):
                raise InvalidArgument(f"after={after[:40]!r} is no place", "use next of a page")
            self._list_delayed([], [int(parts[0]), int(parts[1])])
            return
        if after and not (after.isascii() and after.isdigit() and len(after) < 19):
            raise InvalidArgument(f"after={after[:40]!r} is no place", "use next of a page")
        self._search(int(after) if after else -1)

    def _search(self, after: int) -> None:
        asked = {"limit": self._limit, "after": after}
        self._ask("trace.search", asked, lambda found: self._states(after, found))

    def _states(self, after: int, found: dict[str, Any]) -> None:
        offsets = [row["offset"] for row in found["messages"]]
        last = int(found["after"])
        asked = {"group": TASK_GROUP, "offsets": offsets}
        self._ask("group.messages", asked, lambda told: self._read(told["rows"], last))

    def _read(self, states: list[State], last: int) -> None:
        reads: list[Call] = [self._reading(state["offset"]) for state in states]
        Fan(reads, lambda got: self._exchange.guard(self._took, states, got, last)).start()

    def _took(self, states: list[State], got: list[Any], last: int) -> None:
        tasks: list[Task] = []
        for state, reply in zip(states, got, strict=True):
            if isinstance(reply, RaftlineError):
                continue  # retention took it meanwhile
            messages = open_batches(reply.batches)
            message = next((m for m in messages if m.offset == state["offset"]), None)
            if message is not None:
                tasks.append(task_of(message, state, self._retries))
        tasks = [task for task in tasks if self._status in ("", task.status)]
        if last >= 0:
            self._exchange.json(TaskList(tasks, str(last)))
        elif self._status in ("", PENDING) and len(tasks) < self._limit:
            self._list_delayed(tasks, None)
        else:
            self._exchange.json(TaskList(tasks, None))

    def _list_delayed(self, tasks: list[Task], after: list[int] | None) -> None:
        asked = {"limit": self._limit, "after": after}

        def found(reply: dict[str, Any]) -> None:
            rows = reply["rows"]
            shows = [self._showing(number) for _, number, _ in rows]
            full = len(rows) == self._limit
            last = f"w{rows[-1][0]}.{rows[-1][1]}" if full else None
            Fan(shows, lambda got: self._exchange.guard(self._told, tasks, rows, got, last)).start()

        self._ask("waiting.list", asked, found)

    def _told(self, tasks: list[Task], rows: list[Any], got: list[Any], last: str | None) -> None:
        for (_, number, priority), shown in zip(rows, got, strict=True):
            if isinstance(shown, RaftlineError) or "batch" not in shown:
                continue  # released meanwhile
            (message,) = open_batch(shown["batch"])
            state: State = {"state": "waiting", "attempts": 0, "number": number}
            tasks.append(task_of(message, {**state, "priority": priority}, self._retries))
        self._exchange.json(TaskList(tasks, last))

    def _showing(self, number: int) -> Call:
        asked: dict[str, object] = {"number": number}
        timeout_ms = self._request.timeout_ms
        return lambda take: self._calls.ask(
            TASK_TOPIC, PARTITION, "waiting.show", asked, timeout_ms, take
        )

    def _reading(self, offset: int) -> Call:
        timeout_ms = self._request.timeout_ms
        return lambda take: self._calls.read(TASK_TOPIC, PARTITION, offset, 1, 0, timeout_ms, take)

    def _ask(self, name: str, asked: dict[str, Any], then: Callable[[Any], None]) -> None:
        done = self._exchange.then(then)
        self._calls.ask(TASK_TOPIC, PARTITION, name, asked, self._request.timeout_ms, done)


def _check_worker(worker: str) -> None:
    if not 0 < len(worker) <= MEMBER_ID_CHARS_MAX:
        raise InvalidArgument(
            f"a worker_id has 1 to {MEMBER_ID_CHARS_MAX} characters", 'add "worker_id": "worker-1"'
        )
