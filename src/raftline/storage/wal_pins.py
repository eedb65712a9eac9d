"""Which WAL file is still needed, and by whom.

State
    Per shard: runs of live entries ``[start, end)`` with the file each is in, and the files of its
    latest hard state and damage mark. Per file: how many of these lie in it, its pins.

Invariants
    K1  Only what is written and synced moves a pin: a file is not free before that which makes
        its frames void is durable.
    K2  The runs of a shard are ascending and do not overlap.
"""

from collections.abc import Iterator

import msgspec


class Run(msgspec.Struct, gc=False):
    """Live entries ``[start, end)`` of one shard in one file."""

    generation: int
    start: int
    end: int
    bytes: int


class ShardPins:
    """What one shard has in the WAL."""

    __slots__ = ("checkpoint", "damage", "hard_state", "runs")

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.checkpoint = 0
        self.hard_state = 0  # generation of the file, 0: none
        self.damage = 0

    def bytes_in(self, generation: int) -> int:
        """Return how many live bytes of entries the file holds, roughly."""
        return sum(run.bytes for run in self.runs if run.generation == generation)

    def is_in(self, generation: int) -> bool:
        """Say whether anything live is in the file."""
        return (
            self.hard_state == generation
            or self.damage == generation
            or any(run.generation == generation for run in self.runs)
        )


class Pins:
    """The pins of all shards."""

    __slots__ = ("_counts", "_shards")

    def __init__(self) -> None:
        self._shards: dict[int, ShardPins] = {}
        self._counts: dict[int, int] = {}

    def count(self, generation: int) -> int:
        """Return how many live things the file holds; 0 means free."""
        return self._counts.get(generation, 0)

    def of_file(self, generation: int) -> Iterator[tuple[int, ShardPins]]:
        """Yield the shards that pin the file."""
        for shard, pins in self._shards.items():
            if pins.is_in(generation):
                yield shard, pins

    def entries(self, shard: int, generation: int, start: int, end: int, size: int) -> None:
        """Entries ``[start, end)`` were appended; later ones are void."""
        pins = self._of(shard)
        self._cut(pins, start)
        start = max(start, pins.checkpoint + 1)
        if start >= end:
            return
        runs = pins.runs
        if runs and runs[-1].generation == generation and runs[-1].end == start:
            runs[-1].end = end
            runs[-1].bytes += size
        else:
            self._add(pins, len(runs), Run(generation, start, end, size))

    def copied(self, shard: int, generation: int, start: int, end: int, size: int) -> None:
        """Entries ``[start, end)`` were written again: they moved to this file."""
        pins = self._of(shard)
        start = max(start, pins.checkpoint + 1)
        if start >= end:
            return
        kept: list[Run] = []
        for run in pins.runs:
            self._move(run.generation, -1)
            for low, high in ((run.start, min(run.end, start)), (max(run.start, end), run.end)):
                if low < high:
                    part = run.bytes * (high - low) // (run.end - run.start)
                    kept.append(Run(run.generation, low, high, part))
        kept.append(Run(generation, start, end, size))
        kept.sort(key=lambda run: run.start)
        pins.runs = kept
        for run in kept:
            self._move(run.generation, 1)

    def hard_state(self, shard: int, generation: int) -> None:
        """The latest hard state is in this file."""
        pins = self._of(shard)
        self._move(pins.hard_state, -1)
        self._move(generation, 1)
        pins.hard_state = generation

    def damage(self, shard: int, generation: int) -> None:
        """The note that the shard is damaged is in this file."""
        pins = self._of(shard)
        self._move(pins.damage, -1)
        self._move(generation, 1)
        pins.damage = generation

    def reset(self, shard: int, index: int) -> None:
        """The log starts after ``index``; all earlier entries are void."""
        pins = self._of(shard)
        self._cut(pins, 0)
        pins.checkpoint = index

    def checkpointed(self, shard: int, index: int) -> None:
        """Entries up to ``index`` are safe elsewhere."""
        pins = self._of(shard)
        if index <= pins.checkpoint:
            return
        pins.checkpoint = index
        runs = pins.runs
        while runs and runs[0].end <= index + 1:
            self._move(runs.pop(0).generation, -1)
        if runs and runs[0].start <= index:
            run = runs[0]
            run.bytes = run.bytes * (run.end - index - 1) // (run.end - run.start)
            run.start = index + 1

    def forget(self, shard: int) -> None:
        """The shard is gone."""
        pins = self._shards.pop(shard, None)
        if pins is None:
            return
        self._cut(pins, 0)
        self._move(pins.hard_state, -1)
        self._move(pins.damage, -1)

    def drop_file(self, generation: int) -> None:
        """The file is let go."""
        assert not self.count(generation), generation
        self._counts.pop(generation, None)

    def check(self) -> None:
        """Raise if an invariant is broken. Called by tests and simulation."""
        counts: dict[int, int] = {}
        for pins in self._shards.values():
            ends = [pins.checkpoint + 1]
            for run in pins.runs:
                assert ends[-1] <= run.start < run.end, (ends, run)  # K2
                ends.append(run.end)
            for generation in (pins.hard_state, pins.damage, *(r.generation for r in pins.runs)):
                if generation:
                    counts[generation] = counts.get(generation, 0) + 1
        assert counts == {g: n for g, n in self._counts.items() if n}, (counts, self._counts)

    def _of(self, shard: int) -> ShardPins:
        pins = self._shards.get(shard)
        if pins is None:
            pins = self._shards[shard] = ShardPins()
        return pins

    def _add(self, pins: ShardPins, at: int, run: Run) -> None:
        pins.runs.insert(at, run)
        self._move(run.generation, 1)

    def _cut(self, pins: ShardPins, start: int) -> None:
        """Drop live entries from ``start`` on."""
        runs = pins.runs
        while runs and runs[-1].end > start:
            run = runs[-1]
            if run.start < start:
                run.bytes = run.bytes * (start - run.start) // (run.end - run.start)
                run.end = start
                return
            self._move(runs.pop().generation, -1)

    def _move(self, generation: int, by: int) -> None:
        if generation:
            self._counts[generation] = self._counts.get(generation, 0) + by
