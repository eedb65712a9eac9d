"""The metrics of whole nodes: every figure is what was done, counted once in the cluster."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from raftline.machines.delivery.commands import ACK, NACK, REJECT
from raftline.model.groups import CommitCursors, JoinGroup, Offset
from raftline.model.overview import Overview
from raftline.testing import SimCluster, cluster
from tests.unit.node.whole import answer_of, node
from tests.unit.node.work import GROUP, TOPIC, offsets, receive, settle

Key = tuple[str, tuple[tuple[str, str], ...]]


@pytest.fixture
def sim():
    with cluster(nodes=3, seed=5) as made:
        made.create_topic(TOPIC, partitions=1)
        yield made


def scrape(sim: SimCluster, name: str) -> dict[Key, float]:
    """Return all samples of a node, read as Prometheus reads them."""
    text = node(sim, name).measures.board().render().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(sim: SimCluster, name: str, **labels: str) -> float:
    """Return the sum of a metric over all nodes, of the rows with these labels."""
    found = [
        value
        for host in sim.running
        for (sample, row), value in scrape(sim, host).items()
        if sample == name and labels.items() <= dict(row).items()
    ]
    assert found, name
    return sum(found)


def test_what_is_appended_and_read_is_counted_once_in_the_cluster(sim: SimCluster) -> None:
    for start in range(0, 30, 10):
        sim.append(TOPIC, [b"%d" % n for n in range(start, start + 10)])
    sim.append(TOPIC, [b"alone"])
    sim.read_all(TOPIC, 0)
    sim.advance("1s")  # until followers applied it too
    assert total(sim, "raftline_topic_in_messages_total", topic=TOPIC) == 31
    assert total(sim, "raftline_topic_read_messages_total", topic=TOPIC) == 31
    assert total(sim, "raftline_topic_messages", topic=TOPIC) == 31
    assert total(sim, "raftline_partition_commit_end", topic=TOPIC, partition="0") == 31
    into = total(sim, "raftline_topic_in_bytes_total", topic=TOPIC)
    assert into == total(sim, "raftline_topic_read_bytes_total", topic=TOPIC) > 0
    assert total(sim, "raftline_topic_log_bytes", topic=TOPIC) == 3 * into
    assert total(sim, "raftline_append_seconds_count") == 4
    assert total(sim, "raftline_wal_sync_seconds_count") > 0
    assert total(sim, "raftline_turn_seconds_count") > 0


def test_work_groups_tell_lag_in_messages_and_in_seconds(sim: SimCluster) -> None:
    sim.append(TOPIC, [b"%d" % n for n in range(10)])
    sim.advance("3s")
    first = receive(sim, count=6)
    assert offsets(first) == [0, 1, 2, 3, 4, 5]
    sim.advance("100ms")
    place = {"topic": TOPIC, "group": GROUP}
    assert total(sim, "raftline_group_lag_messages", kind="work", partition="0", **place) == 10
    lag_s = total(sim, "raftline_group_lag_seconds", kind="work", partition="0", **place)
    assert 2.5 <= lag_s <= 4.0
    assert total(sim, "raftline_group_oldest_unacked_seconds", **place) == lag_s
    assert total(sim, "raftline_group_messages", state="leased", **place) == 6
    assert total(sim, "raftline_group_messages", state="fresh", **place) == 4
    assert not settle(sim, first)
    assert total(sim, "raftline_group_lag_messages", **place) == 4
    assert total(sim, "raftline_group_settled_messages_total", verb="ack", **place) == 6
    assert total(sim, "raftline_group_delivered_messages_total", **place) == 6
    assert total(sim, "raftline_settle_seconds_count") == 1
    assert total(sim, "raftline_receive_seconds_count") == 1


def test_retries_expiries_late_settles_and_dead_letters_are_told(sim: SimCluster) -> None:
    sim.append(TOPIC, [b"a", b"b", b"c"])
    first = receive(sim, count=1)
    settle(sim, first, NACK)
    settle(sim, receive(sim, count=1), REJECT)  # the same message again
    late = receive(sim, count=1, lease_ms=1_000)
    sim.advance("4s")
    assert settle(sim, late, ACK) == [1, 2]
    assert sorted(offsets(receive(sim, count=3))) == [1, 2]
    sim.advance("2s")
    place = {"topic": TOPIC, "group": GROUP}
    assert total(sim, "raftline_group_delivered_messages_total", **place) == 5
    assert total(sim, "raftline_group_redelivered_messages_total", **place) == 2
    assert total(sim, "raftline_group_settled_messages_total", verb="nack", **place) == 1
    assert total(sim, "raftline_group_settled_messages_total", verb="reject", **place) == 1
    assert total(sim, "raftline_group_lease_lost_messages_total", **place) == 1
    assert total(sim, "raftline_group_lease_expired_messages_total", **place) == 1
    assert total(sim, "raftline_topic_dead_letters_total", topic=TOPIC) == 1
    assert total(sim, "raftline_topic_outbox_messages", topic=TOPIC) == 0
    assert total(sim, "raftline_group_messages", state="dead", **place) == 1


def test_stream_groups_tell_their_lag_members_and_moves(sim: SimCluster) -> None:
    for _ in range(2):
        sim.append(TOPIC, [b"%d" % n for n in range(10)])
        sim.advance("2s")
    view = sim.group(JoinGroup("readers", topics=(TOPIC,), client="c"))
    sim.group(CommitCursors("readers", view.member, view.generation, {TOPIC: {0: Offset(10)}}))
    place = {"topic": TOPIC, "group": "readers", "kind": "stream", "partition": "0"}
    assert total(sim, "raftline_group_lag_messages", **place) == 10
    assert 1.5 <= total(sim, "raftline_group_lag_seconds", **place) <= 4.0
    assert total(sim, "raftline_group_members", group="readers") == 1
    assert total(sim, "raftline_group_rebalances_total", group="readers") >= 1


def test_raft_tells_roles_terms_and_elections(sim: SimCluster) -> None:
    sim.append(TOPIC, [b"x"])
    assert total(sim, "raftline_shards", role="leader") == 2  # the catalog and the partition
    assert total(sim, "raftline_shards", role="follower") == 4
    assert total(sim, "raftline_catalog_leader") == 1
    assert total(sim, "raftline_shards_under_replicated") == 0
    won = total(sim, "raftline_elections_won_total")
    assert won >= 2
    sim.kill_leader(TOPIC)
    sim.advance("5s")
    sim.append(TOPIC, [b"y"])
    assert total(sim, "raftline_elections_won_total") >= 1
    assert total(sim, "raftline_shards_under_replicated") >= 1
    assert total(sim, "raftline_nodes", state="silent") == 2


def test_ages_are_known_after_a_restart_too(sim: SimCluster) -> None:
    sim.append(TOPIC, [b"%d" % n for n in range(10)])
    receive(sim, count=1, lease_ms=1_000)
    sim.advance("2s")
    for name in sim.nodes:
        sim.stop(name)
    for name in sim.nodes:
        sim.start(name)
    sim.wait_ready()
    sim.append(TOPIC, [b"new"])
    assert 1.5 <= total(sim, "raftline_group_oldest_unacked_seconds", topic=TOPIC) <= 30


def test_one_node_tells_of_the_whole_cluster(sim: SimCluster) -> None:
    sim.append(TOPIC, [b"%d" % n for n in range(10)])
    receive(sim, count=4)
    sim.advance("100ms")  # a first delivery goes out before its Grant is committed
    for name in sim.nodes:
        seen = answer_of(sim, lambda done, name=name: node(sim, name).glances.all(1_000, done))
        assert isinstance(seen, Overview)
        assert (len(seen.nodes), seen.silent) == (3, [])
        assert sum(row.leads for row in seen.nodes) == 2
        (partition,) = [row for found in seen.nodes for row in found.partitions]
        assert (partition.topic, partition.commit_end) == (TOPIC, 10)
        (group,) = [row for found in seen.nodes for row in found.groups]
        assert (group.group, group.lag, group.leased) == (GROUP, 10, 4)
    gone = sim.nodes[2]
    number = sim.number_of(gone)
    sim.kill(gone)
    sim.advance("3s")
    seen = answer_of(sim, lambda done: node(sim, sim.nodes[0]).glances.all(1_000, done))
    assert isinstance(seen, Overview)
    assert seen.silent == [number]


def test_a_look_wakes_no_shard(sim: SimCluster) -> None:
    sim.append(TOPIC, [b"x"])
    sim.advance("10s")
    assert total(sim, "raftline_shards_quiet") == 6
    answer_of(sim, lambda done: node(sim, sim.nodes[0]).glances.all(1_000, done))
    assert total(sim, "raftline_shards_quiet") == 6


def test_connections_are_told_of_gateways_that_count_them(sim: SimCluster) -> None:
    """gRPC's library does not tell how many there are: 0 was a wrong answer."""
    name = sim.running[0]
    counters = node(sim, name).counters
    counters.gateway("grpc").requests += 1
    counters.gateway("http").connections = 3
    rows = scrape(sim, name).items()
    found = {labels: value for (metric, labels), value in rows if "connections" in metric}
    assert found == {(("gateway", "http"),): 3}
