"""DQueue's dialect: tasks that workers lease, ack and nack by the task's id.

A task is a message of the topic ``tasks`` (model/tasks.py), workers are members of one work group.
DQueue names a task and a worker where the native API names a lease, so a settle first asks the
partition who holds it. A task's own ``max_retries`` is counted here: a nack after its last attempt
becomes a reject, and so does the next lease of a task whose last lease ran out.
"""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from raftline.gateways.http.connection import Exchange
from raftline.gateways.http.deliveries import delay_of, duration_ms
from raftline.gateways.http.dialects.task_bodies import (
    LeaseBody,
    NewTask,
    NewTaskForm,
    SettleBody,
    SettledTask,
    TaskList,
    TaskStats,
)
from raftline.gateways.http.dialects.task_looks import TaskLooks
from raftline.gateways.http.dialects.tasks import (
    DEAD,
    DONE,
    LEASED,
    PARTITION,
    PENDING,
    State,
    Task,
    retries_of,
    task_of,
)
from raftline.gateways.http.items import NewItem, to_message
from raftline.gateways.http.messages import MessageRoutes
from raftline.gateways.http.routes import Request, Router
from raftline.gateways.http.topics import decode
from raftline.gateways.ports import Calls
from raftline.gateways.publication import Result
from raftline.machines.delivery.commands import ACK, EXTEND, NACK, REJECT, Settle
from raftline.model.calls import Received, Settled
from raftline.model.errors import (
    DuplicateKey,
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
from raftline.model.records import open_batches
from raftline.model.tasks import (
    TASK_GROUP,
    TASK_KEY_HEADER,
    TASK_RETRIES_HEADER,
    TASK_RETRIES_MAX,
    TASK_TOPIC,
    TASK_TYPE_CHARS_MAX,
    TASK_TYPE_HEADER,
)
from raftline.node.ports import Clock

LOOK_MS = 200  # between looks for the first task of all
BURIALS_MAX = 100  # tasks without attempts left that one lease may come across
EXAMPLE = '{"type": "email", "payload": {"to": "user@example.com"}}'
TAG = "dqueue"


class DqueueRoutes(TaskLooks):
    """The routes under ``/tasks``."""

    __slots__ = ("_clock", "_messages")

    def __init__(
        self, clock: Clock, calls: Calls, messages: MessageRoutes, *, max_retries: int
    ) -> None:
        super().__init__(calls, max_retries)
        self._clock = clock
        self._messages = messages

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
            if result.duplicate is True:
                self._show(exchange, request, result.id, 200, _forgotten)
            else:  # nothing is asked any more: a refusal would deny what is stored
                exchange.json(self._new_task(item, result), 201)

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
            timestamp=self._messages.wall_ms(),
        )

    def _new_task(self, item: NewItem, result: Result) -> Task:
        """Return the task that was stored, as nobody has it yet."""
        priority = 0 if result.priority is UNSET else result.priority
        state: State = {"state": "fresh", "attempts": 0, "priority": priority}
        key, value, headers, timestamp_ms = to_message(item, 0)
        message = Message(result.offset or 0, timestamp_ms, key, value, tuple(headers))
        return task_of(message, state, self._retries, result.id or "")

    # ------------------------------------------------------------------ lease

    def lease(self, exchange: Exchange, request: Request) -> None:
        """Lease the next task, or learn that there is none (204)."""
        body: LeaseBody = decode(request.body, LeaseBody, '{"worker_id": "worker-1"}')
        _check_worker(body.worker_id)
        wait_ms = duration_ms("wait", body.wait, 0, WAIT_MS_MAX)
        lease_ms = duration_ms("lease", body.lease, 0, LEASE_MS_MAX)
        if 0 < lease_ms < LEASE_MS_MIN:
            raise InvalidArgument(f"a lease of {lease_ms} ms is too short", f"{LEASE_MS_MIN} ms up")
        deadline = self._clock.mono_ms() + wait_ms

        def look() -> None:
            left_ms = max(0, int(deadline - self._clock.mono_ms()))
            if self._has_topic():
                self._lease(exchange, request, body.worker_id, lease_ms, left_ms, BURIALS_MAX)
            elif left_ms and exchange.is_wanted():  # nothing was ever enqueued
                pause_ms = min(left_ms, LOOK_MS)
                self._clock.call_later(pause_ms, lambda: exchange.guard(look))
            else:
                exchange.empty()

        self._with_topic(exchange, request, look, look)

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


def _forgotten(name: str, _why: str) -> RaftlineError:
    """Return what a repeated enqueue hears whose task was cancelled, or taken by retention."""
    message = f"{name} was enqueued under this idempotency key and is not kept any more"
    hint = "nothing was stored; enqueue it under another key"
    return RaftlineError.from_wire((DuplicateKey.code, message, hint, {}))


def _check_worker(worker: str) -> None:
    if not 0 < len(worker) <= MEMBER_ID_CHARS_MAX:
        raise InvalidArgument(
            f"a worker_id has 1 to {MEMBER_ID_CHARS_MAX} characters", 'add "worker_id": "worker-1"'
        )
