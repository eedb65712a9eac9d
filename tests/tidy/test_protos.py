"""The protos and the code made of them stay together."""

import re
from pathlib import Path

from scripts import make_proto

ROOT = Path(__file__).parents[2]


def test_the_code_is_made_of_the_protos(tmp_path: Path) -> None:
    fresh = {file.relative_to(tmp_path): file.read_text() for file in make_proto.make(tmp_path)}
    kept = {
        file.relative_to(make_proto.GENERATED): file.read_text()
        for file in make_proto.GENERATED.rglob("*.py*")
        if file.suffix != ".pyc"
    }
    assert kept.keys() == fresh.keys(), "run: make proto"
    changed = [str(name) for name in fresh if fresh[name] != kept[name]]
    assert not changed, "run: make proto"


def test_the_numbers_of_the_foreign_queue_are_its_own() -> None:
    """Its clients are compiled against these numbers (reference/seed-systems.md, section 5)."""
    text = (ROOT / "proto/queue/v1/queue.proto").read_text()
    text += (ROOT / "proto/types/v1/types.proto").read_text()
    found: dict[str, list[tuple[str, int]]] = {}
    for name, body in re.findall(r"^(?:message|enum) (\w+) \{(.*?)\}", text, re.M | re.S):
        found[name] = [(f, int(n)) for f, n in re.findall(r"(\w+) = (\d+);", body)]
    assert found == {
        "HealthCheckRequest": [("consumer_id", 1), ("ping_at", 2)],
        "HealthCheckResponse": [("message", 1)],
        "AckMessageRequest": [("consumer_id", 1), ("partition_id", 2), ("message_id", 3)],
        "AckMessageResponse": [],
        "SendMessageRequest": [("topic", 1), ("data", 2), ("partition_key", 3)],
        "SendMessageResponse": [("message", 1)],
        "ReceiveMessageForPartitionIDRequest": [("consumer_id", 1), ("partition_id", 2)],
        "ReceiveMessageForPartitionIDResponse": [("message", 1)],
        "CreateTopicRequest": [
            ("topic", 1),
            ("number_of_partitions", 2),
            ("replication_factor", 3),
        ],
        "CreateTopicResponse": [("topic", 1)],
        "ConnectRequest": [("consumer_id", 1), ("consumer_group", 2), ("topics", 3)],
        "ConnectResponse": [("consumer", 1), ("consumer_group", 2)],
        "ShardInfoRequest": [("topics", 1)],
        "ShardInfoResponse": [("shard_info", 1), ("brokers", 2), ("leader", 3)],
        "Action": [("ACTION_UNSPECIFIED", 0), ("ACTION_ADD", 1)],
        "BrokerAction": [("replica_id", 1), ("raft_address", 2)],
        "ManageBrokersRequest": [("action", 1), ("broker_action", 2)],
        "ManageBrokersResponse": [],
        "Broker": [
            ("id", 1),
            ("raft_address", 2),
            ("reach_grpc_address", 3),
            ("reach_http_address", 4),
        ],
        "Consumer": [
            ("id", 1),
            ("partitions", 2),
            ("consumer_group", 3),
            ("topics", 4),
            ("is_active", 5),
            ("last_health_check_at", 6),
        ],
        "ConsumerGroup": [("id", 1), ("consumers", 2), ("topics", 3)],
        "Message": [
            ("topic", 1),
            ("partition_key", 2),
            ("partition_id", 3),
            ("data", 4),
            ("id", 5),
        ],
        "Topic": [("topic", 1), ("num_of_partitions", 2)],
        "ShardType": [
            ("SHARD_TYPE_UNSPECIFIED", 0),
            ("SHARD_TYPE_BROKERS", 1),
            ("SHARD_TYPE_PARTITIONS", 2),
        ],
        "ShardInfo": [
            ("shard_type", 1),
            ("shard_id", 2),
            ("topic", 3),
            ("partition_id", 4),
            ("brokers", 5),
        ],
    }
