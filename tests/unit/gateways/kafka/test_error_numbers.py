"""Numbers of errors, held to those that a client knows: librdkafka's table."""

from types import ModuleType

import pytest
from confluent_kafka import KafkaError

from raftline.gateways.kafka import (
    admin,
    admin_cluster,
    configs,
    elections,
    errors,
    groups_errors,
)

MODULES = [errors, groups_errors, admin, configs, admin_cluster, elections]
THEIRS: dict[str, int] = {
    name: number for name in dir(KafkaError) if isinstance(number := getattr(KafkaError, name), int)
}
OTHER_NAMES = {  # as librdkafka has them
    "CORRUPT_MESSAGE": "INVALID_MSG",
    "INVALID_TOPIC": "TOPIC_EXCEPTION",
    "MESSAGE_TOO_LARGE": "MSG_SIZE_TOO_LARGE",
    "NOT_LEADER_OR_FOLLOWER": "NOT_LEADER_FOR_PARTITION",
    "OUT_OF_ORDER_SEQUENCE": "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "UNKNOWN_TOPIC_OR_PARTITION": "UNKNOWN_TOPIC_OR_PART",
}
COMPARED_MIN = 30  # else their table is not what it was


def compared(module: ModuleType) -> dict[str, int]:
    """Return the numbers of a module that are called as one of their errors is."""
    named = {OTHER_NAMES.get(name, name): value for name, value in vars(module).items()}
    return {name: value for name, value in named.items() if name in THEIRS}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_numbers_are_those_that_clients_know(module: ModuleType) -> None:
    ours = compared(module)
    assert ours == {name: THEIRS[name] for name in ours}


def test_most_numbers_are_compared() -> None:
    found = {name for module in MODULES for name in compared(module)}
    assert len(found) >= COMPARED_MIN
