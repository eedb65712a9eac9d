"""The write-ahead log: one per node, all shards, one write and one sync per turn.

State
    Loop side: what is to be written next, where it will go, and which file is pinned by whom
    (storage/wal_pins.py). Lane side: the open files (storage/wal_files.py). They share nothing but
    the groups handed over, so no call on the loop does I/O and none waits.

One turn
    ``add_*`` -> ``take_group`` (loop) -> ``write_group`` (sync lane) -> ``group_written`` (loop).
    Groups are written in the order they were taken, by one lane; several may be under way.
    A buffer handed over with an entry is never written to again.

Letting go
    ``checkpointed`` and later frames free files; ``release_job`` and ``prepare_spare`` do the file
    work in the segment lane. A shard that would pin the oldest file for ever (an idle shard's
    vote, uncommitted entries) is written again at the head by ``rewrite_pins``. So is one that is
    out of service, and that no checkpoint will free: ``read_back_job`` has its entries.

Invariants
    W1  What a synced group holds is recovered, or its shard is reported damaged (the one
        exception: storage/wal_recovery.py, "What stays undetected").
    W2  A group is recovered whole or not at all.
    W3  Opening copies all that is live into fresh synced files before the first vote, and lets
        nothing go before that but what openings that never ended had begun: on a full disk each
        try would take more. A crash at any point of it changes nothing.
    W4  A file is let go only when every frame in it is void, durably, and no older file is left.

Errors
    A failed write or sync is final: the lane hands it to the node, which ends the process.
"""

from collections.abc import Callable, Collection, Sequence

from raftline.config.settings import WalSettings
from raftline.raft.rpc import Entry
from raftline.raft.rpc import limit_bytes as limit_entries
from raftline.storage.files import Disk
from raftline.storage.wal_files import WalFiles
from raftline.storage.wal_format import (
    COMPLETE,
    COPY,
    DAMAGED,
    ENTRY,
    FIRST_POSITION,
    FRAME_HEADER_BYTES,
    GROUP_HEADER_BYTES,
    HARD_STATE,
    REMOVED,
    RESET,
    GroupEncoder,
    GroupHeader,
    WalIdentity,
    WalRefused,
    aligned,
    encode_vote,
    generation_of,
    seed_of,
)
from raftline.storage.wal_pins import Pins
from raftline.storage.wal_recovery import Mark, Recovered, RecoveredShard, recover
from raftline.storage.wal_scan import FileScan, close_scans, open_scans, read_back

__all__ = [
    "EntriesOf",
    "Group",
    "Recovered",
    "RecoveredShard",
    "Wal",
    "WalIdentity",
    "WalRefused",
    "WalSettings",
]

EntriesOf = Callable[[int, int, int], Sequence[Entry]]
"""(shard, start, end) -> the entries of the shard's log in ``[start, end)``, fewer if it ends."""

_COPY_BYTES = 1 << 20  # per group while recovery copies

_Pending = tuple[int, int, Sequence[Entry], int, int, bytes]
"""kind, shard, entries, index, term, payload."""


class Group:
    """What one write takes to disk. Opaque; made by ``take_group``."""

    __slots__ = ("buffers", "generation", "header", "marks", "position")

    def __init__(
        self,
        generation: int,
        position: int,
        header: GroupHeader,
        buffers: list[bytes],
        marks: list[_Pending],
    ) -> None:
        self.generation = generation
        self.position = position
        self.header = header
        self.buffers = buffers
        self.marks = marks

    @property
    def bytes(self) -> int:
        """Return its length on disk."""
        return self.header.bytes


class Wal:
    """The write-ahead log of a node. See the module."""

    __slots__ = (
        "_damages", "_ends", "_file_bytes", "_files", "_flags", "_generation", "_hard_states",
        "_identity", "_is_rewriting", "_marked", "_pending", "_pins", "_position", "_seed",
        "_sequence", "_unsettled", "_written", "pending_bytes",
    )  # fmt: skip

    def __init__(
        self, files: WalFiles, identity: WalIdentity, file_bytes: int, sequence: int
    ) -> None:
        """Start an empty run. Use ``open``."""
        self._files = files
        self._identity = identity
        self._file_bytes = file_bytes
        self._pins = Pins()
        self._pending: list[_Pending] = []
        self._hard_states: dict[int, tuple[int, int, int]] = {}  # latest added, for rewriting
        self._damages: dict[int, str] = {}
        self._unsettled: dict[int, int] = {}  # shards with resets or removals not yet written
        self._generation = files.run
        self._ends: dict[int, int] = {files.run: file_bytes}  # sizes of the files kept, in order
        self._position = FIRST_POSITION
        self._seed = seed_of(files.run, identity.directory_uuid)
        self._sequence = sequence  # of the next group
        self._written = files.run  # file of the last group written
        self._flags = 0
        self._is_rewriting = False
        self._marked = True  # the last group taken says that all before it is synced
        self.pending_bytes = 0

    @staticmethod
    def open(
        disk: Disk,
        directory: str,
        identity: WalIdentity,
        settings: WalSettings,
        checkpoints: dict[int, Mark],
        *,
        keep_unknown: bool = True,
        lost: Callable[[int], str] | None = None,
    ) -> "tuple[Wal, Recovered]":
        """Recover what is there and start a new run with all that is live in it. Blocks. W3.

        Args:
            disk: where the files are.
            directory: the WAL's own directory on it.
            identity: whose it is.
            settings: sizes.
            checkpoints: for every shard hosted here the (index, term) its durable checkpoint
                covers, (0, 0) if it has none yet.
            keep_unknown: whether shards missing from ``checkpoints`` are recovered or dropped.
            lost: why one that would be dropped was not meant to go; "" if it was. What is lost is
                noted as damaged until ``add_removed``, without its entries: it took part once.

        Raises:
            NewerFormat, WrongCluster, WalRefused: the files are not ours. Nothing was changed.
        """
        scans = open_scans(disk, directory, identity)
        try:
            recovered = recover(scans, checkpoints)
        finally:
            close_scans(scans)
        if not keep_unknown:
            _drop_unknown(recovered, checkpoints, lost)
        disk.mkdir(directory)
        old = [name for name in disk.listdir(directory) if generation_of(name) is not None]
        run = 1 + max((generation_of(name) or 0 for name in old), default=0)
        files = WalFiles(disk, directory, identity, settings, run)
        files.remove_unfinished(recovered.unfinished)
        wal = Wal(files, identity, settings.file_bytes, recovered.sequence_end)
        wal._copy(recovered, checkpoints)
        files.retire_old(old)
        return wal, recovered

    # ---- loop side: collecting

    def add_entries(self, shard: int, entries: Sequence[Entry]) -> None:
        """Append entries; earlier ones of the shard at the same or a greater index are void."""
        if entries:
            self._add_entries(ENTRY, shard, entries)

    def add_hard_state(self, shard: int, term: int, vote: int, commit: int) -> None:
        """Note term, vote and commit mark. Add it before the entries it came with."""
        self._hard_states[shard] = (term, vote, commit)
        self._add(HARD_STATE, shard, commit, term, encode_vote(vote))

    def add_reset(self, shard: int, index: int, term: int) -> None:
        """A snapshot was installed: all earlier entries are void, the log starts after ``index``.

        Call it when the checkpoint made from the snapshot is durable, not before.
        """
        self._unsettle(shard)
        self._add(RESET, shard, index, term)

    def add_removed(self, shard: int) -> None:
        """The replica is gone with its vote: every earlier frame of the shard is void."""
        self._hard_states.pop(shard, None)
        self._damages.pop(shard, None)
        self._unsettle(shard)
        self._add(REMOVED, shard, 0, 0)

    def take_group(self) -> Group | None:
        """Return everything pending as one group, to be written next; None if there is nothing."""
        return self._make_group() if self._pending else None

    def mark_group(self) -> Group | None:
        """Return an empty group if the last one is not yet known to be synced.

        Written (and synced) when the WAL has been idle for a moment and before a clean stop, it
        lets recovery tell damage of the last group from a torn write.
        """
        return None if self._marked or self._pending else self._make_group()

    # ---- lane side

    def write_group(self, group: Group, *, sync: bool = True) -> None:
        """Write a group, and sync it. In the sync lane; any error is final."""
        self._files.write(group.generation, group.position, group.header, group.buffers, sync=sync)

    def prepare_spare(self) -> None:
        """Make the next file ahead of need. In the segment lane, when ``needs_spare``."""
        self._files.prepare_spare()

    def close(self) -> None:
        """Release the files. After the lanes are idle."""
        self._files.close()

    # ---- loop side: afterwards

    def group_written(self, group: Group) -> None:
        """Take note that the group is written and synced (in the order of taking). W4.

        A group written without a sync is noted after the next one that was synced.
        """
        self._written = group.generation
        pins, generation = self._pins, group.generation
        for kind, shard, entries, index, _, _ in group.marks:
            plain = kind & ~COPY
            if plain == ENTRY:
                note = pins.entries if kind == ENTRY else pins.copied
                size = FRAME_HEADER_BYTES * len(entries) + sum(len(e.data) for e in entries)
                note(shard, generation, entries[0].index, entries[-1].index + 1, size)
            elif plain == HARD_STATE:
                pins.hard_state(shard, generation)
            elif kind == RESET:
                pins.reset(shard, index)
                self._settle(shard)
            elif kind == REMOVED:
                pins.forget(shard)
                self._settle(shard)
            elif plain == DAMAGED:
                pins.damage(shard, generation)
            if kind & COPY:
                self._is_rewriting = False

    def checkpointed(self, shard: int, index: int) -> None:
        """The shard's checkpoint covers the log up to ``index``, durably."""
        self._pins.checkpointed(shard, index)

    def forget(self, shard: int) -> None:
        """The shard is gone and its directory too: nothing in the WAL is needed for it."""
        self._hard_states.pop(shard, None)
        self._damages.pop(shard, None)
        self._pins.forget(shard)

    def is_settled(self, shard: int) -> bool:
        """Say whether every reset and removal of the shard is written and synced."""
        return shard not in self._unsettled

    def release_job(self) -> Callable[[], None] | None:
        """Return the work of letting go every free file, for the segment lane; None if none is."""
        free: list[int] = []
        for generation in self._ends:
            if generation >= self._written or self._pins.count(generation):
                break  # W4: never past one that is needed
            free.append(generation)
        if not free:
            return None
        for generation in free:
            del self._ends[generation]
            self._pins.drop_file(generation)
        return lambda: self._files.retire(free)

    def pins(self) -> list[int]:
        """Return the shards that pin the oldest file, the one with most bytes in it first."""
        oldest = self._oldest
        found = [(-pins.bytes_in(oldest), shard) for shard, pins in self._pins.of_file(oldest)]
        return [shard for _, shard in sorted(found)]

    def rewrite_pins(
        self, limit_bytes: int, entries_of: EntriesOf, stuck: Collection[int] = ()
    ) -> int:
        """Add again at the head what pins the oldest file; return the bytes added.

        Hard states always; the entries of a shard only while all of them together stay within
        ``limit_bytes`` (shards with more are for a checkpoint: ``pins``). Those of shards that are
        ``stuck``, which no checkpoint will free, go in pieces of about that many bytes, one with
        each call. ``entries_of`` is asked for ranges above the checkpoint and may give a part of
        them, or nothing. Does nothing while an earlier rewrite is under way or the oldest file is
        being written.
        """
        oldest = self._oldest
        if self._is_rewriting or oldest >= self._written:
            return 0
        before = self.pending_bytes
        for shard, pins in sorted(self._pins.of_file(oldest), key=lambda item: item[0]):
            if shard in self._unsettled:
                continue  # what pins is about to be void
            if pins.hard_state == oldest:
                self._copy_hard_state(shard)
            if pins.damage == oldest:
                self._add(DAMAGED | COPY, shard, 0, 0, self._damages[shard].encode())
            for run in pins.runs:
                room = limit_bytes - (self.pending_bytes - before)
                is_small = run.bytes <= room
                if run.generation == oldest and (is_small or (shard in stuck and room > 0)):
                    entries = entries_of(shard, run.start, run.end)
                    if not is_small:
                        entries = limit_entries(list(entries), room)
                    if entries:
                        self._add_entries(ENTRY | COPY, shard, entries)
        added = self.pending_bytes - before
        self._is_rewriting = added > 0
        return added

    def read_back_job(self, is_open: Callable[[int], bool]) -> Callable[[], EntriesOf] | None:
        """Return a job that reads what pins the oldest file of shards that are not open.

        For the segment lane; what it returns is for ``rewrite_pins``, and gives nothing once
        another file is the oldest. None if there is nothing to read.
        """
        oldest = self._oldest
        if self._is_rewriting or oldest >= self._written:
            return None
        shards = [
            shard
            for shard, pins in self._pins.of_file(oldest)
            if pins.bytes_in(oldest) and shard not in self._unsettled and not is_open(shard)
        ]
        if not shards:
            return None
        found: dict[int, dict[int, Entry]] = {}

        def entries_of(shard: int, start: int, end: int) -> Sequence[Entry]:
            rows = found.get(shard, {}) if self._oldest == oldest else {}
            ends = (index for index in range(start, end) if index not in rows)
            return [rows[index] for index in range(start, next(ends, end))]

        def job() -> EntriesOf:
            scan = FileScan(self._files.open(oldest), oldest, self._identity)
            try:
                found.update(read_back(scan, shards))
            finally:
                scan.close()
            return entries_of

        return job

    def set_cluster(self, cluster: str) -> None:
        """Name the cluster in the files made from now on: the node became a member."""
        self._identity = WalIdentity(cluster, self._identity.directory_uuid)
        self._files.set_identity(self._identity)

    @property
    def bytes_used(self) -> int:
        """Return the size of all files that hold or may hold something live."""
        return sum(self._ends.values())

    @property
    def file_count(self) -> int:
        """Return how many files hold or may hold something live."""
        return len(self._ends)

    @property
    def needs_spare(self) -> bool:
        """Say whether the next file has not been made yet."""
        return not self._files.has_spare

    def check(self) -> None:
        """Raise if an invariant is broken. Called by tests and simulation."""
        self._pins.check()
        generations = list(self._ends)
        assert generations == list(range(generations[0], self._generation + 1)), generations

    # ---- within

    @property
    def _oldest(self) -> int:
        return next(iter(self._ends))

    def _add(self, kind: int, shard: int, index: int, term: int, payload: bytes = b"") -> None:
        self._pending.append((kind, shard, (), index, term, payload))
        self.pending_bytes += FRAME_HEADER_BYTES + len(payload)

    def _add_entries(self, kind: int, shard: int, entries: Sequence[Entry]) -> None:
        self._pending.append((kind, shard, entries, 0, 0, b""))
        size = FRAME_HEADER_BYTES * len(entries)
        for entry in entries:
            size += len(entry.data)
        self.pending_bytes += size

    def _unsettle(self, shard: int) -> None:
        self._unsettled[shard] = self._unsettled.get(shard, 0) + 1

    def _settle(self, shard: int) -> None:
        left = self._unsettled.pop(shard, 0) - 1
        if left > 0:
            self._unsettled[shard] = left

    def _make_group(self) -> Group:
        """Give the pending frames a place and encode them for it."""
        length = aligned(GROUP_HEADER_BYTES + self.pending_bytes)
        if self._position + length > self._file_bytes and self._position > FIRST_POSITION:
            self._next_file()
        encoder = GroupEncoder(self._seed)
        pending = self._pending
        for kind, shard, entries, index, term, payload in pending:
            if entries:
                encoder.entries(kind, shard, entries)
            else:
                encoder.mark(kind, shard, index, term, payload)
        assert encoder.body_bytes == self.pending_bytes, "an entry changed while it waited"
        header = GroupHeader(
            self._flags, encoder.frame_count, self._sequence, self._files.run, 0, encoder.body_bytes
        )
        group = Group(self._generation, self._position, header, encoder.finish(), pending)
        self._sequence += 1
        self._position += length
        self._ends[self._generation] = max(self._file_bytes, self._position)
        self._marked = not pending
        self._pending = []
        self.pending_bytes = 0
        return group

    def _next_file(self) -> None:
        self._generation += 1
        self._position = FIRST_POSITION
        self._seed = seed_of(self._generation, self._identity.directory_uuid)

    def _copy_hard_state(self, shard: int) -> None:
        term, vote, commit = self._hard_states[shard]
        self._add(HARD_STATE | COPY, shard, commit, term, encode_vote(vote))

    # ---- within: the copy at the start of a run (blocking)

    def _copy(self, recovered: Recovered, checkpoints: dict[int, Mark]) -> None:
        """Write what is live, sync it, and say so: the run before is not needed any more. W3."""
        for shard, found in sorted(recovered.shards.items()):
            self._pins.checkpointed(shard, found.base[0])
            self._copy_marks(shard, found, has_checkpoint=shard in checkpoints)
            self._copy_entries(shard, found.entries)
        self._write_now(sync=True)
        # COMPLETE is written only when all of the copy is synced, and twice, because a run
        # without a readable COMPLETE counts for nothing.
        self._flags = COMPLETE
        self._write_now(sync=False)
        self._write_now(sync=True)

    def _copy_marks(self, shard: int, found: RecoveredShard, *, has_checkpoint: bool) -> None:
        if found.is_removed:
            self._add(REMOVED, shard, 0, 0)
            return
        if found.damage:
            self._damages[shard] = found.damage
            self._add(DAMAGED | COPY, shard, 0, 0, found.damage.encode())
        if not has_checkpoint and found.base[0]:
            self._add(RESET | COPY, shard, *found.base)
        hard = found.hard_state
        if hard.term or hard.vote or hard.commit:
            self._hard_states[shard] = (hard.term, hard.vote, hard.commit)
            self._copy_hard_state(shard)

    def _copy_entries(self, shard: int, entries: list[Entry]) -> None:
        batch: list[Entry] = []
        size = 0
        for entry in entries:
            batch.append(entry)
            size += len(entry.data) + FRAME_HEADER_BYTES
            if self.pending_bytes + size >= _COPY_BYTES:
                self._add_entries(ENTRY | COPY, shard, batch)
                self._write_now(sync=False)
                batch, size = [], 0
        if batch:
            self._add_entries(ENTRY | COPY, shard, batch)

    def _write_now(self, *, sync: bool) -> None:
        group = self._make_group()
        self.write_group(group, sync=sync)
        self.group_written(group)


def _drop_unknown(
    recovered: Recovered, checkpoints: dict[int, Mark], lost: Callable[[int], str] | None
) -> None:
    """Drop the shards without a checkpoint; of those that are lost a note stays."""
    kept: dict[int, RecoveredShard] = {}
    for shard, found in recovered.shards.items():
        if shard in checkpoints:
            kept[shard] = found
            continue
        reason = lost(shard) if lost is not None and not found.is_removed else ""
        if reason:
            kept[shard] = RecoveredShard(found.hard_state, [], (0, 0), reason)
    recovered.shards = kept
