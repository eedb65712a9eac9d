"""Where the core reads the durable part of a log, and the twin of it in memory.

State: hard state, the newest snapshot, and the entries after ``offset``.

Invariants:
    S1  entries are contiguous: the first kept one has index ``offset + 1``.
    S2  the term at ``offset`` is known, so a log can be matched at its very start.
"""

from typing import Protocol

from raftline.raft.errors import RaftFault
from raftline.raft.rpc import ConfState, Entry, HardState, Snapshot, limit_bytes


class Compacted(LookupError):
    """The entry is older than the log reaches back."""


class Unavailable(LookupError):
    """The entry is newer than the log reaches."""


class SnapshotUnavailable(LookupError):
    """There is no snapshot to give just now; ask again later."""


class SnapshotOutdated(ValueError):
    """The snapshot is not newer than the one at hand."""


class LogStorage(Protocol):
    """The durable part of a log, as the core reads it."""

    def initial_state(self) -> tuple[HardState, ConfState]:
        """Return what was stored last; the configuration is that of the snapshot."""
        ...

    def entries(self, lo: int, hi: int, bytes_max: int) -> list[Entry]:
        """Return a fresh list of the entries in ``[lo, hi)``, cut to ``bytes_max``, at least one.

        Raises:
            Compacted: ``lo`` is before the first entry kept.
            Unavailable: the range is past the last entry.
        """
        ...

    def term(self, index: int) -> int:
        """Return the term at ``index``, from one before the first entry to the last.

        Raises:
            Compacted: ``index`` is before that range.
            Unavailable: ``index`` is after it.
        """
        ...

    def first_index(self) -> int:
        """Return the index of the first entry kept, or would-be first when none is."""
        ...

    def last_index(self) -> int:
        """Return the index of the last entry, or one before the first when none is kept."""
        ...

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot.

        Raises:
            SnapshotUnavailable: none can be had now.
        """
        ...


class MemoryLog:
    """A log held in memory. The node fills it with what its disk has made durable."""

    __slots__ = ("_entries", "_hard_state", "_offset", "_offset_term", "_snapshot")

    def __init__(self) -> None:
        self._hard_state = HardState()
        self._snapshot = Snapshot()
        self._entries: list[Entry] = []
        self._offset = 0  # index before the first kept entry
        self._offset_term = 0

    def initial_state(self) -> tuple[HardState, ConfState]:
        """Return the hard state and the configuration of the snapshot."""
        return self._hard_state, self._snapshot.conf

    def set_hard_state(self, state: HardState) -> None:
        """Keep ``state``."""
        self._hard_state = state

    def first_index(self) -> int:
        """Return the index of the first entry kept."""
        return self._offset + 1

    def last_index(self) -> int:
        """Return the index of the last entry."""
        return self._offset + len(self._entries)

    def term(self, index: int) -> int:
        """Return the term at ``index``."""
        position = index - self._offset - 1
        if position >= 0:
            if position >= len(self._entries):
                raise Unavailable(index)
            return self._entries[position].term
        if position == -1:
            return self._offset_term
        raise Compacted(index)

    def entries(self, lo: int, hi: int, bytes_max: int) -> list[Entry]:
        """Return a fresh list of the entries in ``[lo, hi)``, cut to ``bytes_max``."""
        offset = self._offset
        if lo <= offset:
            raise Compacted(lo)
        if hi > offset + len(self._entries) + 1:
            raise Unavailable(hi - 1)
        return limit_bytes(self._entries[lo - offset - 1 : hi - offset - 1], bytes_max)

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot."""
        return self._snapshot

    def append(self, entries: list[Entry]) -> None:
        """Write ``entries``, dropping what they replace and what they would add before the log.

        Raises:
            RaftFault: they would leave a gap.
        """
        if not entries:
            return
        position = entries[0].index - self._offset - 1
        if position == len(self._entries):
            self._entries.extend(entries)
            return
        if position > len(self._entries):
            raise RaftFault(f"gap: last {self.last_index()}, append at {entries[0].index}")
        if position < 0:
            entries = entries[-position:]
            if not entries:
                return
            position = 0
        self._entries[position:] = entries

    def compact(self, index: int) -> None:
        """Forget the entries up to and with ``index``.

        Raises:
            Compacted: they are gone already.
            RaftFault: ``index`` is past the last entry.
        """
        if index <= self._offset:
            raise Compacted(index)
        if index > self.last_index():
            raise RaftFault(f"cannot compact to {index}: last is {self.last_index()}")
        self._offset_term = self.term(index)
        del self._entries[: index - self._offset]
        self._offset = index

    def apply_snapshot(self, snapshot: Snapshot) -> None:
        """Replace the whole log by ``snapshot``.

        Raises:
            SnapshotOutdated: the one at hand is as new.
        """
        if self._snapshot.index and self._snapshot.index >= snapshot.index:
            raise SnapshotOutdated(snapshot.index)
        self._snapshot = snapshot
        self._entries = []
        self._offset = snapshot.index
        self._offset_term = snapshot.term

    def create_snapshot(self, index: int, conf: ConfState, data: bytes) -> Snapshot:
        """Keep and return a snapshot of the state after the entry at ``index``.

        Raises:
            SnapshotOutdated: the one at hand is as new.
            RaftFault: ``index`` is past the last entry.
        """
        if index <= self._snapshot.index:
            raise SnapshotOutdated(index)
        if index > self.last_index():
            raise RaftFault(f"no snapshot at {index}: last is {self.last_index()}")
        self._snapshot = Snapshot(index, self.term(index), conf, data)
        return self._snapshot
