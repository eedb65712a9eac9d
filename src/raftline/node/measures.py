"""Measures: the metrics of this node, put together when somebody asks (telemetry/metrics.py).

Costs about 40 us for a partition or a group, a little at a time: nothing is prepared beforehand,
and nothing is done while nobody looks.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from raftline.machines.delivery.commands import VERBS
from raftline.machines.delivery.rows import DEAD, DYING, LEASED, READY, RESTING, STATES
from raftline.model.ids import CATALOG_SHARD, ReplicaId, node_of
from raftline.node.glances import UNKNOWN
from raftline.node.pacing import pace
from raftline.node.partition import PartitionHost
from raftline.raft.state import Role
from raftline.telemetry.metrics import Board

if TYPE_CHECKING:
    from raftline.machines.delivery.group import WorkGroup
    from raftline.machines.groups.group import Group
    from raftline.node.node import Node
    from raftline.node.replica import Replica

FAR_BEHIND_ENTRIES = 1_000
WORK, STREAM = "work", "stream"
_ROW_STATES = (LEASED, RESTING, READY, DYING, DEAD)
_CAMPAIGNING = (Role.CANDIDATE, Role.PRE_CANDIDATE)


class Measures:
    """Fills boards."""

    def __init__(self, node: "Node") -> None:
        self._node = node

    def board(self) -> Board:
        """Return the values of this moment, all at once."""
        board = Board()
        for _ in self._fill(board):
            pass
        return board

    def paced(self, done: Callable[[Board], None]) -> None:
        """Return the values of about this moment; others go on meanwhile."""
        board = Board()
        pace(self._node.clock, self._fill(board), lambda: done(board))

    def _fill(self, board: Board) -> Iterator[None]:
        self._node_itself(board)
        self._gateways(board)
        yield from self._raft(board)
        yield from self._topics(board)
        yield from self._partitions(board)
        yield from self._work_groups(board)
        for group in list(self._node.glances.stream_groups()):
            self._stream_group(board, group)
            yield
        self._times(board)
        self._disk(board)

    # ------------------------------------------------------------------ the node

    def _node_itself(self, board: Board) -> None:
        node, put = self._node, board.put
        status = node.status_pages.status()
        put("raftline_node_info", 1, str(node.id), status.name, status.cluster)
        put("raftline_ready", int(status.ready))
        put("raftline_uptime_seconds", status.uptime_ms / 1000)
        put("raftline_clock_offset_seconds", -node.time.offset_ms() / 1000)
        for row in status.nodes:
            put("raftline_nodes", 1, row.state)
        put("raftline_shards_leaderless", len(status.leaderless))
        put("raftline_shards_quarantined", len(status.quarantined))

    def _gateways(self, board: Board) -> None:
        for name, counts in self._node.counters.gateways.items():
            if counts.connections is not None:
                board.put("raftline_connections", counts.connections, name)
            board.put("raftline_requests_total", counts.requests, name)
            board.put("raftline_requests_slow_total", counts.slow, name)
            for code, count in counts.refused.items():
                board.put("raftline_requests_refused_total", count, name, code)

    def _times(self, board: Board) -> None:
        counters = self._node.counters
        board.put_times("raftline_append_seconds", counters.append_times)
        board.put_times("raftline_receive_seconds", counters.receive_times)
        board.put_times("raftline_settle_seconds", counters.settle_times)
        board.put_times("raftline_wal_sync_seconds", counters.sync_times)
        board.put_times("raftline_turn_seconds", counters.turn_times)

    def _disk(self, board: Board) -> None:
        node = self._node
        board.put("raftline_disk_free_bytes", node.upkeep.free_bytes)
        board.put("raftline_disk_total_bytes", node.upkeep.total_bytes)
        board.put("raftline_disk_full", int(node.upkeep.is_full))
        board.put("raftline_wal_bytes", node.wal.bytes_used)
        board.put("raftline_wal_files", node.wal.file_count)
        board.put("raftline_wal_written_bytes_total", node.counters.wal_written_bytes)

    # ------------------------------------------------------------------ shards

    def _raft(self, board: Board) -> Iterator[None]:
        node, put = self._node, board.put
        for role in ("leader", "follower", "candidate", "learner"):
            put("raftline_shards", 0, role)
        for name in ("committed_entries", "applied_entries", "unapplied_entries"):
            put(f"raftline_raft_{name}", 0)
        put("raftline_shards_quiet", 0)
        put("raftline_shards_under_replicated", 0)
        put("raftline_raft_follower_behind_entries_max", 0)
        for replica in list(node.shards):
            self._replica(board, replica)
            yield
        put("raftline_raft_uncommitted_bytes", node.shards.pressure.bytes)
        catalog = node.shards.get(CATALOG_SHARD)
        put("raftline_catalog_leader", int(catalog is not None and catalog.is_leader))
        if catalog is not None:
            put("raftline_catalog_term", catalog.raft.term)
            put("raftline_catalog_commit_index", catalog.raft.commit)
            put("raftline_catalog_applied_index", catalog.applied_index)
        counters = node.counters
        put("raftline_elections_started_total", counters.campaigns)
        put("raftline_elections_won_total", counters.elections_won)
        put("raftline_leader_changes_total", counters.leader_changes)

    def _replica(self, board: Board, replica: "Replica") -> None:
        put, raft = board.put, replica.raft
        put("raftline_shards", 1, _role(replica))
        put("raftline_shards_quiet", int(replica.quiet))
        put("raftline_raft_term_max", raft.term)
        put("raftline_raft_committed_entries", raft.commit)
        put("raftline_raft_applied_entries", replica.applied_index)
        put("raftline_raft_unapplied_entries", raft.commit - replica.applied_index)
        if replica.is_leader:
            behind = [
                raft.last_index - progress.match
                for other, progress in raft.progress.items()
                if other != replica.id
            ]
            is_thin = any(self._is_silent(other) for other in raft.progress)
            is_thin = is_thin or max(behind, default=0) > FAR_BEHIND_ENTRIES
            put("raftline_shards_under_replicated", int(is_thin))
            put("raftline_raft_follower_behind_entries_max", max(behind, default=0))

    def _is_silent(self, replica: int) -> bool:
        number = node_of(ReplicaId(replica))
        return number != self._node.id and not self._node.peers.is_live(number)

    # ------------------------------------------------------------------ topics

    def _topics(self, board: Board) -> Iterator[None]:
        put = board.put
        for topic, counts in list(self._node.counters.topics.items()):
            put("raftline_topic_in_messages_total", counts.messages_in, topic)
            put("raftline_topic_in_bytes_total", counts.bytes_in, topic)
            put("raftline_topic_read_messages_total", counts.messages_read, topic)
            put("raftline_topic_read_bytes_total", counts.bytes_read, topic)
            put("raftline_topic_delivered_bytes_total", counts.bytes_delivered, topic)
            yield
        put("raftline_log_bytes", 0)
        for replica in list(self._node.shards):
            host = replica.host
            yield
            if isinstance(host, PartitionHost) and host.tally is not None:
                topic = host.tally.topic
                put("raftline_topic_log_bytes", host.log.bytes, topic)
                put("raftline_log_bytes", host.log.bytes)
                for name, log in host.side.items():
                    put("raftline_topic_side_log_bytes", log.bytes, topic, name)
                    put("raftline_log_bytes", log.bytes)

    def _partitions(self, board: Board) -> Iterator[None]:
        put = board.put
        now_ms = int(self._node.time.now_ms())
        for topic, _, host in self._node.glances.partitions():
            machine, waiting = host.machine, host.machine.waiting
            end = host.log.log_end
            put("raftline_topic_messages", end - host.log.log_start, topic)
            put("raftline_partition_commit_end", end, topic, str(host.identity.partition))
            archived, staging = machine.archive.archived, machine.staging
            if archived:
                partition = str(host.identity.partition)
                put("raftline_partition_archived_end", archived, topic, partition)
            if staging:
                put("raftline_topic_staged_bytes", staging.kept_bytes, topic)
                put("raftline_topic_queries", len(staging), topic)
            put("raftline_topic_waiting_messages", waiting.count, topic)
            put("raftline_topic_released_messages_total", waiting.released_count, topic)
            put("raftline_topic_cancelled_messages_total", waiting.cancelled_count, topic)
            due_ms = waiting.earliest_due_ms()
            late_ms = 0 if due_ms is None else max(0, now_ms - due_ms)
            put("raftline_topic_waiting_overdue_seconds", late_ms / 1000, topic)
            put("raftline_topic_dedup_keys", len(machine.dedup), topic)
            outbox = machine.delivery.outbox
            put("raftline_topic_dead_letters_total", outbox.next_number - 1, topic)
            put("raftline_topic_outbox_messages", len(outbox), topic)
            yield

    # ------------------------------------------------------------------ groups

    def _work_groups(self, board: Board) -> Iterator[None]:
        put = board.put
        for topic, host, group, age_ms in self._node.glances.work_groups():
            self._work_group(board, topic, host, group, age_ms)
            yield
        for (topic, name), counts in list(self._node.counters.groups.items()):
            yield
            put("raftline_group_delivered_messages_total", counts.delivered, topic, name)
            put("raftline_group_redelivered_messages_total", counts.redelivered, topic, name)
            put("raftline_group_lease_lost_messages_total", counts.lost, topic, name)
            for verb, count in zip(VERBS, counts.settled, strict=True):
                put("raftline_group_settled_messages_total", count, topic, name, verb)

    def _work_group(
        self, board: Board, topic: str, host: PartitionHost, group: "WorkGroup", age_ms: int
    ) -> None:
        put, name = board.put, group.name
        end = host.machine.next_offset
        place = (topic, name, WORK, str(host.identity.partition))
        put("raftline_group_lag_messages", group.lag(end), *place)
        put("raftline_group_lag_seconds", age_ms / 1000, *place)
        put("raftline_group_oldest_unacked_seconds", age_ms / 1000, topic, name)
        put("raftline_group_messages", group.fresh(end), topic, name, "fresh")
        for state in _ROW_STATES:
            put("raftline_group_messages", group.counts[state], topic, name, STATES[state])
        parked = host.desk.parked(name) if host.desk is not None else 0
        put("raftline_group_receivers", parked, topic, name)
        put("raftline_group_lease_expired_messages_total", group.expired, topic, name)

    def _stream_group(self, board: Board, group: "Group") -> None:
        put, glances = board.put, self._node.glances
        put("raftline_group_members", group.member_count, group.name)
        put("raftline_group_rebalances_total", group.epoch, group.name)
        put("raftline_group_pauses_total", group.pauses.count, group.name)
        put("raftline_group_pause_seconds_total", group.pauses.total_ms / 1000, group.name)
        put("raftline_group_pause_seconds_max", group.pauses.max_ms / 1000, group.name)
        for topic, partition, offset, age_ms in glances.cursors(group):
            host = glances.host_of(topic, partition)
            if host is None or age_ms == UNKNOWN:
                continue  # no replica here: nobody asks over the network for a scrape
            lag = max(0, host.log.log_end - max(offset, host.log.log_start))
            place = (topic, group.name, STREAM, str(partition))
            put("raftline_group_lag_messages", lag, *place)
            put("raftline_group_lag_seconds", age_ms / 1000, *place)


def _role(replica: "Replica") -> str:
    raft = replica.raft
    if raft.role is Role.LEADER:
        return "leader"
    if raft.is_learner:
        return "learner"
    return "candidate" if raft.role in _CAMPAIGNING else "follower"
