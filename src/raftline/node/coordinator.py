"""The coordinator: the leader of one coordination shard, for as long as it leads.

Requests of members are checked against the applied state. What changes the state is proposed, and
answered from the state at apply; a heartbeat that changes nothing is answered from memory.

What it does unasked is in group_upkeep.py.

Rules
    D1  Nothing is answered before this leader has applied all that was committed before it.
    D4  Nothing is answered later than an election timeout after a majority was asked and agreed
        that we lead: until then nobody else does, so no other leader has expired anybody.
"""

from collections.abc import Callable, Sequence

from raftline.machines.catalog.machine import CatalogMachine
from raftline.machines.groups import commands as c
from raftline.machines.groups.events import Committed, CursorsDropped, WasReset
from raftline.machines.groups.views import group_view, member_view, summary
from raftline.model.classic_groups import (
    ClassicBeat,
    ClassicJoin,
    ClassicLeave,
    ClassicSync,
    DescribeGroup,
)
from raftline.model.errors import NotReady, OverLimit, RaftlineError
from raftline.model.groups import (
    Advanced,
    AdvanceGroup,
    Answer,
    Beat,
    CommitCursors,
    CursorsCommitted,
    CursorsFetched,
    DeleteGroup,
    Done,
    DropCursors,
    FetchCursors,
    FindGroup,
    GroupList,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    Offset,
    Places,
    Polled,
    PollGroup,
    Request,
    ResetGroup,
    ShowGroup,
)
from raftline.model.limits import FORWARDED_MAX
from raftline.node.classic_groups import ClassicGroups
from raftline.node.classic_rounds import Result
from raftline.node.command_proposal import Applied, CommandProposal
from raftline.node.group_upkeep import GroupUpkeep
from raftline.node.groups_host import GroupsHost
from raftline.node.ports import Clock
from raftline.node.replica import Replica
from raftline.node.sessions import Sessions, advance, positions

ASK_AGAIN_MS = 50

Reply = Callable[[Answer | RaftlineError], None]


class Coordinator:
    """Answers for the groups of one shard."""

    def __init__(
        self,
        clock: Clock,
        replica: Replica,
        host: GroupsHost,
        catalog: Callable[[], CatalogMachine],
        *,
        election_ms: int,
    ) -> None:
        self.replica = replica
        self.term = replica.raft.term
        self._clock = clock
        self._host = host
        self._machine = host.machine
        self._election_ms = election_ms
        self._sessions = Sessions()
        self._upkeep = GroupUpkeep(clock, host, self._sessions, catalog)
        self._classic = ClassicGroups(clock, host.machine, self._now, self._propose_unasked)
        self._is_ready = self._is_closed = self._is_asking = False
        self._agreed_mono = float("-inf")  # when a majority was asked that agreed since
        self._waiting: list[tuple[Request, int, Reply]] = []

    def start(self) -> None:
        """Confirm that we lead and know all there is. D1."""
        self._ask_majority()

    def close(self) -> None:
        """Somebody else leads now."""
        self._is_closed = True
        self._upkeep.close()
        self._classic.close(self._gone())
        waiting, self._waiting = self._waiting, []
        for _, _, reply in waiting:
            reply(self._gone())

    def _gone(self) -> RaftlineError:
        return NotReady(f"{self._host.name} has a new leader")  # tried again there

    def _ask_majority(self) -> None:
        if self._is_closed or self._is_asking:
            return
        self._is_asking = True
        asked_mono = self._clock.mono_ms()

        def agreed(error: RaftlineError | None) -> None:
            self._is_asking = False
            if self._is_closed:
                return
            if error is not None:
                self._clock.call_later(ASK_AGAIN_MS, self._ask_majority)
                return
            self._agreed_mono = asked_mono
            if not self._is_ready:
                self._is_ready = True
                self._upkeep.catalog_changed()
                self._upkeep.watch()
                self._classic.watch()
            waiting, self._waiting = self._waiting, []
            for request, timeout_ms, reply in waiting:
                self.answer(request, timeout_ms, reply)

        self.replica.read_index(agreed)

    def _is_agreed(self) -> bool:
        """Say whether nobody else can lead. D4."""
        if not self._is_ready:
            return False
        alone = len(self.replica.conf.voters) == 1
        return alone or self._clock.mono_ms() - self._agreed_mono < self._election_ms

    def catalog_changed(self) -> None:
        """Topics may have come, gone or grown."""
        if self._is_ready:
            self._upkeep.catalog_changed()

    def sweep(self) -> None:
        """Now and then: forget what nobody used for long, and whom nobody heard of."""
        if self._is_ready:
            self._upkeep.sweep()
            self._upkeep.watch()  # a Join or a Form may have been applied after its time was up
            self._classic.watch()

    # ------------------------------------------------------------------ requests

    def answer(self, request: Request, timeout_ms: int, reply: Reply) -> None:
        """Answer one request; a refusal is an answer too."""
        if self._is_closed:
            reply(self._gone())
            return
        if not self._is_agreed():
            if len(self._waiting) >= FORWARDED_MAX:
                reply(
                    OverLimit("requests waiting for a majority", FORWARDED_MAX + 1, FORWARDED_MAX)
                )
                return
            self._waiting.append((request, timeout_ms, reply))
            self._ask_majority()
            return
        try:
            self._dispatch(request, timeout_ms, reply)
        except RaftlineError as error:
            reply(error)

    def _dispatch(self, request: Request, timeout_ms: int, reply: Reply) -> None:
        match request:
            case Beat():
                self._beat(request, request.revoked, timeout_ms, reply)
            case PollGroup():
                self._poll(request, timeout_ms, reply)
            case ClassicBeat() | ClassicJoin() | ClassicSync() | ClassicLeave():
                self._classic.answer(request, reply)
            case FetchCursors():
                self._confirm(reply, lambda: self._cursors(request))
            case AdvanceGroup():
                reply(self._advance(request))
            case CommitCursors():
                self._commit(request, timeout_ms, reply)
            case JoinGroup():
                self._join(request, timeout_ms, reply)
            case LeaveGroup():
                command = c.Leave(request.group, request.member, request.generation, self._now())
                self._propose(command, timeout_ms, reply, lambda _: self._done(request.group))
            case ShowGroup():
                group = self._machine.group(request.group)
                self._confirm(reply, lambda: group_view(group))
            case DescribeGroup():
                self._confirm(reply, lambda: self._describe(request.group))
            case DropCursors():
                self._drop_cursors(request, timeout_ms, reply)
            case ListGroups():
                self._confirm(reply, self._list)
            case FindGroup():
                reply(Done())  # answered by the node (group_calls.py)
            case ResetGroup():
                self._reset(request, timeout_ms, reply)
            case DeleteGroup():
                command = c.Delete(request.group, at_ms=self._now())
                self._propose(command, timeout_ms, reply, lambda _: Done())

    def _join(self, request: JoinGroup, timeout_ms: int, reply: Reply) -> None:
        command = c.Join(
            request.group,
            request.member,
            request.nonce,
            request.client,
            request.topics,
            self._upkeep.sizes(request.topics),
            request.assignor,
            request.session_ms,
            request.revoke_ms,
            self._now(),
        )

        def joined(_: Sequence[object]) -> Answer:
            group = self._machine.group(request.group)
            self._sessions.of(group, request.member, self._clock.mono_ms())
            self._upkeep.watch()
            return member_view(group, request.member)

        self._propose(command, timeout_ms, reply, joined)

    def _beat(self, request: Beat, revoked: Places, timeout_ms: int, reply: Reply) -> None:
        """Hear a member; log only what changes something."""
        group = self._machine.group(request.group)
        member, generation = request.member, request.generation
        group.member(member, generation)
        session = self._sessions.of(group, member, self._clock.mono_ms())
        session.heard_mono = self._clock.mono_ms()
        known = session.known_layout == group.layout and not revoked
        if not session.is_expiring and (known or not group.news(member, generation, revoked)):
            session.known_layout = group.layout
            reply(session.told(group, member))
            return

        def told(_: Sequence[object]) -> Answer:
            now = self._machine.group(group.name)
            session.known_layout = now.layout
            session.is_expiring = False  # this came behind the Expire, and the member is there
            return session.told(now, member)

        command = c.Acknowledge(group.name, member, generation, revoked, self._now())
        self._propose(command, timeout_ms, reply, told)

    def _poll(self, request: PollGroup, timeout_ms: int, reply: Reply) -> None:
        """Hear a member; who polls at the present generation is done with what was revoked."""
        group = self._machine.group(request.group)
        member, generation = request.member, request.generation
        group.member(member, generation)
        session = self._sessions.of(group, member, self._clock.mono_ms())
        revoked = session.told(group, member).revoke if generation == group.epoch else {}

        def told(view: Answer | RaftlineError) -> None:
            if isinstance(view, RaftlineError):
                reply(view)
                return
            now = self._machine.groups.get(request.group)
            if now is None or member not in now.members:
                reply(NotReady(f"group {request.group} changed meanwhile"))
                return
            session = self._sessions.of(now, member, self._clock.mono_ms())
            if 0 <= request.number != session.number:
                # The answer to the last poll got lost; a greater number is of a coordinator before.
                session.positions = dict(session.before)
                session.number = request.number
            told_now = session.told(now, member)
            reply(Polled(told_now, positions(now, session, told_now), session.number))

        self._beat(Beat(request.group, member, generation), revoked, timeout_ms, told)

    def _advance(self, request: AdvanceGroup) -> Answer:
        group = self._machine.group(request.group)
        group.member(request.member, request.generation)
        session = self._sessions.of(group, request.member, self._clock.mono_ms())
        if session.number != request.number:
            return Advanced(-1)
        advance(group, session, session.told(group, request.member), request.positions)
        return Advanced(session.number)

    def _commit(self, request: CommitCursors, timeout_ms: int, reply: Reply) -> None:
        group = self._machine.groups.get(request.group)
        is_classic = group is not None and group.classic is not None
        if request.member and is_classic:
            self._classic.heard(request.group, request.member, request.instance)
        elif request.member:
            group = self._machine.group(request.group)
            group.member(request.member, request.generation)
            session = self._sessions.of(group, request.member, self._clock.mono_ms())
            session.heard_mono = self._clock.mono_ms()
        command = c.Commit(
            request.group,
            request.member,
            request.generation,
            request.offsets,
            {} if request.member and not is_classic else self._upkeep.sizes(tuple(request.offsets)),
            self._now(),
        )

        def committed(events: Sequence[object]) -> Answer:
            event = events[0]
            assert isinstance(event, Committed)
            return CursorsCommitted(event.count, event.refused)

        self._propose(command, timeout_ms, reply, committed)

    def _cursors(self, request: FetchCursors) -> Answer:
        """Return cursors; a group that is not there has none."""
        group = self._machine.groups.get(request.group)
        found: dict[str, dict[int, Offset]] = {}
        for name, topic in sorted(group.topics.items()) if group is not None else ():
            wanted = None if request.places is None else request.places.get(name, [])
            rows = {
                partition: Offset(cursor.offset, cursor.metadata, cursor.term)
                for partition, cursor in sorted(topic.cursors.items())
                if wanted is None or partition in wanted
            }
            if rows:
                found[name] = rows
        return CursorsFetched(found)

    def _describe(self, name: str) -> Answer:
        group = self._machine.group(name)
        if group.classic is None:
            return group_view(group)
        return self._classic.view(group, group.classic)

    def _drop_cursors(self, request: DropCursors, timeout_ms: int, reply: Reply) -> None:
        command = c.DropCursors(request.group, request.places, self._now())

        def dropped(events: Sequence[object]) -> Answer:
            event = events[0]
            assert isinstance(event, CursorsDropped)
            return CursorsCommitted(event.count, event.refused)

        self._propose(command, timeout_ms, reply, dropped)

    def _reset(self, request: ResetGroup, timeout_ms: int, reply: Reply) -> None:
        sizes = self._upkeep.sizes(tuple(request.offsets))
        command = c.Reset(request.group, request.offsets, sizes, self._now())

        def done(events: Sequence[object]) -> Answer:
            event = events[0]
            assert isinstance(event, WasReset)
            return Done(count=event.count)

        self._propose(command, timeout_ms, reply, done)

    def _list(self) -> Answer:
        groups = self._machine.groups
        return GroupList([summary(groups[name]) for name in sorted(groups)])

    def _done(self, name: str) -> Answer:
        group = self._machine.groups.get(name)
        return Done(group.epoch if group is not None else 0)

    # ------------------------------------------------------------------ proposing

    def _now(self) -> int:
        return self.replica.time.stamp()

    def _propose(
        self,
        command: c.Command,
        timeout_ms: int,
        reply: Reply,
        answer: Callable[[Sequence[object]], Answer],
    ) -> None:
        """Propose; answer from the state right after the entry was applied."""

        def applied(result: Applied | RaftlineError) -> None:
            if isinstance(result, RaftlineError):
                reply(result)
                return
            try:
                told = answer(result.events)
            except RaftlineError as error:
                reply(error)
            else:
                reply(told)

        deadline = self._clock.mono_ms() + timeout_ms
        self._host.propose(command, CommandProposal(self._host.name, deadline, timeout_ms, applied))

    def _propose_unasked(
        self, command: c.Command, timeout_ms: int, done: Callable[[Result], None]
    ) -> None:
        """Propose what classic groups need; they hear the events."""

        def applied(result: Applied | RaftlineError) -> None:
            done(result if isinstance(result, RaftlineError) else result.events)

        deadline = self._clock.mono_ms() + timeout_ms
        self._host.propose(command, CommandProposal(self._host.name, deadline, timeout_ms, applied))

    def _confirm(self, reply: Reply, answer: Callable[[], Answer]) -> None:
        """Answer what people ask from a state that is surely not old."""

        def confirmed(error: RaftlineError | None) -> None:
            if error is not None:
                reply(error)
                return
            try:
                told = answer()
            except RaftlineError as refusal:
                reply(refusal)
            else:
                reply(told)

        self.replica.read_index(confirmed)
