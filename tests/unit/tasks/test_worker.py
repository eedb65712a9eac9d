"""A worker and what tasks may do to it, without a cluster."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import wraps
from typing import Any

import pytest

from raftline.client.clock import mono_ms
from raftline.client.core.settles import Lease
from raftline.client.leased import PRIORITY_HEADER
from raftline.client.line import Line
from raftline.client.messages import Message as ReadMessage
from raftline.client.received import Message, Receiving
from raftline.model.errors import InvalidArgument, TimedOut, TooLarge
from raftline.model.message import Message as Stored
from raftline.model.tasks import TASK_RETRIES_HEADER, TASK_TYPE_HEADER
from raftline.tasks import App, GiveUp, Retry
from raftline.tasks.states import state_of
from raftline.tasks.worker import Worker, _call
from raftline.tasks.worker import log as worker_log

NOBODY = "http://127.0.0.1:1"
app = App(NOBODY)


@app.task
def leaves() -> None:
    sys.exit(3)


@app.task
async def is_cancelled() -> None:
    sleeping = asyncio.create_task(asyncio.sleep(60))
    sleeping.cancel()
    await sleeping


@app.task
def asks_for_nonsense() -> None:
    raise Retry("later", delay="soon")


@app.task
def raises() -> None:
    raise ValueError("\udcff")


class Wordless(Exception):
    def __str__(self) -> str:
        return self.args[0]  # there is none


class Bare(Retry):
    def __init__(self) -> None: ...


@app.task
def raises_without_words() -> None:
    raise Wordless


@app.task
def asks_without_a_delay() -> None:
    raise Bare


@app.task
def gives_up() -> None:
    raise GiveUp("the address is wrong")


@app.task
def prints(text: object = None) -> None: ...


@dataclass
class Order:
    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise LookupError(f"there is no order {self.number}")


@app.task
def ships(order: Order) -> None: ...


@pytest.mark.parametrize(
    ("name", "payload", "failed"),
    [
        ("leaves", b"{}", 1),
        ("is_cancelled", b"{}", 1),
        ("asks_for_nonsense", b"{}", 1),
        ("raises", b"{}", 1),
        ("raises_without_words", b"{}", 1),
        ("asks_without_a_delay", b"{}", 1),
        ("ships", b'{"order": {"number": -1}}', 1),
        ("prints", b'"\xff"', 0),
        ("prints", b"[" * 50_000 + b"]" * 50_000, 0),
    ],
    ids=[
        "leaves",
        "is_cancelled",
        "asks_for_nonsense",
        "raises",
        "raises_without_words",
        "asks_without_a_delay",
        "its arguments raise",
        "no text",
        "too deep",
    ],
)
def test_no_task_ends_its_worker(
    name: str, payload: bytes, failed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that ended took no more work; with the last one the worker ended, well content."""
    monkeypatch.setattr(worker_log, "disabled", True)  # halves of characters in a test's output
    retries = b"9" * 5_000 if name == "raises" else b"3"  # not what it means, but who knows
    headers = ((TASK_TYPE_HEADER, name.encode()), (TASK_RETRIES_HEADER, retries))
    stored = Stored(offset=0, timestamp_ms=5, key=None, value=payload, headers=headers)
    lease = Lease("tasks", 0, "workers", 1, 1, 1, 0, 10_000, mono_ms() + 10_000)
    with Line(NOBODY, timeout="50ms") as line:
        receiving = line.receive("tasks", group="workers", lease="10s")
        message = Message(line, receiving._receiver, (lease, stored))
        worker = Worker(app)
        worker._run_one(line, message)
        assert message.is_settled
        assert (worker.done, worker.failed) == (0, failed)


@pytest.mark.parametrize(
    ("name", "has_trace"),
    [("asks_without_a_delay", False), ("gives_up", False), ("raises_without_words", True)],
)
def test_a_stack_trace_is_of_what_was_not_meant(
    name: str, has_trace: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A task that asked to be run again was told like one that broke: eleven lines each time."""
    headers = ((TASK_TYPE_HEADER, name.encode()), (TASK_RETRIES_HEADER, b"3"))
    stored = Stored(offset=0, timestamp_ms=5, key=None, value=b"{}", headers=headers)
    lease = Lease("tasks", 0, "workers", 1, 1, 1, 0, 10_000, mono_ms() + 10_000)
    with Line(NOBODY, timeout="50ms") as line:
        receiving = line.receive("tasks", group="workers", lease="10s")
        Worker(app)._run_one(line, Message(line, receiving._receiver, (lease, stored)))
    (record,) = caplog.records
    assert "tasks.0.0" in record.getMessage()
    assert ("Traceback" in record.getMessage()) == has_trace


def test_a_task_that_nobody_here_knows_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """It used up its attempts at workers of another app, and none of them said a word."""
    headers = ((TASK_TYPE_HEADER, b"of another app"),)
    worker = Worker(app)
    with Line(NOBODY, timeout="50ms") as line:
        receiving = line.receive("tasks", group="workers", lease="10s")
        for offset in range(2):
            stored = Stored(offset=offset, timestamp_ms=5, key=None, value=b"{}", headers=headers)
            lease = Lease("tasks", 0, "workers", 1, 1, 1, offset, 10_000, mono_ms() + 10_000)
            message = Message(line, receiving._receiver, (lease, stored))
            worker._run_one(line, message)
            assert message.is_settled
    (record,) = caplog.records
    assert "knows no task 'of another app'" in record.getMessage()


def test_a_task_whose_result_cannot_be_kept_is_not_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It did its work at each of its attempts."""
    monkeypatch.setattr(worker_log, "disabled", True)
    said: list[tuple[str, str]] = []
    mine = App(NOBODY, results=True)
    answers: dict[str, Any] = {"no_json": object(), "too_large": 5, "unheard": 6}
    for name, answer in answers.items():
        mine.task(name=name)(lambda answer=answer: answer)
    problems = [TooLarge("bytes", 2, 1), TimedOut("a send", 5)]

    def refuse(*words: Any, **wishes: Any) -> None:
        raise problems.pop(0)

    with Line(NOBODY, timeout="50ms") as line:
        monkeypatch.setattr(line, "send_now", refuse)
        monkeypatch.setattr(line, "settle", lambda row, wait: said.append((row[2], row[4])))
        for name in answers:
            headers = ((TASK_TYPE_HEADER, name.encode()),)
            stored = Stored(offset=0, timestamp_ms=5, key=None, value=b"{}", headers=headers)
            lease = Lease("tasks", 0, "workers", 1, 1, 1, 0, 10_000, mono_ms() + 10_000)
            receiver = line.receive("tasks", group="workers", lease="10s")._receiver
            Worker(mine)._run_one(line, Message(line, receiver, (lease, stored)))
    assert [verb for verb, _ in said] == ["reject", "reject", "nack"]
    assert all("cannot be kept" in reason for _, reason in said[:2])


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function as many decorators do, whether it is a coroutine function or not."""

    @wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    return wrapper


ran: list[str] = []


@app.task
@logged
async def is_decorated(text: str) -> str:
    await asyncio.sleep(0)
    ran.append(text)
    return text


def test_a_decorated_coroutine_function_is_run() -> None:
    """It was made a coroutine, which nobody ran, and acked."""
    ran.clear()
    assert _call(app.tasks["is_decorated"], [], {"text": "hello"}) == "hello"
    assert ran == ["hello"]


class Later:
    """What can be awaited and is no coroutine of Python's own: what Cython compiles is none."""

    def __await__(self) -> Generator[None, None, str]:
        ran.append("later")
        yield from ()
        return "done"


@app.task
def is_compiled() -> Later:
    return Later()


def test_whatever_can_be_awaited_is_awaited() -> None:
    ran.clear()
    assert _call(app.tasks["is_compiled"], [], {}) == "done"
    assert ran == ["later"]


@pytest.mark.parametrize("delay", ["soon", "30d", -1])
def test_a_delay_that_is_none_is_refused_where_it_is_written(delay: str | int) -> None:
    with pytest.raises(InvalidArgument):
        Retry(delay=delay)


def test_a_worker_that_drains_does_not_end_because_nobody_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It said that all was done."""
    monkeypatch.setattr("raftline.tasks.worker.PAUSE_S", 0.01)
    worker = Worker(app, drain=True)
    with Line(NOBODY, timeout="50ms") as line:
        thread = threading.Thread(target=worker._work, args=(line, 0), daemon=True)
        thread.start()
        while worker.error is None:
            thread.join(0.05)
        thread.join(0.2)
        assert thread.is_alive()
        worker.stop()
        thread.join(10)
        assert not thread.is_alive()


def test_a_worker_that_is_stopped_as_it_begins_to_receive_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waited for a message until its grace was over."""
    worker = Worker(app)
    with Line(NOBODY, timeout="20s") as line:
        receive = line.receive

        def stopped_meanwhile(*words: Any, **wishes: Any) -> Receiving:
            worker.stop()
            return receive(*words, **wishes)

        monkeypatch.setattr(line, "receive", stopped_meanwhile)
        thread = threading.Thread(target=worker._work, args=(line, 0), daemon=True)
        thread.start()
        thread.join(2)
        assert not thread.is_alive()


def test_a_worker_that_waits_for_its_last_task_leaves_it_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its main thread asked again and again, once the first of the others had nothing to do."""
    looks = 0

    def counted() -> float:
        nonlocal looks
        looks += 1
        return mono_ms()

    with App(NOBODY) as mine:
        mine._line = Line(NOBODY, timeout="1s")
        worker = Worker(mine, concurrency=2)
        monkeypatch.setattr(worker, "_work", lambda _, number: time.sleep(0.5 * number))
        monkeypatch.setattr("raftline.tasks.worker.mono_ms", counted)
        worker.stop()
        worker.run()
    assert looks < 20


def test_a_result_is_found_behind_many_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search looks through so many bytes a page; only the first page was looked at."""
    keeps = App(NOBODY, results=True)
    seen: list[str | None] = []
    with Line(NOBODY, timeout="50ms") as line:
        keeps._line = line

        def search(topic: str, *, after: str | None, **wanted: Any) -> dict[str, Any]:
            assert (topic, wanted) == ("tasks.results", {"key": "tasks.0.7", "limit": 1})
            seen.append(after)
            if after == "0:40":
                found = [{"id": "tasks.results.0.41"}] if len(seen) > 3 else []
                return {"messages": found, "next": None}
            return {"messages": [], "next": {None: "0:20", "0:20": "0:40"}[after]}

        stored = ReadMessage(
            topic="tasks.results", partition=0, offset=41, timestamp_ms=5, value=b"42"
        )
        monkeypatch.setattr(line, "search", search)
        monkeypatch.setattr(line, "message", lambda _: stored)
        monkeypatch.setattr(keeps, "get", lambda _: {"status": "leased"})
        assert keeps.result("tasks.0.7", "5s") == 42
    assert seen == [None, "0:20", "0:40", "0:40"]


@pytest.mark.parametrize("payload", [b"hello", b"\xff", b"[" * 50_000])
def test_a_task_of_another_program_is_shown_whatever_it_wrote(
    payload: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {PRIORITY_HEADER: b"high", TASK_RETRIES_HEADER: b"9" * 5_000}
    stored = ReadMessage(
        topic="jobs", partition=0, offset=3, timestamp_ms=5, value=payload, headers=headers
    )
    with Line(NOBODY, timeout="50ms") as line:
        monkeypatch.setattr(line, "trace", lambda _: {"timeline": [], "offset": 3})
        monkeypatch.setattr(line, "message", lambda _: stored)
        state = state_of(line, "workers", "jobs.0.3")
    assert state["payload"] == payload.decode("utf-8", "replace")
    assert (state["status"], state["priority"], state["max_retries"]) == ("pending", 0, 0)
