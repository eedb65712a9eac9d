"""Topics that come into being at their first publish."""

from raftline.model.batch import check_batch
from raftline.model.calls import Appended
from raftline.model.errors import NotReady
from raftline.testing import SimCluster, cluster
from tests.unit.node.little_batches import batch
from tests.unit.node.whole import node


def publish(sim: SimCluster, via: str, timeout_ms: int) -> list[object]:
    heard: list[object] = []
    sealed = batch(b"one")
    node(sim, via).append("new", 0, sealed, check_batch(sealed), timeout_ms, heard.append)
    return heard


def test_who_joins_a_creation_late_has_all_of_its_own_time() -> None:
    """Seed 100312: it was told that nobody leads when the one who came first ran out of time."""
    with cluster(nodes=3, seed=52) as sim:
        sim.advance("1s")
        sim.isolate("node-3")
        first = publish(sim, "node-3", 1_000)
        sim.advance("4500ms")
        assert [type(answer) for answer in first] == [NotReady]
        second = publish(sim, "node-3", 6_000)
        sim.advance("1500ms")  # the creation of the first one ended
        assert second == []
        sim.heal()
        sim.run_until(lambda: bool(second))
        assert isinstance(second[0], Appended)
