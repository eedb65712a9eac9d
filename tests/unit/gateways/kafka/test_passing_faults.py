"""Faults that pass, said so that clients try again: each knows other codes for it."""

from typing import Any

import pytest

from raftline.gateways.kafka.groups_cursors import CursorsApi
from raftline.gateways.kafka.groups_errors import COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR
from raftline.gateways.kafka.producers import ProducerApi
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


class Refusing:
    """A node that answers everything with one error."""

    def __init__(self, error: RaftlineError) -> None:
        self._error = error

    def command(self, _name: str, _arguments: Any, _timeout_ms: int, done: Any) -> None:
        done(self._error)

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
