"""Messages in the hands of a worker: who keeps them, and until when."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import islice
from typing import Any

import pytest

from raftline.client.async_line import AsyncLine
from raftline.client.async_received import TURN_MESSAGES, AsyncMessage
from raftline.client.clock import mono_ms
from raftline.client.core.batches import Batch
from raftline.client.core.receives import Leased, Wish
from raftline.client.core.settles import Lease, Settles
from raftline.client.leased import LeasedMessage
from raftline.client.line import Line, Sending
from raftline.client.received import Receiving
from raftline.model.errors import InvalidArgument, RaftlineError, TimedOut, Unavailable
from raftline.model.message import Message

NOBODY = "http://127.0.0.1:1"
WISH = Wish(topic="t", group="g", lease_ms=10_000)


@pytest.fixture
def line() -> Iterator[Line]:
    with Line(NOBODY, timeout="50ms") as line:
        yield line


def leased(offset: int, lease_ms: int = 10_000) -> Leased:
    lease = Lease("t", 0, "g", 1, 1, 1, 0, lease_ms, mono_ms() + lease_ms)
    return lease, Message(offset=offset, timestamp_ms=5, key=None, value=b"v", headers=())


@contextmanager
def busy(line: Line) -> Iterator[None]:
    """Keep the thread that does the I/O busy, and wait until it did what it was told meanwhile."""
    go = threading.Event()
    line.background.call(go.wait, 10)
    try:
        yield
    finally:
        go.set()
        line.background.wait(lambda done: done(True), 10)


def supplied(line: Line, *offsets: int, extend: bool) -> Receiving:
    receiving = line.receive("t", group="g", lease="10s", extend=extend)
    receiving._receiver.ready.extend(leased(offset) for offset in offsets)
    return receiving


def test_a_message_that_is_done_before_it_is_held_is_not_held_for_ever(line: Line) -> None:
    receiving = supplied(line, 1, 2, 3, extend=True)
    with busy(line):
        for _ in range(2):
            next(receiving).ack()
        last = next(receiving)
    assert [message.offset for _, message in receiving._receiver.held.values()] == [last.offset]


def test_a_block_that_ends_before_its_message_is_held_leaves_none_held(line: Line) -> None:
    receiving = supplied(line, 1, extend=False)
    with busy(line), next(receiving):
        pass
    assert not receiving._receiver.held


def test_what_came_with_the_end_is_taken(line: Line) -> None:
    """A reply that is the last one comes between two looks of the worker's thread."""
    receiving = supplied(line, extend=False)
    receiver = receiving._receiver

    class Late(deque[Leased]):
        def popleft(self) -> Leased:
            if not receiver.is_over:
                self.append(leased(1))
                receiver.is_over = True
                raise IndexError
            return super().popleft()

    receiver.ready = Late()
    assert [message.offset for message in receiving] == [1]


async def _acked_in_vain() -> None:
    async with AsyncLine(NOBODY, timeout="50ms") as line:
        messages = [AsyncMessage(line, line.engine.receiver(WISH), leased(n)) for n in range(3)]
        with pytest.raises(RaftlineError):
            await line.ack_many(messages, wait=True)


def test_who_waits_for_many_acks_hears_that_they_were_not_taken(line: Line) -> None:
    """It returned as if all of it were stored."""
    receiving = supplied(line, 1, 2, 3, extend=False)
    with pytest.raises(RaftlineError):
        line.ack_many(islice(receiving, 3), wait=True)
    assert line.settles_lost == 3
    asyncio.run(_acked_in_vain())


@pytest.mark.parametrize("delay", ["soon", "30d", -1])
def test_a_word_that_is_refused_settles_nothing(line: Line, delay: str | int) -> None:
    """One that only the node refused was lost: the message came again when its lease was over."""
    (message,) = list(islice(supplied(line, 1, extend=False), 1))
    with pytest.raises(InvalidArgument):
        message.nack("too early", delay=delay)
    with pytest.raises(InvalidArgument):
        message.extend(delay, wait=False)
    assert not message.is_settled
    message.nack("too early", delay="1s")


@pytest.mark.parametrize("reason", ["no file \udcff", ValueError("no paper")], ids=repr)
def test_a_reason_that_is_no_text_is_told_all_the_same(line: Line, reason: str) -> None:
    """It ended in the thread that does the I/O: the word was lost, and every flush timed out."""
    for say, message in zip(("nack", "reject"), supplied(line, 1, 2, extend=False), strict=False):
        getattr(message, say)(reason)
    line.flush("1s")


@pytest.mark.parametrize("number", [b"high", b"\xff", b"9" * 5_000, b""])
def test_a_priority_that_somebody_else_wrote_ends_no_worker(line: Line, number: bytes) -> None:
    lease, _ = leased(1)
    headers = (("raftline-priority", number),)
    stored = Message(offset=1, timestamp_ms=5, key=None, value=b"v", headers=headers)
    receiver = supplied(line, extend=False)._receiver
    assert LeasedMessage(receiver, (lease, stored)).priority == 0


@pytest.mark.parametrize(
    ("told", "known"), [(b"t.0.w7", "t.0.w7"), (b"other.0.w7", "t.0.1"), (b"\xff", "t.0.1")]
)
def test_a_message_copied_with_its_headers_has_an_id_of_its_own(
    line: Line, told: bytes, known: str
) -> None:
    """As all reads have it: a task's result was kept under the id of another message."""
    lease, _ = leased(1)
    stored = Message(
        offset=1, timestamp_ms=5, key=None, value=b"v", headers=(("raftline-id", told),)
    )
    receiver = supplied(line, extend=False)._receiver
    assert LeasedMessage(receiver, (lease, stored)).id == known


@pytest.mark.parametrize("wish", [{"member": "\ud800"}, {"start": 1j}])
def test_what_no_request_can_carry_is_refused_where_it_is_wished(
    line: Line, wish: dict[str, Any]
) -> None:
    """It raised on the thread that does the I/O: the receiver waited for ever."""
    with pytest.raises(InvalidArgument):
        line.receive("t", group="g", **wish)


def test_a_receiver_takes_whole_numbers_of_any_kind(line: Line) -> None:
    wish = line.receive("t", group="g", count=Fraction(2), partition=Fraction(1))._receiver.wish
    assert (type(wish.count), type(wish.partition)) == (int, int)


def test_what_was_on_its_way_when_the_client_was_closed_is_in_doubt() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        line = Line(f"http://127.0.0.1:{silent.getsockname()[1]}")
        # as the core does that takes it in
        sending = Sending(line=line, load=Batch("t", 0, 0, 0.0))
        unsent = line.send("t", b"v")  # its topic is looked up
        line.background.wait(lambda done: (line._drain(), done(True)), 5)
        line.background.stop()
        with pytest.raises(TimedOut):
            sending.result()
        with pytest.raises(Unavailable):
            unsent.result()
        with pytest.raises(Unavailable):
            line.send("t", b"v")


FORKED = """
import os, sys, time
import raftline
from raftline.model.errors import Unavailable
line = raftline.connect("http://127.0.0.1:1", timeout="3s")
line.send("t", b"v")
began = time.monotonic()
line._lock.acquire()  # as another thread does that sends
child = os.fork()
if not child:
    try:
        line.send("t", b"v").result()
    except Unavailable:
        sys.exit(7)  # what was connected is closed at the exit
    sys.exit(1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), time.monotonic() - began)
os._exit(0)
"""


def test_a_fork_does_not_wait_for_the_thread_of_the_other_process() -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-u", "-c", FORKED],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    code, took_s = ran.stdout.split()
    assert int(code) == 7, ran
    assert float(took_s) < 2.0


async def _cancelled_at_a_turn() -> None:
    async with AsyncLine(NOBODY, timeout="50ms") as line:
        receiving = line.receive("t", group="g", lease="10s")
        asking = asyncio.create_task(anext(receiving))
        await asyncio.sleep(0)
        receiver = receiving._receiver
        assert receiver is not None
        receiver.ready.extend(leased(offset) for offset in range(TURN_MESSAGES))
        receiver.on_change()
        await asking
        for _ in range(TURN_MESSAGES - 2):
            await anext(receiving)
        asking = asyncio.create_task(anext(receiving))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await anext(receiving)).offset == TURN_MESSAGES - 1


def test_who_is_cancelled_while_others_have_a_turn_takes_no_message_along() -> None:
    asyncio.run(_cancelled_at_a_turn())


async def _cancelled_while_it_takes_many(monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[int] = []
    monkeypatch.setattr(
        Settles, "take", lambda _, rows: released.extend(offset for _, offset, *_ in rows)
    )
    async with AsyncLine(NOBODY, timeout="50ms") as line:
        asking = asyncio.create_task(line.receive_many("t", group="g", count=500, lease="10s"))
        await asyncio.sleep(0)
        (receiver,) = line.engine._receivers.values()
        receiver.ready.extend(leased(offset) for offset in range(TURN_MESSAGES + 10))
        receiver.is_over = True
        receiver.on_change()
        while receiver.ready and not asking.done():
            if len(receiver.ready) == 11:  # it lets others have a turn
                asking.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.sleep(0)
        assert sorted(released) == list(range(TURN_MESSAGES + 10))


def test_who_is_cancelled_while_many_are_taken_gives_them_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that were taken were nobody's until their leases ran out, and counted as delivered."""
    asyncio.run(_cancelled_while_it_takes_many(monkeypatch))


async def _closed_with_a_poll_that_does_not_end() -> None:
    line = AsyncLine(NOBODY, timeout="300ms")
    async with line:
        line.engine.receiver(Wish(topic="t", group="g"))._is_polling = True
        sending = await line.send("t", b"v")
    assert sending.is_done


def test_a_poll_that_does_not_end_keeps_no_send_from_its_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The flush was left out: what was buffered was dropped."""
    monkeypatch.setattr("raftline.client.async_line.GRACE_S", 0.1)
    asyncio.run(_closed_with_a_poll_that_does_not_end())
