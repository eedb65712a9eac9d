"""Segments: everything the segment lane does for partitions and checkpoints.

The lane writes applied batches out, reads cold ones, makes checkpoints, removes what retention
let go, scrubs and repairs. Only plans are made here; the jobs are the log's own.

Invariants
    S1  One flush of a log is in flight at a time. A partition's side logs are logs of their own.
    S2  A checkpoint of a shard is taken at one instant of the loop: machine state, applied index
        and log mark belong together.
    S3  The WAL lets go of a shard's entries only after the checkpoint that covers them is durable.
    S4  A full disk stops appends, never the process: a flush that found no room is tried again.
"""

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from raftline.config.settings import LogSettings
from raftline.model.errors import Damaged, RaftlineError
from raftline.node.ports import Clock, Lane
from raftline.storage.checkpoint import Checkpoint, write_checkpoint
from raftline.storage.files import Disk
from raftline.storage.log_words import DamagedRange, ScrubResult, StaleJob
from raftline.storage.wal import Wal
from raftline.telemetry.log import LogEvent

if TYPE_CHECKING:
    from raftline.model.calls import ReadReply
    from raftline.node.partition import PartitionHost
    from raftline.node.replica import Replica
    from raftline.storage.log import PartitionLog

T = TypeVar("T")

RETRY_FLUSH_MS = 500
SCRUB_MS = 1000


class Repairer(Protocol):
    """Who fetches good bytes from other replicas."""

    def repair(self, host: "PartitionHost", start: int, end: int, log: str = "") -> None:
        """Refill ``[start, end)`` of a log from a peer; ``log`` names a side log."""
        ...


class Segments:
    """The segment lane's plans."""

    def __init__(
        self,
        clock: Clock,
        lane: Lane,
        disk: Disk,
        wal: Wal,
        settings: LogSettings,
        log: LogEvent,
        *,
        stop_replica: Callable[["Replica", str], None],
    ) -> None:
        self._clock = clock
        self._lane = lane
        self._disk = disk
        self._wal = wal
        self._settings = settings
        self._log = log
        self._stop_replica = stop_replica
        self._unflushed: dict[PartitionLog, PartitionHost] = {}
        self._flushing: set[PartitionLog] = set()
        self._timer = False
        self._checkpointing: set[int] = set()
        self._checkpointed_mono: dict[int, float] = {}
        self._checkpointed_index: dict[int, int] = {}
        self._after_checkpoint: dict[int, list[Callable[[], None]]] = {}
        self._scrub_at = 0
        self._releasing = False
        self.repairer: Repairer | None = None
        self.disk_full = False

    # ------------------------------------------------------------------ writing out

    def appended(self, host: "PartitionHost") -> None:
        """A host applied something: write it out soon, at once if it is much."""
        self._grown(host, host.log)
        if host.side:
            for log in host.side.values():
                self._grown(host, log)

    def _grown(self, host: "PartitionHost", log: "PartitionLog") -> None:
        unflushed = log.unflushed_bytes
        if not unflushed:
            return
        self._unflushed[log] = host
        if unflushed >= self._settings.flush_bytes:
            self._flush(host, log)
        elif not self._timer:
            self._timer = True
            self._clock.call_later(self._settings.flush_ms, self._flush_all)

    def _flush_all(self) -> None:
        self._timer = False
        for log, host in list(self._unflushed.items()):
            self._flush(host, log)

    def _flush(self, host: "PartitionHost", log: "PartitionLog") -> None:
        replica = host.replica
        if replica is None or replica.is_closed:
            self._unflushed.pop(log, None)  # another life of the replica goes on with its own
            return
        if log in self._flushing:  # S1
            return
        flush = log.take_flush()
        if flush is None:
            self._unflushed.pop(log, None)
            return
        self._flushing.add(log)

        def written(_: object, error: BaseException | None) -> None:
            self._flushing.discard(log)
            if error is not None:
                log.flush_failed(flush)
            if error is None:
                log.flushed(flush)
                self.disk_full = False
                self._grown(host, log)
                if not log.unflushed_bytes:
                    self._unflushed.pop(log, None)
            elif isinstance(error, OSError) and error.errno == errno.ENOSPC:  # S4
                self.note_full(error)
                self._clock.call_later(RETRY_FLUSH_MS, lambda: self._flush(host, log))
            elif isinstance(error, StaleJob):
                self._grown(host, log)
            else:
                self._unflushed.pop(log, None)  # it is not waited for any more. S4
                self._stop_replica(replica, f"segment write failed: {error}")

        self._lane.submit(lambda: log.write_flush(flush), written)

    def found_room(self) -> None:
        """The disk has room: with nothing left to write no write would find that out. S4."""
        if not self._unflushed:
            self.disk_full = False

    def note_full(self, error: OSError) -> None:
        """A write found no room: appends are refused until there is some. S4."""
        if not self.disk_full:
            self._log("error", "disk.full", reason=str(error))
        self.disk_full = True

    # ------------------------------------------------------------------ reading

    def read(
        self,
        host: "PartitionHost",
        offset: int,
        bytes_max: int,
        done: "Callable[[ReadReply | RaftlineError], None]",
        end: int | None = None,
    ) -> None:
        """Read cold batches in the lane."""
        try:
            cached = host.log.read_cached(offset, bytes_max, end)
        except DamagedRange as error:
            host.readers.cold_read(None, error, done)
            return
        if cached is not None:
            host.readers.cold_read(cached, None, done)
            return
        job = host.log.read_job(offset, bytes_max, end)
        self._lane.submit(job, lambda buffers, error: host.readers.cold_read(buffers, error, done))

    def damaged(self, host: "PartitionHost", error: DamagedRange, log: str = "") -> RaftlineError:
        """Have a damaged range refilled; return what the reader hears meanwhile."""
        name = f"{host.name}:{log}" if log else host.name
        self._log(
            "error",
            "log.damaged",
            partition=name,
            start=error.start_offset,
            end=error.end_offset,
            reason=error.reason,
        )
        if self.repairer is not None:
            self.repairer.repair(host, error.start_offset, error.end_offset, log)
        where = f"{name}@{error.start_offset}"
        return Damaged(where, error.reason)

    def run(
        self, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Do any other blocking job in the lane."""
        self._lane.submit(job, done)

    def trimmed(self, host: "PartitionHost") -> None:
        """Remove the files that a trim let go."""
        for log in (host.log, *host.side.values()):
            if log.needs_trim():
                job = log.trim_job()
                self._lane.submit(
                    job, lambda _, error: self._log_failure("log.trim", host.name, error)
                )

    def _log_failure(self, event: str, name: str, error: BaseException | None) -> None:
        if error is not None:
            self._log("warning", f"{event}_failed", partition=name, reason=str(error))

    # ------------------------------------------------------------------ checkpoints

    def checkpoint_due(self, replica: "Replica", applied_bytes: int, now: float) -> bool:
        """Say whether a shard has enough to forget from the WAL."""
        if replica.shard in self._checkpointing or replica.frozen:
            return False
        if self._checkpointed_index.get(replica.shard, -1) == replica.applied_index:
            return False
        if applied_bytes >= self._settings.checkpoint_bytes:
            return True
        since = self._checkpointed_mono.setdefault(replica.shard, now)
        return now - since >= self._settings.checkpoint_ms

    def is_stuck(self, replica: "Replica") -> bool:
        """Say whether no checkpoint made now would let the WAL forget more of a shard."""
        covered = self._checkpointed_index.get(replica.shard)
        return replica.frozen or covered == replica.applied_index

    def started(self, shard: int, index: int) -> None:
        """A replica begins at the checkpoint of ``index``."""
        self._checkpointed_index[shard] = index
        self._checkpointed_mono[shard] = self._clock.mono_ms()

    def checkpoint(self, replica: "Replica", then: Callable[[], None] | None = None) -> None:
        """Make a checkpoint of a shard as it is now. S2."""
        shard = replica.shard
        if then is not None:
            self._after_checkpoint.setdefault(shard, []).append(then)
        if shard in self._checkpointing:
            return
        self._checkpointing.add(shard)
        host = replica.host
        build = host.checkpoint()
        disk, directory = self._disk, host.directory
        index = replica.applied_index

        def job() -> Checkpoint:
            checkpoint = build()
            write_checkpoint(disk, directory, checkpoint)
            return checkpoint

        self._lane.submit(job, lambda made, error: self._checkpointed(replica, index, made, error))

    def _checkpointed(
        self,
        replica: "Replica",
        index: int,
        made: Checkpoint | None,
        error: BaseException | None,
    ) -> None:
        shard = replica.shard
        self._checkpointing.discard(shard)
        then = self._after_checkpoint.pop(shard, [])
        if replica.is_closed:
            pass  # overtaken: another life of the replica goes on from its own
        elif made is not None:
            replica.host.checkpointed(made)
            self.disk_full = False
            self._checkpointed_index[shard] = index
            self._checkpointed_mono[shard] = self._clock.mono_ms()
            self._wal.checkpointed(shard, index)  # S3
            self.release_wal()
        elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
            self.note_full(error)
        elif not isinstance(error, StaleJob):
            self._stop_replica(replica, f"checkpoint failed: {error}")
        for call in then:
            call()

    def release_wal(self) -> None:
        """Let the lane recycle WAL files nobody needs, and prepare the next one."""
        if self._releasing:
            return
        wal = self._wal
        job = wal.release_job()
        if job is None:
            if not wal.needs_spare:
                return
            job = wal.prepare_spare
        self._releasing = True

        def done(_: object, error: BaseException | None) -> None:
            self._releasing = False
            self._log_failure("wal.release", "wal", error)

        self._lane.submit(job, done)

    # ------------------------------------------------------------------ scrubbing

    def scrub(self, hosts: "list[PartitionHost]") -> None:
        """Verify a piece of one partition's cold bytes; the next one's next time."""
        rate = self._settings.scrub_bytes_per_second
        if not rate or not hosts:
            return
        self._scrub_at = (self._scrub_at + 1) % len(hosts)
        host = hosts[self._scrub_at]
        names = ["", *host.side]
        host.scrub_turn += 1
        name = names[host.scrub_turn % len(names)]
        log = host.log_named(name)
        assert log is not None
        job = log.scrub_job(min(rate, 8 << 20))

        def done(result: ScrubResult | None, error: BaseException | None) -> None:
            if result is None:
                if not isinstance(error, StaleJob):
                    self._log_failure("log.scrub", host.name, error)
                return
            for damage in result.damaged:
                self.damaged(host, DamagedRange(damage), name)

        self._lane.submit(job, done)
