"""The routes of waiting messages: what is asked of the node, and how its answers look in JSON."""

from collections.abc import Callable
from typing import Any

from raftline.model.errors import NotWaiting, RaftlineError, UnknownMessage
from raftline.model.records import seal_batch
from tests.unit.gateways.sim_web import SimWeb, serve_sim
from tests.unit.gateways.web import Reply, Web, serve

DELAYED = "/v1/topics/orders/delayed"
WAITS = {  # partition -> (due_ms, number, priority)
    0: [(5_000, 1, 0), (9_000, 2, 10)],
    1: [(5_000, 1, 0), (6_000, 4, -3)],
    2: [],
}


class Asked:
    """Stands for the leaders of the partitions."""

    def __init__(self, answer: Callable[..., dict[str, Any]] | RaftlineError) -> None:
        self.answer = answer
        self.questions: list[tuple[int, str, dict[str, Any]]] = []

    def __call__(self, topic, partition, name, arguments, timeout_ms, done) -> None:
        self.questions.append((partition, name, arguments))
        is_error = isinstance(self.answer, RaftlineError)
        done(self.answer if is_error else self.answer(partition, **arguments))


def ask(answer, *requests) -> tuple[list[Reply], list[tuple[int, str, dict[str, Any]]]]:
    found: list[Reply] = []
    asked = Asked(answer)

    async def scenario(web: Web) -> None:
        web.node.topic("orders", 3)
        web.node.ask = asked
        client = await web.client()
        found.extend([await client.ask(*request) for request in requests])

    serve(scenario)
    return found, asked.questions


def page(partition: int, after, limit: int) -> dict[str, Any]:
    rows = [row for row in WAITS[partition] if after is None or list(row[:2]) > after]
    return {"rows": rows[:limit], "count": len(WAITS[partition]), "at_ms": 4_000}


def test_lists_of_all_partitions_are_merged_and_paged() -> None:
    (first,), _ = ask(page, ("GET", DELAYED + "?limit=2"))
    assert [row["id"] for row in first.json["messages"]] == ["orders.0.w1", "orders.1.w1"]
    assert first.json["count"] == 4
    assert first.json["messages"][0] == {
        "id": "orders.0.w1",
        "partition": 0,
        "number": 1,
        "deliverAt": "1970-01-01T00:00:05.000Z",
        "due_ms": 5_000,
        "in_ms": 1_000,
        "priority": 0,
    }
    after = first.json["next"]
    (second,), _ = ask(page, ("GET", f"{DELAYED}?limit=2&after={after}"))
    assert [row["id"] for row in second.json["messages"]] == ["orders.1.w4", "orders.0.w2"]
    (last,), _ = ask(page, ("GET", f"{DELAYED}?limit=2&after={second.json['next']}"))
    assert last.json["messages"] == []
    assert last.json["next"] is None


def test_a_list_of_one_partition() -> None:
    (reply,), asked = ask(page, ("GET", DELAYED + "?partition=1"))
    assert [row["number"] for row in reply.json["messages"]] == [1, 4]
    assert asked == [(1, "waiting.list", {"after": None, "limit": 100})]
    (far, odd), _ = ask(page, ("GET", DELAYED + "?partition=3"), ("GET", DELAYED + "?after=x.1"))
    assert (far.status, odd.status) == (404, 400)


def test_show_what_waits_and_where_it_went() -> None:
    batch = seal_batch([(b"k", b"v", [("colour", b"red")], 77)])
    waits = {"state": "waiting", "due_ms": 5_000, "priority": 9, "offset": -1}

    def answer(partition: int, number: int) -> dict[str, Any]:
        if number == 7:
            return {**waits, "batch": batch, "at_ms": 4_500}
        return {"state": "released", "due_ms": -1, "priority": 0, "offset": 12, "at_ms": 4_500}

    (shown, short, gone), asked = ask(
        answer,
        ("GET", DELAYED + "/orders.2.w7"),
        ("GET", DELAYED + "/2/7"),
        ("GET", DELAYED + "/orders.2.w8"),
    )
    assert shown.json == short.json
    assert asked[0] == (2, "waiting.show", {"number": 7})
    assert shown.json == {
        "id": "orders.2.w7",
        "partition": 2,
        "number": 7,
        "state": "waiting",
        "deliverAt": "1970-01-01T00:00:05.000Z",
        "due_ms": 5_000,
        "in_ms": 500,
        "priority": 9,
        "key": "k",
        "value": "v",
        "headers": {"colour": "red"},
        "timestamp": 77,
    }
    assert gone.json == {
        "id": "orders.2.w8",
        "partition": 2,
        "number": 8,
        "state": "released",
        "offset": 12,
        "message_id": "orders.2.12",
    }


def test_cancel() -> None:
    def answer(partition: int, number: int) -> dict[str, Any]:
        return {"number": number, "cancelled": True}

    (one, other), asked = ask(
        answer, ("DELETE", DELAYED + "/orders.1.w3"), ("DELETE", DELAYED + "/1/w3")
    )
    assert one.json == other.json == {"id": "orders.1.w3", "cancelled": True}
    assert asked == [(1, "waiting.cancel", {"number": 3})] * 2
    (late,), _ = ask(NotWaiting("message w3 was released"), ("DELETE", DELAYED + "/orders.1.w3"))
    assert (late.status, late.code) == (409, "not_waiting")
    (never,), _ = ask(UnknownMessage("w9"), ("DELETE", DELAYED + "/orders.1.w9"))
    assert (never.status, never.code) == (404, "unknown_message")


def test_an_id_of_something_else_is_not_found() -> None:
    (elsewhere, in_the_log), asked = ask(
        page, ("DELETE", DELAYED + "/other.1.w3"), ("GET", DELAYED + "/orders.1.3")
    )
    assert (elsewhere.status, in_the_log.status) == (404, 404)
    assert asked == []


def test_move() -> None:
    def answer(partition: int, number: int, due_ms: int) -> dict[str, Any]:
        return {"number": number, "due_ms": due_ms if due_ms >= 0 else 4_000 - due_ms}

    path = DELAYED + "/orders.1.w3/move"
    (later, then, both, none), asked = ask(
        answer,
        ("POST", path, {"delay": "30s"}),
        ("POST", path, {"deliverAt": "1970-01-01T00:01:00Z"}),
        ("POST", path, {"delay": "1s", "deliverAt": 5}),
        ("POST", path, {}),
    )
    assert later.json["due_ms"] == 34_000
    assert then.json["deliverAt"] == "1970-01-01T00:01:00.000Z"
    assert [arguments["due_ms"] for _, _, arguments in asked] == [-30_000, 60_000]
    assert (both.status, none.status) == (400, 400)


def test_stats() -> None:
    def answer(partition: int) -> dict[str, Any]:
        counts = {"waiting": 2, "released": 1, "cancelled": 1, "scheduled": 4, "bytes": 100}
        return {**counts, "earliest_due_ms": -1 if partition else 5_000, "at_ms": 1}

    (reply,), _ = ask(answer, ("GET", "/v1/topics/orders/delay/stats"))
    assert reply.json["waiting"] == 6
    assert reply.json["next_deliverAt"] == "1970-01-01T00:00:05.000Z"
    assert [row["next_deliverAt"] for row in reply.json["partitions"]][1:] == [None, None]


def test_a_place_with_a_number_beyond_all_bounds_is_no_place() -> None:
    (answer,), _ = ask(page, ("GET", f"{DELAYED}?after=1.0.{'9' * 20}"))
    assert answer.status == 400
    assert answer.json["error"]["code"] == "invalid_argument"


def test_an_id_with_a_number_beyond_all_bounds_is_no_id() -> None:
    """On whole nodes: the leader has 64 bits for it, and nobody is hurt by a longer one."""

    async def scenario(web: SimWeb) -> None:
        await web.create()
        (sent,) = await web.publish("x", delay="1h")
        far = f"{DELAYED}/orders.0.w9999999999999999999"
        for method, path in (("DELETE", far), ("POST", far + "/move"), ("GET", far)):
            body = {"delay": "1s"} if method == "POST" else b""
            assert (await web.ask(method, path, body)).status == 400, method
        assert (await web.ok("DELETE", f"{DELAYED}/{sent['id']}"))["cancelled"]

    serve_sim(scenario, nodes=3)
