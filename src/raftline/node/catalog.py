"""The catalog on this node: its machine, and everybody who waits for it.

Every node holds a copy (a voter or an observer), so questions are answered without asking anyone.

Invariants
    K1  What the node does about shards, it does from applied catalog state, never from a wish.
    K2  A caller hears of a command only after this node has applied it too (``wait_index``).
"""

from collections.abc import Callable, Sequence

import msgspec

from raftline.machines.catalog.commands import Command, SetFeatureLevel, encode_command
from raftline.machines.catalog.events import Event, FeatureLevelSet
from raftline.machines.catalog.machine import CatalogMachine
from raftline.machines.machine import Refused
from raftline.model.errors import RaftlineError
from raftline.node.marks import Marks
from raftline.node.partition import Applied, CommandProposal, Offer
from raftline.node.replica import Proposal, Replica
from raftline.raft.rpc import Entry
from raftline.storage.checkpoint import Checkpoint


class CatalogHost:
    """The catalog's machine, driven by its replica."""

    def __init__(self, directory: str, on_events: Callable[[Sequence[Event]], None]) -> None:
        self.directory = directory
        self.machine = CatalogMachine()
        self.replica: Replica | None = None
        self.applied_bytes = 0
        self.marks = Marks()
        self._on_events = on_events
        self._events: list[Event] = []
        self._offers: dict[int, bytes] = {}
        self._waiting: list[tuple[int, float, Callable[[bool], None]]] = []

    def propose(self, command: Command, proposal: CommandProposal) -> None:
        """Propose one command; the proposal hears its events."""
        assert self.replica is not None
        self.replica.propose(encode_command(command), proposal)

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
        events = self.machine.apply(entry.index, entry.term, entry.data)
        self._events.extend(events)
        if events and isinstance(events[0], FeatureLevelSet):
            self.marks.put(entry.index, self.machine.digest(), 0, 0)
        if isinstance(proposal, CommandProposal):
            if events and isinstance(events[0], Refused):
                proposal.answer(events[0].error())
            else:
                proposal.answer(Applied(entry.index, events))

    def applied(self) -> None:
        """Let the node act on what changed, then wake who waited for it. K1."""
        replica = self.replica
        assert replica is not None
        replica.time.observe(self.machine.at_ms)
        events, self._events = self._events, []
        if events:
            self._on_events(events)
        self._wake(replica.applied_index)

    def wait_index(self, index: int, deadline: float, done: Callable[[bool], None]) -> None:
        """Call ``done(True)`` once ``index`` is applied here; ``done(False)`` when late. K2."""
        replica = self.replica
        if replica is not None and replica.applied_index >= index:
            done(True)
        else:
            self._waiting.append((index, deadline, done))

    def _wake(self, applied: int) -> None:
        if self._waiting:
            ready = [w for w in self._waiting if w[0] <= applied]
            self._waiting = [w for w in self._waiting if w[0] > applied]
            for _, _, done in ready:
                done(True)

    def mark_command(self) -> Command:
        """Return a command that changes nothing: every replica marks its digest when it applies."""
        return SetFeatureLevel(self.machine.feature_level, self.machine.at_ms)

    def offer(self, index: int) -> bytes:
        """Freeze the state at ``index`` for a replica that is far behind."""
        state = self.machine.snapshot()
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
            state=self.machine.snapshot(),
            at_ms=self.machine.at_ms,
            feature_level=self.machine.feature_level,
        )
        return lambda: checkpoint

    def checkpointed(self, made: Checkpoint) -> None:
        """The catalog has no log."""

    def expire(self, now_ms: float) -> None:
        """Tell who waited too long."""
        if self._waiting:
            late = [w for w in self._waiting if w[1] <= now_ms]
            self._waiting = [w for w in self._waiting if w[1] > now_ms]
            for _, _, done in late:
                done(False)

    def close(self) -> None:
        """Tell everybody who waits."""
        waiting, self._waiting = self._waiting, []
        for _, _, done in waiting:
            done(False)
