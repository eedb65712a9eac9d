"""Catch-up: filling a replica that is far behind. X1-X7."""

import pytest
from msgspec.structs import replace

from raftline.model.limits import KIB, MIB
from raftline.node import catch_up, giving
from raftline.node.catch_up import CatchUp
from raftline.node.replica import Replica
from raftline.raft.progress import ProgressState
from raftline.raft.rpc import Rpc, RpcKind
from raftline.testing import SimCluster, cluster
from raftline.testing.cluster import sim_settings
from tests.unit.node.whole import host, lead, node, replica, shard_of, stall_segments

TOPIC = "orders"


def fill(sim: SimCluster, count: int, size: int = 200) -> None:
    for number in range(count):
        sim.append(TOPIC, [b"%06d" % number + bytes(size)])


def offer(sim: SimCluster, leader: str, to: str, *, term: int = 0) -> None:
    """Let the leader's host offer its present state to a follower, as its core would."""
    giver, taker = replica(sim, leader, TOPIC), replica(sim, to, TOPIC)
    rpc = Rpc(
        RpcKind.SNAP,
        to=taker.id,
        sender=giver.id,
        term=term or giver.raft.term,
        snapshot=giver.log.offer(),
    )
    node(sim, to).catch_ups.offered(taker, rpc)


def behind(sim: SimCluster) -> tuple[str, str]:
    """Return a leader and a follower that lacks what was appended last."""
    sim.create_topic(TOPIC, partitions=1)
    fill(sim, 5)
    sim.advance("1s")
    leader, (follower, _) = lead(sim, TOPIC)
    sim.cut(leader, follower, both_ways=False)
    fill(sim, 5)
    return leader, follower


def fill_meanwhile(sim: SimCluster, leader: str) -> None:
    """Let entries past the offered index come while the source is slow to give its log."""
    stall_segments(sim, leader, 400)
    sim.heal()
    fill(sim, 5)


def level(sim: SimCluster, leader: str, follower: str) -> bool:
    ours, theirs = replica(sim, leader, TOPIC), replica(sim, follower, TOPIC)
    return theirs.applied_index == ours.applied_index and not theirs.frozen


def test_entries_acknowledged_while_the_state_is_fetched_stay() -> None:
    """X4: another leader may give entries meanwhile; they count in its quorums."""
    with cluster(nodes=3, seed=21) as sim:
        leader, follower = behind(sim)
        old = replica(sim, follower, TOPIC)
        offer(sim, leader, follower)
        assert old.frozen
        fill_meanwhile(sim, leader)

        def replaced() -> bool:
            return replica(sim, follower, TOPIC) is not old

        sim.run_until(replaced)
        acked = replica(sim, leader, TOPIC).raft.progress[old.id].match
        taken = replica(sim, follower, TOPIC)
        assert acked > taken.applied_index, "nothing was acknowledged above the new state"
        assert taken.raft.last_index >= acked
        fill(sim, 2)
        sim.run_until(lambda: level(sim, leader, follower))
        assert sim.verify().identical


def test_kept_entries_are_on_the_disk_too() -> None:
    """X4, and U1: the same after a loss of power right after the swap."""
    with cluster(nodes=3, seed=21) as sim:
        leader, follower = behind(sim)
        old = replica(sim, follower, TOPIC)
        offer(sim, leader, follower)
        fill_meanwhile(sim, leader)
        sim.run_until(lambda: replica(sim, follower, TOPIC) is not old)
        sim.run_until(lambda: replica(sim, follower, TOPIC).unsynced == 0)
        acked = replica(sim, leader, TOPIC).raft.progress[old.id].match
        sim.power_off(follower)
        sim.start(follower)
        assert replica(sim, follower, TOPIC).raft.last_index >= acked


def test_an_offer_of_a_leader_that_was_voted_out_is_not_taken() -> None:
    with cluster(nodes=3, seed=22) as sim:
        leader, follower = behind(sim)
        taker = replica(sim, follower, TOPIC)
        offer(sim, leader, follower, term=taker.raft.term - 1)
        assert not taker.frozen


def test_an_offer_our_log_reaches_is_answered_without_fetching() -> None:
    """The entries are here, only not committed yet: there is nothing to fetch."""
    with cluster(nodes=3, seed=23) as sim:
        sim.create_topic(TOPIC, partitions=1)
        fill(sim, 3)
        leader, (follower, _) = lead(sim, TOPIC)
        taker = replica(sim, follower, TOPIC)
        sim.append(TOPIC, [b"last"])
        assert taker.applied_index < taker.raft.last_index, "the commit mark came too soon"
        offer(sim, leader, follower)
        assert not taker.frozen


def wiped(sim: SimCluster) -> tuple[str, str]:
    """Return a leader, and a follower that comes back without its disk."""
    sim.create_topic(TOPIC, partitions=1)
    fill(sim, 30, 4_000)
    leader, (follower, _) = lead(sim, TOPIC)
    sim.wipe(follower)
    sim.start(follower)
    return leader, follower


def is_filling(sim: SimCluster, name: str) -> bool:
    return node(sim, name).catch_ups.busy(shard_of(sim, TOPIC))


def test_a_wiped_replica_is_filled_and_is_a_new_one() -> None:
    with cluster(nodes=3, seed=24) as sim:
        sim.create_topic(TOPIC, partitions=1)
        fill(sim, 5)
        leader, (follower, _) = lead(sim, TOPIC)
        before = replica(sim, follower, TOPIC).id
        sim.wipe(follower)
        sim.start(follower)
        shard = shard_of(sim, TOPIC)
        sim.run_until(
            lambda: (
                node(sim, follower).shards.get(shard) is not None and level(sim, leader, follower)
            ),
            "30s",
        )
        after = replica(sim, follower, TOPIC).id
        assert after > before
        sim.run_until(lambda: after in replica(sim, leader, TOPIC).conf.voters, "30s")
        assert before not in replica(sim, leader, TOPIC).conf.voters
        assert sim.verify().identical


def test_no_more_is_fetched_than_the_disk_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow or full disk: what comes faster stayed in memory, all of the log in the end."""
    monkeypatch.setattr(catch_up, "CHUNK_BYTES", 1_000)
    monkeypatch.setattr(giving, "CHUNK_BYTES", 1_000)
    with cluster(nodes=3, seed=24) as sim:
        leader, follower = wiped(sim)
        sim.run_until(lambda: is_filling(sim, follower))
        sim.run_until(lambda: host(sim, follower, TOPIC).log.log_end > 0)
        assert host(sim, follower, TOPIC).log.log_end < 10
        stall_segments(sim, follower, 2_000)
        sim.advance("1500ms")
        log = host(sim, follower, TOPIC).log
        assert 32_000 < log.unflushed_bytes < 40_000
        sim.run_until(lambda: level(sim, leader, follower))
        assert sim.verify().identical


def test_a_disk_that_is_full_when_all_is_fetched_costs_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """X6."""
    with cluster(nodes=3, seed=26) as sim:
        leader, follower = wiped(sim)
        disk = sim.host(follower).disk
        capacity = disk.capacity_bytes
        ours = node(sim, follower)
        install = CatchUp._install

        def full(self: CatchUp, state: bytes) -> None:
            if self.replica.shard == shard_of(sim, TOPIC):
                disk.capacity_bytes = disk.used_bytes
            install(self, state)

        monkeypatch.setattr(CatchUp, "_install", full)
        sim.run_until(lambda: ours.segments.disk_full, "30s")
        sim.advance("3s")
        assert is_filling(sim, follower)
        number = replica(sim, follower, TOPIC).id
        disk.capacity_bytes = capacity
        sim.run_until(lambda: level(sim, leader, follower), "10s")
        assert replica(sim, follower, TOPIC).id == number
        assert sim.verify().identical


def test_a_replica_that_is_filled_for_long_holds_no_file_of_the_wal_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """X7: the node refused the appends to all its other topics until that replica was filled."""
    small = sim_settings()
    small = replace(
        small,
        wal=replace(small.wal, file_bytes=4 * MIB, bytes_max=20 * MIB),
        raft=replace(small.raft, tail_bytes_max=256 * KIB),
        log=replace(small.log, checkpoint_bytes=64 * MIB, checkpoint_ms=60_000),
    )
    with cluster(nodes=3, seed=27, settings=small) as sim:
        topics = [f"other-{number}" for number in range(9)]
        sim.create_topic(TOPIC, partitions=1)
        for topic in topics:
            sim.create_topic(topic, partitions=1, replication_factor=1)
        sim.advance("1s")
        leader, (follower, _) = lead(sim, TOPIC)
        here = next(topic for topic in topics if lead(sim, topic)[0] == follower)
        fill(sim, 30, 90_000)
        taker = replica(sim, follower, TOPIC)
        sim.run_until(lambda: taker.applied_index == taker.raft.last_index)
        assert taker.log.first_index() > 20, "all of it is in memory still"
        sim.cut(leader, follower, both_ways=False)
        fill(sim, 1)
        monkeypatch.setattr(CatchUp, "_next_log", lambda _: None)  # it takes its time
        offer(sim, leader, follower)
        sim.heal()
        assert taker.frozen
        for _ in range(250):
            sim.append(here, [b"y" * 100_000], via=follower)
            sim.advance("100ms")
        assert taker.frozen


def test_a_source_that_goes_away_leaves_the_replica_to_the_next_leader() -> None:
    """X3: the half that was fetched stays, the next offer goes on from it."""
    with cluster(nodes=3, seed=25) as sim:
        leader, follower = wiped(sim)
        sim.run_until(lambda: is_filling(sim, follower), "30s")
        sim.kill(leader)
        sim.advance("3s")
        sim.start(leader)
        second, _ = lead(sim, TOPIC)
        sim.run_until(lambda: level(sim, second, follower), "30s")
        sim.advance("5s")
        assert sim.verify().identical


def give_up(sim: SimCluster, follower: str) -> Replica:
    """Cut a follower off in the middle of a fetch and wait until it gives up."""
    taker = replica(sim, follower, TOPIC)
    sim.run_until(lambda: not is_filling(sim, follower), "30s")
    return taker


def test_given_up_what_was_fetched_is_cut_off_and_held_entries_are_applied() -> None:
    """X1: from then on the replica is as it was, and takes entries again."""
    with cluster(nodes=3, seed=26) as sim:
        leader, follower = behind(sim)
        offer(sim, leader, follower)
        end = host(sim, follower, TOPIC).machine.next_offset
        sim.isolate(follower)
        taker = give_up(sim, follower)
        assert replica(sim, follower, TOPIC) is taker
        assert not taker.frozen
        assert host(sim, follower, TOPIC).log.log_end == end
        sim.heal()
        sim.run_until(lambda: level(sim, leader, follower), "20s")
        assert sim.verify().identical


@pytest.mark.parametrize("leads", [False, True])
def test_a_hollow_replica_that_nobody_fills_leaves_service(*, leads: bool) -> None:
    """X5: its log was dropped; no offer comes because its entries are level."""
    with cluster(nodes=3, seed=27) as sim:
        sim.create_topic(TOPIC, partitions=1)
        fill(sim, 3)
        leader, (follower, _) = lead(sim, TOPIC)
        name = leader if leads else follower
        hollow = replica(sim, name, TOPIC)
        hollow.frozen = hollow.hollow = True
        sim.advance("30s")
        assert hollow.is_closed
        sim.run_until(
            lambda: (
                node(sim, name).shards.get(hollow.shard) is not None
                and replica(sim, name, TOPIC).id
                in replica(sim, lead(sim, TOPIC)[0], TOPIC).conf.voters
            ),
            "30s",
        )
        assert replica(sim, name, TOPIC).id > hollow.id
        assert sim.append(TOPIC, [b"more"]).base_offset == 3


def test_the_leader_offers_again_what_nobody_fetches() -> None:
    """X3: a lost offer leaves the follower in SNAPSHOT only for a while."""
    with cluster(nodes=3, seed=28) as sim:
        leader, follower = wiped(sim)
        sim.run_until(lambda: is_filling(sim, follower), "30s")
        shard = shard_of(sim, TOPIC)
        node(sim, follower).shards.close(shard)  # it forgets the offer
        ours = replica(sim, leader, TOPIC)
        assert any(p.state == ProgressState.SNAPSHOT for p in ours.raft.progress.values())
        sim.kill(follower)
        sim.start(follower)
        sim.run_until(
            lambda: (
                node(sim, follower).shards.get(shard) is not None and level(sim, leader, follower)
            ),
            "30s",
        )
