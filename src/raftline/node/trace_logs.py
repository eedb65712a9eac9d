"""Traces read as if they were a topic: ``orders.trace`` is the trace log of ``orders``.

Its partitions are those of the source; a message is one record of ``model/trace.py``, stamped with
log time. It is read like any topic (whole batches, bounds, by time), and by nothing else: it has no
groups, and nobody can write to it. A real topic of that name comes first.

Every replica writes its own trace log from the same entries; the leader answers.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from raftline.model.calls import Looked, ReadReply
from raftline.model.errors import OffsetOutOfRange, RaftlineError, StorageFault
from raftline.model.names import TRACES
from raftline.node.partition import TRACE, PartitionHost
from raftline.node.questions import Arguments, Done
from raftline.storage.log import PartitionLog
from raftline.storage.log_words import DamagedRange, TimeHit

if TYPE_CHECKING:
    from raftline.node.node import Node

POLL_MS = 250.0  # a reader at the end looks again so often

ReadDone = Callable[[ReadReply | RaftlineError], None]
LookDone = Callable[[Looked | RaftlineError], None]


class TraceLogs:
    """Adds reading of trace logs to a node."""

    __slots__ = ("_node",)

    def __init__(self, node: "Node") -> None:
        self._node = node
        node.questions.add("trace.read", self._read)
        node.questions.add("trace.look", self._look)
        node.questions.add("trace.bounds", self._tell_bounds)

    # ------------------------------------------------------------------ asking

    def read(
        self,
        source: str,
        partition: int,
        offset: int,
        bytes_max: int,
        wait_ms: int,
        timeout_ms: int,
        done: ReadDone,
    ) -> None:
        """Read whole batches of the trace of ``source``; at the end look again for ``wait_ms``."""
        clock = self._node.clock
        until = clock.mono_ms() + wait_ms
        deadline = clock.mono_ms() + timeout_ms

        def ask() -> None:
            arguments = {"offset": offset, "bytes_max": bytes_max}
            left_ms = max(1, int(deadline - clock.mono_ms()))
            self._node.questions.ask(source, partition, "trace.read", arguments, left_ms, answered)

        def answered(reply: Arguments | RaftlineError) -> None:
            if isinstance(reply, RaftlineError):
                done(reply)
            elif not reply["batches"] and clock.mono_ms() + POLL_MS < until:
                clock.call_later(POLL_MS, ask)
            else:
                done(ReadReply(**reply))

        ask()

    def look_up_time(
        self, source: str, partition: int, time_ms: int, timeout_ms: int, done: LookDone
    ) -> None:
        """Find the first record at or after ``time_ms``."""

        def answered(reply: Arguments | RaftlineError) -> None:
            done(reply if isinstance(reply, RaftlineError) else Looked(**reply))

        arguments = {"time_ms": time_ms}
        self._node.questions.ask(source, partition, "trace.look", arguments, timeout_ms, answered)

    # ------------------------------------------------------------------ answering

    def _read(self, host: PartitionHost, arguments: Arguments, _ms: int, done: Done) -> None:
        offset, log = int(arguments["offset"]), host.side.get(TRACE)
        start, end = _bounds(host, log)
        if not start <= offset <= end and not (offset == 0 and start <= 1):
            where = host.name.replace("/", TRACES + "/")
            raise OffsetOutOfRange(where, offset, start, end)
        offset = max(offset, start)
        term = host.replica.raft.term if host.replica is not None else 0
        reply = {"batches": b"", "log_start": start, "commit_end": end, "term": term}
        if log is None or offset >= end:
            done(reply)
            return

        def took(buffers: Sequence[Any] | None, error: BaseException | None) -> None:
            if error is not None:
                done(self._unread(host, error))
            else:
                done({**reply, "batches": b"".join(buffers or ())})

        self._node.segments.run(log.read_job(offset, int(arguments["bytes_max"]), end), took)

    def _look(self, host: PartitionHost, arguments: Arguments, _ms: int, done: Done) -> None:
        log = host.side.get(TRACE)
        start, end = _bounds(host, log)
        if log is None or start >= end:
            done({"offset": -1, "timestamp_ms": -1, "commit_end": end})
            return

        def found(hit: TimeHit | None, error: BaseException | None) -> None:
            if error is not None:
                done(self._unread(host, error))
            elif hit is None:
                done({"offset": -1, "timestamp_ms": -1, "commit_end": end})
            else:  # a batch is one record, with the log time of its entry
                at = max(start, hit.base_offset)
                stamp = max(0, int(arguments["time_ms"]))
                done({"offset": at, "timestamp_ms": stamp, "commit_end": end})

        self._node.segments.run(log.find_time(int(arguments["time_ms"])), found)

    def _tell_bounds(self, host: PartitionHost, arguments: Arguments, ms: int, done: Done) -> None:
        """Answer as ``log.bounds`` does (log_questions.py)."""
        time_ms = int(arguments["time"])
        start, end = _bounds(host, host.side.get(TRACE))
        bounds = {"log_start": start, "commit_end": end, "archived": 0}
        if time_ms < 0:
            done({**bounds, "offset": -1, "timestamp": -1})
            return

        def found(reply: Arguments | RaftlineError) -> None:
            if isinstance(reply, RaftlineError):
                done(reply)
            else:
                offset = end if reply["offset"] < 0 else reply["offset"]
                done({**bounds, "offset": offset, "timestamp": reply["timestamp_ms"]})

        self._look(host, {"time_ms": time_ms}, ms, found)

    def _unread(self, host: PartitionHost, error: BaseException) -> RaftlineError:
        if isinstance(error, DamagedRange):
            return self._node.segments.damaged(host, error, TRACE)
        return StorageFault(host.name, f"reading its {TRACE}: {error}")


def _bounds(host: PartitionHost, log: PartitionLog | None) -> tuple[int, int]:
    start = host.machine.trace.log_start
    return (start, start) if log is None else (log.log_start, log.log_end)
