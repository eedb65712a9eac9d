"""Publishing with priorities, dedup keys and the producer's name."""

import pytest

from raftline.gateways.http.items import HeaderValues
from raftline.machines.partition.dedup import Dedup
from raftline.machines.partition.side_car import hash_key
from raftline.model.errors import NotReady, OverLimit
from raftline.model.priorities import parse_priority
from raftline.model.records import open_batch, seal_batch
from tests.unit.gateways.web import BATCH, Reply, Web, serve

ONE = "/v1/topics/t/partitions/0/messages"
ANY = "/v1/topics/t/messages"


async def publish(web: Web, *items: dict[str, object], path: str = ONE, **more: object) -> Reply:
    client = await web.client()
    return await client.ask("POST", path, {"messages": list(items), **more})


def headers(web: Web, number: int = 0) -> list[dict[str, HeaderValues]]:
    found = [open_batch(batch) for _, batch, _ in web.node.logs["t"][number]]
    return [{n: v.decode() for n, v in m.headers} for batch in found for m in batch]  # type: ignore[union-attr]


def test_priorities_by_number_and_name_are_runs_of_the_side_car_in_the_order_sent() -> None:
    async def scenario(web: Web) -> None:
        priorities = ["critical", 20, None, "low", "0", 20, "-128"]
        reply = await publish(web, *({"value": "x", "priority": p} for p in priorities))
        results = reply.json["results"]
        assert [r["offset"] for r in results] == list(range(7))
        assert [r.get("priority") for r in results] == [20, 20, None, -10, None, 20, -128]
        ((*place, side),) = web.node.sides
        assert place == ["t", 0, 0]
        assert side.priorities == ((0, 2, 20), (3, 4, -10), (5, 6, 20), (6, 7, -128))
        assert side.dedup == ()
        assert [h.get("raftline-priority") for h in headers(web)] == [
            *("20", "20", None, "-10", None, "20", "-128")
        ]

    serve(scenario)


def test_messages_that_ask_for_nothing_have_no_side_car() -> None:
    async def scenario(web: Web) -> None:
        await publish(web, {"value": "x"}, {"value": "y", "priority": "normal"})
        assert web.node.sides == []

    serve(scenario)


def test_three_lanes_have_three_names() -> None:
    async def scenario(web: Web) -> None:
        web.node.topic("t")
        web.node.settings["t"] = {"lanes": 3}
        items = [{"value": "x", "priority": p} for p in ("high", "critical", 20)]
        results = (await publish(web, *items)).json["results"]
        assert [r["error"] and r["error"]["code"] for r in results] == [
            *(None, "invalid_argument", None)
        ]
        assert "high, normal, low" in results[1]["error"]["hint"]

    serve(scenario)


def test_numbers_as_text_are_priorities_too() -> None:
    assert [parse_priority(text) for text in ("+7", "-128", " High ")] == [7, -128, 10]


def test_a_duplicate_has_the_first_ones_id_and_the_rest_is_stored() -> None:
    async def scenario(web: Web) -> None:
        first = (await publish(web, {"value": "a", "dedup_key": "k"})).json["results"][0]
        assert (first["offset"], "duplicate" in first) == (0, False)
        items = [
            {"value": "b", "priority": 5},
            {"value": "c", "dedup_key": "k"},
            {"value": "d", "dedup_key": "l", "priority": 5},
        ]
        before, again, after = (await publish(web, *items)).json["results"]
        assert (before["offset"], after["offset"]) == (1, 2)
        assert (again["id"], again["offset"], again["duplicate"]) == (first["id"], 0, True)
        assert again["error"] is None
        assert web.node.sides[-1][3].priorities == ((0, 2, 5),)
        assert web.node.sides[-1][3].dedup == ((1, hash_key(b"l")),)
        assert len(web.node.timeouts) == 3

    serve(scenario)


def test_only_duplicates_are_not_sent_again() -> None:
    async def scenario(web: Web) -> None:
        for _ in range(2):
            reply = await publish(web, *({"value": "a", "dedup_key": k} for k in "xy"))
            assert reply.status == 200
            assert [r["offset"] for r in reply.json["results"]] == [0, 1]
        assert [r["duplicate"] for r in reply.json["results"]] == [True, True]
        assert len(web.node.timeouts) == 2

    serve(scenario)


def test_equal_keys_of_one_request_are_one_message() -> None:
    async def scenario(web: Web) -> None:
        items = [{"value": v, "dedup_key": "k"} for v in "abc"] + [{"value": "d"}]
        results = (await publish(web, *items)).json["results"]
        assert [r["offset"] for r in results] == [0, 0, 0, 1]
        assert [r.get("duplicate") for r in results] == [None, True, True, None]
        web.node.refuse = NotReady("no leader")
        items = [{"value": v, "dedup_key": "other"} for v in "ab"]
        results = (await publish(web, *items)).json["results"]
        assert [r["error"]["code"] for r in results] == ["not_ready"] * 2

    serve(scenario)


def test_a_dedup_key_without_a_key_chooses_the_partition() -> None:
    async def scenario(web: Web) -> None:
        web.node.topic("t")
        items = [{"value": "x", "dedup_key": "b"}] * 2 + [{"value": "x", "dedup_key": "b"}]
        results = (await publish(web, *items, path=ANY)).json["results"]
        assert {r["partition"] for r in results} == {ord("b") % 3}
        keyed = {"value": "x", "dedup_key": "b", "key": "a"}
        other = (await publish(web, keyed, path=ANY)).json["results"][0]
        assert (other["partition"], "duplicate" in other) == (ord("a") % 3, False)

    serve(scenario)


def test_with_a_window_of_nothing_every_message_is_stored() -> None:
    async def scenario(web: Web) -> None:
        web.node.topic("t")
        web.node.settings["t"] = {"dedup_ms": 0}
        results = (await publish(web, *[{"value": "x", "dedup_key": "k"}] * 2)).json["results"]
        assert [r["offset"] for r in results] == [0, 1]

    serve(scenario)


def test_too_many_dedup_keys_are_an_error_of_their_messages_only() -> None:
    async def scenario(web: Web) -> None:
        web.node.topic("t")
        items = [{"value": "x", "partition": 0}, {"value": "y", "dedup_key": "k", "partition": 1}]
        web.node.dedup["t", 1] = Dedup(keys_max=0)
        good, bad = (await publish(web, *items, path=ANY)).json["results"]
        assert good["error"] is None
        assert bad["error"]["code"] == OverLimit.code

    serve(scenario)


@pytest.mark.parametrize("way", ["body", "field"])
def test_the_producers_name_is_a_header_of_its_messages(way: str) -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        item = {"value": "x", "headers": {"a": "b", "raftline-producer": "somebody else"}}
        body = {"messages": [item], **({"producer": "shop-1"} if way == "body" else {})}
        fields = {"Raftline-Producer": "shop-1"} if way == "field" else None
        assert (await client.ask("POST", ONE, body, fields)).status == 200
        assert headers(web) == [{"a": "b", "raftline-producer": "shop-1"}]
        long = {"messages": [item], "producer": "p" * 250}
        assert (await client.ask("POST", ONE, long)).code == "too_large"

    serve(scenario)


def test_the_value_may_be_base64_by_its_encoding() -> None:
    async def scenario(web: Web) -> None:
        await publish(web, {"value": "AAH/", "encoding": "base64"})
        ((_, batch, _),) = web.node.logs["t"][0]
        assert open_batch(batch)[0].value == b"\x00\x01\xff"

    serve(scenario)


def test_a_moment_that_has_passed_is_now() -> None:
    async def scenario(web: Web) -> None:
        moments = ["2020-01-01T00:00:00+02:00", 1_500_000_000_000]
        items = [{"value": "x", "deliverAt": m} for m in moments] + [{"value": "x", "delay": "0s"}]
        results = (await publish(web, *items)).json["results"]
        assert [r["offset"] for r in results] == [0, 1, 2]
        assert "delayed" not in results[0]

    serve(scenario)


def test_sealed_batches_take_priority_and_dedup_key_from_the_head() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        two = seal_batch([(None, b"x", (), 1)] * 2)
        one = seal_batch([(None, b"x", (), 1)])
        fields = {"Content-Type": BATCH, "Raftline-Priority": "high"}
        reply = await client.ask("POST", ONE, two + one, fields)
        assert [r["base_offset"] for r in reply.json["results"]] == [0, 2]
        assert [side.priorities for *_, side in web.node.sides] == [((0, 2, 10),), ((0, 1, 10),)]
        fields = {"Content-Type": BATCH, "Raftline-Dedup-Key": "k"}
        for duplicate in (False, True):
            reply = await client.ask("POST", ONE, one, fields)
            assert reply.json["results"] == [
                {"base_offset": 3, "count": 1, "partition": 0, "duplicate": duplicate}
            ]
        for path in (ONE, ANY):
            for body in (two, one + one):
                assert (await client.ask("POST", path, body, fields)).code == "invalid_argument"
        reply = await client.ask("POST", ANY, one, fields)
        assert reply.json["results"][0]["partition"] == ord("k") % 3
        wrong = {"Content-Type": BATCH, "Raftline-Priority": "400"}
        assert (await client.ask("POST", ONE, one, wrong)).code == "invalid_argument"

    serve(scenario)


def test_delayed_messages_wait_alone_with_their_priority_and_dedup_key() -> None:
    async def scenario(web: Web) -> None:
        items = [
            {"value": "a", "delay": "5m", "dedup_key": "k"},
            {"value": "b"},
            {"value": "c", "deliverAt": "2029-01-31T12:00:00+01:00", "priority": "high"},
            {"value": "d", "delay": 1500, "dedup_key": "k"},
        ]
        web.node.topic("t")
        web.node.settings["t"] = {"delay_ms_max": 10 * 366 * 86_400_000}
        first, now, later, copy = (await publish(web, *items)).json["results"]
        assert now == {"id": "t.0.0", "partition": 0, "offset": 0, "error": None}
        assert first == {
            "id": "t.0.w1",
            "partition": 0,
            "offset": None,
            "error": None,
            "delayed": True,
            "deliverAt": "2027-01-15T08:05:00.000Z",
        }
        assert (later["id"], later["priority"]) == ("t.0.w2", 10)
        assert later["deliverAt"] == "2029-01-31T11:00:00.000Z"
        assert copy == {**first, "duplicate": True}
        (_, _, five), (_, _, noon) = web.node.waiting
        assert (five.due_ms, five.priority, five.dedup) == (-300_000, 0, hash_key(b"k"))
        assert (noon.due_ms, noon.priority, noon.dedup) == (1_864_551_600_000, 10, b"")
        assert open_batch(five.batch)[0].value == b"a"
        again = [{"value": "e", "delay": "1s", "dedup_key": "k"}, {"value": "f", "dedup_key": "k"}]
        for row in (await publish(web, again[0])).json["results"] + (
            await publish(web, again[1])
        ).json["results"]:
            assert (row["id"], row["offset"], row["duplicate"]) == ("t.0.w1", None, True)
        assert len(web.node.waiting) == 2

    serve(scenario)


def test_a_delay_over_the_limit_is_refused_and_nothing_is_stored() -> None:
    async def scenario(web: Web) -> None:
        web.node.topic("t")
        for delay in ("169h", 168 * 3_600_000 + 1):
            reply = await publish(web, {"value": "a", "delay": delay})
            assert (reply.status, reply.code) == (400, "invalid_argument")
        assert web.node.waiting == []
        assert web.node.end_of("t", 0) == 0
        assert (await publish(web, {"value": "a", "delay": "168h"})).status == 200

    serve(scenario)


def test_many_delayed_messages_go_in_calls_of_bounded_size() -> None:
    async def scenario(web: Web) -> None:
        reply = await publish(web, *[{"value": "a", "delay": "1h"}] * 2500)
        assert [r["id"] for r in reply.json["results"]] == [f"t.0.w{n + 1}" for n in range(2500)]

    serve(scenario)


def test_reading_shows_the_priority_and_the_id_of_a_message_that_waited() -> None:
    async def scenario(web: Web) -> None:
        await publish(
            web,
            {"value": "a", "priority": "low", "headers": {"raftline-id": "t.0.w7"}},
            {"value": "b", "headers": {"raftline-id": "u.0.w7", "raftline-priority": "much"}},
        )
        client = await web.client()
        waited, other = (await client.ask("GET", ONE)).json["messages"]
        assert (waited["id"], waited["priority"]) == ("t.0.w7", -10)
        assert (other["id"], "priority" in other) == ("t.0.1", False)

    serve(scenario)
