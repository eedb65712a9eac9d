"""DeleteRecords: a trim is done when it is answered, also for who has no patience."""

from raftline.config.settings import Settings
from raftline.gateways.kafka.admin import TO_END, AdminApi
from raftline.gateways.kafka.errors import NONE
from raftline.testing import cluster
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
