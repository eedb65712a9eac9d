"""The simulated cluster as users meet it: the production node behind plain calls."""

import pytest

import raftline.testing
from raftline.model.errors import OffsetOutOfRange, TopicExists
from raftline.testing import SimError


def values(messages: list) -> list[bytes]:
    return [message.value for message in messages]


def test_the_example_of_the_guide() -> None:
    with raftline.testing.cluster(nodes=3, seed=7) as c:
        c.append("orders", [b"one", b"two"])
        gone = c.kill_leader("orders", 0)
        c.advance("1s")
        c.append("orders", [b"three"])
        c.restart(gone)
        c.advance("30s")
        assert values(c.read_all("orders", 0)) == [b"one", b"two", b"three"]
        assert c.verify().identical


def test_a_cluster_of_one() -> None:
    with raftline.testing.cluster(nodes=1, seed=1) as c:
        c.append("t", [b"a"])
        c.power_off("node-1")
        c.restart("node-1")
        c.wait_ready()
        assert values(c.read_all("t", 0)) == [b"a"]


def test_a_repeated_sequence_is_stored_once() -> None:
    with raftline.testing.cluster(nodes=3, seed=2) as c:
        first = c.append("t", [b"a"], producer_id=9, producer_epoch=0, base_sequence=0)
        again = c.append(
            "t", [b"a"], producer_id=9, producer_epoch=0, base_sequence=0, via="node-2"
        )
        assert not first.duplicate
        assert again.duplicate
        assert again.base_offset == first.base_offset
        assert values(c.read_all("t", 0)) == [b"a"]


def test_topics_trims_and_times() -> None:
    with raftline.testing.cluster(nodes=3, seed=3) as c:
        c.create_topic("t", partitions=2, via="node-2")
        with pytest.raises(TopicExists):
            c.create_topic("t", via="node-3")
        c.append("t", [b"a", b"b", b"c"], partition=1, timestamps_ms=[10, 30, 20])
        assert c.look_up_time("t", 1, 15).offset == 1
        c.trim("t", 1, 2)
        assert values(c.read_all("t", 1)) == [b"c"]
        with pytest.raises(OffsetOutOfRange):
            c.read("t", 1, 0)


def test_a_minority_does_not_acknowledge_and_a_majority_does() -> None:
    with raftline.testing.cluster(nodes=3, seed=4) as c:
        c.append("t", [b"before"])
        leader = c.leader("t", 0)
        other = next(name for name in c.nodes if name != leader)
        c.isolate(leader)
        with pytest.raises(raftline.model.errors.RaftlineError):
            c.append("t", [b"minority"], via=leader, timeout="2s")
        c.append("t", [b"majority"], via=other)
        c.heal()
        c.advance("5s")
        for name in c.nodes:
            assert values(c.read_all("t", 0, via=name, any_replica=True)) == [
                b"before",
                b"majority",
            ]


def test_a_wiped_node_is_filled_again_and_a_fourth_joins() -> None:
    with raftline.testing.cluster(nodes=3, seed=5) as c:
        c.append("t", [b"kept"])
        c.wipe("node-2")
        c.advance("1s")
        c.restart("node-2")
        added = c.add_node()
        c.advance("15s")
        assert c.is_ready("node-2")
        assert c.is_ready(added)
        assert c.number_of(added) == 4
        assert values(c.read_all("t", 0, via="node-2", any_replica=True)) == [b"kept"]
        assert values(c.read_all("t", 0, via=added)) == [b"kept"]
        assert c.verify().identical


def test_what_cannot_be_done_says_so() -> None:
    with pytest.raises(SimError, match="at least one node"):
        raftline.testing.SimCluster(nodes=0)
    with raftline.testing.cluster(nodes=1, seed=6) as c:
        with pytest.raises(SimError, match="node-1 runs already"):
            c.start("node-1")
        with pytest.raises(SimError, match="there is no topic 'x'"):
            c.leader("x")
        c.kill("node-1")
        with pytest.raises(SimError, match="no node runs: start one"):
            c.append("t", [b"a"])


def test_the_same_seed_gives_the_same_run() -> None:
    def digest() -> str:
        with raftline.testing.cluster(nodes=3, seed=8) as c:
            c.append("t", [b"a"])
            c.advance("3s")
            return c.world.digest()

    assert digest() == digest()
