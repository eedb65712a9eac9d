"""Golden bytes: every command tag, for ever.

A file in golden/ is what an entry of that command looks like on disks that exist. A changed byte
means that old logs are read differently. ``--rewrite`` is for new commands only.
"""

from pathlib import Path
from typing import get_args

import pytest

from raftline.machines.catalog import commands as catalog
from raftline.machines.partition import commands as partition
from raftline.machines.partition import side_car, streams
from raftline.machines.partition import waiting_commands as waiting
from raftline.model.batch import BatchInfo

GOLDEN = Path(__file__).parent / "golden"
ITEMS = [
    (b"first batch", BatchInfo(11, 3, 2, 100, 102, 7, 1, 5)),
    (b"second", BatchInfo(6, 1, 0, 100, 2**41)),
]
PARTITION = [
    partition.Trim(5, 1000),
    partition.SetFeatureLevel(1, 1000),
    partition.Noop(1000),
    partition.MarkLetters([3, 5, 7, 8], partition.LETTERS_PURGED, 1000),
    partition.SetTrace(50, 7, 1000),
    partition.MarkArchived(50, 1000),
]
SPECS = (
    catalog.NodeSpec(1, "a", "d1", "a:7000", "a:8080", "a:9000", "a:9092", "r1"),
    catalog.NodeSpec(2, "b", "d2", "b:7000"),
)
CATALOG = [
    catalog.Found("c1", SPECS, 1000),
    catalog.AdmitNode("c", "d3", "c:7000", "c:8080", "c:9000", "c:9092", "r2", 1000),
    catalog.LeaveNode(2, force=True, at_ms=1000),
    catalog.DropNode(2, 1000),
    catalog.ReplaceNode(2, 3, 1000),
    catalog.CreateTopic("orders", "u1", 6, 3, {"headers": True, "partitioner": "crc32"}, 1000),
    catalog.DeleteTopic("orders", 1000),
    catalog.SetTopic("orders", {"retention_ms": 5}, ("headers",), 1000),
    catalog.AddPartitions("orders", 9, 1000),
    catalog.MoveReplica(100, 1, 2, 1000),
    catalog.ReplaceReplica(100, 1, 1 << 24 | 1, 1000),
    catalog.ForceReplicas(100, (1 << 24 | 1, 2 << 24), 1000),
    catalog.PlaceCoordination(2, 1000),
    catalog.AllocateProducers(10, 1000),
    catalog.SetFeatureLevel(1, 1000),
]


def tag(command: object) -> str:
    return type(command).__struct_config__.tag


def same(name: str, data: bytes, rewrite: bool) -> None:
    path = GOLDEN / f"{name}.hex"
    text = "\n".join(data.hex()[at : at + 96] for at in range(0, len(data.hex()), 96)) + "\n"
    if rewrite:
        path.write_text(text)
    assert path.read_text() == text, f"{name}: entries on disk are read differently now"


def test_append(rewrite: bool):
    data = partition.encode_append(1000, ITEMS)
    same("partition-append", data, rewrite)
    view = partition.decode_append(data)
    assert (view.at_ms, view.flags, view.extension) == (1000, 0, b"")
    assert view.rows == [(11, 3, 102, 7, 5, 1), (6, 1, 2**41, -1, -1, -1)]
    assert data[view.body :] == b"first batchsecond"
    assert len(data) == partition.append_bytes(2, 17)


def test_append_with_side_cars(rewrite: bool):
    first = side_car.SideCar(((0, 1, 10), (1, 3, -20)), ((1, bytes(range(16))),), 86_400_000)
    sides = [(0, first), (1, side_car.SideCar(((0, 1, 127),)))]
    flags, extension = side_car.encode_extension(sides)
    data = partition.encode_append(1000, ITEMS, flags, extension)
    same("partition-append_sides", data, rewrite)
    view = partition.decode_append(data)
    assert view.flags == 3
    assert side_car.decode_extension(view.flags, view.extension, [3, 1]) == dict(sides)


def test_stream(rewrite: bool):
    head = streams.StreamHead(117, "u1", 5, 9, 4)
    data = streams.encode_stream_append(head, partition.encode_append(1000, ITEMS))
    same("partition-stream", data, rewrite)
    read, view = streams.decode_stream_append(data)
    assert (read, view.at_ms, data[view.body :]) == (head, 1000, b"first batchsecond")


def test_schedule(rewrite: bool):
    flags, extension = side_car.encode_extension(
        [(1, side_car.SideCar((), ((0, bytes(range(16))),), 60_000))]
    )
    items = [(b"first", -3, 5000, 900), (b"second", 0, 2**41, 901)]
    data = waiting.encode_schedule(1000, 604_800_000, items, flags, extension)
    same("partition-schedule", data, rewrite)
    read = waiting.decode_waiting(data)
    assert isinstance(read, waiting.Schedule)
    assert read.rows == [(5, -3, 5000, 900), (6, 0, 2**41, 901)]
    assert (read.at_ms, read.delay_ms_max) == (1000, 604_800_000)
    assert (read.extension, data[read.body :]) == (extension, b"firstsecond")


def test_cancel_move_release(rewrite: bool):
    cancel = waiting.encode_cancel(1000, [3, 2**40])
    same("partition-cancel", cancel, rewrite)
    assert waiting.decode_waiting(cancel) == waiting.Cancel(1000, [3, 2**40])
    move = waiting.encode_move(1000, 3, 9000, 604_800_000)
    same("partition-move", move, rewrite)
    assert waiting.decode_waiting(move) == waiting.Move(1000, 3, 9000, 604_800_000)
    release = waiting.encode_release(1000, -128, [4, 2], 990, b"batch")
    same("partition-release", release, rewrite)
    read = waiting.decode_waiting(release)
    assert read == waiting.Release(1000, -128, [4, 2], 990, 48, 5)
    assert release[48:] == b"batch"


@pytest.mark.parametrize("command", PARTITION, ids=tag)
def test_partition(command, rewrite: bool):
    data = partition.encode_command(command)
    same(f"partition-{tag(command)}", data, rewrite)
    assert partition.decode_command(data) == command


@pytest.mark.parametrize("command", CATALOG, ids=tag)
def test_catalog(command, rewrite: bool):
    data = catalog.encode_command(command)
    same(f"catalog-{tag(command)}", data, rewrite)
    assert catalog.decode_command(data) == command


def test_none_is_left_out():
    assert {type(c) for c in CATALOG} == set(get_args(catalog.Command))
    assert {type(c) for c in PARTITION} == set(get_args(partition.Command))
    names = {f"catalog-{tag(c)}" for c in CATALOG} | {f"partition-{tag(c)}" for c in PARTITION}
    ours = [path.stem for path in GOLDEN.glob("*.hex") if path.stem.startswith(("cat", "part"))]
    assert set(ours) == names | {
        "partition-append",
        "partition-append_sides",
        "partition-cancel",
        "partition-parcel",
        "partition-move",
        "partition-release",
        "partition-schedule",
        "partition-stream",
    }
