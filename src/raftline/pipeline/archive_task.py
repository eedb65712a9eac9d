"""What one task of the archive job does on an executor: read a range, write its files."""

from pathlib import Path

import msgspec

from raftline.archive.manifest import ArchiveFile
from raftline.model.errors import OffsetOutOfRange


class Piece(msgspec.Struct, frozen=True):
    """One range to archive, and where to."""

    servers: str
    root: str
    topic: str
    partition: int
    start: int
    end: int


class Written(msgspec.Struct, frozen=True):
    """What became of a piece. ``is_lost``: the log no longer held all of it."""

    piece: Piece
    files: list[ArchiveFile]
    is_lost: bool = False


def write_piece(piece: Piece) -> Written:
    """Archive one range. A task may run twice: each run has files of its own, one set counts."""
    from raftline.archive.live import LiveLog, LogRange
    from raftline.archive.writer import write_range

    wanted = LogRange(piece.topic, piece.partition, piece.start, piece.end)
    place = (Path(piece.root), piece.topic, piece.partition, piece.start, piece.end)
    with LiveLog(piece.servers) as log:
        try:
            return Written(piece, write_range(*place, log.read_arrow(wanted)))
        except OffsetOutOfRange:  # trimmed while it was read: planned again from what is left
            return Written(piece, [], is_lost=True)
