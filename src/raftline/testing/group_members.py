"""Members of a stream group in a simulated run: they join, beat, commit, leave and crash.

A member is a careful one: it stops reading when it has had no answer for a session, counted from
when it asked, and puts down what it is asked to give up before it says so. Whatever happens to the
nodes, no two members then read a partition at the same time.

What is checked (``check``)
    Two members never read one partition at once. Some time after the faults every partition has
    a reader again. A commit that was answered is what the group shows.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from raftline.model.groups import (
    Answer,
    Beat,
    CommitCursors,
    CursorsCommitted,
    GroupView,
    JoinGroup,
    LeaveGroup,
    MemberView,
    Offset,
    Request,
    ShowGroup,
)
from raftline.testing.checker import Violation
from raftline.testing.clients import Clients

if TYPE_CHECKING:
    from raftline.testing.history import Op

GROUPS = "GROUPS"  # the name under which violations are told
SESSION_MS = 3_000
BEAT_MS = 1_000.0
OUT_OF_GROUP = ("unknown_member", "fenced_member", "unknown_group")


class Reading(msgspec.Struct):
    """One member reads one partition for a while."""

    partition: int
    member: str
    start_ms: float
    end_ms: float  # at most: without another answer it stops here

    def is_disturbed_by(self, later: "Reading") -> bool:
        """Say whether another member reads at the same time."""
        return later.member != self.member and later.start_ms < self.end_ms


class _Member:
    __slots__ = ("busy", "generation", "name", "reads", "revoke")

    def __init__(self, name: str) -> None:
        self.name = name
        self.generation = -1  # it must join
        self.busy = False
        self.reads: dict[int, Reading] = {}
        self.revoke: list[int] = []


class GroupMembers:
    """All members of one group."""

    def __init__(
        self, clients: Clients, rng: random.Random, group: str, topic: str, count: int
    ) -> None:
        self._clients = clients
        self._rng = rng
        self._group = group
        self._topic = topic
        self._members = [_Member(f"m{i}") for i in range(count)]
        self._calm = False
        self._stopped_ms = -1.0
        self.readings: list[Reading] = []
        self.committed: dict[int, int] = {}  # by partition: the last commit with all well
        self.shown: dict[int, int] | None = None

    def start(self) -> None:
        """Let every member begin, not all at once."""
        for member in self._members:
            self._later(member, self._rng.random() * 3_000.0)

    def _later(self, member: _Member, delay_ms: float) -> None:
        self._clients.world.after(delay_ms, lambda: self._step(member))

    # One step of a member

    def _step(self, member: _Member) -> None:
        if self._stopped_ms >= 0 or member.busy:
            return
        rng = self._rng
        dice = 99 if self._calm else rng.randrange(100)
        if member.generation < 0:
            topics = (self._topic,)
            self._ask(member, JoinGroup(self._group, topics, member.name, session_ms=SESSION_MS))
        elif dice < 4:
            self._leave(member)
        elif dice < 8:  # it crashed: nobody hears of it
            self._forget(member)
            self._later(member, rng.random() * 3.0 * SESSION_MS)
        elif dice < 20 and member.reads:
            self._commit(member)
        else:
            self._beat(member)

    def _beat(self, member: _Member) -> None:
        given_up = member.revoke if self._calm or self._rng.randrange(2) else []
        self._put_down(member, given_up)
        places = {self._topic: sorted(given_up)} if given_up else {}
        self._ask(member, Beat(self._group, member.name, member.generation, places))

    def _leave(self, member: _Member) -> None:
        request = LeaveGroup(self._group, member.name, member.generation)
        self._forget(member)
        self._ask(member, request)

    def _commit(self, member: _Member) -> None:
        offsets = {p: Offset(self._rng.randrange(1 << 20)) for p in sorted(member.reads)}
        request = CommitCursors(self._group, member.name, member.generation, {self._topic: offsets})

        def taken(answer: Answer) -> None:
            if self._calm and isinstance(answer, CursorsCommitted) and not answer.refused:
                for partition, offset in offsets.items():
                    self.committed[partition] = offset.offset

        self._ask(member, request, taken)

    def _ask(
        self, member: _Member, request: Request, also: Callable[[Answer], None] | None = None
    ) -> None:
        host = self._clients.some_host()
        op = self._clients.invoke("group", host, self._group, 0)
        member.busy = True

        def taken(op: "Op", answer: Answer) -> None:
            if isinstance(answer, MemberView):
                self._take(member, op.invoked_ms, answer)
            if also is not None:
                also(answer)

        def ended(op: "Op") -> None:
            member.busy = False
            if op.error.partition(":")[0] in OUT_OF_GROUP:
                self._forget(member)
            self._later(member, BEAT_MS * (0.6 + self._rng.random() * 0.8))

        self._clients.call(
            host,
            op,
            lambda node, answer: node.group(request, int(op.timeout_ms), answer),
            taken,
            ended,
        )

    # What it reads

    def _take(self, member: _Member, asked_ms: float, view: MemberView) -> None:
        """Read what the answer gives; what was put down is not taken up again."""
        until_ms, now_ms = asked_ms + SESSION_MS, self._clients.world.now_ms
        member.generation = view.generation
        member.revoke = list(view.revoke.get(self._topic, ()))
        own = view.partitions.get(self._topic, [])
        self._put_down(member, [p for p in member.reads if p not in own and p not in member.revoke])
        for partition in own:
            reading = member.reads.get(partition)
            if reading is None or reading.end_ms < now_ms:
                reading = Reading(partition, member.name, now_ms, until_ms)
                member.reads[partition] = reading
                self.readings.append(reading)
        for reading in member.reads.values():
            if reading.end_ms >= now_ms:
                reading.end_ms = max(reading.end_ms, until_ms)

    def _put_down(self, member: _Member, partitions: list[int]) -> None:
        now_ms = self._clients.world.now_ms
        for partition in partitions:
            reading = member.reads.pop(partition, None)
            if reading is not None:
                reading.end_ms = min(reading.end_ms, now_ms)

    def _forget(self, member: _Member) -> None:
        self._put_down(member, list(member.reads))
        member.generation, member.revoke = -1, []

    # The end

    def calm(self) -> None:
        """Nobody leaves or crashes any more."""
        self._calm = True

    def commit_all(self) -> None:
        """Have every member commit what it reads, then ask what the group shows."""
        for member in self._members:
            if member.reads and not member.busy and member.generation >= 0:
                self._commit(member)

    def show(self) -> None:
        """Ask for the cursors."""
        host = self._clients.some_host()
        op = self._clients.invoke("group", host, self._group, 0)

        def taken(op: "Op", answer: Answer) -> None:
            del op
            if isinstance(answer, GroupView):
                self.shown = {row.partition: row.offset for row in answer.partitions}

        self._clients.call(
            host,
            op,
            lambda node, answer: node.group(ShowGroup(self._group), int(op.timeout_ms), answer),
            taken,
        )

    def stop(self) -> None:
        """Let nobody do anything more."""
        self._stopped_ms = self._clients.world.now_ms

    def check(self, partitions: int) -> list[Violation]:
        """Say what was broken; nothing where they never came to their end."""
        found: list[Violation] = []
        if self._stopped_ms < 0:
            return found
        for partition in range(partitions):
            readings = sorted(
                (r for r in self.readings if r.partition == partition), key=lambda r: r.start_ms
            )
            last: Reading | None = None
            for reading in readings:
                if last is not None and last.is_disturbed_by(reading):
                    found.append(Violation(GROUPS, _both(self._group, last, reading)))
                if last is None or reading.end_ms > last.end_ms:
                    last = reading
            if last is None or last.end_ms < self._stopped_ms:
                text = f"nobody of group {self._group} reads partition {partition} in the end"
                found.append(Violation(GROUPS, text))
        for partition, offset in self.committed.items():
            if self.shown is not None and self.shown.get(partition) != offset:
                found.append(
                    Violation(
                        GROUPS,
                        f"group {self._group} committed {offset} for partition {partition} and "
                        f"shows {self.shown.get(partition)}",
                    )
                )
        return found


def _both(group: str, one: Reading, other: Reading) -> str:
    return (
        f"partition {one.partition} of group {group} is read by {one.member} until "
        f"{one.end_ms:.0f} and by {other.member} from {other.start_ms:.0f}"
    )
