"""The turn: one pass over all shards that have something to do.

Order in a turn, and nothing else sends or persists
    1  propose what was collected, one entry a shard, when the WAL is idle or enough is collected
    2  put entries, votes and marks of every ready shard into the WAL's next group (unsynced)
    3  send appends and requests, one frame a peer
    4  hand the group to the sync lane: one write, one fdatasync for all shards
    5  synced: step our own acknowledgements, send replies and votes
    6  apply what is committed and locally synced; the replica's host answers the callers

Sharing a group
    Workers that wait for every ack come back as soon as they are answered, one by one: a group
    for each would cost a write and a sync each. Such calls are *patient*: while fewer came than
    were answered since the last proposal, they wait for each other, up to ``GATHER_MS``. Nobody
    waits alone, nor with anything that is not patient; and when nobody came while one waited, the
    next ``HURRIED`` proposals do not: these callers take their time.
    The Grant of a first delivery went out before it is committed, so nobody waits for it. It
    *lingers*: it shares the group of whatever comes next (as a rule the ack of what was delivered),
    and has one of its own only after ``LINGER_MS``.

State
    Shards with something to do, replies that wait for the group being written, rpcs per peer;
    and which replicas are awake, so that a quiet one costs nothing at all.

Invariants
    U1  A reply or vote leaves only after everything the shard wrote before it is synced.
    U2  At most one group is with the sync lane; what comes meanwhile shares the next one.
    U3  A failed write ends the process; it is never tried again.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from raftline.model.ids import INCARNATION_BITS
from raftline.node.ports import Clock, Lane, Timer
from raftline.raft.errors import Refused
from raftline.raft.rpc import Rpc
from raftline.storage.wal import Group, Wal
from raftline.telemetry.counters import Counters
from raftline.transport.rpcs import encode_rpcs

if TYPE_CHECKING:
    from raftline.node.replica import Replica

FRAME_BYTES_MAX = 4 << 20
GATHER_MS = 0.4  # about what eight workers on two busy cores take to come back
HURRIED = 16
MARK_TRIES = 4  # at the end: somebody may still write
LINGER_MS = 2.0  # a quick worker has settled by then what it was given

Send = Callable[[int, list[bytes]], bool]


class Turn:
    """The loop's heart: what every replica owes, done in the fixed order."""

    def __init__(
        self,
        clock: Clock,
        wal: Wal,
        sync_lane: Lane,
        *,
        turn_bytes: int,
        send: Send,
        fatal: Callable[[str], None],
        counters: Counters | None = None,
    ) -> None:
        self.counters = counters or Counters()
        self._clock = clock
        self._wal = wal
        self._lane = sync_lane
        self._turn_bytes = turn_bytes
        self._send = send
        self._fatal = fatal
        self._scheduled = False
        self._running = False
        self._stopped = False
        self._dirty: list[Replica] = []
        self._collecting: list[Replica] = []
        self._collected_bytes = 0
        self._patient = 0  # calls collected that wait for others like them
        self._is_pressing = False  # something collected does not wait
        self._expected = 0  # callers answered since the last proposal, who may come back
        self._sharing = 0  # patient calls of the last proposal
        self._gathered = False  # they waited long enough
        self._gather_from = 0  # of them were here when the wait began
        self._hurried = 0  # proposals to come that wait for nobody
        self._gather_timer: Timer | None = None
        self._linger_timer: Timer | None = None
        self._outgoing: dict[int, list[tuple[int, Rpc]]] = {}
        self._replies: list[tuple[Replica, list[Rpc]]] = []  # wait for the next group
        self._must_write = False
        self._has_written = False  # since the last tick
        self._writing: list[tuple[Replica, list[Rpc]]] | None = None
        self._idle: list[Callable[[], None]] = []
        self.awake: dict[Replica, None] = {}  # the replicas that are not quiet, in a fixed order

    # ------------------------------------------------------------------ something to do

    def dirty(self, replica: "Replica") -> None:
        """Look at this replica in the next turn."""
        if not replica.is_dirty:
            replica.is_dirty = True
            self._dirty.append(replica)
        if not self._scheduled and not self._running:
            self._scheduled = True
            self._clock.call_soon(self.run)

    def collect(self, replica: "Replica", size: int, *, is_patient: bool = False) -> None:
        """This replica holds ``size`` more bytes to propose; a patient call waits for others."""
        self._collected_bytes += size  # as in _hold_collected, without a call
        if not replica.is_collecting:
            replica.is_collecting = True
            self._collecting.append(replica)
        if is_patient:
            self._patient += 1
        else:
            self._is_pressing = True
        if self._scheduled or self._running:
            return
        if self._writing is not None and self._collected_bytes < self._turn_bytes:
            return  # the usual case, without a call
        if self._may_propose():
            self._scheduled = True
            self._clock.call_soon(self.run)

    def linger(self, replica: "Replica", size: int) -> None:
        """This replica holds ``size`` more bytes, for which nobody waits."""
        self._hold_collected(replica, size)
        if self._collected_bytes >= self._turn_bytes:
            if not self._scheduled and not self._running:
                self._scheduled = True
                self._clock.call_soon(self.run)
        elif self._linger_timer is None:
            self._linger_timer = self._clock.call_later(LINGER_MS, self._end_lingering)

    def expect(self, callers: int) -> None:
        """So many patient callers are answered: they may come back soon."""
        self._expected += callers

    def must_write(self) -> None:
        """Something was put into the WAL outside a shard's turn: write it soon."""
        self._must_write = True
        if not self._scheduled and not self._running:
            self._scheduled = True
            self._clock.call_soon(self.run)

    def hold(self, replica: "Replica") -> None:
        """Let nothing of ``replica`` leave before what is in the WAL now is synced. U1."""
        replica.unsynced += 1
        replica.unwritten += 1
        self._replies.append((replica, []))
        self.must_write()

    def mark_idle(self) -> None:
        """While nothing happens: let the WAL say that its last group was synced.

        Called every tick; a tick without a write is idle. A commit mark that waits for a group to
        go with goes first.
        """
        if self._writing is not None or self._must_write or self._stopped:
            return
        if self._has_written:
            self._has_written = False
        elif self._wal.pending_bytes:
            self.must_write()
        else:
            group = self._wal.mark_group()
            if group is not None:
                self._submit(group, [])

    def finish(self, call: Callable[[], None], tries: int = MARK_TRIES) -> None:
        """Run ``call`` once nothing is with the sync lane and the WAL says that all is synced."""
        if self._writing is not None:
            self._idle.append(lambda: self.finish(call, tries))
            return
        group = (self._wal.take_group() or self._wal.mark_group()) if tries else None
        if group is None or self._stopped:
            call()
            return
        replies, self._replies, self._must_write = self._replies, [], False
        self._submit(group, replies)
        self.finish(call, tries - 1)

    def stop(self) -> None:
        """Do nothing from now on."""
        self._stopped = True

    def _hold_collected(self, replica: "Replica", size: int) -> None:
        self._collected_bytes += size
        if not replica.is_collecting:
            replica.is_collecting = True
            self._collecting.append(replica)

    # ------------------------------------------------------------------ the turn

    def run(self) -> None:
        """Do one turn."""
        self._scheduled = False
        if self._stopped:
            return
        self._running = True
        began_mono = self._clock.mono_ms()
        if self._patient < self._sharing and not self._is_pressing and self._writing is None:
            self._serve_dirty()  # most of those who share groups are answered here: first that
        if self._collecting and self._may_propose():
            self._propose()
        self._serve_dirty()
        self._flush_rpcs()
        self._write()
        self._running = False
        self.counters.turn_times.note(self._clock.mono_ms() - began_mono)
        has_work = self._dirty or (
            self._collecting and self._writing is None and self._may_propose()
        )
        if has_work and not self._scheduled:
            self._scheduled = True
            self._clock.call_soon(self.run)

    def _may_propose(self) -> bool:
        """Say whether what is collected goes now; if it waits for more, see that it ends."""
        if self._collected_bytes >= self._turn_bytes:
            return True
        if self._writing is not None:
            return False
        if self._is_pressing or self._gathered:
            return True
        if not self._patient:
            return False  # what is collected lingers
        if self._hurried or self._patient >= self._expected:
            return True
        if self._gather_timer is None:
            self._gather_from = self._patient
            self._gather_timer = self._clock.call_later(GATHER_MS, self._end_gathering)
        return False

    def _end_gathering(self) -> None:
        self._gather_timer = None
        if self._collecting and self._writing is None:
            self._gathered = True
            if self._patient == self._gather_from:
                self._hurried = HURRIED + 1  # with this one
            if not self._scheduled and not self._running:
                self.run()

    def _end_lingering(self) -> None:
        self._linger_timer = None
        self._is_pressing = True
        if not self._scheduled and not self._running:
            self.run()

    def _serve_dirty(self) -> None:
        while self._dirty:
            dirty, self._dirty = self._dirty, []
            for replica in dirty:
                replica.is_dirty = False
                if not replica.is_closed:
                    self._serve(replica)

    def _propose(self) -> None:
        collecting, self._collecting = self._collecting, []
        self._collected_bytes = 0
        self._sharing, self._patient, self._expected = self._patient, 0, 0
        self._is_pressing = self._gathered = False
        self._hurried -= self._hurried > 0
        if self._gather_timer is not None:
            self._gather_timer.cancel()
            self._gather_timer = None
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None
        for replica in collecting:
            replica.is_collecting = False
            if not replica.is_closed:
                replica.propose_collected()

    def _serve(self, replica: "Replica") -> None:
        """Take what the core owes: into the WAL, onto the links, into the machine."""
        raft = replica.raft
        while raft.has_ready():
            ready = raft.ready()
            if ready.append is not None:
                self._persist(replica, ready.append)
            for rpc in ready.rpcs:
                self.post(replica, rpc)
            if ready.apply is not None:
                replica.apply(ready.apply)
            replica.after_ready(ready)
            if replica.is_closed:
                return

    def post(self, replica: "Replica", rpc: Rpc) -> None:
        """Put one rpc on its way with this turn's frame."""
        node = rpc.to >> INCARNATION_BITS  # node_of, for every rpc
        waiting = self._outgoing.get(node)
        if waiting is None:
            self._outgoing[node] = [(replica.shard, rpc)]
        else:
            waiting.append((replica.shard, rpc))

    def _persist(self, replica: "Replica", rpc: Rpc) -> None:
        """Step 2: mark before entries; remember the replies that wait for the sync. U1."""
        must_sync = replica.persist(self._wal, rpc)
        if must_sync:
            self._must_write = True
            replica.unsynced += 1
            replica.unwritten += 1
            self._replies.append((replica, rpc.responses))
        elif replica.unwritten:  # behind something that goes with the next group
            replica.unsynced += 1
            replica.unwritten += 1
            self._replies.append((replica, rpc.responses))
        elif replica.unsynced and self._writing is not None:  # behind the group under way
            replica.unsynced += 1
            self._writing.append((replica, rpc.responses))
        else:
            self._release(replica, rpc.responses)

    def _release(self, replica: "Replica", responses: list[Rpc]) -> None:
        own = replica.id
        for response in responses:
            if response.to == own:
                try:
                    replica.raft.step(response)
                except Refused:
                    continue  # it was taken out meanwhile: its own word does not count any more
            else:
                self.post(replica, response)

    def _flush_rpcs(self) -> None:
        if not self._outgoing:
            return
        outgoing, self._outgoing = self._outgoing, {}
        for node, rpcs in outgoing.items():
            if len(rpcs) == 1:
                self._send(node, encode_rpcs(rpcs))
                continue
            start = size = 0
            for at, (_, rpc) in enumerate(rpcs):
                for entry in rpc.entries:
                    size += len(entry.data)
                if size >= FRAME_BYTES_MAX:
                    self._send(node, encode_rpcs(rpcs[start : at + 1]))
                    start, size = at + 1, 0
            if start < len(rpcs):
                self._send(node, encode_rpcs(rpcs[start:] if start else rpcs))

    def _write(self) -> None:
        """Step 4. U2."""
        if not self._must_write or self._writing is not None:
            return
        group = self._wal.take_group()
        if group is None:
            replies, self._replies = self._replies, []
            self._must_write = False
            for replica, _ in replies:
                replica.unwritten = 0
            self._synced(replies)
            return
        self._must_write = False
        self._has_written = True
        replies, self._replies = self._replies, []
        self._submit(group, replies)

    def _submit(self, group: Group, replies: list[tuple["Replica", list[Rpc]]]) -> None:
        self._writing = replies
        for replica, _ in replies:
            replica.unwritten = 0
        wal, mono_ms = self._wal, self._clock.mono_ms

        def write() -> float:
            began_mono = mono_ms()
            wal.write_group(group)
            return mono_ms() - began_mono

        self._lane.submit(write, lambda took_ms, error: self._written(group, took_ms, error))

    def _written(self, group: Group, took_ms: float | None, error: BaseException | None) -> None:
        """Step 5: what was written is on the disk."""
        if self._stopped:
            return
        if error is not None:
            self._stopped = True
            self._fatal(f"the write-ahead log could not be written: {error}")  # U3
            return
        self._wal.group_written(group)
        self.counters.sync_times.note(took_ms or 0.0)
        self.counters.wal_written_bytes += group.bytes
        replies, self._writing = self._writing or [], None
        self._synced(replies)
        if not self._scheduled:
            self.run()
        if self._writing is None and self._idle:
            idle, self._idle = self._idle, []
            for call in idle:
                call()

    def _synced(self, replies: list[tuple["Replica", list[Rpc]]]) -> None:
        for replica, responses in replies:
            if replica.is_closed:
                continue
            replica.unsynced -= 1
            self._release(replica, responses)
            if not replica.is_dirty:
                replica.is_dirty = True
                self._dirty.append(replica)
