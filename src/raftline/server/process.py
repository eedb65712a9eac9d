"""One node as a process: settings in, exit code out.

Order of the start
    Check the settings, bind the ports, lock the directory (each refusal is one line that names the
    thing and what to do, and nothing was changed); then the loop, the lanes, the node, the
    gateways. What is needed later only is imported later: start-up time counts.

How it ends
    SIGTERM or SIGINT: stop listening, let the node finish, at most ``STOP_MS_MAX``; exit code 0. A
    second signal ends at once. ``on_fatal`` of the node, or a bug that reached the loop: one line,
    exit code 70, at once, because after a failed sync nothing may be written any more.
"""

import asyncio
import contextlib
import errno
import gc
import os
import random
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from raftline.config.relations import problems
from raftline.config.settings import Settings
from raftline.gateways.error_table import row_of
from raftline.gateways.http.connection import HttpConnection
from raftline.gateways.http.gateway import HttpGateway
from raftline.gateways.kafka.ports import KafkaCalls
from raftline.model.errors import RaftlineError
from raftline.node.clock import LoopClock
from raftline.node.lanes import ThreadLane
from raftline.server.grpc_start import GrpcStart
from raftline.server.kafka_start import KafkaStart
from raftline.server.memory import keep_big_blocks
from raftline.server.open_files import take_open_files
from raftline.storage.os_disk import DirectoryInUse, OsDisk
from raftline.telemetry.log import Log
from raftline.transport.addresses import bind, hold, listen
from raftline.transport.ports import LinkEvents
from raftline.transport.tcp import TcpNetwork

STOP_MS_MAX = 8_000
EXIT_USAGE = 2
EXIT_REFUSED = 6
EXIT_FATAL = 70


class Program(LinkEvents, KafkaCalls, Protocol):
    """What the process runs: the node."""

    on_fatal: Callable[[str], None]
    on_refused: Callable[[RaftlineError], None]

    def start(self) -> None:
        """Recover from the disk and begin. Raises RaftlineError or OSError."""
        ...

    def stop(self, done: Callable[[], None]) -> None:
        """End in good order."""
        ...


Build = Callable[..., Program]


class Refusal(Exception):
    """The process cannot start. Says what is wrong, what to do, and the exit code."""

    def __init__(self, message: str, hint: str, code: int = EXIT_REFUSED) -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code


def run(settings: Settings, build: Build | None = None) -> int:
    """Run a node until it is told to stop; return the exit code."""
    listeners: dict[str, socket.socket] = {}
    disk: OsDisk | None = None
    try:
        _check(settings)
        keep_big_blocks()
        take_open_files()
        listeners["peer"] = _listen("peer", settings.listen.peer, bind)
        for name in ("http", "kafka", "grpc"):
            listeners[name] = _listen(name, getattr(settings.listen, name), hold)
        disk = _open_disk(settings.node.data_dir)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_Process(settings, disk, listeners, build or _node).run())
    except Refusal as refusal:
        _say(str(refusal), refusal.hint)
        return refusal.code
    finally:
        for listener in listeners.values():
            listener.close()
        if disk is not None:
            disk.unlock()


class _Process:
    """The parts of a running node."""

    __slots__ = (
        "_build",
        "_disk",
        "_gateway",
        "_grpc",
        "_kafka",
        "_lanes",
        "_listeners",
        "_log",
        "_loop",
        "_network",
        "_node",
        "_over",
        "_settings",
        "_stopping",
    )

    def __init__(
        self,
        settings: Settings,
        disk: OsDisk,
        listeners: dict[str, socket.socket],
        build: Build,
    ) -> None:
        self._settings = settings
        self._disk = disk
        self._listeners = listeners
        self._build = build
        self._stopping = False

    async def run(self) -> int:
        """Assemble, start, wait for the end. Raises Refusal."""
        self._assemble()
        try:
            self._start_node()
            await self._network.start(self._listeners["peer"])
            await self._listen_http()
            self._settle_down()
            self._kafka.begin()
            self._grpc.begin()
            await self._over.wait()
            await self._kafka.end()
            await self._grpc.end()
        finally:
            self._take_down()
        return 0

    async def _listen_http(self) -> None:
        """Take requests from now on: nobody waits in a queue while a node recovers."""
        try:
            listen(self._listeners["http"])
            await self._gateway.start(self._listeners["http"])
        except OSError as error:  # somebody was quicker
            raise _busy("http", self._settings.listen.http, error) from error

    def _assemble(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        settings = self._settings
        clock = self._new_clock(loop)
        output = settings.log_output
        log = self._log = Log(clock.wall_ms, level=output.level, form=output.format)
        self._over = asyncio.Event()
        loop.set_exception_handler(self._on_loop_error)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        self._lanes = (ThreadLane(loop, "sync"), ThreadLane(loop, "segment"))
        self._network = TcpNetwork(loop, settings.listen.peer, log)
        self._node = self._build(
            clock,
            random.Random(os.urandom(32)),
            self._disk,
            *self._lanes,
            self._network,
            settings,
            log,
        )
        self._node.on_fatal = self._fatal
        self._node.on_refused = self._refused
        self._network.events = self._node
        self._gateway = HttpGateway(loop, clock, self._node, settings, log)
        self._grpc = GrpcStart(clock, self._node, settings, self._listeners["grpc"], log)
        self._kafka = KafkaStart(clock, self._node, settings, self._listeners["kafka"], log)

    def _new_clock(self, loop: asyncio.AbstractEventLoop) -> LoopClock:
        file = self._settings.node.test_clock_file
        if not file:
            return LoopClock(loop)
        from raftline.node.shifted_clock import ShiftedClock

        try:
            return ShiftedClock(loop, Path(file))
        except (OSError, ValueError) as error:
            raise Refusal(
                f"node.test_clock_file: {error}", "for tests: a file of eight bytes", EXIT_USAGE
            ) from error

    def _start_node(self) -> None:
        data_dir = self._settings.node.data_dir
        try:
            self._node.start()
        except RaftlineError as error:
            raise Refusal(f"{data_dir}: {error.message}", error.hint, row_of(error).exit) from error
        except OSError as error:
            raise _disk_refusal(data_dir, error) from error

    def _settle_down(self) -> None:
        """Say where we are, and take what the start made out of the collector's sight."""
        listen = self._settings.listen
        self._log(
            "info",
            "process.started",
            name=self._settings.node.name,
            pid=os.getpid(),
            http=listen.http,
            kafka=listen.kafka,
            peer=listen.peer,
            data_dir=self._settings.node.data_dir,
        )
        gc.collect()
        gc.freeze()

    def _stop(self, number: int) -> None:
        if self._stopping:
            os._exit(128 + number)
        self._stopping = True
        self._log("info", "process.stopping", signal=signal.Signals(number).name)
        self._gateway.stop_listening()
        self._kafka.stop_listening()
        self._loop.call_later(STOP_MS_MAX / 1000, self._give_up)
        self._node.stop(self._over.set)

    def _give_up(self) -> None:
        if not self._over.is_set():
            self._log("warning", "process.stop_overdue", after_ms=STOP_MS_MAX)
            os._exit(0)  # what is acknowledged is on disk: an abrupt end is safe

    def _take_down(self) -> None:
        self._gateway.close()
        self._network.close()
        for lane in self._lanes:
            lane.close()
        self._log("info", "process.stopped", name=self._settings.node.name)

    def _fatal(self, reason: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._log("error", "process.failed", reason=reason)
            _say(f"node {self._settings.node.name} ends: {reason}", "see the log above")
        os._exit(EXIT_FATAL)

    def _refused(self, error: RaftlineError) -> None:
        """The node found out while it ran that it must not run here."""
        with contextlib.suppress(OSError, ValueError):
            self._log("error", "process.refused", reason=error.message)
            _say(f"{self._settings.node.data_dir}: {error.message}", error.hint)
        os._exit(row_of(error).exit)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Take what nobody caught. A bug ends the process; a connection's ends the connection."""
        error = context.get("exception")
        message = str(context.get("message", ""))
        if error is None or isinstance(error, OSError) or _is_foreign(context):
            self._log("warning", "loop.error", message=message, error=repr(error))
            return
        where = "".join(traceback.format_exception(error))
        self._log("error", "loop.bug", message=message, error=repr(error), where=where)
        if not isinstance(context.get("protocol"), HttpConnection):
            self._fatal(f"a bug: {error!r}")


def _is_foreign(context: dict[str, Any]) -> bool:
    """Say whether an error is that of a coroutine of gRPC's, about one call of it."""
    task: Any = context.get("task") or context.get("future")
    coroutine: Any = task.get_coro() if hasattr(task, "get_coro") else None
    return type(coroutine).__module__.startswith("_cython")


def _node(*parts: Any) -> Program:
    from raftline.node.node import Node

    return Node(*parts)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def _check(settings: Settings) -> None:
    if not __debug__:
        raise Refusal(
            "python -O switches the assertions off that guard the data",
            "start without -O and without PYTHONOPTIMIZE",
        )
    wrong = problems(settings)
    if wrong:
        raise Refusal("; ".join(wrong), "raftline serve --print-config shows them all", EXIT_USAGE)


def _listen(name: str, address: str, take: Callable[[str], socket.socket]) -> socket.socket:
    try:
        return take(address)
    except OSError as error:
        raise _busy(name, address, error) from error


def _busy(name: str, address: str, error: OSError) -> Refusal:
    flag = f"--{name}-addr"
    if error.errno == errno.EADDRINUSE:
        return Refusal(
            f"{flag} {address}: the port is taken",
            f"choose another with {flag} (raftline up: --port-base N), or stop what runs there",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        hint = f"ports below 1024 need rights: choose another with {flag}"
        return Refusal(f"{flag} {address}: not permitted", hint)
    hint = f"{flag} takes host:port of an address this machine has"
    return Refusal(f"{flag} {address}: {error.strerror or error}", hint)


def _open_disk(data_dir: str) -> OsDisk:
    try:
        disk = OsDisk(data_dir)
        disk.lock()
    except DirectoryInUse as error:
        raise Refusal(str(error), "each node needs its own --data-dir") from error
    except OSError as error:
        raise _disk_refusal(data_dir, error) from error
    return disk


def _disk_refusal(data_dir: str, error: OSError) -> Refusal:
    hints = {
        errno.EACCES: "give this user the right to write there, or name another --data-dir",
        errno.EPERM: "give this user the right to write there, or name another --data-dir",
        errno.EROFS: "the file system is read-only: name another --data-dir",
        errno.ENOSPC: "the disk is full: free some space, or name another --data-dir",
        errno.EDQUOT: "the quota is used up: free some space, or name another --data-dir",
        errno.ENOTDIR: "a file is in the way: name another --data-dir",
        errno.EEXIST: "a file is in the way: name another --data-dir",
    }
    hint = hints.get(error.errno or 0, "see whether the disk is sound, or name another --data-dir")
    file = f" ({error.filename})" if error.filename else ""
    return Refusal(f"--data-dir {data_dir}: {error.strerror or error}{file}", hint)


def _say(message: str, hint: str) -> None:
    sys.stderr.write(f"error: {message}\nhint:  {hint}\n")
    sys.stderr.flush()
