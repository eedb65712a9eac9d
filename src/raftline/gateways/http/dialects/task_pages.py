"""Tasks page by page."""

from collections.abc import Callable
from typing import Any

from raftline.gateways.fan import Call, Fan
from raftline.gateways.http.connection import Exchange
from raftline.gateways.http.dialects.task_bodies import (
    TaskList,
)
from raftline.gateways.http.dialects.tasks import (
    PARTITION,
    PENDING,
    State,
    Task,
    may_be,
    task_of,
)
from raftline.gateways.http.routes import Request
from raftline.gateways.ports import Calls
from raftline.model.errors import InvalidArgument, NotFound, RaftlineError
from raftline.model.records import open_batch, open_batches
from raftline.model.tasks import (
    TASK_GROUP,
    TASK_TOPIC,
)

LOOK_TASKS = 500  # looked through at once for those of one status
DELAYED = "w0.0"  # the place before all delayed tasks
LOOKS_MAX = 10  # for one page; then it is told though it is short


class TaskPage:
    """One page of tasks: found by state, then read, then told.

    Tasks of other statuses are passed over, so that a page is short only at the end, or where
    those wanted are rarer than ``LOOK_TASKS * LOOKS_MAX`` can find.
    """

    __slots__ = (
        "_calls",
        "_exchange",
        "_limit",
        "_looks",
        "_request",
        "_retries",
        "_status",
        "_tasks",
    )

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
        self._looks = 0
        self._tasks: list[Task] = []

    def start(self, after: str) -> None:
        """Begin behind ``after``: an offset, or what stands in the list of delayed tasks."""
        if after.startswith("w"):
            parts = after[1:].split(".")
            is_sound = all(p.isascii() and p.isdigit() and len(p) < 19 for p in parts)
            if len(parts) != 2 or not is_sound:
                raise InvalidArgument(f"after={after[:40]!r} is no place", "use next of a page")
            self._list_delayed([int(parts[0]), int(parts[1])])
            return
        if after and not (after.isascii() and after.isdigit() and len(after) < 19):
            raise InvalidArgument(f"after={after[:40]!r} is no place", "use next of a page")
        self._search(int(after) if after else -1)

    def _search(self, after: int) -> None:
        self._looks += 1
        count = LOOK_TASKS if self._status else self._limit - len(self._tasks)
        asked = {"limit": count, "after": after}
        self._ask("trace.search", asked, self._states)

    def _states(self, found: dict[str, Any]) -> None:
        offsets = [row["offset"] for row in found["messages"]]
        last = int(found["after"])
        asked = {"group": TASK_GROUP, "offsets": offsets}
        self._ask("group.messages", asked, lambda told: self._choose(told["rows"], last))

    def _choose(self, states: list[State], last: int) -> None:
        wanted = [state for state in states if may_be(state, self._status)]
        room = self._limit - len(self._tasks)
        if len(wanted) > room:
            last = wanted[room - 1]["offset"]
        self._read(wanted[:room], last)

    def _read(self, states: list[State], last: int) -> None:
        reads: list[Call] = [self._reading(state["offset"]) for state in states]
        Fan(reads, lambda got: self._exchange.guard(self._took, states, got, last)).start()

    def _took(self, states: list[State], got: list[Any], last: int) -> None:
        for state, reply in zip(states, got, strict=True):
            if _is_gone(reply):
                continue  # retention took it meanwhile
            messages = open_batches(reply.batches)
            message = next((m for m in messages if m.offset == state["offset"]), None)
            if message is None:
                continue
            task = task_of(message, state, self._retries)
            if self._status in ("", task.status):
                self._tasks.append(task)
        self._go_on(last)

    def _go_on(self, last: int) -> None:
        has_room = len(self._tasks) < self._limit
        if last >= 0 and has_room and self._status and self._looks < LOOKS_MAX:
            self._search(last)
        elif last >= 0:
            self._exchange.json(TaskList(self._tasks, str(last)))
        elif self._status not in ("", PENDING):
            self._exchange.json(TaskList(self._tasks, None))
        elif has_room:
            self._list_delayed(None)
        else:
            self._exchange.json(TaskList(self._tasks, DELAYED))

    def _list_delayed(self, after: list[int] | None) -> None:
        count = self._limit - len(self._tasks)
        asked = {"limit": count, "after": after}

        def found(reply: dict[str, Any]) -> None:
            rows = reply["rows"]
            shows = [self._showing(number) for _, number, _ in rows]
            full = len(rows) == count
            last = f"w{rows[-1][0]}.{rows[-1][1]}" if full else None
            Fan(shows, lambda got: self._exchange.guard(self._told, rows, got, last)).start()

        self._ask("waiting.list", asked, found)

    def _told(self, rows: list[Any], got: list[Any], last: str | None) -> None:
        for (_, number, priority), shown in zip(rows, got, strict=True):
            if _is_gone(shown) or "batch" not in shown:
                continue  # released meanwhile
            (message,) = open_batch(shown["batch"])
            state: State = {"state": "waiting", "attempts": 0, "number": number}
            self._tasks.append(task_of(message, {**state, "priority": priority}, self._retries))
        self._exchange.json(TaskList(self._tasks, last))

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


def _is_gone(answer: Any) -> bool:
    """Say whether a task is not there any more; whatever else kept it from us fails the page."""
    if isinstance(answer, RaftlineError) and not isinstance(answer, NotFound):
        raise answer
    return isinstance(answer, NotFound)
