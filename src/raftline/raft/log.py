"""A replica's log: what storage holds durably, what it does not hold yet, and how far it counts.

State: the *unstable* tail ``[offset, last_index]`` (and perhaps a snapshot before it) is known to
the core but not known to be durable. Of it, ``[offset, writing_end)`` has been handed out to be
written. Three marks walk over the whole log: ``applied <= applying <= commit``.

Invariants:
    L1  ``last_index == offset + len(unstable) - 1``, ``last_term`` is the term there.
    L2  ``offset <= writing_end <= last_index + 1``.
    L3  what is below ``offset`` is in storage, or covered by the unstable snapshot.
    L4  a mark never moves back, and ``commit <= last_index``.

Costs: appending, matching at the end and committing are O(1) plus the slice moved.
"""

from raftline.raft.errors import RaftFault
from raftline.raft.rpc import NO_LIMIT, Entry, EntryKind, Snapshot, entries_bytes, limit_bytes
from raftline.raft.storage import Compacted, LogStorage, Unavailable

NO_TERM = -1  # no entry has this term


class RaftLog:
    """The log of one replica."""

    __slots__ = (
        "applied",
        "applying",
        "applying_bytes",
        "applying_bytes_max",
        "applying_paused",
        "commit",
        "last_index",
        "last_term",
        "offset",
        "snapshot",
        "snapshot_writing",
        "storage",
        "unstable",
        "writing_end",
    )

    def __init__(self, storage: LogStorage, applying_bytes_max: int = NO_LIMIT) -> None:
        start = storage.first_index() - 1
        self.storage = storage
        self.last_index = storage.last_index()
        self.last_term = storage.term(self.last_index)
        self.unstable: list[Entry] = []
        self.offset = self.writing_end = self.last_index + 1
        self.snapshot: Snapshot | None = None
        self.snapshot_writing = False
        self.commit = self.applying = self.applied = start
        self.applying_bytes_max = applying_bytes_max
        self.applying_bytes = 0
        self.applying_paused = False

    # --- looking things up

    def first_index(self) -> int:
        """Return the index of the first entry that can be read."""
        if self.snapshot is not None:
            return self.snapshot.index + 1
        return self.storage.first_index()

    def term_at(self, index: int) -> int:
        """Return the term at ``index``, ``NO_TERM`` where the log does not reach."""
        if index == self.last_index:
            return self.last_term
        if index >= self.offset:
            if index > self.last_index:
                return NO_TERM
            return self.unstable[index - self.offset].term
        if self.snapshot is not None:
            return self.snapshot.term if self.snapshot.index == index else NO_TERM
        try:
            return self.storage.term(index)
        except (Compacted, Unavailable):
            return NO_TERM

    def is_up_to_date(self, index: int, term: int) -> bool:
        """Say whether a log ending at ``(index, term)`` holds at least what this one does."""
        return term > self.last_term or (term == self.last_term and index >= self.last_index)

    def guess_match(self, index: int, term: int) -> tuple[int, int]:
        """Return the last ``(index, term)`` up to ``index`` whose term is at most ``term``.

        A log whose term at ``index`` is ``term`` cannot match this one after that point. Where
        the log does not reach, the answer has term 0: nothing is known there.
        """
        while index > 0:
            ours = self.term_at(index)
            if ours == NO_TERM:
                return index, 0
            if ours <= term:
                return index, ours
            index -= 1
        return 0, 0

    def entries_from(self, index: int, bytes_max: int) -> list[Entry]:
        """Return a fresh list of entries from ``index`` on, cut to ``bytes_max``.

        Raises:
            Compacted: the log does not reach back that far.
        """
        if index > self.last_index:
            return []
        if index >= self.offset:
            return limit_bytes(self.unstable[index - self.offset :], bytes_max)
        return self.slice(index, self.last_index + 1, bytes_max)

    def slice(self, lo: int, hi: int, bytes_max: int) -> list[Entry]:
        """Return a fresh list of the entries in ``[lo, hi)``, cut to ``bytes_max``.

        Raises:
            Compacted: the log does not reach back to ``lo``.
            RaftFault: the range is impossible or storage lost a part of it.
        """
        if lo > hi or hi > self.last_index + 1:
            raise RaftFault(f"no range [{lo}, {hi}) in a log that ends at {self.last_index}")
        if lo == hi:
            return []
        offset = self.offset
        if lo >= offset:
            return limit_bytes(self.unstable[lo - offset : hi - offset], bytes_max)
        if self.snapshot is not None:
            raise Compacted(lo)
        cut = min(hi, offset)
        try:
            entries = self.storage.entries(lo, cut, bytes_max)
        except Unavailable as error:
            raise RaftFault(f"storage lost a part of [{lo}, {cut})") from error
        if hi <= offset or len(entries) < cut - lo:
            return entries
        return self._add_unstable(entries, hi, bytes_max)

    def _add_unstable(self, entries: list[Entry], hi: int, bytes_max: int) -> list[Entry]:
        room = bytes_max - entries_bytes(entries)
        if room <= 0:
            return entries
        tail = limit_bytes(self.unstable[: hi - self.offset], room)
        if len(tail) == 1 and entries_bytes(tail) > room:
            return entries
        return entries + tail

    # --- the tail grows, is replaced, becomes durable

    def append(self, entries: list[Entry]) -> None:
        """Add ``entries`` at their indexes; what stood there or after goes."""
        start = entries[0].index
        if start == self.last_index + 1:
            self.unstable.extend(entries)
        elif start <= self.offset:
            self.unstable = list(entries)
            self.offset = self.writing_end = start
        else:
            del self.unstable[start - self.offset :]
            self.unstable.extend(entries)
            self.writing_end = min(self.writing_end, start)
        last = entries[-1]
        self.last_index = last.index
        self.last_term = last.term

    def merge(self, entries: list[Entry]) -> None:
        """Add those of ``entries`` that the log does not hold already, from the first new one."""
        for position, entry in enumerate(entries):
            if self.term_at(entry.index) != entry.term:
                self.append(entries[position:] if position else entries)
                return

    def restore(self, snapshot: Snapshot) -> None:
        """Replace the whole log by ``snapshot``, which is not durable yet."""
        self.commit = self.last_index = snapshot.index
        self.last_term = snapshot.term
        self.offset = self.writing_end = snapshot.index + 1
        self.unstable = []
        self.snapshot = snapshot
        self.snapshot_writing = False

    def unwritten_snapshot(self) -> Snapshot | None:
        """Return the snapshot that waits to be handed out for writing."""
        return None if self.snapshot_writing else self.snapshot

    def take_unwritten(self) -> list[Entry]:
        """Hand out the entries that were not handed out for writing yet."""
        end = self.last_index + 1
        if self.writing_end == end:
            return []
        entries = self.unstable[self.writing_end - self.offset :]
        self.writing_end = end
        return entries

    def stable_to(self, index: int, term: int) -> None:
        """Learn that the log is durable up to ``(index, term)``, unless replaced meanwhile."""
        count = index + 1 - self.offset
        if count <= 0 or index > self.last_index or self.unstable[count - 1].term != term:
            return
        if count == len(self.unstable):
            self.unstable = []
        else:
            del self.unstable[:count]
        self.offset = index + 1
        if self.writing_end <= index:
            self.writing_end = index + 1

    def stable_snapshot_to(self, index: int) -> None:
        """Learn that the snapshot at ``index`` is durable."""
        if self.snapshot is not None and self.snapshot.index == index:
            self.snapshot = None
            self.snapshot_writing = False

    # --- the marks move

    def commit_to(self, index: int) -> None:
        """Move the commit mark up to ``index``.

        Raises:
            RaftFault: the log does not reach that far.
        """
        if index > self.commit:
            if index > self.last_index:
                raise RaftFault(f"commit {index} is past the last entry {self.last_index}")
            self.commit = index

    def applied_to(self, index: int, size: int) -> None:
        """Learn that entries up to ``index``, of ``size`` bytes, were applied.

        Raises:
            RaftFault: they were not committed, or ``index`` moves back.
        """
        if not self.applied <= index <= self.commit:
            raise RaftFault(f"applied {index} is outside [{self.applied}, {self.commit}]")
        self.applied = index
        if self.applying < index:
            self.applying = index
        rest = self.applying_bytes - size
        self.applying_bytes = rest if rest > 0 else 0
        self.applying_paused = self.applying_bytes >= self.applying_bytes_max

    def appliable_last(self, *, unstable_too: bool) -> int:
        """Return the last index that may be applied now."""
        return self.commit if unstable_too else min(self.commit, self.offset - 1)

    def has_committed(self, *, unstable_too: bool) -> bool:
        """Say whether committed entries wait to be handed out for applying."""
        return (
            not self.applying_paused
            and self.snapshot is None
            and self.applying < self.appliable_last(unstable_too=unstable_too)
        )

    def take_committed(self, *, unstable_too: bool) -> list[Entry]:
        """Hand out committed entries to apply, within the limit on bytes being applied."""
        if self.applying_paused or self.snapshot is not None:
            return []
        last = self.commit if unstable_too else min(self.commit, self.offset - 1)
        if self.applying >= last:
            return []
        room = self.applying_bytes_max
        if room < NO_LIMIT:
            room -= self.applying_bytes
        entries = self.slice(self.applying + 1, last + 1, room)
        self.applying = entries[-1].index
        self.applying_bytes += entries_bytes(entries)
        self.applying_paused = (
            self.applying_bytes >= self.applying_bytes_max or self.applying < last
        )
        return entries

    def has_unapplied_conf_change(self) -> bool:
        """Say whether a change of the configuration is committed and not applied."""
        lo = self.applied + 1
        while lo <= self.commit:
            page = self.slice(lo, self.commit + 1, self.applying_bytes_max)
            if any(entry.kind != EntryKind.NORMAL for entry in page):
                return True
            lo += len(page)
        return False
