"""The rounds of all classic groups of one shard, and the way of their commands through the log.

Rules
    H1  One command of a group is on its way at a time. Requests that come meanwhile wait for it
        (at most ``FORWARDED_MAX``).
"""

from collections.abc import Callable, Sequence

from raftline.machines.groups import commands as c
from raftline.machines.groups.classic import Classic
from raftline.machines.groups.machine import GroupsMachine
from raftline.model.classic_groups import ClassicRequest
from raftline.model.errors import (
    FencedInstance,
    InvalidArgument,
    NotReady,
    OverLimit,
    RaftlineError,
    UnknownMember,
)
from raftline.model.limits import FORWARDED_MAX, GROUPS_PER_SHARD_MAX
from raftline.node.classic_round import Reply, Round
from raftline.node.ports import Clock

ROUNDS_MAX = 2 * GROUPS_PER_SHARD_MAX
PROPOSE_MS = 5_000

Result = Sequence[object] | RaftlineError
Propose = Callable[[c.Command, int, Callable[[Result], None]], None]
Serve = Callable[[Round, ClassicRequest, Reply], None]


class Rounds:
    """Rounds by group; made when they are first needed."""

    def __init__(
        self,
        clock: Clock,
        machine: GroupsMachine,
        now: Callable[[], int],
        propose: Propose,
        serve: Serve,
    ) -> None:
        self.clock = clock
        self.machine = machine
        self.now = now  # log time
        self.is_closed = False
        self.rows: dict[str, Round] = {}
        self._propose_to_log = propose
        self._serve = serve

    def close(self, error: RaftlineError) -> None:
        """Somebody else leads now."""
        self.is_closed = True
        rounds, self.rows = self.rows, {}
        for round_ in rounds.values():
            round_.refuse_all(error, self.clock.mono_ms())

    def of(self, name: str) -> Round:
        """Return a group's round. Raises OverLimit where there is no such group yet."""
        found = self.rows.get(name)
        if found is None:
            if name not in self.machine.groups and len(self.rows) >= ROUNDS_MAX:
                raise OverLimit("groups that are joined", ROUNDS_MAX + 1, ROUNDS_MAX)
            found = self.rows[name] = Round(name, self.classic(name), self.clock.mono_ms())
        return found

    def classic(self, name: str) -> Classic | None:
        """Return what the log has of a group."""
        group = self.machine.groups.get(name)
        return group.classic if group is not None else None

    @staticmethod
    def check_instance(round_: Round, classic: Classic | None, member: str, instance: str) -> None:
        """Refuse one whose place another has. Raises FencedInstance or UnknownMember."""
        holder = round_.holder(classic, instance)
        if holder and holder != member:
            raise FencedInstance(round_.name, instance, member)
        if not holder:
            raise UnknownMember(round_.name, member)

    def answer(self, request: ClassicRequest, reply: Reply) -> None:
        """Run a request now, or once the command that is on its way was applied. H1."""
        round_ = self.of(request.group)
        if not round_.is_busy:
            self._run(round_, request, reply)
        elif len(round_.deferred) >= FORWARDED_MAX:
            reply(OverLimit("requests waiting for a group", FORWARDED_MAX + 1, FORWARDED_MAX))
        else:
            round_.deferred.append((request, reply))

    def propose(self, round_: Round, command: c.Command, then: Callable[[Result], None]) -> None:
        """Send one command through the log; what comes meanwhile waits. H1."""
        assert not round_.is_busy
        round_.is_busy = True

        def applied(result: Result) -> None:
            round_.is_busy = False
            if isinstance(result, InvalidArgument):
                result = NotReady(f"group {round_.name} changed meanwhile")  # try again
            then(result)
            while round_.deferred and not round_.is_busy and not self.is_closed:
                self._run(round_, *round_.deferred.pop(0))

        self._propose_to_log(command, PROPOSE_MS, applied)

    def _run(self, round_: Round, request: ClassicRequest, reply: Reply) -> None:
        try:
            self._serve(round_, request, reply)
        except RaftlineError as error:
            reply(error)
