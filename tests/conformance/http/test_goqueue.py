"""GoQueue's dialect on whole nodes: its published routes, with and without /v1."""

from base64 import b64encode
from typing import Any

import pytest

from raftline.gateways.http.dialects.goqueue import SEARCH_NAMES
from tests.unit.gateways.sim_web import SimWeb, serve_sim, words

VALUE = "eyJvcmRlcl9pZCI6MTIzfQ=="  # {"order_id":123}


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_publish_in_base64(prefix: str) -> None:
    async def scenario(web: SimWeb) -> None:
        path = f"{prefix}/topics/orders/publish"
        later = await web.ok("POST", path, {"key": "order-123", "value": VALUE, "delay": "5m"})
        assert (later["delayed"], later["offset"], later["topic"]) == (True, None, "orders")
        now = await web.ok("POST", path, {"key": "order-123", "value": VALUE, "priority": "high"})
        where = f"{prefix}/topics/orders/partitions/{now['partition']}/messages"
        (read,) = (await web.ok("GET", where))["messages"]
        assert (read["value"], read["key"]) == ('{"order_id":123}', "order-123")
        text = await web.ok("POST", path, {"value": "plain", "encoding": "text", "partition": 0})
        assert text["partition"] == 0
        waiting = await web.ok("GET", f"{prefix}/topics/orders/delayed")
        assert [row["id"] for row in waiting["messages"]] == [later["id"]]
        stats = await web.ok("GET", f"{prefix}/delay/stats")
        assert (stats["total_pending"], stats["by_topic"]) == (1, {"orders": 1})
        web.sim.advance("301s")
        assert (await web.ok("GET", f"{prefix}/delay/stats"))["total_delivered"] == 1
        for body in ({"value": "not base64!"}, {"key": "k"}, {"value": VALUE, "delay": "169h"}):
            assert (await web.ask("POST", path, body)).status == 400
        bad = await web.ask("POST", path, {"value": VALUE, "encoding": "rot13"})
        assert bad.status == 400

    serve_sim(scenario)


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_topics(prefix: str) -> None:
    async def scenario(web: SimWeb) -> None:
        body = {"name": "orders", "num_partitions": 3, "retention_hours": 24}
        made = await web.ask("POST", f"{prefix}/topics", body)
        assert made.status == 201
        told = {name: made.json[name] for name in ("created", "name", "partitions")}
        assert told == {"created": True, "name": "orders", "partitions": 3}
        shown = await web.ok("GET", f"{prefix}/topics/orders")
        assert shown["settings"]["retention_ms"] == 24 * 3_600_000
        rows = [{"key": "k", "value": "v", "priority": "critical"}, {"value": "w"}]
        path = f"{prefix}/topics/orders/messages"
        sent = (await web.ok("POST", path, {"messages": rows}))["results"]
        assert len(sent) == 2
        assert len((await web.ok("GET", f"{prefix}/topics"))["topics"]) == 1
        assert (await web.ask("DELETE", f"{prefix}/topics/orders")).json["deleted"] is True
        assert (await web.ask("GET", f"{prefix}/topics/orders")).status == 404

    serve_sim(scenario)


async def join(web: SimWeb, client: str = "c") -> dict[str, Any]:
    body = {"client_id": client, "topics": ["orders"]}
    return await web.ok("POST", "/groups/processors/join", body)


async def poll(web: SimWeb, member: dict[str, Any], more: str = "") -> dict[str, Any]:
    who = f"member_id={member['member_id']}&generation={member['generation']}"
    answer = await web.ok("GET", f"/groups/processors/poll?{who}{more}")
    member["generation"] = answer["generation"]
    return answer


def test_polls_lease_and_receipts_settle() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=1, max_retries=1)
        await web.publish("a", "b", "c", "d")
        member = await join(web)
        got = (await poll(web, member))["messages"]["0"]
        assert [row["value"] for row in got] == ["a", "b", "c", "d"]
        assert (await poll(web, member))["messages"] == {}
        handles = [row["receipt_handle"] for row in got]
        acked = await web.ok("POST", "/messages/ack", {"receipt_handle": handles[0]})
        assert (acked["success"], acked["offset"]) == (True, 0)
        await web.ok("POST", "/messages/nack", {"receipt_handle": handles[1], "reason": "busy"})
        await web.ok("POST", "/messages/reject", {"receipt_handle": handles[2], "reason": "bad"})
        body = {"receipt_handle": handles[3], "extension_seconds": 60}
        await web.ok("POST", "/messages/visibility", body)
        held = await web.ok("GET", "/reliability/stats")
        assert held["visibility_tracker"]["current_in_flight"] == 1
        assert held["dlq"]["total_routed"] == 1
        web.sim.advance(0.9)
        assert (await poll(web, member))["messages"] == {}
        web.sim.advance(0.2)  # the nack's backoff is over; the ack never comes back
        again = (await poll(web, member))["messages"]["0"]
        assert [row["value"] for row in again] == ["b"]
        unknown = await web.ask("POST", "/messages/ack", {"receipt_handle": "nonsense"})
        assert unknown.status == 400
        twice = await web.ask("POST", "/messages/ack", {"receipt_handle": handles[0]})
        assert twice.status == 409

    serve_sim(scenario)


def test_a_poll_waits_and_keeps_the_member() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=2)
        member = await join(web)
        for _ in range(5):  # longer than a session; polls are heartbeats
            assert (await poll(web, member, "&timeout=10s"))["messages"] == {}
        await web.publish("x", delay="3s")
        assert (await poll(web, member, "&timeout=20s&limit=1"))["messages"]
        for _ in range(8):
            web.sim.advance("5s")
        who = f"member_id={member['member_id']}&generation={member['generation']}"
        gone = await web.ask("GET", f"/groups/processors/poll?{who}")
        assert (gone.status, gone.code) == (404, "unknown_member")

    serve_sim(scenario)


def test_polls_of_a_member_begin_with_another_partition_each_time() -> None:
    """One that is never empty keeps nobody from the others, also where two members take turns."""

    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=4)
        one, two = await join(web, "a"), await join(web, "b")
        for _ in range(3):
            await poll(web, one)
            await poll(web, two)
        await web.publish(*[f"m{n}" for n in range(40)])
        seen: list[set[str]] = [set(), set()]
        for _ in range(2):
            for at, member in enumerate((one, two)):
                seen[at] |= set((await poll(web, member, "&limit=2"))["messages"])
        assert [len(partitions) for partitions in seen] == [2, 2]

    serve_sim(scenario)


def test_two_members_share_the_partitions() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=4)
        one, two = await join(web, "a"), await join(web, "b")
        for _ in range(3):  # hear of each other, give up, take over
            await poll(web, one)
            await poll(web, two)
        await web.publish(*[f"m{n}" for n in range(40)])
        first, second = await poll(web, one), await poll(web, two)
        assert len(first["messages"]) == len(second["messages"]) == 2
        assert not set(first["messages"]) & set(second["messages"])
        for path in ("join", "heartbeat", "leave"):  # its names for what is always so here
            reply = await web.ask("POST", f"/groups/processors/{path}/cooperative", {})
            assert (reply.status, reply.code) == (400, "invalid_argument")

    serve_sim(scenario)


def test_traces() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=2)
        sent = await web.publish("x", key="k1")
        await web.publish("y", key="k2")
        (got,) = [m for m in await web.receive(count=10) if m["id"] == sent[0]["id"]] or [None]
        if got is None:
            (got,) = [m for m in await web.receive(count=10) if m["id"] == sent[0]["id"]]
        await web.settle("ack", got)
        listed = await web.ok("GET", "/traces?limit=10")
        assert {row["trace_id"] for row in listed["traces"]} >= {sent[0]["id"]}
        assert listed["total"] == 2
        told = await web.ok("GET", f"/traces/{sent[0]['id']}")
        story = ["PUBLISHED", "REPLICATED", "DELIVERED", "ACKNOWLEDGED", "RETAINED"]
        assert words(told) == story
        found = await web.ok(
            "GET", "/traces/search?topic=orders&consumer_group=workers&status=completed"
        )
        assert [row["id"] for row in found["messages"]] == [sent[0]["id"]]
        assert (await web.ok("GET", "/traces/stats"))["enabled"] is True
        assert set(SEARCH_NAMES) == {"consumer_group", "start", "end", "status"}

    serve_sim(scenario)


def test_the_node() -> None:
    async def scenario(web: SimWeb) -> None:
        for path in ("/healthz", "/livez", "/readyz"):
            assert (await web.ok("GET", path))["status"] == "pass"
        health = await web.ok("GET", "/health")
        assert health["status"] == "ready"
        assert health["timestamp"].endswith("Z")
        config = await web.ok("GET", "/admin/config")
        assert config["defaults"]["delivery"]["maxRetries"] == 3
        assert config["broker"]["listeners"]["http"]
        assert (await web.ok("GET", "/version"))["name"] == "raftline"
        assert "producer_id" in await web.ok("POST", "/producers/init", {})
        later = await web.ask("POST", "/producers/init", {"transactional_id": "t"})
        assert later.status == 400

    serve_sim(scenario)


def test_the_same_key_goes_to_the_same_partition_through_every_dialect() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=6)
        for key in ("order-1", "order-2", "kunde-ü"):
            native = (await web.publish("v", key=key))[0]["partition"]
            value = b64encode(b"v").decode()
            go = await web.ok("POST", "/topics/orders/publish", {"key": key, "value": value})
            falcon = await web.ok(
                "POST", "/topic/orders/publish", {"message": "v", "partitionKey": key}
            )
            body = {"topic": "orders", "data": value, "partitionKey": key}
            queue = await web.ok("POST", "/sendMessage", body)
            assert go["partition"] == falcon["partitionID"] == native
            assert queue["PartitionID"] == f"orders-{native}"

    serve_sim(scenario)
