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
    task_of,
)
from raftline.gateways.http.routes import Request
from raftline.gateways.ports import Calls
from raftline.model.errors import (
    InvalidArgument,
    RaftlineError,
)
from raftline.model.records import open_batch, open_batches
from raftline.model.tasks import (
    TASK_GROUP,
    TASK_TOPIC,
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
            is_sound = all(p.isascii() and p.isdigit() and len(p) < 19 for p in parts)
            if len(parts) != 2 or not is_sound:
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
