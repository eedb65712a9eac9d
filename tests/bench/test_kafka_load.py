"""A figure of Kafka's load is of messages that were stored: what a server refused is none."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from bench import kafka_load
from bench.cluster import BenchCluster, running
from bench.kafka_load import TASKS, KafkaSpec
from bench.librdkafka import Refused

MESSAGE_BYTES = 5_000
TAKES_ALL, TAKES_NONE = "all", "none"


@pytest.fixture(scope="module")
def cluster(module_path: Path) -> Iterator[BenchCluster]:
    """One node, with a topic that takes such messages and one that does not."""
    with running(module_path / "one", 1) as found:
        with found.client() as client:
            for topic, most in ((TAKES_ALL, 1 << 20), (TAKES_NONE, 1024)):
                settings = {"batch_bytes_max": most}
                client.create_topic(topic, partitions=1, replication_factor=0, settings=settings)
        yield found


@pytest.fixture
def spec(cluster: BenchCluster, monkeypatch: pytest.MonkeyPatch) -> KafkaSpec:
    monkeypatch.setattr(kafka_load, "WARM_UP", 10)
    leader = cluster.leader_of(TAKES_NONE)
    cluster.leader_of(TAKES_ALL)
    return KafkaSpec(
        task="",
        servers=leader.kafka,
        topic=TAKES_ALL,
        pids=[leader.pid],
        count=20,
        message_bytes=MESSAGE_BYTES,
        leader=leader.kafka,
    )


@pytest.mark.parametrize("task", ["produce", "produce_arrays", "latency", "single"])
def test_what_was_refused_has_no_rate(spec: KafkaSpec, task: str) -> None:
    assert TASKS[task](spec).count == spec.count
    with pytest.raises((SystemExit, Refused), match=r"refused|stored"):
        TASKS[task](msgspec.structs.replace(spec, topic=TAKES_NONE))
