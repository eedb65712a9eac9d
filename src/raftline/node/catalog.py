"""The catalog on this node: its machine, and everybody who waits for it.

Every node holds a copy (a voter or an observer), so questions are answered without asking anyone.

Invariants
    K1  What the node does about shards, it does from applied catalog state, never from a wish.
    K2  A caller hears of a command only after this node has applied it too (``wait_index``).
"""

from collections.abc import Callable, Sequence
from typing import cast

from raftline.machines.catalog.commands import Command, SetFeatureLevel, encode_command
from raftline.machines.catalog.events import Event, FeatureLevelSet
from raftline.machines.catalog.machine import CatalogMachine
from raftline.node.command_proposal import CommandProposal
from raftline.node.state_host import StateHost


class CatalogHost(StateHost):
    """The catalog's machine, driven by its replica."""

    def __init__(self, directory: str, on_events: Callable[[Sequence[Event]], None]) -> None:
        self.machine = CatalogMachine()
        super().__init__(directory, self.machine)
        self._on_events = on_events
        self._events: list[Event] = []
        self._waiting: list[tuple[int, float, Callable[[bool], None]]] = []

    def fresh(self) -> "CatalogHost":
        """Return an empty host for the same shard."""
        return CatalogHost(self.directory, self._on_events)

    def propose(self, command: Command, proposal: CommandProposal) -> None:
        """Propose one command; the proposal hears its events."""
        assert self.replica is not None
        self.replica.propose(encode_command(command), proposal)

    def mark(self, done: CommandProposal) -> None:
        """Propose the feature level that holds already."""
        self.propose(SetFeatureLevel(self.machine.feature_level, self.machine.at_ms), done)

    def is_mark(self, events: Sequence[object]) -> bool:
        """Say whether an entry set the feature level."""
        return bool(events) and isinstance(events[0], FeatureLevelSet)

    def happened(self, events: Sequence[object]) -> None:
        """Keep what happened until the run of entries is over."""
        self._events.extend(cast("Sequence[Event]", events))

    def applied(self) -> None:
        """Let the node act on what changed, then wake who waited for it. K1."""
        super().applied()
        assert self.replica is not None
        events, self._events = self._events, []
        if events:
            self._on_events(events)
        self._wake(self.replica.applied_index)

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

    @property
    def is_waiting(self) -> bool:
        """Say whether anybody waits for the catalog to reach an index."""
        return bool(self._waiting)

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
