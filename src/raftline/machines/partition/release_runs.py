"""Where released messages went: from the number a message waited under to its offset.

State
    Runs (offset, number, count) in the order of release: the messages ``number + i`` are at
    ``offset + i``. Messages that were scheduled and released in the same order share a run.

Invariants
    R1  Offsets rise and runs do not overlap; neighbours that continue each other are one run.
    R2  A run goes with its offsets when the log is trimmed. At most ``RELEASE_RUNS_MAX`` are kept;
        the oldest are forgotten first, and with them only the way from number to offset.

Costs: 24 bytes a run. A look-up goes through the runs: under 10 ms at their limit, and rare.
"""

from array import array
from collections.abc import Callable, Sequence
from itertools import pairwise

from raftline.model.limits import RELEASE_RUNS_MAX

Columns = tuple[bytes, bytes, bytes]


class ReleaseRuns:
    """Numbers and offsets of released messages."""

    __slots__ = ("_counts", "_numbers", "_offsets", "_runs_max")

    def __init__(self, runs_max: int = RELEASE_RUNS_MAX) -> None:
        self._offsets = array("q")
        self._numbers = array("q")
        self._counts = array("q")
        self._runs_max = runs_max

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, offset: int, numbers: Sequence[int]) -> None:
        """Note that ``numbers`` are at ``offset`` and on, one each. R1."""
        last = len(self._offsets) - 1
        follows = -1
        if last >= 0 and self._offsets[last] + self._counts[last] == offset:
            follows = self._numbers[last] + self._counts[last]
        for number in numbers:
            if number == follows:
                self._counts[-1] += 1
            else:
                self._offsets.append(offset)
                self._numbers.append(number)
                self._counts.append(1)
            follows = number + 1
            offset += 1
        surplus = len(self._offsets) - self._runs_max
        if surplus > 0:
            self._drop(surplus)  # R2

    def find(self, number: int) -> int | None:
        """Return the offset of a released message; None if it was not, or is trimmed."""
        for at in range(len(self._offsets) - 1, -1, -1):
            delta = number - self._numbers[at]
            if 0 <= delta < self._counts[at]:
                return self._offsets[at] + delta
        return None

    def trim(self, log_start: int) -> None:
        """Forget what lies below ``log_start``. R2."""
        gone = 0
        while gone < len(self._offsets) and self._offsets[gone] + self._counts[gone] <= log_start:
            gone += 1
        if gone:
            self._drop(gone)
        if self._offsets and self._offsets[0] < log_start:
            delta = log_start - self._offsets[0]
            self._offsets[0] += delta
            self._numbers[0] += delta
            self._counts[0] -= delta

    def freeze(self) -> Callable[[], Columns]:
        """Hold the runs as they are; the callable gives their bytes."""
        held = self._offsets[:], self._numbers[:], self._counts[:]
        return lambda: (held[0].tobytes(), held[1].tobytes(), held[2].tobytes())

    def restore(self, columns: Columns) -> None:
        """Take over what was frozen elsewhere."""
        self._offsets, self._numbers, self._counts = array("q"), array("q"), array("q")
        self._offsets.frombytes(columns[0])
        self._numbers.frombytes(columns[1])
        self._counts.frombytes(columns[2])

    def check(self) -> None:
        """Raise if an invariant is broken."""
        assert len(self._offsets) == len(self._numbers) == len(self._counts) <= self._runs_max
        rows = list(zip(self._offsets, self._numbers, self._counts, strict=True))
        for (offset, number, count), following in pairwise(rows):
            assert offset + count <= following[0]  # R1
            assert (offset + count, number + count) != following[:2]  # R1
        assert all(count > 0 for count in self._counts)

    def _drop(self, count: int) -> None:
        del self._offsets[:count], self._numbers[:count], self._counts[:count]
