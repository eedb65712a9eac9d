"""Seats: what the catalog wants of a node. B1-B4."""

import msgspec
import pytest

from raftline.model.errors import NotReady, RaftlineError, UnknownTopic
from raftline.model.ids import CATALOG_SHARD, ReplicaId, node_of
from raftline.node.replica import Replica
from raftline.storage.checkpoint import load_checkpoint
from raftline.testing import SimCluster, cluster
from tests.unit.node.whole import lead, node, replica, shard_of

TOPIC = "orders"


def orders(sim: SimCluster) -> tuple[str, list[str]]:
    sim.create_topic(TOPIC, partitions=1)
    sim.append(TOPIC, [b"one"])
    sim.advance("1s")
    return lead(sim, TOPIC)


def test_after_a_start_no_replica_is_opened_before_a_leader_confirmed_the_catalog() -> None:
    """B1: an old catalog may name a replica that was here and voted."""
    with cluster(nodes=3, seed=81) as sim:
        _, (follower, _) = orders(sim)
        shard = shard_of(sim, TOPIC)
        sim.kill(follower)
        disk = sim.host(follower).disk
        disk.remove_tree(f"shards/{shard}")  # as if it had been deleted for good meanwhile
        disk.sync_dir("shards")
        for other in sim.nodes:
            if other != follower:
                sim.cut(follower, other)
        sim.start(follower)
        sim.advance("5s")
        assert node(sim, follower).catalog_machine.shards[shard].topic == TOPIC
        assert node(sim, follower).shards.known(shard) == 0
        sim.heal()
        sim.run_until(lambda: node(sim, follower).shards.known(shard) > 0, "20s")


def test_after_a_start_nobody_is_told_that_a_topic_does_not_exist() -> None:
    """Its catalog is from before: it says that it is not ready, not that there is no topic."""
    with cluster(nodes=3, seed=86) as sim:
        _, (follower, _) = orders(sim)
        sim.kill(follower)
        sim.create_topic("later", partitions=1)
        for other in sim.nodes:
            if other != follower:
                sim.cut(follower, other)
        sim.start(follower)
        sim.run_until(lambda: node(sim, follower).is_ready, "20s")
        assert isinstance(node(sim, follower).locate("later", 0), NotReady)
        sim.heal()
        sim.run_until(lambda: isinstance(node(sim, follower).locate("later", 0), int), "20s")
        assert isinstance(node(sim, follower).locate("never", 0), UnknownTopic)


def test_a_moved_replica_is_deleted_only_after_its_leader_says_it_is_out() -> None:
    """B2."""
    with cluster(nodes=4, seed=82) as sim:
        leader, others = orders(sim)
        source = others[0]
        target = next(name for name in sim.nodes if name not in (leader, *others))
        moved = replica(sim, source, TOPIC)
        asked = sim.command(
            "cluster.move", topic=TOPIC, partition=0, from_node=source, to_node=target
        )
        assert asked["index"]

        def is_in() -> bool:
            conf = replica(sim, lead(sim, TOPIC)[0], TOPIC).conf
            return moved.id in (*conf.voters, *conf.voters_outgoing)

        while is_in():
            assert node(sim, source).shards.get(moved.shard) is moved
            sim.advance("50ms")
        sim.run_until(lambda: node(sim, source).shards.get(moved.shard) is None, "30s")
        sim.advance("5s")
        assert sim.verify().identical


def move(sim: SimCluster, source: str, target: str) -> None:
    sim.command("cluster.move", topic=TOPIC, partition=0, from_node=source, to_node=target)


def test_an_only_replica_that_is_moved_away_and_back_keeps_its_messages() -> None:
    """B2: the newer one that is wanted in its place has nothing to be filled from but it."""
    with cluster(nodes=3, seed=88) as sim:
        sim.create_topic(TOPIC, partitions=1, replication_factor=1)
        sim.append(TOPIC, [b"one"])
        home, _ = lead(sim, TOPIC)
        away, third = (name for name in sim.nodes if name != home)
        sim.kill(away)
        move(sim, home, away)
        move(sim, away, home)
        sim.advance("20s")
        assert [row.state for row in sim.partitions(TOPIC, home)] == ["ok"], "where it should be"
        sim.append(TOPIC, [b"two"])
        move(sim, home, third)
        sim.run_until(lambda: lead(sim, TOPIC)[0] == third, "30s")
        assert [message.value for message in sim.read_all(TOPIC, 0)] == [b"one", b"two"]


@pytest.mark.parametrize("of", ["leader", "follower"])
def test_a_replica_that_is_moved_away_and_back_is_renewed_when_the_rest_is_a_majority(
    of: str,
) -> None:
    """B2: not while one of the others is dead, though the catalog wants a newer one."""
    with cluster(nodes=5, seed=91) as sim:
        leader, others = orders(sim)
        home, down = (leader, others[0]) if of == "leader" else (others[0], others[1])
        away = next(name for name in sim.nodes if name not in (leader, *others))
        old = replica(sim, home, TOPIC)
        sim.kill(down)
        sim.kill(away)
        sim.advance("3s")
        move(sim, home, away)
        move(sim, away, home)
        sim.advance("20s")
        assert node(sim, home).shards.get(old.shard) is old
        sim.append(TOPIC, [b"two"])
        sim.start(down)
        sim.run_until(lambda: is_renewed(sim, home, old), "60s")
        sim.start(away)
        sim.advance("5s")
        assert sim.verify().identical
        assert [message.value for message in sim.read_all(TOPIC, 0)] == [b"one", b"two"]


def test_a_replica_that_is_moved_away_and_back_is_renewed_while_another_one_moves() -> None:
    """M2: of those that are wanted one votes, so the older one may not go before another came."""
    with cluster(nodes=5, seed=92) as sim:
        leader, (home, _) = orders(sim)
        spare, away = (n for n in sim.nodes if n not in (leader, *lead(sim, TOPIC)[1]))
        old = replica(sim, home, TOPIC)
        sim.kill(away)
        sim.advance("3s")
        move(sim, home, away)
        move(sim, away, home)
        move(sim, leader, spare)
        sim.run_until(lambda: is_renewed(sim, home, old), "60s")
        sim.start(away)
        sim.run_until(lambda: lead(sim, TOPIC)[0] != leader, "10s")
        sim.advance("5s")
        assert sim.verify().identical
        assert [message.value for message in sim.read_all(TOPIC, 0)] == [b"one"]


def is_renewed(sim: SimCluster, home: str, old: Replica) -> bool:
    voters = replica(sim, lead(sim, TOPIC)[0], TOPIC).conf.voters
    new = node(sim, home).shards.get(old.shard)
    return new is not None and new.id > old.id and new.id in voters and len(voters) == 3


def test_a_replica_out_of_service_goes_with_its_topic() -> None:
    """A chaos run found one that could not be created and stayed in the list for ever."""
    with cluster(nodes=3, seed=85) as sim:
        _, (follower, _) = orders(sim)
        sim.host(follower).disk.fail_writes(f"shards/{shard_of(sim, TOPIC) + 1}/", 100)
        sim.create_topic("short", partitions=1)
        sim.run_until(lambda: bool(node(sim, follower).shards.quarantined), "10s")
        answers: list[object] = []
        other = next(name for name in sim.nodes if name != follower)
        node(sim, other).command("topic.delete", {"name": "short"}, 5_000, answers.append)
        sim.run_until(lambda: not node(sim, follower).shards.quarantined, "20s")
        sim.advance("5s")
        assert sim.verify().identical


def test_a_replica_out_of_service_that_was_moved_away_is_let_go() -> None:
    """B2: seed 20119 kept one, and what it had in the WAL, for ever."""
    with cluster(nodes=4, seed=93) as sim:
        leader, (home, other) = orders(sim)
        away = next(name for name in sim.nodes if name not in (leader, home, other))
        old = replica(sim, home, TOPIC)
        sim.kill(away)
        sim.advance("3s")
        move(sim, home, away)
        node(sim, home).shards.stop_replica(old, "damaged, say")
        sim.advance("5s")
        assert old.shard in node(sim, home).shards.quarantined, "it still votes"
        sim.start(away)
        sim.run_until(lambda: not node(sim, home).shards.quarantined, "30s")
        sim.advance("5s")
        assert sim.verify().identical
        assert not sim.host(home).disk.exists(f"shards/{old.shard}")


@pytest.mark.parametrize("is_cut", [False, True])
def test_the_only_replica_stays_on_the_disk_when_its_shard_goes_on_without_it(
    *, is_cut: bool
) -> None:
    """B3: who leads after a recovery began empty, and says of it that it is out."""
    with cluster(nodes=3, seed=94) as sim:
        sim.create_topic(TOPIC, partitions=1, replication_factor=1)
        sim.append(TOPIC, [b"one"])
        sim.advance("10s")
        home, _ = lead(sim, TOPIC)
        shard, disk = shard_of(sim, TOPIC), sim.host(home).disk
        node(sim, home).shards.stop_replica(replica(sim, home, TOPIC), "damaged, say")
        move(sim, home, next(name for name in sim.nodes if name != home))
        sim.advance("3s")
        sim.command("cluster.recover", via=home, timeout="20s", accept_loss=True)
        sim.run_until(lambda: any(".out-" in name for name in disk.listdir("shards")), "20s")
        if is_cut:
            sim.power_off(home)
            sim.start(home)
            sim.wait_ready()
        sim.advance("1s")
        assert sorted(disk.listdir("shards")) == ["1", f"{shard}.old-1"]
        assert load_checkpoint(disk, f"shards/{shard}.old-1").checkpoint is not None
        assert node(sim, home).shards.quarantined == {}
        sim.append(TOPIC, [b"two"], via=home)


def ask_member(sim: SimCluster, name: str, shard: int, asked: int) -> list[object]:
    heard: list[object] = []
    body = memoryview(msgspec.msgpack.encode((shard, asked)))
    node(sim, name).seats._on_member(body, 1_000, heard.append)
    return heard


def test_a_leader_without_a_majority_tells_nobody_that_it_is_out() -> None:
    """B2: its configuration may be one of the past."""
    with cluster(nodes=3, seed=83) as sim:
        leader, _ = orders(sim)
        shard = shard_of(sim, TOPIC)
        heard = ask_member(sim, leader, shard, 12345)
        sim.advance("1s")
        assert heard == [b"out"]
        sim.isolate(leader)
        heard = ask_member(sim, leader, shard, 12345)
        sim.advance("5s")
        assert len(heard) == 1
        assert isinstance(heard[0], RaftlineError)


def test_a_replica_out_of_service_is_replaced_where_the_rest_is_a_majority() -> None:
    with cluster(nodes=3, seed=84) as sim:
        _, (follower, _) = orders(sim)
        old = replica(sim, follower, TOPIC)
        node(sim, follower).shards.stop_replica(old, "a test")
        sim.run_until(
            lambda: (
                (new := node(sim, follower).shards.get(old.shard)) is not None
                and new.id in replica(sim, lead(sim, TOPIC)[0], TOPIC).conf.voters
            ),
            "30s",
        )
        assert replica(sim, follower, TOPIC).id > old.id
        assert node(sim, follower).shards.quarantined == {}


def test_where_the_rest_is_no_majority_nothing_is_automatic() -> None:
    """B3."""
    with cluster(nodes=2, seed=85) as sim:
        sim.create_topic(TOPIC, partitions=1, replication_factor=2)
        sim.append(TOPIC, [b"one"])
        _, (follower,) = lead(sim, TOPIC)
        old = replica(sim, follower, TOPIC)
        node(sim, follower).shards.stop_replica(old, "a test")
        sim.advance("20s")
        assert node(sim, follower).shards.quarantined[old.shard][0] == old.id


def test_a_node_that_leaves_votes_on_while_the_catalog_cannot_do_without_it() -> None:
    """B4: with a dead node among those that stay it would take the majority along."""
    with cluster(nodes=3, seed=89) as sim:
        sim.advance("3s")
        sim.kill("node-2")
        sim.advance("3s")
        leaving = node(sim, "node-3").id
        sim.command("cluster.remove", node="node-3", via="node-1")
        sim.advance("10s")
        sim.create_topic("later", partitions=1, replication_factor=1, via="node-1")
        assert not removed(sim, leaving)
        sim.start("node-2")
        sim.run_until(lambda: removed(sim, leaving), "30s")
        sim.kill("node-3")
        sim.create_topic("last", partitions=1, replication_factor=2, via="node-1")


def test_a_replica_out_of_service_stays_on_the_disk_while_the_others_are_dead() -> None:
    """B3: of three, too. It got a new number at once, and what may be the only copy was deleted."""
    with cluster(nodes=6, seed=96) as sim:
        sim.create_topic("first", partitions=1)
        home, others = orders(sim)
        shard, disk = shard_of(sim, TOPIC), sim.host(home).disk
        catalog = node(sim, home).catalog_machine.shards[CATALOG_SHARD].nodes()
        assert not {sim.name_of(number) for number in catalog} & set(others)
        sim.advance("10s")
        for name in others:
            sim.kill(name)
        sim.advance("3s")
        old = replica(sim, home, TOPIC)
        node(sim, home).shards.stop_replica(old, "damaged, say")
        sim.run_until(lambda: node(sim, home).shards.known(shard) > old.id, "20s")
        sim.advance("1s")
        assert load_checkpoint(disk, f"shards/{shard}.old-1").checkpoint is not None
        for name in others:
            sim.start(name)
        sim.run_until(lambda: replica(sim, home, TOPIC).applied_index > 0, "30s")
        assert [message.value for message in sim.read_all(TOPIC, 0)] == [b"one"]


def test_a_node_that_votes_in_the_catalog_is_not_dropped_by_its_own_word() -> None:
    """B4: it may be of before a recovery chose its copy. Everybody hung up on the only voter."""
    with cluster(nodes=4, seed=95) as sim:
        led = {name: node(sim, name).led(CATALOG_SHARD) for name in sim.nodes}
        name, catalog = next((n, found) for n, found in led.items() if isinstance(found, Replica))
        voters = [sim.name_of(node_of(ReplicaId(v))) for v in catalog.conf.voters]
        leaving = next(voter for voter in voters if voter != name)
        sim.command("cluster.remove", via=name, node=leaving)
        assert len(catalog.conf.voters) == 3
        heard: list[object] = []
        arguments: dict[str, object] = {"node": leaving}
        node(sim, name).admin._lead(catalog, "cluster.drained", arguments, 1_000, heard.append)
        assert [type(answer) for answer in heard] == [NotReady]
        sim.run_until(lambda: node(sim, name).catalog_machine.node_named(leaving) is None, "30s")


def test_a_node_that_comes_back_under_another_number_keeps_its_links() -> None:
    """A chaos run found them broken at every change of the catalog, by the row of its old self."""
    with cluster(nodes=3, seed=87) as sim:
        orders(sim)
        name = sim.add_node()
        sim.run_until(lambda: node(sim, name).is_ready, "20s")
        old = node(sim, name).id
        sim.command("cluster.remove", node=old, via="node-1")
        sim.run_until(lambda: removed(sim, old), "30s")
        sim.kill(name)
        sim.wipe(name)
        sim.start(name)
        sim.run_until(lambda: node(sim, name).is_ready, "30s")
        new = node(sim, name).id
        assert new != old
        sim.advance("2s")
        peer = node(sim, "node-1").peers.get(new)
        assert peer is not None
        for number in range(10):
            sim.create_topic(f"other-{number}", partitions=1)
            assert node(sim, "node-1").peers.get(new) is peer
            assert node(sim, "node-1").peers.is_live(new)


def removed(sim: SimCluster, number: int) -> bool:
    rows = node(sim, "node-1").catalog_machine.nodes
    return number not in rows or rows[number].state == "removed"


def test_a_dead_node_is_forgotten_when_it_is_removed_again_by_force() -> None:
    """It never says itself that it has left; its name was taken for ever."""
    with cluster(nodes=4, seed=96) as sim:
        orders(sim)
        sim.kill("node-3")
        sim.advance("3s")
        sim.command("cluster.remove", node="node-3", force=True)
        sim.advance("30s")
        assert "node-3" in [row.name for row in sim.status().nodes]
        sim.command("cluster.remove", node="node-3", force=False)  # nothing new
        sim.command("cluster.remove", node="node-3", force=True)
        sim.run_until(lambda: "node-3" not in [row.name for row in sim.status().nodes])
        sim.wipe("node-3")
        sim.start("node-3")
        sim.wait_ready(["node-3"], within="20s")
        assert sim.number_of("node-3") == 5
        assert {row.name: row.state for row in sim.status().nodes}["node-3"] == "live"


def test_a_live_node_that_leaves_is_not_forgotten_by_force() -> None:
    """B4."""
    with cluster(nodes=4, seed=97) as sim:
        orders(sim)
        number = sim.number_of("node-3")
        sim.command("cluster.remove", node="node-3")
        leaving = node(sim, "node-1").catalog_machine
        sim.command("cluster.remove", node=number, force=True, via="node-1")
        assert leaving.nodes[number].state == "leaving"
        sim.run_until(lambda: leaving.nodes[number].state == "removed", "30s")
