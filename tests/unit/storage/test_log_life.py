"""Time lookups, retention, trims, digests, catch-up: the log over its life."""

import random

import pytest

from raftline.storage.log_words import (
    CHAIN_UNKNOWN,
    LogFault,
    LogSettings,
    NotImported,
    ScrubResult,
)
from raftline.testing.sim_disk import SimDisk
from tests.unit.storage.log_twin import SMALL, Twin


def filled(seed: int = 1, rounds: int = 80, **settings) -> Twin:
    base = {name: getattr(SMALL, name) for name in SMALL.__struct_fields__}
    settings = {"segment_bytes": 150_000, **settings}
    twin = Twin(SimDisk(random.Random(seed)), LogSettings(**{**base, **settings}))
    rng = random.Random(99)
    for _ in range(rounds):
        stamp = twin.at_ms + rng.randrange(-500, 500)
        twin.append(rng.randrange(70, 9000), rng.randrange(70, 300), max_timestamp=stamp)
    return twin


def late_row(twin: Twin, time_ms: int):
    rows = [r for r in twin.rows if r.end > twin.log.log_start]
    return next((r for r in rows if r.max_timestamp >= time_ms), None)


def check_times(twin: Twin) -> None:
    stamps = sorted({r.max_timestamp for r in twin.rows})
    for time_ms in [0, *(s + d for s in stamps[::5] for d in (0, 1)), stamps[-1] + 1]:
        want = late_row(twin, time_ms)
        hit = twin.log.find_time(time_ms)()
        assert (hit and hit.base_offset) == (want and want.base), time_ms
        if hit:
            assert hit.batch == want.data


def test_lookup_by_record_time() -> None:
    twin = filled()
    check_times(twin)
    twin.sync()
    twin.reopen()
    check_times(twin)
    twin.log.trim(twin.rows[37].base + 1)  # inside a batch
    check_times(twin)
    twin.log.trim_job()()
    check_times(twin)


def test_lookup_by_log_time_never_promises_too_much() -> None:
    twin = filled()
    twin.sync()
    twin.reopen()
    best = 0
    for time_ms in range(twin.rows[0].at_ms - 5, twin.rows[-1].at_ms + 20, 11):
        offset = twin.log.find_log_time(time_ms)()
        assert all(r.at_ms < time_ms for r in twin.rows if r.end <= offset)
        assert offset >= best
        best = offset
        late = [r.base for r in twin.rows if r.at_ms >= time_ms]
        between = [r for r in twin.rows if r.base >= offset and r.base < min(late, default=0)]
        assert sum(len(r.data) for r in between) < SMALL.index_bytes + 9000
    assert best == twin.log.log_end


def test_retention_takes_whole_closed_segments() -> None:
    twin = filled()
    twin.flush_all()
    segments = twin.log._files.segments
    assert len(segments) >= 3
    start = twin.log.retention_start
    assert start(None, None) == 0
    assert start(None, 1 << 40) == 0
    assert start(None, 0) == segments[-1].base_offset
    assert start(None, twin.log.bytes - segments[0].size) == segments[1].base_offset
    assert start(None, twin.log.bytes - segments[0].size + 1) == 0
    assert start(segments[0].last_at_ms, None) == 0
    assert start(segments[0].last_at_ms + 1, None) == segments[1].base_offset
    assert start(1 << 60, None) == segments[-1].base_offset


def test_segments_close_by_age() -> None:
    twin = filled(segment_ms=100, segment_bytes=1 << 30)
    for _ in range(40):
        twin.append(100)
        twin.flush_all()
    spans = [s.last_at_ms - s.first_at_ms for s in twin.log._files.segments[-4:]]
    assert len(spans) == 4
    assert max(spans) < 100 + 14


def test_pages_far_behind_the_end_are_let_go() -> None:
    twin = filled(rounds=0, cache_bytes=100_000)
    for _ in range(60):
        twin.append(20_000)
        twin.flush_all()
        files = twin.log._files
        let_go = sum(s.uncached_end for s in files.segments)
        assert let_go == max(0, files.written[1] - 100_000)
    assert len(files.segments) > 4
    twin.check_reads()
    twin.sync()
    twin.reopen()
    twin.append(20_000)
    twin.flush_all()
    twin.check_reads()


def test_trim_removes_files_and_survives_a_crash_with_the_old_mark() -> None:
    twin = filled()
    twin.sync()
    before = twin.log.bytes
    segments = twin.log._files.segments
    target = segments[2].base_offset + 4
    assert not twin.log.needs_trim()
    twin.log.trim(target)
    assert twin.log.log_start == target
    assert twin.log.needs_trim()
    twin.log.trim_job()()
    assert not twin.log.needs_trim()
    assert twin.log.bytes == before - segments[0].size - segments[1].size
    twin.check_reads()
    names = twin.disk.listdir(twin.directory)
    assert f"{0:020d}.log" not in names
    twin.reopen()  # the mark still names the removed segments
    assert twin.log.damage == []
    assert twin.log.log_start == segments[2].base_offset
    twin.log.trim(target)  # the trim is applied again
    twin.check_reads()
    twin.sync()
    twin.reopen()
    assert twin.log.log_start == target
    twin.check_reads()


def test_trim_to_the_end_leaves_an_empty_log() -> None:
    twin = filled()
    twin.sync()
    mark = twin.mark
    twin.append(100, 200)
    twin.flush_all()
    end = twin.log.log_end
    twin.log.trim(end)
    assert twin.log.needs_trim()
    twin.log.trim_job()()
    assert not twin.log.needs_trim()
    assert twin.log.bytes == 0
    assert twin.log.log_start == twin.log.log_end == end
    for _ in range(2):
        assert twin.log.scrub_job(1 << 30)() == ScrubResult(0, (), wrapped=True)
    twin.reopen()  # at the old mark, whose files are all gone
    assert twin.log.damage == []
    assert twin.log.log_end == end  # replayed
    assert twin.log.log_start == mark.log_end
    twin.log.trim(end)
    twin.append(300)
    twin.sync()
    twin.reopen()
    assert twin.log.log_start == end
    twin.check_reads()
    assert len(twin.log.read_job(end, 10)()) >= 1


@pytest.mark.parametrize("seed", range(8))
def test_what_is_written_long_after_everything_was_trimmed_survives_a_power_loss(
    seed: int,
) -> None:
    """A segment without messages has no files yet, and was counted as having durable names."""
    twin = filled(seed)
    twin.sync()
    end = twin.log.log_end
    twin.log.trim(end)
    twin.log.trim_job()()
    twin.sync()  # the empty segment is in the mark
    twin.append(100, 200)
    twin.sync()
    twin.reopen()
    assert twin.log.damage == []
    twin.check_reads()


def test_a_segment_that_is_missing_without_a_trim_is_damage() -> None:
    twin = filled()
    twin.sync()
    twin.log.trim(twin.log._files.segments[1].base_offset)
    twin.log.trim_job()()
    path = twin.log._files.segments[0].log_path
    twin.disk.remove(path)
    twin.log = twin.open(twin.mark)
    assert [d.start_offset for d in twin.log.damage] == [twin.log._files.segments[0].base_offset]


def test_digests_do_not_depend_on_layout_or_history() -> None:
    twins = [
        filled(1),
        filled(2, segment_bytes=100_000, index_bytes=1000),
        filled(3, segment_bytes=1 << 30, flush_bytes=1),
    ]
    twins[0].flush_all()
    for _ in range(3):
        twins[1].sync()
        twins[1].reopen()
        twins[1].flush()
    end = twins[0].log.log_end
    some = twins[0].rows[31].base
    for start, stop in [(0, end), (some, end), (0, some), (some, some)]:
        assert len({t.digest(start, stop) for t in twins}) == 1
    assert twins[0].digest(0, some) != twins[0].digest(0, end)
    for offset in [0, some, end]:
        assert len({t.log.chain_job(offset)() for t in twins}) == 1
    twins[1].log.trim(some)
    twins[1].log.trim_job()()
    assert twins[1].digest(some, end) == twins[0].digest(some, end)
    mark = twins[1].sync()
    assert mark.chain_start == twins[0].log.chain_job(some)()
    assert mark.chain_end == twins[0].log.chain_job(end)()


def test_the_chain_is_known_at_batch_boundaries_only() -> None:
    twin = filled()
    seen = set()
    for row in twin.rows[::7]:
        chain = twin.log.chain_job(row.base)()
        assert chain != CHAIN_UNKNOWN
        assert chain not in seen
        seen.add(chain)
        assert twin.log.chain_job(row.base + 1)() == CHAIN_UNKNOWN
    assert twin.log.chain_job(twin.log.log_end + 1)() == CHAIN_UNKNOWN


def test_a_digest_covers_whole_batches() -> None:
    twin = filled()
    assert twin.digest(1) == twin.digest(0)  # a trim may leave the start inside a batch
    with pytest.raises(LogFault):
        twin.digest(0, twin.log.log_end - 1)


def test_a_peer_catches_up_by_export_and_import() -> None:
    twin = filled()
    twin.flush()
    peer = Twin(SimDisk(random.Random(8)))
    while peer.log.log_end < twin.log.log_end:
        piece = twin.log.export_job(peer.log.log_end, 50_000)()
        assert peer.log.chain_job(piece.start)() == piece.chain_start
        peer.log.import_batches(piece.data, piece.at_ms)
        assert peer.log.log_end == piece.end
        assert peer.log.chain_job(piece.end)() == piece.chain_end
        peer.flush()
    assert peer.digest() == twin.digest()
    peer.rows = twin.rows
    peer.sync()
    peer.reopen()
    peer.check_reads()
    assert twin.log.export_job(twin.log.log_end, 100)().data == b""
    last = peer.log._files.segments[-1]
    assert last.last_at_ms >= twin.rows[-1].at_ms


def test_damaged_or_misplaced_imports_are_refused() -> None:
    twin = filled()
    peer = Twin(SimDisk(random.Random(8)))
    data = twin.log.export_job(0, 50_000)().data
    for bad in (data[:-1], data[len(twin.rows[0].data) :], data[:100], _flip(data, 5000)):
        with pytest.raises(NotImported):
            peer.log.import_batches(bad, 1)
        assert peer.log.log_end == 0
        assert peer.log.bytes == 0
    peer.log.import_batches(data, 1)


def _flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


@pytest.mark.parametrize("flushed", [True, False])
@pytest.mark.parametrize("row", [3, 50, 100, 159])
def test_a_cut_undoes_what_was_added(row: int, flushed: bool) -> None:
    twin = filled()
    if flushed:
        twin.flush_all()
    offset = twin.rows[row].base
    with pytest.raises(LogFault):
        twin.log.cut_to(offset, offset + 1)
    with pytest.raises(LogFault):
        twin.log.cut_to(twin.log.log_end + 1, 0)
    in_flight = twin.log.take_flush()
    if in_flight:
        twin.log.write_flush(in_flight)
    twin.log.cut_to(offset, offset)()
    if in_flight:
        twin.log.flushed(in_flight)
    del twin.rows[row:]
    assert twin.log.log_end == offset
    assert twin.log.bytes == sum(len(r.data) for r in twin.rows)
    twin.check_reads()
    check_times(twin)
    fresh = Twin(SimDisk(random.Random(4)))
    fresh.log.import_batches(b"".join(r.data for r in twin.rows), 1)
    assert fresh.digest() == twin.digest()
    twin.append(400, 500)
    twin.flush_all()
    twin.check_reads()
    twin.sync()
    twin.reopen()
    twin.check_reads()
    check_times(twin)


def test_a_reset_keeps_the_old_files_until_the_new_mark_is_durable() -> None:
    twin = filled()
    old_mark, old_rows = twin.sync(), list(twin.rows)
    old_names = twin.disk.listdir(twin.directory)
    start = twin.log.log_end + 1000
    twin.log.reset(start, 77)()
    assert (twin.log.log_start, twin.log.log_end, twin.log.bytes) == (start, start, 0)
    twin.rows = []
    twin.append(5000, 6000)
    assert twin.log.chain_job(start)() == 77
    new_rows, new_mark = list(twin.rows), twin.sync()
    twin.log.trim_job()()
    assert set(old_names) <= set(twin.disk.listdir(twin.directory))
    twin.check_reads()

    twin.mark, twin.rows = old_mark, old_rows
    twin.reopen()  # the checkpoint with the new mark was not written
    assert twin.log.damage == []
    twin.check_reads()
    twin.log.reset(start, 77)()
    twin.rows = []
    twin.append(5000, 6000)
    new_rows, new_mark = list(twin.rows), twin.sync()
    twin.log.checkpointed(new_mark)
    assert twin.log.needs_trim()
    twin.log.trim_job()()
    assert not twin.log.needs_trim()
    assert not set(old_names) & set(twin.disk.listdir(twin.directory))
    twin.mark, twin.rows = new_mark, new_rows
    twin.reopen()
    assert (twin.log.log_start, twin.log.damage) == (start, [])
    twin.check_reads()


def test_a_reset_backwards() -> None:
    twin = filled()
    twin.sync()
    twin.log.trim(twin.log._files.segments[1].base_offset)
    twin.log.trim_job()()
    twin.log.reset(0, 0)()
    twin.rows = []
    twin.append(70_000, 90_000, 100_000, 100_000, 50_000)
    twin.sync()
    twin.reopen()
    assert (twin.log.log_start, twin.log.damage) == (0, [])
    twin.check_reads()
