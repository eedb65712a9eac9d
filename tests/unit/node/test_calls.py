"""The calls of a node: each ends within its own time. P10."""

from raftline.model.batch import check_batch
from raftline.model.calls import ReadReply
from raftline.model.errors import RaftlineError
from raftline.testing import SimCluster, cluster
from tests.unit.node.little_batches import BATCH
from tests.unit.node.whole import answer_of, lead, node, replica


def test_who_waits_for_another_ones_creation_waits_no_longer_than_it_may() -> None:
    """The first publisher of a topic has a minute, the second a second; the catalog is gone."""
    with cluster(nodes=3, seed=51) as sim:
        for name in ("node-2", "node-3"):
            sim.kill(name)
        heard: list[tuple[str, float]] = []

        def publish(timeout_ms: int) -> None:
            def done(answer: object) -> None:
                assert isinstance(answer, RaftlineError)
                heard.append((answer.code, sim.now_ms - began))

            node(sim, "node-1").append("fresh", 0, BATCH, check_batch(BATCH), timeout_ms, done)

        began = sim.now_ms
        publish(30_000)
        publish(1_000)
        publish(2_000)
        sim.advance("40s")
        assert [round(at, -2) for _, at in heard] == [1_000, 2_000, 30_000]
        assert heard[0][0] == "not_ready", "nothing was proposed"


def test_many_first_publishes_make_one_topic() -> None:
    with cluster(nodes=3, seed=52) as sim:
        heard: list[object] = []
        for name in sim.nodes:
            for _ in range(5):
                node(sim, name).append("fresh", 0, BATCH, check_batch(BATCH), 5_000, heard.append)
        sim.run_until(lambda: len(heard) == 15)
        assert sorted(getattr(answer, "base_offset", -1) for answer in heard) == list(range(15))


def held(sim: SimCluster) -> str:
    """Return the leader of a topic whose WAL takes long: appends are collected."""
    sim.create_topic("orders", partitions=1)
    sim.append("orders", [b"one"])
    leader, _ = lead(sim, "orders")
    sim.host(leader).stall(3_000)
    return leader


def test_appends_that_are_only_collected_end_with_their_own_time() -> None:
    """A2: a short one behind a long one is not kept waiting."""
    with cluster(nodes=3, seed=53) as sim:
        leader = held(sim)
        info = check_batch(BATCH)
        heard: list[tuple[int, str, float]] = []
        began = sim.now_ms

        def publish(timeout_ms: int) -> None:
            def done(answer: object) -> None:
                heard.append((timeout_ms, getattr(answer, "code", "done"), sim.now_ms - began))

            node(sim, leader).append("orders", 0, BATCH, info, timeout_ms, done)

        publish(500)  # with the lane
        sim.advance("10ms")
        for timeout_ms in (20_000, 700, 600):
            publish(timeout_ms)
        sim.advance("1s")
        assert [(timeout_ms, code) for timeout_ms, code, _ in heard] == [
            (500, "timed_out"),
            (600, "timed_out"),
            (700, "timed_out"),
        ]
        assert all(at <= timeout_ms + 100 for timeout_ms, _, at in heard)
        sim.advance("10s")
        assert heard[-1][:2] == (20_000, "done")
        assert replica(sim, leader, "orders").waiting == {}
        assert node(sim, leader).shards.pressure.bytes == 0


def test_a_node_takes_no_more_than_its_limit_of_unsettled_bytes() -> None:
    with cluster(nodes=3, seed=54) as sim:
        leader = held(sim)
        target = node(sim, leader)
        target.appends._uncommitted_max = 3 * len(BATCH)
        heard: list[object] = []
        for _ in range(5):
            target.append("orders", 0, BATCH, check_batch(BATCH), 10_000, heard.append)
        assert [getattr(answer, "code", "") for answer in heard] == ["over_limit", "over_limit"]
        sim.run_until(lambda: len(heard) == 5, "20s")
        assert [getattr(answer, "base_offset", -1) for answer in heard[2:]] == [1, 2, 3]
        assert target.shards.pressure.bytes == 0


def test_a_read_of_a_replica_that_is_being_filled_is_refused_not_wrong() -> None:
    with cluster(nodes=3, seed=55) as sim:
        sim.create_topic("orders", partitions=1)
        sim.append("orders", [b"one"])
        sim.advance("1s")
        leader, (follower, _) = lead(sim, "orders")
        replica(sim, follower, "orders").frozen = True

        def read(name: str) -> object:
            return answer_of(
                sim,
                lambda done: node(sim, name).read(
                    "orders", 0, 0, 1_000, 0, 1_000, done, any_replica=True
                ),
            )

        assert getattr(read(follower), "code", "") == "not_ready"
        assert getattr(read(leader), "commit_end", -1) == 1


def test_an_append_goes_on_from_a_leader_that_hangs_to_the_next_one() -> None:
    """From the founder, too: its links were greeted when the others had no numbers yet."""
    with cluster(nodes=3, seed=90) as sim:
        sim.create_topic("orders", partitions=1)
        sim.append("orders", [b"one"])
        sim.command("cluster.transfer", topic="orders", partition=0, to_node="node-2")
        sim.run_until(lambda: lead(sim, "orders")[0] == "node-2")
        sim.advance("1s")
        sim.pause("node-2")
        asked_ms = sim.now_ms
        again = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0}
        sim.append("orders", [b"two"], via="node-1", timeout="30s", **again)
        assert sim.now_ms - asked_ms < 5_000


def test_a_new_leader_does_not_deny_what_its_predecessor_acknowledged() -> None:
    """It has applied less than that: readers at the end were told that they are beyond it."""
    with cluster(nodes=3, seed=41) as sim:
        sim.create_topic("orders", partitions=1)
        sim.append("orders", [b"one"])
        sim.advance("1s")
        first, others = lead(sim, "orders")
        sim.append("orders", [b"two"])
        sim.kill(first)
        followers = {name: replica(sim, name, "orders") for name in others}
        sim.run_until(lambda: any(one.is_leader for one in followers.values()), "10s")
        heir = next(name for name, one in followers.items() if one.is_leader)
        answer = answer_of(
            sim, lambda done: node(sim, heir).read("orders", 0, 2, 1_000, 0, 3_000, done)
        )
        assert isinstance(answer, ReadReply), answer
        assert answer.commit_end == 2
