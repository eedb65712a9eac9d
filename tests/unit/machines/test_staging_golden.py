"""Golden bytes of commands about staged writes: as they lie on disks that exist, for ever."""

from pathlib import Path
from typing import Any, get_args

import pytest

from raftline.machines.partition import commands as partition
from raftline.machines.partition import staging_commands as staging
from raftline.machines.partition import waiting_commands as waiting
from raftline.machines.partition.stage_extras import Extras, open_extras, seal_extras
from raftline.model.batch import BatchInfo

GOLDEN = Path(__file__).parent / "golden"
ITEMS: Any = [(b"first batch", BatchInfo(11, 3, 2, 100, 102))]
OTHERS = [
    staging.Publish(1000, "q1", 7, [(0, 3, 2), (1, 2**40, 1)]),
    staging.PublishAfter(1000, "q1", 7, [(0, 3, 2)], -1),
    staging.Abandon(1000, "q1", 7),
    staging.ForgetQuery(1000, "q1"),
]


def same(name: str, data: bytes, rewrite: bool) -> None:
    path = GOLDEN / f"staging-{name}.hex"
    text = "\n".join(data.hex()[at : at + 96] for at in range(0, len(data.hex()), 96)) + "\n"
    if rewrite:
        path.write_text(text)
    assert path.read_text() == text, f"{name}: entries on disk are read differently now"


def test_stage(rewrite: bool):
    key = (7, 1, 2**40, 3)
    data = staging.encode_stage(1000, 60_000, "käse", key, b"batch", 9, 990, b"extra")
    same("stage", data, rewrite)
    read = staging.decode_staging(data)
    assert isinstance(read, staging.Stage)
    assert (read.at_ms, read.keep_ms, read.query, read.key) == (1000, 60_000, "käse", key)
    assert (read.count, read.max_timestamp) == (9, 990)
    assert (data[read.extra : read.body], data[read.body : read.end]) == (b"extra", b"batch")


def test_pieces(rewrite: bool):
    append = partition.encode_append(1000, ITEMS)
    data = staging.encode_piece(1001, "q1", 7, (4, 5), staging.APPENDS, append, 2)
    same("piece", data, rewrite)
    read = staging.decode_staging(data)
    assert isinstance(read, staging.Piece)
    assert (read.at_ms, read.query, read.batch, read.first, read.end, read.dropped) == (
        1001, "q1", 7, 4, 5, 2,
    )  # fmt: skip
    assert read.append is not None
    assert data[read.append.body :] == b"first batch"
    schedule = waiting.encode_schedule(1000, 9, [(b"first", -3, 5000, 900)])
    data = staging.encode_piece(1001, "q1", 7, (4, 5), staging.SCHEDULES, schedule)
    same("piece_waiting", data, rewrite)
    read = staging.decode_staging(data)
    assert isinstance(read, staging.Piece)
    assert read.schedule is not None
    assert data[read.schedule.body :] == b"first"
    data = staging.encode_piece(1001, "q1", 7, (4, 5), dropped=3)
    same("piece_empty", data, rewrite)
    assert staging.decode_staging(data) == staging.Piece(1001, "q1", 7, 4, 5, 3)


@pytest.mark.parametrize("command", OTHERS, ids=lambda command: type(command).__name__.lower())
def test_others(command: staging.Others, rewrite: bool):
    data = staging.encode_staging(command)
    same(type(command).__name__.lower(), data, rewrite)
    assert staging.decode_staging(data) == command


def test_extras(rewrite: bool):
    extras = Extras(((0, 2, 9),), ((1, bytes(range(16))),), (5, 2**41))
    sealed = seal_extras(extras, 1000)
    same("extras", sealed, rewrite)
    assert open_extras(sealed) == extras
    assert seal_extras(Extras(), 1000) == b""


def test_none_is_left_out():
    kinds = {type(command) for command in OTHERS} | {staging.Stage, staging.Piece}
    assert kinds == {kind for one in get_args(staging.Command) for kind in get_args(one) or (one,)}


@pytest.mark.parametrize(
    "data",
    [
        b"\x06",
        b"\x06\x09",
        b"\x06\x01" + bytes(20),
        b"\x06\x02" + bytes(60),
        b"\x06\x03\xc1",
        staging.encode_stage(1, 1, "q", (0, 0, 0, 0), b"", 1, 1),
        staging.encode_stage(1, 1, "", (0, 0, 0, 0), b"b", 1, 1),
        staging.encode_stage(1, 1, "q", (-1, 0, 0, 0), b"b", 1, 1),
        staging.encode_stage(1, 1, "q" * 250, (0, 0, 0, 0), b"b", 1, 1),
        staging.encode_piece(1, "q", 0, (1, 1)),
        staging.encode_piece(1, "q", 0, (0, 1), staging.APPENDS, b"\x01"),
        staging.encode_piece(1, "q", 0, (0, 1), 9, b"x"),
        staging.encode_piece(1, "q", 0, (0, 1), staging.SCHEDULES, waiting.encode_cancel(1, [1])),
        staging.encode_staging(staging.Publish(1, "", 0, [])),
        staging.encode_staging(staging.Abandon(1, "q", -2)),
    ],
)
def test_what_is_no_command(data: bytes):
    with pytest.raises(partition.Malformed):
        staging.decode_staging(data)
