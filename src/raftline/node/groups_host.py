"""A coordination shard on this node: the machine of stream groups, driven by its replica."""

from collections.abc import Sequence

from raftline.machines.groups.commands import Command, Noop, encode_command
from raftline.machines.groups.events import Passed
from raftline.machines.groups.machine import GroupsMachine
from raftline.model.ids import COORDINATION_SHARDS
from raftline.node.command_proposal import CommandProposal
from raftline.node.state_host import StateHost


class GroupsHost(StateHost):
    """The groups whose names hash to one shard."""

    def __init__(self, directory: str, shard: int) -> None:
        self.machine = GroupsMachine()
        super().__init__(directory, self.machine)
        self.name = f"groups-{shard - COORDINATION_SHARDS.start}"
        self._shard = shard

    def fresh(self) -> "GroupsHost":
        """Return an empty host for the same shard."""
        return GroupsHost(self.directory, self._shard)

    def propose(self, command: Command, proposal: CommandProposal) -> None:
        """Propose one command; the proposal hears its events."""
        assert self.replica is not None
        self.replica.propose(encode_command(command), proposal)

    def mark(self, done: CommandProposal) -> None:
        """Propose nothing but time."""
        assert self.replica is not None
        self.propose(Noop(self.replica.time.stamp()), done)

    def is_mark(self, events: Sequence[object]) -> bool:
        """Say whether an entry was nothing but time."""
        return bool(events) and isinstance(events[0], Passed)
