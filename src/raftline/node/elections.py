"""Elections: when a node stands for which shard, and when a shard may be quiet.

Raft's own timers decide in the ordinary case. This file adds what only a node knows: that a peer's
process is gone, restarted or silent, for all the shards it led at once.

Rules
    L1  Gone (link closed and redial refused) or restarted: the leaders there are forgotten at once
        and their shards campaigned for after a random 0-40 ms.
    L2  Silent: quiet shards led there are woken, spread over time; the others have timers running.
    L3  A quiet shard's "heard from the leader" is the heartbeat of the leader's node.
    L4  At most ``campaigns_max`` campaigns begin in one interval.
    L5  A shard is quiet only when every replica on a live node is level with its leader and nobody
        waits for an answer: a leader that is cut off finds out while it is awake.
    L6  A leader that is taken out of service says so, more than once: no heartbeat of its node
        would tell, and the quiet ask nobody.
"""

from collections.abc import Callable, Iterable

from raftline.config.settings import RaftSettings
from raftline.model.ids import ReplicaId, node_of
from raftline.node.ports import Clock, Rng
from raftline.node.replica import Replica
from raftline.transport.rpcs import Quiet

AGAIN_MS = 60
TRIES = 12
INTERVAL_MS = 50


class Elections:
    """Campaigns and quiet."""

    def __init__(
        self,
        clock: Clock,
        rng: Rng,
        settings: RaftSettings,
        replicas: Callable[[], Iterable[Replica]],
        awake: Iterable[Replica],
        live: Callable[[int], bool],
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._settings = settings
        self._replicas = replicas
        self._awake = awake
        self._live = live
        self._interval_mono = 0.0
        self._begun = 0

    # ------------------------------------------------------------------ what a node learns

    def node_gone(self, node: int) -> None:
        """L1: its process is dead or a new one."""
        for replica in list(self._replicas()):
            if replica.leader_node == node:
                replica.forget_leader()
                self.campaign_within(replica, self._settings.quick_failover_ms_max)

    def resigned(self, replica: Replica) -> None:
        """L6: its leader's replica was taken out of service, on a node that lives."""
        replica.forget_leader()
        self.campaign_within(replica, self._settings.quick_failover_ms_max)

    def node_silent(self, node: int) -> None:
        """L2: no heartbeat for an election timeout."""
        patience = self._settings.election_ticks * self._settings.tick_ms
        for replica in list(self._replicas()):
            if replica.quiet and replica.leader_node == node:
                replica.forget_leader()
                self.campaign_within(replica, patience)

    def node_back(self, node: int) -> None:
        """Wake the shards we lead that have a replica there: it may be behind."""
        for replica in list(self._replicas()):
            if replica.is_leader and any(
                node_of(ReplicaId(r)) == node for r in replica.raft.progress
            ):
                replica.wake()

    # ------------------------------------------------------------------ campaigns

    def campaign_within(self, replica: Replica, spread_ms: int) -> None:
        """Stand for ``replica``'s shard after a random wait, again until somebody leads."""
        wait = self._rng.randrange(0, max(1, spread_ms + 1))
        self._later(replica, wait, TRIES)

    def _later(self, replica: Replica, wait_ms: float, tries: int) -> None:
        self._clock.call_later(wait_ms, lambda: self._stand(replica, tries))

    def _stand(self, replica: Replica, tries: int) -> None:
        if replica.is_closed or replica.raft.leader or tries == 0:
            return
        if replica.raft.is_learner or replica.id not in replica.conf.voters:
            return
        now = self._clock.mono_ms()
        if now - self._interval_mono >= INTERVAL_MS:
            self._interval_mono, self._begun = now, 0
        if self._begun >= self._settings.campaigns_max:  # L4
            self._later(replica, INTERVAL_MS, tries)
            return
        self._begun += 1
        replica.campaign()
        self._later(replica, AGAIN_MS + self._rng.randrange(0, AGAIN_MS), tries - 1)

    # ------------------------------------------------------------------ quiet

    def quiet_rows(self, now: float) -> dict[int, list[Quiet]]:
        """Put level shards we lead to rest; return what to tell which node."""
        rows: dict[int, list[Quiet]] = {}
        for replica in list(self._awake):
            if not replica.is_leader:
                continue
            if now - replica.active_mono < self._settings.quiet_after_ms:
                continue
            if not self._is_level(replica):
                continue
            raft = replica.raft
            for other in raft.progress:
                if other == replica.id:
                    continue
                row = Quiet(
                    replica.shard, other, replica.id, raft.term, raft.last_index, raft.commit
                )
                rows.setdefault(node_of(ReplicaId(other)), []).append(row)
            replica.rest()
        return rows

    def _is_level(self, replica: Replica) -> bool:
        """L5."""
        raft = replica.raft
        last = raft.last_index
        if raft.commit != last or replica.applied_index != last or replica.is_waited_for:
            return False
        if replica.conf.voters_outgoing or raft.lead_transferee or replica.unsynced:
            return False
        live_voters = 0
        for other, progress in raft.progress.items():
            here = other == replica.id
            if here or self._live(node_of(ReplicaId(other))):
                live_voters += other in replica.conf.voters
                if not here and progress.match != last:
                    return False
        return live_voters * 2 > len(replica.conf.voters)

    def told_quiet(self, replica: Replica | None, row: Quiet) -> bool:
        """Take the leader's word that all is quiet; False: something differs here."""
        if replica is None or replica.id != row.to:
            return False
        raft = replica.raft
        if (
            raft.term != row.term
            or raft.leader != row.sender
            or raft.last_index != row.last
            or raft.commit != row.commit
            or replica.applied_index != row.commit
            or replica.waiting
            or not self._live(node_of(ReplicaId(row.sender)))  # L3
        ):
            return False
        replica.rest()
        return True
