"""Shards on this node: which replicas there are, and how they come and go.

State
    The open replicas, those being opened in the lane, those out of service with the reason.

Invariants
    H1  A replica has its identity and configuration on the disk before it takes part.
    H2  A new shard starts at index 1 with the voters the catalog named. A replica that joins later
        starts at index 0 with nobody, so it can only be filled by catch-up.
    H3  A replica whose vote or log cannot be trusted never comes back under its number: it is out
        of service until the catalog gives this node a new incarnation.
    H4  Nothing is deleted without the catalog's word (a tombstone, or a configuration without us).
    H5  A replica's directory is out of the way, durably, before the WAL forgets its vote: else a
        crash in between would bring it back without it. Until the WAL has forgotten it, what was
        set aside stays: it says that the replica was meant to go. And the next one of its shard
        begins only then: a crash would show it the vote and the log of the one before.
    H6  A replica that the WAL knows and whose directory or checkpoint is gone took part and was
        not meant to go: H3. One that the WAL does not know never took part: it may begin anew.
    H7  A replica that finds no room when it is made took part in nothing: it is made again until
        there is. That may take long: until then it does not count as one that is about to be open.
    H8  Where fewer than three replicas are wanted, or the others that live are no majority, the
        directory of one that is out of service is kept when it has to go: whoever leads by now, or
        later, may have begun empty (recovery.py).
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import msgspec

from raftline.config.settings import Settings
from raftline.machines.partition.machine import PartitionMachine
from raftline.model.errors import ShuttingDown
from raftline.model.ids import CATALOG_SHARD, COORDINATION_SHARDS, ReplicaId, ShardId
from raftline.node.appends import Pressure
from raftline.node.groups_host import GroupsHost
from raftline.node.identity import not_ours
from raftline.node.log_time import ClusterTime, LogTime
from raftline.node.partition import SIDE_START, PartitionHost
from raftline.node.ports import Clock, Rng
from raftline.node.replica import Host, Replica, Start
from raftline.node.segments import Segments
from raftline.node.turn import Turn
from raftline.raft.rpc import ConfState, Entry, HardState
from raftline.storage.checkpoint import Checkpoint, load_checkpoint, write_checkpoint
from raftline.storage.file_pool import FilePool
from raftline.storage.files import Disk
from raftline.storage.log import PartitionLog
from raftline.storage.log_words import ForeignLog, LogFault, LogIdentity, LogSettings
from raftline.storage.wal import Recovered, RecoveredShard, Wal
from raftline.telemetry.log import LogEvent

T = TypeVar("T")

ROOT = "shards"
NO_CHECKPOINT = "its checkpoint is missing"
FIRST_INDEX = 1
FIRST_TERM = 1
SIDE_SEGMENT_BYTES = 16 << 20  # a side log lets go of its oldest part sooner
OLD, GONE = ".old-", ".gone-"  # directories that are kept, or that wait to be removed
OUT = ".out-"  # waits to be kept
MAKE_AGAIN_MS = 1_000  # between two tries to make a replica that finds no room
SETTLE_MS = 50  # between two looks whether the WAL has forgotten a replica


def shard_directory(shard: int) -> str:
    """Return where a shard's files are."""
    return f"{ROOT}/{shard}"


def log_directory(shard: int, name: str) -> str:
    """Return where a log of a partition is: a side log by its name, the main one by ""."""
    return f"{shard_directory(shard)}/{name or 'log'}"


class Found:
    """What one shard's directory held at start."""

    __slots__ = ("checkpoint", "damage", "replica", "shard")

    def __init__(
        self, shard: int, checkpoint: Checkpoint | None, damage: str, replica: int
    ) -> None:
        self.shard = shard
        self.checkpoint = checkpoint
        self.damage = damage
        self.replica = replica  # 0: nothing tells any more which one it was


def find_shards(disk: Disk, cluster: str) -> dict[int, Found]:
    """Load every checkpoint there is. Changes nothing."""
    found: dict[int, Found] = {}
    for name in disk.listdir(ROOT):
        if not name.isdigit():
            continue
        loaded = load_checkpoint(disk, shard_directory(int(name)), cluster=cluster, shard=int(name))
        known = loaded.checkpoint or loaded.older
        replica = known.replica if known is not None else 0
        found[int(name)] = Found(int(name), loaded.checkpoint, loaded.damage, replica)
    return found


def lost_shards(disk: Disk, found: dict[int, Found]) -> Callable[[int], str]:
    """Return who says why a shard that the WAL knows cannot be opened; "" if it was deleted. H6.

    The catalog's replica is noted elsewhere (identity.py, I4).
    """
    names = [name.partition(why) for name in disk.listdir(ROOT) for why in (GONE, OUT)]
    deleted = {int(stem) for stem, why, _ in names if why and stem.isdigit()}

    def lost(shard: int) -> str:
        it = found.get(shard)
        if shard == CATALOG_SHARD or (it is None and shard in deleted):
            return ""
        return "its directory is gone" if it is None else it.damage or NO_CHECKPOINT

    return lost


class Shards:
    """The replicas of this node."""

    def __init__(
        self,
        clock: Clock,
        rng: Rng,
        disk: Disk,
        turn: Turn,
        wal: Wal,
        segments: Segments,
        time: ClusterTime,
        settings: Settings,
        log: LogEvent,
        *,
        cluster: Callable[[], str],
        on_change: Callable[[Replica], None],
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._disk = disk
        self._turn = turn
        self._wal = wal
        self._segments = segments
        self._time = time
        self._settings = settings
        self._log = log
        self._cluster = cluster
        self._on_change = on_change
        self._pool = FilePool(disk)
        self.pressure = Pressure()
        self._replicas: dict[int, Replica] = {}
        self._opening: dict[int, int] = {}  # shard -> replica id
        self._roomless: dict[int, int] = {}  # those of them that found no room: the same
        self._leaving: set[int] = set()  # being deleted
        self.quarantined: dict[int, tuple[int, str]] = {}  # shard -> replica id, reason

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._replicas.values())

    def ids(self) -> list[int]:
        """Return the shards with an open replica."""
        return list(self._replicas)

    def __len__(self) -> int:
        return len(self._replicas)

    def get(self, shard: int) -> Replica | None:
        """Return our replica of a shard, if it is open."""
        return self._replicas.get(shard)

    def known(self, shard: int) -> int:
        """Return the number of our replica, open, being opened or out of service; 0 if none."""
        replica = self._replicas.get(shard)
        if replica is not None:
            return replica.id
        if shard in self._opening:
            return self._opening[shard]
        return self.quarantined.get(shard, (0, ""))[0]

    def is_opening(self, shard: int) -> bool:
        """Say whether a replica of this shard is about to be open here."""
        opening = self._opening.get(shard)
        return opening is not None and opening != self._roomless.get(shard)

    def is_leaving(self, shard: int) -> bool:
        """Say whether a replica of this shard is being deleted here."""
        return shard in self._leaving

    def partitions(self) -> list[PartitionHost]:
        """Return the hosts of all open partition replicas."""
        return [r.host for r in self._replicas.values() if isinstance(r.host, PartitionHost)]

    # ------------------------------------------------------------------ at start

    def restore(self, found: Found, recovered: Recovered, host: Host | None) -> None:
        """Open a replica from its directory and the WAL; out of service if either is damaged."""
        shard, checkpoint = found.shard, found.checkpoint
        wal = recovered.shards.get(shard)
        damage = found.damage or (wal.damage if wal is not None else "")
        if checkpoint is None and not damage and recovered.is_sure:
            return  # the power went while it was made: it never took part. H6
        if checkpoint is None or damage:
            self.quarantine(shard, found.replica, damage or NO_CHECKPOINT)
            return
        if host is None and shard in COORDINATION_SHARDS:
            host = self.groups_host(shard)
            if checkpoint.state:
                host.restore(checkpoint.state)
        if host is None:
            try:
                host = self._partition_host(shard, checkpoint)
            except ForeignLog as error:
                raise not_ours(error) from error  # sound, but not for us: it must not be touched
            except LogFault as error:
                self.quarantine(shard, checkpoint.replica, str(error))
                return
        self._start(ShardId(shard), ReplicaId(checkpoint.replica), host, _start(checkpoint, wal))

    def _partition_host(self, shard: int, checkpoint: Checkpoint) -> PartitionHost:
        log = self._open_log(shard, checkpoint)
        side = {name: self._open_log(shard, checkpoint, name) for name in checkpoint.side}
        for opened in (log, *side.values()):
            if opened.damage:
                self._log("error", "log.damaged", shard=shard, reason=str(opened.damage))
        machine = PartitionMachine()
        if checkpoint.state:
            machine.restore(checkpoint.state)
        identity = self._identity(checkpoint)
        return self.new_host(shard, f"shard {shard}", identity, machine, log, side)

    def _open_log(self, shard: int, checkpoint: Checkpoint, name: str = "") -> PartitionLog:
        return PartitionLog.open(
            self._disk,
            log_directory(shard, name),
            self._identity(checkpoint),
            self._log_settings(name),
            checkpoint.side[name] if name else checkpoint.log,
            pool=self._pool,
        )

    def _identity(self, checkpoint: Checkpoint) -> LogIdentity:
        return LogIdentity(self._cluster(), checkpoint.topic_uuid, checkpoint.partition)

    def new_host(
        self,
        shard: int,
        name: str,
        identity: LogIdentity,
        machine: PartitionMachine,
        log: PartitionLog,
        side: dict[str, PartitionLog],
    ) -> PartitionHost:
        """Return a host for a partition's machine and logs."""

        def new_log(side_name: str) -> PartitionLog:
            directory = log_directory(shard, side_name)
            settings = self._log_settings(side_name)
            return PartitionLog.fresh(self._pool, directory, identity, settings, SIDE_START)

        return PartitionHost(
            name,
            shard_directory(shard),
            identity,
            machine,
            log,
            side,
            self._segments,
            self.pressure,
            new_log=new_log,
            collected_bytes_max=self._settings.raft.uncommitted_bytes_max,
            parked_max=self._settings.limits.parked_reads_max,
        )

    def _log_settings(self, name: str = "") -> LogSettings:
        log = self._settings.log
        return LogSettings(
            segment_bytes=min(log.segment_bytes, SIDE_SEGMENT_BYTES) if name else log.segment_bytes,
            flush_bytes=log.flush_bytes,
            flush_ms=log.flush_ms,
            tail_bytes=log.tail_bytes,
            cache_bytes=log.cache_bytes,
        )

    def _start(self, shard: ShardId, replica: ReplicaId, host: Host, start: Start) -> Replica:
        opened = Replica(
            self._clock,
            self._rng,
            self._turn,
            shard,
            replica,
            self._cluster(),
            host,
            LogTime(self._clock, self._time),
            self._settings.raft,
            start,
            self._on_change,
        )
        self._replicas[shard] = opened
        self._opening.pop(shard, None)
        self.quarantined.pop(shard, None)
        self._segments.started(shard, start.index)
        if isinstance(host, PartitionHost | GroupsHost):
            host.replica = opened
            opened.name = host.name
            opened.time.observe(host.machine.at_ms)
        self._turn.dirty(opened)
        self._on_change(opened)
        if start.conf.voters == (replica,) and not start.conf.voters_outgoing:
            opened.campaign()  # there is nobody to wait for
        return opened

    # ------------------------------------------------------------------ new replicas

    def make_catalog(self, replica: ReplicaId, voters: tuple[int, ...]) -> Checkpoint:
        """Make a fresh catalog replica: a founder (``voters``) or one to be filled. H1, H2."""
        self._opening[CATALOG_SHARD] = replica
        checkpoint = self._fresh(CATALOG_SHARD, replica, voters, "", 0)
        self._disk.mkdir(shard_directory(CATALOG_SHARD))
        write_checkpoint(self._disk, shard_directory(CATALOG_SHARD), checkpoint)
        return checkpoint

    def open_catalog(self, made: Checkpoint, host: Host) -> Replica:
        """Let a catalog replica that was made take part."""
        return self._start(CATALOG_SHARD, ReplicaId(made.replica), host, _start(made, None))

    def open_partition(
        self,
        shard: ShardId,
        replica: ReplicaId,
        name: str,
        topic_uuid: str,
        partition: int,
        voters: tuple[int, ...],
        then: Callable[[Replica], None],
    ) -> None:
        """Make a new replica in the lane. ``voters`` empty: it joins and is filled. H1, H2."""
        self._opening[shard] = replica
        checkpoint = self._fresh(shard, replica, voters, topic_uuid, partition)
        directory = shard_directory(shard)
        disk = self._disk

        def job() -> tuple[PartitionLog, Checkpoint]:
            log = self._open_log(shard, checkpoint)
            # With the mark of the empty log: what is flushed before the next checkpoint is then
            # known to be ours and cut back, not set aside, by a start after a crash.
            first = msgspec.structs.replace(checkpoint, log=log.sync_job()())
            write_checkpoint(disk, directory, first)
            return log, first

        def made(result: tuple[PartitionLog, Checkpoint]) -> None:
            log, first = result
            host = self.new_host(shard, name, self._identity(first), PartitionMachine(), log, {})
            then(self._start(shard, replica, host, _start(first, None)))

        self._make(shard, replica, job, made)

    def _make(
        self, shard: ShardId, replica: ReplicaId, job: Callable[[], T], made: Callable[[T], None]
    ) -> None:
        """Make a replica's directory in the lane; where there is no room, again later. H7."""
        disk, pool, directory = self._disk, self._pool, shard_directory(shard)

        def make() -> T:
            if disk.exists(directory):
                _set_aside(disk, pool, directory, OLD)  # H4
            try:
                disk.mkdir(directory)
                return job()
            except OSError:
                pool.drop_under(directory)
                with suppress(OSError):
                    disk.remove_tree(directory)
                raise

        def again() -> None:
            if self._opening.get(shard) == replica:
                self._make(shard, replica, job, made)

        def done(result: T | None, error: BaseException | None) -> None:
            if self._opening.get(shard) != replica:
                return  # overtaken by a newer wish
            if result is not None:
                self._roomless.pop(shard, None)
                made(result)
            elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
                self._log("warning", "replica.not_made", shard=shard, reason=str(error))
                self._roomless[shard] = replica
                self._clock.call_later(MAKE_AGAIN_MS, again)
            else:
                del self._opening[shard]
                self._roomless.pop(shard, None)
                self.quarantine(shard, replica, f"could not be created: {error}")

        self._segments.run(make, done)

    @staticmethod
    def groups_host(shard: int) -> GroupsHost:
        """Return an empty host for a coordination shard."""
        return GroupsHost(shard_directory(shard), shard)

    def open_coordination(
        self,
        shard: ShardId,
        replica: ReplicaId,
        voters: tuple[int, ...],
        then: Callable[[Replica], None],
    ) -> None:
        """Make a new replica of a coordination shard in the lane. H1, H2."""
        self._opening[shard] = replica
        first = self._fresh(shard, replica, voters, "", 0)
        directory = shard_directory(shard)
        disk = self._disk

        def job() -> Checkpoint:
            write_checkpoint(disk, directory, first)
            return first

        def made(first: Checkpoint) -> None:
            then(self._start(shard, replica, self.groups_host(shard), _start(first, None)))

        self._make(shard, replica, job, made)

    def _fresh(
        self, shard: int, replica: int, voters: tuple[int, ...], topic_uuid: str, partition: int
    ) -> Checkpoint:
        index, term = (FIRST_INDEX, FIRST_TERM) if voters else (0, 0)
        return Checkpoint(
            cluster=self._cluster(),
            shard=shard,
            replica=replica,
            topic_uuid=topic_uuid,
            partition=partition,
            index=index,
            term=term,
            hard_state=HardState(term, 0, index),
            conf_state=ConfState(voters=tuple(sorted(voters))),
            term_runs=((index, term),),
            log=None,
            state=b"",
            at_ms=0,
            feature_level=1,
        )

    # ------------------------------------------------------------------ out of service

    def quarantine(self, shard: int, replica: int, reason: str) -> None:
        """Take a replica out of service until the catalog gives us a new one. H3."""
        self.quarantined[shard] = (replica, reason)
        self._log("error", "replica.quarantined", shard=shard, replica=replica, reason=reason)

    def stop_replica(self, replica: Replica, reason: str) -> None:
        """A replica's files failed under it: close and quarantine it."""
        if self._replicas.get(replica.shard) is replica:
            self.close(replica.shard)
            self.quarantine(replica.shard, replica.id, reason)

    def close(self, shard: int) -> None:
        """Take a replica out of service."""
        replica = self._replicas.pop(shard, None)
        if replica is not None:
            replica.close(ShuttingDown())
            self._on_change(replica)

    def reopen(self, replica: Replica, host: Host, start: Start) -> Replica:
        """Go on from another state, log and configuration, durable here, under the same number."""
        self.close(replica.shard)
        self._wal.add_reset(replica.shard, start.index, start.term)
        hard = start.hard_state
        self._wal.add_hard_state(replica.shard, hard.term, hard.vote, hard.commit)
        self._wal.add_entries(replica.shard, start.entries)
        opened = self._start(replica.shard, replica.id, host, start)
        self._turn.hold(opened)
        return opened

    def destroy(self, shard: int, then: Callable[[], None], *, keep: bool = False) -> None:
        """Delete a replica for good: its directory first, then what the WAL has of it. H4, H5.

        ``keep``: the directory stays, for a person to look at, where no start takes it up.
        """
        replica = self.known(shard)
        self.close(shard)
        self.quarantined.pop(shard, None)
        self._opening.pop(shard, None)
        self._roomless.pop(shard, None)
        self._leaving.add(shard)
        disk, pool, directory = self._disk, self._pool, shard_directory(shard)

        def job() -> str:
            why = OUT if keep else GONE
            return _set_aside(disk, pool, directory, why) if disk.exists(directory) else ""

        def done(aside: str | None, error: BaseException | None) -> None:
            if aside is None:
                self._leaving.discard(shard)
                self.quarantine(shard, replica, f"it could not be deleted: {error}")
                return
            self._wal.add_removed(shard)
            self._wal.forget(shard)
            self._turn.must_write()
            self._end_leaving(shard, aside, then)

        self._segments.run(job, done)

    def _end_leaving(self, shard: int, aside: str, then: Callable[[], None]) -> None:
        """Be done with what was set aside, and go on, once the WAL has forgotten it. H5."""
        if not self._wal.is_settled(shard):
            again = lambda: self._end_leaving(shard, aside, then)  # noqa: E731
            self._clock.call_later(SETTLE_MS, again)
            return
        self._leaving.discard(shard)
        if aside:
            self._remove([aside])
        then()

    def sweep(self) -> None:
        """Remove, or keep, what an earlier process set aside for that."""
        names = [name for name in self._disk.listdir(ROOT) if GONE in name or OUT in name]
        if names:
            self._remove([f"{ROOT}/{name}" for name in names])

    def _remove(self, directories: list[str]) -> None:
        disk, pool = self._disk, self._pool

        def job() -> list[str]:
            kept: list[str] = []
            for directory in directories:
                stem, out, _ = directory.partition(OUT)
                if out:
                    kept.append(_set_aside(disk, pool, directory, OLD, stem))
                else:
                    disk.remove_tree(directory)
            return kept

        def done(kept: list[str] | None, error: BaseException | None) -> None:
            if error is not None:
                self._log("warning", "replica.delete_failed", reason=str(error))
            for directory in kept or ():
                self._log("warning", "replica.kept", directory=directory)

        self._segments.run(job, done)


def _start(checkpoint: Checkpoint, wal: RecoveredShard | None) -> Start:
    hard = checkpoint.hard_state
    entries: list[Entry] = []
    if wal is not None:
        hard = _newer(hard, wal.hard_state)
        entries = wal.entries
    last = entries[-1].index if entries else checkpoint.index
    commit = min(max(hard.commit, checkpoint.index), last)
    return Start(
        index=checkpoint.index,
        term=checkpoint.term,
        conf=checkpoint.conf_state,
        hard_state=HardState(hard.term, hard.vote, commit),
        entries=entries,
    )


def _newer(one: HardState, other: HardState) -> HardState:
    """Return the later of two durable states; a vote is never taken back."""
    if one.term != other.term:
        later = one if one.term > other.term else other
        return HardState(later.term, later.vote, max(one.commit, other.commit))
    return HardState(one.term, one.vote or other.vote, max(one.commit, other.commit))


def _set_aside(disk: Disk, pool: FilePool, directory: str, why: str, stem: str = "") -> str:
    """Take a directory out of the way, durably; return where it is now."""
    pool.drop_under(directory)
    stem = stem or directory
    number = 1
    while disk.exists(f"{stem}{why}{number}"):
        number += 1
    aside = f"{stem}{why}{number}"
    disk.rename(directory, aside)
    disk.sync_dir(ROOT)
    return aside
