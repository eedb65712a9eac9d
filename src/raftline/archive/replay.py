"""The archive and then the log of a partition, as one: in order, no gap, no overlap. No JVM.

The log is read where it still holds a message, the archive where not. The log may be trimmed while
it is read: then the archive goes on at the very offset the log stopped at.

Invariants
    P1  A position only moves on; every message at or after the start comes once, in offset order.
    P2  What neither holds is never passed over in silence: written down as a gap it is told
        (``on_gap``), otherwise it is an error.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from raftline.archive.live import LiveLog, LogRange
from raftline.archive.manifest import Manifest
from raftline.archive.reader import Archive
from raftline.archive.unreadable import to_arrow_anyhow
from raftline.client.fenced import end_of
from raftline.model.errors import Conflict, OffsetOutOfRange
from raftline.model.names import place

LATE = "offsets before it were removed before there was an archive"


class Stretch(msgspec.Struct, frozen=True):
    """What is asked for: offsets [start, end) of a partition, times [from_ms, to_ms)."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    from_ms: int | None = None
    to_ms: int | None = None


OnGap = Callable[[int, int, str], None]


class Replay:
    """Reads stretches of one cluster's topics; the archive is opened when it is needed."""

    __slots__ = ("_archive", "_find", "_log", "_on_gap")

    def __init__(self, log: LiveLog, find_archive: Callable[[], Path], on_gap: OnGap) -> None:
        self._log = log
        self._find = find_archive
        self._on_gap = on_gap
        self._archive: Archive | None = None

    def batches(self, wanted: Stretch) -> Iterator[Any]:
        """Yield Arrow record batches. P1.

        Raises:
            Conflict: messages that neither has (P2), or an archive of another topic.
            InvalidArgument, NotFound: the archive is needed, and not named or not there.
        """
        position = wanted.start
        while position < wanted.end:
            log_start = self._log_start(wanted)
            if position < log_start:
                end = min(log_start, wanted.end)
                yield from self._archived(wanted, position, end)
                position = end
            else:
                reader = self._from_log(wanted, position)
                try:
                    while True:
                        position, found = next(reader)
                        yield from found
                except StopIteration:
                    return
                except OffsetOutOfRange:  # trimmed meanwhile
                    self._check_trimmed(wanted, position)

    def _check_trimmed(self, wanted: Stretch, position: int) -> None:
        """Refuse to go on in a log that holds less than it held: it is another topic's."""
        bounds = self._log.partition_bounds(wanted.topic, wanted.partition)
        if bounds.commit_end < wanted.end and bounds.log_start <= position:
            where = place(wanted.topic, wanted.partition, position)
            raise Conflict(
                f"{where} is gone: the log ends at {bounds.commit_end}, before at {wanted.end}",
                "the topic was deleted and made anew meanwhile: read it from its beginning",
            )

    def _log_start(self, wanted: Stretch) -> int:
        return self._log.partition_bounds(wanted.topic, wanted.partition).log_start

    def _from_log(self, wanted: Stretch, position: int) -> Iterator[tuple[int, list[Any]]]:
        """Yield the next position, and the rows before it."""
        topic, partition, end = wanted.topic, wanted.partition, wanted.end
        start = position
        if wanted.from_ms is not None:
            start = max(start, self._log.offset_at(topic, partition, wanted.from_ms))
        for batches in self._log.read(LogRange(topic, partition, start, end)):
            rows = to_arrow_anyhow(
                batches, topic, partition, start, end, wanted.from_ms, wanted.to_ms
            )
            yield end_of(batches), list(rows)

    def _archived(self, wanted: Stretch, start: int, end: int) -> Iterator[Any]:
        if self._archive is None:
            self._archive = Archive(self._find())
        manifest = self._archive.manifest(wanted.topic, wanted.partition)
        self._check(wanted, manifest, start, end)
        yield from self._archive.batches(
            wanted.topic,
            wanted.partition,
            start=start,
            end=end,
            from_ms=wanted.from_ms,
            to_ms=wanted.to_ms,
        )

    def _check(self, wanted: Stretch, manifest: Manifest | None, start: int, end: int) -> None:
        """Refuse or tell what is missing in [start, end). P2."""
        assert self._archive is not None
        where = place(wanted.topic, wanted.partition, start)
        if manifest is None:
            raise Conflict(
                f"{where} up to {end} was removed from the log and never archived in"
                f" {self._archive.root}",
                f"name the archive that has it, or read what is left: --from-offset {end}",
            )
        if manifest.topic_id != wanted.topic_id:
            raise Conflict(
                f"{self._archive.root} holds another topic that was called {wanted.topic!r}",
                "name the archive of this one",
            )
        if manifest.end < end:
            hole = place(wanted.topic, wanted.partition, max(start, manifest.end))
            raise Conflict(
                f"{hole} up to {end} was removed from the log before it was archived",
                f"read what comes after: --from-offset {end}; raftline pipeline archive"
                f" {wanted.topic} writes the gap down",
            )
        if start < manifest.start:
            self._on_gap(start, min(end, manifest.start), LATE)
        for gap in manifest.gaps:
            if gap.start < end and gap.end > start:
                self._on_gap(max(start, gap.start), min(end, gap.end), gap.reason)
