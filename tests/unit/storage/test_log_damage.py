"""P11 on one replica: a flipped bit anywhere is found, never served, and mended from a peer."""

import random

import pytest

from raftline.storage.log_words import CHUNK_BYTES, DamagedRange, NotRepaired
from raftline.testing.sim_disk import DiskOdds, SimDisk
from tests.unit.storage.log_twin import Twin


@pytest.fixture
def twin() -> Twin:
    twin = Twin(SimDisk(random.Random(21)))
    for i in range(90):
        twin.append(500 + (i * 977) % 9000, 70)
    twin.sync()
    twin.log = twin.open(twin.mark)
    return twin


def range_bytes(twin: Twin, start: int, end: int) -> bytes:
    return b"".join(row.data for row in twin.rows if start <= row.base < end)


def test_every_flipped_bit_is_found_and_mended(twin: Twin) -> None:
    rng = random.Random(5)
    for _ in range(60):
        segment = rng.choice(twin.log._files.segments)
        position = rng.randrange(segment.size)
        twin.disk.flip_bit(segment.log_path, position, rng.randrange(8))
        twin.log = twin.open(twin.mark)
        start_position = segment.base_offset
        hit, at = None, 0
        for row in twin.rows:
            if row.base < start_position or row.base >= segment.end_offset:
                continue
            if at <= position < at + len(row.data):
                hit = row
            at += len(row.data)
        assert hit is not None
        with pytest.raises(DamagedRange) as found:
            twin.log.read_job(hit.base, 10)()
        damage = found.value.damage
        assert damage.start_offset <= hit.base < damage.end_offset
        with pytest.raises(DamagedRange):
            twin.log.export_job(hit.base, 1)()
        with pytest.raises(DamagedRange):
            twin.digest()
        scrubbed = twin.log.scrub_job(1 << 30)()
        assert [d.start_offset for d in scrubbed.damaged] == [damage.start_offset]
        for row in twin.rows:  # everything outside the range is still served
            if row.end <= damage.start_offset or row.base >= damage.end_offset:
                assert twin.expected(row.base, 9000).startswith(twin.read(row.base, 9000))
        good = range_bytes(twin, damage.start_offset, damage.end_offset)
        job = twin.log.repair_job(damage.start_offset, damage.end_offset, good)
        assert job() == ()
        twin.check_reads()
    assert not twin.log.scrub_job(1 << 30)().damaged


def test_damage_after_the_first_read_is_found_by_the_scrubber(twin: Twin) -> None:
    twin.check_reads()
    segment = twin.log._files.segments[0]
    twin.disk.flip_bit(segment.log_path, 3 * CHUNK_BYTES + 5)
    damaged = []
    for _ in range(1000):
        result = twin.log.scrub_job(20_000)()
        damaged += result.damaged
        if result.wrapped:
            break
    assert len(damaged) == 1
    inside = [r for r in twin.rows if damaged[0].start_offset <= r.base < damaged[0].end_offset]
    middle = inside[len(inside) // 2].base
    with pytest.raises(DamagedRange):
        twin.log.read_job(middle, 10)()
    assert twin.log.read_cached(middle, 10) is None


def test_wrong_bytes_are_not_taken_for_a_repair(twin: Twin) -> None:
    segment = twin.log._files.segments[0]
    twin.disk.flip_bit(segment.log_path, CHUNK_BYTES + 50)
    (damage,) = twin.log.scrub_job(1 << 30)().damaged
    good = range_bytes(twin, damage.start_offset, damage.end_offset)
    before = twin.disk.open(segment.log_path).read_at(0, segment.size)

    def refused(start: int, end: int, data: bytes) -> None:
        with pytest.raises(NotRepaired):
            twin.log.repair_job(start, end, data)()
        assert twin.disk.open(segment.log_path).read_at(0, segment.size) == before

    flipped = bytearray(good)
    flipped[70] ^= 1
    refused(damage.start_offset, damage.end_offset, bytes(flipped))
    other_term = bytearray(good)
    other_term[15] ^= 1  # the leader epoch: outside the batch crc, inside the sum
    refused(damage.start_offset, damage.end_offset, bytes(other_term))
    refused(damage.start_offset, damage.end_offset, good[:-1])
    refused(damage.start_offset, damage.end_offset, b"")
    refused(damage.start_offset + 1, damage.end_offset, good)
    row = next(r for r in twin.rows if r.base == damage.start_offset)
    refused(row.end, damage.end_offset, good[len(row.data) :] + b"x")
    assert twin.log.repair_job(damage.start_offset, damage.end_offset, good)() == ()
    twin.check_reads()


def test_a_lost_sum_and_a_flipped_bit_together(twin: Twin) -> None:
    segment = twin.log._files.segments[0]
    twin.disk.remove(segment.log_path.replace(".log", ".sum"))
    twin.disk.flip_bit(segment.log_path, 100)
    twin.log = twin.open(twin.mark)
    with pytest.raises(DamagedRange) as found:
        twin.log.read_job(0, 10)()
    damage = found.value.damage
    good = range_bytes(twin, segment.base_offset, segment.end_offset)
    assert damage.start_offset == 0
    left = twin.log.repair_job(0, segment.end_offset, good)()
    assert left == ()
    twin.check_reads()
    twin.sync()
    twin.reopen()
    twin.check_reads()


def test_a_lost_sum_is_mended_piece_by_piece(twin: Twin) -> None:
    segment = twin.log._files.segments[0]
    twin.disk.remove(segment.log_path.replace(".log", ".sum"))
    twin.disk.flip_bit(segment.log_path, 100)
    twin.log = twin.open(twin.mark)
    (damage,) = twin.log.scrub_job(1 << 30)().damaged
    start, steps = damage.start_offset, 0
    while start < damage.end_offset:
        piece = [r for r in twin.rows if start <= r.base < damage.end_offset]
        while sum(len(r.data) for r in piece) > 100_000:
            piece.pop()
        left = twin.log.repair_job(start, piece[-1].end, b"".join(r.data for r in piece))()
        start = left[0].start_offset if left else piece[-1].end
        steps += 1
        assert steps < 20
    assert steps > 2
    twin.check_reads()
    assert not twin.log.scrub_job(1 << 30)().damaged


def test_a_lost_index_and_a_flipped_bit_together(twin: Twin) -> None:
    segment = twin.log._files.segments[0]
    for suffix in (".index", ".time"):
        twin.disk.remove(segment.log_path.replace(".log", suffix))
    twin.disk.flip_bit(segment.log_path, 2 * CHUNK_BYTES + 9)
    twin.log = twin.open(twin.mark)
    (damage,) = twin.log.scrub_job(1 << 30)().damaged
    assert damage.end_offset == segment.end_offset  # nothing tells where batches are behind it
    good = range_bytes(twin, damage.start_offset, damage.end_offset)
    assert twin.log.repair_job(damage.start_offset, damage.end_offset, good)() == ()
    twin.check_reads()


def test_a_read_error_is_damage_until_it_is_gone(twin: Twin) -> None:
    twin.log.read_job(0, 10)()
    twin.disk.odds = DiskOdds(cold_read=1_000_000)
    twin.disk.fail_reads(twin.log._files.segments[0].log_path)
    with pytest.raises(DamagedRange, match="cannot be read"):
        twin.log.read_job(0, 10)()
    twin.check_reads()


def test_damage_further_on_only_shortens_a_read(twin: Twin) -> None:
    twin.disk.flip_bit(twin.log._files.segments[0].log_path, 2 * CHUNK_BYTES)
    got = twin.read(0, 1 << 20)
    assert CHUNK_BYTES < len(got) <= 2 * CHUNK_BYTES
    assert twin.expected(0, 1 << 20).startswith(got)
