"""One run of a job: what all jobs share, put together once.

The session opens at its first use, so a job checks its arguments before a JVM is started. The
first Ctrl-C (or SIGTERM) asks the job to end after what it is at; the second ends it at once.
"""

import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from raftline.client import clock
from raftline.pipeline.failures import explain
from raftline.pipeline.progress import Bar, is_watched
from raftline.pipeline.session import LOCAL, is_local, open_session, require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Job:
    """A job while it runs; a context, so that what it opened is closed."""

    __slots__ = (
        "_before",
        "_began_ms",
        "_is_ours",
        "_session",
        "as_json",
        "conf",
        "in_steps",
        "is_stopping",
        "master",
        "name",
        "servers",
    )

    def __init__(
        self,
        name: str,
        servers: str,
        *,
        master: str = LOCAL,
        conf: Mapping[str, str] | None = None,
        as_json: bool = True,
        in_steps: bool = True,
    ) -> None:
        self.name = name
        self.servers = servers
        self.master = master
        self.conf = dict(conf or {})
        self.as_json = as_json  # programs read it: no bars, no notes
        self.in_steps = in_steps  # it looks at is_stopping; else Ctrl-C ends it at once
        self.is_stopping = False
        self._session: SparkSession | None = None
        self._is_ours = False
        self._before: dict[int, Any] = {}
        self._began_ms = clock.mono_ms()

    @property
    def spark(self) -> "SparkSession":
        """The session; the first use starts Spark, which takes some seconds."""
        if self._session is None:
            require_spark()
            from pyspark.sql import SparkSession

            self._is_ours = SparkSession.getActiveSession() is None
            if self._is_ours:
                self.note(f"starting Spark ({self.master}) …")
            self._session = open_session(self.name, self.master, self.conf)
            if self._before:
                self._listen()  # Spark takes Ctrl-C for itself when it starts
        return self._session

    @property
    def seconds(self) -> float:
        """How long it has been running."""
        return round((clock.mono_ms() - self._began_ms) / 1000, 1)

    def place(self, name: str) -> str:
        """Return a file's name for Spark: below this process's directory where Spark is here.

        Its JVM may have been started elsewhere. What a cluster makes of a name is its own matter.
        """
        is_here = is_local(self.spark.sparkContext.master or LOCAL)
        return str(Path(name).absolute()) if is_here and "://" not in name else name

    def progress(self, unit: str, total: int | None = None, label: str = "") -> Bar:
        """Return a bar on standard error, to be used with ``with``."""
        is_shown = is_watched() and not self.as_json
        return Bar(unit, total, label or self.name, is_shown=is_shown)

    def note(self, text: str) -> None:
        """Tell people something beside the answer."""
        if not self.as_json:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def __enter__(self) -> "Job":
        if threading.current_thread() is threading.main_thread():
            self._before = self._listen()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._session is not None and self._is_ours:
            self._session.stop()
        if isinstance(error, Exception):
            told = explain(error)
            if told is not None:
                raise told from error

    def _listen(self) -> dict[int, Any]:
        return {number: signal.signal(number, self._asked) for number in SIGNALS}

    def _asked(self, number: int, _frame: FrameType | None) -> None:
        if self.is_stopping or not self.in_steps:
            raise KeyboardInterrupt
        self.is_stopping = True
        self.note("stopping after what is at hand; again to stop at once")
