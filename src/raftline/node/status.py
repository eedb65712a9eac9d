"""Status: the cluster as this node sees it, without asking anyone."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from raftline.machines.catalog.state import REMOVED, Shard, Topic
from raftline.model.calls import (
    CatalogView,
    ClusterStatus,
    NodeRow,
    NodesView,
    PartitionRow,
    TopicRow,
)
from raftline.model.ids import CATALOG_SHARD, ReplicaId, node_of
from raftline.model.settings import effective
from raftline.node.partition import PartitionHost
from raftline.node.seats import ENOUGH_REPLICAS
from raftline.raft.rpc import ConfState

if TYPE_CHECKING:
    from raftline.node.node import Node


class StatusPages:
    """Answers of ``catalog`` and ``status``."""

    def __init__(self, node: "Node") -> None:
        self._node = node

    def catalog(self) -> CatalogView:
        """Return topics and nodes."""
        machine = self._node.catalog_machine
        return CatalogView(
            cluster=machine.cluster,
            version=machine.version,
            nodes=self._nodes(),
            topics=tuple(self._topic(machine.topics[name]) for name in sorted(machine.topics)),
        )

    def status(self) -> ClusterStatus:
        """Return nodes, shards, leaders and health."""
        node = self._node
        shards = node.catalog_machine.shards
        nodes = node.catalog_machine.nodes
        is_whole = all(it == node.id or node.peers.is_live(it) for it in nodes)
        leaderless = [
            row.place
            for row in shards.values()
            if row.id != CATALOG_SHARD and not self._leader_of(row.id, is_whole=is_whole)
        ]
        quarantined = [
            f"{shards[shard].place if shard in shards else f'shard {shard}'}: {reason}"  # type: ignore[index]
            for shard, (_, reason) in node.shards.quarantined.items()
        ]
        return ClusterStatus(
            cluster=node.identity.cluster,
            node=node.id,
            name=node.identity.name,
            ready=node.is_ready,
            reason=node.reason,
            catalog_leader=self._leader_of(CATALOG_SHARD, is_whole=is_whole),
            catalog_version=node.catalog_machine.version,
            nodes=self._nodes(),
            shards=len(node.shards),
            leaderless=tuple(sorted(leaderless)),
            quarantined=tuple(quarantined),
            wal_bytes=node.wal.bytes_used,
            free_bytes=node.upkeep.free_bytes,
            uptime_ms=int(node.clock.mono_ms() - node.started_mono),
        )

    def topic(self, name: str, *, guesses: bool = False) -> TopicRow | None:
        """Return one topic; ``guesses``: who leads is our best guess."""
        found = self._node.catalog_machine.topics.get(name)
        router = self._node.router
        leader_of = router.leader_of if guesses else router.known_leader
        return None if found is None else self._topic(found, leader_of)

    def cluster(self) -> NodesView:
        """Return the nodes alone: cheap, whatever the number of shards."""
        node = self._node
        leader = node.router.known_leader(CATALOG_SHARD)
        return NodesView(node.identity.cluster, node.id, leader, self._nodes())

    def _leader_of(self, shard: int, *, is_whole: bool) -> int:
        """Return who leads a shard, as our replica says; a guess only where we have none.

        Who led it when it went quiet leads by its own account still: without a majority nobody.
        """
        node = self._node
        replica = node.shards.get(shard)
        if replica is None:
            return node.router.leader_of(shard)
        return replica.leader_node if is_whole or node.recovery.has_majority(replica) else 0

    def _nodes(self) -> tuple[NodeRow, ...]:
        node = self._node
        rows: list[NodeRow] = []
        for number, row in sorted(node.catalog_machine.nodes.items()):
            if row.state == REMOVED:
                continue
            us = number == node.id
            live = us or node.peers.is_live(number)
            state = row.state if row.state != "member" else "live" if live else "silent"
            peer = node.peers.get(number)
            beat = peer.heartbeat if peer is not None else None
            # A founder's row has no addresses until it told them: what we know of us is true now.
            told = node.admit_request() if us and not row.kafka else row
            rows.append(
                NodeRow(
                    id=number,
                    name=row.name,
                    rack=row.rack,
                    peer=row.peer,
                    http=told.http,
                    grpc=told.grpc,
                    kafka=told.kafka,
                    state=state,
                    free_bytes=node.upkeep.free_bytes if us else beat.free_bytes if beat else -1,
                    clock_offset_ms=-node.time.offset_ms() if us else node.time.offset_of(number),
                )
            )
        return tuple(rows)

    def _topic(self, topic: Topic, leader_of: Callable[[int], int] | None = None) -> TopicRow:
        shards = self._node.catalog_machine.shards
        leader_of = leader_of or self._node.router.leader_of
        return TopicRow(
            name=topic.name,
            uuid=topic.uuid,
            replication_factor=topic.replication_factor,
            created_ms=topic.created_ms,
            settings=effective(topic.settings),
            partitions=tuple(
                self._partition(shards[shard], leader_of(shard)) for shard in topic.shards
            ),
        )

    def _partition(self, row: Shard, leader: int) -> PartitionRow:
        node = self._node
        replica = node.shards.get(row.id)
        # Who led it when it went quiet leads by its own account still.
        is_cut = (
            replica is not None
            and bool(replica.conf.voters)
            and not node.recovery.has_majority(replica)
        )
        state = "no leader" if is_cut or not leader else "ok"
        if row.id in node.shards.quarantined:
            state = f"quarantined: {node.shards.quarantined[row.id][1]}"
        host = replica.host if replica is not None else None
        learners: tuple[int, ...] = ()
        term, log_start, commit_end, size, archived = 0, -1, -1, -1, -1
        if replica is not None:
            term = replica.raft.term
            learners = tuple(node_of(ReplicaId(r)) for r in replica.conf.learners)
            if state == "ok" and _is_moving(replica.conf, row):
                state = "moving"
        if isinstance(host, PartitionHost):
            log_start, commit_end = host.log.log_start, host.log.log_end
            archived = host.machine.archive.archived
            size = host.log.bytes
        return PartitionRow(
            partition=row.partition,
            shard=row.id,
            leader=leader,
            term=term,
            replicas=tuple(node_of(r) for r in row.replicas),
            learners=learners,
            log_start=log_start,
            commit_end=commit_end,
            bytes=size,
            archived=archived,
            state=state,
        )


def _is_moving(conf: ConfState, row: Shard) -> bool:
    """Say whether a shard is on its way to the replicas that the catalog wants.

    Where fewer than three are wanted, one that was moved away and straight back stays in the place
    of the newer one, which nobody could do without it (seats.py, B2): it has arrived.
    """
    if set(conf.voters) == set(row.replicas):
        return False
    nodes = {node_of(ReplicaId(voter)) for voter in conf.voters}
    is_there = nodes == set(row.nodes()) and not conf.voters_outgoing
    return not (is_there and len(row.replicas) < ENOUGH_REPLICAS)
