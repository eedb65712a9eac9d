"""Work groups over HTTP, on a whole node: receive, ack, nack, reject, extend, one or many."""

import asyncio
import base64
from typing import Any

import msgspec
import pytest

from raftline.gateways.lease_tokens import LeaseToken, decode_token, encode_token
from raftline.gateways.opened import BYTES_MAX, OpenedBatches
from raftline.model.errors import InvalidArgument
from raftline.model.records import open_batches, seal_batch
from raftline.node.settle_pieces import PIECE_ROWS
from raftline.testing.batches import seal
from tests.unit.gateways.sim_web import GROUP, TOPIC, SimWeb, serve_sim, words
from tests.unit.gateways.web import BATCH, request
from tests.unit.node.whole import host, lead

RECEIVE = f"/v1/topics/{TOPIC}/groups/{GROUP}/receive"
RANGES = f"/v1/topics/{TOPIC}/partitions/0/groups/{GROUP}/settle"


def values(messages: list[dict[str, Any]]) -> list[str]:
    return [message["value"] for message in messages]


# ---------------------------------------------------------------------- receive


def test_receive_and_ack() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("a", "b", key="k", headers={"colour": "red"})
        (one,) = await web.receive(count=1, member="w-1", lease="10s")
        assert (one["id"], one["offset"], one["partition"]) == ("orders.0.0", 0, 0)
        assert (one["key"], one["value"], one["headers"]) == ("k", "a", {"colour": "red"})
        assert (one["attempt"], one["receipt_handle"]) == (1, one["lease_token"])
        assert one["lease_expires_ms"] > one["timestamp"]
        assert (await web.settle("ack", one)).json["settled"] == 1
        again = await web.settle("ack", one)
        assert (again.status, again.code) == (409, "lease_lost")
        assert values(await web.receive()) == ["b"]
        state = await web.state()
        assert (state["floor"], state["leased"], state["next_offset"]) == (1, 1, 2)

    serve_sim(scenario)


@pytest.mark.parametrize("nodes", [1, 3])
def test_who_received_and_asks_hears_of_it(nodes: int) -> None:
    """A first delivery goes out before its Grant is proposed; a question waits for that."""

    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("a", "b", "c")
        for leased in (1, 2, 3):
            await web.receive(count=1)
            state = await web.state()
            assert (state["floor"], state["leased"]) == (0, leased)

    serve_sim(scenario, nodes=nodes)


def test_a_receive_without_a_body_has_defaults() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(lease_ms=7_000)
        await web.publish(*[str(n) for n in range(12)])
        got = (await web.ok("POST", RECEIVE))["messages"]
        assert values(got) == [str(n) for n in range(10)]
        leased_ms = got[0]["lease_expires_ms"] - got[0]["timestamp"]
        assert 7_000 <= leased_ms < 8_000
        assert len(await web.receive()) == 2
        assert await web.receive() == []

    serve_sim(scenario)


def test_a_long_poll_ends_with_a_message_or_at_its_time() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=3)
        began = web.sim.now_ms
        assert await web.receive(wait="2s") == []
        assert 2_000 <= web.sim.now_ms - began < 2_400
        waiting = await web.web.client()
        waiting.send(request("POST", RECEIVE, {"wait": 20_000}))
        for _ in range(50):
            assert (await web.ask("GET", "/health")).status == 200
        began = web.sim.now_ms
        await web.publish("x")
        assert values((await web.wait(waiting)).json["messages"]) == ["x"]
        assert web.sim.now_ms - began < 1_000

    serve_sim(scenario)


def test_one_partition_or_all_of_them() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=3)
        for partition in range(3):
            await web.publish(f"p{partition}", partition=partition)
        assert values(await web.receive(partition=1)) == ["p1"]
        assert values(await web.receive(partition=1)) == []
        rest = await web.receive() + await web.receive()
        assert sorted(values(rest)) == ["p0", "p2"]
        assert {m["value"]: m["partition"] for m in rest} == {"p0": 0, "p2": 2}
        other = await web.ask("POST", RECEIVE, {"partition": 3})
        assert (other.status, other.code) == (404, "unknown_partition")

    serve_sim(scenario)


def test_the_highest_priority_first_and_a_group_that_begins_at_the_end() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("low", priority="low")
        await web.publish("high", priority="high")
        await web.publish("plain")
        assert values(await web.receive()) == ["high", "plain", "low"]
        assert await web.receive("late", start="next") == []
        await web.publish("new")
        assert values(await web.receive("late")) == ["new"]

    serve_sim(scenario)


def test_an_ordered_group_delivers_one_message_a_key() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        for value, key in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a")):
            await web.publish(value, key=key)
        first = await web.receive(ordered=True)
        assert values(first) == ["a1", "b1"]
        assert await web.receive() == []
        await web.settle("nack", first[0], delay="1s")
        assert await web.receive() == []  # its later ones wait with it
        (again,) = await web.receive(wait="3s")
        assert (again["value"], again["attempt"]) == ("a1", 2)
        await web.settle("ack", again)
        assert values(await web.receive()) == ["a2"]

    serve_sim(scenario)


def test_bytes_that_are_no_text_come_as_base64() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        raw = base64.b64encode(b"\xff\x00").decode()
        body = {"messages": [{"value_base64": raw, "key_base64": raw}]}
        await web.ok("POST", f"/v1/topics/{TOPIC}/messages", body)
        (got,) = await web.receive()
        assert (got["value"], got["value_base64"], got["key_base64"]) == (None, raw, raw)

    serve_sim(scenario)


# ---------------------------------------------------------------------- settle


def test_nack_after_the_backoff_or_a_delay() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(backoff_ms=2_000)
        await web.publish("x")
        (one,) = await web.receive()
        began = web.sim.now_ms
        assert (await web.settle("nack", one, reason="busy")).status == 200
        (two,) = await web.receive(wait="10s")
        assert two["attempt"] == 2
        assert 2_000 <= web.sim.now_ms - began < 3_000
        began = web.sim.now_ms
        await web.settle("nack", two, delay="500ms")
        (three,) = await web.receive(wait="10s")
        assert three["attempt"] == 3
        assert 500 <= web.sim.now_ms - began < 1_000
        await web.settle("nack", three, delay=0)
        (four,) = await web.receive()
        assert four["attempt"] == 4
        await web.settle("nack", four, delay=0, reason="never mind")
        assert await web.receive(wait="500ms") == []
        web.sim.advance("3s")
        state = await web.state()
        assert (state["dead"], state["lag"]) == (1, 0)

    serve_sim(scenario)


def test_a_release_is_no_delivery() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(max_retries=0)
        (row,) = await web.publish("x")
        for _ in range(3):  # one failed delivery would be the end
            (one,) = await web.receive(member="w-1")
            assert one["attempt"] == 1
            answer = await web.settle("release", one)
            assert (answer.status, answer.json["settled"]) == (200, 1)
        fresh = await web.trace(row["id"])
        assert (fresh["attempts"], fresh["groups"]) == ({GROUP: 0}, {GROUP: "ready"})
        assert words(fresh)[-3:] == ["DELIVERED", "GIVEN_BACK", "RETAINED"]
        (two,) = await web.receive()
        late = await web.settle("ack", one)
        assert (late.status, late.code) == (409, "lease_lost")
        await web.settle("ack", two)
        assert (await web.trace(row["id"]))["attempts"] == {GROUP: 1}
        assert (await web.state())["floor"] == 1

    serve_sim(scenario)


def test_a_long_reason_is_cut() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        (row,) = await web.publish("x")
        (one,) = await web.receive()
        assert (await web.settle("nack", one, delay=0, reason="ä" * 5_000)).status == 200
        (two,) = await web.receive()
        await web.settle("ack", two)
        reasons = [line.get("reason") for line in (await web.trace(row["id"]))["timeline"]]
        assert reasons.count("ä" * 1_000) == 2  # nacked, redelivered

    serve_sim(scenario)


def test_reject_gives_up_at_once() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("x")
        (one,) = await web.receive(member="w-7")
        assert (await web.settle("reject", one, reason="no such customer")).status == 200
        web.sim.advance("3s")
        (letter,) = (await web.ok("GET", f"/v1/topics/{TOPIC}/dlq"))["letters"]
        assert (letter["reason"], letter["error"]) == ("REJECTED", "no such customer")
        assert (letter["member"], letter["attempts"]) == ("w-7", 1)

    serve_sim(scenario)


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("extend", {"lease": "20s"}),
        ("extend", {"lease": 20_000}),
        ("visibility", {"extension_seconds": 20}),
    ],
    ids=str,
)
def test_extend(route: str, body: dict[str, Any]) -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("x", "y")
        one, _ = await web.receive(lease="2s")
        answer = await web.ask(
            "POST", f"/v1/messages/{route}", {"receipt_handle": one["receipt_handle"], **body}
        )
        assert answer.json["settled"] == 1
        web.sim.advance("4s")
        (again,) = await web.receive()
        assert (again["value"], again["attempt"]) == ("y", 2)
        assert (await web.settle("ack", one)).status == 200
        late = await web.settle("extend", one, lease="1s")
        assert (late.status, late.code) == (409, "lease_lost")

    serve_sim(scenario)


def test_many_at_once_each_with_its_own_result() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=2)
        for partition in range(2):
            for n in range(3):
                await web.publish(f"{partition}{n}", partition=partition)
        got = await web.receive(count=10) + await web.receive(count=10)
        assert len(got) == 6
        await web.settle("ack", got[0])
        done = await web.settle("ack", *got)
        assert (done.status, done.json["settled"]) == (200, 5)
        results = done.json["results"]
        assert [row["lease_token"] for row in results] == [m["lease_token"] for m in got]
        assert results[0]["error"]["code"] == "lease_lost"
        assert [row["error"] for row in results[1:]] == [None] * 5
        assert "error" not in done.json
        none = await web.settle("ack", *got)
        assert (none.status, none.json["settled"], none.code) == (409, 0, "lease_lost")
        assert [row["error"]["code"] for row in none.json["results"]] == ["lease_lost"] * 6
        for partition in range(2):
            assert (await web.state(partition=partition))["floor"] == 3

    serve_sim(scenario)


@pytest.mark.parametrize("verb", ["nack", "reject", "extend", "release"])
def test_the_batch_form_of_the_other_verbs(verb: str) -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(dead_letters=False)
        await web.publish("a", "b", "c")
        got = await web.receive()
        more: dict[str, Any] = {"nack": {"delay": 0}, "extend": {"lease": "50s"}}.get(verb, {})
        answer = await web.settle(verb, *got[:2], **more)
        assert answer.json["settled"] == 2
        state = await web.state()
        states = {name: state[name] for name in ("ready", "leased", "floor")}
        assert (
            states
            == {
                "nack": {"ready": 2, "leased": 1, "floor": 0},
                "reject": {"ready": 0, "leased": 1, "floor": 2},
                "extend": {"ready": 0, "leased": 3, "floor": 0},
                "release": {"ready": 2, "leased": 1, "floor": 0},
            }[verb]
        )

    serve_sim(scenario)


def test_mixed_settles() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("a", "b", "c", "d", "e")
        a, b, c, d, e = await web.receive(lease="2s")
        rows = [
            {"lease_token": a["lease_token"]},
            {"lease_token": b["lease_token"], "verb": "nack", "delay": 0, "reason": "later"},
            {"lease_token": c["lease_token"], "verb": "reject", "reason": "bad"},
            {"lease_token": d["lease_token"], "verb": "extend", "lease": "1m"},
            {"lease_token": a["lease_token"], "verb": "nack"},  # it is done with
        ]
        answer = await web.ok("POST", "/v1/messages/settle", {"settles": rows})
        codes = [row["error"] and row["error"]["code"] for row in answer["results"]]
        assert codes == [None, None, None, None, "lease_lost"]
        assert answer["settled"] == 4
        state = await web.state()
        assert (state["floor"], state["ready"], state["leased"]) == (1, 1, 2)
        assert state["dying"] + state["dead"] == 1
        web.sim.advance("3s")
        assert sorted(values(await web.receive())) == ["b", "e"]
        del e

    serve_sim(scenario)


def test_a_token_that_is_named_twice_is_settled_once() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("a", "b")
        a, b = await web.receive()
        answer = await web.settle("ack", a, b, a)
        assert [row["error"] for row in answer.json["results"]] == [None, None, None]
        assert (await web.state())["floor"] == 2

    serve_sim(scenario)


def test_a_late_ack_is_refused_and_the_other_worker_keeps_its_lease() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("x")
        (slow,) = await web.receive(lease="1s", member="slow")
        (quick,) = await web.receive(wait="5s", member="quick")
        assert quick["attempt"] == 2
        late = await web.settle("ack", slow)
        assert (late.status, late.code) == (409, "lease_lost")
        assert "orders/0@0" in late.json["error"]["message"]
        assert (await web.settle("ack", quick)).status == 200

    serve_sim(scenario)


def test_settles_of_what_is_not_there() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("x")
        (one,) = await web.receive()
        token = decode_token(one["lease_token"])
        change = msgspec.structs.replace
        rows: list[tuple[LeaseToken, int, str]] = [
            (change(token, topic="nope"), 404, "unknown_topic"),
            (change(token, partition=7), 404, "unknown_partition"),
            (change(token, group="nobody"), 404, "unknown_group"),
            (change(token, offset=99), 409, "lease_lost"),
            (change(token, term=99), 409, "lease_lost"),
            (change(token, sequence=99), 409, "lease_lost"),
            (change(token, attempt=2), 409, "lease_lost"),
            (change(token, generation=5), 409, "lease_lost"),
            (change(token, term=1 << 61, offset=1 << 61), 409, "lease_lost"),
        ]
        for changed, status, code in rows:
            answer = await web.settle("ack", {"lease_token": encode_token(changed)})
            assert (answer.status, answer.code) == (status, code), changed
        assert (await web.settle("ack", one)).status == 200
        gone = await web.ask("POST", "/v1/topics/nope/groups/g/receive")
        assert (gone.status, gone.code) == (404, "unknown_topic")

    serve_sim(scenario)


# ---------------------------------------------------------------------- the fast form


def test_stored_batches_and_settles_of_ranges() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        sealed = seal([b"a", b"b", b"c", b"d"], [1000] * 4)
        await web.ask(
            "POST", f"/v1/topics/{TOPIC}/partitions/0/messages", sealed, {"Content-Type": BATCH}
        )
        raw = await web.ask("POST", RECEIVE, {"count": 3}, {"Accept": BATCH})
        assert (raw.status, raw.fields["content-type"]) == (200, BATCH)
        assert raw.fields["raftline-partition"] == "0"
        assert raw.fields["raftline-spans"] == "0,3,1,0"
        assert int(raw.fields["raftline-lease-expires-ms"]) > 0
        assert [m.value for m in open_batches(raw.body)] == [b"a", b"b", b"c", b"d"]
        term, sequence = map(int, raw.fields["raftline-lease"].split("."))
        rows = [["ack", term, sequence, 1, 0, [0, 1, 1, 2]], ["nack", term, sequence, 1, 0, [2, 3]]]
        done = await web.ok("POST", RANGES, {"settles": rows, "delay": 0})
        assert done == {"lost": [[], []]}
        again = await web.ok("POST", RANGES, {"settles": rows, "delay": 0})
        assert again == {"lost": [[0, 2], [2, 3]]}
        (two, three) = await web.receive()
        assert sorted((m["offset"], m["attempt"]) for m in (two, three)) == [(2, 2), (3, 1)]
        state = await web.state()
        assert (state["floor"], state["leased"]) == (2, 2)
        empty = await web.ask("POST", RECEIVE, b"", {"Accept": BATCH})
        assert (empty.status, empty.body, empty.fields["raftline-spans"]) == (200, b"", "")

    serve_sim(scenario)


def test_one_ack_after_the_other_from_either_end_and_once_only() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("a", "b", "c", "d", "e")
        raw = await web.ask("POST", RECEIVE, {"count": 5}, {"Accept": BATCH})
        term, sequence = map(int, raw.fields["raftline-lease"].split("."))

        async def ack(start: int, end: int, **more: Any) -> Any:
            rows = [["ack", term, sequence, 1, 0, [start, end]]]
            return (await web.ok("POST", RANGES, {"settles": rows, **more}))["lost"]

        for start, end in ((0, 1), (1, 2), (4, 5), (2, 3)):
            assert await ack(start, end) == [[]]
        assert await ack(1, 2) == [[1, 2]]
        assert (await web.state())["floor"] == 3
        assert await ack(2, 4, reason="thanks") == [[2, 3]]
        state = await web.state()
        assert (state["floor"], state["leased"]) == (5, 0)

    serve_sim(scenario)


# ---------------------------------------------------------------------- bodies that are wrong

BAD_RECEIVES: list[tuple[Any, int, str]] = [
    (b"{count: 1", 400, "invalid_argument"),
    (b"\xff\xfe", 400, "invalid_argument"),
    (b"[]", 400, "invalid_argument"),
    ({"count": "10"}, 400, "invalid_argument"),
    ({"count": 0}, 400, "invalid_argument"),
    ({"count": 10**30}, 400, "invalid_argument"),
    ({"cuont": 1}, 400, "invalid_argument"),
    ({"wait": "soon"}, 400, "invalid_argument"),
    ({"wait": -1}, 400, "invalid_argument"),
    ({"wait": "2m"}, 400, "invalid_argument"),
    ({"lease": 5}, 400, "invalid_argument"),
    ({"lease": "13h"}, 400, "invalid_argument"),
    ({"start": "middle"}, 400, "invalid_argument"),
    ({"partition": -2}, 400, "invalid_argument"),
    ({"partition": 10**30}, 404, "unknown_partition"),
    ({"member": "m" * 250}, 413, "too_large"),
    ({"member": 7}, 400, "invalid_argument"),
    ({"ordered": "yes"}, 400, "invalid_argument"),
]


def test_receives_that_make_no_sense() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("x")
        for body, status, code in BAD_RECEIVES:
            answer = await web.ask("POST", RECEIVE, body)
            assert (answer.status, answer.code) == (status, code), (body, answer.body)
            assert answer.json["error"]["message"]
        long = await web.ask("POST", f"/v1/topics/{TOPIC}/groups/{'g' * 250}/receive")
        assert (long.status, long.code) == (400, "invalid_argument")
        assert values(await web.receive(bytes_max=-5)) == ["x"]

    serve_sim(scenario)


def test_no_group_begins_under_a_name_that_it_could_not_be_deleted_by() -> None:
    """All that names a group refused such a name, but what begins a work group."""

    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("x")
        one = f"/v1/topics/{TOPIC}/partitions/0/groups/%00/lease"
        reset = {"topic": TOPIC, "to": "earliest", "kind": "work", "create": True}
        for method, path, body in (
            ("POST", f"/v1/topics/{TOPIC}/groups/a%0Ab/receive", {}),
            ("GET", f"/topic/{TOPIC}/consume?consumerID=%00", b""),
            ("POST", one, {"query": "q1", "n": 1}),
            ("POST", "/v1/groups/%00/reset", reset),
            ("DELETE", "/v1/groups/%00", b""),
        ):
            answer = await web.ask(method, path, body)
            assert (answer.status, answer.code) == (400, "invalid_argument"), (path, answer.body)
        assert (await web.ok("GET", "/v1/groups"))["groups"] == []

    serve_sim(scenario)


def test_settles_that_make_no_sense() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("x")
        (one,) = await web.receive()
        token = one["lease_token"]
        bad = (400, "invalid_argument")
        rows: list[tuple[str, Any, tuple[int, str]]] = [
            ("ack", b"", bad),
            ("ack", {}, bad),
            ("ack", {"lease_token": 5}, bad),
            ("ack", {"lease_token": "?" * 50}, bad),
            ("ack", {"lease_token": token[:-6]}, bad),
            ("ack", {"lease_token": token[1:]}, bad),
            ("ack", {"lease_token": token + "AAAA"}, bad),
            ("ack", {"lease_token": "x" * 100_000}, bad),
            ("ack", {"lease_token": "é"}, bad),
            ("ack", {"lease_token": token, "receipt_handle": token}, bad),
            ("ack", {"lease_token": token, "lease_tokens": [token]}, bad),
            ("ack", {"lease_tokens": token}, bad),
            ("ack", {"lease_tokens": [token, "no"]}, bad),
            ("ack", {"lease_tokens": [token] * 10_001}, (413, "too_large")),
            ("ack", {"lease_token": token, "colour": "red"}, bad),
            ("ack", {"lease_token": token, "delay": "1s"}, bad),
            ("ack", {"lease_token": token, "lease": "1s"}, bad),
            ("nack", {"lease_token": token, "delay": "-1s"}, bad),
            ("nack", {"lease_token": token, "delay": "169h"}, bad),
            ("nack", {"lease_token": token, "delay": 10**30}, bad),
            ("release", {"lease_token": token, "delay": "1s"}, bad),
            ("release", {"lease_token": token, "lease": "1s"}, bad),
            ("extend", {"lease_token": token}, bad),
            ("extend", {"lease_token": token, "lease": 0}, bad),
            ("extend", {"lease_token": token, "lease": "13h"}, bad),
            ("extend", {"lease_token": token, "lease": 5000, "extension_seconds": 5}, bad),
            ("visibility", {"lease_token": token, "extension_seconds": 10**30}, bad),
            ("visibility", {"lease_token": token, "extension_seconds": 10**4299}, bad),
            ("visibility", {"lease_token": token, "extension_seconds": "5"}, bad),
            ("settle", {"settles": []}, bad),
            ("settle", {"settles": [{}]}, bad),
            ("settle", {"settles": [{"lease_token": token, "verb": "eat"}]}, bad),
            ("settle", {"settles": [{"lease_token": token, "verb": "extend"}]}, bad),
            ("settle", {"settles": {}}, bad),
        ]
        for verb, body, expected in rows:
            answer = await web.ask("POST", f"/v1/messages/{verb}", body)
            assert (answer.status, answer.code) == expected, (verb, str(body)[:100], answer.body)
        assert (await web.settle("ack", one)).status == 200

    serve_sim(scenario)


def test_ranges_that_make_no_sense() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("x")
        await web.receive()
        bad = (400, "invalid_argument")
        rows: list[tuple[Any, tuple[int, str]]] = [
            ({"settles": []}, bad),
            ({"settles": [["ack", 1, 1, 1, 0]]}, bad),
            ({"settles": [["eat", 1, 1, 1, 0, [0, 1]]]}, bad),
            ({"settles": [["ack", 1, 1, 1, 0, [0]]]}, bad),
            ({"settles": [["ack", 1, 1, 1, 0, []]]}, bad),
            ({"settles": [["ack", 1, 1, 1, 0, [5, 5]]]}, bad),
            ({"settles": [["ack", 1, 1, 1, 0, [9, 2]]]}, bad),
            ({"settles": [["ack", 1, 1, 1, 0, [-1, 2]]]}, bad),
            ({"settles": [["ack", 1, 1, 1, 0, [0, 10**40]]]}, bad),
            ({"settles": [["ack", 10**40, 1, 1, 0, [0, 1]]]}, bad),
            ({"settles": [["ack", 1, 1, -1, 0, [0, 1]]]}, bad),
            ({"settles": [["ack", "1", 1, 1, 0, [0, 1]]]}, bad),
            ({"settles": [["ack", 1, 1, 1, 0, [0, 1] * 20_001]]}, (413, "too_large")),
            ({"settles": [["extend", 1, 1, 1, 0, [0, 1]]]}, bad),
        ]
        for body, expected in rows:
            answer = await web.ask("POST", RANGES, body)
            assert (answer.status, answer.code) == expected, (str(body)[:100], answer.body)
        far = await web.ok("POST", RANGES, {"settles": [["ack", 1, 1, 1, 0, [5, (1 << 62) - 1]]]})
        assert far == {"lost": [[5, (1 << 62) - 1]]}
        where = RANGES.replace("/0/", "/x/")
        assert (await web.ask("POST", where, {"settles": []})).status == 400
        nobody = RANGES.replace(GROUP, "nobody")
        answer = await web.ask("POST", nobody, {"settles": [["ack", 1, 1, 1, 0, [0, 1]]]})
        assert (answer.status, answer.code) == (404, "unknown_group")
        assert (await web.state())["leased"] == 1

    serve_sim(scenario)


# ---------------------------------------------------------------------- their parts


def test_tokens_go_round_and_garbage_is_refused() -> None:
    token = LeaseToken("orders", 3, "workers", 7, 12, 45678, 2, 1)
    text = encode_token(token)
    assert decode_token(text) == token
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    longest = LeaseToken("t" * 249, 9999, "\U0001f600" * 249, 1 << 40, 1 << 40, 1 << 61, 9, 9)
    assert decode_token(encode_token(longest)) == longest
    huge = msgspec.msgpack.encode(["t", 0, "g", 1, 1, (1 << 64) - 1, 1, 0])
    negative = msgspec.msgpack.encode(["t", 0, "g", 1, 1, -5, 1, 0])
    long = msgspec.msgpack.encode(["t", 0, "g", 1, 1, 5, 1, 0, 7, 8])
    for raw in (huge, negative, b"", b"\x93", long + b"more"):
        with pytest.raises(InvalidArgument):
            decode_token(base64.urlsafe_b64encode(raw).decode().rstrip("="))


def test_opened_batches_are_shared_and_bounded() -> None:
    opened = OpenedBatches()
    batch = seal([b"a", b"b"], [1000] * 2)
    first = opened.pick("t", 0, batch, [0, 2, 1, 0])
    assert opened.pick("t", 0, batch, [1, 2, 1, 0])[0] is first[1]
    large = seal([bytes(BYTES_MAX // 3)] * 2, [1000] * 2)
    for partition in range(4):
        opened.pick("t", partition, large, [0, 2, 1, 0])
        assert opened._bytes <= BYTES_MAX
    assert opened.pick("t", 0, batch, [1, 2, 1, 0])[0] is not first[1]


@pytest.mark.parametrize("where", [-1, 0])
def test_a_worker_that_is_gone_gets_nothing_and_costs_no_attempt(where: int) -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=2)
        await web.receive()
        for _ in range(3):
            gone = await web.web.client()
            gone.send(request("POST", RECEIVE, {"wait": "30s", "partition": where}))
            for _ in range(5):
                assert (await web.ask("GET", "/health")).status == 200
            gone.close()
        for _ in range(5):
            assert (await web.ask("GET", "/health")).status == 200
        await web.publish("x", partition=0)
        (got,) = await web.receive(wait="2s")
        assert (got["value"], got["attempt"]) == ("x", 1)
        assert (await web.settle("ack", got)).status == 200

    serve_sim(scenario)


# ---------------------------------------------------------------------- a lot at once


async def lease_many(web: SimWeb, count: int) -> tuple[int, int]:
    """Publish and lease so many messages; return term and sequence of the lease."""
    await web.create()
    for at in range(0, count, 1_000):
        await web.publish(*[str(n) for n in range(at, min(count, at + 1_000))])
    got = await web.receive(count=count, bytes_max=8 << 20, lease="60s")
    assert len(got) == count
    token = decode_token(got[0]["lease_token"])
    return token.term, token.sequence


def test_ranges_of_many_pieces() -> None:
    async def scenario(web: SimWeb) -> None:
        count = 8 * PIECE_ROWS
        lease = await lease_many(web, count)
        even = [edge for o in range(0, count, 2) for edge in (o, o + 1)]
        odd = [edge for o in range(1, count, 2) for edge in (o, o + 1)]
        ack, rest = ["ack", *lease, 1, 0, even], ["ack", *lease, 1, 0, odd]
        assert await web.ok("POST", RANGES, {"settles": [ack]}) == {"lost": [[]]}
        body = {"settles": [ack, ["extend", *rest[1:]]], "lease": "30s"}
        again = await web.ok("POST", RANGES, body)
        assert again == {"lost": [even, []]}  # told range by range, in their order
        state = await web.state()
        assert (state["leased"], state["fresh"]) == (count // 2, 0)
        assert await web.ok("POST", RANGES, {"settles": [rest]}) == {"lost": [[]]}
        assert (await web.state())["floor"] == count

    serve_sim(scenario)


def test_tokens_of_many_pieces() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        count = 3 * PIECE_ROWS
        await web.publish(*[str(n) for n in range(count)])
        got = await web.receive(count=count, bytes_max=8 << 20)
        reply = (await web.settle("ack", *got)).json
        assert reply["settled"] == count
        again = await web.settle("nack", *got)
        assert (again.status, again.code) == (409, "lease_lost")

    serve_sim(scenario)


@pytest.mark.parametrize("form", ["ranges", "tokens"])
def test_a_call_that_ends_in_the_midst_says_what_is_settled(form: str) -> None:
    """The majority goes away between two pieces: what is left is named, and may be sent again."""

    async def scenario(web: SimWeb) -> None:
        sim, count = web.sim, 8 * PIECE_ROWS
        term, sequence = await lease_many(web, count)
        sim.advance(1)
        leader, others = lead(sim, TOPIC)
        asked = list(range(0, count, 2))
        group = host(sim, leader, TOPIC).machine.delivery.groups[GROUP]
        if form == "ranges":
            flat = [edge for o in asked for edge in (o, o + 1)]
            path, body = RANGES, {"settles": [["ack", term, sequence, 1, 0, flat]]}
        else:
            made = [LeaseToken(TOPIC, 0, GROUP, term, sequence, o, 1, 0) for o in asked]
            path, body = "/v1/messages/ack", {"lease_tokens": [encode_token(t) for t in made]}
        web.client.send(request("POST", path, body))
        for _ in range(1_000):
            await asyncio.sleep(0)
            sim.advance(0.0005)
            if group.is_settled(2 * PIECE_ROWS):
                break
        for name in others:
            sim.cut(leader, name)
        reply = await web.wait(web.client)
        if form == "ranges":
            assert (reply.status, reply.code) == (504, "timed_out")
            assert reply.json["lost"] == [[]]
            left = reply.json["failed"][0][::2]
        else:
            assert reply.status == 200
            rows = zip(asked, reply.json["results"], strict=True)
            codes = {offset: row["error"] and row["error"]["code"] for offset, row in rows}
            left = [offset for offset, code in codes.items() if code]
            assert {codes[offset] for offset in left} <= {"timed_out", "not_leader", "no_leader"}
        assert 0 < len(left) < len(asked)
        assert all(group.is_settled(o) for o in asked if o not in left)
        for name in others:
            sim.uncut(leader, name)

    serve_sim(scenario, nodes=3)


def test_the_name_of_a_priority_is_read_as_the_topic_has_it_by_now() -> None:
    """A head is parsed once and kept; the names that a topic knows are a setting of it."""

    async def scenario(web: SimWeb) -> None:
        await web.create(lanes=3)
        batch = seal_batch([(None, b"x", (), 1)])
        fields = {
            "Content-Type": BATCH,
            "Raftline-Priority": "critical",
        }
        paths = [f"/v1/topics/{TOPIC}/messages", f"/v1/topics/{TOPIC}/partitions/0/messages"]
        for path in paths:
            assert (await web.ask("POST", path, batch, fields)).status == 400
        await web.ok("PATCH", f"/v1/topics/{TOPIC}", {"settings": {"lanes": 5}})
        for path in paths:
            assert (await web.ask("POST", path, batch, fields)).status == 200
        await web.ok("PATCH", f"/v1/topics/{TOPIC}", {"settings": {"lanes": 3}})
        for path in paths:
            assert (await web.ask("POST", path, batch, fields)).status == 400

    serve_sim(scenario)
