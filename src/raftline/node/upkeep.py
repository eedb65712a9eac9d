"""Upkeep: what a node does because time passes.

Ticks for the shards that are awake, one heartbeat to every peer, answers for callers whose time is
up, and housekeeping: checkpoints, the WAL's size, free space, retention, scrubbing.

Rules
    V1  After a late turn sockets are drained before any tick, and missed ticks are not made up.
    V2  Below the floor of free space appends are refused and leaderships handed over; the rest
        goes on.
    V3  What is done for each shard is done for the busy ones at once and for quiet ones in turn.
    V4  Nodes tick at the same instants. A tick that lets a replica stand for election comes a
        random while later, or those who miss the same leader would split the votes.
    V5  A shard that is out of service costs the others nothing: what it has in the WAL is kept, but
        holds no file back.
    V6  A leader may rest, and the word of it be lost on the way. A voter that hears nothing stands,
        which wakes the leader; who does not vote says that it is awake.
    V7  A shard that cannot commit what it has in the WAL, or is being filled, holds no file back
        either: no checkpoint will free that, so it is written again at the head, in pieces.
    V8  A follower whose segment lane is too slow takes no messages once its WAL is twice as large
        as it may be: leaders heed their own only, and it and its memory would grow without end.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from raftline.machines.partition.commands import APPEND_TAG
from raftline.machines.partition.parcels import PARCEL_TAG
from raftline.machines.partition.staging_commands import STAGING_TAG, stores_staged
from raftline.machines.partition.streams import STREAM_TAG
from raftline.machines.partition.waiting_commands import WAITING_TAG, stores_messages
from raftline.model.errors import (
    DiskFull,
    OverLimit,
    RaftlineError,
)
from raftline.model.ids import ReplicaId, node_of
from raftline.model.settings import effective
from raftline.node.partition import TRACE, PartitionHost
from raftline.node.replica import Replica
from raftline.node.trims import trim
from raftline.raft.rpc import NOBODY, Entry
from raftline.raft.state import Role
from raftline.storage.wal import EntriesOf
from raftline.transport.rpcs import (
    FRAME_QUIET,
    FRAME_UNQUIET,
    Heartbeat,
    Quiet,
    encode_quiets,
)

if TYPE_CHECKING:
    from raftline.node.node import Node

STORING_TAGS = (APPEND_TAG, STREAM_TAG, PARCEL_TAG)
EXPIRE_MS = 50  # while somebody waits
EXPIRE_IDLE_MS = 100  # while nobody does: falls together with the ticks, and so costs no wake-up
HAND_OVER_MS = 3_000  # between two tries to give all leaderships away
HOUSEKEEPING_MS = 200
PHASE_MS = 60_000  # a multiple of the usual periods
RETENTION_MS = 5_000
RETENTION_SETTINGS = ("retention_ms", "retention_bytes", "trace_percent", "trace_retention_ms")
SPACE_MS = 1_000
QUIET_ROUNDS = 32  # of housekeeping in which each quiet shard is looked at once
QUIET_ROWS_MAX = 2_000
WAL_PRESSURE = 0.5  # of bytes_max: checkpoint the shards that pin the oldest file
WAL_REFUSAL = 2  # times bytes_max: what leaders let in before they knew is still taken. V8
REWRITE_BYTES = 1 << 20  # of the WAL, in one turn
ALL_BYTES = 1 << 62


class Upkeep:
    """Everything a node does because time passes."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._tick_due = self._phase_mono = 0.0
        self._retention_mono = self._space_mono = 0.0
        self._handed_mono = float("-inf")
        self._leading = 0  # shards, counted now and then
        self._kept_round = self._scrub_at = 0
        self._kept_version = -1  # of the catalog, at the last housekeeping
        self._is_reading_back = False  # what a shard out of service has in the WAL
        self._full_peers: dict[int, Heartbeat] = {}
        self.is_full = False  # too little free space to take appends
        self.is_wal_full = False  # far over its limit. V8
        self.free_bytes = self.total_bytes = -1

    def start(self) -> None:
        """Set the timers going."""
        clock, raft = self._node.clock, self._node.settings.raft
        self._phase_mono = clock.mono_ms() - clock.wall_ms() % PHASE_MS
        self._tick_due = clock.mono_ms() + self._left_ms(raft.tick_ms)
        clock.call_later(self._tick_due - clock.mono_ms(), self._tick)
        self._again(raft.heartbeat_ms, self._beat)
        self._again(EXPIRE_MS, self._expire)
        self._again(HOUSEKEEPING_MS, self._housekeeping)

    def _again(self, period_ms: int, call: Callable[[], None]) -> None:
        """Run ``call`` at the next multiple of its period."""
        self._node.clock.call_later(self._left_ms(period_ms), call)

    def _left_ms(self, period_ms: int) -> float:
        """Return the time to the next multiple of a period, half a period at least.

        Multiples are those of the wall clock at the start. Timers that fall together cost an idle
        node one wake-up, not one each; and so do the heartbeats of nodes whose clocks agree.
        """
        left_ms = period_ms - (self._node.clock.mono_ms() - self._phase_mono) % period_ms
        return left_ms if left_ms > period_ms / 2 else left_ms + period_ms

    def _beat(self) -> None:
        if self._node.is_stopping:
            return
        self._again(self._node.settings.raft.heartbeat_ms, self._beat)
        if not self._node.id:
            return
        healthy = not self.is_full and self._node.time.healthy()
        self._node.peers.beat(
            Heartbeat(
                self._node.id,
                self._node.process,
                self._node.clock.wall_ms(),
                self.free_bytes,
                self.total_bytes,
                self._leading,
                healthy,
                self._node.clock.mono_ms(),
            )
        )
        free_bytes_min = self._node.settings.log.free_bytes_min
        self._full_peers = {
            peer.node: beat
            for peer in self._node.peers
            if not peer.silent
            and (beat := peer.heartbeat) is not None
            and 0 <= beat.free_bytes < free_bytes_min(beat.total_bytes)  # -1: it could not measure
        }
        now = self._node.clock.mono_ms()
        if not healthy and now - self._handed_mono >= HAND_OVER_MS:
            self._handed_mono = now  # a hand-over that fails holds appends up: not at once again
            self._hand_over_all()

    def _hand_over_all(self) -> None:
        for replica in list(self._node.shards):
            if replica.is_leader and not replica.raft.lead_transferee:
                self.hand_over(replica)

    def hand_over(self, replica: Replica) -> None:
        """Give leadership to a live, level, healthy voter, if there is one."""
        for other in replica.conf.voters:
            node = node_of(ReplicaId(other))
            peer = self._node.peers.get(node)
            if other == replica.id or peer is None or peer.silent:
                continue
            if (
                peer.heartbeat is not None
                and peer.heartbeat.healthy
                and self._node.seats.level(replica)(other)
            ):
                replica.transfer(ReplicaId(other))
                return

    def _tick(self) -> None:
        if self._node.is_stopping:
            return
        tick_ms = self._node.settings.raft.tick_ms
        now = self._node.clock.mono_ms()
        if now - self._tick_due > tick_ms:
            # A late turn: sockets that became readable meanwhile are drained before any tick.
            self._tick_due = now
            self._node.clock.call_later(0, lambda: self._node.clock.call_soon(self._tick_now))
        else:
            self._tick_now()
        self._tick_due = max(self._tick_due + tick_ms, now)
        self._node.clock.call_later(max(0.0, self._tick_due - now), self._tick)

    def _tick_now(self) -> None:
        if self._node.is_stopping:
            return
        # Quiet first: no heartbeat of this tick may follow the word that wakes who hears it.
        for node, rows in self._node.elections.quiet_rows(self._node.clock.mono_ms()).items():
            for start in range(0, len(rows), QUIET_ROWS_MAX):
                self._node.peers.send(
                    node, encode_quiets(FRAME_QUIET, rows[start : start + QUIET_ROWS_MAX])
                )
        standing: list[Replica] = []
        for replica in list(self._node.turn.awake):
            if replica.is_about_to_stand:
                standing.append(replica)
            else:
                self._tick_one(replica)
        if standing:
            spread_ms = self._node.settings.raft.quick_failover_ms_max
            wait_ms = self._node.rng.randrange(0, spread_ms + 1)
            self._node.clock.call_later(wait_ms, lambda: self._stand(standing))
        self._node.turn.mark_idle()

    def _stand(self, replicas: list[Replica]) -> None:
        """V4: who heard from a leader meanwhile does not stand after all."""
        if self._node.is_stopping:
            return
        for replica in replicas:
            if not replica.is_closed:
                self._tick_one(replica)

    def _tick_one(self, replica: Replica) -> None:
        """Let a tick pass. Who forgets its leader and does not stand wakes it: V6."""
        raft = replica.raft
        leader = raft.leader
        replica.tick()
        if leader not in (NOBODY, raft.id, raft.leader) and raft.role is Role.FOLLOWER:
            row = Quiet(replica.shard, replica.id, leader, raft.term, 0, 0)
            node = node_of(ReplicaId(leader))
            self._node.peers.send(node, encode_quiets(FRAME_UNQUIET, [row]))

    def _expire(self) -> None:
        if self._node.is_stopping:
            return
        self._again(EXPIRE_MS if self._somebody_waits() else EXPIRE_IDLE_MS, self._expire)
        now = self._node.clock.mono_ms()
        for replica in list(self._node.turn.awake):
            replica.expire(now)
        for host in list(self._node.shards.pressure.parked):
            host.expire(now)
        if self._node.catalog_host is not None:
            self._node.catalog_host.expire(now)
        self._node.remote.expire(now)

    def _somebody_waits(self) -> bool:
        """Say whether a call may become overdue. One that comes later is seen at the next look."""
        node = self._node
        catalog = node.catalog_host
        return bool(
            node.turn.awake
            or node.shards.pressure.parked
            or node.remote.is_waiting
            or (catalog is not None and catalog.is_waiting)
        )

    def _housekeeping(self) -> None:
        if self._node.is_stopping:
            return
        self._again(HOUSEKEEPING_MS, self._housekeeping)
        now = self._node.clock.mono_ms()
        replicas = self._due_for_housekeeping()
        for replica in replicas:
            if self._node.segments.checkpoint_due(replica, replica.host.applied_bytes, now):
                self._node.segments.checkpoint(replica)
            self._node.catch_ups.look_after(replica, now)
            if replica.is_leader and not replica.is_closed:
                self._node.seats.mend(replica)
                self._node.giving.watch(replica, now)
                self._node.dead_letters.look_after(replica)
        self._relieve_wal()
        self._node.segments.release_wal()
        self._node.seats.confirm()
        self._node.seats.ask_about_leaving(now, replicas)
        self._node.seats.ask_replacements()
        self._node.seats.refresh_row()
        if now - self._retention_mono >= RETENTION_MS:
            self._retention_mono = now
            self._retain()
            self._node.group_calls.sweep()
        if now - self._space_mono >= SPACE_MS:
            self._space_mono = now
            self.measure_space()
            self._scrub_next()

    def _due_for_housekeeping(self) -> list[Replica]:
        """Return the replicas to look after now: the busy ones, and the quiet ones in turn.

        All of them after the catalog changed: it may want something of any.
        """
        version = self._node.catalog_machine.version
        self._kept_round += 1
        if self._kept_round >= QUIET_ROUNDS:
            self._kept_round = 0
            self._leading = sum(1 for replica in self._node.shards if replica.is_leader)
        if version != self._kept_version:
            self._kept_version = version
            return list(self._node.shards)
        turn = self._kept_round
        quiet = [shard for shard in self._node.shards.ids() if shard % QUIET_ROUNDS == turn]
        return [
            *self._node.turn.awake,
            *(r for s in quiet if (r := self._node.shards.get(s)) and r.quiet),
        ]

    def _relieve_wal(self) -> None:
        """Near the WAL's limit: checkpoint who pins the oldest file, write small pins again."""
        settings, used = self._node.settings.wal, self._node.wal.bytes_used
        self.is_wal_full = used > settings.bytes_max * WAL_REFUSAL
        if used <= settings.bytes_max * WAL_PRESSURE and self._node.wal.file_count < 4:
            return
        segments = self._node.segments
        found = [self._node.shards.get(shard) for shard in self._node.wal.pins()]
        pinning = [replica for replica in found if replica is not None]
        for replica in pinning[:4]:
            if segments.checkpoint_due(replica, 1 << 62, 0):
                segments.checkpoint(replica)
        stuck = {replica.shard for replica in pinning if segments.is_stuck(replica)}
        if self._node.wal.rewrite_pins(REWRITE_BYTES, self._entries_of, stuck):
            self._node.turn.must_write()
        self._free_wal_of_stopped()

    def _free_wal_of_stopped(self) -> None:
        """Write again what shards out of service pin: no checkpoint will free it. V5."""
        node = self._node
        job = node.wal.read_back_job(lambda shard: node.shards.get(shard) is not None)
        if job is None or self._is_reading_back:
            return
        self._is_reading_back = True

        def read(entries_of: EntriesOf | None, error: BaseException | None) -> None:
            self._is_reading_back = False
            if entries_of is None:
                node.log("warning", "wal.read_back_failed", reason=str(error))
            elif node.wal.rewrite_pins(ALL_BYTES, entries_of):
                node.turn.must_write()

        node.segments.run(job, read)

    def _entries_of(self, shard: int, start: int, end: int) -> Sequence[Entry]:
        replica = self._node.shards.get(shard)
        if replica is None:
            return []
        first, last = replica.log.first_index(), replica.log.last_index()
        start, end = max(start, first), min(end, last + 1)
        return replica.log.entries(start, end, 1 << 62) if start < end else []

    def measure_space(self) -> None:
        """Look at the free space; below the floor appends are refused. V2."""
        try:
            self.free_bytes, self.total_bytes = self._node.disk.space()
        except OSError as error:
            self._node.log("warning", "disk.unmeasured", reason=str(error))
            return
        floor = self._node.settings.log.free_bytes_min(self.total_bytes)
        if self.free_bytes >= floor:
            self._node.segments.found_room()
        full = self.free_bytes < floor or self._node.segments.disk_full
        if full != self.is_full:
            self.is_full = full
            event = "disk.nearly_full" if full else "disk.has_room"
            self._node.log("warning" if full else "info", event, free_bytes=self.free_bytes)

    @property
    def is_short_of_room(self) -> bool:
        """Say whether entries of a leader may have to be left."""
        return self.is_full or self.is_wal_full

    def takes(self, entries: Sequence[Entry]) -> bool:
        """Say whether entries of a leader are taken where there is little room. V2, V8.

        Half of the floor is for what leaders let in before they knew; below that only for what
        stores no messages: a trim makes room, and a new leader's first entry lets it lead.
        """
        floor = self._node.settings.log.free_bytes_min(self.total_bytes)
        is_full = self._node.segments.disk_full or self.is_wal_full
        if self.free_bytes >= floor / 2 and not is_full:
            return True
        return not any(_stores(entry.data) for entry in entries)

    def admission(self, replica: Replica) -> RaftlineError | None:
        """Refuse an append that would find no room: here, or on a majority of the replicas."""
        if self.is_full:
            floor = self._node.settings.log.free_bytes_min(self.total_bytes)
            return DiskFull(self._node.identity.name, self.free_bytes, floor)
        used, limit = self._node.wal.bytes_used, self._node.settings.wal.bytes_max
        if used > limit:  # segments are written more slowly than messages come
            what = f"bytes in the write-ahead log of {self._node.identity.name}"
            return OverLimit(what, used, limit)
        if self._full_peers:
            return self._no_room(replica)
        return None

    def _no_room(self, replica: Replica) -> RaftlineError | None:
        """Refuse if too few replicas have room for a majority."""
        full = [v for v in replica.conf.voters if node_of(ReplicaId(v)) in self._full_peers]
        if (len(replica.conf.voters) - len(full)) * 2 > len(replica.conf.voters):
            return None
        node = node_of(ReplicaId(full[0]))
        beat = self._full_peers[node]
        floor = self._node.settings.log.free_bytes_min(beat.total_bytes)
        return DiskFull(node, beat.free_bytes, floor)

    def _scrub_next(self) -> None:
        """Verify a piece of one partition's cold bytes; each has its turn."""
        shards = self._node.shards
        ids = shards.ids()
        self._scrub_at = (self._scrub_at + 1) % max(1, len(ids))
        replica = shards.get(ids[self._scrub_at]) if ids else None
        if replica is not None and isinstance(replica.host, PartitionHost):
            self._node.segments.scrub([replica.host])

    def _retain(self) -> None:
        """Propose to trim what the topic's retention lets go, where we lead."""
        machine = self._node.catalog_machine
        wanted: dict[str, tuple[int, ...]] = {}  # by topic
        for replica in list(self._node.shards):
            host = replica.host
            row = machine.shards.get(replica.shard)
            if not replica.is_leader or not isinstance(host, PartitionHost) or row is None:
                continue
            self._node.staging.tidy(host, replica)
            is_empty = host.log.log_start == host.log.log_end
            if is_empty and TRACE not in host.side:  # all may have been called off
                continue
            bounds = wanted.get(row.topic)
            if bounds is None:
                settings = effective(machine.topics[row.topic].settings)
                bounds = tuple(int(settings[name]) for name in RETENTION_SETTINGS)
                wanted[row.topic] = bounds
            age, size, trace_percent, trace_age = bounds
            self._node.timelines.keep(host, replica, trace_percent, trace_age)
            if is_empty:
                continue
            now_ms = replica.time.stamp()
            start = host.log.retention_start(
                now_ms - age if age >= 0 else None, size if size >= 0 else None
            )
            pin = host.machine.delivery.pin()  # the dead-letter topic does not have it yet
            if pin is not None:
                start = min(start, pin)
            if self._node.log_questions.is_required(replica):
                start = min(start, host.machine.archive.archived)
            if start > host.log.log_start:
                trim(host, start, self._node.proposal(lambda _: None))


def _stores(data: bytes) -> bool:
    """Say whether an entry brings messages to the disk."""
    if not data:
        return False
    if data[0] == STAGING_TAG:
        return stores_staged(data)
    return data[0] in STORING_TAGS or (data[0] == WAITING_TAG and stores_messages(data))
