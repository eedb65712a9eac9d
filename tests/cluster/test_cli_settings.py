"""Settings take effect on real nodes: the files and flags people bring from other systems."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftline.chaos.rig import command, free_port_base, wait_for
from raftline.client.caller import Caller
from raftline.model.errors import InvalidArgument, RaftlineError

GOQUEUE = """
broker:
  nodeId: "node-9"
  dataDir: "{home}/goqueue"
  listeners:
    http: ":{http}"
    grpc: ":{grpc}"
    internal: "127.0.0.1:{peer}"
defaults:
  topic:
    partitions: 4
    replicationFactor: 2
    retention:
      hours: 24
      bytes: 1073741824
  delivery:
    visibilityTimeout: 45s
    maxRetries: 0
    dlqEnabled: false
  delay:
    enabled: true
    maxDelay: 48h
  priority:
    lanes: 3              # high, normal, low
listen:
  kafka: "127.0.0.1:{kafka}"
"""
FALCONQ = """
default_num_partitions: 3
nodes:
  node1:
    http_address: "localhost:{0}"
    raft_address: "localhost:{3}"
  node2:
    http_address: "localhost:{1}"
    raft_address: "localhost:{4}"
  node3:
    http_address: "localhost:{2}"
    raft_address: "localhost:{5}"
"""


@contextlib.contextmanager
def serving(folder: Path, *lines: list[str]) -> Iterator[None]:
    """Run nodes; end them by their pids."""
    children: list[subprocess.Popen[bytes]] = []
    try:
        for number, words in enumerate(lines):
            with (folder / f"log-{number}").open("wb") as log:
                line = [sys.executable, "-m", "raftline", "serve", *words]
                children.append(subprocess.Popen(line, cwd=folder, stdout=log, stderr=log))
        yield
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait(15)


def wait_ready(caller: Caller) -> None:
    def is_ready() -> bool:
        with contextlib.suppress(RaftlineError):
            return bool(caller.call("GET", "/health"))
        return False

    wait_for(is_ready, 30)


@pytest.fixture(scope="module")
def goqueue(module_path: Path) -> Iterator[tuple[Caller, Path]]:
    """A node from GoQueue's example file with other values."""
    home = module_path
    base = free_port_base(1)
    ports = {"http": base, "grpc": base + 1000, "kafka": base + 2000, "peer": base + 3000}
    (home / "config.yaml").write_text(GOQUEUE.format(home=home, **ports))
    with (
        serving(home, ["-config", "config.yaml"]),
        Caller(f"127.0.0.1:{base}", timeout_ms=10_000) as caller,
    ):
        wait_ready(caller)
        body = {"messages": [{"value": "one", "key": "k"}]}
        caller.call("POST", "/v1/topics/orders/messages", body)
        yield caller, home


def test_the_node_is_who_and_where_the_file_says(goqueue: tuple[Caller, Path]) -> None:
    caller, home = goqueue
    assert caller.call("GET", "/v1/cluster")["name"] == "node-9"
    assert (home / "goqueue").is_dir()


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        ("retention_ms", 86_400_000),
        ("retention_bytes", 1 << 30),
        ("lease_ms", 45_000),
        ("max_retries", 0),
        ("dead_letters", False),
        ("delay_ms_max", 48 * 3_600_000),
        ("lanes", 3),
    ],
)
def test_a_new_topic_starts_with_it(
    goqueue: tuple[Caller, Path], setting: str, wanted: object
) -> None:
    assert goqueue[0].call("GET", "/v1/topics/orders")["settings"][setting] == wanted


def test_partitions_and_as_many_replicas_as_there_are_nodes(goqueue: tuple[Caller, Path]) -> None:
    topic = goqueue[0].call("GET", "/v1/topics/orders")
    assert (topic["num_partitions"], topic["replication_factor"]) == (4, 1)


def test_the_rules_hold_for_messages(goqueue: tuple[Caller, Path]) -> None:
    caller, _ = goqueue
    for topic in ("orders", "fresh"):  # a topic that is not there yet too
        for wish in ({"delay": "49h"}, {"priority": "critical"}):
            body = {"messages": [{"value": "x", **wish}]}
            with pytest.raises(InvalidArgument):
                caller.call("POST", f"/v1/topics/{topic}/messages", body)
    receive = "/v1/topics/orders/groups/g/receive"
    (row,) = caller.call("POST", receive, {"wait": 2_000}, wait_ms=2_000)["messages"]
    now_ms = row["lease_expires_ms"] - 45_000
    assert abs(now_ms - row["timestamp"]) < 60_000
    caller.call("POST", "/v1/messages/nack", {"lease_token": row["lease_token"]})
    group = caller.call("GET", "/v1/groups/g")["work"]["orders"]
    assert sum(one["lag"] + one["dead"] + one["dying"] for one in group) == 0, "settled, no letter"
    assert caller.call("GET", "/v1/topics/orders/dlq")["letters"] == []


def test_flags_set_what_new_topics_start_with(tmp_path: Path) -> None:
    base = free_port_base(1)
    words = [
        "--id=dev", "--bootstrap=true", "--data-dir", "data", "--lease-timeout", "5s",
        "--max-retries=1", "--partitions", "2", "--retention", "1h", "--set", "topics.delays=false",
        "-http-addr", f"127.0.0.1:{base}", "--grpc-addr", f"127.0.0.1:{base + 1000}",
        "--kafka-addr", f"127.0.0.1:{base + 2000}", "--raft.addr", f"127.0.0.1:{base + 3000}",
    ]  # fmt: skip
    with serving(tmp_path, words), Caller(f"127.0.0.1:{base}", timeout_ms=10_000) as caller:
        wait_ready(caller)
        caller.call("POST", "/v1/topics", {"name": "orders"})
        topic = caller.call("GET", "/v1/topics/orders")
        assert topic["num_partitions"] == 2
        wanted = {"lease_ms": 5_000, "max_retries": 1, "retention_ms": 3_600_000, "delay_ms_max": 0}
        assert {name: topic["settings"][name] for name in wanted} == wanted
        body = {"messages": [{"value": "x", "delay": "1s"}]}
        with pytest.raises(InvalidArgument):
            caller.call("POST", "/v1/topics/orders/messages", body)
        caller.call("POST", "/v1/topics", {"name": "own", "settings": {"lease_ms": 9_000}})
        assert caller.call("GET", "/v1/topics/own")["settings"]["lease_ms"] == 9_000


def test_three_nodes_from_one_file_of_falconq(tmp_path: Path) -> None:
    base = free_port_base(6)
    ports = [base, base + 1, base + 2, base + 3000, base + 3001, base + 3002]
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "config.yaml").write_text(FALCONQ.format(*ports))
    lines = [["-config", "broker/config.yaml", "-nodeid", f"node{n}"] for n in (1, 2, 3)]
    with serving(tmp_path, *lines):
        for port in ports[:3]:
            with Caller(f"localhost:{port}", timeout_ms=10_000) as caller:
                wait_ready(caller)
                caller.call("POST", "/v1/topics/orders/messages", {"messages": [{"value": "x"}]})
                topic = caller.call("GET", "/v1/topics/orders")
                assert (topic["num_partitions"], topic["replication_factor"]) == (3, 3)
                names = [row["name"] for row in caller.call("GET", "/v1/cluster")["nodes"]]
                assert names == ["node1", "node2", "node3"]


@pytest.mark.parametrize("flag", ["--http-addr", "--grpc-addr", "--kafka-addr", "--peer-addr"])
@pytest.mark.parametrize("address", ["0.0.0.0:8000", ":8000", "10.0.0.1:8000", "[::]:8000"])
def test_no_address_beyond_loopback_without_saying_so(
    tmp_path: Path, flag: str, address: str
) -> None:
    from raftline.cli.serve import run

    words = ["--data-dir", str(tmp_path / "data"), flag, address, "--print-config"]
    assert run(words) == 2
    assert run([*words, "--insecure"]) == 0
    assert not (tmp_path / "data").exists()


def test_a_real_start_is_refused_too_with_every_reason(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("node:\n  nam: x\nraft:\n  tick_ms: 0\n")
    said = command("serve", "--config", "bad.yaml", "--http-addr", "0.0.0.0:80", cwd=tmp_path)
    assert said.exit == 2
    assert said.err.count("error: ") == 3
    for part in ("did you mean name?", "raft.tick_ms = 0", "--insecure"):
        assert part in said.err
    assert not (tmp_path / "raftline-data").exists()


def test_print_config_shows_what_holds(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"node": {"name": "a"}, "raft": {"tick_ms": 90}}))
    env = {"RAFTLINE_RAFT_TICK_MS": "80"}
    said = command("serve", "--config", "a.json", "--print-config", env=env, cwd=tmp_path)
    assert said.exit == 0
    assert 'name = "a"' in said.out
    assert "tick_ms = 80" in said.out
