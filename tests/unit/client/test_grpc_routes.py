"""Every call of the client has a way over gRPC, and gRPC is loaded only where it is asked for."""

import inspect
import subprocess
import sys
from typing import Any

import pytest

from raftline.client import asks
from raftline.client.core.ports import BATCH, Ask
from raftline.client.grpc.routes import remote_of
from raftline.client.reads import read_ask
from raftline.model.errors import InvalidArgument

GIVEN: dict[str, Any] = {
    "name": "orders",
    "topic_name": "orders",
    "message": "orders.0.w7",
    "partitions": 3,
    "partition": 1,
    "replication_factor": 2,
    "settings": {"lanes": 3, "dedup": True, "partitioner": "crc32"},
    "limit": 5,
    "after": "1.2.3",
    "to": None,
    "offset": 7,
    "time": None,
    "time_ms": 1_000,
    "kind": "work",
    "dry_run": True,
    "create": False,
    "delay_ms": 5,
    "deliver_at": None,
    "verb": "redrive",
    "ids": ["orders.dlq.0.1"],
    "every": False,
    "where": None,
    "rate_per_s": 9,
}


def queries() -> list[Any]:
    made = []
    for name, function in vars(asks).items():
        if inspect.isfunction(function) and function.__module__ == asks.__name__:
            if not str(function.__annotations__.get("return", "")).startswith("raftline"):
                continue
            wanted = inspect.signature(function).parameters
            given = {key: GIVEN[key] for key in wanted if key in GIVEN}
            if name == "reset_group":
                given["partitions"] = [0]
            made.append(pytest.param(function(**given).ask, id=name))
    return made


@pytest.mark.parametrize("ask", queries())
def test_every_call_has_a_way(ask: Ask) -> None:
    remote = remote_of(ask)
    assert remote.method.startswith("/raftline.v1.")
    assert remote.request.ByteSize() or ask.path in ("/v1/topics", "/v1/cluster")


def test_there_are_as_many_as_the_client_has() -> None:
    assert len(queries()) >= 20


def test_what_a_call_says_arrives() -> None:
    made = remote_of(asks.create_topic("orders", 3, 2, GIVEN["settings"]).ask).request
    assert (made.name, made.partitions, made.replication_factor) == ("orders", 3, 2)  # type: ignore[attr-defined]
    settings = made.settings  # type: ignore[attr-defined]
    assert settings["lanes"].number == 3
    assert settings["dedup"].flag is True
    assert settings["partitioner"].text == "crc32"
    read = remote_of(read_ask("o", 2, 9, wait_ms=5, bytes_max=77)).request
    assert (read.partition, read.offset, read.wait_ms, read.bytes_max) == (2, 9, 5, 77)  # type: ignore[attr-defined]
    batch = Ask(
        method="POST", path="/x", body=b"b", content_type=BATCH, topic="o", partition=3, priority=-2
    )
    sent = remote_of(batch).request
    assert (sent.partition, sent.priority, sent.batches) == (3, -2, b"b")  # type: ignore[attr-defined]
    search = remote_of(asks.search("o", key="k", from_time="1970-01-01T00:00:01Z").ask).request
    assert (search.key, search.from_ms, search.HasField("to_ms")) == (b"k", 1_000, False)  # type: ignore[attr-defined]


def test_what_only_http_has_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="GET /tasks/1 is not to be had over gRPC"):
        remote_of(Ask(method="GET", path="/tasks/1"))
    with pytest.raises(InvalidArgument, match="no moment"):
        remote_of(asks.search("o", from_time="teatime").ask)


def test_grpc_is_loaded_where_it_is_asked_for() -> None:
    code = """
import sys, raftline
line = raftline.connect("http://127.0.0.1:9")
line.close()
assert not [name for name in sys.modules if name.startswith(("grpc", "google.protobuf"))]
raftline.connect("grpc://127.0.0.1:9").close()
assert "grpc" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
