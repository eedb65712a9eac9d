"""Finding damage before a reader does, and mending it with a peer's bytes.

The scrubber walks all written bytes in steps, verifying sums and batch CRCs again whatever was
verified before. Repair overwrites in place: where the damaged bytes are is known from the index,
what must be there from the sums, so bytes that do not fit are refused before anything is written,
and a repair that is torn by a crash leaves what was there before it: damage.
"""

from bisect import bisect_right

from crc32c import crc32c

from raftline.storage.batches import BadBatch, check_batches, whole_batches
from raftline.storage.files import Buffer
from raftline.storage.log_files import LogFiles
from raftline.storage.log_words import (
    CHUNK_BYTES,
    Damage,
    DamagedRange,
    NotRepaired,
    ScrubResult,
)
from raftline.storage.segment import Segment
from raftline.storage.sums import chunk_count

SCRUB_STEP_BYTES = 1 << 20


def scrub(files: LogFiles, bytes_max: int) -> ScrubResult:
    """Verify about ``bytes_max`` bytes from where the last step ended. The lane keeps the place."""
    done = 0
    damaged: list[Damage] = []
    while done < bytes_max:
        first = files.segments[0].base_offset if files.segments else files.written_end
        offset = max(files.scrub_position, first)
        if offset >= files.written_end:  # also where everything was trimmed
            files.scrub_position = 0
            return ScrubResult(done, tuple(damaged), wrapped=True)
        want = min(SCRUB_STEP_BYTES, bytes_max - done)
        try:
            view, _, stop = files.read(offset, want, files.written_end)
        except DamagedRange as error:
            damaged.append(error.damage)
            stop = max(error.end_offset, offset + 1)
            view = b""
        done += max(len(view), 1)
        files.scrub_position = stop
    return ScrubResult(done, tuple(damaged), wrapped=False)


def repair(files: LogFiles, start: int, end: int, good: Buffer) -> tuple[Damage, ...]:
    """Overwrite ``[start, end)`` with verified bytes; return what is still damaged in it.

    ``start`` is where a reported damage starts. ``good`` may be the first part of it only (then
    ``end`` is where these bytes end); go on from where the returned damage starts, or from ``end``.

    Raises:
        NotRepaired: the bytes are unsound or cannot be what was there. Nothing was written.
    """
    segment = files.segment_of(start)
    if end > segment.end_offset:
        raise NotRepaired(f"[{start}, {end}) is more than the segment up to {segment.end_offset}")
    boundaries = _check_good(start, end, good)
    position = _position_of(segment, start)
    _check_fit(segment, start, end, position, boundaries, len(good))
    chunks = range(position // CHUNK_BYTES, chunk_count(position + len(good)))
    chain = _chain_before(segment, chunks.start)
    for chunk in chunks:
        chain = _check_chunk(segment, chunk, position, good, chain)
    segment.overwrite(position, good)
    _learn_sums(segment, chunks, position, len(good))
    return _remaining(segment, start, end, position, len(good))


def _check_good(start: int, end: int, good: Buffer) -> dict[int, int]:
    """Return byte of each batch by its offset, after checking that the batches are sound."""
    try:
        items, used = whole_batches(memoryview(good), start, 0)
    except BadBatch as error:
        raise NotRepaired(f"the bytes offered are unsound: {error}") from error
    if used != len(good) or not items or items[-1][1] != end:
        raise NotRepaired(f"the bytes offered are not the batches of [{start}, {end})")
    boundaries: dict[int, int] = {}
    at = 0
    for item in items:
        boundaries[item[0]] = at
        at += item[2]
    boundaries[end] = at
    return boundaries


def _position_of(segment: Segment, start: int) -> int:
    try:
        first, position = segment.locate(start)
    except DamagedRange as error:
        text = f"where offset {start} begins is itself damaged: repair from {error.start_offset}"
        raise NotRepaired(text) from error
    if first != start:
        raise NotRepaired(f"no batch begins at offset {start}; one begins at {first}")
    return position


def _check_fit(
    segment: Segment, start: int, end: int, position: int, boundaries: dict[int, int], length: int
) -> None:
    """Refuse bytes whose batches begin elsewhere than the index says, or that end elsewhere."""
    offsets = segment.load().offsets
    row = bisect_right(offsets.offsets, start)
    while row < len(offsets.offsets) and offsets.offsets[row] <= end:
        at = boundaries.get(offsets.offsets[row])
        if at is None or position + at != offsets.positions[row]:
            raise NotRepaired(f"offset {offsets.offsets[row]} begins elsewhere in this log")
        row += 1
    is_last = end == segment.end_offset
    if is_last != (position + length == segment.size) or position + length > segment.size:
        raise NotRepaired(f"[{start}, {end}) has another length in this log")


def _check_chunk(
    segment: Segment, chunk: int, position: int, good: Buffer, chain: int | None
) -> int | None:
    """Refuse to put wrong bytes into a chunk: one that is right now, or that ``good`` completes.

    ``chain`` is the one at the start of the chunk, if known; returns the one at its end.
    """
    sums = segment.load().sums
    start = chunk * CHUNK_BYTES
    length = sums.length_of(chunk)
    now = segment.read_chunk(chunk)
    image = bytearray(now if now is not None else bytes(length))
    low, high = max(start, position), min(start + length, position + len(good))
    image[low - start : high - start] = good[low - position : high - position]
    is_covered = low == start and high == start + length
    if sums.known[chunk]:
        was_right = now is not None and crc32c(now) == sums.crcs[chunk]
        is_right = crc32c(image) == sums.crcs[chunk]
        if (was_right or is_covered) and not is_right:
            raise NotRepaired(f"bytes [{low}, {high}) do not give the recorded sum")
        return crc32c(image, sums.chains[chunk]) if is_right else None
    if not is_covered or chain is None:
        return None
    after = crc32c(image, chain)
    is_last = chunk + 1 == len(sums.crcs)
    if (is_last or sums.known[chunk + 1]) and after != sums.chain_after(chunk):
        raise NotRepaired(f"chunk {chunk} does not lead to the recorded chain")
    return after


def _chain_before(segment: Segment, chunk: int) -> int | None:
    """Return the chain at the start of a chunk, if the chunk before it is right."""
    if not chunk:
        return segment.chain
    sums = segment.load().sums
    data = segment.read_chunk(chunk - 1)
    if data is None or not sums.known[chunk - 1] or crc32c(data) != sums.crcs[chunk - 1]:
        return None
    return crc32c(data, sums.chains[chunk - 1])


def _learn_sums(segment: Segment, chunks: range, position: int, length: int) -> None:
    """Give chunks whose sum is lost the one of their repaired bytes.

    Only where all of a chunk was repaired and the chain leads up to it. That the chain also leads
    on from it was checked before the write, as far as it is known.
    """
    sums = segment.load().sums
    for chunk in chunks:
        start = chunk * CHUNK_BYTES
        is_covered = position <= start and start + sums.length_of(chunk) <= position + length
        before = _chain_before(segment, chunk)
        data = segment.read_chunk(chunk)
        if sums.known[chunk] or not is_covered or before is None or data is None:
            continue
        sums.crcs[chunk], sums.chains[chunk] = crc32c(data), before
        sums.known[chunk] = 1
        segment.sums_saved = min(segment.sums_saved, chunk)
        segment.dirty = True


def _remaining(
    segment: Segment, start: int, end: int, position: int, length: int
) -> tuple[Damage, ...]:
    tables = segment.load()
    if not tables.is_whole:
        segment.forget_tables()
    try:
        view = segment.read(position, length)
        check_batches(view, start)
    except DamagedRange as error:
        return (Damage(max(start, error.start_offset), error.end_offset, error.reason),)
    except BadBatch as error:
        return (Damage(start, end, str(error)),)
    return ()
