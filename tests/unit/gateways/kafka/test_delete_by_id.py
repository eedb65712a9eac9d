"""DeleteTopics by id: of the topic with that id and no other, whatever the asked node knows."""

import pytest

from raftline.config.settings import Settings
from raftline.gateways.kafka.admin import AdminApi
from raftline.gateways.kafka.codec import ZERO_UUID
from raftline.gateways.kafka.errors import NONE, UNKNOWN_TOPIC_ID
from raftline.testing import SimCluster, cluster
from tests.unit.gateways.kafka.test_addresses import ask
from tests.unit.node.whole import node


def uuid_of(sim: SimCluster, via: str) -> bytes:
    return bytes.fromhex(node(sim, via).catalog_machine.topics["t"].uuid)


def delete(sim: SimCluster, via: str, uuid: bytes, name: str | None = None) -> int:
    here = node(sim, via)
    asked = {"topics": [{"name": name, "topic_id": uuid}], "timeout_ms": 5_000}
    (row,) = ask(sim, AdminApi(here.clock, here, Settings()).delete, asked, 6)["responses"]
    return row["error_code"]


@pytest.mark.parametrize("number", [0, 2])
def test_a_topic_made_anew_is_not_deleted_by_the_id_of_the_one_before(number: int) -> None:
    with cluster(nodes=3, seed=1) as sim:
        away = sim.nodes[number]
        other = sim.nodes[number - 1]
        sim.create_topic("t", partitions=1, via=other)
        before = uuid_of(sim, other)
        sim.pause(away)
        sim.advance("5s")
        assert delete(sim, other, ZERO_UUID, "t") == NONE
        sim.create_topic("t", partitions=1, via=other)
        after = uuid_of(sim, other)
        sim.resume(away)
        assert uuid_of(sim, away) == before, "it does not know yet"
        assert delete(sim, away, before) == UNKNOWN_TOPIC_ID
        assert uuid_of(sim, other) == after
        sim.run_until(lambda: uuid_of(sim, away) == after)
        assert delete(sim, away, after) == NONE
        assert "t" not in node(sim, other).catalog_machine.topics
