"""Waiting messages by number: when each is due, and its priority.

State
    Chunks of ``CHUNK_ROWS`` numbers each, one array for due times (-1: does not wait) and one for
    priorities. Frozen chunks are shared: who changes one that was frozen since copies it first.

Invariants
    N1  A chunk without a waiting message is not kept, so equal tables have equal chunks.

Costs: 9 bytes a number, as long as one of its chunk waits; 0.2 us to look up or to change.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence

CHUNK_ROWS = 256

Row = tuple[int, int]  # due_ms, priority


_NONE = array("q", [-1]) * CHUNK_ROWS


class _Numbers:
    __slots__ = ("dues", "epoch", "first", "live", "priorities")

    def __init__(self, dues: "array[int]", priorities: "array[int]", epoch: int) -> None:
        self.dues = dues
        self.priorities = priorities
        self.epoch = epoch
        self.live = 0
        self.first = 0  # none waits below: numbers are never given again


class NumberTable:
    """Due time and priority of the waiting messages."""

    __slots__ = ("_chunks", "_epoch")

    def __init__(self) -> None:
        self._chunks: dict[int, _Numbers] = {}  # in order: numbers are given in order
        self._epoch = 0

    def get(self, number: int) -> Row | None:
        """Return (due_ms, priority) of a waiting message."""
        chunk = self._chunks.get(number // CHUNK_ROWS)
        if chunk is None or chunk.dues[number % CHUNK_ROWS] < 0:
            return None
        return chunk.dues[number % CHUNK_ROWS], chunk.priorities[number % CHUNK_ROWS]

    def put(self, number: int, due_ms: int, priority: int) -> None:
        """Let a number wait, or wait until another time."""
        chunk = self._own(number // CHUNK_ROWS)
        at = number % CHUNK_ROWS
        if chunk.dues[at] < 0:
            chunk.live += 1
        chunk.dues[at] = due_ms
        chunk.priorities[at] = priority

    def drop(self, numbers: Sequence[int]) -> None:
        """Forget numbers that wait."""
        for number in numbers:
            chunk = self._own(number // CHUNK_ROWS)
            at = number % CHUNK_ROWS
            assert chunk.dues[at] >= 0, number
            chunk.dues[at] = -1
            chunk.priorities[at] = 0
            chunk.live -= 1
            if not chunk.live:
                del self._chunks[number // CHUNK_ROWS]

    def lowest(self) -> int | None:
        """Return the lowest number that waits."""
        for row, chunk in self._chunks.items():
            while chunk.dues[chunk.first] < 0:
                chunk.first += 1
            return row * CHUNK_ROWS + chunk.first
        return None

    def freeze(self) -> "Callable[[], tuple[bytes, bytes, bytes]]":
        """Hold the table as it is; the callable joins it."""
        rows = array("q", self._chunks)
        chunks = tuple(self._chunks.values())
        self._epoch += 1

        def join() -> tuple[bytes, bytes, bytes]:
            return (
                rows.tobytes(),
                b"".join([chunk.dues.tobytes() for chunk in chunks]),
                b"".join([chunk.priorities.tobytes() for chunk in chunks]),
            )

        return join

    def restore(self, rows: bytes, dues: bytes, priorities: bytes) -> None:
        """Take over what was frozen elsewhere."""
        self._chunks = {}
        numbers = array("q")
        numbers.frombytes(rows)
        for at, row in enumerate(numbers):
            chunk = _Numbers(array("q"), array("b"), self._epoch)
            chunk.dues.frombytes(dues[at * CHUNK_ROWS * 8 : (at + 1) * CHUNK_ROWS * 8])
            chunk.priorities.frombytes(priorities[at * CHUNK_ROWS : (at + 1) * CHUNK_ROWS])
            chunk.live = CHUNK_ROWS - chunk.dues.count(-1)
            self._chunks[row] = chunk

    def check(self) -> None:
        """Raise if an invariant is broken."""
        assert list(self._chunks) == sorted(self._chunks)
        for chunk in self._chunks.values():
            assert 0 < chunk.live == CHUNK_ROWS - chunk.dues.count(-1)  # N1
            assert all(due < 0 for due in chunk.dues[: chunk.first])

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Go through (number, due_ms, priority) by number."""
        for row, chunk in self._chunks.items():
            for at, due_ms in enumerate(chunk.dues):
                if due_ms >= 0:
                    yield row * CHUNK_ROWS + at, due_ms, chunk.priorities[at]

    def _own(self, row: int) -> _Numbers:
        chunk = self._chunks.get(row)
        if chunk is None:
            chunk = self._chunks[row] = _Numbers(
                array("q", _NONE), array("b", bytes(CHUNK_ROWS)), self._epoch
            )
        elif chunk.epoch != self._epoch:
            copy = _Numbers(chunk.dues[:], chunk.priorities[:], self._epoch)
            copy.live, copy.first = chunk.live, chunk.first
            chunk = self._chunks[row] = copy
        return chunk
