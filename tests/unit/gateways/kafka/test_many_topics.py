"""Requests that name very many topics: they cost what they weigh, the loop is everybody's."""

import time
from typing import Any

from raftline.config.settings import Settings
from raftline.gateways.kafka.admin import AdminApi
from raftline.gateways.kafka.errors import INVALID_REQUEST, INVALID_TOPIC
from tests.unit.gateways.kafka.test_addresses import Asker

COUNT = 30_000
CPU_S_MAX = 5.0  # what looks at all names for each of them needs more than twice that


class Nothing:
    """A node without topics."""

    def find_topic(self, _name: str) -> None:
        return None


def test_creating_topics_looks_at_each_name_once() -> None:
    told: list[dict[str, Any]] = []
    sizes: dict[str, Any] = {"num_partitions": 1, "replication_factor": 1}
    names = ["!twice", "!twice", *(f"!{number:06}" for number in range(COUNT))]
    rows = [{"name": name, **sizes, "assignments": [], "configs": []} for name in names]
    api = AdminApi(None, Nothing(), Settings())  # type: ignore[arg-type]
    began_s = time.process_time()
    api.create({"topics": rows, "validate_only": True, "timeout_ms": 1}, 7, Asker(), told.append)
    assert time.process_time() - began_s < CPU_S_MAX
    codes = [row["error_code"] for row in told[0]["topics"]]
    assert codes == [INVALID_REQUEST, INVALID_REQUEST, *[INVALID_TOPIC] * COUNT]
