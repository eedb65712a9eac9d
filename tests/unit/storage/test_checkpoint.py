"""The checkpoint file: durable or not there, damaged or true, ours or refused."""

import contextlib
import itertools
import random

import pytest

from raftline.raft.rpc import ConfState, HardState
from raftline.storage import checkpoint as module
from raftline.storage.checkpoint import (
    Checkpoint,
    CheckpointRefused,
    decode_checkpoint,
    encode_checkpoint,
    load_checkpoint,
    write_checkpoint,
)
from raftline.storage.os_disk import OsDisk
from raftline.testing.sim_disk import PowerLoss, SimDisk
from tests.unit.storage.log_twin import Twin

DIRECTORY = "shards/7"


def example(index: int, **changes) -> Checkpoint:
    fields = {
        "cluster": "cluster-a", "shard": 7, "replica": 1 << 24 | 3, "index": index, "term": 4,
        "hard_state": HardState(5, 1 << 24 | 3, index),
        "conf_state": ConfState((1, 2, 3), (4,), (1, 2), (), True),
        "term_runs": ((1, 1), (9, 4)), "log": None, "state": b"\x00\x01" * index, "at_ms": 12345,
        "feature_level": 1, "topic_uuid": "t", "partition": 2,
    }  # fmt: skip
    return Checkpoint(**{**fields, **changes})


@pytest.fixture(params=["sim", "os"])
def disk(request, tmp_path):
    return SimDisk(random.Random(7)) if request.param == "sim" else OsDisk(str(tmp_path / "data"))


def test_the_newest_and_the_one_before_it(disk) -> None:
    assert load_checkpoint(disk, DIRECTORY) == module.Loaded(None)
    write_checkpoint(disk, DIRECTORY, example(1))
    assert load_checkpoint(disk, DIRECTORY) == module.Loaded(example(1))
    for index in (2, 3):
        write_checkpoint(disk, DIRECTORY, example(index))
        loaded = load_checkpoint(disk, DIRECTORY, cluster="cluster-a", shard=7)
        assert loaded == module.Loaded(example(index), "", example(index - 1))
    assert disk.listdir(DIRECTORY) == ["checkpoint", "checkpoint.old"]


def test_it_carries_a_log_mark() -> None:
    twin = Twin()
    twin.append(1000, 2000)
    checkpoint = example(5, log=twin.sync())
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint


def test_every_flipped_bit_and_every_cut_is_found() -> None:
    data = encode_checkpoint(example(20))
    for at in range(len(data)):
        for bit in (0, 7):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            with pytest.raises(ValueError, match=r"crc|bytes|head"):
                decode_checkpoint(bytes(flipped))
        with pytest.raises(ValueError, match="bytes"):
            decode_checkpoint(data[:at])
    with pytest.raises(ValueError, match="bytes"):
        decode_checkpoint(data + b"\0")


def test_a_damaged_newest_is_told_with_the_older(disk) -> None:
    write_checkpoint(disk, DIRECTORY, example(1))
    write_checkpoint(disk, DIRECTORY, example(2))
    file = disk.open(f"{DIRECTORY}/checkpoint")
    file.write_at(50, [bytes([file.read_at(50, 1)[0] ^ 1])])
    loaded = load_checkpoint(disk, DIRECTORY)
    assert loaded.checkpoint is None
    assert "crc" in loaded.damage
    assert loaded.older == example(1)
    disk.remove(f"{DIRECTORY}/checkpoint")
    loaded = load_checkpoint(disk, DIRECTORY)
    assert loaded.checkpoint is None
    assert "missing" in loaded.damage
    assert loaded.older == example(1)


def test_what_is_not_ours_is_refused_and_left_alone(disk, monkeypatch) -> None:
    write_checkpoint(disk, DIRECTORY, example(1))
    with pytest.raises(CheckpointRefused, match="cluster-a"):
        load_checkpoint(disk, DIRECTORY, cluster="cluster-b")
    with pytest.raises(CheckpointRefused, match="shard 7"):
        load_checkpoint(disk, DIRECTORY, shard=8)
    monkeypatch.setattr(module, "FORMAT", 2)
    write_checkpoint(disk, DIRECTORY, example(2))
    monkeypatch.undo()
    before = disk.open(f"{DIRECTORY}/checkpoint").read_at(0, 1 << 20)
    with pytest.raises(CheckpointRefused, match="upgrade"):
        load_checkpoint(disk, DIRECTORY)
    assert disk.open(f"{DIRECTORY}/checkpoint").read_at(0, 1 << 20) == before


def test_no_space_leaves_the_one_before() -> None:
    disk = SimDisk(random.Random(2))
    write_checkpoint(disk, DIRECTORY, example(1))
    disk.capacity_bytes = disk.used_bytes + 100
    with pytest.raises(OSError, match="space"):
        write_checkpoint(disk, DIRECTORY, example(900))
    assert load_checkpoint(disk, DIRECTORY).checkpoint == example(1)
    disk.capacity_bytes += 1 << 20
    write_checkpoint(disk, DIRECTORY, example(900))
    assert load_checkpoint(disk, DIRECTORY).checkpoint == example(900)


@pytest.mark.parametrize("seed", range(12))
def test_a_crash_at_any_step_leaves_a_whole_checkpoint(seed: int) -> None:
    for operations in range(12):
        disk = SimDisk(random.Random(seed * 100 + operations))
        write_checkpoint(disk, DIRECTORY, example(1))
        write_checkpoint(disk, DIRECTORY, example(2))
        disk.power_off_after(operations)
        finished = False
        try:
            write_checkpoint(disk, DIRECTORY, example(3))
            finished = True
        except PowerLoss:
            pass
        disk.crash()
        loaded = load_checkpoint(disk, DIRECTORY)
        assert loaded.damage == ""
        assert loaded.checkpoint == example(3) if finished else loaded.checkpoint in (
            example(2), example(3),
        )  # fmt: skip
        write_checkpoint(disk, DIRECTORY, example(4))
        assert load_checkpoint(disk, DIRECTORY).checkpoint == example(4)


@pytest.mark.parametrize("seed", range(12))
def test_a_second_crash_leaves_a_whole_checkpoint_too(seed: int) -> None:
    for first, second in itertools.product(range(12), repeat=2):
        disk = SimDisk(random.Random(seed * 1000 + first * 12 + second))
        write_checkpoint(disk, DIRECTORY, example(1))
        for index, operations in ((2, first), (3, second)):
            found = load_checkpoint(disk, DIRECTORY).checkpoint
            disk.power_off_after(operations)
            with contextlib.suppress(PowerLoss):
                write_checkpoint(disk, DIRECTORY, example(index))
            disk.crash()
            loaded = load_checkpoint(disk, DIRECTORY)
            assert loaded.damage == ""
            assert loaded.checkpoint in (found, example(index))


def test_no_space_leaves_the_one_that_stood_in_for_it() -> None:
    disk = SimDisk(random.Random(2))
    write_checkpoint(disk, DIRECTORY, example(1))
    write_checkpoint(disk, DIRECTORY, example(2))
    disk.rename(f"{DIRECTORY}/checkpoint", f"{DIRECTORY}/checkpoint.tmp")  # a crash came between
    assert load_checkpoint(disk, DIRECTORY).checkpoint == example(2)
    disk.capacity_bytes = disk.used_bytes + 100
    with pytest.raises(OSError, match="space"):
        write_checkpoint(disk, DIRECTORY, example(900))
    disk.capacity_bytes += 1 << 20
    assert load_checkpoint(disk, DIRECTORY).checkpoint == example(2)
    write_checkpoint(disk, DIRECTORY, example(900))
    assert load_checkpoint(disk, DIRECTORY) == module.Loaded(example(900), "", example(2))
