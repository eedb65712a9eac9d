"""The worker: runs tasks of an app, several at a time, until it is told to stop.

Rules
    W1  A task is leased to one thread of one worker, and extended while it runs.
    W2  Returned: acked. Raised: nacked with the error as the reason, and rejected after
        ``max_retries`` repeats or on ``GiveUp``. What ran out of leases too often is rejected, too.
    W3  ``stop`` (SIGTERM, SIGINT): nothing more is leased, what runs may finish for ``grace``;
        what does not is nacked, so that others run it at once. A second one takes the grace away.
    W4  A task this app does not know is nacked with a delay: another program may know it. That
        counts as an attempt, so it is told, once for each name.
    W5  Nothing a task raises ends the thread that runs it, ``sys.exit()``, a cancelled coroutine
        and what its arguments raise as they are made included: the worker would run fewer and
        fewer tasks, and end as if it were told to.
    W6  A worker that drains ends when nothing is left, not when nobody answered.
    W7  A task whose result cannot be kept (it is no JSON, or too large) is rejected: it did its
        work, and would do it again at each repeat.
"""

import asyncio
import importlib
import inspect
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from raftline.client.clock import mono_ms
from raftline.client.leased import Duration, duration_ms, failure_text
from raftline.client.line import Line
from raftline.client.received import Message, Receiving
from raftline.model.errors import InvalidArgument, RaftlineError
from raftline.model.tasks import TASK_RETRIES_HEADER, TASK_TYPE_HEADER
from raftline.tasks.app import App, Task
from raftline.tasks.outcomes import GiveUp, Retry

UNKNOWN_DELAY_MS = 5_000
UNKNOWN_MAX = 100  # names of tasks, which anybody may have written
REASON_CHARS = 500
RETRIES_DIGITS_MAX = 9  # in a header that anybody may have written
CHECK_S = 0.1
PAUSE_S = 1.0  # after a receiver failed

log = logging.getLogger("raftline.worker")


class Worker:
    """Threads that run tasks of one app."""

    def __init__(
        self,
        app: App,
        *,
        concurrency: int = 1,
        name: str = "",
        lease: Duration | None = None,
        grace: Duration = "30s",
        drain: bool = False,
        prefetch: int = 1,
    ) -> None:
        if concurrency < 1:
            raise InvalidArgument(f"concurrency {concurrency} is below 1", "at least one")
        self._app = app
        self._concurrency = concurrency
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._lease = lease
        self._grace_ms = duration_ms(grace)
        self._is_draining = drain  # end when nothing is left
        self._prefetch = prefetch
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._stops = 0
        self._until_ms = 0.0
        self._running: dict[int, Message] = {}  # by thread
        self._receivings: list[Receiving] = []
        self._unknown: set[str] = set()  # names that were told
        self.done = self.failed = 0
        self.error: RaftlineError | None = None

    def run(self) -> None:
        """Work until told to stop, or until nothing is left where it drains.

        Raises:
            RaftlineError: the cluster could not be reached in the beginning.
        """
        line = self._app.line
        threads = [
            threading.Thread(target=self._work, args=(line, number), daemon=True)
            for number in range(self._concurrency)
        ]
        for thread in threads:
            thread.start()
        while alive := [thread for thread in threads if thread.is_alive()]:
            alive[0].join(CHECK_S)
            if self._stop.is_set() and mono_ms() >= self._until_ms:
                break
        self._give_back()
        line.flush()

    def stop(self) -> None:
        """Lease nothing more; asked again, wait no longer for what runs. W3."""
        self._stops += 1
        self._until_ms = mono_ms() + (self._grace_ms if self._stops == 1 else 0)
        self._stop.set()
        for receiving in list(self._receivings):
            receiving.close()

    # ------------------------------------------------------------------ one thread

    def _work(self, line: Line, number: int) -> None:
        while not self._stop.is_set():
            try:
                self._receive(line, number)
            except RaftlineError as error:
                self.error = error
                log.warning("%s: %s", self.name, error.message)
                if self._is_draining and not error.retry:
                    return
                self._stop.wait(PAUSE_S)
                continue  # W6
            if self._is_draining:
                return

    def _receive(self, line: Line, number: int) -> None:
        with line.receive(
            self._app.topic,
            group=self._app.group,
            lease=self._lease,
            count=self._prefetch,
            wait="300ms" if self._is_draining else None,
            partition=0,
            member=self.name,
            extend=True,
        ) as receiving:
            self._receivings.append(receiving)
            try:
                if self._stop.is_set():  # before it could be closed
                    return
                for message in receiving:
                    if self._stop.is_set():  # not begun
                        message.release()
                        return
                    with self._lock:
                        self._running[number] = message
                    try:
                        self._run_one(line, message)
                    finally:
                        with self._lock:
                            del self._running[number]
                    if self._stop.is_set():
                        return
            finally:
                self._receivings.remove(receiving)

    def _run_one(self, line: Line, message: Message) -> None:
        """Run a task and settle it. W2."""
        headers = message.headers
        name = headers.get(TASK_TYPE_HEADER, b"").decode("utf-8", "replace")
        task = self._app.tasks.get(name)
        if task is None:  # W4
            reason = f"worker {self.name} knows no task {name!r}"
            self._tell_unknown(name, reason)
            self._settle(message, lambda: message.nack(reason, UNKNOWN_DELAY_MS / 1000))
            return
        text = headers.get(TASK_RETRIES_HEADER, b"")
        is_number = text.isdigit() and len(text) <= RETRIES_DIGITS_MAX
        retries = int(text) if is_number else task.max_retries
        if message.attempt > retries + 1:
            reason = f"no attempt left: it was delivered {message.attempt - 1} times"
            self._settle(message, lambda: message.reject(reason))
            return
        try:
            try:
                arguments, named = task.signature.decode(message.value)
            except InvalidArgument as error:
                reason = error.message[:REASON_CHARS]
                self._settle(message, lambda: message.reject(reason))
                return
            returned = _call(task, arguments, named)
            if self._app.results_topic:
                self._keep(line, message, returned)
        except BaseException as error:  # noqa: BLE001 the border: a task may raise anything. W5
            self._failed(message, error, is_last=message.attempt > retries)
        else:
            self.done += 1
            self._settle(message, message.ack)

    def _failed(self, message: Message, error: BaseException, *, is_last: bool) -> None:
        self.failed += 1
        reason = failure_text(error)
        if isinstance(error, (Retry, GiveUp)):  # the task's own word, said on purpose
            log.warning("%s: %s", message.id, reason)
        else:
            log.warning("%s failed: %s\n%s", message.id, reason, _traceback(error))
        if is_last or isinstance(error, GiveUp):
            self._settle(message, lambda: message.reject(reason))
        else:
            delay = error.delay if isinstance(error, Retry) else None
            self._settle(message, lambda: message.nack(reason, delay))

    def _tell_unknown(self, name: str, reason: str) -> None:
        """Say once for each name that such tasks are left to others."""
        with self._lock:
            if name in self._unknown or len(self._unknown) == UNKNOWN_MAX:
                return
            self._unknown.add(name)
        log.warning("%s, and leaves it to others; each time is one of its attempts", reason)

    def _settle(self, message: Message, settle: Callable[[], None]) -> None:
        """Settle a task unless it was given back meanwhile. W3."""
        with self._lock:
            if not message.is_settled:
                settle()

    def _give_back(self) -> None:
        with self._lock:
            for message in self._running.values():
                if not message.is_settled:
                    message.nack(f"worker {self.name} stopped", 0)

    def _keep(self, line: Line, message: Message, returned: Any) -> None:
        """Send what a run returned; it is not run again for what can never be sent. W7."""
        try:
            value = msgspec.json.encode(returned)
            line.send_now(self._app.results_topic, value, key=message.id, partition=0)
        except Exception as error:
            if isinstance(error, RaftlineError) and (error.retry or error.unknown):
                raise
            raise GiveUp(f"what it returned cannot be kept: {failure_text(error)}") from error


def load_app(place: str) -> App:
    """Return the app at ``module:name``; the current directory is looked at first.

    Raises:
        InvalidArgument: there is none.
    """
    module_name, colon, name = place.partition(":")
    if not module_name or not colon or not name:
        raise InvalidArgument(f"{place!r} is no app", "write module:app, for instance jobs:app")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.partition(".")[0] and error.name != module_name:
            raise
        raise InvalidArgument(
            f"there is no module {module_name!r}", f"it is looked for in {here} and on PYTHONPATH"
        ) from error
    app = getattr(module, name, None)
    if not isinstance(app, App):
        raise InvalidArgument(f"{name!r} in {module_name!r} is no raftline.App")
    return app


def run_worker(
    place: str,
    *,
    servers: str = "",
    concurrency: int = 1,
    name: str = "",
    lease: Duration | None = None,
    grace: Duration = "30s",
    drain: bool = False,
) -> Worker:
    """Run the tasks of the app at ``module:name`` until SIGTERM or SIGINT: ``raftline worker``.

    ``servers`` instead of the app's own. Returns the worker, with what it ``done`` and ``failed``.

    Raises:
        RaftlineError: no app, or no cluster.
    """
    app = load_app(place)
    if servers:
        app.servers = servers
    worker = Worker(app, concurrency=concurrency, name=name, lease=lease, grace=grace, drain=drain)

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        worker.stop()

    signals = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, stop) for number in signals]
    try:
        worker.run()
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
        app.close()
    return worker


def _call(task: Task[Any, Any], arguments: list[Any], named: dict[str, Any]) -> Any:
    returned = task.function(*arguments, **named)
    # Of a decorated or compiled coroutine function only what it returns tells what it is.
    return asyncio.run(_awaited(returned)) if inspect.isawaitable(returned) else returned


async def _awaited(returned: Awaitable[Any]) -> Any:
    return await returned


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)[-6:])
