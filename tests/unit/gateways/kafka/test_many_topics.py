"""Requests that name very many topics: they cost what they weigh, the loop is everybody's."""

from typing import Any

from raftline.config.settings import Settings
from raftline.gateways.kafka.admin import AdminApi
from raftline.gateways.kafka.errors import INVALID_REQUEST, INVALID_TOPIC
from tests.unit.gateways.kafka.test_addresses import Asker

COUNT = 2_000
LOOKS_EACH_MAX = 20  # at a name; who compares each with all others needs COUNT of them


class Name(str):
    """A name that counts how often it is compared."""

    looks = 0
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        Name.looks += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


class Nothing:
    """A node without topics."""

    def find_topic(self, _name: str) -> None:
        return None


def test_creating_topics_looks_at_each_name_once() -> None:
    told: list[dict[str, Any]] = []
    sizes: dict[str, Any] = {"num_partitions": 1, "replication_factor": 1}
    names = ["!twice", "!twice", *(f"!{number:06}" for number in range(COUNT))]
    rows = [{"name": Name(name), **sizes, "assignments": [], "configs": []} for name in names]
    api = AdminApi(None, Nothing(), Settings())  # type: ignore[arg-type]
    api.create({"topics": rows, "validate_only": True, "timeout_ms": 1}, 7, Asker(), told.append)
    assert Name.looks < LOOKS_EACH_MAX * COUNT
    codes = [row["error_code"] for row in told[0]["topics"]]
    assert codes == [INVALID_REQUEST, INVALID_REQUEST, *[INVALID_TOPIC] * COUNT]
