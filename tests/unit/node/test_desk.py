"""The desk of a partition on whole nodes: what is handed out, to whom, when, and what never is."""

import msgspec
import pytest
from crc32c import crc32c

from raftline.machines.delivery.commands import (
    ACK,
    BACKOFF,
    EXTEND,
    NACK,
    REJECT,
    START_FIRST,
    START_NEXT,
)
from raftline.machines.delivery.rows import LEASED, READY, TIME
from raftline.model.batch import check_batch
from raftline.model.calls import Received, Settled
from raftline.model.errors import RaftlineError, StorageFault, TooLarge
from raftline.model.ids import ReplicaId, node_of
from raftline.model.limits import BATCH_HEADER_BYTES
from raftline.model.records import seal_batch
from raftline.node import desk
from raftline.node.readers import ReadDone, Readers
from raftline.node.settle_pieces import PIECE_ROWS
from raftline.testing import SimCluster, cluster
from tests.unit.node.whole import answer_of, host, lead, node, replica, stall_segments
from tests.unit.node.work import (
    GROUP,
    TOPIC,
    Answer,
    ask,
    attempts,
    offsets,
    question,
    receive,
    set_topic,
    settle,
    settles,
    values,
)


@pytest.fixture
def sim():
    with cluster(nodes=3, seed=11) as made:
        made.create_topic(TOPIC, partitions=1)
        yield made


def fill(sim: SimCluster, count: int, start: int = 0, batch: int = 1) -> None:
    """Append messages, ``batch`` to a batch."""
    numbers = [b"%d" % n for n in range(start, start + count)]
    for at in range(0, count, batch):
        sim.append(TOPIC, numbers[at : at + batch])


# ---------------------------------------------------------------------- what goes out


def test_the_first_receive_of_a_group_gets_what_is_there_without_waiting(sim: SimCluster) -> None:
    """The group is opened and a majority asked first: neither makes an empty answer."""
    fill(sim, 3)
    sim.advance("3s")  # the shard is quiet: nobody confirmed this leader lately
    for number, name in enumerate(sim.nodes):
        got = receive(sim, via=name, group=f"g{number}", wait_ms=0)
        assert offsets(got) == [0, 1, 2]
        sim.advance("3s")


def test_nobody_is_told_that_there_is_nothing_before_somebody_could_look(sim: SimCluster) -> None:
    """Followers are slow: the group takes its time to open, longer than the receive would wait."""
    leader, followers = lead(sim, TOPIC)
    fill(sim, 3)
    heard: list[Answer] = []
    for name in followers:
        sim.pause(name)
    ask(sim, heard.append, via=leader, wait_ms=0)
    sim.advance("300ms")
    assert heard == []
    for name in followers:
        sim.resume(name)
    sim.run_until(lambda: bool(heard))
    assert offsets(heard[0]) == [0, 1, 2]


def test_a_single_node_hands_out_nothing_before_it_knows_what_was_acked() -> None:
    """It leads at once after a restart; what it had committed is applied a moment later."""
    with cluster(nodes=1, seed=5) as sim:
        sim.create_topic(TOPIC, partitions=1)
        fill(sim, 5)
        (name,) = sim.nodes
        assert settle(sim, receive(sim, count=3)) == []
        sim.kill(name)
        sim.start(name)
        sim.run_until(lambda: _led_there(sim, name))
        assert replica(sim, name, TOPIC).applied_term < replica(sim, name, TOPIC).raft.term
        assert offsets(receive(sim, count=5, wait_ms=0)) == [3, 4]


@pytest.mark.parametrize("partition", [0, -1])
@pytest.mark.parametrize("start", [START_FIRST, START_NEXT])
@pytest.mark.parametrize("was_ordered", [True, False])
def test_a_group_stays_as_it_began_whoever_asks_before_all_is_applied(
    was_ordered: bool, start: int, partition: int
) -> None:
    """Its beginning is among what is applied a moment after a restart: ordered counts once."""
    with cluster(nodes=1, seed=5) as sim:
        sim.create_topic(TOPIC, partitions=1)
        fill(sim, 5)
        (name,) = sim.nodes
        receive(sim, count=1, ordered=was_ordered)
        sim.kill(name)
        sim.start(name)
        sim.run_until(lambda: _led_there(sim, name))
        assert GROUP not in host(sim, name, TOPIC).machine.delivery.groups
        ask(sim, lambda _: None, partition=partition, ordered=not was_ordered, start=start)
        sim.advance("2s")
        group = host(sim, name, TOPIC).machine.delivery.groups[GROUP]
        assert group.policy.ordered is was_ordered


def test_a_group_stays_as_it_began_when_its_leader_dies_at_once(sim: SimCluster) -> None:
    fill(sim, 5)
    old, followers = lead(sim, TOPIC)
    receive(sim, via=old, count=1, ordered=True)
    sim.kill(old)  # before the others heard that the group's beginning is committed
    sim.run_until(lambda: any(_led_there(sim, name) for name in followers))
    leader = next(name for name in followers if _led_there(sim, name))
    assert GROUP not in host(sim, leader, TOPIC).machine.delivery.groups
    ask(sim, lambda _: None, via=leader)
    sim.advance("3s")
    assert host(sim, lead(sim, TOPIC)[0], TOPIC).machine.delivery.groups[GROUP].policy.ordered


def test_a_group_that_is_to_begin_with_what_comes_next_does_so_where_nobody_confirmed_lately(
    sim: SimCluster,
) -> None:
    leader, _ = lead(sim, TOPIC)
    fill(sim, 3)
    sim.advance("3s")  # quiet: a majority is asked first
    assert offsets(receive(sim, via=leader, partition=-1, start=START_NEXT, ordered=True)) == []
    sim.run_until(lambda: GROUP in host(sim, leader, TOPIC).machine.delivery.groups)
    group = host(sim, leader, TOPIC).machine.delivery.groups[GROUP]
    assert (group.floor, group.policy.ordered) == (3, True)
    fill(sim, 1, start=3)
    assert offsets(receive(sim, via=leader, partition=-1, wait_ms=1_000)) == [3]


def _led_there(sim: SimCluster, name: str) -> bool:
    shards = node(sim, name).shards
    row = node(sim, name).catalog_machine.topics.get(TOPIC)
    found = shards.get(row.shards[0]) if row is not None else None
    return found is not None and found.is_leader


def test_nothing_is_handed_out_twice_while_grants_are_on_their_way(sim: SimCluster) -> None:
    leader, followers = lead(sim, TOPIC)
    fill(sim, 10)
    assert offsets(receive(sim, via=leader, count=1)) == [0]
    sim.advance("100ms")
    for name in followers:
        sim.cut(leader, name)  # nothing commits from here on
    seen: list[int] = []
    for _ in range(4):
        seen += offsets(receive(sim, via=leader, count=2))
    assert seen == list(range(1, 9))
    group = host(sim, leader, TOPIC).machine.delivery.groups[GROUP]
    assert group.counts[1] == 1  # the machine knows of the first alone


def test_a_redelivery_waits_until_it_is_committed(sim: SimCluster) -> None:
    leader, followers = lead(sim, TOPIC)
    fill(sim, 2)
    got = receive(sim, via=leader, count=1)
    assert settle(sim, got, NACK, via=leader) == []
    for name in followers:
        sim.cut(leader, name)
    heard: list[Answer] = []
    ask(sim, heard.append, via=leader, count=1)
    sim.advance("300ms")
    assert heard == []  # READY at once, and still not handed out
    for name in followers:
        sim.uncut(leader, name)
    sim.run_until(lambda: bool(heard))
    assert isinstance(heard[0], Received)
    assert attempts(heard[0]) == {0: 2}


def test_a_leader_without_a_majority_hands_out_nothing_after_an_election_timeout(
    sim: SimCluster,
) -> None:
    leader, followers = lead(sim, TOPIC)
    election_ms = node(sim, leader).desks.of(replica(sim, leader, TOPIC)).settings.election_ms
    fill(sim, 100)
    receive(sim, via=leader, count=1)
    sim.advance("100ms")
    for name in followers:
        sim.cut(leader, name)
    cut_ms, last_ms = sim.now_ms, 0.0

    def took(answer: Answer) -> None:
        nonlocal last_ms
        if isinstance(answer, Received) and answer.spans:
            last_ms = sim.now_ms

    while sim.now_ms < cut_ms + 4 * election_ms:
        ask(sim, took, via=leader, count=1, wait_ms=50, timeout_ms=200)
        sim.advance(election_ms / 20_000)
    assert cut_ms < last_ms <= cut_ms + election_ms


def test_messages_that_were_read_too_late_are_not_handed_out_by_a_former_leader(
    sim: SimCluster,
) -> None:
    """The lane is slow; meanwhile somebody else leads and gives the same messages to another."""
    leader, followers = lead(sim, TOPIC)
    for at in range(40):
        sim.append(TOPIC, [b"%03d" % at + bytes(5000)])
    sim.advance("8s")
    receive(sim, via=leader, group="other", count=1)
    assert host(sim, leader, TOPIC).log.read_tail(0, 1) is None, "the beginning is still in memory"
    stall_segments(sim, leader, 8_000)
    heard: list[Answer] = []
    ask(sim, heard.append, via=leader, count=1, timeout_ms=20_000)
    sim.advance("20ms")
    assert heard == []
    for name in followers:
        sim.cut(leader, name)
    sim.run_until(lambda: not replica(sim, leader, TOPIC).is_leader)
    sim.advance("10s")
    for name in followers:
        sim.uncut(leader, name)
    sim.run_until(lambda: bool(heard), "20s")
    new, _ = lead(sim, TOPIC)
    term = replica(sim, new, TOPIC).raft.term
    assert isinstance(heard[0], RaftlineError) or heard[0].term == term


def test_the_ack_of_a_delivery_whose_grant_died_with_its_leader_is_adopted(
    sim: SimCluster,
) -> None:
    leader, followers = lead(sim, TOPIC)
    fill(sim, 2)
    receive(sim, via=leader, count=1)
    sim.advance("100ms")
    for name in followers:
        sim.cut(leader, name)
    got = receive(sim, via=leader, count=1)
    assert attempts(got) == {1: 1}
    sim.kill(leader)
    sim.run_until(lambda: any(replica(sim, n, TOPIC).is_leader for n in followers))
    assert settle(sim, got, ACK, via=followers[0]) == []
    shown = question(sim, "group.show", group=GROUP)
    assert (shown["leased"], shown["fresh"], shown["lag"]) == (1, 0, 1)


def test_a_first_delivery_lost_with_its_leader_is_delivered_again_as_the_first(
    sim: SimCluster,
) -> None:
    """The second worker's Grant holds; the settle of the first is refused."""
    leader, followers = lead(sim, TOPIC)
    fill(sim, 2)
    receive(sim, via=leader, count=1)
    sim.advance("100ms")
    for name in followers:
        sim.cut(leader, name)
    lost = receive(sim, via=leader, count=1)
    sim.kill(leader)
    sim.run_until(lambda: any(replica(sim, n, TOPIC).is_leader for n in followers))
    again = receive(sim, via=followers[0], wait_ms=2000)
    assert attempts(again) == {1: 1}
    assert settle(sim, lost) == [1, 2]
    assert settle(sim, again) == []


# ---------------------------------------------------------------------- who waits


def test_receivers_are_served_in_turn(sim: SimCluster) -> None:
    leader, _ = lead(sim, TOPIC)
    order: list[tuple[str, list[int]]] = []
    for name in "abcd":
        ask(
            sim,
            lambda answer, name=name: order.append((name, offsets(answer))),
            via=leader,
            count=2,
            wait_ms=9000,
            member=name,
        )
    sim.advance("200ms")
    assert order == []
    fill(sim, 7, batch=7)
    sim.advance("200ms")
    assert order == [("a", [0, 1]), ("b", [2, 3]), ("c", [4, 5]), ("d", [6])]


@pytest.mark.parametrize("wait_ms", [0, 700])
def test_an_empty_answer_comes_at_the_deadline(sim: SimCluster, wait_ms: int) -> None:
    leader, others = lead(sim, TOPIC)
    receive(sim, via=leader)  # the group is there
    for name in (leader, others[0]):
        began = sim.now_ms
        assert offsets(receive(sim, via=name, wait_ms=wait_ms)) == []
        assert wait_ms <= sim.now_ms - began < wait_ms + 200


def test_one_who_waits_past_a_change_of_leader_is_served_by_the_next(sim: SimCluster) -> None:
    leader, others = lead(sim, TOPIC)
    fill(sim, 1)
    settle(sim, receive(sim))
    heard: list[Answer] = []
    began = sim.now_ms
    ask(sim, heard.append, via=leader, wait_ms=6_000)
    ask(sim, heard.append, via=others[0], wait_ms=6_000, group="second", start=START_NEXT)
    sim.advance("500ms")
    number = sim.number_of(others[0])
    sim.command("cluster.transfer", topic=TOPIC, partition=0, to_node=number)
    sim.run_until(lambda: replica(sim, others[0], TOPIC).is_leader)
    sim.advance("500ms")
    assert heard == []
    fill(sim, 1, 1)
    sim.run_until(lambda: len(heard) == 2, "2s")
    assert [offsets(answer) for answer in heard] == [[1], [1]]
    assert sim.now_ms - began < 6_000


def test_a_wait_goes_on_with_what_is_left_of_it_after_a_change_of_leader(sim: SimCluster) -> None:
    leader, others = lead(sim, TOPIC)
    fill(sim, 1)
    settle(sim, receive(sim))
    heard: list[Answer] = []
    began = sim.now_ms
    ask(sim, heard.append, via=leader, wait_ms=3_000)
    sim.advance("2500ms")
    number = sim.number_of(others[0])
    sim.command("cluster.transfer", topic=TOPIC, partition=0, to_node=number)
    sim.run_until(lambda: bool(heard))
    assert offsets(heard[0]) == []
    assert 3_000 <= sim.now_ms - began < 3_600


def test_a_group_is_opened_where_its_first_receiver_says(sim: SimCluster) -> None:
    fill(sim, 3)
    assert offsets(receive(sim, start=START_NEXT)) == []
    fill(sim, 1, 3)
    assert offsets(receive(sim, wait_ms=500)) == [3]
    assert offsets(receive(sim, group="all")) == [0, 1, 2, 3]


def test_a_name_that_cannot_be_is_refused_to_all_who_wait(sim: SimCluster) -> None:
    fill(sim, 1)
    answer = answer_of(sim, lambda done: ask(sim, done, group="g" * 300))
    assert isinstance(answer, RaftlineError)
    assert answer.code == "invalid_argument"


# ---------------------------------------------------------------------- settings, resets, drops


def test_other_settings_hold_from_the_next_receive_on(sim: SimCluster) -> None:
    fill(sim, 2)
    first = receive(sim, count=1)
    assert question(sim, "group.show", group=GROUP)["policy"]["max_retries"] == 3
    set_topic(sim, max_retries=0, lease_ms=2_000)
    second = receive(sim, count=1, lease_ms=0)
    assert second.deadline_ms - second.at_ms == 2_000
    assert question(sim, "group.show", group=GROUP)["policy"]["max_retries"] == 0
    assert settle(sim, first, NACK) == []  # the first failure is the last now
    shown = question(sim, "group.show", group=GROUP)
    assert shown["dying"] + shown["dead"] == 1
    assert (shown["resting"], shown["leased"]) == (0, 1)


def test_a_reset_ends_leases_and_delivers_again(sim: SimCluster) -> None:
    fill(sim, 4, batch=4)
    settle(sim, receive(sim, count=2))
    live = receive(sim, count=1)
    told = question(sim, "group.reset", group=GROUP, offset=1, dry_run=True)
    assert (told["offset"], told["floor_before"], told["again"]) == (1, 2, 3)
    assert offsets(live) == [2]
    question(sim, "group.reset", group=GROUP, offset=1)
    assert settle(sim, live) == [2, 3]
    again = receive(sim)
    assert attempts(again) == {1: 1, 2: 1, 3: 1}
    assert settle(sim, again) == []


def test_a_group_that_is_dropped_and_begins_again_gets_everything(sim: SimCluster) -> None:
    fill(sim, 4)
    live = receive(sim, count=2)
    settle(sim, receive(sim))
    assert question(sim, "group.drop", group=GROUP)["dropped"] is True
    assert question(sim, "group.drop", group=GROUP)["dropped"] is False
    again = receive(sim)
    assert attempts(again) == dict.fromkeys(range(4), 1)
    assert settle(sim, live) == [0, 2]  # of the group's earlier life
    assert settle(sim, again) == []


def test_an_ordered_group_that_is_dropped_and_begins_again_gets_everything(
    sim: SimCluster,
) -> None:
    fill(sim, 4)
    assert offsets(receive(sim, ordered=True)) == [0, 1, 2, 3]
    question(sim, "group.drop", group=GROUP)
    assert offsets(receive(sim, ordered=True)) == [0, 1, 2, 3]


def test_nothing_is_kept_of_groups_that_are_gone_or_never_were(
    sim: SimCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names come and go: a leader may lead for months."""
    leader, _ = lead(sim, TOPIC)
    fill(sim, 1)
    desks = host(sim, leader, TOPIC).open_desk()
    receive(sim, via=leader, group="stays")
    for number in range(5):
        name = f"passing-{number}"
        assert offsets(receive(sim, via=leader, group=name, ordered=number == 0)) == [0]
        sim.advance("100ms")  # its Grant is applied
        question(sim, "group.drop", group=name)
    monkeypatch.setattr("raftline.machines.delivery.machine.WORK_GROUPS_MAX", 1)
    for number in range(5):
        answer = answer_of(
            sim, lambda done, n=number: ask(sim, done, via=leader, group=f"one-too-many-{n}")
        )
        assert isinstance(answer, RaftlineError), answer
        assert answer.code == "over_limit"
    assert list(desks._counters) == ["stays"]
    assert offsets(receive(sim, via=leader, group="stays")) == []


def test_who_waits_while_his_group_is_dropped_begins_it_anew(sim: SimCluster) -> None:
    leader, _ = lead(sim, TOPIC)
    fill(sim, 1)
    settle(sim, receive(sim, via=leader), via=leader)
    heard: list[Answer] = []
    ask(sim, heard.append, via=leader, wait_ms=5_000)
    sim.advance("100ms")
    question(sim, "group.drop", group=GROUP)
    sim.run_until(lambda: bool(heard))
    assert offsets(heard[0]) == [0]


def test_leases_end_by_themselves_while_nobody_asks(sim: SimCluster) -> None:
    fill(sim, 3, batch=3)
    receive(sim, count=2, lease_ms=1_000)
    sim.advance("3s")
    shown = question(sim, "group.show", group=GROUP)
    assert (shown["ready"], shown["leased"], shown["fresh"]) == (2, 0, 1)
    sim.kill_leader(TOPIC)
    again = receive(sim, wait_ms=5_000)
    assert attempts(again) == {0: 2, 1: 2, 2: 1}


def test_a_new_leader_lets_leases_end_that_its_predecessor_gave(sim: SimCluster) -> None:
    fill(sim, 2, batch=2)
    receive(sim, lease_ms=2_000)
    sim.advance("100ms")
    sim.kill_leader(TOPIC)
    again = receive(sim, wait_ms=8_000)
    assert attempts(again) == {0: 2, 1: 2}


def test_reject_goes_to_the_dead_letters(sim: SimCluster) -> None:
    fill(sim, 1)
    assert settle(sim, receive(sim), REJECT) == []
    sim.advance("3s")
    assert question(sim, "group.show", group=GROUP)["dead"] == 1


def test_durable_grants_are_handed_out_when_they_are_committed(sim: SimCluster) -> None:
    set_topic(sim, grant="durable")
    leader, followers = lead(sim, TOPIC)
    fill(sim, 2)
    assert offsets(receive(sim, via=leader, count=1)) == [0]
    for name in followers:
        sim.cut(leader, name)
    heard: list[Answer] = []
    ask(sim, heard.append, via=leader, count=1)
    sim.advance("200ms")
    assert heard == []
    for name in followers:
        sim.uncut(leader, name)
    sim.run_until(lambda: bool(heard))
    assert offsets(heard[0]) == [1]


def test_the_backoff_may_vary(sim: SimCluster) -> None:
    set_topic(sim, backoff_ms=1_000, backoff_jitter=50)
    fill(sim, 20, batch=20)
    leader, _ = lead(sim, TOPIC)
    for _ in range(20):
        assert settle(sim, receive(sim, via=leader, count=1), NACK, BACKOFF, via=leader) == []
    at_ms = host(sim, leader, TOPIC).machine.at_ms
    group = host(sim, leader, TOPIC).machine.delivery.groups[GROUP]
    waits = [row[TIME] - at_ms for _, _, row in group.rows]
    assert len(set(waits)) > 5
    assert all(300 <= wait <= 1_500 for wait in waits), waits


def test_groups_are_listed_with_what_they_have_left(sim: SimCluster) -> None:
    fill(sim, 5, batch=5)
    settle(sim, receive(sim, count=2))
    receive(sim, group="other", count=1)
    sim.advance("100ms")
    rows = {row["group"]: row for row in question(sim, "group.list")["groups"]}
    assert (rows[GROUP]["floor"], rows[GROUP]["lag"], rows[GROUP]["leased"]) == (2, 3, 0)
    assert (rows["other"]["floor"], rows["other"]["lag"], rows["other"]["leased"]) == (0, 5, 1)


# ---------------------------------------------------------------------- bytes


def test_spans_over_several_batches_and_parts_of_them(sim: SimCluster) -> None:
    fill(sim, 12, batch=4)
    assert values(receive(sim, count=3)) == [b"0", b"1", b"2"]
    assert values(receive(sim, count=6)) == [b"3", b"4", b"5", b"6", b"7", b"8"]
    got = receive(sim)
    assert values(got) == [b"9", b"10", b"11"]
    assert got.batches.count(b"raftline") == 0  # whole stored batches, nothing else


def test_bytes_are_bounded_and_what_did_not_fit_comes_next(sim: SimCluster) -> None:
    for at in range(6):
        sim.append(TOPIC, [b"%d" % at + bytes(1000)] * 2)
    got = receive(sim, bytes_max=5_000)
    assert offsets(got) == list(range(4))
    assert len(got.batches) < 5_000
    one = receive(sim, bytes_max=1)  # one batch at least, whatever it weighs
    assert offsets(one) == [4, 5]
    assert offsets(receive(sim)) == [6, 7, 8, 9, 10, 11]


@pytest.mark.parametrize("ordered", [False, True])
def test_a_redelivery_is_not_left_behind_where_bytes_are_short(
    sim: SimCluster, ordered: bool
) -> None:
    """It has the lowest offset, so it goes first, however much there is that nobody had yet."""
    fill(sim, 60)
    got = receive(sim, count=1, ordered=ordered)
    assert offsets(got) == [0]
    settle(sim, got, NACK)
    again = receive(sim, count=50, bytes_max=500)
    assert attempts(again)[0] == 2
    assert offsets(again) == list(range(len(offsets(again))))
    assert 1 < len(offsets(again)) < 50


def test_redeliveries_far_apart_are_handed_out_together(sim: SimCluster) -> None:
    fill(sim, 30, batch=3)
    got = receive(sim)
    rows = settles(got)[0]
    keep = [edge for at in range(0, 30, 7) for edge in (at, at + 1)]
    gone = [edge for at in range(30) if at % 7 for edge in (at, at + 1)]
    leader, _ = lead(sim, TOPIC)
    acks = [
        msgspec.structs.replace(rows, ranges=gone),
        msgspec.structs.replace(rows, ranges=keep, verb=NACK, delay_ms=0),
    ]
    answer_of(sim, lambda done: node(sim, leader).settle(TOPIC, 0, acks, 5000, done))
    again = receive(sim)
    assert attempts(again) == dict.fromkeys(range(0, 30, 7), 2)
    assert values(again) == [b"%d" % at for at in range(0, 30, 7)]


def test_cold_messages_are_read_from_disk(sim: SimCluster) -> None:
    for at in range(40):
        sim.append(TOPIC, [b"%03d" % at + bytes(5000)])
    sim.advance("8s")
    leader, _ = lead(sim, TOPIC)
    assert host(sim, leader, TOPIC).log.read_tail(0, 1) is None
    seen: list[bytes | None] = []
    while len(seen) < 40:
        got = receive(sim, count=7, bytes_max=20_000)
        seen += values(got)
        assert got.spans
    assert [value[:3] for value in seen if value] == [b"%03d" % at for at in range(40)]


def test_an_ordered_group_reads_keys_of_cold_messages(sim: SimCluster) -> None:
    leader, _ = lead(sim, TOPIC)
    for at in range(40):
        sealed = seal_batch([(b"k%d" % (at % 5), b"%03d" % at + bytes(5000), [], 1000)])
        info = check_batch(sealed)
        answer_of(
            sim, lambda done, s=sealed, i=info: node(sim, leader).append(TOPIC, 0, s, i, 5000, done)
        )
    sim.advance("8s")
    assert host(sim, leader, TOPIC).log.read_tail(0, 1) is None
    for turn in range(8):
        got = receive(sim, ordered=True, wait_ms=2000)
        assert offsets(got) == [turn * 5 + n for n in range(5)], turn
        assert offsets(receive(sim)) == []
        settle(sim, got)
    shown = question(sim, "group.show", group=GROUP)
    assert (shown["floor"], shown["lag"]) == (40, 0)


def test_an_ordered_group_comes_past_a_batch_that_numbers_its_messages_in_its_own_way(
    sim: SimCluster,
) -> None:
    leader, _ = lead(sim, TOPIC)
    odd = bytearray(seal_batch([(b"k", b"hello world", (), 1)]))
    odd[BATCH_HEADER_BYTES + 3] = 18  # it says that it is the tenth of its batch
    odd[17:21] = crc32c(bytes(odd[21:])).to_bytes(4, "big")
    for batch in (bytes(odd), seal_batch([(b"k", b"after", (), 1)])):
        info = check_batch(batch)
        answer_of(
            sim, lambda done, b=batch, i=info: node(sim, leader).append(TOPIC, 0, b, i, 5000, done)
        )
    assert offsets(receive(sim, ordered=True)) == [0, 1]


@pytest.mark.parametrize("wait_ms", [0, 3_000])
def test_a_message_behind_many_of_a_parked_key_is_found_at_once(
    sim: SimCluster, wait_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than are read in one go; then nothing happens that would wake anybody."""
    monkeypatch.setattr(desk, "FEED_BYTES", 2_000)
    monkeypatch.setattr(desk, "FEED_MESSAGES", 4)
    leader, _ = lead(sim, TOPIC)
    for at in range(20):
        key = b"free" if at == 19 else b"parked"
        sealed = seal_batch([(key, bytes(900), [], 1000)])
        info = check_batch(sealed)
        answer_of(
            sim, lambda done, s=sealed, i=info: node(sim, leader).append(TOPIC, 0, s, i, 5000, done)
        )
    assert offsets(receive(sim, via=leader, count=1, ordered=True)) == [0]
    began = sim.now_ms
    got = receive(sim, via=leader, count=1, wait_ms=wait_ms)
    assert offsets(got) == [19]
    assert sim.now_ms - began < 1_000


def test_a_message_parked_behind_one_that_is_trimmed_goes_at_once(sim: SimCluster) -> None:
    """Its key is one of many that are held: a look at a few of them does not find it."""
    leader, _ = lead(sim, TOPIC)
    keys = [b"k%d" % n for n in range(30)]
    sealed = seal_batch([(key, b"", [], 1000) for key in keys + keys])
    info = check_batch(sealed)
    answer_of(sim, lambda done: node(sim, leader).append(TOPIC, 0, sealed, info, 5000, done))
    got = receive(sim, via=leader, ordered=True)
    assert settle(sim, got, REJECT, via=leader) == []
    sim.advance("3s")  # they are dead, and nothing holds retention
    heard: list[Answer] = []
    ask(sim, heard.append, via=leader, count=1, wait_ms=20_000)
    sim.advance("3s")
    assert heard == []
    sim.trim(TOPIC, 0, 1)
    sim.advance("1s")
    assert [offsets(answer) for answer in heard] == [[30]]


def test_a_lease_ends_though_leadership_was_to_be_handed_over_just_then(sim: SimCluster) -> None:
    """The one who was to lead does not answer: log time could not pass, and passes later."""
    leader, followers = lead(sim, TOPIC)
    fill(sim, 1)
    assert offsets(receive(sim, via=leader, lease_ms=2_000)) == [0]
    sim.advance("1900ms")
    sim.pause(followers[0])
    led = replica(sim, leader, TOPIC)
    voter = next(v for v in led.conf.voters if sim.name_of(node_of(ReplicaId(v))) == followers[0])
    led.transfer(ReplicaId(voter))
    sim.advance("20s")
    assert led.is_leader
    group = host(sim, leader, TOPIC).machine.delivery.groups[GROUP]
    assert (group.counts[LEASED], group.counts[READY]) == (0, 1)
    sim.resume(followers[0])


def test_a_damaged_range_is_mended_and_then_handed_out(sim: SimCluster) -> None:
    for at in range(40):
        sim.append(TOPIC, [b"%03d" % at + bytes(5000)])
    sim.advance("8s")
    leader, _ = lead(sim, TOPIC)
    log = host(sim, leader, TOPIC).log
    assert log.read_tail(0, 1) is None
    path = log._files.directory
    disk = sim.host(leader).disk
    names = sorted(name for name in disk.listdir(path) if name.endswith(".log"))
    disk.flip_bit(f"{path}/{names[0]}", 2_000)
    answers: list[Answer] = []
    for _ in range(20):
        answers.append(
            answer_of(sim, lambda done: ask(sim, done, via=leader, count=5))  # type: ignore[arg-type]
        )
        if isinstance(answers[-1], Received) and answers[-1].spans:
            break
        sim.advance("500ms")
    refused = [answer for answer in answers if isinstance(answer, RaftlineError)]
    assert {answer.code for answer in refused} <= {"damaged"}
    assert offsets(answers[-1]) == [0, 1, 2, 3, 4]
    assert any("log.repaired" in line for line in sim.log_lines(500))


# ---------------------------------------------------------------------- bounds


def test_many_settles_are_spread_over_entries_of_bounded_size(sim: SimCluster) -> None:
    fill(sim, 4, batch=4)
    leader, _ = lead(sim, TOPIC)
    (row,) = settles(receive(sim, via=leader), EXTEND, 60_000)
    sim.advance("100ms")
    found, sizes = host(sim, leader, TOPIC), []
    proposals = found.proposals

    def noted(own):
        made = proposals(own)
        sizes.extend(len(data) for data, _ in made)
        return made

    found.proposals = noted  # type: ignore[method-assign]
    heavy = msgspec.structs.replace(row, reason="x" * 1000)
    heard: list[object] = []
    for _ in range(4):
        node(sim, leader).settle(TOPIC, 0, [heavy] * 1000, 5_000, heard.append)
    sim.run_until(lambda: len(heard) == 4)
    assert heard == [Settled([[]] * 1000)] * 4
    pieces = 4 * 1000 // PIECE_ROWS
    assert pieces // 2 <= len(sizes) <= pieces  # as many as a turn takes share an entry
    assert max(sizes) < 2 << 20


def test_what_a_turn_does_not_take_is_answered_when_its_time_is_up(sim: SimCluster) -> None:
    """D5, without a majority: a part is proposed, the rest waits in vain."""
    fill(sim, 600, batch=100)
    leader, followers = lead(sim, TOPIC)
    got = receive(sim, via=leader, count=600)
    sim.advance("100ms")
    for name in followers:
        sim.cut(leader, name)
    (row,) = settles(got)
    heard: list[object] = []
    for at in range(4):
        ranges = [edge for o in range(at * 400, at * 400 + 400, 2) for edge in (o, o + 1)]
        some = msgspec.structs.replace(row, ranges=ranges)
        node(sim, leader).settle(TOPIC, 0, [some], 400, heard.append)
    sim.run_until(lambda: len(heard) == 4, "3s")
    assert {answer.code for answer in heard if isinstance(answer, RaftlineError)} == {"timed_out"}
    assert len(heard) == 4


def test_a_redelivery_whose_grant_never_went_out_is_delivered_later(sim: SimCluster) -> None:
    """The disk stands still for longer than a receive has: its Grant is not proposed at all."""
    leader, _ = lead(sim, TOPIC)
    fill(sim, 1)
    assert settle(sim, receive(sim, via=leader), NACK, via=leader) == []
    sim.host(leader).stall(2_000)
    heard: list[Answer] = []
    batch = seal_batch([(None, b"1", (), 0)])
    node(sim, leader).append(TOPIC, 0, batch, check_batch(batch), 5_000, lambda _: None)
    sim.advance("5ms")  # a write is on its way: what comes now waits for the next turn
    ask(sim, heard.append, via=leader, count=1, timeout_ms=400)
    sim.run_until(lambda: bool(heard))
    assert isinstance(heard[0], RaftlineError)
    sim.advance("3s")
    assert attempts(receive(sim, via=leader, count=1)) == {0: 2}


def test_settles_too_large_for_an_entry_are_refused(sim: SimCluster) -> None:
    fill(sim, 1)
    (row,) = settles(receive(sim))
    wide = msgspec.structs.replace(row, ranges=[0, 1] * 600_000)
    for rows in ([wide], [row] * 10_001, []):
        for name in sim.nodes:
            answer = answer_of(
                sim, lambda done, r=rows, n=name: node(sim, n).settle(TOPIC, 0, r, 5_000, done)
            )
            assert isinstance(answer, TooLarge), answer
    long = answer_of(sim, lambda done: ask(sim, done, member="m" * 250))
    assert isinstance(long, TooLarge)


@pytest.mark.parametrize("wait_ms", [0, 3_000])
def test_keys_that_are_in_the_page_cache_make_no_empty_answer(
    sim: SimCluster, wait_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read at once, not in the lane, while whoever asked is being served."""
    leader, _ = lead(sim, TOPIC)
    for at in range(40):
        sim.append(TOPIC, [b"%03d" % at + bytes(5000)])
    sim.advance("8s")
    assert host(sim, leader, TOPIC).log.read_tail(0, 1) is None
    receive(sim, via=leader, count=1, start=START_NEXT, ordered=True)
    question(sim, "group.reset", group=GROUP, offset="first")
    sim.advance("1s")

    def at_once(self: Readers, offset: int, bytes_max: int, end: int, done: ReadDone) -> None:
        self.cold_read(self._host.log.read_job(offset, bytes_max, end)(), None, done)

    monkeypatch.setattr(Readers, "read_cold", at_once)
    began = sim.now_ms
    assert offsets(receive(sim, via=leader, count=1, wait_ms=wait_ms)) == [0]
    assert sim.now_ms - began < 1_000


def test_keys_read_for_a_group_that_was_dropped_meanwhile_are_not_those_of_the_next(
    sim: SimCluster,
) -> None:
    leader, _ = lead(sim, TOPIC)
    for at in range(40):
        sim.append(TOPIC, [b"%03d" % at + bytes(5000)])
    first = receive(sim, via=leader, count=10, ordered=True, wait_ms=2_000)
    assert settle(sim, first, via=leader) == []
    host(sim, leader, TOPIC).desk.close()  # as a leader that begins: no key was read yet
    host(sim, leader, TOPIC).desk = None
    sim.advance("8s")
    assert host(sim, leader, TOPIC).log.read_tail(10, 1) is None
    stall_segments(sim, leader, 2_000)
    heard: list[Answer] = []
    ask(sim, heard.append, via=leader, count=5, ordered=True, wait_ms=10_000, timeout_ms=15_000)
    sim.advance("100ms")
    question(sim, "group.drop", group=GROUP)
    sim.run_until(lambda: bool(heard), "15s")
    assert offsets(heard[0]) == [0, 1, 2, 3, 4]


def test_nothing_goes_out_twice_while_leadership_is_handed_over(sim: SimCluster) -> None:
    """The one who was to lead does not answer: Grants are dropped until that is given up."""
    leader, followers = lead(sim, TOPIC)
    fill(sim, 1)
    receive(sim, via=leader, group="other")  # a majority confirmed this leader just now
    question(sim, "group.reset", group=GROUP, offset="first", open=True)
    sim.pause(followers[0])
    led = replica(sim, leader, TOPIC)
    voter = next(v for v in led.conf.voters if sim.name_of(node_of(ReplicaId(v))) == followers[0])
    led.transfer(ReplicaId(voter))
    heard: list[Answer] = []
    for _ in range(3):
        ask(sim, heard.append, via=leader, count=1, lease_ms=60_000, timeout_ms=20_000)
        sim.advance("50ms")
    sim.advance("25s")
    assert led.is_leader
    assert sorted(offsets(answer) for answer in heard) == [[], [], [0]]
    sim.resume(followers[0])


def test_one_who_waits_gets_what_a_grant_had_that_never_went_out(sim: SimCluster) -> None:
    """Only another topic writes meanwhile: nothing is applied here that would wake anybody."""
    leader, _ = lead(sim, TOPIC)
    sim.create_topic("beside", partitions=1)
    number = node(sim, leader).id
    sim.command("cluster.transfer", topic="beside", partition=0, to_node=number)
    sim.advance("2s")
    fill(sim, 1)
    assert settle(sim, receive(sim, via=leader), NACK, via=leader) == []
    sim.host(leader).stall(2_000)
    batch = seal_batch([(None, b"1", (), 0)])
    node(sim, leader).append("beside", 0, batch, check_batch(batch), 5_000, lambda _: None)
    sim.advance("5ms")
    heard: list[Answer] = []
    ask(sim, lambda _: None, via=leader, count=1, timeout_ms=400)
    ask(sim, heard.append, via=leader, count=1, wait_ms=20_000, timeout_ms=25_000)
    sim.advance("5s")
    assert [attempts(answer) for answer in heard if isinstance(answer, Received)] == [{0: 2}]


@pytest.mark.parametrize("ordered", [False, True])
def test_one_who_waits_is_served_after_a_read_failed(
    sim: SimCluster, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, _ = lead(sim, TOPIC)
    for at in range(40):
        sim.append(TOPIC, [b"%03d" % at + bytes(5000)])
    sim.advance("8s")
    assert host(sim, leader, TOPIC).log.read_tail(0, 1) is None
    receive(sim, via=leader, count=1, wait_ms=2_000, ordered=ordered)
    question(sim, "group.reset", group=GROUP, offset="first")
    sim.advance("1s")
    real, failed = Readers.read_cold, list[int]()

    def fail_once(self: Readers, offset: int, bytes_max: int, end: int, done: ReadDone) -> None:
        if failed:
            real(self, offset, bytes_max, end, done)
            return
        failed.append(offset)
        clock = node(sim, leader).clock
        clock.call_later(500, lambda: done(StorageFault(TOPIC, "a test")))

    monkeypatch.setattr(Readers, "read_cold", fail_once)
    heard: list[Answer] = []
    for _ in range(2):
        ask(sim, heard.append, via=leader, count=40, wait_ms=20_000, timeout_ms=25_000)
    sim.advance("3s")
    assert failed
    assert [0 in offsets(answer) for answer in heard if isinstance(answer, Received)][:1] == [True]
