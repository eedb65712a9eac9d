"""Opening a log: from what lies on disk to the state a mark describes.

Everything is looked at before anything is changed. Then bytes and files above the mark are cut
(the WAL brings them back), and what the mark promises but the disk does not hold is reported as
damage: those offsets stay in the log, unreadable, until a peer's bytes repair them.
"""

import re

from raftline.storage.file_pool import FilePool
from raftline.storage.log_files import LogFiles
from raftline.storage.log_words import Damage, LogIdentity, LogMark, LogSettings
from raftline.storage.segment import Segment
from raftline.storage.side_file import HEADER_BYTES, MAGIC_SUM, decode_head

_SEGMENT_NAME = re.compile(r"(\d{20})\.(log|sum|index|time)")
_TRIM_NAME = re.compile(r"(\d{20})-(\d+)\.trim")
ASIDE = "aside"


def open_files(
    pool: FilePool,
    directory: str,
    identity: LogIdentity,
    settings: LogSettings,
    mark: LogMark | None,
) -> tuple[LogFiles, int, list[Damage]]:
    """Return the files as of ``mark``, the first offset kept, and what is damaged.

    Raises:
        ForeignLog: the directory holds files of another log or a newer format; nothing changed.
    """
    names = pool.disk.listdir(directory)
    _check_identity(pool, directory, identity, names)
    files = LogFiles(pool, directory, identity, settings)
    if mark is None:
        pool.disk.mkdir(directory)
        _move_aside(pool, directory, names)
        return files, 0, []
    trimmed = _trimmed(names, mark)
    wanted = _wanted(files, mark, trimmed)
    damage = [found for segment in wanted for found in _shortfall(pool, segment)]
    pool.disk.mkdir(directory)
    _remove_others(pool, directory, names, wanted)
    _cut_last(pool, wanted, damage)
    files.segments = tuple(wanted)
    position = wanted[-1].start_position + wanted[-1].size if wanted else 0
    files.begin(mark.log_end, position, mark.chain_end, mark.resets)
    return files, max(mark.log_start, min(trimmed, mark.log_end)), damage


def _check_identity(
    pool: FilePool, directory: str, identity: LogIdentity, names: list[str]
) -> None:
    for name in names:
        if name.endswith(".sum"):
            path = f"{directory}/{name}"
            try:
                data = pool.get(path).read_at(0, HEADER_BYTES)
            except OSError:
                continue  # it will be found damaged when it is needed
            decode_head(data, MAGIC_SUM, identity, path)
            pool.drop(path)


def _move_aside(pool: FilePool, directory: str, names: list[str]) -> None:
    """Put files of an unknown past where nothing reads them."""
    disk = pool.disk
    found = [n for n in names if _SEGMENT_NAME.fullmatch(n) or _TRIM_NAME.fullmatch(n)]
    if not found:
        return
    number = 1
    while disk.exists(f"{directory}/{ASIDE}-{number:04d}"):
        number += 1
    target = f"{directory}/{ASIDE}-{number:04d}"
    disk.mkdir(target)
    for name in found:
        pool.drop(f"{directory}/{name}")
        disk.rename(f"{directory}/{name}", f"{target}/{name}")
    disk.sync_dir(target)
    disk.sync_dir(directory)


def _trimmed(names: list[str], mark: LogMark) -> int:
    """Return the offset below which files were removed on purpose after the mark."""
    found = [match for name in names if (match := _TRIM_NAME.fullmatch(name))]
    return max((int(m[1]) for m in found if int(m[2]) == mark.resets), default=0)


def _wanted(files: LogFiles, mark: LogMark, trimmed: int) -> list[Segment]:
    """Return the segments the mark names, without those that were trimmed since."""
    segments: list[Segment] = []
    position = 0
    ends = [*((row.base_offset, row.chain) for row in mark.segments[1:]),
            (mark.log_end, mark.chain_end)]  # fmt: skip
    for row, (end_offset, chain_end) in zip(mark.segments, ends, strict=False):
        if end_offset <= trimmed:
            continue
        segment = files.new_segment(row.base_offset, position, row.chain)
        segment.restore(row, end_offset, chain_end)
        segments.append(segment)
        position += row.bytes
    if segments:
        segments[-1].restore_end(mark.chunk_crc, mark.chunk_chain)
    return segments


def _shortfall(pool: FilePool, segment: Segment) -> list[Damage]:
    """Return what is missing of a segment's .log file."""
    try:
        size = pool.get(segment.log_path).size() if segment.size else 0
    except OSError as error:
        reason = f"{segment.log_path} is missing: {error.strerror or error}"
        return [Damage(segment.base_offset, segment.end_offset, reason)]
    finally:
        pool.drop(segment.log_path)
    if size >= segment.size:
        return []
    segment.load()
    reason = f"the file is {size} bytes long, {segment.size} are durable by the checkpoint"
    return [segment.damaged(size, segment.size, reason).damage]


def _remove_others(pool: FilePool, directory: str, names: list[str], wanted: list[Segment]) -> None:
    """Remove segments the mark does not name: above it, or trimmed, or of before a reset."""
    kept = {path for segment in wanted for path in segment.paths}
    for name in names:
        path = f"{directory}/{name}"
        if _SEGMENT_NAME.fullmatch(name) and path not in kept:
            pool.drop(path)
            pool.disk.remove(path)


def _cut_last(pool: FilePool, wanted: list[Segment], damage: list[Damage]) -> None:
    if not wanted:
        return
    last = wanted[-1]
    if damage and damage[-1].end_offset == last.end_offset:
        last.seal()  # nothing is written behind damage
    elif last.size:
        file = pool.get(last.log_path)
        if file.size() > last.size:
            file.truncate(last.size)
