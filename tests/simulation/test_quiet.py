"""Shards nobody uses go quiet and stay so; any use wakes them; waiting readers are answered."""

from raftline.model.batch import check_batch
from raftline.model.records import seal_batch
from raftline.testing import cluster

PARTITIONS = 12


def nodes_of(sim):
    return [sim.host(name).node for name in sim.nodes]


def awake(sim):
    return [replica.name for node in nodes_of(sim) for replica in node.turn.awake]


def test_idle_shards_go_quiet_on_every_node_and_stay_so():
    with cluster(nodes=3, seed=11) as sim:
        sim.create_topic("idle", partitions=PARTITIONS)
        sim.advance("6s")
        assert awake(sim) == []
        for _ in range(20):
            sim.advance("500ms")
            assert awake(sim) == []
        assert all(len(node.shards) == PARTITIONS + 1 for node in nodes_of(sim))


def test_an_append_wakes_only_its_own_shard_and_it_rests_again():
    with cluster(nodes=3, seed=12) as sim:
        sim.create_topic("idle", partitions=PARTITIONS)
        sim.advance("6s")
        sim.append("idle", [b"one"], partition=3)
        assert set(awake(sim)) == {"idle/3"}
        sim.advance("6s")
        assert awake(sim) == []
        assert sim.read_all("idle", 3)
        assert sim.verify().identical


def test_a_dead_leader_of_quiet_shards_is_replaced():
    with cluster(nodes=3, seed=13) as sim:
        sim.create_topic("idle", partitions=PARTITIONS)
        sim.advance("6s")
        assert awake(sim) == []
        killed = sim.kill_leader("idle", 5)
        via = next(name for name in sim.running)
        assert killed not in sim.running
        sim.advance("500ms")
        assert sim.append("idle", [b"after"], partition=5, via=via).count == 1


def test_a_reader_that_waits_at_a_quiet_partition_is_answered_in_time():
    with cluster(nodes=3, seed=14) as sim:
        sim.create_topic("idle", partitions=1)
        sim.advance("6s")
        assert awake(sim) == []
        node = sim.host(sim.leader("idle")).node
        answers = []
        node.read("idle", 0, 0, 1 << 20, 3_000, 10_000, answers.append)
        sim.advance("2900ms")
        assert answers == []
        sim.advance("200ms")
        assert [reply.batches for reply in answers] == [b""]
        assert not node.shards.pressure.parked


def test_bytes_that_wait_are_weighed_until_their_outcome():
    with cluster(nodes=3, seed=15) as sim:
        sim.create_topic("weighed", partitions=1)
        sim.advance("1s")
        leader = sim.leader("weighed")
        for at in range(5):
            sim.append("weighed", [b"x" * 100], via=leader)
            assert sim.host(leader).node.shards.pressure.bytes == 0, at
        others = [name for name in sim.nodes if name != leader]
        for name in others:
            sim.kill(name)
        node = sim.host(leader).node
        answers = []
        batch = seal_batch([(None, b"lost", (), 1)])
        node.append("weighed", 0, batch, check_batch(batch), 400, answers.append)
        sim.advance("10ms")
        assert node.shards.pressure.bytes == len(batch)
        sim.advance("2s")
        assert len(answers) == 1
        assert node.shards.pressure.bytes == 0
