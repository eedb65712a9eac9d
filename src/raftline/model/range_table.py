"""Offsets that something is known about: sorted half-open ranges with a row of integers each.

State
    Chunks of at most ``CHUNK_ROWS`` rows. A chunk is two arrays: where its ranges start, and
    their cells (end, then the columns) one row after the other.

Invariants
    T1  Ranges are in order, not empty, and do not overlap.
    T2  Ranges that touch have different rows: what is equal is one range. So equal contents are
        equal ranges, whatever came before.
    T3  No chunk is empty, or longer than ``CHUNK_ROWS``; ``_firsts`` has their first starts.

Costs: a lookup about 1 us, a change about 4 us, with a million ranges too; 8 bytes an integer.

``freeze`` shares the chunks with whoever writes them out: a chunk is copied when it is next
changed (its ``version`` is older than the table's), so the loop pays a few microseconds.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

from raftline.model.numbers import pack_numbers, unpack_numbers

CHUNK_ROWS = 512
_SMALL_ROWS = CHUNK_ROWS // 8  # a chunk that shrinks below looks for company
_HEAD = struct.Struct("<II")  # columns, rows

Row = tuple[int, ...]
Held = tuple[int, int, Row]  # start, end, row


class Chunk:
    """Up to ``CHUNK_ROWS`` rows."""

    __slots__ = ("cells", "starts", "version")

    def __init__(self, starts: "array[int]", cells: "array[int]", version: int) -> None:
        self.starts = starts
        self.cells = cells
        self.version = version


class RangeTable:
    """Sorted ranges that do not overlap, each with ``columns`` integers."""

    __slots__ = ("_chunks", "_firsts", "_rows", "_version", "_width")

    def __init__(self, columns: int) -> None:
        self._width = columns + 1
        self.clear()

    def clear(self) -> None:
        """Forget all ranges."""
        self._chunks: list[Chunk] = []
        self._firsts: list[int] = []
        self._rows = 0
        self._version = 0

    def put(self, start: int, end: int, row: Row) -> None:
        """Add ``[start, end)``, which must be free."""
        held = self.next_from(start)
        assert held is None or held[0] >= end, (start, end, held)
        self.replace(start, end, row)

    def replace(self, start: int, end: int, row: Row) -> None:
        """Let ``[start, end)`` have ``row``, whatever was there."""
        assert start < end, (start, end)
        new = array("q", row)
        assert len(new) == self._width - 1, row
        if not self._replace_one(start, end, new):
            self._splice(start, end, new)

    def extend(self, start: int, end: int) -> bool:
        """Let the range that ends at ``start`` reach to ``end``, in a table without columns.

        False: none ends there, or it would reach the next one. Nothing is changed then.
        """
        at = bisect_right(self._firsts, start) - 1
        if at < 0:
            return False
        chunk = self._chunks[at]
        starts = chunk.starts
        place = bisect_right(starts, start) - 1
        if chunk.cells[place] != start:
            return False
        if place + 1 < len(starts):
            after = starts[place + 1]
        else:
            after = self._firsts[at + 1] if at + 1 < len(self._firsts) else end + 1
        if after <= end:
            return False
        self._own(at).cells[place] = end
        return True

    def remove(self, start: int, end: int) -> None:
        """Let nothing be in ``[start, end)``."""
        if start < end and self._chunks and not self._remove_one(start, end):
            self._splice(start, end, None)

    def cut(self, start: int, end: int, head: Row) -> Held | None:
        """Drop ``[start, end)`` if it lies in one range whose row begins with ``head``.

        Return that range as it was; None: it does not, and nothing is changed.
        """
        at = bisect_right(self._firsts, start) - 1
        if at < 0:
            return None
        chunk, width = self._chunks[at], self._width
        place = bisect_right(chunk.starts, start) - 1
        cell = place * width
        held_start, held_end = chunk.starts[place], chunk.cells[cell]
        row = tuple(chunk.cells[cell + 1 : cell + width])
        if not start < end <= held_end or row[: len(head)] != head:
            return None
        if held_start == start and end < held_end:  # its front: the common case
            self._own(at).starts[place] = end
            if not place:
                self._firsts[at] = end
        else:
            self.remove(start, end)
        return held_start, held_end, row

    def find(self, offset: int) -> Held | None:
        """Return the range that ``offset`` is in."""
        at = bisect_right(self._firsts, offset) - 1
        if at < 0:
            return None
        chunk, width = self._chunks[at], self._width
        row = bisect_right(chunk.starts, offset) - 1
        place = row * width
        end = chunk.cells[place]
        if offset >= end:
            return None
        return chunk.starts[row], end, tuple(chunk.cells[place + 1 : place + width])

    def overlapping(self, start: int, end: int) -> Iterator[Held]:
        """Yield the ranges that overlap ``[start, end)``, whole. Change nothing meanwhile."""
        if start >= end or not self._chunks:
            return
        at, row = self._place(start)
        width = self._width
        for chunk in self._chunks[at : bisect_left(self._firsts, end)]:
            starts, cells = chunk.starts, chunk.cells
            for place in range(row, len(starts)):
                if starts[place] >= end:
                    return
                cell = place * width
                yield starts[place], cells[cell], tuple(cells[cell + 1 : cell + width])
            row = 0

    def within(self, start: int, end: int) -> Iterator[Held]:
        """Yield the parts of ``[start, end)`` that are held. Change nothing meanwhile."""
        for held_start, held_end, row in self.overlapping(start, end):
            yield max(start, held_start), min(end, held_end), row

    def gaps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of ``[start, end)`` that are free. Change nothing meanwhile."""
        for held_start, held_end, _ in self.within(start, end):
            if start < held_start:
                yield start, held_start
            start = held_end
        if start < end:
            yield start, end

    def overlaps(self, start: int, end: int) -> bool:
        """Say whether anything of ``[start, end)`` is held."""
        return next(self.overlapping(start, end), None) is not None

    def count(self, start: int, end: int) -> int:
        """Return how many ranges overlap ``[start, end)``; looks at chunks, not at ranges."""
        if start >= end or not self._chunks:
            return 0
        at, low = self._place(start)
        to = max(at, bisect_left(self._firsts, end) - 1)
        between = sum(len(chunk.starts) for chunk in self._chunks[at:to])
        return max(0, between + bisect_left(self._chunks[to].starts, end) - low)

    def first(self) -> Held | None:
        """Return the first range."""
        return self.find(self._firsts[0]) if self._firsts else None

    def last(self) -> Held | None:
        """Return the last range."""
        return self.find(self._chunks[-1].starts[-1]) if self._firsts else None

    def next_from(self, offset: int) -> Held | None:
        """Return the first range that ends after ``offset``, whole."""
        if not self._chunks:
            return None
        at, row = self._place(offset)
        chunk = self._chunks[at]
        if row == len(chunk.starts):
            if at + 1 == len(self._chunks):
                return None
            chunk, row = self._chunks[at + 1], 0
        place = row * self._width
        cells = chunk.cells
        return chunk.starts[row], cells[place], tuple(cells[place + 1 : place + self._width])

    def column(self, number: int) -> Iterator["array[int]"]:
        """Yield column ``number`` (-1: the ends, -2: the starts) in pieces: for a quick scan."""
        for chunk in self._chunks:
            yield chunk.starts if number == -2 else chunk.cells[number + 1 :: self._width]

    @property
    def bytes(self) -> int:
        """Return about how much memory the ranges take."""
        return self._rows * (self._width + 1) * 8 + len(self._chunks) * 250

    def freeze(self) -> "Callable[[], list[bytes]]":
        """Return what writes the table as it is now, in pieces. It may be called in a lane."""
        chunks = self._chunks.copy()
        head = _HEAD.pack(self._width - 1, self._rows)
        self._version += 1

        def pieces() -> "list[bytes]":
            starts = [pack_numbers(chunk.starts) for chunk in chunks]
            return [head, *starts, *[pack_numbers(chunk.cells) for chunk in chunks]]

        return pieces

    def restore(self, data: "bytes | memoryview") -> None:
        """Replace all ranges by what the joined pieces of ``freeze`` say."""
        columns, rows = _HEAD.unpack_from(data)
        assert columns == self._width - 1, columns
        assert len(data) == self.frozen_bytes(columns, rows), len(data)
        starts = unpack_numbers(memoryview(data)[_HEAD.size : _HEAD.size + rows * 8])
        cells = unpack_numbers(memoryview(data)[_HEAD.size + rows * 8 :])
        self.clear()
        for at in range(0, rows, CHUNK_ROWS):
            own = cells[at * self._width : (at + CHUNK_ROWS) * self._width]
            self._chunks.append(Chunk(starts[at : at + CHUNK_ROWS], own, 0))
            self._firsts.append(starts[at])
        self._rows = rows

    @staticmethod
    def frozen_bytes(columns: int, rows: int) -> int:
        """Return how long a frozen table is."""
        return _HEAD.size + rows * (columns + 2) * 8

    def check(self) -> None:
        """Raise if an invariant is broken."""
        last_end, last_row = -(1 << 63), None
        assert self._rows == sum(len(chunk.starts) for chunk in self._chunks)
        assert self._firsts == [chunk.starts[0] for chunk in self._chunks]  # T3
        for chunk in self._chunks:
            assert 0 < len(chunk.starts) <= CHUNK_ROWS  # T3
            assert len(chunk.cells) == len(chunk.starts) * self._width
        for start, end, row in self:
            assert last_end <= start < end, (last_end, start, end)  # T1
            assert start != last_end or row != last_row, (start, row)  # T2
            last_end, last_row = end, row

    def __iter__(self) -> Iterator[Held]:
        return self.overlapping(-(1 << 63), (1 << 63) - 1)

    def __len__(self) -> int:
        """Return the number of ranges."""
        return self._rows

    def __contains__(self, offset: int) -> bool:
        return self.find(offset) is not None

    def __repr__(self) -> str:
        return f"RangeTable({list(self)})"

    def _place(self, offset: int) -> tuple[int, int]:
        """Return chunk and row of the first range that ends after ``offset``; row may be past."""
        at = bisect_right(self._firsts, offset) - 1
        if at < 0:
            return 0, 0
        chunk = self._chunks[at]
        row = bisect_right(chunk.starts, offset) - 1
        return at, row + (chunk.cells[row * self._width] <= offset)

    def _replace_one(self, start: int, end: int, row: "array[int]") -> bool:
        """Change one whole range, or let the one before grow, inside a chunk: the common cases."""
        at = bisect_right(self._firsts, start) - 1
        if at < 0:
            return False
        chunk, width = self._chunks[at], self._width
        starts, cells = chunk.starts, chunk.cells
        place = bisect_right(starts, start) - 1
        cell = place * width
        if starts[place] != start:
            return cells[cell] == start and self._grow(at, place, end, row)
        if cells[cell] != end or not 0 < place < len(starts) - 1:
            return False
        if cells[cell - width] == start and cells[cell - width + 1 : cell] == row:
            return False
        if starts[place + 1] == end and cells[cell + width + 1 : cell + 2 * width] == row:
            return False
        self._own(at).cells[cell + 1 : cell + width] = row
        return True

    def _grow(self, at: int, place: int, end: int, row: "array[int]") -> bool:
        """Let a range with the same row reach up to ``end``, or to the end of the next. T2."""
        chunk, cell = self._chunks[at], place * self._width
        width = self._width
        if chunk.cells[cell + 1 : cell + width] != row:
            return False
        if place + 1 < len(chunk.starts):
            after = chunk.starts[place + 1]
            if after == end and len(chunk.starts) > _SMALL_ROWS:
                if chunk.cells[cell + width + 1 : cell + 2 * width] == row:  # up to the next: one
                    chunk = self._own(at)
                    del chunk.starts[place + 1], chunk.cells[cell : cell + width]
                    self._rows -= 1
                    return True
                self._own(at).cells[cell] = end
                return True
        else:
            after = self._firsts[at + 1] if at + 1 < len(self._firsts) else end + 1
        if after <= end:
            return False
        self._own(at).cells[cell] = end
        return True

    def _remove_one(self, start: int, end: int) -> bool:
        """Drop one whole range, or the front of one, inside a chunk: the common cases."""
        at = bisect_right(self._firsts, start) - 1
        if at < 0:
            return False
        chunk, width = self._chunks[at], self._width
        place = bisect_right(chunk.starts, start) - 1
        cell = place * width
        held_end = chunk.cells[cell]
        if chunk.starts[place] != start or held_end < end:
            return False
        if held_end > end:
            self._own(at).starts[place] = end
            if not place:
                self._firsts[at] = end
            return True
        if not place or len(chunk.starts) <= _SMALL_ROWS:
            return False
        chunk = self._own(at)
        del chunk.starts[place], chunk.cells[cell : cell + width]
        self._rows -= 1
        return True

    def _splice(self, start: int, end: int, row: "array[int] | None") -> None:
        """Let ``[start, end)`` have ``row``; cut what sticks out, join what is equal."""
        if not self._chunks:
            assert row is not None
            self._chunks.append(Chunk(array("q", [start]), array("q", [end]) + row, self._version))
            self._firsts.append(start)
            self._rows = 1
            return
        at, low = self._place(start)
        to = max(at, bisect_left(self._firsts, end) - 1)
        high = bisect_left(self._chunks[to].starts, end)
        new: list[tuple[int, int, array[int]]] = []
        after: tuple[int, int, array[int]] | None = None
        if (to, high) != (at, low):
            first, last = self._at(at, low), self._at(to, high - 1)
            if first[0] < start:
                if first[2] == row:
                    start = first[0]
                else:
                    new.append((first[0], start, first[2]))
            if last[1] > end:
                if last[2] == row:
                    end = last[1]
                else:
                    after = (end, last[1], last[2])
        if row is not None:
            at, low, start = self._join_left(at, low, start, row)
            to, high, end = self._join_right(to, high, end, row)
            new.append((start, end, row))
        if after:
            new.append(after)
        self._write(at, low, to, high, new)

    def _at(self, at: int, row: int) -> tuple[int, int, "array[int]"]:
        chunk, width = self._chunks[at], self._width
        if row == len(chunk.starts):
            chunk, row = self._chunks[at + 1], 0
        place = row * width
        return chunk.starts[row], chunk.cells[place], chunk.cells[place + 1 : place + width]

    def _join_left(self, at: int, low: int, start: int, row: "array[int]") -> tuple[int, int, int]:
        """Take in the range that ends at ``start`` if it has the same row. T2."""
        if low == 0 and at == 0:
            return at, low, start
        before = (at, low - 1) if low else (at - 1, len(self._chunks[at - 1].starts) - 1)
        held_start, held_end, held_row = self._at(*before)
        if held_end == start and held_row == row:
            return *before, held_start
        return at, low, start

    def _join_right(self, to: int, high: int, end: int, row: "array[int]") -> tuple[int, int, int]:
        """Take in the range that starts at ``end`` if it has the same row. T2."""
        after = (to, high)
        if high == len(self._chunks[to].starts):
            after = (to + 1, 0)
            if to + 1 == len(self._chunks):
                return to, high, end
        held_start, held_end, held_row = self._at(*after)
        if held_start == end and held_row == row:
            return after[0], after[1] + 1, held_end
        return to, high, end

    def _write(
        self, at: int, low: int, to: int, high: int, new: list[tuple[int, int, "array[int]"]]
    ) -> None:
        """Put ``new`` in the place of the rows from (at, low) to (to, high)."""
        width = self._width
        starts, cells = array("q"), array("q")
        for start, end, row in new:
            starts.append(start)
            cells.append(end)
            cells += row
        if at != to:
            rest = self._own(to)
            self._rows -= high + sum(len(c.starts) for c in self._chunks[at + 1 : to])
            del rest.starts[:high], rest.cells[: high * width]
            gone = to if rest.starts else to + 1
            if rest.starts:
                self._firsts[to] = rest.starts[0]
            del self._chunks[at + 1 : gone], self._firsts[at + 1 : gone]
            high = len(self._chunks[at].starts)
        chunk = self._own(at)
        self._rows += len(starts) - (high - low)
        chunk.starts[low:high] = starts
        chunk.cells[low * width : high * width] = cells
        self._settle(at, len(starts))

    def _own(self, at: int) -> Chunk:
        """Return chunk ``at`` to change: a copy if it may be shared with a frozen table."""
        chunk = self._chunks[at]
        if chunk.version != self._version:
            chunk = Chunk(chunk.starts[:], chunk.cells[:], self._version)
            self._chunks[at] = chunk
        return chunk

    def _settle(self, at: int, added: int) -> None:
        """Keep chunk ``at`` within bounds after a change. T3."""
        chunk = self._chunks[at]
        rows = len(chunk.starts)
        if rows == 0:
            del self._chunks[at], self._firsts[at]
            return
        self._firsts[at] = chunk.starts[0]
        if rows > CHUNK_ROWS:
            grows_at_end = at + 1 == len(self._chunks)  # then leave full chunks behind
            self._split(at, CHUNK_ROWS if grows_at_end else rows // 2)
        elif rows < _SMALL_ROWS and added < 2 and at + 1 < len(self._chunks):
            following = self._chunks[at + 1]
            if rows + len(following.starts) <= CHUNK_ROWS // 2:
                chunk.starts += following.starts
                chunk.cells += following.cells
                del self._chunks[at + 1], self._firsts[at + 1]

    def _split(self, at: int, row: int) -> None:
        chunk, width = self._chunks[at], self._width
        right = Chunk(chunk.starts[row:], chunk.cells[row * width :], self._version)
        del chunk.starts[row:], chunk.cells[row * width :]
        self._chunks.insert(at + 1, right)
        self._firsts.insert(at + 1, right.starts[0])
