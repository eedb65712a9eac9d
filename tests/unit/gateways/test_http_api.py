"""The routes: what they take, answer and refuse."""

import asyncio

import pytest

from raftline.config.settings import LimitSettings, Settings, TopicSettings
from raftline.gateways.message_ids import message_id, parse_message_id
from raftline.model.batch import split_batches
from raftline.model.errors import InvalidArgument, NotEnoughNodes, TimedOut
from raftline.model.records import open_batches, seal_batch
from tests.unit.gateways.web import BATCH, Web, serve

MESSAGES = "/v1/topics/orders/messages"
ONE = "/v1/topics/orders/partitions/1"


def sealed(*values: bytes, at_ms: int = 1_000) -> bytes:
    return seal_batch([(None, value, (), at_ms + i) for i, value in enumerate(values)])


def test_publish_groups_by_partition_and_gives_each_message_its_place() -> None:
    async def scenario(web: Web) -> None:
        web.node.topic("orders")
        client = await web.client()
        items = [{"key": "a", "value": str(i), "partition": i % 2} for i in range(10)]
        reply = await client.ask("POST", MESSAGES, {"messages": items})
        assert reply.status == 200
        assert reply.json["results"] == [
            {"id": f"orders.{i % 2}.{i // 2}", "partition": i % 2, "offset": i // 2, "error": None}
            for i in range(10)
        ]
        assert [len(log) for log in web.node.logs["orders"]] == [1, 1, 0]  # one batch each
        stored = open_batches(web.node.logs["orders"][1][0][1])
        assert [message.value for message in stored] == [b"1", b"3", b"5", b"7", b"9"]

    serve(scenario)


def test_the_same_key_goes_to_the_same_partition_and_keyless_ones_take_turns() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        keyed = [{"key": "user-7", "value": "x"}] * 5
        first = (await client.ask("POST", MESSAGES, {"messages": keyed})).json["results"]
        assert len({row["partition"] for row in first}) == 1
        assert [row["offset"] for row in first] == [0, 1, 2, 3, 4]
        free = [{"value": "x"}] * 6
        rows = (await client.ask("POST", MESSAGES, {"messages": free})).json["results"]
        assert {row["partition"] for row in rows} == {0, 1, 2}
        for _ in range(3):
            await client.ask("POST", MESSAGES, {"messages": [{"value": "one"}]})
        assert web.node.commands == [("topic.create", {"name": "orders"})]

    serve(scenario)


def test_a_new_topic_is_waited_for() -> None:
    async def scenario(web: Web) -> None:
        web.node.hidden = 3
        client = await web.client()
        reply = await client.ask("POST", MESSAGES, {"messages": [{"value": "x"}]})
        assert reply.json["results"][0]["offset"] == 0
        web.node.hidden = 10**9
        web.node.topic("late")
        path = "/v1/topics/late/messages?timeout_ms=50"
        reply = await client.ask("POST", path, {"messages": [{"value": "x"}]})
        assert (reply.status, reply.code) == (503, "not_ready")

    serve(scenario)


def test_without_auto_create_an_unknown_topic_is_refused() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        for body, fields in (
            ({"messages": [{"value": "x"}]}, {}),
            (sealed(b"x"), {"Content-Type": BATCH}),
        ):
            reply = await client.ask("POST", MESSAGES, body, fields)
            assert (reply.status, reply.code) == (404, "unknown_topic")

    serve(scenario, Settings(topics=TopicSettings(auto_create=False)))


BAD_ITEMS = [
    {},
    {"value": "x", "value_base64": "eA=="},
    {"value_base64": "?"},
    {"value": "x", "key": "k" * 70_000},
    {"value": "x", "timestamp": -1},
    {"value": "x", "partition": -1},
    {"value": "x", "headers": {f"h{i}": "" for i in range(101)}},
    {"value": "x", "headers": {"h": "v" * 70_000}},
    {"value": "x", "priority": 128},
    {"value": "x", "priority": "-129"},
    {"value": "x", "priority": "urgent"},
    {"value": "x", "priority": 5, "headers": {f"h{i}": "" for i in range(100)}},
    {"value": "x", "delay": "5 minutes"},
    {"value": "x", "delay": -1},
    {"value": "x", "delay": "169h"},
    {"value": "x", "deliverAt": "tomorrow"},
    {"value": "x", "deliver_at": "2999-01-01T00:00:00Z"},
    {"value": "x", "deliverAt": "2026-01-01T00:00:00Z", "deliver_at": 5},
    {"value": "x", "delay": 5, "deliver_at": 5},
    {"value": "x", "dedup_key": ""},
    {"value": "x", "dedup_key": "k" * 1025},
    {"value": "?", "encoding": "base64"},
]


@pytest.mark.parametrize("item", BAD_ITEMS, ids=range(len(BAD_ITEMS)))
def test_a_bad_item_does_not_hold_up_the_others(item: dict[str, object]) -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        reply = await client.ask("POST", MESSAGES, {"messages": [{"value": "a"}, item]})
        good, bad = reply.json["results"]
        assert good["error"] is None
        assert bad["error"]["code"] in {"invalid_argument", "too_large"}

    serve(scenario)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b'{"messages":[]}', b'{"messages":[{"value":5}]}', b"\xff\xfe",
        b'{"messages":[{"valeu":"x"}]}', b'{"message":[]}', b'{"messages":[{"value":"\xff"}]}',
        b'{"messages":[' + b'{"value":""},' * 10_000 + b'{"value":""}]}',
    ],
)  # fmt: skip
def test_a_body_that_is_no_publish_stores_nothing(body: bytes) -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        reply = await client.ask("POST", MESSAGES, body)
        assert reply.status in {400, 413}
        assert reply.json["error"]["hint"]
        assert web.node.logs == {}

    serve(scenario)


def test_a_partition_that_is_not_there_fails_only_its_messages() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        items = [{"value": "a", "partition": 9}, {"value": "b", "partition": 0}]
        reply = await client.ask("POST", MESSAGES, {"messages": items})
        missing, stored = reply.json["results"]
        assert missing["error"]["code"] == "unknown_partition"
        assert missing["partition"] == 9
        assert stored["offset"] == 0
        path = ONE + "/messages"
        reply = await client.ask("POST", path, {"messages": [{"value": "c", "partition": 2}]})
        assert reply.status == 400
        reply = await client.ask("POST", path, {"messages": [{"value": "c"}]})
        assert reply.json["results"][0]["partition"] == 1

    serve(scenario)


def test_messages_larger_than_a_batch_together_are_cut_into_several() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        items = [{"value": "x" * 1_000_000, "partition": 0} for _ in range(14)]
        reply = await client.ask("POST", MESSAGES, {"messages": items})
        assert [row["offset"] for row in reply.json["results"]] == list(range(14))
        assert len(web.node.logs["orders"][0]) > 1
        one = [{"value": "x" * 13_000_000, "partition": 0}, {"value": "y", "partition": 0}]
        reply = await client.ask("POST", MESSAGES, {"messages": one})
        large, small = reply.json["results"]
        assert large["error"]["code"] == "batch_too_large"
        assert small["offset"] == 14

    serve(scenario)


def test_read_returns_what_was_sent_whatever_the_bytes() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        odd = {
            "key_base64": "/w==",
            "value_base64": "/wA=",
            "headers": {"a": ["1", "2", None], "b": None, "\u00e9": "\u00e9"},
            "headers_base64": {"c": "/w==", "d": ["/w==", "/g==", "/Q=="]},
            "timestamp": 1_234,
        }
        plain = {"key": "k", "value": "h\u00e9llo", "timestamp": 5}
        null = {"value": None, "timestamp": 6}
        await client.ask("POST", ONE + "/messages", {"messages": [odd, plain, null]})
        reply = await client.ask("GET", ONE + "/messages?offset=0")
        assert reply.json["messages"] == [
            {"id": "orders.1.0", "offset": 0, "key": None, "value": None, **odd},
            {"id": "orders.1.1", "offset": 1, "headers": {}, **plain},
            {"id": "orders.1.2", "offset": 2, "headers": {}, "key": None, **null},
        ]
        assert (reply.json["next_offset"], reply.json["commit_end"]) == (3, 3)
        assert reply.json["log_start"] == 0

    serve(scenario)


def test_read_starts_at_the_offset_and_stops_at_the_limit() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        fields = {"Content-Type": BATCH}
        for i in range(5):
            await client.ask("POST", ONE + "/messages", sealed(b"%d" % i, b"+", b"-"), fields)
        seen: list[int] = []
        offset = 1
        while offset < 15:
            path = f"{ONE}/messages?offset={offset}&limit=4"
            reply = (await client.ask("GET", path)).json
            assert 0 < len(reply["messages"]) <= 4
            seen += [row["offset"] for row in reply["messages"]]
            offset = reply["next_offset"]
        assert seen == list(range(1, 15))
        end = (await client.ask("GET", ONE + "/messages?offset=15")).json
        assert (end["messages"], end["next_offset"]) == ([], 15)
        beyond = await client.ask("GET", ONE + "/messages?offset=16")
        assert (beyond.status, beyond.code) == (416, "offset_out_of_range")

    serve(scenario)


def test_raw_read_is_the_stored_bytes() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        body = sealed(b"a", b"b") + sealed(b"c")
        reply = await client.ask("POST", ONE + "/messages", body, {"Content-Type": BATCH})
        assert [row["base_offset"] for row in reply.json["results"]] == [0, 2]
        raw = await client.ask("GET", ONE + "/messages", b"", {"Accept": BATCH})
        assert raw.fields["content-type"] == BATCH
        assert raw.fields["raftline-log-start"] == "0"
        assert raw.fields["raftline-commit-end"] == "3"
        assert len(split_batches(raw.body)) == 2
        assert [m.value for m in open_batches(raw.body)] == [b"a", b"b", b"c"]

    serve(scenario)


def test_a_read_at_the_end_waits_for_the_next_message() -> None:
    async def scenario(web: Web) -> None:
        web.node.topic("orders")
        reader, writer = await web.client(), await web.client()
        reader.send(b"GET " + ONE.encode() + b"/messages?wait_ms=5000 HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(0.02)
        await writer.ask("POST", ONE + "/messages", {"messages": [{"value": "news"}]})
        assert (await reader.reply()).json["messages"][0]["value"] == "news"

    serve(scenario)


def test_batches_are_checked_before_any_is_stored() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        fields = {"Content-Type": BATCH}
        damaged = bytearray(sealed(b"b"))
        damaged[-1] ^= 1
        for body in (b"", b"x", bytes(70), sealed(b"a") + bytes(damaged), bytes(damaged)):
            reply = await client.ask("POST", ONE + "/messages", body, fields)
            assert reply.status == 400, body
            assert reply.code in {"corrupt_batch", "invalid_argument"}
        assert web.node.logs == {}

    serve(scenario)


def test_batches_without_a_partition_take_turns() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        rows = [
            (await client.ask("POST", MESSAGES, sealed(b"a"), {"Content-Type": BATCH})).json
            for _ in range(6)
        ]
        assert sorted(row["results"][0]["partition"] for row in rows) == [0, 0, 1, 1, 2, 2]

    serve(scenario)


def test_offsets_by_time_are_exact_to_the_message() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        fields = {"Content-Type": BATCH}
        await client.ask("POST", ONE + "/messages", sealed(b"a", b"b", b"c"), fields)
        await client.ask("POST", ONE + "/messages", sealed(b"d", b"e", at_ms=2_000), fields)
        for time_ms, offset, at_ms in (
            (0, 0, 1_000), (1_001, 1, 1_001), (1_003, 3, 2_000), (2_001, 4, 2_001), (2_002, -1, -1),
        ):  # fmt: skip
            reply = (await client.ask("GET", f"{ONE}/offsets?time={time_ms}")).json
            assert reply == {"offset": offset, "timestamp": at_ms, "commit_end": 5}
        assert (await client.ask("GET", f"{ONE}/offsets")).json == {"log_start": 0, "commit_end": 5}

    serve(scenario)


def test_a_log_begins_with_its_first_message_also_if_that_has_no_time() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        for at_ms in (-1, 2_000):
            batch = sealed(b"a", at_ms=at_ms)
            await client.ask("POST", ONE + "/messages", batch, {"Content-Type": BATCH})
        assert (await client.ask("GET", f"{ONE}/offsets")).json == {"log_start": 0, "commit_end": 2}
        assert (await client.ask("GET", f"{ONE}/offsets?time=0")).json["offset"] == 1

    serve(scenario)


def test_topics() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        body = {
            "name": "orders",
            "num_partitions": 2,
            "replication_factor": 1,
            "settings": {"a": 1},
        }
        made = await client.ask("POST", "/v1/topics", body)
        assert (made.status, made.json["name"]) == (201, "orders")
        assert web.node.commands[-1] == (
            "topic.create",
            {"name": "orders", "settings": {"a": 1}, "partitions": 2, "replication_factor": 1},
        )
        again = await client.ask("POST", "/v1/topics", {"name": "orders"})
        assert (again.status, again.code) == (409, "topic_exists")
        listed = (await client.ask("GET", "/v1/topics")).json["topics"]
        assert [(row["name"], row["num_partitions"]) for row in listed] == [("orders", 2)]
        shown = (await client.ask("GET", "/v1/topics/orders")).json
        assert [row["partition"] for row in shown["partitions"]] == [0, 1]
        parts = (await client.ask("GET", "/v1/topics/orders/partitions")).json["partitions"]
        assert parts[0]["leader"] == 1
        await client.ask("PATCH", "/v1/topics/orders", {"settings": {"retention_ms": 5}})
        assert web.node.commands[-1] == (
            "topic.set",
            {"name": "orders", "settings": {"retention_ms": 5}},
        )
        gone = await client.ask("DELETE", "/v1/topics/orders")
        assert gone.json["deleted"] is True
        for method in ("GET", "DELETE"):
            reply = await client.ask(method, "/v1/topics/nope")
            assert (reply.status, reply.code) == (404, "unknown_topic")

    serve(scenario)


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"name":5}', b'{"name":"a","num_partitions":0}', b'{"name":"a","x":1}']
)
def test_a_topic_that_cannot_be(body: bytes) -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        reply = await client.ask("POST", "/v1/topics", body)
        assert (reply.status, reply.code) == (400, "invalid_argument")
        assert web.node.commands == []

    serve(scenario)


def test_producers() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        reply = await client.ask("POST", "/v1/producers")
        assert reply.json == {"producer_id": 41, "epoch": 0}

    serve(scenario)


def test_the_cluster() -> None:
    async def scenario(web: Web) -> None:
        web.node.topic("orders")
        client = await web.client()
        assert (await client.ask("GET", "/")).fields["content-type"].startswith("text/plain")
        assert (await client.ask("GET", "/health")).json["status"] == "ready"
        web.node.ready = False
        sick = await client.ask("GET", "/health")
        assert (sick.status, sick.json["reason"]) == (503, "no catalog leader is known")
        status = (await client.ask("GET", "/v1/cluster")).json
        assert status["nodes"][0]["name"] == "n1"
        assert status["topics"][0]["name"] == "orders"
        assert (await client.ask("POST", "/v1/cluster/verify")).json["identical"] is True
        shards = (await client.ask("GET", "/shards-info?topics=orders,none")).json["shards"]
        assert shards[0] == {
            "topic": "orders", "partition": 0, "shard": 100, "leader": 1, "replicas": [1],
        }  # fmt: skip
        assert (await client.ask("GET", "/shards-info?topics=none")).json["shards"] == []

    serve(scenario)


def test_administration() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        for verb, body in {
            "add": {"name": "node-4", "address": "127.0.0.1:7003"},
            "remove": {"node": 3, "force": False},
            "replace": {"node": "node-3", "by": 4},
            "move": {"topic": "t", "partition": 0, "from_node": 1, "to_node": 2},
            "transfer": {"topic": "t", "partition": 0, "to_node": 2},
            "recover": {"accept_loss": True},
        }.items():
            assert (await client.ask("POST", f"/v1/cluster/{verb}", body)).status == 200
            assert web.node.commands[-1] == (f"cluster.{verb}", body)
            wrong = await client.ask("POST", f"/v1/cluster/{verb}", {"x": 1})
            assert (wrong.status, wrong.code) == (400, "invalid_argument")
        web.node.refuse = NotEnoughNodes("topic t", 3, 1)
        reply = await client.ask("POST", "/v1/cluster/remove", {"node": 3})
        assert (reply.status, reply.code) == (400, "not_enough_nodes")

    serve(scenario)


def test_wrong_paths_methods_and_parameters() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        for path in ("/nope", "/v1", "/v1/topics//messages", "/v1/topics/a/b/c/d", "*"):
            reply = await client.ask("GET", path)
            assert (reply.status, reply.code) == (404, "unknown_route")
        reply = await client.ask("PUT", "/v1/topics")
        assert (reply.status, reply.code) == (405, "unknown_method")
        assert reply.fields["allow"] == "GET, POST"
        assert (await client.ask("GET", "/v1/topics/")).status == 200
        for path in (
            ONE + "/messages?ofset=1", ONE + "/messages?offset=x", ONE + "/messages?offset=-1",
            ONE + "/messages?limit=0", ONE + "/messages?offset=" + "9" * 30,
            "/v1/topics/orders/partitions/x/messages", ONE + "/messages?linearizable=maybe",
            "/health?timeout_ms=0", "/health?timeout_ms=60001", "/health?x=1",
        ):  # fmt: skip
            reply = await client.ask("GET", path)
            assert (reply.status, reply.code) == (400, "invalid_argument"), path

    serve(scenario)


def test_timeouts_reach_the_node() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        fields = {"Content-Type": BATCH}
        await client.ask("POST", ONE + "/messages", sealed(b"a"), fields)
        await client.ask("POST", ONE + "/messages?timeout_ms=7", sealed(b"a"), fields)
        fields["Raftline-Timeout-Ms"] = "9"
        await client.ask("POST", ONE + "/messages", sealed(b"a"), fields)
        assert web.node.timeouts == [1_234, 7, 9]
        web.node.refuse = TimedOut("append", 9)
        reply = await client.ask("POST", ONE + "/messages", sealed(b"a"), fields)
        assert (reply.status, reply.code) == (504, "timed_out")

    serve(scenario, Settings(limits=LimitSettings(timeout_ms=1_234)))


def test_message_ids() -> None:
    assert message_id("a.b-c_d", 3, 44) == "a.b-c_d.3.44"
    assert parse_message_id("a.b-c_d.3.44") == ("a.b-c_d", 3, 44)
    assert parse_message_id("orders/2@45678") == ("orders", 2, 45678)
    for bad in ("", "x", "a.b", "a.1.b", "..", ".1.2", "a.-1.2"):
        with pytest.raises(InvalidArgument):
            parse_message_id(bad)
