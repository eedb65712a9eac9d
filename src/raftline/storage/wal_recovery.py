"""Recovery: what the WAL says of every shard, and which shards it can no longer speak for.

Only the newest run that is COMPLETE counts (storage/wal_format.py): an opening copies all that is
live into files of its own and says COMPLETE when the copy is synced; before that the run before it
holds everything, after it nothing older matters.

Torn or damaged?
    Groups are written one after another, each synced before the next. What a crash tore is
    therefore the end of the run: groups above the greatest ``synced_through`` any header
    states. It is cut, whole groups at a time. A group at or below that mark was synced, and
    whoever does not find it whole has found damage:

    - a payload does not verify: that entry or vote is lost, its shard is damaged;
    - a group header is lost, but all its frames verify: nothing is lost;
    - frames are lost with their headers: every shard is in doubt. A shard leaves doubt when
      later frames show that nothing of it is missing: an entry of the same term as the one
      before it, which was there before the loss (or one right after the checkpoint) for its
      entries, a hard state for its vote.

    Damage below the checkpoint, or voided by later frames, harms nobody.

    Bytes that the disk does not give are never the mark of a torn write: the groups in them may
    have been synced, and with them the headers that say so. A group that has a part in such
    bytes, or that is followed by them, is not cut; and where the next group would begin in them
    every shard is in doubt.

What stays undetected
    The last group of a run has no later header that says it was synced. If just that group is
    damaged *and* nothing was written after it, it looks torn and is cut. The window is kept
    small: an idle WAL writes an empty, synced group (``Wal.mark_group``), and so do a finished
    recovery and a clean stop. What is left is the group in flight when the power went, damaged
    at rest on top of the crash, while the other members of its quorum fail too. ``torn`` names
    what was cut, for the log. A leader that was told of such an entry and still leads says so
    with its next heartbeat, and the replica leaves service (node/links.py, K4). A newest file
    removed by hand is not noticed either; a removed file in the middle is, and so is a WAL
    removed as a whole.
"""

from collections.abc import Iterator

import msgspec
from crc32c import crc32c

from raftline.raft.rpc import Entry, HardState
from raftline.storage.wal_format import (
    COMPLETE,
    COPY,
    DAMAGED,
    ENTRY,
    FIRST_POSITION,
    GROUP_HEADER_BYTES,
    HARD_STATE,
    REMOVED,
    RESET,
    SECTOR_BYTES,
    Frame,
    GroupHeader,
    decode_frames,
    decode_vote,
)
from raftline.storage.wal_scan import FileScan, GroupFound

Mark = tuple[int, int]
"""(index, term) a checkpoint covers."""


class RecoveredShard(msgspec.Struct):
    """What the WAL holds of one shard above its checkpoint."""

    hard_state: HardState  # all zero if the WAL has none: then the checkpoint's counts
    entries: list[Entry]  # contiguous, from the checkpoint's index + 1 (or ``base``'s)
    base: Mark  # the log starts after it
    damage: str = ""  # why the shard's vote and log cannot be trusted; never vote with them
    is_removed: bool = False  # its last frame says it was removed


class Recovered(msgspec.Struct):
    """What recovery found."""

    shards: dict[int, RecoveredShard]
    torn: str = ""  # what was cut as a torn tail
    group_count: int = 0
    sequence_end: int = 1  # the next group's
    damages: list[str] = []  # each damaged place, whether or not it harmed a shard
    unfinished: list[str] = []  # files of openings that never ended: nothing in them counts

    @property
    def is_sure(self) -> bool:
        """Say whether a shard that is not among these was never in the WAL, or was removed."""
        return self.group_count > 0 and not self.damages


def recover(scans: list[FileScan], checkpoints: dict[int, Mark]) -> Recovered:
    """Read the newest complete run."""
    run_scans = _complete_run(scans)
    recovery = _Recovery(run_scans, checkpoints)
    if run_scans:
        recovery.replay()
        complete = max(scan.run() for scan in run_scans)
        recovery.put_aside([scan.path for scan in scans if scan.run() > complete])
    elif checkpoints:
        recovery.doubt_all("the WAL is missing, or no group of it can be read")
    return recovery.finish()


def _complete_run(scans: list[FileScan]) -> list[FileScan]:
    """Return the files of the newest run with a COMPLETE group."""
    complete = 0
    runs: dict[int, list[FileScan]] = {}
    for scan in scans:
        runs.setdefault(scan.run(), []).append(scan)
    for run in sorted(runs, reverse=True):
        groups = (found for scan in runs[run] for found in scan.groups())
        if any(found.header.flags & COMPLETE for found in groups):
            complete = run
            break
    if not complete:
        return []
    # A file whose header and first group are both damaged lies between its run's other files, or
    # after them if what it holds cannot be read.
    return [scan for scan in scans if scan.run() == complete or _is_lost(scan, complete, scans)]


def _is_lost(scan: FileScan, run: int, scans: list[FileScan]) -> bool:
    if scan.run():
        return False
    newer = [other.run() for other in scans if other.generation > scan.generation]
    hidden = run in newer or scan.is_unread(FIRST_POSITION, FIRST_POSITION + GROUP_HEADER_BYTES)
    return scan.generation >= run and hidden


class _Recovery:
    __slots__ = (
        "_checkpoints", "_doubt", "_recovered", "_scans", "_shards", "_stated", "_synced_through",
    )  # fmt: skip

    def __init__(self, scans: list[FileScan], checkpoints: dict[int, Mark]) -> None:
        self._scans = scans
        self._checkpoints = checkpoints
        self._shards = {shard: _Shard(*mark) for shard, mark in sorted(checkpoints.items())}
        self._doubt = ""
        self._synced_through: int | None = None
        self._stated = 0  # the greatest synced_through met so far
        self._recovered = Recovered({})

    def replay(self) -> None:
        """Go through all groups in order."""
        expected: int | None = None
        end = 0  # of the last group taken, in its file
        last: FileScan | None = None
        for scan, found in self._groups_ahead():
            header = found.header
            if expected is not None and header.sequence < expected:
                continue  # bytes of a message that look like a group of ours
            if self._is_gap(scan, found, expected):
                missing = header.sequence - 1 if expected is None else expected
                is_unread = self._is_unread(last, end, scan, found.position)
                if self._synced() < missing and not is_unread:
                    self._cut(scan, found.position, missing)
                    continue  # written after a torn group, so never synced
                start = end if scan is last else SECTOR_BYTES
                if not self._salvage(scan, start, found, expected):
                    self._damaged(scan, start, f"groups before {header.sequence} are lost")
            if not self._take(scan, found):
                self._cut(scan, found.position, header.sequence)
                expected = header.sequence
                continue
            expected = header.sequence + 1
            last, end = scan, found.end
        self._recovered.sequence_end = expected or 1
        self._look_behind(last, end)

    def doubt_all(self, reason: str) -> None:
        """Frames of unknown shards are lost."""
        self._doubt = self._doubt or reason
        self._recovered.damages.append(reason)
        for shard in self._shards.values():
            shard.doubt(reason)

    def put_aside(self, unfinished: list[str]) -> None:
        """Note the files of openings that never ended."""
        self._recovered.unfinished = unfinished

    def finish(self) -> Recovered:
        """Return the result."""
        for number, shard in self._shards.items():
            self._recovered.shards[number] = shard.finish(number in self._checkpoints)
        return self._recovered

    def _groups(self) -> Iterator[tuple[FileScan, GroupFound]]:
        for scan in self._scans:
            for found in scan.groups():
                yield scan, found

    def _groups_ahead(self) -> Iterator[tuple[FileScan, GroupFound]]:
        """Yield each group after having looked at the next one's ``synced_through``."""
        held: tuple[FileScan, GroupFound] | None = None
        for scan, found in self._groups():
            self._stated = max(self._stated, found.header.synced_through)
            if held is not None:
                yield held
            held = (scan, found)
        if held is not None:
            yield held

    def _is_gap(self, scan: FileScan, found: GroupFound, expected: int | None) -> bool:
        if expected is not None:
            return found.header.sequence != expected
        return not found.follows or scan is not self._scans[0]

    def _synced(self) -> int:
        """Return the greatest ``synced_through`` stated anywhere. Looked for only on trouble."""
        if self._synced_through is None:
            stated = (found.header.synced_through for _, found in self._groups())
            self._synced_through = max(stated, default=0)
        return self._synced_through

    @staticmethod
    def _is_unread(last: FileScan | None, end: int, scan: FileScan, position: int) -> bool:
        """Say whether a group between the last one taken and ``position`` could not be read."""
        if scan is last:
            return scan.is_unread(end, position)
        is_end = last is not None and last.is_unread(end, end + GROUP_HEADER_BYTES)
        return is_end or scan.is_unread(FIRST_POSITION, position)

    def _look_behind(self, last: FileScan | None, end: int) -> None:
        """Doubt every shard if the next group would begin where the disk gives nothing."""
        after = [scan for scan in self._scans if last is None or scan.generation > last.generation]
        places = [(scan, FIRST_POSITION) for scan in after]
        if last is not None:
            places.insert(0, (last, end))
        for scan, position in places:
            if scan.is_unread(position, position + GROUP_HEADER_BYTES):
                self._damaged(scan, position, "what comes next cannot be read")
                return

    def _cut(self, scan: FileScan, position: int, sequence: int) -> None:
        if not self._recovered.torn:
            self._recovered.torn = f"{scan.path} at {position}: group {sequence} was never synced"

    def _damaged(self, scan: FileScan, position: int, what: str) -> None:
        self.doubt_all(f"{scan.path} at {position}: {what}")

    def _salvage(self, scan: FileScan, start: int, found: GroupFound, expected: int | None) -> bool:
        """Take the frames of one group whose header is lost, if all of them verify."""
        if expected is None or found.header.sequence != expected + 1 or found.position <= start:
            return False
        body = scan.read(start + GROUP_HEADER_BYTES, found.position - start - GROUP_HEADER_BYTES)
        frames, end = decode_frames(body, scan.seed)
        if len(body) - end >= SECTOR_BYTES or any(body[end:]):
            return False
        self._recovered.damages.append(f"{scan.path} at {start}: a group header is lost")
        self._apply(scan, start + GROUP_HEADER_BYTES, body, frames)
        return True

    def _take(self, scan: FileScan, found: GroupFound) -> bool:
        """Replay a group; say False if it is torn."""
        header = found.header
        start = found.position + GROUP_HEADER_BYTES
        body = scan.read(start, header.body_bytes)
        frames, end = decode_frames(body, scan.seed)
        whole = end == header.body_bytes and len(frames) == header.frame_count
        if (
            header.sequence > self._stated
            and self._is_torn(header, body, frames, whole=whole)
            and not scan.is_unread(found.position, found.end + GROUP_HEADER_BYTES)
        ):
            return False
        self._recovered.group_count += 1
        self._apply(scan, start, body, frames)
        if not whole:
            self._damaged(scan, start + end, f"a part of group {header.sequence} is lost")
        return True

    def _is_torn(
        self, header: GroupHeader, body: bytes, frames: list[Frame], *, whole: bool
    ) -> bool:
        return (not whole or _has_damage(body, frames)) and self._synced() < header.sequence

    def _apply(self, scan: FileScan, start: int, body: bytes, frames: list[Frame]) -> None:
        for kind, entry_kind, number, index, term, at, length, crc in frames:
            plain = kind & ~COPY
            shard = self._shards.get(number)
            if shard is None:
                shard = self._shards[number] = _Shard(0, 0)
                shard.doubt(self._doubt)
            if plain == ENTRY:
                voids = kind == ENTRY
                if index <= shard.base_index:
                    shard.below(index, term, voids=voids)
                    continue
                data = body[at : at + length]
                if crc32c(data) == crc:
                    shard.entry(Entry(index, term, entry_kind, data, crc), voids=voids)
                else:
                    shard.lost_entry(index, self._lost(scan, start + at, number), voids=voids)
                continue
            payload = body[at : at + length]
            if crc32c(payload) != crc:
                shard.lost_mark(self._lost(scan, start + at, number), is_note=plain == DAMAGED)
            elif plain == HARD_STATE:
                shard.vote(HardState(term, decode_vote(payload), index))
            elif plain == RESET:
                shard.reset(index, term, voids=kind == RESET)
            elif plain == DAMAGED:
                shard.damage = payload.decode()
            elif plain == REMOVED:
                self._shards[number] = gone = _Shard(*self._checkpoints.get(number, (0, 0)))
                gone.is_removed = True

    def _lost(self, scan: FileScan, position: int, shard: int) -> str:
        reason = f"{scan.path} at {position}: a frame of shard {shard} does not verify"
        self._recovered.damages.append(reason)
        return reason


def _has_damage(body: bytes, frames: list[Frame]) -> bool:
    view = memoryview(body)
    return any(crc32c(view[at : at + length]) != crc for *_, at, length, crc in frames)


class _Shard:
    """One shard as far as it is replayed."""

    __slots__ = (
        "_base_seen", "_entries", "_entry_doubt", "_known_last", "_last", "_lost", "_reset",
        "base_index", "base_term", "damage", "hard_doubt", "hard_state", "is_removed",
    )  # fmt: skip

    def __init__(self, base_index: int, base_term: int) -> None:
        self.base_index = base_index
        self.base_term = base_term
        self._base_seen: int | None = None  # term of the entry the WAL has at base_index
        self._entries: dict[int, Entry] = {}
        self._lost: dict[int, str] = {}  # index -> why it is unreadable
        self._last = base_index
        self._reset = (0, 0)
        self.hard_state = HardState(0, 0, 0)
        self._entry_doubt = ""
        self._known_last = base_index  # last entry that was there before the doubt
        self.hard_doubt = ""
        self.damage = ""
        self.is_removed = False

    def doubt(self, reason: str) -> None:
        """Frames of this shard may be missing here."""
        if not self._entry_doubt:
            self._entry_doubt = reason
            self._known_last = self._last
        self.hard_doubt = self.hard_doubt or reason

    def vote(self, hard_state: HardState) -> None:
        """Take a hard state."""
        self.hard_state = hard_state
        self.hard_doubt = ""
        self.is_removed = False

    def below(self, index: int, term: int, *, voids: bool) -> None:
        """See an entry the checkpoint covers."""
        self.is_removed = False
        if voids:
            if self._last > self.base_index:
                self._void(index)
            self._entry_doubt = ""
            if index < self.base_index:
                self._base_seen = None
        if index == self.base_index:
            self._base_seen = term

    def entry(self, entry: Entry, *, voids: bool) -> None:
        """Take an entry."""
        index = entry.index
        if voids:
            if index <= self._last:
                self._void(index)
            if self._entry_doubt:
                self._weigh(entry)
        self._place(index)
        self._entries[index] = entry
        self._lost.pop(index, None)

    def lost_entry(self, index: int, reason: str, *, voids: bool) -> None:
        """Note an entry that cannot be read."""
        if voids:
            self._void(index)
            self._known_last = min(self._known_last, index - 1)
        elif index in self._entries:
            return  # an unreadable copy of what is there
        self._place(index)
        self._lost[index] = reason

    def lost_mark(self, reason: str, *, is_note: bool) -> None:
        """Note a hard state or damage note that cannot be read."""
        if is_note:
            self.damage = self.damage or reason
        else:
            self.hard_doubt = reason

    def reset(self, index: int, term: int, *, voids: bool) -> None:
        """Start the log after ``index``."""
        self.is_removed = False
        self._reset = (index, term)
        if not voids:
            return
        self._entries.clear()
        self._lost.clear()
        self._base_seen = None
        self._entry_doubt = ""
        self._last = max(index, self.base_index)

    def finish(self, has_checkpoint: bool) -> RecoveredShard:  # noqa: FBT001
        """Return what is left."""
        base = (self.base_index, self.base_term) if has_checkpoint else self._reset
        entries: list[Entry] = []
        damage = self.damage or self._entry_doubt or self.hard_doubt
        if not has_checkpoint or self._base_seen in (None, self.base_term):
            index = base[0] + 1
            while index in self._entries:
                entries.append(self._entries[index])
                index += 1
            if index <= self._last:
                damage = damage or self._lost.get(index, f"entry {index} is not in the WAL")
        # Else the log parted from the checkpoint: a snapshot was installed, its reset not synced.
        return RecoveredShard(self.hard_state, entries, base, damage, self.is_removed)

    def _weigh(self, entry: Entry) -> None:
        """Leave doubt if nothing can be missing before ``entry``.

        That is so if the entry before it was there before the frames were lost and has its term:
        had it been replaced in between, all that follows would be of a later term.
        """
        before = self._entries.get(entry.index - 1) if entry.index - 1 <= self._known_last else None
        is_next = before is not None and before.term == entry.term
        if is_next or entry.index == self.base_index + 1:
            self._entry_doubt = ""
        self._known_last = min(self._known_last, entry.index - 1)

    def _place(self, index: int) -> None:
        self.is_removed = False
        self._last = max(self._last, index)

    def _void(self, index: int) -> None:
        """Drop entries from ``index`` on."""
        for above in range(max(index, self.base_index + 1), self._last + 1):
            self._entries.pop(above, None)
            self._lost.pop(above, None)
        self._last = max(self.base_index, index - 1)
