"""Waiting messages on whole nodes: due in time, cancelled, moved, through failover and damage."""

from typing import Any

import pytest

from raftline.model.calls import NewWaiting, Scheduled
from raftline.model.errors import InvalidArgument, NotWaiting, RaftlineError, UnknownMessage
from raftline.model.records import open_batches, seal_batch
from raftline.node.partition import TRACE, WAITING
from raftline.node.releases import ID_HEADER, fitting, seal_release
from raftline.raft.rpc import Rpc, RpcKind
from raftline.testing import SimCluster, cluster
from tests.unit.node.whole import answer_of, host, lead, node, replica, stall_segments

TOPIC = "orders"
HOUR_MS = 3_600_000


def message(value: bytes, at_ms: int = 1000) -> bytes:
    return seal_batch([(b"k", value, [("colour", b"red")], at_ms)])


def schedule(
    sim: SimCluster, values: list[bytes], delay_ms: int, *, via: str = "", priority: int = 0
) -> list[int]:
    items = [NewWaiting(message(value), -delay_ms, priority) for value in values]
    answer = tried(sim, items, via=via)
    assert isinstance(answer, Scheduled), answer
    return answer.numbers


def tried(sim: SimCluster, items: list[NewWaiting], *, via: str = "") -> object:
    asked = node(sim, via or sim.running[0])
    return answer_of(sim, lambda done: asked.schedule(TOPIC, 0, items, 5000, done))


def ask(sim: SimCluster, name: str, *, via: str = "", **arguments: Any) -> Any:
    asked = node(sim, via or sim.running[0])
    return answer_of(sim, lambda done: asked.ask(TOPIC, 0, name, arguments, 5000, done))


def values(sim: SimCluster) -> list[bytes | None]:
    return [message.value for message in sim.read_all(TOPIC)]


def delivered(sim: SimCluster, count: int, within: str = "10s") -> list[bytes | None]:
    leader, _ = lead(sim, TOPIC)
    sim.run_until(lambda: host(sim, leader, TOPIC).log.log_end >= count, within)
    return values(sim)


@pytest.fixture
def sim():
    with cluster(nodes=3, seed=7) as made:
        made.create_topic(TOPIC, partitions=1)
        yield made


def test_a_message_comes_when_it_is_due_and_not_before(sim: SimCluster) -> None:
    began = sim.now_ms
    assert schedule(sim, [b"later"], 3000) == [1]
    assert schedule(sim, [b"sooner", b"too"], 500) == [2, 3]
    assert ask(sim, "waiting.stats")["waiting"] == 3
    sim.advance("400ms")
    assert values(sim) == []
    assert delivered(sim, 2) == [b"sooner", b"too"]
    assert sim.now_ms - began < 1000
    assert delivered(sim, 3) == [b"sooner", b"too", b"later"]
    assert 3000 <= sim.now_ms - began < 3500
    assert ask(sim, "waiting.stats")["released"] == 3
    assert sim.verify().identical


def test_a_released_message_keeps_its_id_its_time_and_its_headers(sim: SimCluster) -> None:
    schedule(sim, [b"x"], 100)
    delivered(sim, 1)
    leader, _ = lead(sim, TOPIC)
    buffers = host(sim, leader, TOPIC).log.read_tail(0, 1 << 20)
    assert buffers is not None
    (found,) = open_batches(b"".join(buffers))
    assert (found.key, found.value, found.timestamp_ms) == (b"k", b"x", 1000)
    assert dict(found.headers) == {"colour": b"red", ID_HEADER: b"orders.0.w1"}
    shown = ask(sim, "waiting.show", number=1)
    assert (shown["state"], shown["offset"]) == ("released", 0)


def test_listed_shown_and_paged(sim: SimCluster) -> None:
    schedule(sim, [b"a", b"b"], 60_000)
    schedule(sim, [b"c"], 30_000, priority=9)
    page = ask(sim, "waiting.list", limit=2, via=sim.running[1])
    assert [row[1:] for row in page["rows"]] == [[3, 9], [1, 0]]
    assert page["count"] == 3
    rest = ask(sim, "waiting.list", limit=2, after=page["rows"][-1][:2])
    assert [row[1] for row in rest["rows"]] == [2]
    shown = ask(sim, "waiting.show", number=3)
    assert (shown["state"], shown["priority"]) == ("waiting", 9)
    assert [m.value for m in open_batches(shown["batch"])] == [b"c"]
    assert isinstance(ask(sim, "waiting.show", number=4), UnknownMessage)


def test_a_cancelled_message_never_comes(sim: SimCluster) -> None:
    schedule(sim, [b"a", b"b", b"c"], 1000)
    assert ask(sim, "waiting.cancel", number=2) == {"number": 2, "cancelled": True}
    assert ask(sim, "waiting.cancel", number=2) == {"number": 2, "cancelled": True}
    assert delivered(sim, 2) == [b"a", b"c"]
    sim.advance("2s")
    assert values(sim) == [b"a", b"c"]
    assert isinstance(ask(sim, "waiting.cancel", number=1), NotWaiting)
    assert isinstance(ask(sim, "waiting.cancel", number=9), UnknownMessage)


def test_a_cancel_while_the_release_is_being_made_wins(sim: SimCluster) -> None:
    """The Release holds its bytes already; it is refused whole and made again without it."""
    leader, _ = lead(sim, TOPIC)
    schedule(sim, [b"a", b"b", b"c"], 500, via=leader)
    sim.advance("400ms")
    stall_segments(sim, leader, 400)  # the messages are read late
    sim.advance("200ms")
    assert ask(sim, "waiting.cancel", number=1, via=leader)["cancelled"]
    assert delivered(sim, 2) == [b"b", b"c"]
    sim.advance("1s")
    assert values(sim) == [b"b", b"c"]
    assert sim.verify().identical


def test_moved_sooner_and_later(sim: SimCluster) -> None:
    schedule(sim, [b"a", b"b"], 2000)
    sooner = ask(sim, "waiting.move", number=2, due_ms=-200)
    assert sooner["number"] == 2
    assert delivered(sim, 1, "1s") == [b"b"]
    ask(sim, "waiting.move", number=1, due_ms=-5000)
    sim.advance("3s")
    assert values(sim) == [b"b"]
    assert delivered(sim, 2) == [b"b", b"a"]
    assert isinstance(ask(sim, "waiting.move", number=1, due_ms=-5), NotWaiting)


def test_a_delay_over_the_limit_stores_nothing(sim: SimCluster) -> None:
    late = NewWaiting(message(b"late"), -(169 * HOUR_MS))
    refused = tried(sim, [late])
    assert isinstance(refused, InvalidArgument)
    assert "over the limit" in refused.message
    mixed = tried(sim, [NewWaiting(message(b"fine"), -500), late])
    assert isinstance(mixed, Scheduled)
    assert mixed.numbers == [1, 0]
    assert mixed.refusals[1][0] == "invalid_argument"
    moved = ask(sim, "waiting.move", number=1, due_ms=-(169 * HOUR_MS))
    assert isinstance(moved, InvalidArgument)
    assert delivered(sim, 1) == [b"fine"]


def test_what_cannot_wait_is_refused(sim: SimCluster) -> None:
    two = seal_batch([(None, b"a", [], 0), (None, b"b", [], 0)])
    for item in (
        NewWaiting(two, 0),
        NewWaiting(message(b"x"), 0, 128),
        NewWaiting(message(b"x"), 1 << 51),
        NewWaiting(b"no batch", 0),
    ):
        assert isinstance(tried(sim, [item]), RaftlineError)
    assert ask(sim, "waiting.stats")["scheduled"] == 0


def test_the_same_dedup_key_waits_once(sim: SimCluster) -> None:
    item = NewWaiting(message(b"x"), -60_000, 0, bytes(16))
    first = tried(sim, [item])
    assert isinstance(first, Scheduled)
    again = tried(sim, [item, NewWaiting(message(b"y"), -60_000)])
    assert isinstance(again, Scheduled)
    assert (first.numbers, again.numbers) == ([1], [0, 2])
    assert again.refusals[0][0] == "duplicate_key"
    assert again.refusals[0][3]["firsts"] == "0:-1"


def test_a_new_leader_goes_on(sim: SimCluster) -> None:
    schedule(sim, [b"%d" % i for i in range(50)], 1500)
    sim.kill_leader(TOPIC)
    assert delivered(sim, 50) == [b"%d" % i for i in range(50)]
    assert sim.now_ms >= 1500
    for name in sim.nodes:
        if name not in sim.running:
            sim.start(name)
    sim.wait_ready()
    assert sim.verify().identical


def test_waiting_messages_survive_a_loss_of_power_everywhere(sim: SimCluster) -> None:
    schedule(sim, [b"a"], 20_000)
    leader, _ = lead(sim, TOPIC)
    for name in sim.running:
        own = node(sim, name)
        own.segments.checkpoint(own.shards.get(host(sim, leader, TOPIC).replica.shard))
    sim.advance("2s")
    schedule(sim, [b"b"], 20_000)
    sim.power_off_all()
    for name in sim.nodes:
        sim.start(name)
    sim.wait_ready()
    lead(sim, TOPIC)
    assert ask(sim, "waiting.stats")["waiting"] == 2
    assert delivered(sim, 2, "40s") == [b"a", b"b"]
    assert sim.verify().identical


def test_one_that_is_far_behind_gets_the_waiting_log_too() -> None:
    with cluster(nodes=3, seed=8) as sim:
        sim.create_topic(TOPIC, partitions=1)
        schedule(sim, [b"%03d" % i + bytes(1000) for i in range(100)], HOUR_MS)
        leader, (follower, _) = lead(sim, TOPIC)
        sim.wipe(follower)
        sim.start(follower)
        ends = host(sim, leader, TOPIC).side[WAITING].log_end

        def filled() -> bool:
            found = sim.host(follower).node
            assert found is not None
            return any(
                own.side and own.side[WAITING].log_end == ends for own in found.shards.partitions()
            )

        sim.run_until(filled, "30s")
        sim.advance("2s")
        assert sim.verify().identical
        schedule(sim, [b"more"], HOUR_MS)
        sim.advance("1s")
        assert sim.verify().identical


def test_an_offer_is_good_even_when_all_that_waited_is_gone() -> None:
    """G4: the leader has let go of every message the offer holds before it is fetched."""
    with cluster(nodes=3, seed=9) as sim:
        sim.create_topic(TOPIC, partitions=1)
        schedule(sim, [b"%03d" % i for i in range(20)], 3_000)
        sim.advance("500ms")
        leader, (follower, other) = lead(sim, TOPIC)
        sim.cut(leader, follower)
        sim.cut(other, follower)
        schedule(sim, [b"more"], 2_000, via=leader)
        giver, taker = replica(sim, leader, TOPIC), replica(sim, follower, TOPIC)
        snapshot = giver.log.offer()
        delivered(sim, 21, "20s")
        assert host(sim, leader, TOPIC).side[WAITING].log_start == 22
        sim.heal()
        rpc = Rpc(
            RpcKind.SNAP, to=taker.id, sender=giver.id, term=giver.raft.term, snapshot=snapshot
        )
        node(sim, follower).catch_ups.offered(taker, rpc)
        assert taker.frozen
        sim.run_until(lambda: replica(sim, follower, TOPIC) is not taker)
        sim.advance("2s")
        assert replica(sim, follower, TOPIC).applied_index == giver.applied_index
        assert sim.verify().identical


def test_a_catch_up_that_is_given_up_cuts_the_waiting_log_back() -> None:
    """X1: what was fetched of it goes again, and entries are applied as before."""
    with cluster(nodes=3, seed=10) as sim:
        sim.create_topic(TOPIC, partitions=1)
        schedule(sim, [b"first"], HOUR_MS)
        sim.advance("1s")
        leader, (follower, other) = lead(sim, TOPIC)
        sim.cut(leader, follower)
        sim.cut(other, follower)
        schedule(sim, [b"%05d" % i + bytes(2_000) for i in range(30)], HOUR_MS, via=leader)
        giver, taker = replica(sim, leader, TOPIC), replica(sim, follower, TOPIC)
        snapshot = giver.log.offer()
        sim.heal()
        rpc = Rpc(
            RpcKind.SNAP, to=taker.id, sender=giver.id, term=giver.raft.term, snapshot=snapshot
        )
        catch_ups = node(sim, follower).catch_ups
        catch_ups.offered(taker, rpc)
        fetched = host(sim, follower, TOPIC).side[WAITING]
        sim.run_until(lambda: fetched.log_end == 32)
        catch_ups._running[taker.shard]._give_up("the test says so")
        assert fetched.log_end == 2
        sim.run_until(lambda: not taker.frozen)
        sim.run_until(lambda: replica(sim, follower, TOPIC).applied_index == giver.applied_index)
        sim.advance("1s")
        assert sim.verify().identical


def test_damage_of_the_waiting_log_is_mended_from_a_peer(sim: SimCluster) -> None:
    schedule(sim, [b"%03d" % i + bytes(3000) for i in range(60)], 20_000)
    sim.advance("1s")  # the followers hear that it is committed
    leader, (follower, _) = lead(sim, TOPIC)
    path = host(sim, follower, TOPIC).side[WAITING]._files.directory
    sim.stop(follower)
    disk = sim.host(follower).disk
    names = [name for name in disk.listdir(path) if name.endswith(".log")]
    disk.flip_bit(f"{path}/{names[0]}", 1000)
    sim.start(follower)
    sim.wait_ready()
    sim.advance("2s")
    sim.command("cluster.transfer", topic=TOPIC, partition=0, to_node=follower)
    sim.run_until(lambda: sim.leader(TOPIC) == follower)
    assert len(delivered(sim, 60, "30s")) == 60
    assert any("log.repaired" in line for line in sim.log_lines(500))
    assert sim.leader(TOPIC) != leader
    assert sim.verify().identical


def test_lanes_are_released_by_themselves(sim: SimCluster) -> None:
    schedule(sim, [b"low"], 500, priority=-5)
    schedule(sim, [b"high"], 500, priority=5)
    schedule(sim, [b"high too"], 500, priority=5)
    assert set(delivered(sim, 3)) == {b"low", b"high", b"high too"}
    leader, _ = lead(sim, TOPIC)
    lanes = host(sim, leader, TOPIC).machine.lanes
    order = values(sim)
    assert lanes.lane_of(order.index(b"low")) == -5
    assert lanes.lane_of(order.index(b"high")) == 5
    assert order.index(b"high") < order.index(b"high too")


def test_many_at_once_keep_their_order(sim: SimCluster) -> None:
    want = [b"%05d" % i for i in range(2600)]
    schedule(sim, want, 1000)
    assert delivered(sim, 2600) == want
    leader, _ = lead(sim, TOPIC)
    log = host(sim, leader, TOPIC).side[WAITING]
    assert log.log_start == log.log_end == 2601


def test_a_release_stays_within_its_bytes() -> None:
    small, large = message(b"s"), message(bytes(900_000))
    assert len(fitting([small, large, small])) == 3
    assert len(fitting([large, large, small])) == 1
    assert len(fitting([message(bytes(3_000_000)), small])) == 1


def test_a_message_without_room_for_its_id_goes_without() -> None:
    full = seal_batch([(None, b"v", [(f"h{i}", b"") for i in range(100)], 0)])
    old = seal_batch([(None, b"w", [(ID_HEADER, b"elsewhere.0.w9")], 0)])
    first, second = open_batches(seal_release("t.0.w", [3, 4], [full, old]))
    assert len(first.headers) == 100
    assert second.headers == ((ID_HEADER, b"t.0.w4"),)


def test_the_traces_of_a_topic_in_which_all_is_cancelled_are_kept_as_it_is_set() -> None:
    with cluster(nodes=3, seed=7) as sim:
        sim.create_topic(TOPIC, partitions=1, settings={"trace_percent": 0})
        cancelled = schedule(sim, [b"x"], HOUR_MS)
        assert ask(sim, "waiting.cancel", number=cancelled[0])["cancelled"]
        sim.advance("12s")
        leader, _ = lead(sim, TOPIC)
        trace = host(sim, leader, TOPIC).side[TRACE]
        end = trace.log_end
        schedule(sim, [b"y"], HOUR_MS)
        assert (host(sim, leader, TOPIC).machine.trace.percent, trace.log_end) == (0, end)
