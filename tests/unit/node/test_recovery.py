"""Recovery after the loss of a majority."""

import msgspec
import pytest

from raftline.model.errors import InvalidArgument, NodeExists, NotReady, TimedOut
from raftline.model.ids import CATALOG_SHARD
from raftline.node.remote import VERB_POSITION, Reply
from raftline.node.replica import Replica
from raftline.raft.conf_change import Change, ChangeKind, ConfChangeV2
from raftline.storage.checkpoint import load_checkpoint
from raftline.testing import SimCluster, cluster
from tests.unit.node.whole import answer_of, lead, node, replica, shard_of, stall_segments

TOPIC = "orders"


def survivor(sim: SimCluster) -> str:
    """Return the one node that is left of three."""
    sim.create_topic(TOPIC, partitions=1)
    for number in range(3):
        sim.append(TOPIC, [b"%d" % number])
    leader, others = lead(sim, TOPIC)
    sim.advance("1s")
    sim.kill(leader)
    sim.kill(others[1])
    sim.advance("3s")
    return others[0]


def test_the_survivor_goes_on_alone_though_a_checkpoint_falls_due_meanwhile() -> None:
    """The later checkpoint would write the lost configuration over the new one."""
    with cluster(nodes=3, seed=101) as sim:
        name = survivor(sim)
        ours, target = replica(sim, name, TOPIC), node(sim, name)
        stall_segments(sim, name, 100)
        heard: list[object] = []
        target.recovery.force(ours.shard, heard.append)
        if target.segments.checkpoint_due(ours, 1 << 62, 0):
            target.segments.checkpoint(ours)
        sim.run_until(lambda: bool(heard))
        assert heard == [b""]
        sim.advance("5ms")
        stored = load_checkpoint(
            sim.host(name).disk,
            f"shards/{ours.shard}",
            cluster=target.identity.cluster,
            shard=ours.shard,
        ).checkpoint
        assert stored is not None
        assert stored.conf_state.voters == (ours.id,)
        sim.run_until(lambda: replica(sim, name, TOPIC).is_leader)
        assert not replica(sim, name, TOPIC).frozen


def test_a_shard_with_a_majority_is_not_forced() -> None:
    with cluster(nodes=3, seed=102) as sim:
        sim.create_topic(TOPIC, partitions=1)
        sim.append(TOPIC, [b"one"])
        sim.advance("1s")  # all replicas are open
        _, (follower, _) = lead(sim, TOPIC)
        ours = replica(sim, follower, TOPIC)
        answer = answer_of(sim, lambda done: node(sim, follower).recovery.force(ours.shard, done))
        assert getattr(answer, "code", "") == "invalid_argument"
        assert replica(sim, follower, TOPIC) is ours


def test_a_failed_forcing_leaves_the_replica_as_it_was() -> None:
    with cluster(nodes=3, seed=103) as sim:
        name = survivor(sim)
        ours = replica(sim, name, TOPIC)
        sim.host(name).disk.fail_writes(f"shards/{ours.shard}")
        answer = answer_of(sim, lambda done: node(sim, name).recovery.force(ours.shard, done))
        assert getattr(answer, "code", "") == "not_ready"
        assert replica(sim, name, TOPIC) is ours
        assert not ours.frozen


def test_who_recovers_hears_what_could_not_be_forced() -> None:
    with cluster(nodes=3, seed=103) as sim:
        name = survivor(sim)
        ours = replica(sim, name, TOPIC)
        sim.host(name).disk.fail_writes(f"shards/{ours.shard}")
        with pytest.raises(NotReady, match=f"{TOPIC}/0"):
            sim.command("cluster.recover", via=name, timeout="20s", accept_loss=True)


def test_the_whole_cluster_goes_on_from_what_is_left() -> None:
    with cluster(nodes=3, seed=104) as sim:
        name = survivor(sim)
        sim.command("cluster.recover", via=name, timeout="20s", accept_loss=True)
        assert sim.append(TOPIC, [b"after"], via=name, timeout="10s").base_offset == 3
        assert [m.value for m in sim.read_all(TOPIC, via=name)] == [b"0", b"1", b"2", b"after"]


def test_a_survivor_that_led_and_went_quiet_goes_on_too() -> None:
    """It leads by its own account: nothing has told it that the others are gone."""
    with cluster(nodes=3, seed=105) as sim:
        sim.create_topic(TOPIC, partitions=1)
        sim.append(TOPIC, [b"0"])
        name, others = lead(sim, TOPIC)
        sim.advance("20s")
        for other in others:
            sim.kill(other)
        sim.advance("5s")
        assert replica(sim, name, TOPIC).quiet
        assert replica(sim, name, TOPIC).is_leader
        sim.command("cluster.recover", via=name, timeout="20s", accept_loss=True)
        sim.append(TOPIC, [b"after"], via=name)
        assert [m.value for m in sim.read_all(TOPIC, via=name)] == [b"0", b"after"]


@pytest.mark.parametrize("via", ["node-1", "node-5"])
def test_any_survivor_recovers_what_it_has_no_replica_of(via: str) -> None:
    """That a node with a replica lives does not mean that anybody leads."""
    with cluster(nodes=5, seed=106) as sim:
        topics = [f"{TOPIC}-{number}" for number in range(6)]
        for topic in topics:
            sim.create_topic(topic, partitions=1)
            sim.append(topic, [b"0"])
        sim.advance("5s")
        for name in ("node-2", "node-3", "node-4"):
            sim.kill(name)
        sim.advance("5s")
        sim.command("cluster.recover", via=via, timeout="20s", accept_loss=True)
        for topic in topics:
            sim.append(topic, [b"after"], via=via)
            assert [m.value for m in sim.read_all(topic, via=via)] == [b"0", b"after"]


def test_a_partition_gets_its_replicas_back() -> None:
    """Nothing does that unasked, and a move only swaps one for another."""
    with cluster(nodes=3, seed=108) as sim:
        name = survivor(sim)
        sim.command("cluster.recover", via=name, accept_loss=True, timeout="20s")
        assert len(replica(sim, name, TOPIC).conf.voters) == 1
        fresh = [sim.add_node(), sim.add_node()]
        sim.wait_ready([name, *fresh], within="20s")
        for other in fresh:
            sim.command("cluster.move", via=other, topic=TOPIC, partition=0, to_node=other)
        sim.run_until(lambda: len(replica(sim, name, TOPIC).conf.voters) == 3, "20s")
        with pytest.raises(NodeExists):
            sim.command("cluster.move", topic=TOPIC, partition=0, to_node=name)
        sim.advance("1s")
        assert sim.verify().identical
        sim.kill(name)
        sim.advance("3s")
        assert len(sim.read_all(TOPIC)) == 3


def test_one_more_replica_brings_none_back_that_is_just_taken_away() -> None:
    """The command lists the replicas there are: it waits until nothing is on its way."""
    with cluster(nodes=4, seed=109) as sim:
        sim.create_topic(TOPIC, partitions=1, replication_factor=1)
        sim.append(TOPIC, [b"one"])
        sim.advance("1s")
        source, _ = lead(sim, TOPIC)
        free = [name for name in sim.nodes if name != source]
        led = {name: node(sim, name).led(CATALOG_SHARD) for name in sim.nodes}
        name, catalog = next((n, found) for n, found in led.items() if isinstance(found, Replica))
        leading = node(sim, name)
        where = {"topic": TOPIC, "partition": 0}
        heard: list[object] = []
        move = {**where, "from_node": source, "to_node": free[0]}
        leading.admin._lead(catalog, "cluster.move", move, 1_000, heard.append)
        leading.admin._lead(
            catalog, "cluster.move", {**where, "to_node": free[1]}, 1_000, heard.append
        )
        assert [type(answer) for answer in heard] == [NotReady]
        sim.command("cluster.move", **where, to_node=free[1])
        row = leading.catalog_machine.shards[shard_of(sim, TOPIC)]
        assert {sim.name_of(number) for number in row.nodes()} == set(free[:2])
        sim.run_until(lambda: len(replica(sim, lead(sim, TOPIC)[0], TOPIC).conf.voters) == 2, "20s")
        assert sim.read_all(TOPIC)


def votes(sim: SimCluster, name: str, shard: int, wanted: set[int]) -> bool:
    """Say whether to a node's replica just these vote."""
    ours = node(sim, name).shards.get(shard)
    return ours is not None and set(ours.conf.voters) == wanted and not ours.conf.voters_outgoing


def test_the_others_that_live_learn_the_new_configuration() -> None:
    """Fed by entries they kept one that counts the lost nodes: the next loss was the end of it."""
    with cluster(nodes=5, seed=202) as sim:
        sim.create_topic(TOPIC, partitions=1)
        sim.advance("3s")
        voters = node(sim, "node-1").catalog_machine.shards[CATALOG_SHARD].nodes()
        first, *lost = [sim.name_of(number) for number in voters]
        for name in lost:
            sim.kill(name)
        sim.advance("3s")
        sim.command("cluster.recover", via=first, timeout="20s", accept_loss=True)
        wanted = set(node(sim, first).catalog_machine.shards[CATALOG_SHARD].replicas)
        assert len(wanted) == 3
        sim.run_until(lambda: all(votes(sim, n, CATALOG_SHARD, wanted) for n in sim.running), "20s")
        sim.kill(first)
        sim.advance("3s")
        sim.create_topic("more", partitions=1, via=sim.running[0])


def test_a_partition_without_any_copy_begins_anew_with_all_its_replicas() -> None:
    """It began at index 0: its configuration was not taken up, and nobody led it ever."""
    with cluster(nodes=6, seed=201) as sim:
        sim.create_topic(TOPIC, partitions=1)
        sim.append(TOPIC, [b"lost"])
        sim.advance("3s")
        leader, others = lead(sim, TOPIC)
        for name in (leader, *others):
            sim.kill(name)
        sim.advance("3s")
        left, shard = sim.running, shard_of(sim, TOPIC)
        sim.command("cluster.recover", via=left[0], timeout="20s", accept_loss=True)
        assert sim.append(TOPIC, [b"after"], via=left[0], timeout="10s").base_offset == 0
        wanted = set(node(sim, left[0]).catalog_machine.shards[shard].replicas)
        assert len(wanted) == 3
        sim.run_until(lambda: all(votes(sim, name, shard, wanted) for name in left), "20s")
        sim.kill(lead(sim, TOPIC)[0])
        sim.advance("3s")
        assert [m.value for m in sim.read_all(TOPIC)] == [b"after"]


def test_a_partition_without_any_copy_is_not_lost_while_its_new_replica_is_made() -> None:
    """It was told as lost, and left without a leader until somebody recovered once more."""
    with cluster(nodes=4, seed=115) as sim:
        sim.create_topic(TOPIC, partitions=1, replication_factor=1)
        sim.append(TOPIC, [b"lost"])
        sim.advance("3s")
        home, _ = lead(sim, TOPIC)
        sim.kill(home)
        sim.advance("5s")
        for name in sim.running:
            stall_segments(sim, name, 1_000)
        via = sim.running[0]
        told = sim.command("cluster.recover", via=via, timeout="20s", accept_loss=True)
        assert told["lost"] == []
        assert sim.append(TOPIC, [b"after"], via=via, timeout="10s").base_offset == 0


def leader_with_a_tail(sim: SimCluster) -> str:
    """Return the one node that is left: it led, and has what it could not commit any more."""
    sim.create_topic(TOPIC, partitions=1)
    sim.append(TOPIC, [b"0"])
    sim.advance("1s")
    name, others = lead(sim, TOPIC)
    for other in others:
        sim.kill(other)
    ours = replica(sim, name, TOPIC)
    assert ours.change_conf(ConfChangeV2((Change(ChangeKind.REMOVE, ours.id),)))
    with pytest.raises(TimedOut):
        sim.append(TOPIC, [b"1"], via=name, timeout="500ms")
    sim.advance("5s")
    assert ours.applied_index + 2 == ours.raft.last_index
    return name


def test_what_was_to_change_is_void_where_one_goes_on_alone() -> None:
    """It was made for the old configuration; applied to the new one it ended the node, always."""
    with cluster(nodes=3, seed=107) as sim:
        name = leader_with_a_tail(sim)
        sim.command("cluster.recover", via=name, timeout="20s", accept_loss=True)
        assert sim.append(TOPIC, [b"2"], via=name).base_offset == 2
        sim.kill(name)
        sim.restart(name)
        sim.wait_ready([name])
        assert [m.value for m in sim.read_all(TOPIC, via=name)] == [b"0", b"1", b"2"]


def test_who_cannot_write_that_it_goes_on_alone_is_as_before_at_its_next_start() -> None:
    with cluster(nodes=3, seed=107) as sim:
        name = leader_with_a_tail(sim)
        shard = shard_of(sim, TOPIC)
        sim.host(name).disk.fail_writes(f"shards/{shard}")
        answer = answer_of(sim, lambda done: node(sim, name).recovery.force(shard, done))
        assert getattr(answer, "code", "") == "not_ready"
        assert node(sim, name).shards.get(shard) is None, "it applied what nobody agreed to"
        sim.kill(name)
        sim.restart(name)
        ours = replica(sim, name, TOPIC)
        assert ours.applied_index < ours.raft.last_index
        assert len(ours.conf.voters) == 3


def test_nobody_goes_on_in_the_place_of_who_could_not_write_it() -> None:
    """V6: it got a new number and its directory was deleted, or an empty one went on when asked."""
    with cluster(nodes=6, seed=96) as sim:
        sim.create_topic("first", partitions=1)
        sim.create_topic(TOPIC, partitions=1)
        sim.append(TOPIC, [b"0"])
        sim.advance("1s")
        name, others = lead(sim, TOPIC)
        via = next(it for it in sim.running if it not in (name, *others))
        ours = replica(sim, name, TOPIC)
        for other in others:
            sim.kill(other)
        with pytest.raises(TimedOut):
            sim.append(TOPIC, [b"1"], via=name, timeout="500ms")
        sim.advance("5s")
        sim.host(name).disk.fail_writes(f"shards/{ours.shard}")
        with pytest.raises(NotReady, match=f"{TOPIC}/0"):
            sim.command("cluster.recover", via=via, timeout="20s", accept_loss=True)
        sim.advance("10s")
        assert node(sim, name).shards.known(ours.shard) == ours.id
        with pytest.raises(NotReady, match=f"start {name} again"):
            sim.command("cluster.recover", via=via, timeout="20s", accept_loss=True)
        sim.kill(name)
        sim.restart(name)
        sim.wait_ready([name])
        sim.advance("2s")
        sim.command("cluster.recover", via=via, timeout="20s", accept_loss=True)
        assert [m.value for m in sim.read_all(TOPIC, via=via)] == [b"0", b"1"]


def test_nobody_goes_on_before_all_that_live_have_said_how_far_they_are() -> None:
    """A new replica, empty, went on in the place of the one that was slow to answer."""
    with cluster(nodes=5, seed=110) as sim:
        sim.create_topic(TOPIC, partitions=1)
        sim.append(TOPIC, [b"0"])
        sim.advance("1s")
        name, others = lead(sim, TOPIC)
        for other in others:
            sim.kill(other)
        sim.advance("5s")
        remote = node(sim, name).remote
        answers = remote._handlers[VERB_POSITION]
        via = next(it for it in sim.running if it != name)
        shard = shard_of(sim, TOPIC)

        def slow(body: memoryview, timeout_ms: int, reply: Reply) -> None:
            if msgspec.msgpack.decode(body) != shard:
                answers(body, timeout_ms, reply)

        remote.handle(VERB_POSITION, slow)
        with pytest.raises(NotReady, match=f"{TOPIC}/0"):
            sim.command("cluster.recover", via=via, timeout="20s", accept_loss=True)
        remote.handle(VERB_POSITION, answers)
        sim.command("cluster.recover", via=via, timeout="20s", accept_loss=True)
        assert [m.value for m in sim.read_all(TOPIC, via=via)] == [b"0"]


def test_a_voter_out_of_service_is_no_majority_though_its_node_lives() -> None:
    """V4: one node lost and one replica damaged; nobody led, and recover found all of it sound."""
    with cluster(nodes=5, seed=111) as sim:
        sim.create_topic(TOPIC, partitions=1)
        sim.append(TOPIC, [b"0"])
        sim.advance("3s")
        name, (damaged, lost) = lead(sim, TOPIC)
        sim.kill(lost)
        node(sim, damaged).shards.stop_replica(replica(sim, damaged, TOPIC), "damaged, say")
        sim.advance("10s")
        assert sim.status(name).leaderless == (f"{TOPIC}/0",)
        via = next(it for it in sim.running if it not in (name, damaged))
        sim.command("cluster.recover", via=via, timeout="20s", accept_loss=True)
        assert sim.append(TOPIC, [b"1"], via=via).base_offset == 1
        wanted = set(node(sim, name).catalog_machine.shards[shard_of(sim, TOPIC)].replicas)
        sim.run_until(lambda: votes(sim, name, shard_of(sim, TOPIC), wanted), "20s")


def test_a_newer_replica_that_is_filled_already_is_not_the_voter_before_it() -> None:
    """V4: it does not vote yet."""
    with cluster(nodes=5, seed=111) as sim:
        sim.create_topic(TOPIC, partitions=1)
        sim.append(TOPIC, [b"0"])
        sim.advance("3s")
        leader, others = lead(sim, TOPIC)
        damaged, lost, name = sorted([leader, *others])  # of equals the last goes on
        sim.command("cluster.transfer", topic=TOPIC, partition=0, to_node=name)
        sim.run_until(lambda: lead(sim, TOPIC)[0] == name)
        old = replica(sim, damaged, TOPIC)
        node(sim, damaged).shards.stop_replica(old, "damaged, say")
        sim.run_until(lambda: bool(replica(sim, name, TOPIC).conf.learners), "20s")
        sim.kill(lost)
        sim.run_until(lambda: replica(sim, damaged, TOPIC).applied_index > 0, "20s")
        assert old.id in replica(sim, name, TOPIC).conf.voters
        sim.advance("10s")
        sim.command("cluster.recover", via=name, timeout="20s", accept_loss=True)
        assert sim.append(TOPIC, [b"1"], via=name).base_offset == 1


def test_one_of_two_replicas_goes_on_when_the_other_is_out_of_service() -> None:
    """V4: both nodes live."""
    with cluster(nodes=3, seed=113) as sim:
        sim.create_topic(TOPIC, partitions=1, replication_factor=2)
        sim.append(TOPIC, [b"0"])
        sim.advance("1s")
        name, (damaged,) = lead(sim, TOPIC)
        node(sim, damaged).shards.stop_replica(replica(sim, damaged, TOPIC), "damaged, say")
        replica(sim, name, TOPIC).wake()
        sim.advance("10s")
        sim.command("cluster.recover", via=damaged, timeout="20s", accept_loss=True)
        assert sim.append(TOPIC, [b"1"], via=name).base_offset == 1
        third = next(it for it in sim.nodes if it not in (name, damaged))
        move = {"from_node": damaged, "to_node": third}
        sim.command("cluster.move", topic=TOPIC, partition=0, **move)
        wanted = set(node(sim, name).catalog_machine.shards[shard_of(sim, TOPIC)].replicas)
        sim.run_until(lambda: votes(sim, name, shard_of(sim, TOPIC), wanted), "20s")


def test_a_voter_that_is_moved_away_counts_while_it_is_there() -> None:
    """V4: else one would go on alone beside a majority of the old configuration."""
    with cluster(nodes=4, seed=112) as sim:
        sim.create_topic(TOPIC, partitions=1, replication_factor=2)
        sim.append(TOPIC, [b"0"])
        sim.advance("1s")
        leader, (follower,) = lead(sim, TOPIC)
        away = next(it for it in sim.nodes if it not in (leader, follower, "node-1"))
        sim.kill(away)
        sim.advance("3s")
        move = {"from_node": follower, "to_node": away}
        sim.command("cluster.move", topic=TOPIC, partition=0, **move)
        sim.advance("1s")
        ours = replica(sim, leader, TOPIC)
        assert node(sim, leader).recovery.unwanted(ours)
        answer = answer_of(sim, lambda done: node(sim, leader).recovery.force(ours.shard, done))
        assert getattr(answer, "code", "") == "invalid_argument"
        assert replica(sim, leader, TOPIC) is ours
        assert len(ours.conf.voters) == 2


def test_a_node_that_left_recovers_nothing() -> None:
    """V5: it forced its copy of the catalog, and was a second cluster beside the healthy one."""
    with cluster(nodes=4, seed=114) as sim:
        sim.command("cluster.remove", node="node-4", timeout="20s")
        sim.run_until(
            lambda: node(sim, "node-1").catalog_machine.node_named("node-4") is None, "20s"
        )
        sim.advance("5s")
        with pytest.raises(InvalidArgument, match="leave"):
            sim.command("cluster.recover", via="node-4", timeout="20s", accept_loss=True)
        copy = node(sim, "node-4").shards.get(CATALOG_SHARD)
        assert copy is not None
        assert not copy.is_leader
