"""Clients of one kind on a cluster under faults: givers until told, takers until all is taken.

What a client raises is a problem of the run, never the end of the others.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence

from raftline.chaos.rig import ChaosProblem, Rig, wait_for
from raftline.client.line import Line
from raftline.model.errors import RaftlineError
from raftline.model.settings import Value

CALL = "6s"
DRAIN_S_MAX = 60.0
JOIN_S_MAX = 45.0
END_S_MAX = 2.0  # of a run that failed, for all threads of a load together
PATIENT: dict[str, Value] = {"max_retries": 1000, "backoff_ms": 100}  # settings of a topic


class Crowd:
    """Threads that give, threads that take, and their end."""

    def __init__(
        self, rig: Rig, who: str, topic: str, partitions: int, settings: dict[str, Value]
    ) -> None:
        self.problems: list[str] = []
        self._rig = rig
        self._who = who
        self._lock = threading.Lock()
        self._all_sent, self._over = threading.Event(), threading.Event()
        self._givers: list[threading.Thread] = []
        self._takers: list[threading.Thread] = []
        with rig.client() as client:
            client.create_topic(
                topic, partitions=partitions, replication_factor=0, settings=settings
            )
        rig.at_close.append(self._end)

    def start(self) -> None:
        """Let all begin."""
        for thread in (*self._givers, *self._takers):
            thread.start()

    def _stop_giving(self) -> None:
        """Return when no giver gives any more. Raises ChaosProblem."""
        self._all_sent.set()
        self._join(self._givers)

    def _wait_taken(
        self, is_done: Callable[[], bool], why: Callable[[], str], look_s: float
    ) -> None:
        """Return when the takers have taken all, and ended. Raises ChaosProblem."""
        try:
            wait_for(is_done, DRAIN_S_MAX, why, look_s)
        finally:
            self._over.set()
            self._join(self._takers)

    def _thread(self, run: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                run()
            except Exception as error:  # noqa: BLE001 - told with the verdict
                self.problems.append(f"{self._who}: {error!r}")

        return threading.Thread(target=guarded, daemon=True)

    def _with_line(self, work: Callable[[Line], None]) -> threading.Thread:
        """Return a thread that works with a client of its own."""

        def run() -> None:
            line = self._line()
            try:
                work(line)
            finally:
                with contextlib.suppress(RaftlineError):
                    line.close()

        return self._thread(run)

    def _line(self) -> Line:
        return Line([self._rig.node(name).http for name in self._rig.founders], timeout=CALL)

    def _join(self, threads: Sequence[threading.Thread]) -> None:
        for thread in threads:
            if thread.ident is not None:
                thread.join(JOIN_S_MAX)
                if thread.is_alive():
                    raise ChaosProblem(f"{self._who}: one waits beyond every timeout")

    def hush(self) -> None:
        """Tell all to end; returns at once."""
        self._all_sent.set()
        self._over.set()

    def _end(self) -> None:
        """Let the clients of a run that failed end."""
        self.hush()
        join_all((*self._givers, *self._takers))


def join_all(threads: Sequence[threading.Thread]) -> None:
    """Wait a moment for clients that were told to end. They end with the process at the latest."""
    until = time.monotonic() + END_S_MAX
    for thread in threads:
        if thread.ident is not None:
            thread.join(max(0.0, until - time.monotonic()))
