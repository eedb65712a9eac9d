"""The thread that does the I/O of a sync client: an event loop with the core on it."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from random import Random
from typing import Any

from raftline.client.core.engine import Engine, Options
from raftline.client.net import LoopClock, new_network
from raftline.model.errors import Unavailable

START_S_MAX = 10.0
GRACE_S = 2.0  # what a wait gets beyond the core's own deadline


class Background:
    """An engine on a loop on a thread."""

    __slots__ = ("_is_closed", "_loop", "_process", "_thread", "_wires", "engine")

    def __init__(self, seeds: list[str], options: Options) -> None:
        self._loop = _new_loop()
        self._wires = new_network(self._loop, is_grpc=options.is_grpc)
        self._is_closed = False
        self._process = os.getpid()
        self.engine = Engine(LoopClock(self._loop), self._wires, Random(), seeds, options)
        self._thread = threading.Thread(target=self._run, name="raftline-client", daemon=True)
        self._thread.start()
        self.call(self.engine.start)

    @property
    def is_closed(self) -> bool:
        """Say whether it is over; in a fork it is: the thread stayed in the other process."""
        return self._is_closed or self._process != os.getpid()

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Run something on the loop's thread, soon. Raises Unavailable after the end."""
        if self._process != os.getpid():
            raise Unavailable("the client is another process's", "connect after the fork")
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError as error:
            raise Unavailable("the client is closed", "connect again") from error

    def wait(self, begin: Callable[[Callable[[Any], None]], None], limit_s: float) -> Any:
        """Run ``begin`` there and wait until it calls back; None if it did not in time."""
        slot: list[Any] = []
        event = threading.Event()

        def done(answer: Any) -> None:
            if not slot:
                slot.append(answer)
                event.set()

        self.call(begin, done)
        event.wait(limit_s)
        return slot[0] if slot else None

    def stop(self) -> None:
        """Hang up and end the thread."""
        if self.is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(Unavailable):
            self.call(self._end)
        if threading.current_thread() is not self._thread:
            self._thread.join(GRACE_S)

    def _end(self) -> None:
        self.engine.close()
        self._wires.close()
        self._loop.call_soon(self._loop.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            pending = asyncio.all_tasks(self._loop)
            for task in pending:
                task.cancel()
            if pending:
                self._loop.run_until_complete(asyncio.wait(pending))
        finally:
            self._loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return a loop; uvloop's where it is installed."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
