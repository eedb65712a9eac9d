"""Lanes: the helper threads that do what blocks, so that the loop never does.

State
    A queue of jobs into the thread and a queue of results out of it. The thread rings a file
    descriptor (eventfd, or a socket pair where there is none) and the loop then runs every
    completion that is ready: one wake-up for many jobs.

Invariants
    N1  Jobs run strictly in the order of ``submit``, one at a time.
    N2  Every submitted job gets exactly one ``done``, on the loop, in the same order.
    N3  An exception of a job is handed to its ``done``; the thread lives on.
    N4  A closed lane does nothing more. What completions still ask for while a process ends is
        dropped, as a crash would drop it; the next start does it.

Costs
    About 90 us for a round trip on a busy machine, nearly all of it the two wake-ups. No Future
    and no lock of our own: both queues are atomic under the interpreter lock.
"""

import os
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
Job = tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]
Completion = tuple[Callable[[Any, BaseException | None], None], Any, BaseException | None]


class ThreadLane:
    """One helper thread that does blocking jobs strictly in order. Construct it on the loop."""

    __slots__ = ("_bell", "_inbox", "_loop", "_outbox", "_rung", "_thread")

    def __init__(self, loop: "asyncio.AbstractEventLoop", name: str) -> None:
        self._loop = loop
        self._inbox: SimpleQueue[Job | None] = SimpleQueue()
        self._outbox: deque[Completion] = deque()
        self._rung = False
        self._bell: _Bell | None = _EventBell() if sys.platform == "linux" else _SocketBell()
        loop.add_reader(self._bell.fileno(), self._complete)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(
        self, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Run ``job`` off the loop, then ``done(result, error)`` on the loop. N1, N2, N4."""
        if self._bell is not None:
            self._inbox.put((job, done))

    def close(self) -> None:
        """Wait for the jobs already submitted, run their completions, end the thread."""
        bell, self._bell = self._bell, None
        if bell is None:
            return
        self._inbox.put(None)
        self._thread.join()
        self._loop.remove_reader(bell.fileno())
        bell.close()
        while self._outbox:
            done, result, error = self._outbox.popleft()
            done(result, error)

    def _run(self) -> None:
        """The thread: take a job, do it, ring. A bell already rung is not rung again."""
        bell, take, give = self._bell, self._inbox.get, self._outbox.append
        assert bell is not None
        while item := take():
            job, done = item
            result: Any = None
            error: BaseException | None = None
            try:
                result = job()
            except BaseException as caught:  # noqa: BLE001 - N3: the loop decides
                error = caught
            give((done, result, error))
            if not self._rung:
                self._rung = True
                bell.ring()
            del item, job, done, result, error  # a waiting thread keeps nothing alive

    def _complete(self) -> None:
        """Run, on the loop, what is finished now."""
        bell = self._bell
        if bell is None:
            return
        bell.hush()
        # Cleared before the count: a result that comes later rings again.
        self._rung = False
        outbox = self._outbox
        left = len(outbox)
        try:
            while left and outbox:
                left -= 1
                done, result, error = outbox.popleft()
                done(result, error)
        finally:
            if left and outbox and self._bell is not None:
                bell.ring()  # a completion raised: the others still get their turn (N2)


class _Bell(Protocol):
    """Something a thread rings and the loop's poller hears."""

    def fileno(self) -> int: ...
    def ring(self) -> None: ...
    def hush(self) -> None: ...
    def close(self) -> None: ...


class _EventBell:
    __slots__ = ("_fd",)

    def __init__(self) -> None:
        assert sys.platform == "linux"
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._fd

    def ring(self) -> None:
        assert sys.platform == "linux"
        os.eventfd_write(self._fd, 1)

    def hush(self) -> None:
        assert sys.platform == "linux"
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return  # somebody hushed it already

    def close(self) -> None:
        os.close(self._fd)


class _SocketBell:
    __slots__ = ("_loop_end", "_thread_end")

    def __init__(self) -> None:
        self._loop_end, self._thread_end = socket.socketpair()
        self._loop_end.settimeout(0)
        self._thread_end.settimeout(0)

    def fileno(self) -> int:
        return self._loop_end.fileno()

    def ring(self) -> None:
        try:
            self._thread_end.send(b"\0")
        except BlockingIOError:
            return  # full, so it is ringing

    def hush(self) -> None:
        try:
            self._loop_end.recv(4096)
        except BlockingIOError:
            return

    def close(self) -> None:
        self._loop_end.close()
        self._thread_end.close()
