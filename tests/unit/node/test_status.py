"""Status: the cluster as one node sees it."""

from raftline.testing import cluster


def test_without_a_majority_nobody_leads() -> None:
    """Neither who led when all was quiet, nor whoever happens to live."""
    with cluster(nodes=5, seed=11) as sim:
        sim.create_topic("orders", partitions=1, replication_factor=5)
        sim.append("orders", [b"one"])
        sim.advance("5s")
        for name in sim.nodes:
            assert sim.status(name).leaderless == ()
            assert sim.status(name).catalog_leader
        voters = [node.id for node in sim.status().nodes][:3]  # of the catalog
        for number in voters[1:]:
            sim.kill(sim.name_of(number))
        sim.kill("node-5")
        sim.advance("20s")
        for name in sim.running:
            assert sim.status(name).leaderless == ("orders/0",)
            assert [row.state for row in sim.partitions("orders", name)] == ["no leader"]
        assert sim.status(sim.name_of(voters[0])).catalog_leader == 0
