"""DeleteRecords: a trim is done when it is answered, also for who has no patience."""

from typing import Any

import pytest

from raftline.config.settings import Settings
from raftline.gateways.kafka.admin import TO_END, AdminApi
from raftline.gateways.kafka.errors import NONE
from raftline.testing import SimCluster, cluster
from tests.simulation.test_dead_letters import dead
from tests.unit.gateways.kafka.test_addresses import ask
from tests.unit.node.whole import lead, node


def test_a_trim_with_a_timeout_of_nothing_is_done_and_said_to_be() -> None:
    with cluster(nodes=3, seed=1) as sim:
        sim.create_topic("t", partitions=1)
        sim.append("t", [b"a", b"b", b"c"])
        leader, _ = lead(sim, "t")
        here = node(sim, leader)
        rows = [{"partition": 0, "offset": TO_END}]
        asked = {"topics": [{"name": "t", "partitions": rows}], "timeout_ms": 0}
        (topic,) = ask(sim, AdminApi(here.clock, here, Settings()).trim, asked, 2)["topics"]
        assert topic["partitions"] == [{"partition": 0, "error_code": NONE, "low_watermark": 3}]


def trim(sim: SimCluster, name: str, offset: int) -> dict[str, Any]:
    here = node(sim, name)
    asked = {
        "topics": [{"name": "t", "partitions": [{"partition": 0, "offset": offset}]}],
        "timeout_ms": 5_000,
    }
    (topic,) = ask(sim, AdminApi(here.clock, here, Settings()).trim, asked, 2)["topics"]
    return topic["partitions"][0]


@pytest.mark.parametrize("offset", [TO_END, 3])
def test_a_new_leader_trims_all_that_was_acknowledged(offset: int) -> None:
    """It is asked in the moment it leads, before it knows what of its log is committed."""
    with cluster(nodes=3, seed=1) as sim:
        sim.create_topic("t", partitions=1)
        lead(sim, "t")
        sim.append("t", [b"a", b"b", b"c"])
        sim.kill_leader("t")
        leader, _ = lead(sim, "t")
        assert trim(sim, leader, offset) == {
            "partition": 0,
            "error_code": NONE,
            "low_watermark": 3,
        }


def test_what_may_not_go_yet_is_not_said_to_be_gone() -> None:
    """A dead letter on its way holds a trim back."""
    with cluster(nodes=3, seed=24) as sim:
        sim.create_topic("t.dlq", partitions=1, replication_factor=1)
        home = sim.name_of(sim.partitions("t.dlq")[0].replicas[0])
        sim.kill(home)
        sim.advance("3s")
        dead(sim, poison=[1], count=3)
        sim.advance("10s")
        leader, _ = lead(sim, "t")
        assert trim(sim, leader, TO_END)["low_watermark"] == 1
        assert sim.read("t", 0, 1).log_start == 1
