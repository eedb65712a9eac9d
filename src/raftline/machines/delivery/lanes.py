"""Lanes: which messages of a partition have a priority other than 0.

State
    One track of ranges per priority, and one of all of them together. Lane 0 is what no track
    holds, so a topic without priorities costs nothing.

Invariants
    N1  A message is in exactly one lane.
    N2  The ranges of a track are in order, not empty, and do not touch.
    N3  The track of all (``_listed``) is the union of the others.

Costs: 16 bytes a range, twice (its lane and the track of all, where neighbours of different
priority are one range). Adding is at the end only. Looking up is O(log ranges) and then O(1) for
each range returned, also for lane 0. Freezing copies one chunk a track.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise

import msgspec

from raftline.model.errors import NewerFormat
from raftline.model.intervals import Range
from raftline.model.limits import PRIORITY_MAX, PRIORITY_MIN
from raftline.model.numbers import pack_numbers, unpack_numbers

NORMAL = 0
CHUNK_ROWS = 1024
SNAPSHOT_FORMAT = 1


class LanesState(msgspec.Struct, array_like=True):
    """The canonical snapshot: per priority its starts and ends; priority 0 is the track of all."""

    format: int
    tracks: list[tuple[int, bytes, bytes]]


class Lanes:
    """The priorities of one partition's messages."""

    __slots__ = ("_listed", "_priorities", "_tracks")

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._tracks: dict[int, Track] = {}
        self._listed = Track()
        self._priorities: tuple[int, ...] = (NORMAL,)

    def add(self, start: int, end: int, priority: int) -> None:
        """Put the newest messages ``[start, end)`` into a lane."""
        assert PRIORITY_MIN <= priority <= PRIORITY_MAX, priority
        if priority == NORMAL or start >= end:
            return
        track = self._tracks.get(priority)
        if track is None:
            track = self._tracks[priority] = Track()
            self._rank()
        track.append(start, end)
        self._listed.append(start, end)

    def trim(self, log_start: int) -> None:
        """Forget messages below ``log_start``."""
        if not self._tracks:
            return
        self._listed.trim(log_start)
        for priority, track in list(self._tracks.items()):
            track.trim(log_start)
            if not track:
                del self._tracks[priority]
        self._rank()

    def lanes(self) -> tuple[int, ...]:
        """Return the priorities present, highest first; 0 is always one of them."""
        return self._priorities

    def lane_of(self, offset: int) -> int:
        """Return the priority of the message at ``offset``."""
        if offset in self._listed:
            for priority, track in self._tracks.items():
                if offset in track:
                    return priority
        return NORMAL

    def within(self, priority: int, start: int, end: int) -> Iterator[Range]:
        """Yield the parts of ``[start, end)`` that are in a lane, in order."""
        if priority == NORMAL:
            return self._listed.gaps(start, end)
        track = self._tracks.get(priority)
        return track.within(start, end) if track is not None else iter(())

    def end_of(self, priority: int) -> int | None:
        """Return the offset after the lane's last message; None for lane 0, which goes on."""
        track = self._tracks.get(priority)
        return track.end if track is not None else None

    def hold(self) -> "Lanes":
        """Return the lanes as they are now, for whoever asks in a helper thread."""
        held = Lanes()
        held._tracks = {priority: track.hold() for priority, track in self._tracks.items()}
        held._listed, held._priorities = self._listed.hold(), self._priorities
        return held

    def freeze(self) -> Callable[[], bytes]:
        """Hold the state as it is now; the callable joins its bytes."""
        if not self._tracks:
            return bytes
        held = [(NORMAL, self._listed.share())]
        held += [(priority, self._tracks[priority].share()) for priority in sorted(self._tracks)]

        def join() -> bytes:
            tracks = [(priority, *_join(chunks)) for priority, chunks in held]
            return msgspec.msgpack.encode(LanesState(SNAPSHOT_FORMAT, tracks))

        return join

    def restore(self, data: bytes) -> None:
        """Replace the state.

        Raises:
            NewerFormat: the snapshot is of a newer build.
        """
        self._clear()
        if not data:
            return
        state = _decoder.decode(data)
        if state.format > SNAPSHOT_FORMAT:
            raise NewerFormat("a snapshot of lanes", state.format, SNAPSHOT_FORMAT)
        for priority, starts, ends in state.tracks:
            track = Track(unpack_numbers(starts), unpack_numbers(ends))
            if priority == NORMAL:
                self._listed = track
            else:
                self._tracks[priority] = track
        self._rank()

    def check(self) -> None:
        """Raise if an invariant is broken."""
        self._listed.check()
        rows: list[Range] = []
        for priority, track in self._tracks.items():
            assert PRIORITY_MIN <= priority <= PRIORITY_MAX
            assert priority != NORMAL
            assert track
            track.check()
            rows += track
        rows.sort()
        assert all(one[1] <= other[0] for one, other in pairwise(rows))  # N1
        union = Track()
        for start, end in rows:
            union.append(start, end)
        assert list(union) == list(self._listed)  # N3
        assert self._priorities == tuple(sorted({NORMAL, *self._tracks}, reverse=True))

    def _rank(self) -> None:
        self._priorities = tuple(sorted([NORMAL, *self._tracks], reverse=True))


Chunk = tuple["array[int]", "array[int]"]  # starts, ends


class Track:
    """Ranges that are added at the end and forgotten at the front, in chunks of arrays.

    Only the last chunk ever changes; the others may be held by a frozen snapshot.
    """

    __slots__ = ("_chunks", "_firsts", "end")

    def __init__(
        self, starts: "array[int] | None" = None, ends: "array[int] | None" = None
    ) -> None:
        self._chunks: list[Chunk] = []
        self._firsts: list[int] = []  # of each chunk, the start of its first range
        self.end = 0
        if starts and ends:
            for at in range(0, len(starts), CHUNK_ROWS):
                self._chunks.append((starts[at : at + CHUNK_ROWS], ends[at : at + CHUNK_ROWS]))
            self._firsts = [chunk[0][0] for chunk in self._chunks]
            self.end = ends[-1]

    def append(self, start: int, end: int) -> None:
        """Add ``[start, end)``, which is above everything held."""
        assert self.end <= start < end, (self.end, start, end)
        if self._chunks and self.end == start:
            self._chunks[-1][1][-1] = end
        else:
            if not self._chunks or len(self._chunks[-1][0]) >= CHUNK_ROWS:
                self._chunks.append((array("q"), array("q")))
                self._firsts.append(start)
            starts, ends = self._chunks[-1]
            starts.append(start)
            ends.append(end)
        self.end = end

    def trim(self, below: int) -> None:
        """Forget what is below ``below``; the chunk that is cut is made anew, as it may be held."""
        first = max(0, bisect_right(self._firsts, below) - 1)
        del self._chunks[:first], self._firsts[:first]
        if not self._chunks or self._firsts[0] >= below:
            return
        starts, ends = self._chunks[0]
        low = bisect_right(ends, below)
        starts, ends = starts[low:], ends[low:]
        if not starts:
            del self._chunks[0], self._firsts[0]
            return
        starts[0] = max(starts[0], below)
        self._chunks[0], self._firsts[0] = (starts, ends), starts[0]

    def within(self, start: int, end: int) -> Iterator[Range]:
        """Yield the parts of ``[start, end)`` that are held, in order."""
        if start >= end or start >= self.end:
            return
        at = max(0, bisect_right(self._firsts, start) - 1)
        low: int | None = None
        while at < len(self._chunks):
            starts, ends = self._chunks[at]
            low = bisect_right(ends, start) if low is None else 0
            for row in range(low, len(starts)):
                if starts[row] >= end:
                    return
                yield max(start, starts[row]), min(end, ends[row])
            at += 1

    def gaps(self, start: int, end: int) -> Iterator[Range]:
        """Yield the parts of ``[start, end)`` that are not held, in order."""
        for held_start, held_end in self.within(start, end):
            if start < held_start:
                yield start, held_start
            start = held_end
        if start < end:
            yield start, end

    def share(self) -> list[Chunk]:
        """Return the chunks as they are now; only the last is copied."""
        if not self._chunks:
            return []
        starts, ends = self._chunks[-1]
        return [*self._chunks[:-1], (starts[:], ends[:])]

    def hold(self) -> "Track":
        """Return the track as it is now."""
        held = Track()
        held._chunks, held._firsts, held.end = self.share(), self._firsts[:], self.end
        return held

    def check(self) -> None:
        """Raise if an invariant is broken."""
        edges = [edge for row in self for edge in row]
        assert all(a < b for a, b in pairwise(edges)), edges[:10]  # N2
        assert self._firsts == [starts[0] for starts, _ in self._chunks]
        assert not edges or edges[-1] == self.end

    def __contains__(self, offset: int) -> bool:
        return next(self.within(offset, offset + 1), None) is not None

    def __iter__(self) -> Iterator[Range]:
        for starts, ends in self._chunks:
            yield from zip(starts, ends, strict=True)

    def __bool__(self) -> bool:
        return bool(self._chunks)


def _join(chunks: list[Chunk]) -> tuple[bytes, bytes]:
    return b"".join(pack_numbers(starts) for starts, _ in chunks), b"".join(
        pack_numbers(ends) for _, ends in chunks
    )


_decoder = msgspec.msgpack.Decoder(LanesState)
