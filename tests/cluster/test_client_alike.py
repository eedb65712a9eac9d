"""The client's answers do not depend on what carries its calls: HTTP and gRPC, side by side."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raftline
from raftline.chaos.rig import Rig, wait_for
from raftline.client.asks import Query
from raftline.client.core.ports import Ask
from raftline.client.line import Line
from raftline.model.errors import RaftlineError
from tests.cluster.test_client import servers, wait_for_grpc

TOPIC, GROUP = "alike", "g"
MOVING = {
    "at_ms", "clock_offset_ms", "free_bytes", "in_ms", "index", "next", "uptime_ms", "wal_bytes"
}  # fmt: skip
ONLY_HTTP = {"queries"}  # what jobs hold: they speak HTTP


@pytest.fixture(scope="module")
def rig(module_path: Path):
    made = Rig(module_path / "alike", nodes=1)
    try:
        made.start_all()
        wait_for_grpc(made)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def lines(rig: Rig):
    with (
        raftline.connect(servers(rig, "http")) as one,
        raftline.connect(servers(rig, "grpc")) as other,
    ):
        fill(one)
        yield one, other


def fill(line: Line) -> None:
    """Have something of everything."""
    line.topics.create(TOPIC, partitions=2, max_retries=1, backoff_ms=100, partitioner="crc32")
    headers = [("h", "1"), ("h", "2"), ("raw", b"\xff"), ("none", None)]
    line.send_now(TOPIC, b"\xfe", key=b"\xfd", headers=headers, partition=0)
    line.send_now(TOPIC, b"acked", key="k", priority="high", partition=0)
    line.send_now(TOPIC, b"waits", delay="1h", priority=5, partition=1)
    gone = line.send_now(TOPIC, b"gone", delay="1h", partition=1)
    line.scheduled.cancel(gone.id)
    soon = line.send_now(TOPIC, b"soon", delay="10ms", partition=1)
    wait_for(lambda: line.scheduled.show(soon.id)["state"] == "released", 10)
    for message in line.receive_many(TOPIC, group=GROUP, partition=0, member="w", wait="1s"):
        if message.value == b"acked":
            message.nack("again", 0, wait=True)
            line.ack_many(line.receive_many(TOPIC, group=GROUP, partition=0, wait="2s"), wait=True)
        else:
            message.reject("broken", wait=True)
    join = Ask(method="POST", path="/v1/groups/s/join", body=b'{"topics": ["alike"]}')
    line.run(Query(join, lambda answer: answer))
    wait_for(lambda: len(line.dlq.list(TOPIC)["letters"]) == 1, 10)
    wait_for(lambda: line.groups.show(GROUP, TOPIC)["work"][TOPIC][0]["dead"] == 1, 10)


def settled(answer: Any) -> Any:
    """Leave out what moves by itself."""
    if isinstance(answer, dict):
        left_out = MOVING | ONLY_HTTP
        return {key: settled(value) for key, value in answer.items() if key not in left_out}
    return [settled(one) for one in answer] if isinstance(answer, list | tuple) else answer


LETTER = f"{TOPIC}.dlq.0.0"
QUESTIONS: dict[str, Callable[[Line], Any]] = {
    "topics": lambda line: line.topics.list(),
    "topic": lambda line: line.topics.show(TOPIC),
    "no topic": lambda line: line.topics.show("not-there"),
    "topic again": lambda line: line.topics.create(TOPIC),
    "a setting": lambda line: line.topics.set(TOPIC, max_retries=1),
    "no setting": lambda line: line.topics.set(TOPIC, colour="red"),
    "cluster": lambda line: line.cluster(),
    "groups": lambda line: line.groups.list(),
    "groups of a topic": lambda line: line.groups.list(TOPIC),
    "group": lambda line: line.groups.show(GROUP, TOPIC),
    "stream group": lambda line: line.groups.show("s"),
    "no group": lambda line: line.groups.show("not-there", TOPIC),
    "reset": lambda line: line.groups.reset(GROUP, TOPIC, to="latest", dry_run=True),
    "reset by offset": lambda line: line.groups.reset(GROUP, TOPIC, offset=1, dry_run=True),
    "reset by time": lambda line: line.groups.reset(
        GROUP, TOPIC, time="2020-01-01T00:00:00Z", dry_run=True
    ),
    "scheduled": lambda line: line.scheduled.list(TOPIC),
    "scheduled in a partition": lambda line: line.scheduled.list(TOPIC, partition=1, limit=1),
    "scheduled stats": lambda line: line.scheduled.stats(TOPIC),
    "waiting": lambda line: line.scheduled.show(f"{TOPIC}.1.w1"),
    "cancelled": lambda line: line.scheduled.show(f"{TOPIC}.1.w2"),
    "released": lambda line: line.scheduled.show(f"{TOPIC}.1.w3"),
    "not waiting": lambda line: line.scheduled.move(f"{TOPIC}.1.w3", delay="1h"),
    "letters": lambda line: line.dlq.list(TOPIC),
    "letters of a group": lambda line: line.dlq.list(TOPIC, group=GROUP, limit=1),
    "letters of none": lambda line: line.dlq.list(TOPIC, group="other"),
    "letter": lambda line: line.dlq.show(TOPIC, LETTER),
    "no letter": lambda line: line.dlq.show(TOPIC, f"{TOPIC}.dlq.0.9"),
    "redrive": lambda line: line.dlq.redrive(TOPIC, every=True, dry_run=True),
    "purge": lambda line: line.dlq.purge(TOPIC, where={"reason": "REJECTED"}, dry_run=True),
    "purge nothing": lambda line: line.dlq.purge(TOPIC, dry_run=True),
    "trace": lambda line: line.trace(f"{TOPIC}.0.1"),
    "trace of a dead one": lambda line: line.trace(f"{TOPIC}.0.0"),
    "trace of a waiting one": lambda line: line.trace(f"{TOPIC}.1.w1"),
    "no trace": lambda line: line.trace(f"{TOPIC}.0.99"),
    "search": lambda line: line.search(TOPIC),
    "search by key": lambda line: line.search(TOPIC, key="k", limit=1),
    "search by state": lambda line: line.search(TOPIC, state="settled", group=GROUP),
    "search by time": lambda line: line.search(TOPIC, from_time="2020-01-01T00:00:00Z"),
    "search for nonsense": lambda line: line.search(TOPIC, state="lively"),
    "offsets": lambda line: line.offsets(TOPIC),
    "offset of a time": lambda line: line.offsets(TOPIC, 0, 1),
    "offset of the future": lambda line: line.offsets(TOPIC, 0, 9_999_999_999_999),
    "read": lambda line: line.read(TOPIC, 0),
    "message": lambda line: line.message(f"{TOPIC}.0.0"),
    "no message": lambda line: line.message(f"{TOPIC}.0.99"),
    "a group name": lambda line: line.receive_many(TOPIC, group="g/" * 200),
    "a short lease": lambda line: line.receive_many(TOPIC, group=GROUP, lease="1ms"),
    "a delay": lambda line: line.send_now(TOPIC, b"x", delay="9000h"),
    "a partition": lambda line: line.send_now(TOPIC, b"x", partition=9),
    "a duplicate": lambda line: line.send_now(TOPIC, b"x", dedup_key="once", partition=1).topic,
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_answer_is_the_same(lines: tuple[Line, Line], name: str) -> None:
    def ask(line: Line) -> Any:
        try:
            return settled(QUESTIONS[name](line))
        except RaftlineError as error:
            return error.code

    over_http, over_grpc = (ask(line) for line in lines)
    assert over_grpc == over_http
