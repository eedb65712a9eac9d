"""Side cars on their way: through any node, into entries of bounded size, past a leader's death."""

from raftline.machines.partition.commands import APPEND_TAG, decode_append
from raftline.machines.partition.side_car import SideCar, hash_key
from raftline.model.batch import check_batch
from raftline.model.calls import Appended
from raftline.model.errors import DuplicateKey, InvalidArgument
from raftline.model.limits import EXTENSION_BYTES_MAX
from raftline.testing import SimCluster, cluster
from tests.unit.node.little_batches import batch
from tests.unit.node.whole import answer_of, host, lead, node


def keys(*names: str) -> SideCar:
    return SideCar((), tuple((at, hash_key(name.encode())) for at, name in enumerate(names)))


def send(sim: SimCluster, name: str, side: SideCar, count: int = 1) -> object:
    sealed = batch(*[b"v"] * count)
    info = check_batch(sealed)
    return answer_of(
        sim, lambda done: node(sim, name).append("orders", 0, sealed, info, 5_000, done, side)
    )


def set_topic(sim: SimCluster, settings: dict[str, object]) -> None:
    arguments: dict[str, object] = {"name": "orders", "settings": settings}
    calls = node(sim, "node-1")
    answer_of(sim, lambda done: calls.command("topic.set", arguments, 5_000, done))


def test_any_node_takes_them_and_all_replicas_know() -> None:
    with cluster(nodes=3, seed=61) as sim:
        sim.create_topic("orders", partitions=1)
        side = SideCar(((0, 1, 10), (1, 3, -5)), ((2, hash_key(b"k")),))
        for at, name in enumerate(sim.nodes):
            answer = send(sim, name, side, 3)
            if at == 0:
                assert isinstance(answer, Appended)
            else:
                assert answer == DuplicateKey([(2, 2)])
        sim.advance("1s")
        for name in sim.nodes:
            machine = host(sim, name, "orders").machine
            assert machine.next_offset == 3
            assert [machine.lanes.lane_of(offset) for offset in range(3)] == [10, -5, -5]
            assert len(machine.dedup) == 1
        assert sim.verify().identical


def test_the_window_is_the_topics() -> None:
    with cluster(nodes=3, seed=62) as sim:
        sim.create_topic("orders", partitions=1)
        set_topic(sim, {"dedup_ms": 5_000})
        sim.advance("1s")
        assert isinstance(send(sim, "node-1", keys("k")), Appended)
        sim.advance("4s")
        assert isinstance(send(sim, "node-2", keys("k")), DuplicateKey)
        sim.advance("1500ms")
        assert isinstance(send(sim, "node-2", keys("k")), Appended)
        set_topic(sim, {"dedup_ms": 0})
        sim.advance("1s")
        for _ in range(2):
            assert isinstance(send(sim, "node-3", keys("new")), Appended)
        assert len(host(sim, lead(sim, "orders")[0], "orders").machine.dedup) == 1


def test_a_side_car_that_does_not_fit_its_batch_is_refused_before_it_is_proposed() -> None:
    with cluster(nodes=3, seed=63) as sim:
        sim.create_topic("orders", partitions=1)
        for name in sim.nodes:
            assert isinstance(send(sim, name, SideCar(((0, 2, 1),))), InvalidArgument)
        assert isinstance(send(sim, "node-1", keys("k")), Appended)


def test_many_dedup_keys_are_spread_over_entries() -> None:
    with cluster(nodes=1, seed=64) as sim:
        sim.create_topic("orders", partitions=1)
        sim.append("orders", [b"first"])
        leader, _ = lead(sim, "orders")
        found, sizes = host(sim, leader, "orders"), []
        proposals = found.proposals

        def noted(replica):
            made = proposals(replica)
            sizes.extend(decode_append(d) for d, _ in made if d[0] == APPEND_TAG)
            return made

        found.proposals = noted  # type: ignore[method-assign]
        sealed = batch(*[b"v"] * 5000)
        info = check_batch(sealed)
        heard: list[object] = []
        for number in range(6):
            side = keys(*[f"{number}-{at}" for at in range(5000)])
            node(sim, leader).append("orders", 0, sealed, info, 5_000, heard.append, side)
        plain = batch(b"plain")
        node(sim, leader).append("orders", 0, plain, check_batch(plain), 5_000, heard.append)
        sim.run_until(lambda: len(heard) == 7)
        assert all(isinstance(answer, Appended) for answer in heard)
        assert [len(view.rows) for view in sizes] == [2, 2, 2, 1]
        assert [view.flags for view in sizes] == [2, 2, 2, 0]
        assert all(len(view.extension) < EXTENSION_BYTES_MAX for view in sizes)
        assert len(found.machine.dedup) == 30_000


def test_a_call_is_repeated_past_the_leaders_death_when_every_message_has_a_key() -> None:
    """The answer is lost with the leader: the next one knows whether the message is stored."""
    with cluster(nodes=3, seed=65) as sim:
        sim.create_topic("orders", partitions=1)
        assert isinstance(send(sim, "node-1", keys("before")), Appended)
        for turn in range(4):
            leader, others = lead(sim, "orders")
            sealed = batch(b"v")
            heard: list[object] = []
            node(sim, others[0]).append(
                "orders", 0, sealed, check_batch(sealed), 8_000, heard.append, keys(f"k{turn}")
            )
            sim.advance(float(turn))
            sim.kill(leader)
            sim.run_until(lambda heard=heard: bool(heard))
            again = send(sim, others[1], keys(f"k{turn}"))
            assert isinstance(again, DuplicateKey)
            if isinstance(heard[0], Appended):
                assert again.firsts == [(0, heard[0].base_offset)]
            else:
                assert heard[0] == again
            sim.start(leader)
            sim.wait_ready()
        sim.advance("2s")
        assert host(sim, lead(sim, "orders")[0], "orders").machine.next_offset == 5
        assert sim.verify().identical
