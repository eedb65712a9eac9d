"""Founding and admission: who becomes a member, and as whom. F1-F3."""

import errno

import msgspec
import pytest

from raftline.model.ids import CATALOG_SHARD
from raftline.node import founding
from raftline.node.identity import load_identity
from raftline.testing import SimCluster, SimError, cluster
from tests.unit.node.little_ports import rng
from tests.unit.node.whole import node


def started(*names: str, nodes: int = 3, seed: int = 71) -> SimCluster:
    sim = SimCluster(nodes, seed)
    for name in names:
        sim.start(name)
    return sim


def clusters(sim: SimCluster) -> set[str]:
    return {node(sim, name).identity.cluster for name in sim.running}


def test_a_new_cluster_needs_all_its_nodes_once() -> None:
    """F3."""
    sim = started("node-1", "node-2")
    sim.advance("20s")
    assert clusters(sim) == {""}
    assert "node-3" in node(sim, "node-1").reason
    sim.start("node-3")
    sim.wait_ready()
    assert len(clusters(sim)) == 1
    sim.kill("node-1")
    sim.kill("node-2")
    sim.kill("node-3")
    sim.start("node-2")
    sim.start("node-3")
    sim.wait_ready(within="20s")
    assert sim.append("orders", [b"one"], via="node-2").count == 1


def test_a_cluster_of_one_founds_itself() -> None:
    with cluster(nodes=1, seed=72) as sim:
        assert sim.append("orders", [b"one"]).base_offset == 0


@pytest.mark.parametrize("operations", range(1, 14))
def test_a_founder_that_crashes_at_any_point_leaves_one_cluster_or_none(operations: int) -> None:
    """F2: its identity is on the disk before it invites anybody, or nobody was invited."""
    sim = started("node-1", "node-2", "node-3")
    sim.host("node-1").disk.power_off_after(operations)
    sim.advance("5s")
    if not sim.host("node-1").running:
        sim.start("node-1")
    sim.wait_ready(within="20s")
    assert len(clusters(sim)) == 1
    assert sim.bugs == []
    assert sim.append("orders", [b"one"]).base_offset == 0


@pytest.mark.parametrize("operations", range(1, 14))
def test_a_cluster_of_one_that_crashes_at_any_point_of_its_founding_boots(operations: int) -> None:
    """F2, I4: what never took part is opened by the next start."""
    sim = SimCluster(1, 71)
    sim.host("node-1").disk.power_off_after(operations)
    for _ in range(3):
        if not sim.host("node-1").running:
            sim.host("node-1").start()
            sim.advance("1s")
    sim.wait_ready(within="5s")
    assert sim.bugs == []


def test_a_catalog_replica_that_took_part_and_is_gone_never_comes_back() -> None:
    """I4: it may have voted."""
    with cluster(nodes=3, seed=77) as sim:
        before = node(sim, "node-2").identity.catalog_replica
        sim.kill("node-2")
        disk = sim.host("node-2").disk
        disk.remove_tree("shards/1")
        disk.sync_dir("shards")
        sim.start("node-2")
        assert node(sim, "node-2").shards.get(CATALOG_SHARD) is None
        sim.wait_ready(within="20s")
        after = node(sim, "node-2").shards.get(CATALOG_SHARD)
        assert after is not None
        assert after.id > before


def test_an_invitation_that_was_lost_is_repeated() -> None:
    sim = started("node-1", "node-2", "node-3")
    sim.run_until(lambda: node(sim, "node-1").founding.done)
    for name in ("node-2", "node-3"):
        sim.kill(name)
    sim.advance("2s")
    for name in ("node-2", "node-3"):
        identity = load_identity(sim.host(name).disk, name, rng(), bootstrap=False)
        assert not identity.cluster, "it was invited already: the test is too slow"
        sim.start(name)
    sim.wait_ready(within="20s")
    assert len(clusters(sim)) == 1


def test_a_wiped_founder_is_admitted_under_its_number_with_new_replicas() -> None:
    """F1."""
    with cluster(nodes=3, seed=73) as sim:
        sim.create_topic("orders", partitions=1)
        number = sim.number_of("node-2")
        before = node(sim, "node-2").identity
        sim.wipe("node-2")
        sim.advance("3s")
        sim.start("node-2")
        sim.wait_ready(within="30s")
        after = node(sim, "node-2").identity
        assert (after.cluster, after.node) == (before.cluster, number)
        assert after.directory != before.directory
        assert after.catalog_replica > before.catalog_replica
        assert after.founders == ()
        voters = node(sim, "node-1").catalog_machine.shards[CATALOG_SHARD].replicas
        assert before.catalog_replica not in voters


@pytest.mark.parametrize("named_like_the_leader", [True, False])
def test_a_second_node_of_the_same_name_is_not_admitted_while_the_first_lives(
    *, named_like_the_leader: bool
) -> None:
    with cluster(nodes=3, seed=74) as sim:
        sim.advance("1s")  # they have heard of each other
        seats = {name: node(sim, name).shards.get(CATALOG_SHARD) for name in sim.nodes}
        leader, seat = next((n, s) for n, s in seats.items() if s is not None and s.is_leader)
        name = next(n for n in sim.nodes if (n == leader) == named_like_the_leader)
        twin = msgspec.structs.replace(node(sim, name).admit_request(), directory="f" * 32)
        heard: list[object] = []
        node(sim, leader).admissions.admit(seat, twin, 1_000, heard.append)
        sim.advance("2s")
        assert [getattr(answer, "code", "") for answer in heard] == ["not_ready"]
        assert node(sim, name).is_ready


def test_a_node_joins_and_one_that_is_told_to_join_never_founds() -> None:
    with cluster(nodes=1, seed=75) as sim:
        name = sim.add_node()
        sim.wait_ready([name], within="20s")
        assert len(clusters(sim)) == 1
    alone = SimCluster(1, 76)
    host = alone._add_host(2, peers={}, join="10.0.0.1:7000")
    alone.start(host.name)
    alone.advance("10s")
    assert clusters(alone) == {""}
    with pytest.raises(SimError):
        alone.wait_ready([host.name], within="1s")


def test_a_node_that_cannot_write_who_it_is_ends_and_is_admitted_again(monkeypatch) -> None:
    """F2: found by seed 100170, whose disk failed in that moment."""
    with cluster(nodes=3, seed=79) as sim:
        save = founding.save_identity

        def fail(disk, identity) -> None:
            raise OSError(errno.EIO, "input/output error", "identity.json.tmp")

        monkeypatch.setattr(founding, "save_identity", fail)
        name = sim.add_node()
        sim.run_until(lambda: name not in sim.running)
        assert sim.bugs == []
        assert "could not be written" in "\n".join(sim.log_lines())
        monkeypatch.setattr(founding, "save_identity", save)
        sim.start(name)
        sim.wait_ready([name])
        assert node(sim, name).identity.cluster == node(sim, "node-1").identity.cluster


@pytest.mark.parametrize("is_member", [True, False])
def test_a_node_may_be_called_at_another_address_than_it_tells(*, is_member: bool) -> None:
    """Who calls it hears that it is there, and hears from it afterwards as before."""
    with cluster(nodes=2, seed=80) as sim:
        if is_member:
            called = sim.host("node-2")
        else:
            called = sim._add_host(3, peers={}, join="10.0.0.99:7000")
            sim.start(called.name)
        sim.advance("1s")
        sim.net._ports["node-by-name:7000"] = sim.net._ports[called.address]
        asked = sim.command("cluster.add", via="node-1", address="node-by-name:7000")
        assert asked["name"] == called.name
        number = node(sim, called.name).id
        assert asked["node"] == number
        sim.advance("15s")
        assert node(sim, "node-1").peers.is_live(number)
        assert node(sim, called.name).peers.is_live(1)
