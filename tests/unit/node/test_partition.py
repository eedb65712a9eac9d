"""A partition on this node: answers for everybody who waits. A1-A3."""

from raftline.model.batch import check_batch
from raftline.node.partition import ENTRY_BYTES, OFFERS_MAX
from raftline.testing import SimCluster, cluster
from tests.unit.node.little_batches import BATCH, batch
from tests.unit.node.whole import host, lead, node, replica

TOPIC = "orders"


def orders(sim: SimCluster, count: int = 3) -> tuple[str, str]:
    sim.create_topic(TOPIC, partitions=1)
    for number in range(count):
        sim.append(TOPIC, [b"%d" % number])
    sim.advance("1s")
    leader, (follower, _) = lead(sim, TOPIC)
    return leader, follower


def test_offsets_and_bytes_move_together_on_every_replica() -> None:
    """A1."""
    with cluster(nodes=3, seed=61) as sim:
        orders(sim)
        for name in sim.nodes:
            ours = host(sim, name, TOPIC)
            assert ours.machine.next_offset == ours.log.log_end == 3


def test_a_parked_reader_is_served_by_the_next_append_and_no_sooner() -> None:
    """A3: not by an entry that is only written."""
    with cluster(nodes=3, seed=62) as sim:
        leader, follower = orders(sim)
        heard: list[object] = []
        for offset in (3, 3):
            node(sim, leader).read(TOPIC, 0, offset, 1_000, 4_000, 5_000, heard.append)
        sim.isolate(leader)
        node(sim, leader).append(TOPIC, 0, BATCH, check_batch(BATCH), 500, lambda _: None)
        sim.advance("700ms")
        assert replica(sim, leader, TOPIC).raft.last_index > replica(sim, leader, TOPIC).raft.commit
        assert heard == []
        sim.heal()
        sim.advance("2s")
        sim.append(TOPIC, [b"more"], via=follower)
        sim.run_until(lambda: len(heard) == 2)
        assert all(getattr(reply, "commit_end", 0) >= 4 for reply in heard)


def test_a_parked_reader_gets_nothing_at_its_time_and_others_wait_on() -> None:
    with cluster(nodes=3, seed=63) as sim:
        leader, _ = orders(sim)
        heard: list[tuple[int, bytes]] = []

        def park(wait_ms: int) -> None:
            node(sim, leader).read(
                TOPIC, 0, 3, 1_000, wait_ms, 10_000,
                lambda reply: heard.append((wait_ms, reply.batches)),
            )  # fmt: skip

        park(2_000)
        park(300)
        sim.advance("400ms")
        assert heard == [(300, b"")]
        sim.advance("2s")
        assert heard == [(300, b""), (2_000, b"")]


def test_no_more_readers_are_parked_than_the_limit() -> None:
    with cluster(nodes=3, seed=64) as sim:
        leader, _ = orders(sim)
        ours = host(sim, leader, TOPIC)
        ours.readers.parked_max = 2
        heard: list[object] = []
        now = node(sim, leader).clock.mono_ms()
        for _ in range(3):
            ours.readers.read(3, 1_000, now + 1_000, now, heard.append)
        assert len(heard) == 1, "the third is answered at once, empty"


def test_collected_appends_become_entries_of_bounded_size_in_order() -> None:
    with cluster(nodes=1, seed=65) as sim:
        sim.create_topic(TOPIC, partitions=1, replication_factor=1)
        sim.append(TOPIC, [b"first"])
        ours, led = host(sim, "node-1", TOPIC), replica(sim, "node-1", TOPIC)
        big = batch(bytes(ENTRY_BYTES // 3))
        info = check_batch(big)
        heard: list[int] = []
        before = led.raft.last_index
        for _ in range(7):
            ours.append(big, info, 1e12, 1_000, lambda answer: heard.append(answer.base_offset))
        sim.run_until(lambda: len(heard) == 7)
        assert heard == list(range(1, 8))
        assert led.raft.last_index - before == 3


def test_collecting_has_a_limit_but_one_append_always_fits() -> None:
    with cluster(nodes=1, seed=66) as sim:
        sim.create_topic(TOPIC, partitions=1, replication_factor=1)
        sim.append(TOPIC, [b"first"])
        ours = host(sim, "node-1", TOPIC)
        ours._collected_bytes_max = 10
        heard: list[object] = []
        for _ in range(2):
            ours.append(BATCH, check_batch(BATCH), 1e12, 1_000, heard.append)
        assert [getattr(answer, "code", "") for answer in heard] == ["over_limit"]
        sim.run_until(lambda: len(heard) == 2)
        assert getattr(heard[1], "base_offset", -1) == 1


def test_a_closing_partition_answers_everybody() -> None:
    """A2."""
    with cluster(nodes=3, seed=67) as sim:
        leader, _ = orders(sim)
        target = node(sim, leader)
        heard: list[object] = []
        target.read(TOPIC, 0, 3, 1_000, 4_000, 5_000, heard.append)
        sim.isolate(leader)
        target.append(TOPIC, 0, BATCH, check_batch(BATCH), 5_000, heard.append)
        sim.advance("10ms")
        host(sim, leader, TOPIC).append(BATCH, check_batch(BATCH), 1e12, 1_000, heard.append)
        target.shards.stop_replica(replica(sim, leader, TOPIC), "a test")
        assert [getattr(answer, "code", "") for answer in heard] == [
            "timed_out",
            "shutting_down",
            "shutting_down",
        ]
        assert target.shards.pressure.bytes == 0
        assert target.shards.pressure.parked == {}


def test_offers_are_few_and_the_latest_stands() -> None:
    with cluster(nodes=3, seed=68) as sim:
        leader, _ = orders(sim)
        ours = host(sim, leader, TOPIC)
        for index in range(OFFERS_MAX + 3):
            ours.offer(index)
        assert ours.offered_state(OFFERS_MAX + 2) is not None
        assert ours.offered_state(0) is None
