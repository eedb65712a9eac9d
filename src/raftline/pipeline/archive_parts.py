"""One partition of an archive while the job works on it: what is planned, what is committed.

Invariants
    J1  Ranges are planned from the end of the newest manifest, so a job that is run again goes on
        where the last one came to: nothing twice, nothing left out.
    J2  Only the unbroken beginning of a round is committed; the rest is planned again.
    J4  What the log lost before it could be archived is written down as a gap.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from raftline.archive import manifest as manifests
from raftline.archive.layout import partition_folder
from raftline.archive.manifest import ArchiveFile, Gap, Manifest, ManifestMoved
from raftline.client import clock
from raftline.model.errors import Conflict
from raftline.model.names import place
from raftline.pipeline.archive_task import Piece, Written

if TYPE_CHECKING:
    from raftline.archive.live import Bounds, LiveLog

RANGE_BYTES = 192 << 20  # of stored batches in one task, about
RANGE_MESSAGES_MIN, RANGE_MESSAGES_MAX = 1_000, 1_000_000
COMMITS_MAX = 10
TOO_LATE = "removed from the log before it was archived"
EMPTY = "holds no messages"


class Target(msgspec.Struct, frozen=True):
    """A topic to archive and the directory it goes to."""

    topic: str
    topic_id: str
    root: Path
    is_marked: bool  # this is the archive that the topic's retention waits for


class Tally(msgspec.Struct):
    """What a job did so far."""

    messages: int = 0
    files: int = 0
    bytes: int = 0
    lost: int = 0  # offsets that were gone before they could be archived
    rounds: int = 0


class Part:
    """What is archived of a partition, and up to where it shall be."""

    __slots__ = (
        "_gaps",
        "_manifest",
        "_step",
        "end",
        "marked_end",
        "next",
        "partition",
        "target",
    )

    def __init__(self, target: Target, partition: int, end: int) -> None:
        self.target = target
        self.partition = partition
        self.end = end
        self.next = 0  # first offset that is not archived
        self.marked_end = 0  # what the cluster was told
        self._manifest: Manifest | None = None
        self._gaps: list[Gap] = []  # not committed yet
        self._step = RANGE_MESSAGES_MIN

    @property
    def name(self) -> str:
        """Return its name for people."""
        return place(self.target.topic, self.partition)

    @property
    def is_done(self) -> bool:
        """Say whether there is nothing left to archive."""
        return self.next >= self.end and not self._gaps

    @property
    def archived_end(self) -> int:
        """Return the end of what counts as archived."""
        return self._manifest.end if self._manifest is not None else 0

    def look(self, log: "LiveLog", bounds: "Bounds") -> None:
        """Find out where to go on. J1, J4.

        Raises:
            Conflict: the archive is of another topic or cluster.
        """
        target = self.target
        self._manifest = manifests.load(target.root, target.topic, self.partition)
        self._gaps = []
        self.next = bounds.log_start
        if self._manifest is not None:
            self._go_on(self._manifest, bounds)
        if self.next < self.end:
            size = log.message_bytes(target.topic, self.partition, self.next)
            step = int(RANGE_BYTES / size)
            self._step = min(max(step, RANGE_MESSAGES_MIN), RANGE_MESSAGES_MAX)

    def piece(self, servers: str, start: int) -> Piece:
        """Return the range that begins at an offset."""
        end = min(start + self._step, self.end)
        target = self.target
        return Piece(servers, str(target.root), target.topic, self.partition, start, end)

    def take(self, written: Sequence[Written], tally: Tally) -> int:
        """Make what was written count, as far as it is unbroken; return the offsets gained. J2.

        Raises:
            ManifestMoved: another job was faster; what was written does not count, and goes when
                the archive is optimized.
        """
        files: list[ArchiveFile] = []
        gaps, begun = list(self._gaps), self.next
        unused = sorted(written, key=lambda one: one.piece.start)
        while unused and unused[0].piece.start == self.next and not unused[0].is_lost:
            one = unused.pop(0)
            files += one.files
            if not one.files:
                gaps.append(Gap(one.piece.start, one.piece.end, EMPTY))
            self.next = one.piece.end
        self._remove(unused)
        if files or gaps:
            self._commit(files, gaps)
        tally.files += len(files)
        tally.messages += sum(file.count for file in files)
        tally.bytes += sum(file.bytes for file in files)
        tally.lost += sum(gap.end - gap.start for gap in gaps if gap.reason == TOO_LATE)
        return self.next - begun

    def _go_on(self, manifest: Manifest, bounds: "Bounds") -> None:
        if manifest.topic_id != self.target.topic_id:
            raise Conflict(
                f"{self.target.root} holds another topic that was called {self.target.topic!r}",
                "archive the new one elsewhere (--dir, archive_dir), or move the old files away",
            )
        if manifest.end > bounds.commit_end:
            raise Conflict(
                f"the archive of {self.name} reaches to offset {manifest.end}, its log only to"
                f" {bounds.commit_end}",
                "is this the right cluster? nothing was changed",
            )
        self.next = max(manifest.end, bounds.log_start)
        if manifest.end < bounds.log_start:
            self._gaps = [Gap(manifest.end, bounds.log_start, TOO_LATE)]

    def _commit(self, files: Sequence[ArchiveFile], gaps: Sequence[Gap]) -> None:
        """Append to the manifest. One that was only optimized meanwhile is as good."""
        self._check_there(files)
        reached = self.archived_end
        for _ in range(COMMITS_MAX):
            try:
                self._manifest = manifests.commit(self.target.root, self._after(files, gaps))
            except ManifestMoved:
                target = self.target
                self._manifest = manifests.load(target.root, target.topic, self.partition)
                if self.archived_end != reached:
                    raise
            else:
                self._gaps = []
                return
        raise ManifestMoved(self.name, self._manifest.version if self._manifest else 0)

    def _after(self, files: Sequence[ArchiveFile], gaps: Sequence[Gap]) -> Manifest:
        before, target = self._manifest, self.target
        if before is None:
            before = Manifest(
                topic=target.topic, topic_id=target.topic_id, partition=self.partition
            )
        return msgspec.structs.replace(
            before,
            version=before.version + 1,
            written_ms=clock.wall_ms(),
            files=(*before.files, *files),
            gaps=(*before.gaps, *gaps),
        )

    def _check_there(self, files: Sequence[ArchiveFile]) -> None:
        """Refuse to name files that are not there: workers wrote them elsewhere, or they went."""
        folder = partition_folder(self.target.root, self.target.topic, self.partition)
        for file in files:
            path = folder / file.path
            if not path.exists() or path.stat().st_size != file.bytes:
                raise Conflict(
                    f"{path} was written and is not here",
                    "the archive must be one directory that the driver and every worker of Spark"
                    " share",
                )

    def _remove(self, unused: Sequence[Written]) -> None:
        folder = partition_folder(self.target.root, self.target.topic, self.partition)
        for file in (file for one in unused for file in one.files):
            (folder / file.path).unlink(missing_ok=True)
