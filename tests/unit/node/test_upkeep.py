"""Upkeep: ticks after a late turn, ticks of all nodes at once, and a disk that fills. V1-V7."""

import pytest
from msgspec.structs import replace

from raftline.model.errors import DiskFull, OverLimit, TimedOut
from raftline.model.ids import CATALOG_SHARD, ReplicaId, node_of
from raftline.model.limits import GIB, MIB
from raftline.node.replica import Replica
from raftline.testing import SimCluster, cluster
from raftline.testing.cluster import sim_settings
from raftline.transport.rpcs import Quiet
from tests.unit.node.whole import answer_of, lead, node, replica, stall_segments

TOPIC = "orders"


def orders(sim: SimCluster) -> tuple[str, list[str]]:
    sim.create_topic(TOPIC, partitions=1)
    sim.append(TOPIC, [b"one"])
    sim.advance("1s")
    return lead(sim, TOPIC)


def test_a_late_turn_drains_sockets_first_and_makes_up_no_ticks() -> None:
    """V1: a follower that was stopped for a minute finds its leader alive."""
    with cluster(nodes=3, seed=91) as sim:
        leader, (follower, _) = orders(sim)
        term = replica(sim, leader, TOPIC).raft.term
        for _ in range(5):
            sim.pause(follower)
            sim.append(TOPIC, [b"more"])
            sim.advance("2s")
            sim.resume(follower)
            sim.advance("300ms")
        assert replica(sim, follower, TOPIC).raft.term == term
        assert lead(sim, TOPIC)[0] == leader


def test_the_tick_after_a_late_turn_comes_after_what_the_sockets_hold() -> None:
    """V1: one tick, and not in the late turn itself."""
    with cluster(nodes=3, seed=96) as sim:
        _, (follower, _) = orders(sim)
        ours, upkeep = replica(sim, follower, TOPIC), node(sim, follower).upkeep
        sim.append(TOPIC, [b"awake"])
        sim.isolate(follower)
        sim.advance("150ms")
        before = ours.raft.election_elapsed
        upkeep._tick_due -= 10_000
        upkeep._tick()
        assert ours.raft.election_elapsed == before
        sim.advance(0)
        assert ours.raft.election_elapsed == before + 1


@pytest.mark.parametrize("seed", range(4))
def test_followers_that_lose_patience_in_the_same_tick_do_not_split_the_votes(seed: int) -> None:
    """V4: both tick at the same instants of the wall clock, and one stands before the other."""
    with cluster(nodes=3, seed=170 + seed) as sim:
        leader, followers = orders(sim)
        sim.append(TOPIC, [b"awake"])
        sim.isolate(leader)
        standing = [replica(sim, name, TOPIC) for name in followers]
        term = standing[0].raft.term
        for ours in standing:
            ours.wake()
            ours.raft.election_elapsed = 0
            ours.raft.election_timeout_ticks = 12
        sim.run_until(lambda: any(ours.is_leader for ours in standing), within="3s")
        assert [ours.raft.term for ours in standing] == [term + 1, term + 1]


def fill_disk(sim: SimCluster, name: str) -> None:
    """Leave less than the floor of free space on a host."""
    disk = sim.host(name).disk
    free, total = disk.space()
    ballast = disk.open("ballast", create=True)
    ballast.allocate(free - min(total // 50, GIB))


def empty_disk(sim: SimCluster, name: str) -> None:
    sim.host(name).disk.remove("ballast")


def test_a_leader_with_a_full_disk_hands_over_and_appends_go_on() -> None:
    """V2."""
    with cluster(nodes=3, seed=92) as sim:
        leader, _ = orders(sim)
        fill_disk(sim, leader)
        sim.run_until(lambda: lead(sim, TOPIC)[0] != leader, "10s")
        assert sim.append(TOPIC, [b"two"], via=leader).base_offset == 1
        assert "full" in node(sim, leader).reason
        assert not replica(sim, leader, TOPIC).is_closed


def test_where_no_majority_has_room_appends_are_refused_and_the_rest_goes_on() -> None:
    """V2: reads, trims and elections; and appends again once there is room."""
    with cluster(nodes=3, seed=93) as sim:
        orders(sim)
        for name in sim.nodes[:2]:
            fill_disk(sim, name)
        sim.advance("5s")
        with pytest.raises(DiskFull):
            sim.append(TOPIC, [b"two"])
        assert [m.value for m in sim.read_all(TOPIC)] == [b"one"]
        sim.trim(TOPIC, 0, 1)
        for name in sim.nodes[:2]:
            empty_disk(sim, name)
        sim.advance("5s")
        assert sim.append(TOPIC, [b"two"]).base_offset == 1


def test_a_leader_that_writes_its_segments_too_slowly_says_so_and_goes_on_once_it_can() -> None:
    """It was told as a disk with 0 bytes free."""
    with cluster(nodes=1, seed=7) as sim:
        leader, _ = orders(sim)
        stall_segments(sim, leader, 5_000)

        def press() -> None:
            for _ in range(100):
                sim.append(TOPIC, [bytes(400_000)])

        with pytest.raises(OverLimit, match=f"write-ahead log of {leader}"):
            press()
        sim.advance("10s")
        assert sim.append(TOPIC, [b"two"]).base_offset > 1


def test_a_follower_that_writes_its_segments_too_slowly_does_not_grow_without_end() -> None:
    """V8: the others go on, and it follows once its lane does."""
    with cluster(nodes=3, seed=7) as sim:
        leader, (slow, _) = orders(sim)
        wal = node(sim, slow).wal
        stall_segments(sim, slow, 60_000)
        for _ in range(100):
            sim.append(TOPIC, [bytes(400_000)], via=leader)
            sim.advance("500ms")
        assert wal.bytes_used < 3 * node(sim, slow).settings.wal.bytes_max

        def is_level() -> bool:
            ends = [replica(sim, name, TOPIC).applied_index for name in sim.nodes]
            return len(set(ends)) == 1

        sim.run_until(is_level, "60s")


def test_a_disk_is_not_full_any_more_when_what_filled_it_was_deleted() -> None:
    """S4: the flush that found no room is never tried again, and nothing else is there to write."""
    with cluster(nodes=1, seed=66) as sim:
        only, disk = node(sim, "node-1"), sim.host("node-1").disk
        sim.create_topic("large", partitions=1)
        sim.append("large", [b"before"])
        sim.advance("2s")
        capacity_bytes = disk.capacity_bytes
        disk.capacity_bytes = disk.used_bytes
        sim.append("large", [bytes(5_000)])
        sim.run_until(lambda: only.segments.disk_full, "5s")
        answer_of(sim, lambda done: only.command("topic.delete", {"name": "large"}, 5_000, done))
        sim.advance("1s")
        disk.capacity_bytes = capacity_bytes
        sim.advance("2s")
        sim.create_topic("small", partitions=1)
        sim.append("small", [b"after"])


def test_a_disk_is_not_full_any_more_though_another_log_could_not_be_written_at_all() -> None:
    """S4: what a replica out of service has not written out is not waited for."""
    with cluster(nodes=1, seed=66) as sim:
        only, disk = node(sim, "node-1"), sim.host("node-1").disk
        for topic in ("bad", "large"):
            sim.create_topic(topic, partitions=1)
            sim.append(topic, [b"before"])
        sim.advance("2s")
        capacity_bytes = disk.capacity_bytes
        disk.capacity_bytes = disk.used_bytes + 2_000
        disk.fail_writes(replica(sim, "node-1", "bad").host.directory)
        for topic, size in (("bad", 1_000), ("large", 5_000)):
            sim.append(topic, [bytes(size)])
        sim.run_until(lambda: only.segments.disk_full and bool(only.shards.quarantined), "5s")
        answer_of(sim, lambda done: only.command("topic.delete", {"name": "large"}, 5_000, done))
        sim.advance("1s")
        disk.capacity_bytes = capacity_bytes
        sim.advance("2s")
        sim.create_topic("small", partitions=1)
        sim.append("small", [b"after"])


def test_a_node_that_cannot_measure_its_space_is_not_taken_for_full() -> None:
    with cluster(nodes=3, seed=94) as sim:
        leader, others = orders(sim)
        for name in others:
            node(sim, name).upkeep.free_bytes = node(sim, name).upkeep.total_bytes = -1
            node(sim, name).upkeep.measure_space = lambda: None  # type: ignore[method-assign]
        sim.advance("2s")
        assert node(sim, leader).upkeep.admission(replica(sim, leader, TOPIC)) is None


def test_a_shard_out_of_service_holds_no_file_of_the_wal_back() -> None:
    """V5: the other topics go on, and what it has in the WAL is there at the next start."""
    with cluster(nodes=1, seed=37) as sim:
        for topic in ("bad", TOPIC):
            sim.create_topic(topic, partitions=1)
        for number in range(20):
            sim.append("bad", [b"%d" % number * 1_000])
        node(sim, "node-1").shards.stop_replica(replica(sim, "node-1", "bad"), "a test")
        for _ in range(30):
            for _ in range(5):
                sim.append(TOPIC, [b"x" * 100_000])
            sim.advance("1s")
        assert node(sim, "node-1").wal.file_count <= 5
        sim.power_off("node-1")
        sim.start("node-1")
        sim.advance("2s")
        assert [m.value for m in sim.read_all("bad")] == [b"%d" % n * 1_000 for n in range(20)]


def test_a_shard_that_cannot_commit_holds_no_file_of_the_wal_back() -> None:
    """V7: without a majority for long, it let all other topics of the node find the WAL full."""
    small = sim_settings()
    small = replace(small, wal=replace(small.wal, file_bytes=4 * MIB, bytes_max=20 * MIB))
    with cluster(nodes=3, seed=37, settings=small) as sim:
        sim.create_topic("stuck", partitions=1, replication_factor=2)
        sim.advance("1s")
        name, (other,) = lead(sim, "stuck")
        topics = [f"{TOPIC}-{number}" for number in range(9)]
        for topic in topics:
            sim.create_topic(topic, partitions=1, replication_factor=1)
        sim.advance("1s")
        here = next(topic for topic in topics if lead(sim, topic)[0] == name)
        sim.kill(other)
        for _ in range(20):
            with pytest.raises(TimedOut):
                sim.append("stuck", [b"x" * 90_000], via=name, timeout="1ms")
        stuck = replica(sim, name, "stuck")
        assert stuck.raft.last_index > stuck.raft.commit + 12, "more than is rewritten in one turn"
        for _ in range(30):
            for _ in range(10):
                sim.append(here, [b"y" * 100_000], via=name)
            sim.advance("1s")
        sim.power_off(name)
        for each in (name, other):
            sim.start(each)
        sim.wait_ready()
        sim.run_until(lambda: replica(sim, lead(sim, "stuck")[0], "stuck").applied_index > 12)
        assert len(sim.read_all("stuck")) == 20


def test_quiet_shards_have_their_turn_of_housekeeping() -> None:
    """V3: a checkpoint that is due is made though nothing wakes the shard."""
    with cluster(nodes=3, seed=95) as sim:
        leader, _ = orders(sim)
        sim.advance("4s")
        ours = replica(sim, leader, TOPIC)
        assert ours.quiet
        index = ours.applied_index
        segments = node(sim, leader).segments
        sim.run_until(lambda: segments._checkpointed_index.get(ours.shard) == index, "20s")
        assert ours.quiet


def test_a_node_that_hears_no_majority_says_whom_it_misses() -> None:
    with cluster(nodes=3, seed=97) as sim:
        leader, (left, right) = orders(sim)
        assert node(sim, leader).reason == ""
        sim.kill(left)
        sim.advance("3s")
        assert node(sim, leader).reason == ""
        sim.kill(right)
        sim.advance("3s")
        assert node(sim, leader).is_ready
        assert node(sim, leader).reason.startswith(f"{min(left, right)}, {max(left, right)} cannot")
        sim.start(left)
        sim.run_until(lambda: not node(sim, leader).reason, within="10s")


def test_who_does_not_vote_knows_its_leader_again_when_the_word_of_its_rest_was_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """V6: it forgot the leader, who rested, for as long as nothing happened in the shard."""
    with cluster(nodes=5, seed=21) as sim:
        sim.advance("1s")
        first = node(sim, "node-1").shards.get(CATALOG_SHARD)
        assert first is not None
        observer = node(sim, f"node-{node_of(ReplicaId(first.conf.learners[0]))}")
        own = observer.shards.get(CATALOG_SHARD)
        assert own is not None
        told_quiet = observer.elections.told_quiet
        lost: list[Quiet] = []

        def lose_one(told: Replica | None, row: Quiet) -> bool:
            if told is own and not lost:
                lost.append(row)
                return True  # nothing comes back for a frame that was lost
            return told_quiet(told, row)

        monkeypatch.setattr(observer.elections, "told_quiet", lose_one)
        sim.create_topic("orders", partitions=1, replication_factor=3)
        sim.advance("30s")
        assert lost
        assert own.leader_node == first.leader_node != 0
        assert own.quiet
