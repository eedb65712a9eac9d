"""Faults that pass, said so that clients try again: each knows other codes for it."""

from typing import Any

import pytest

from raftline.config.settings import Settings
from raftline.gateways.kafka.admin import AdminApi
from raftline.gateways.kafka.configs import ConfigsApi
from raftline.gateways.kafka.groups_cursors import CursorsApi
from raftline.gateways.kafka.groups_errors import COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR
from raftline.gateways.kafka.producers import ProducerApi
from raftline.model.calls import NodesView, TopicRow
from raftline.model.errors import (
    NoLeader,
    NoQuorum,
    NotLeader,
    NotReady,
    OverLimit,
    RaftlineError,
    ShuttingDown,
    TimedOut,
)
from raftline.model.settings import effective
from tests.unit.gateways.kafka.test_addresses import Asker

PASSING = [
    NotReady("groups-3 has a new leader"),
    NotLeader("groups-3", 2),
    NoLeader("catalog"),
    NoQuorum("catalog", 1, 3),
    ShuttingDown(),
    TimedOut("a call", 10_000),
    OverLimit("requests waiting for a majority", 10_001, 10_000),
]


class Stopped:
    """A clock that stands, and does at once what is asked for later."""

    def mono_ms(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return 0

    def call_soon(self, call: Any) -> None:
        call()

    def call_later(self, _delay_ms: float, call: Any) -> Any:
        call()


class Refusing:
    """A node that answers everything with one error."""

    def __init__(self, error: RaftlineError) -> None:
        self._error = error

    def command(self, _name: str, _arguments: Any, _timeout_ms: int, done: Any) -> None:
        done(self._error)

    def nodes_view(self) -> NodesView:
        return NodesView("", 1, 0, ())

    def find_topic(self, name: str) -> TopicRow | None:
        """Return one topic: that alone is known."""
        if name != "known":
            return None
        return TopicRow(
            name=name,
            uuid="00" * 16,
            replication_factor=3,
            created_ms=0,
            settings=effective({}),
            partitions=(),
        )

    def group_here(self, _request: Any, _timeout_ms: int, done: Any) -> None:
        done(self._error)


@pytest.mark.parametrize("error", PASSING, ids=lambda error: error.code)
def test_a_producer_that_gets_no_id_now_asks_again(error: RaftlineError) -> None:
    """aiokafka and older Java clients take every code but 14 for the end of the producer."""
    told: list[dict[str, Any]] = []
    api = ProducerApi(Refusing(error))  # type: ignore[arg-type]
    asked = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1}
    api.init(asked, 4, Asker(), told.append)
    assert [row["error_code"] for row in told] == [COORDINATOR_LOAD_IN_PROGRESS]


@pytest.mark.parametrize("version", [1, 2, 3, 7, 8, 9])
@pytest.mark.parametrize("error", PASSING, ids=lambda error: error.code)
def test_who_asks_for_cursors_looks_for_the_coordinator(error: RaftlineError, version: int) -> None:
    """Older Java clients and aiokafka end on 15; aiokafka (version 3) sees codes of rows only."""
    told: list[dict[str, Any]] = []
    api = CursorsApi(Refusing(error))  # type: ignore[arg-type]
    one = {"group": "billing", "topics": [{"name": "orders", "partitions": [0, 1]}]}
    api.fetch({**one, "groups": [one]}, version, Asker(), told.append)
    answer = told[0]["groups"][0] if version >= 8 else told[0]
    code = COORDINATOR_LOAD_IN_PROGRESS if isinstance(error, OverLimit) else NOT_COORDINATOR
    assert answer["error_code"] == code
    rows = [row for topic in answer["topics"] for row in topic["partitions"]]
    if version < 8:
        assert [(row["partition"], row["offset"], row["error_code"]) for row in rows] == [
            (0, -1, code),
            (1, -1, code),
        ]


@pytest.mark.parametrize("error", PASSING, ids=lambda error: error.code)
def test_who_makes_a_topic_while_the_catalog_has_no_leader_asks_again(error: RaftlineError) -> None:
    """Java's, sarama's and kafka-python's admin clients repeat after 41 alone."""
    told: list[dict[str, Any]] = []
    node: Any = Refusing(error)
    topics = AdminApi(Stopped(), node, Settings())
    configs = ConfigsApi(node, Settings())
    rest = {"validate_only": False, "timeout_ms": 1_000}
    new = {"name": "orders", "num_partitions": 1, "replication_factor": -1}
    new |= {"assignments": [], "configs": []}
    topics.create({"topics": [new], **rest}, 7, Asker(), told.append)
    old = {"name": "known", "topic_id": bytes(16)}
    topics.delete({"topics": [old], **rest}, 6, Asker(), told.append)
    longer = {"name": "known", "count": 9, "assignments": None}
    topics.grow({"topics": [longer], **rest}, 3, Asker(), told.append)
    changed = {"resource_type": 2, "resource_name": "known"}
    changed |= {"configs": [{"name": "retention.ms", "value": "1000"}]}
    configs.alter({"resources": [changed], **rest}, 2, Asker(), told.append)
    names = ("topics", "responses", "results", "responses")
    codes = [answer[name][0]["error_code"] for answer, name in zip(told, names, strict=True)]
    passing = {TimedOut: 7, OverLimit: 44}  # it may have happened; it is too much
    assert codes == [passing.get(type(error), 41)] * 4
