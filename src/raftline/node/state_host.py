"""A host without a log: a shard that is nothing but its machine's state.

The catalog and the coordination shards are such. Commands are proposed as they come; the state is
small enough to be frozen whole, for checkpoints and for replicas that are far behind.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from raftline.machines.machine import Machine, Refused
from raftline.model.errors import RaftlineError
from raftline.node.command_proposal import Applied, CommandProposal, Offer
from raftline.node.marks import Marks
from raftline.node.replica import Proposal, Replica
from raftline.raft.rpc import Entry
from raftline.storage.checkpoint import Checkpoint


class StateMachine(Machine[object], Protocol):
    """A machine that knows its log time and feature level."""

    @property
    def at_ms(self) -> int:
        """Return log time."""
        ...

    @property
    def feature_level(self) -> int:
        """Return the feature level of its log."""
        ...


class StateHost:
    """A machine driven by its replica."""

    def __init__(self, directory: str, machine: StateMachine) -> None:
        self.directory = directory
        self.replica: Replica | None = None
        self.applied_bytes = 0
        self.marks = Marks()
        self._machine = machine
        self._offers: dict[int, bytes] = {}

    # What differs from host to host.

    def fresh(self) -> "StateHost":
        """Return an empty host for the same shard."""
        raise NotImplementedError

    def mark(self, done: CommandProposal) -> None:
        """Propose a command that changes nothing: every replica marks its digest."""
        raise NotImplementedError

    def is_mark(self, events: Sequence[object]) -> bool:
        """Say whether these are the events of such a command."""
        raise NotImplementedError

    def happened(self, events: Sequence[object]) -> None:
        """Note what an entry did."""

    # What all have.

    def restore(self, state: bytes) -> None:
        """Take over a state."""
        self._machine.restore(state)

    def proposals(self, replica: Replica) -> list[tuple[bytes, Proposal]]:
        """Nothing is collected: commands are proposed as they come."""
        return []

    def refuse_collected(self, error: RaftlineError) -> None:
        """Nothing is collected."""

    def apply(self, entry: Entry, proposal: Proposal | None) -> None:
        """Apply one committed command."""
        if not entry.data:
            return
        self.applied_bytes += len(entry.data)
        events = self._machine.apply(entry.index, entry.term, entry.data)
        self.happened(events)
        if self.is_mark(events):
            self.marks.put(entry.index, self._machine.digest(), 0, 0)
        if isinstance(proposal, CommandProposal):
            first = events[0] if events else None
            if isinstance(first, Refused):
                proposal.answer(first.error())
            else:
                proposal.answer(Applied(entry.index, events))

    def applied(self) -> None:
        """Observe log time."""
        replica = self.replica
        assert replica is not None
        replica.time.observe(self._machine.at_ms)

    def offer(self, index: int) -> bytes:
        """Freeze the state at ``index`` for a replica that is far behind."""
        state = self._machine.snapshot()
        self._offers = {index: state}
        return msgspec.msgpack.encode(Offer(index, 0, 0, len(state)))

    def offered_state(self, index: int) -> bytes | None:
        """Return the frozen state of an offer that still stands."""
        return self._offers.get(index)

    def checkpoint(self) -> Callable[[], Checkpoint]:
        """Freeze state and index together."""
        replica = self.replica
        assert replica is not None
        self.applied_bytes = 0
        checkpoint = msgspec.structs.replace(
            replica.checkpoint_head(),
            state=self._machine.snapshot(),
            at_ms=self._machine.at_ms,
            feature_level=self._machine.feature_level,
        )
        return lambda: checkpoint

    def checkpointed(self, made: Checkpoint) -> None:
        """There is no log."""

    def expire(self, now_ms: float) -> None:
        """Nobody waits here."""

    def close(self) -> None:
        """Nobody waits here."""
