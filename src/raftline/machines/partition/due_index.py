"""The waiting messages of one priority in the order in which they are due.

State
    Pairs (due_ms, number) in order, in chunks of two arrays each. Frozen chunks are shared: who
    changes one that was frozen since copies it first.

Invariants
    D1  Pairs rise strictly; no chunk is empty; ``firsts`` holds the first pair of each chunk.

Costs: 16 bytes a message; adding and removing O(log n + chunk), taking from the front O(taken).
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise

CHUNK_ROWS = 1024

Pair = tuple[int, int]  # due_ms, number


class _Chunk:
    __slots__ = ("dues", "epoch", "numbers")

    def __init__(self, dues: "array[int]", numbers: "array[int]", epoch: int) -> None:
        self.dues = dues
        self.numbers = numbers
        self.epoch = epoch


class DueIndex:
    """Pairs of due time and number, in order."""

    __slots__ = ("_chunks", "_count", "_epoch", "_firsts")

    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []
        self._firsts: list[Pair] = []
        self._count = 0
        self._epoch = 0

    def __len__(self) -> int:
        return self._count

    def first(self) -> Pair | None:
        """Return the pair that is due first."""
        return self._firsts[0] if self._firsts else None

    def add(self, due_ms: int, number: int) -> None:
        """Add a pair that is not there."""
        self._count += 1
        row = bisect_right(self._firsts, (due_ms, number)) - 1
        if row < 0:
            if not self._chunks:
                self._insert(0, array("q", [due_ms]), array("q", [number]))
                return
            row = 0
        chunk = self._own(row)
        at = _place(chunk, due_ms, number)
        chunk.dues.insert(at, due_ms)
        chunk.numbers.insert(at, number)
        if not at:
            self._firsts[row] = (due_ms, number)
        if len(chunk.dues) > CHUNK_ROWS:
            self._split(row, chunk, CHUNK_ROWS if at == CHUNK_ROWS else CHUNK_ROWS // 2)

    def remove(self, due_ms: int, number: int) -> None:
        """Remove a pair that is there."""
        row = bisect_right(self._firsts, (due_ms, number)) - 1
        chunk = self._own(row)
        at = _place(chunk, due_ms, number)
        assert (chunk.dues[at], chunk.numbers[at]) == (due_ms, number)
        self._count -= 1
        del chunk.dues[at], chunk.numbers[at]
        if not chunk.dues:
            del self._chunks[row], self._firsts[row]
        elif not at:
            self._firsts[row] = (chunk.dues[0], chunk.numbers[0])

    def head(self, start: int, count: int) -> "tuple[array[int], array[int]]":
        """Return due times and numbers of the pairs ``[start, start + count)`` in order."""
        dues, numbers = array("q"), array("q")
        for chunk in self._chunks:
            size = len(chunk.dues)
            if start >= size:
                start -= size
                continue
            end = start + count - len(dues)
            dues += chunk.dues[start:end]
            numbers += chunk.numbers[start:end]
            start = 0
            if len(dues) >= count:
                break
        return dues, numbers

    def take(self, count: int) -> None:
        """Remove the first ``count`` pairs."""
        assert count <= self._count
        self._count -= count
        whole = 0
        while count and len(self._chunks[whole].dues) <= count:
            count -= len(self._chunks[whole].dues)
            whole += 1
        del self._chunks[:whole], self._firsts[:whole]
        if count:
            chunk = self._own(0)
            del chunk.dues[:count], chunk.numbers[:count]
            self._firsts[0] = (chunk.dues[0], chunk.numbers[0])

    def after(self, pair: Pair) -> Iterator[Pair]:
        """Go through the pairs behind ``pair``, in order. Nothing may change meanwhile."""
        row = max(0, bisect_right(self._firsts, pair) - 1)
        for chunk in self._chunks[row:]:
            at = _place(chunk, pair[0], pair[1] + 1)
            yield from zip(chunk.dues[at:], chunk.numbers[at:], strict=True)

    def freeze(self) -> "Callable[[], tuple[bytes, bytes]]":
        """Hold the pairs as they are; the callable joins them."""
        chunks = tuple(self._chunks)
        self._epoch += 1

        def join() -> tuple[bytes, bytes]:
            return (
                b"".join([chunk.dues.tobytes() for chunk in chunks]),
                b"".join([chunk.numbers.tobytes() for chunk in chunks]),
            )

        return join

    def restore(self, dues: bytes, numbers: bytes) -> None:
        """Take over what was frozen elsewhere."""
        self._chunks, self._firsts = [], []
        step = CHUNK_ROWS * 8
        for start in range(0, len(dues), step):
            some, others = array("q"), array("q")
            some.frombytes(dues[start : start + step])
            others.frombytes(numbers[start : start + step])
            self._insert(len(self._chunks), some, others)
        self._count = len(dues) // 8

    def check(self) -> None:
        """Raise if an invariant is broken."""
        pairs = [pair for c in self._chunks for pair in zip(c.dues, c.numbers, strict=True)]
        assert all(a < b for a, b in pairwise(pairs))  # D1
        assert len(pairs) == self._count
        assert self._firsts == [(c.dues[0], c.numbers[0]) for c in self._chunks]

    def _insert(self, row: int, dues: "array[int]", numbers: "array[int]") -> None:
        self._chunks.insert(row, _Chunk(dues, numbers, self._epoch))
        self._firsts.insert(row, (dues[0], numbers[0]))

    def _split(self, row: int, chunk: _Chunk, at: int) -> None:
        self._insert(row + 1, chunk.dues[at:], chunk.numbers[at:])
        del chunk.dues[at:], chunk.numbers[at:]

    def _own(self, row: int) -> _Chunk:
        """Return a chunk that may be changed."""
        chunk = self._chunks[row]
        if chunk.epoch != self._epoch:
            chunk = self._chunks[row] = _Chunk(chunk.dues[:], chunk.numbers[:], self._epoch)
        return chunk


def _place(chunk: _Chunk, due_ms: int, number: int) -> int:
    """Return where a pair is in its chunk, or belongs."""
    low = bisect_left(chunk.dues, due_ms)
    high = bisect_right(chunk.dues, due_ms, low)
    return bisect_left(chunk.numbers, number, low, high)
