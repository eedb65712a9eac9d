"""The WAL against a naive twin: random histories of appends, votes, checkpoints, crashes, damage.

The twin remembers what every shard looked like after each group. After a crash the WAL must give
back one of those states, not older than the last synced one; after a flipped bit it may instead
report the shard damaged, and must then go on reporting it.
"""

import copy
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftline.raft.rpc import Entry
from raftline.storage.wal import Group, Recovered, RecoveredShard, Wal, WalIdentity, WalSettings
from raftline.testing.sim_disk import PowerLoss, SimDisk

SHARDS = 4
ME = WalIdentity("", "dir")
SMALL = WalSettings(file_bytes=6144, bytes_max=1 << 20)
STEPS = [
    *["append"] * 10,
    *["vote"] * 4,
    *["flush"] * 12,
    *["checkpoint"] * 5,
    *["release"] * 4,
    *["rewrite"] * 3,
    *["write"] * 4,
    *["overwrite", "mark", "spare", "reset", "remove", "crash", "reopen"],
    *["power", "sync_fails", "flip"],
]


class Twin:
    """One shard as it should be."""

    def __init__(self) -> None:
        self.log: dict[int, tuple[int, bytes]] = {}
        self.base = 0
        self.hard = (0, 0, 0)

    @property
    def last(self) -> int:
        return max(self.log, default=self.base)

    def above(self, index: int, term: int) -> list[tuple[int, int, bytes]]:
        if index in self.log and self.log[index][0] != term:
            return []
        return [(i, *self.log[i]) for i in sorted(self.log) if i > index]


class World:
    """A WAL on a simulated disk and what it should hold."""

    def __init__(self, seed: int) -> None:
        self.disk = SimDisk(random.Random(seed))
        self.shards = [Twin() for _ in range(SHARDS)]  # as added, maybe not written
        self.states = [copy.deepcopy(self.shards)]  # after each group
        self.synced = 0
        self.checkpoints: dict[int, tuple[int, int]] = {}
        self.ever: set[tuple[int, int, int, bytes]] = set()
        self.damaged: set[int] = set()
        self.number = 0
        self.late: list[Group] = []  # written, not synced
        self.wal, _ = self.open_wal()
        self.checkpoints = dict.fromkeys(range(SHARDS), (0, 0))

    # ---- steps

    def append(self, number: int, size: int) -> None:
        self._append(number, self.shards[number].last + 1, size)

    def overwrite(self, number: int, size: int) -> None:
        twin = self.shards[number]
        low = max(self.checkpoints[number][0], twin.base) + 1
        start = low + size % max(1, twin.last + 1 - low)
        term, vote, commit = twin.hard
        twin.hard = (max(term, 1) + 1, vote, commit)  # one term never has two entries of one index
        self.wal.add_hard_state(number, *twin.hard)
        self._append(number, start, size)

    def _append(self, number: int, start: int, size: int) -> None:
        twin = self.shards[number]
        term = max(twin.hard[0], 1)
        for index in range(start, twin.last + 1):
            del twin.log[index]
        batch: list[Entry] = []
        for index in range(start, start + 1 + size % 3):
            self.number += 1
            data = b"%d/%d/%d " % (number, index, self.number) * (size * size // 40)
            twin.log[index] = (term, data)
            self.ever.add((number, index, term, data))
            batch.append(Entry(index, term, 0, data))
        self.wal.add_entries(number, batch)

    def vote(self, number: int, size: int) -> None:
        twin = self.shards[number]
        twin.hard = (twin.hard[0] + 1, size, twin.hard[2] + 1)
        self.wal.add_hard_state(number, *twin.hard)

    def flush(self, number: int, size: int) -> None:
        group = self.wal.take_group()
        if group is not None:
            self._write(group, sync=True)

    def write(self, number: int, size: int) -> None:
        group = self.wal.take_group()
        if group is not None:
            self._write(group, sync=False)

    def mark(self, number: int, size: int) -> None:
        group = self.wal.mark_group()
        if group is not None:
            self._write(group, sync=True)

    def _write(self, group: Group, *, sync: bool) -> None:
        self.states.append(copy.deepcopy(self.shards))
        self.wal.write_group(group, sync=sync)
        self.late.append(group)
        if sync:
            self.synced = len(self.states) - 1
            for written in self.late:
                self.wal.group_written(written)
            self.late.clear()

    def checkpoint(self, number: int, size: int) -> None:
        twin = self.states[self.synced][number]
        index = max(twin.last - size % 4, self.checkpoints[number][0])
        if index in twin.log:
            self.checkpoints[number] = (index, twin.log[index][0])
            self.wal.checkpointed(number, index)

    def reset(self, number: int, size: int) -> None:
        twin = self.shards[number]
        term, vote, commit = twin.hard
        index = max(self.checkpoints[number][0] + 1, twin.last - 2 + size % 5)
        if index < 1:
            return
        term = max(term, 1) + 1
        twin.hard = (term, vote, commit)
        twin.log, twin.base = {}, index
        self.checkpoints[number] = (index, term)
        self.wal.add_hard_state(number, *twin.hard)
        self.wal.add_reset(number, index, term)
        self.rewrite(0, size)
        if size % 2:
            self.flush(0, 0)

    def remove(self, number: int, size: int) -> None:
        self.shards[number] = Twin()
        self.wal.add_removed(number)
        self.rewrite(0, size)
        self.flush(0, 0)
        self.checkpoints[number] = (0, 0)
        self.damaged.discard(number)

    def release(self, number: int, size: int) -> None:
        job = self.wal.release_job()
        if job is not None:
            job()

    def spare(self, number: int, size: int) -> None:
        self.wal.prepare_spare()

    def rewrite(self, number: int, size: int) -> None:
        def entries_of(shard: int, start: int, end: int) -> list[Entry]:
            log = self.shards[shard].log
            return [Entry(i, log[i][0], 0, log[i][1]) for i in range(start, end) if i in log]

        stuck = range(number, SHARDS) if size % 2 else ()
        self.wal.rewrite_pins(size * 20, entries_of, stuck)

    def crash(self, number: int, size: int) -> None:
        self.disk.crash()
        self.recovered()

    def reopen(self, number: int, size: int) -> None:
        self.flush(0, 0)
        self.recovered()

    def power(self, number: int, size: int) -> None:
        self.disk.power_off_after(size % 20)

    def sync_fails(self, number: int, size: int) -> None:
        self.disk.fail_fdatasync("wal/")

    def flip(self, number: int, size: int) -> None:
        """Turn one bit at rest, after all is synced and known to be."""
        self.flush(0, 0)
        self.mark(0, 0)
        names = [n for n in self.disk.listdir("wal") if n.endswith(".wal")]
        chance = random.Random(size * SHARDS + number)
        path = f"wal/{chance.choice(names)}"
        self.disk.flip_bit(path, chance.randrange(self.disk.open(path).size()), size % 8)
        self.recovered(flipped=True)

    # ---- recovery

    def open_wal(self) -> tuple[Wal, Recovered]:
        return Wal.open(self.disk, "wal", ME, SMALL, self.checkpoints)

    def recovered(self, *, flipped: bool = False) -> None:
        """Open again and compare."""
        self.late = []
        recovered = None
        while recovered is None:
            try:
                self.wal, recovered = self.open_wal()
            except (PowerLoss, OSError):
                self.disk.crash()
        self.wal.check()
        assert sorted(recovered.shards) == list(range(SHARDS))
        for number, shard in recovered.shards.items():
            for e in shard.entries:
                assert (number, e.index, e.term, e.data) in self.ever
            if number in self.damaged and shard.is_removed:
                self.damaged.remove(number)  # by a removal the power did not stop
            if number in self.damaged:
                assert shard.damage, number
            if shard.damage:
                assert flipped or number in self.damaged, shard.damage
                self.damaged.add(number)
        whole = [n for n in range(SHARDS) if n not in self.damaged]
        state = next(
            (s for s in reversed(self.states[self.synced :]) if self._same(s, recovered, whole)),
            None,
        )
        assert state is not None, "what came back was never there, or is older than a sync"
        self._restart(state, recovered)

    def _same(self, state: list[Twin], recovered: Recovered, whole: list[int]) -> bool:
        return all(self._same_shard(n, state[n], recovered.shards[n]) for n in whole)

    def _same_shard(self, number: int, twin: Twin, found: RecoveredShard) -> bool:
        hard = (found.hard_state.term, found.hard_state.vote, found.hard_state.commit)
        entries = [(e.index, e.term, e.data) for e in found.entries]
        return twin.hard == hard and entries == twin.above(*self.checkpoints[number])

    def _restart(self, state: list[Twin], recovered: Recovered) -> None:
        self.shards = copy.deepcopy(state)
        for number, found in recovered.shards.items():
            twin = self.shards[number] = Twin() if found.is_removed else self.shards[number]
            base = self.checkpoints[number][0]
            twin.log = {e.index: (e.term, e.data) for e in found.entries}
            twin.base = base
            if base and not found.damage:
                twin.log[base] = (self.checkpoints[number][1], b"")
        self.states = [copy.deepcopy(self.shards)]
        self.synced = 0


def play(seed: int, steps: list[tuple[str, int, int]]) -> None:
    world = World(seed)
    for name, number, size in [*steps, ("crash", 0, 0), ("reopen", 0, 0)]:
        if number in world.damaged and name in ("append", "overwrite", "vote", "reset"):
            continue  # nobody uses a damaged shard but to remove it
        try:
            getattr(world, name)(number, size)
            world.wal.check()
        except (PowerLoss, OSError):
            world.disk.crash()
            world.recovered()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1 << 30),
    st.lists(
        st.tuples(st.sampled_from(STEPS), st.integers(0, SHARDS - 1), st.integers(0, 255)),
        max_size=50,
    ),
)
def test_what_was_synced_comes_back_or_is_reported_damaged(seed, steps):
    play(seed, steps)


@pytest.mark.parametrize("hundred", range(3))
def test_long_histories(hundred):
    for seed in range(hundred * 100, hundred * 100 + 100):
        chance = random.Random(seed)
        steps = [
            (chance.choice(STEPS), chance.randrange(SHARDS), chance.randrange(256))
            for _ in range(chance.randrange(20, 120))
        ]
        try:
            play(seed, steps)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_a_disk_that_lies_is_caught():
    """The twin can fail: on a disk whose syncs do nothing, synced entries go missing."""
    caught = 0
    for seed in range(20):
        world = World(seed)
        world.disk.lies = True
        try:
            for index in range(6):
                world.append(index % SHARDS, 200)
                world.flush(0, 0)
            world.crash(0, 0)
        except AssertionError:
            caught += 1
    assert caught > 5
