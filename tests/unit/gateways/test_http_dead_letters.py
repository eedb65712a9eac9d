"""The routes of dead letters: what is asked of the node, and how its answers look in JSON."""

from typing import Any

import msgspec
import pytest

from raftline.model.dead_letter import HEADERS, Story
from raftline.model.errors import NoLeader, RaftlineError, UnknownTopic
from tests.unit.gateways.sim_web import SimWeb, serve_sim
from tests.unit.gateways.web import Web, serve

DLQ = "/v1/topics/orders/dlq"
STORY = Story(
    topic="orders",
    partition=2,
    offset=45,
    topic_uuid="u1",
    group="workers",
    generation=0,
    reason="REJECTED",
    attempts=2,
    first_ms=1_000,
    last_ms=5_000,
    dead_ms=5_000,
    member="w-1",
    error="bad address",
)
ROW = {
    "offset": 7,
    "state": "dead",
    "story": msgspec.to_builtins(STORY),
    "key": b"user-7",
    "value": b"\xff\x00",
    "headers": [["trace", b"t1"]],
    "timestamp_ms": 900,
}


class Asked:
    """Stands for the leader of the dead-letter partition."""

    def __init__(self, answer: dict[str, Any] | RaftlineError) -> None:
        self.answer = answer
        self.questions: list[tuple[str, int, str, dict[str, Any]]] = []

    def __call__(self, topic, partition, name, arguments, timeout_ms, done) -> None:
        self.questions.append((topic, partition, name, arguments))
        done(self.answer)


def ask(answer, *request, topic: bool = True):
    """Make one request; return the reply and what the node was asked."""
    found: list[Any] = []
    asked = Asked(answer)

    async def scenario(web: Web) -> None:
        if topic:
            web.node.topic("orders")
        web.node.ask = asked
        client = await web.client()
        found.append(await client.ask(*request))

    serve(scenario)
    return found[0], asked.questions


def test_list() -> None:
    query = "?limit=5&after=orders.dlq.0.6&group=workers&reason=REJECTED&key=k"
    query += "&from=1970-01-01T00:00:01Z&to=9000"
    reply, asked = ask({"letters": [ROW], "next": 7}, "GET", DLQ + query)
    assert asked == [
        (
            "orders.dlq",
            0,
            "letters.list",
            {
                "wanted": {
                    "group": "workers",
                    "reason": "REJECTED",
                    "key": b"k",
                    "from_ms": 1_000,
                    "to_ms": 9_000,
                    "after": 6,
                    "limit": 5,
                    "purged": False,
                }
            },
        )
    ]
    assert reply.status == 200
    assert reply.json["next"] == "orders.dlq.0.7"
    (letter,) = reply.json["letters"]
    assert letter == {
        "id": "orders.dlq.0.7",
        "offset": 7,
        "timestamp": 900,
        "key": "user-7",
        "value": None,
        "value_base64": "/wA=",
        "headers": {"trace": "t1"},
        "state": "dead",
        "origin": {"id": "orders.2.45", "topic": "orders", "partition": 2, "offset": 45},
        "group": "workers",
        "generation": 0,
        "reason": "REJECTED",
        "attempts": 2,
        "first_ms": 1_000,
        "last_ms": 5_000,
        "dead_ms": 5_000,
        "member": "w-1",
        "error": "bad address",
    }


def test_a_list_of_one_state() -> None:
    rows = [ROW, {**ROW, "offset": 8, "state": "redriven"}]
    reply, _ = ask({"letters": rows, "next": -1}, "GET", DLQ + "?state=redriven")
    assert [row["id"] for row in reply.json["letters"]] == ["orders.dlq.0.8"]
    assert reply.json["next"] is None


def test_the_envelope_of_goqueue() -> None:
    reply, _ = ask({"letters": [ROW], "next": -1}, "GET", DLQ + "/orders.dlq.0.7?form=envelope")
    assert reply.json == {
        "original_topic": "orders",
        "original_partition": 2,
        "original_offset": 45,
        "original_timestamp": "1970-01-01T00:00:00.900Z",
        "key": "dXNlci03",
        "value": "/wA=",
        "delivery_attempts": 2,
        "first_delivery": "1970-01-01T00:00:01.000Z",
        "last_delivery": "1970-01-01T00:00:05.000Z",
        "last_consumer": "w-1",
        "last_group": "workers",
        "reason": "REJECTED",
        "last_error": "bad address",
        "dlq_time": "1970-01-01T00:00:05.000Z",
    }


def test_one_that_is_not_there() -> None:
    reply, asked = ask({"letters": [], "next": -1}, "GET", DLQ + "/9")
    assert (reply.status, reply.json["error"]["code"]) == (404, "unknown_message")
    assert asked[0][3] == {"wanted": {"offsets": [9], "limit": 1, "purged": True}}


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"ids": ["orders.dlq.0.7", "3"]}, {"after": -1, "limit": 1000, "offsets": [3, 7]}),
        ({"all": True, "limit": 10, "after": "4"}, {"after": 4, "limit": 10}),
        (
            {"filter": {"reason": "REJECTED", "from": 5}},
            {
                "after": -1,
                "limit": 1000,
                "group": None,
                "reason": "REJECTED",
                "key": None,
                "from_ms": 5,
            },
        ),
    ],
    ids=str,
)
def test_redrive(body, wanted) -> None:
    answer = {"matched": 2, "done": 1, "skipped": [[3, "redriven"]], "next": 7, "dry_run": False}
    reply, asked = ask(answer, "POST", DLQ + "/redrive", {**body, "rate_per_s": 50})
    assert asked[0][2:] == (
        "letters.redrive",
        {"wanted": wanted, "rate_per_s": 50, "dry_run": False},
    )
    assert reply.json == {
        "matched": 2,
        "redriven": 1,
        "skipped": [{"id": "orders.dlq.0.3", "why": "redriven"}],
        "next": "orders.dlq.0.7",
        "dry_run": False,
    }


def test_purge_as_a_dry_run() -> None:
    answer = {"matched": 2, "done": 2, "skipped": [], "next": -1, "dry_run": True}
    reply, asked = ask(answer, "POST", DLQ + "/purge", {"all": True, "dry_run": True})
    assert asked[0][2] == "letters.purge"
    assert (reply.json["purged"], reply.json["next"], reply.json["dry_run"]) == (2, None, True)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"all": True, "ids": ["1"]},
        {"ids": ["orders.0.7"]},
        {"ids": ["x"]},
        {"all": True, "rate_per_s": -1},
        {"all": True, "rate": 1},
        {"filter": {"from": "yesterday"}},
    ],
    ids=str,
)
def test_bodies_that_make_no_sense(body) -> None:
    for verb in ("redrive", "purge"):
        reply, asked = ask({}, "POST", f"{DLQ}/{verb}", body)
        assert (reply.status, reply.json["error"]["code"]) == (400, "invalid_argument")
        assert asked == []


def test_a_topic_that_never_had_a_dead_letter() -> None:
    nothing = UnknownTopic("orders.dlq")
    reply, _ = ask(nothing, "GET", DLQ)
    assert reply.json == {"letters": [], "next": None}
    reply, _ = ask(nothing, "POST", DLQ + "/redrive", {"all": True})
    assert (reply.json["matched"], reply.json["redriven"]) == (0, 0)
    reply, _ = ask(nothing, "GET", DLQ, topic=False)
    assert (reply.status, reply.json["error"]["code"]) == (404, "unknown_topic")
    assert "'orders'" in reply.json["error"]["message"]


def test_refusals_pass() -> None:
    reply, _ = ask(NoLeader("orders.dlq/0"), "GET", DLQ)
    assert (reply.status, reply.json["error"]["code"]) == (503, "no_leader")
    reply, _ = ask({}, "GET", DLQ + "?form=xml")
    assert reply.status == 400


@pytest.mark.parametrize("name", ["raftline-origin", "raftline-generation", "raftline-dead-ms"])
@pytest.mark.parametrize("number", ["9" * 25, "-" + "9" * 25, "-1", "9" * 5000])
def test_what_only_looks_like_a_letter_is_none(name: str, number: str) -> None:
    """A dead-letter topic is one like any other: people may write anything there."""

    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.create("orders.dlq")
        story = dict.fromkeys(HEADERS[1:12], "1") | {HEADERS[0]: "orders/0@1"}
        story[name] = f"orders/0@{number}" if name == HEADERS[0] else number
        headers = {header: story[header] for header in HEADERS[:12]}
        await web.publish("x", topic="orders.dlq", headers=headers)
        assert await web.ok("GET", "/v1/topics/orders/dlq") == {"letters": [], "next": None}

    serve_sim(scenario, nodes=3)


def test_times_beyond_all_bounds_are_no_times() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        for query in ("from=" + "9" * 5000, "to=" + "9" * 30, "from=x"):
            reply = await web.ask("GET", f"/v1/topics/orders/dlq?{query}")
            assert (reply.status, reply.code) == (400, "invalid_argument"), query[:9]

    serve_sim(scenario)
