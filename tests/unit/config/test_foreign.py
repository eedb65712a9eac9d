"""Settings files of other systems: every key does what it did there, none is ignored."""

from pathlib import Path

import pytest

from raftline.config.foreign import RENAMED, WITHOUT_COUNTERPART
from raftline.config.loader import SettingsError, load
from raftline.config.new_topics import new_topic_settings
from raftline.config.settings import Settings

GOQUEUE = """
broker:
  nodeId: "node-7"
  dataDir: "/tmp/goqueue"

  listeners:
    http: ":8090"
    grpc: ":9090"

defaults:
  topic:
    partitions: 4
    replicationFactor: 2
    retention:
      hours: 24           # a day
      bytes: 1073741824   # 1 GiB

  delivery:
    visibilityTimeout: 45s
    maxRetries: 5
    dlqEnabled: false

  delay:
    enabled: true
    maxDelay: 48h

  priority:
    lanes: 3              # high, normal, low
"""
FALCONQ = """
default_num_partitions: 3

nodes:
  node1:
    http_address: "localhost:8081"
    raft_address: "localhost:9001"
  node2:
    http_address: "localhost:8082"
    raft_address: "localhost:9002"
  node3:
    http_address: "localhost:8083"
    raft_address: "localhost:9003"
"""
QUEUE = """
raft:
  replica_id: 1
  addr: "localhost:63001"
  invite_members:
    1: "localhost:63001"
    2: "localhost:63002"
grpc:
  listener_addr: "localhost:8001"
http:
  listener_addr: "localhost:8002"
shard_leader_wait_time: 20s
"""


def read(tmp_path: Path, text: str, name: str = "config.yaml", **flags: str) -> Settings:
    file = tmp_path / name
    file.write_text(text)
    return load(file, {}, {key.replace("__", "."): value for key, value in flags.items()})


def problems_of(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, text)
    return caught.value.problems


def value_of(settings: Settings, name: str) -> object:
    section, field = name.split(".")
    return getattr(getattr(settings, section), field)


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        ("broker.nodeId", "node-7"),
        ("broker.dataDir", "/tmp/goqueue"),
        ("broker.listeners.http", "127.0.0.1:8090"),
        ("broker.listeners.grpc", "127.0.0.1:9090"),
        ("defaults.topic.partitions", 4),
        ("defaults.topic.replicationFactor", 2),
        ("defaults.topic.retention.hours", 86_400_000),
        ("defaults.topic.retention.bytes", 1 << 30),
        ("defaults.delivery.visibilityTimeout", 45_000),
        ("defaults.delivery.maxRetries", 5),
        ("defaults.delivery.dlqEnabled", False),
        ("defaults.delay.enabled", True),
        ("defaults.delay.maxDelay", 48 * 3_600_000),
        ("defaults.priority.lanes", 3),
    ],
)
def test_a_key_of_goqueue_takes_effect(tmp_path: Path, key: str, wanted: object) -> None:
    settings = read(tmp_path, GOQUEUE)
    assert value_of(settings, RENAMED[key]) == wanted
    assert value_of(Settings(), RENAMED[key]) != wanted or key == "defaults.delay.enabled"


def test_new_topics_start_with_them(tmp_path: Path) -> None:
    assert new_topic_settings(read(tmp_path, GOQUEUE)) == {
        "retention_ms": 86_400_000,
        "retention_bytes": 1 << 30,
        "lanes": 3,
        "delay_ms_max": 48 * 3_600_000,
        "lease_ms": 45_000,
        "max_retries": 5,
        "dead_letters": False,
    }
    without_delays = read(tmp_path, "defaults:\n  delay:\n    enabled: false\n")
    assert new_topic_settings(without_delays)["delay_ms_max"] == 0


def test_no_host_means_every_interface_only_if_said_so(tmp_path: Path) -> None:
    assert read(tmp_path, GOQUEUE, node__insecure="true").listen.http == ":8090"
    inside = read(tmp_path, GOQUEUE + "\nnode:\n  insecure: true\n")
    assert inside.listen.http == ":8090"
    named = GOQUEUE.replace(":8090", "0.0.0.0:8090")
    assert "--insecure" in "\n".join(problems_of(tmp_path, named))


@pytest.mark.parametrize(("node", "port"), [("node1", 1), ("node2", 2), ("node3", 3)])
def test_one_file_of_falconq_serves_all_nodes(tmp_path: Path, node: str, port: int) -> None:
    settings = read(tmp_path, FALCONQ, node__name=node)
    assert settings.node.name == node
    assert settings.topics.partitions == 3
    assert settings.listen.http == f"localhost:808{port}"
    assert settings.listen.peer == f"localhost:900{port}"
    assert settings.node.peers == {f"node{n}": f"localhost:900{n}" for n in (1, 2, 3)}


def test_nodes_of_falconq_fit_on_one_machine(tmp_path: Path) -> None:
    all_three = [read(tmp_path, FALCONQ, node__name=f"node{n}") for n in (1, 2, 3)]
    places = [
        place
        for s in all_three
        for place in (s.listen.http, s.listen.grpc, s.listen.kafka, s.listen.peer, s.node.data_dir)
    ]
    assert len(set(places)) == 15


def test_a_node_must_be_picked(tmp_path: Path) -> None:
    assert "pick one with --id, from node1, node2, node3" in problems_of(tmp_path, FALCONQ)[0]


def test_keys_of_queue(tmp_path: Path) -> None:
    settings = read(tmp_path, QUEUE)
    assert settings.node.name == "node-1"
    assert settings.listen.peer == "localhost:63001"
    assert settings.node.peers == {"node-1": "localhost:63001", "node-2": "localhost:63002"}
    assert (settings.listen.grpc, settings.listen.http) == ("localhost:8001", "localhost:8002")
    assert settings.limits.timeout_ms == 20_000


@pytest.mark.parametrize("key", WITHOUT_COUNTERPART)
def test_what_has_no_counterpart_is_said(tmp_path: Path, key: str) -> None:
    section, _, field = key.partition(".")
    text = f"{section}:\n  {field}: x\n" if field else f"{key}: x\n"
    (problem,) = problems_of(tmp_path, text)
    assert f"{key} has no counterpart here: {WITHOUT_COUNTERPART[key]}" in problem


def test_every_mistake_is_reported_at_once(tmp_path: Path) -> None:
    text = GOQUEUE.replace("maxRetries: 5", "maxRetires: 5").replace("lanes: 3", "lanes: many")
    found = problems_of(tmp_path, text + "metadata_path: x\nnode:\n  nam: y\n")
    assert len(found) == 4
    text = "\n".join(found)
    for part in (
        "defaults.delivery.maxRetires: no setting has this name; did you mean defaults.delivery",
        "defaults.priority.lanes: topics.lanes = 'many'",
        "metadata_path has no counterpart",
        "node.nam: node has no such setting; did you mean name?",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("text", "wanted_ms"),
    [("168", 604_800_000), ('"168"', 604_800_000), ("0.5", 1_800_000), ('"7d"', 604_800_000)],
)
def test_hours_are_hours_quoted_or_not(tmp_path: Path, text: str, wanted_ms: int) -> None:
    file = tmp_path / "goqueue.yaml"
    file.write_text(f"defaults:\n  topic:\n    retention:\n      hours: {text}\n")
    assert load(file).topics.retention_ms == wanted_ms
