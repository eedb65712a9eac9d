"""Data files: written by hour and size, read back exactly, damage told with its place."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raftline.archive.layout import local_root
from raftline.archive.manifest import Gap
from raftline.archive.reader import Archive, read_slice
from raftline.archive.schema import SCHEMA
from raftline.archive.writer import HOURS_MAX, RangeWriter, write_range
from raftline.model.errors import Conflict, InvalidArgument, InvalidTopic, NotFound
from tests.unit.archive.rows import HOUR_MS, NOON_MS, TOPIC, offsets, put, rows


def test_what_was_written_is_read_back_cell_by_cell(tmp_path: Path) -> None:
    put(tmp_path, (0, range(NOON_MS, NOON_MS + 1000)), (1000, [NOON_MS + 1000] * 5))
    wanted = [*rows(0, range(NOON_MS, NOON_MS + 1000)), *rows(1000, [NOON_MS + 1000] * 5)]
    found = list(Archive(tmp_path).batches(TOPIC, 0))
    assert pa.Table.from_batches(found) == pa.Table.from_batches(wanted)
    assert found[0].schema == SCHEMA


def test_a_file_ends_where_the_hour_changes(tmp_path: Path) -> None:
    times = [NOON_MS + HOUR_MS - 1, NOON_MS + HOUR_MS, NOON_MS + HOUR_MS, NOON_MS + 3 * HOUR_MS]
    made = put(tmp_path, (100, times))
    assert [(file.start, file.end, file.count) for file in made.files] == [
        (100, 101, 1), (101, 103, 2), (103, 104, 1),
    ]  # fmt: skip
    assert [file.path[:24] for file in made.files] == [
        f"date=2026-09-21/hour={hour}/" for hour in (14, 15, 17)
    ]
    assert [(file.time_min_ms, file.time_max_ms) for file in made.files] == [
        (times[0], times[0]), (times[1], times[2]), (times[3], times[3]),
    ]  # fmt: skip


def test_clocks_that_jump_do_not_make_a_file_a_message(tmp_path: Path) -> None:
    times = [NOON_MS + (at % 2) * HOUR_MS for at in range(1000)]
    made = put(tmp_path, (0, times))
    assert len(made.files) == HOURS_MAX + 1
    assert made.files[-1].count == 1000 - HOURS_MAX
    assert offsets(Archive(tmp_path).batches(TOPIC, 0)) == list(range(1000))


def test_strange_times_have_a_folder_too(tmp_path: Path) -> None:
    made = put(tmp_path, (0, [0, 1, 2**43]))
    assert [file.path.partition("/0")[0] for file in made.files] == [
        "date=1970-01-01/hour=00",
        "date=2248-09-26/hour=15",
    ]


def test_large_data_becomes_several_files_and_row_groups(tmp_path: Path) -> None:
    writer = RangeWriter(tmp_path, TOPIC, 0, 0, 50, file_bytes=20_000)
    for start in range(0, 50, 10):
        for batch in rows(start, [NOON_MS] * 10, size=1500):
            writer.write(batch)
    files = writer.finish()
    assert [(file.start, file.end) for file in files] == [(0, 20), (20, 40), (40, 50)]


@pytest.mark.parametrize("starts", [(0, 5), (10, 0), (0, 15)])
def test_messages_out_of_order_are_refused_and_leave_nothing(
    tmp_path: Path, starts: tuple[int, int]
) -> None:
    batches = [batch for start in starts for batch in rows(start, [NOON_MS] * 10)]
    with pytest.raises(Conflict, match="orders/0@"):
        write_range(tmp_path, TOPIC, 0, 0, 20, batches)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_source_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def source() -> Any:
        yield from rows(0, [NOON_MS, NOON_MS + HOUR_MS])
        raise OSError("cut")

    with pytest.raises(OSError, match="cut"):
        write_range(tmp_path, TOPIC, 0, 0, 20, source())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_range_reaches_over_offsets_without_messages(tmp_path: Path) -> None:
    files = write_range(tmp_path, TOPIC, 0, 0, 30, rows(5, [NOON_MS] * 10))
    assert [(file.start, file.end, file.count) for file in files] == [(0, 30, 10)]
    assert write_range(tmp_path, TOPIC, 0, 30, 40, []) == []


@pytest.mark.parametrize(
    ("start", "end"), [(0, None), (0, 5), (3, 17), (9, 11), (10, 10), (19, 99), (50, 60)]
)
def test_offsets_are_cut_exactly(tmp_path: Path, start: int, end: int | None) -> None:
    put(tmp_path, (0, [NOON_MS] * 10), (10, [NOON_MS] * 10))
    archive = Archive(tmp_path)
    wanted = [at for at in range(20) if start <= at and (end is None or at < end)]
    assert offsets(archive.batches(TOPIC, 0, start=start, end=end, rows_max=3)) == wanted
    slices = archive.slices(TOPIC, 0, start=start, end=end)
    assert [one for piece in slices for one in range(piece.start, piece.end)] == wanted


def test_times_are_cut_exactly_and_files_outside_are_left_out(tmp_path: Path) -> None:
    put(tmp_path, (0, [NOON_MS + 5, NOON_MS, NOON_MS + 9]), (3, [NOON_MS + 20, NOON_MS + 4]))
    archive = Archive(tmp_path)
    window = {"from_ms": NOON_MS + 4, "to_ms": NOON_MS + 9}
    assert offsets(archive.batches(TOPIC, 0, **window)) == [0, 4]
    assert len(archive.slices(TOPIC, 0, from_ms=NOON_MS + 10)) == 1
    assert archive.slices(TOPIC, 0, from_ms=NOON_MS + 21) == []
    assert archive.slices(TOPIC, 0, to_ms=NOON_MS) == []


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    put(tmp_path, (0, [NOON_MS] * 3))
    batch = next(Archive(tmp_path).batches(TOPIC, 0, columns=["key", "offset"], from_ms=NOON_MS))
    assert batch.schema.names == ["key", "offset"]
    assert batch.column("key").to_pylist() == [b"k0", b"k1", b"k2"]


def test_what_is_there_is_listed(tmp_path: Path) -> None:
    put(tmp_path, (7, [NOON_MS] * 3), gaps=[Gap(10, 12, "trimmed")])
    (tmp_path / "topic=empty" / "partition=0").mkdir(parents=True)
    archive = Archive(f"file://{tmp_path}")
    assert archive.topics() == [TOPIC]
    assert archive.partitions(TOPIC) == [0]
    assert archive.partitions("unheard-of") == []
    assert archive.span(TOPIC, 0) == (7, 12)
    assert archive.span(TOPIC, 1) == (0, 0)


def test_damage_is_told_with_its_place(tmp_path: Path) -> None:
    put(tmp_path, (0, [NOON_MS] * 10), (10, [NOON_MS] * 10))
    archive = Archive(tmp_path)
    first, second = archive.slices(TOPIC, 0)
    table = pq.read_table(first.path)
    pq.write_table(table.slice(0, 9), first.path)
    with pytest.raises(Conflict, match=r"orders/0@0: .* 9 rows, not 10"):
        list(read_slice(first))
    Path(first.path).write_bytes(b"PAR1 no")
    with pytest.raises(Conflict, match="damaged at orders/0@0"):
        list(read_slice(first))
    Path(second.path).unlink()
    with pytest.raises(Conflict, match=r"orders/0@10: .* is gone"):
        list(read_slice(second))


def test_a_file_in_the_folder_that_no_manifest_names_does_not_count(tmp_path: Path) -> None:
    made = put(tmp_path, (0, [NOON_MS] * 10))
    path = tmp_path / "topic=orders" / "partition=0" / made.files[0].path
    (path.parent / "00000000000000000010-left.parquet").write_bytes(path.read_bytes())
    assert offsets(Archive(tmp_path).batches(TOPIC, 0)) == list(range(10))


def test_addresses_of_files_are_directories_with_one_slash_too() -> None:
    for text in ("/mnt/a b", "file:///mnt/a b", "file:/mnt/a b"):
        assert local_root(text) == Path("/mnt/a b")
    assert local_root("a:b") == Path.cwd() / "a:b"
    for text in ("s3://bucket/a", "dbfs:/mnt/a", "hdfs:/a", "file://host/a"):
        with pytest.raises(InvalidArgument, match="no directory"):
            local_root(text)


def test_bad_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no archive at"):
        Archive(tmp_path / "nowhere")
    with pytest.raises(InvalidArgument, match="no directory"):
        local_root("s3://bucket/archive")
    with pytest.raises(InvalidArgument, match="no archive is named"):
        local_root(" ")
    with pytest.raises(InvalidTopic):
        Archive(tmp_path).slices("../secret", 0)
