"""Looking at tasks: one, all of them, how many there are."""

from collections.abc import Callable
from typing import Any

from raftline.gateways.fan import Call, Fan
from raftline.gateways.http.connection import Exchange
from raftline.gateways.http.dialects.task_bodies import (
    TaskList,
    TaskStats,
)
from raftline.gateways.http.dialects.task_pages import TaskPage
from raftline.gateways.http.dialects.tasks import (
    DEAD,
    DONE,
    PARTITION,
    STATUSES,
    State,
    add_story,
    task_of,
)
from raftline.gateways.http.routes import Request
from raftline.gateways.message_ids import parse_any_id
from raftline.gateways.ports import Calls
from raftline.gateways.second_look import LOOK_MS_MAX
from raftline.model.calls import ReadReply
from raftline.model.errors import (
    InvalidArgument,
    RaftlineError,
    UnknownGroup,
    UnknownMessage,
)
from raftline.model.message import Message
from raftline.model.records import open_batch, open_batches
from raftline.model.tasks import (
    TASK_GROUP,
    TASK_TOPIC,
)

LIST_DEFAULT, LIST_MAX = 50, 500

Missing = Callable[[str, str], RaftlineError]  # of a task's id, and why it is not there


class TaskLooks:
    """Shows tasks, and finds out what they are to the workers."""

    __slots__ = ("_calls", "_retries")

    def __init__(self, calls: Calls, retries: int) -> None:
        self._calls = calls
        self._retries = retries  # of tasks that say nothing else

    def show(self, exchange: Exchange, request: Request) -> None:
        """Show a task: what is to be done, how far it got."""
        self._show(exchange, request, request.params["id"], 200)

    def _show(
        self,
        exchange: Exchange,
        request: Request,
        name: str,
        status: int,
        missing: Missing = UnknownMessage,
    ) -> None:
        """Show a task; one that is not kept is refused as ``missing`` says."""

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
                    raise missing(name, "it is not kept")
                (message,) = open_batch(answer["batch"])
                exchange.json(task_of(message, state, self._retries, name), status)

            if offset >= 0:
                self._read(exchange, request, offset, read, missing)
            else:
                number = {"number": state["number"]}
                self._ask(request, "waiting.show", number, exchange.then(waits))

        self._state(exchange, request, name, found, missing)

    def _state(
        self,
        exchange: Exchange,
        request: Request,
        name: str,
        then: Callable[[State], None],
        missing: Missing = UnknownMessage,
    ) -> None:
        """Find out what a task is to the workers; 404 if there is none."""
        try:
            topic, partition, offset, number = parse_any_id(name)
        except InvalidArgument as error:
            raise UnknownMessage(name[:100], "an id is what enqueue answered") from error
        no_task = UnknownMessage(name[:100], "it is no task")
        if (topic, partition) != (TASK_TOPIC, PARTITION):
            raise no_task
        wanted = {"numbers": [number]} if number else {"offsets": [offset]}

        def answer(reply: dict[str, Any]) -> None:
            state = reply["rows"][0]
            if state["state"] in ("unknown", "released"):
                raise missing(name, "it never was, or it is not kept any more")
            then(state)

        def ask() -> None:
            asked = {"group": TASK_GROUP, **wanted}
            self._ask(request, "group.messages", asked, exchange.then(answer))

        self._with_topic(exchange, request, ask, lambda: exchange.fail(no_task))

    def _ask(
        self, request: Request, name: str, asked: dict[str, Any], done: Callable[[Any], None]
    ) -> None:
        self._calls.ask(TASK_TOPIC, PARTITION, name, asked, request.timeout_ms, done)

    def _read(
        self,
        exchange: Exchange,
        request: Request,
        offset: int,
        then: Callable[[Message], None],
        missing: Missing = UnknownMessage,
    ) -> None:
        def answer(reply: ReadReply) -> None:
            for message in open_batches(reply.batches):
                if message.offset == offset:
                    then(message)
                    return
            raise missing(request.params.get("id", TASK_TOPIC), "it is not kept any more")

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

        def begin() -> None:
            TaskPage(self._calls, exchange, request, status, limit, self._retries).start(after)

        self._with_topic(exchange, request, begin, lambda: exchange.json(TaskList([], None)))

    def stats(self, exchange: Exchange, request: Request) -> None:
        """Count tasks by status."""

        def nothing() -> None:
            exchange.json(self._stats({}, {}))

        self._with_topic(exchange, request, lambda: self._count(exchange, request), nothing)

    def _count(self, exchange: Exchange, request: Request) -> None:
        timeout_ms = request.timeout_ms

        def asking(name: str) -> Call:
            asked: dict[str, object] = {"group": TASK_GROUP}
            return lambda take: self._calls.ask(
                TASK_TOPIC, PARTITION, name, asked, timeout_ms, take
            )

        def answer(answers: list[Any]) -> None:
            group, waiting, bounds = answers
            for told in answers:
                if isinstance(told, RaftlineError) and not isinstance(told, UnknownGroup):
                    raise told
            if isinstance(group, UnknownGroup):  # nobody leased anything yet
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

    def _with_topic(
        self,
        exchange: Exchange,
        request: Request,
        then: Callable[[], None],
        otherwise: Callable[[], None],
    ) -> None:
        """Go on if something was ever enqueued; that nothing was, the catalog's leader must say.

        A node may have been away when the first task came (second_look.py).
        """
        if self._has_topic():
            then()
            return

        def checked(problem: RaftlineError | None) -> None:
            if problem is not None:
                raise problem
            if self._has_topic():
                then()
            else:
                otherwise()

        timeout_ms = min(request.timeout_ms, LOOK_MS_MAX)
        self._calls.check_catalog(timeout_ms, lambda problem: exchange.guard(checked, problem))

    def _has_topic(self) -> bool:
        return any(row.name == TASK_TOPIC for row in self._calls.known_topics())
