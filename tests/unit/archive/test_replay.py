"""Reading the archive and then the log."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from raftline.archive.live import Bounds, LiveLog, LogRange
from raftline.archive.replay import Replay, Stretch
from raftline.model.errors import Conflict, OffsetOutOfRange


class MadeAnew(LiveLog):
    """A log that was longer when it was looked at first."""

    def __init__(self) -> None:
        """Ask nobody."""

    def partition_bounds(self, topic: str, partition: int) -> Bounds:
        return Bounds(partition, 0, 3)

    def read(self, piece: LogRange) -> Iterator[bytes]:
        raise OffsetOutOfRange(piece.topic, piece.start, 0, 3)


def nowhere() -> Path:
    raise AssertionError("no archive is needed")


def no_gap(start: int, end: int, reason: str) -> None:
    raise AssertionError((start, end, reason))


def test_a_topic_that_was_made_anew_meanwhile_is_told() -> None:
    """The same two questions were asked for ever."""
    replay = Replay(MadeAnew(), nowhere, no_gap)
    wanted = Stretch("orders", "id", 2, 7, 9)
    with pytest.raises(Conflict, match=r"orders/2@7 is gone: the log ends at 3"):
        list(replay.batches(wanted))
