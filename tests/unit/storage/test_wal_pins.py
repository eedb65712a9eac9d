"""Pins: which file is needed by whom."""

import random

import pytest

from raftline.storage.wal_pins import Pins


@pytest.fixture
def pins():
    pins = Pins()
    yield pins
    pins.check()


def runs(pins: Pins, shard: int) -> list[tuple[int, int, int]]:
    return [(r.generation, r.start, r.end) for r in pins._shards[shard].runs]


def test_appends_extend_and_void(pins):
    pins.entries(1, 5, 1, 4, 300)
    pins.entries(1, 5, 4, 6, 200)
    pins.entries(1, 6, 6, 9, 300)
    assert runs(pins, 1) == [(5, 1, 6), (6, 6, 9)]
    pins.entries(1, 7, 3, 5, 200)
    assert runs(pins, 1) == [(5, 1, 3), (7, 3, 5)]
    assert [pins.count(g) for g in (5, 6, 7)] == [1, 0, 1]


def test_checkpoints_free_from_the_left(pins):
    pins.entries(1, 5, 1, 4, 300)
    pins.entries(1, 6, 4, 9, 500)
    pins.checkpointed(1, 4)
    pins.checkpointed(1, 2)  # late news
    assert runs(pins, 1) == [(6, 5, 9)]
    pins.entries(1, 7, 3, 5, 200)  # was under way: below the checkpoint, but it voids the rest
    assert runs(pins, 1) == []
    pins.drop_file(5)
    pins.drop_file(6)


def test_copies_move_their_range_only(pins):
    pins.entries(1, 5, 1, 10, 900)
    pins.copied(1, 8, 4, 6, 200)
    assert runs(pins, 1) == [(5, 1, 4), (8, 4, 6), (5, 6, 10)]
    pins.checkpointed(1, 5)
    pins.copied(1, 9, 3, 12, 900)
    assert runs(pins, 1) == [(9, 6, 12)]


def test_reset_forget_and_marks(pins):
    pins.entries(1, 5, 1, 10, 900)
    pins.hard_state(1, 5)
    pins.damage(1, 5)
    assert pins.count(5) == 3
    pins.reset(1, 20)
    pins.hard_state(1, 6)
    assert pins.count(5) == 1
    assert [shard for shard, _ in pins.of_file(5)] == [1]
    pins.forget(1)
    pins.forget(1)
    assert pins.count(5) == pins.count(6) == 0


def test_a_file_in_need_is_not_dropped(pins):
    pins.hard_state(1, 5)
    with pytest.raises(AssertionError):
        pins.drop_file(5)
    pins.hard_state(1, 6)


def test_against_a_map_from_entry_to_file():
    chance = random.Random(0)
    for _ in range(200):
        pins, twin, checkpoint, generation = Pins(), {}, 0, 1
        for _ in range(40):
            last = max(twin, default=checkpoint)
            generation += chance.randrange(2)
            start = chance.randrange(checkpoint + 1, last + 2)
            end = start + chance.randrange(1, 5)
            match chance.randrange(4):
                case 0 | 1:
                    pins.entries(1, generation, start, end, 10)
                    twin = {i: g for i, g in twin.items() if i < start}
                    twin |= dict.fromkeys(range(start, end), generation)
                case 2:
                    end = min(end, last + 1)
                    if start < end:
                        pins.copied(1, generation, start, end, 10)
                        twin |= dict.fromkeys(range(start, end), generation)
                case _:
                    checkpoint = min(last, checkpoint + chance.randrange(4))
                    pins.checkpointed(1, checkpoint)
                    twin = {i: g for i, g in twin.items() if i > checkpoint}
            pins.check()
            found = {i: g for g, a, b in runs(pins, 1) for i in range(a, b)} if twin else {}
            assert found == twin
            assert all(bool(pins.count(g)) == (g in twin.values()) for g in range(1, generation))
