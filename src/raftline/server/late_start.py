"""A gateway that starts beside a node that serves already.

Its port is held from the first moment on (transport/addresses.py), so that one that is taken is
refused like any other, before anything was changed; clients that come early are refused and go to
another node. The gateway itself is loaded when the node takes work and was quiet for a moment, in a
thread of its own: a start is measured to the first ack. A node whose gateway cannot be loaded, or
cannot listen, serves without it and says so.
"""

import asyncio
import contextlib
import gc
import socket
from collections.abc import Callable
from typing import Generic, TypeVar

from raftline.config.settings import Settings
from raftline.gateways.ports import Calls
from raftline.node.ports import Clock
from raftline.telemetry.log import LogEvent

G = TypeVar("G")  # a gateway
C = TypeVar("C", bound=Calls)


class LateStart(Generic[G, C]):
    """Starts a gateway when the time has come; ends it."""

    name = ""  # in the log
    look_ms = 50  # for the node to be ready
    quiet_ms = 150  # from then on until the loading begins

    def __init__(
        self,
        clock: Clock,
        calls: C,
        settings: Settings,
        held: socket.socket,
        log: LogEvent,
        load: Callable[[], type[G]],
    ) -> None:
        self._clock = clock
        self._calls = calls
        self._settings = settings
        self._held = held
        self._log = log
        self._load = load
        self._gateway: G | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_over = False

    # What differs from gateway to gateway.

    @property
    def address(self) -> str:
        """Return where it listens."""
        raise NotImplementedError

    async def serve(self, kind: type[G], loop: asyncio.AbstractEventLoop) -> G:
        """Make the gateway and let it listen. Raises OSError."""
        raise NotImplementedError

    async def hang_up(self, gateway: G) -> None:
        """Take no more calls; give those in work a moment."""
        raise NotImplementedError

    def node_is_ready(self) -> None:
        """The gateway is loaded in a moment."""

    # What all have.

    def begin(self) -> None:
        """Begin to look whether the node is ready."""
        if self._is_over:
            return
        if self._calls.status().ready:
            self.node_is_ready()
            self._clock.call_later(self.quiet_ms, self._go)
        else:
            self._clock.call_later(self.look_ms, self.begin)

    def _go(self) -> None:
        if not self._is_over:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._start(loop))

    async def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            kind = await loop.run_in_executor(None, self._load)
            gateway = await self.serve(kind, loop)
        except Exception as error:  # noqa: BLE001 - whatever it is, the node serves without
            self._log("error", f"{self.name}.unavailable", address=self.address, error=repr(error))
            self._held.close()
            return
        self._gateway = gateway
        gc.freeze()  # what was loaded stays
        self._log("info", f"{self.name}.started", address=self.address)
        if self._is_over:
            await self.hang_up(gateway)

    async def end(self) -> None:
        """End it, or let it not begin."""
        self._is_over = True
        if self._gateway is not None:
            await self.hang_up(self._gateway)
        elif self._task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._held.close()
