"""Shards on a node: how replicas come, leave and stay themselves. H1-H6."""

import pytest

from raftline.model.errors import Damaged
from raftline.testing import SimCluster, cluster
from raftline.testing.world import SimLane
from tests.unit.node.whole import answer_of, lead, node, replica, shard_of, stall_segments

TOPIC = "orders"
NEVER = -1


def orders(sim: SimCluster) -> tuple[str, str]:
    sim.create_topic(TOPIC, partitions=1)
    for number in range(5):
        sim.append(TOPIC, [b"%d" % number])
    sim.advance("1s")
    leader, (follower, _) = lead(sim, TOPIC)
    return leader, follower


def delete(sim: SimCluster) -> None:
    first = node(sim, "node-1")
    answer_of(sim, lambda done: first.command("topic.delete", {"name": TOPIC}, 5_000, done))


def test_a_crash_while_a_replica_is_deleted_brings_it_back_whole_or_not_at_all() -> None:
    """H5: with the directory and without its vote it could vote twice."""
    with cluster(nodes=3, seed=41) as sim:
        _, follower = orders(sim)
        gone = replica(sim, follower, TOPIC)
        before = (gone.raft.term, gone.raft.vote, gone.raft.last_index)
        stall_segments(sim, follower, 10_000)
        node(sim, follower).shards.destroy(gone.shard, lambda: None)
        sim.advance("1s")  # the WAL is written and synced
        sim.power_off(follower)
        sim.start(follower)
        back = node(sim, follower).shards.get(gone.shard)
        if back is not None:
            assert (back.raft.term, back.raft.vote, back.raft.last_index) == before


def test_a_deleted_replica_leaves_nothing_behind() -> None:
    with cluster(nodes=3, seed=42) as sim:
        _, follower = orders(sim)
        shard = shard_of(sim, TOPIC)
        delete(sim)
        sim.run_until(lambda: node(sim, follower).shards.get(shard) is None)
        sim.advance("1s")
        assert [name for name in sim.host(follower).disk.listdir("shards") if name != "1"] == []


def test_no_file_of_a_deleted_replica_stays_open() -> None:
    """Else the disk has its space back only at the next start."""
    with cluster(nodes=1, seed=42) as sim:
        shards = node(sim, "node-1").shards
        sim.create_topic(TOPIC, partitions=1)
        sim.append(TOPIC, [b"synced"])
        sim.advance("10s")
        sim.append(TOPIC, [b"pinned"])
        sim.advance("2s")  # written out, not synced
        held = [path for path in shards._pool._files if path.startswith("shards/")]
        assert held
        files = [shards._pool._files[path] for path in held]
        delete(sim)
        sim.advance("2s")
        assert not shards._pool._files
        assert not shards._pool._pinned
        for file in files:
            with pytest.raises(OSError, match="closed"):
                file.size()


def test_what_was_set_aside_to_be_deleted_is_removed_at_the_next_start() -> None:
    with cluster(nodes=3, seed=43) as sim:
        _, follower = orders(sim)
        shard = shard_of(sim, TOPIC)
        disk = sim.host(follower).disk
        # Not waited for: when it is answered, the follower has removed it already.
        node(sim, "node-1").command("topic.delete", {"name": TOPIC}, 5_000, lambda _: None)
        sim.run_until(lambda: any(name.startswith(f"{shard}.") for name in disk.listdir("shards")))
        sim.kill(follower)
        sim.start(follower)
        sim.advance("1s")
        assert disk.listdir("shards") == ["1"]


def test_catalog_changes_while_a_replica_is_replaced_open_it_once() -> None:
    """The second opening would set the first one's directory aside under it."""
    with cluster(nodes=3, seed=44) as sim:
        _, follower = orders(sim)
        old = replica(sim, follower, TOPIC)
        number = node(sim, follower).id
        sim.advance("1s")
        stall_segments(sim, follower, 1_000)
        sim.command("replica.replace", shard=old.shard, node=number, seen=old.id)
        sim.create_topic("another", partitions=1)
        sim.create_topic("third", partitions=1)
        sim.advance("3s")
        names = sim.host(follower).disk.listdir("shards")
        assert [name for name in names if not name.isdigit()] == []
        assert replica(sim, follower, TOPIC).id > old.id
        sim.advance("5s")
        assert sim.verify().identical


def test_the_next_replica_begins_when_the_wal_has_forgotten_the_one_before() -> None:
    """H5: after a power cut its checkpoint and the log of the other one did not fit together."""
    with cluster(nodes=3, seed=45) as sim:
        sim.create_topic(TOPIC, partitions=1, replication_factor=2)
        for number in range(5):
            sim.append(TOPIC, [b"%d" % number])
        sim.advance("10s")
        _, (follower,) = lead(sim, TOPIC)
        old, ours = replica(sim, follower, TOPIC), node(sim, follower)
        sim.append(TOPIC, [b"not in a checkpoint"])
        sim.command("replica.replace", shard=old.shard, node=ours.id, seen=old.id)
        sim.advance("1s")
        lane = ours._sync_lane
        assert isinstance(lane, SimLane)
        lane.stalled_until_ms = sim.now_ms + 10_000
        ours.shards.stop_replica(old, "a test")
        ours.seats.catalog_changed(())
        sim.advance("300ms")
        assert ours.shards.known(old.shard) == 0
        sim.power_off(follower)
        sim.start(follower)
        sim.run_until(lambda: node(sim, follower).shards.get(old.shard) is not None)
        assert replica(sim, follower, TOPIC).id > old.id


def lose_directory(sim: SimCluster, name: str) -> int:
    """End a node and take the directory of its replica; return the shard."""
    shard = shard_of(sim, TOPIC)
    sim.kill(name)
    disk = sim.host(name).disk
    disk.remove_tree(f"shards/{shard}")
    disk.sync_dir("shards")
    return shard


@pytest.mark.parametrize("starts", [1, 2])
def test_a_replica_whose_directory_is_gone_never_comes_back_under_its_number(starts: int) -> None:
    """H6: it voted, and what it acknowledged counts for a majority."""
    with cluster(nodes=3, seed=48) as sim:
        _, follower = orders(sim)
        old = replica(sim, follower, TOPIC)
        shard = lose_directory(sim, follower)
        for _ in range(starts - 1):
            sim.start(follower)
            sim.kill(follower)
        sim.start(follower)
        sim.run_until(lambda: node(sim, follower).shards.get(shard) is not None, "30s")
        assert replica(sim, follower, TOPIC).id > old.id
        sim.advance("10s")
        assert node(sim, follower).shards.quarantined == {}
        assert sim.verify().identical
        sim.kill(follower)
        sim.start(follower)
        assert node(sim, follower).shards.quarantined == {}


def test_where_nobody_else_has_it_a_directory_that_is_gone_is_told() -> None:
    """H6: begun anew, it would give offsets a second time."""
    with cluster(nodes=1, seed=49) as sim:
        sim.create_topic(TOPIC, partitions=1)
        sim.append(TOPIC, [b"one"])
        sim.advance("1s")
        lose_directory(sim, "node-1")
        sim.start("node-1")
        sim.advance("5s")
        with pytest.raises(Damaged, match="its directory is gone"):
            sim.append(TOPIC, [b"two"])
        delete(sim)
        sim.advance("1s")
        assert node(sim, "node-1").shards.quarantined == {}
        assert sim.append(TOPIC, [b"anew"]).base_offset == 0


def test_a_replica_that_found_no_room_is_made_when_there_is_some() -> None:
    """H7: nobody else has it, so nobody would give this node another one."""
    with cluster(nodes=1, seed=61) as sim:
        sim.advance("1s")
        disk = sim.host("node-1").disk
        room, disk.capacity_bytes = disk.capacity_bytes, disk.used_bytes + 100
        asked = {"name": TOPIC, "partitions": 1, "replication_factor": 1, "settings": {}}
        node(sim, "node-1").command("topic.create", asked, 5_000, lambda _: None)
        sim.advance("5s")
        assert not node(sim, "node-1").shards.get(shard_of(sim, TOPIC))
        disk.capacity_bytes = room
        sim.advance("5s")
        assert sim.append(TOPIC, [b"one"]).base_offset == 0
        assert [name for name in disk.listdir("shards") if not name.isdigit()] == []


def test_where_a_replica_finds_no_room_others_are_known_to_lead() -> None:
    """H7: clients that asked this node for the leader heard of none until there was room."""
    with cluster(nodes=3, seed=62) as sim:
        sim.advance("1s")
        disk = sim.host("node-1").disk
        disk.capacity_bytes = disk.used_bytes + 100
        sim.create_topic(TOPIC, partitions=1, replication_factor=3)
        sim.advance("5s")
        ours = node(sim, "node-1")
        shard = shard_of(sim, TOPIC)
        assert ours.shards.get(shard) is None
        assert ours.shards.known(shard)
        assert ours.router.known_leader(shard) in (2, 3)


@pytest.mark.parametrize("operations", range(1, 25))
def test_the_power_may_fail_at_any_point_of_making_the_only_replica(operations: int) -> None:
    """H6: it never took part, so a start makes it anew."""
    with cluster(nodes=1, seed=50) as sim:
        sim.advance("1s")
        asked = {"name": TOPIC, "partitions": 1, "replication_factor": 1, "settings": {}}
        node(sim, "node-1").command("topic.create", asked, 5_000, lambda _: None)
        sim.host("node-1").disk.power_off_after(operations)
        sim.advance("2s")
        sim.host("node-1").disk.power_off_after(NEVER)
        if not sim.host("node-1").running:
            sim.start("node-1")
        sim.advance("2s")
        assert node(sim, "node-1").shards.quarantined == {}
        assert sim.append(TOPIC, [b"one"]).base_offset == 0


@pytest.mark.parametrize("operations", range(1, 25))
def test_the_power_may_fail_at_any_point_of_deleting_a_replica(operations: int) -> None:
    """H5, H6: what was meant to go is not taken for lost."""
    with cluster(nodes=3, seed=51) as sim:
        _, follower = orders(sim)
        old = replica(sim, follower, TOPIC)
        number = node(sim, follower).id
        sim.command("replica.replace", shard=old.shard, node=number, seen=old.id)
        sim.host(follower).disk.power_off_after(operations)
        sim.advance("5s")
        sim.host(follower).disk.power_off_after(NEVER)
        if not sim.host(follower).running:
            sim.start(follower)
        sim.run_until(lambda: is_level(sim, follower, old.shard, old.id), "30s")
        sim.advance("5s")
        assert node(sim, follower).shards.quarantined == {}
        assert sim.verify().identical


def is_level(sim: SimCluster, name: str, shard: int, old: int) -> bool:
    found = node(sim, name).shards.get(shard)
    return found is not None and found.id > old and found.applied_index > 0 and not found.frozen


def test_a_resignation_that_is_lost_is_said_again() -> None:
    """L6: the links are back before anybody misses the node, and its shard rests."""
    with cluster(nodes=3, seed=52) as sim:
        leader, _ = orders(sim)
        sim.advance("10s")
        stopped = replica(sim, leader, TOPIC)
        assert stopped.quiet
        sim.isolate(leader)
        sim.advance("20ms")
        node(sim, leader).shards.stop_replica(stopped, "a test")
        sim.advance("200ms")
        sim.heal()
        sim.advance("2s")
        assert sim.append(TOPIC, [b"late"]).base_offset == 5


@pytest.mark.parametrize("rest", ["0s", "10s"])
def test_a_leader_taken_out_of_service_is_replaced_at_once(rest: str) -> None:
    """Quiet or not: the heartbeats of its node go on, so the others must be told. L6, A2."""
    with cluster(nodes=3, seed=45) as sim:
        leader, _ = orders(sim)
        sim.advance(rest)
        stopped = replica(sim, leader, TOPIC)
        if rest == "0s":
            stopped.wake()
        assert stopped.quiet == (rest != "0s")
        node(sim, leader).shards.stop_replica(stopped, "a test")
        began = sim.now_ms
        assert sim.append(TOPIC, [b"late"], via=leader).base_offset == 5
        assert sim.now_ms - began < 500, "nobody told the others that their leader is gone"


def test_a_stop_ends_although_a_replica_fails_meanwhile() -> None:
    with cluster(nodes=3, seed=46) as sim:
        leader, _ = orders(sim)
        ended: list[bool] = []
        node(sim, leader).stop(lambda: ended.append(True))
        node(sim, leader).shards.stop_replica(replica(sim, leader, TOPIC), "a test")
        sim.run_until(lambda: bool(ended))


def test_a_replica_filled_by_catch_up_takes_calls_directly() -> None:
    """The table of places follows the replica that is open now."""
    with cluster(nodes=3, seed=47) as sim:
        _, follower = orders(sim)
        sim.wipe(follower)
        sim.start(follower)
        shard = shard_of(sim, TOPIC)
        sim.run_until(
            lambda: (
                (found := node(sim, follower).shards.get(shard)) is not None
                and found.applied_index > 0
                and not found.frozen
            ),
            "30s",
        )
        place = node(sim, follower)._local[(TOPIC, 0)]
        assert place.replica is replica(sim, follower, TOPIC)
