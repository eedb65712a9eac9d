"""Traces over HTTP, on whole nodes: the timeline of a message, and finding messages."""

from typing import Any

import pytest

from raftline.model.records import seal_batch
from tests.unit.gateways.sim_web import GROUP, TOPIC, SimWeb, serve_sim, words
from tests.unit.gateways.web import BATCH
from tests.unit.node.whole import host, lead

SEARCH = f"/v1/traces/search?topic={TOPIC}"


def line(trace: dict[str, Any], event: str, at: int = 0) -> dict[str, Any]:
    return [row for row in trace["timeline"] if row["event"] == event][at]


async def found(web: SimWeb, query: str) -> list[str]:
    answer = await web.ok("GET", f"{SEARCH}&{query}")
    assert (answer["next"], answer["complete"]) == (None, True)
    return [row["id"] for row in answer["messages"]]


# ---------------------------------------------------------------------- one message


def test_the_way_of_a_message_that_is_acked() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        body = {"messages": [{"value": "x"}], "producer": "order-service"}
        (row,) = (await web.ok("POST", f"/v1/topics/{TOPIC}/messages", body))["results"]
        fresh = await web.trace(row["id"])
        assert words(fresh) == ["PUBLISHED", "REPLICATED", "RETAINED"]
        assert fresh["groups"] == {}
        web.sim.advance("1s")
        (one,) = await web.receive(member="w-1")
        web.sim.advance("2s")
        await web.settle("ack", one)
        trace = await web.trace(row["id"])
        assert words(trace) == [
            "PUBLISHED",
            "REPLICATED",
            "DELIVERED",
            "ACKNOWLEDGED",
            "RETAINED",
        ]
        assert line(trace, "PUBLISHED")["producer"] == "order-service"
        assert line(trace, "REPLICATED")["nodes"] == ["node-1", "node-2", "node-3"]
        delivered = line(trace, "DELIVERED")
        assert (delivered["member"], delivered["group"], delivered["attempt"]) == ("w-1", GROUP, 1)
        assert (trace["groups"], trace["attempts"]) == ({GROUP: "settled"}, {GROUP: 1})
        latency = trace["latencies_ms"][GROUP]
        assert 1_000 <= latency["to_delivery"] < 2_000
        assert 3_000 <= latency["to_end"] < 4_000
        kept = line(trace, "RETAINED")["until_ms"] - line(trace, "PUBLISHED")["at_ms"]
        assert kept == 168 * 3_600_000
        assert (trace["traced"], trace["complete"]) == (True, True)
        assert await web.ok("GET", f"/v1/messages/{row['id']}/trace") == trace

    serve_sim(scenario, nodes=3)


def test_every_redelivery_has_its_reason() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(max_retries=4)
        (row,) = await web.publish("x")
        (one,) = await web.receive(lease="1s")
        (two,) = await web.receive(wait="5s", lease="1s")  # the first lease ran out
        await web.settle("extend", two, lease="2s")
        (three,) = await web.receive(wait="5s")  # so did the second, extended as it was
        await web.settle("nack", three, delay=0, reason="database away")
        (four,) = await web.receive()
        await web.settle("nack", four, delay=0)
        (five,) = await web.receive()
        await web.settle("nack", five, delay=0, reason="still away")
        web.sim.advance("3s")
        trace = await web.trace(row["id"])
        assert words(trace) == [
            "PUBLISHED",
            "REPLICATED",
            "DELIVERED",
            "REDELIVERED",
            "EXTENDED",
            "REDELIVERED",
            "NACKED",
            "REDELIVERED",
            "NACKED",
            "REDELIVERED",
            "NACKED",
            "DEAD_LETTERED",
            "RETAINED",
        ]
        reasons = [row.get("reason") for row in trace["timeline"] if row["event"] == "REDELIVERED"]
        assert reasons == ["lease expired", "lease expired", "database away", "nacked"]
        dead = line(trace, "DEAD_LETTERED")
        assert (dead["reason"], dead["attempts"]) == ("MAX_RETRIES", 5)
        assert (trace["groups"], trace["attempts"]) == ({GROUP: "dead"}, {GROUP: 5})
        await web.ok("POST", f"/v1/topics/{TOPIC}/dlq/redrive", {"all": True})
        (again,) = await web.receive(wait="2s")
        assert again["attempt"] == 1
        trace = await web.trace(row["id"])
        assert words(trace)[-3:] == ["REDRIVEN", "DELIVERED", "RETAINED"]
        del one

    serve_sim(scenario)


def test_each_group_has_its_own_story() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        (row,) = await web.publish("x")
        (one,) = await web.receive("one")
        (two,) = await web.receive("two")
        await web.settle("reject", one, reason="bad")
        await web.settle("ack", two)
        web.sim.advance("3s")
        trace = await web.trace(row["id"])
        assert trace["groups"] == {"one": "dead", "two": "settled"}
        of_one = [r["event"] for r in trace["timeline"] if r.get("group") == "one"]
        of_two = [r["event"] for r in trace["timeline"] if r.get("group") == "two"]
        assert of_one == ["DELIVERED", "REJECTED", "DEAD_LETTERED"]
        assert of_two == ["DELIVERED", "ACKNOWLEDGED"]

    serve_sim(scenario)


def test_a_reset_is_part_of_the_story() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        (row,) = await web.publish("x")
        (one,) = await web.receive()
        await web.settle("ack", one)
        path = f"/v1/groups/{GROUP}/reset"
        await web.ok("POST", path, {"topic": TOPIC, "to": "earliest", "kind": "work"})
        (again,) = await web.receive(wait="1s")
        await web.settle("ack", again)
        assert words(await web.trace(row["id"])) == [
            "PUBLISHED",
            "REPLICATED",
            "DELIVERED",
            "ACKNOWLEDGED",
            "REPLAYED",
            "DELIVERED",
            "ACKNOWLEDGED",
            "RETAINED",
        ]

    serve_sim(scenario)


def test_a_reset_without_a_kind_is_of_the_group_that_there_is() -> None:
    """A work group was not reset: a stream group of its name was made instead, and said so."""

    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("x")
        (one,) = await web.receive()
        await web.settle("ack", one)
        body = {"topic": TOPIC, "to": "earliest"}
        path = f"/v1/groups/{GROUP}/reset"
        planned = await web.ok("POST", path, {**body, "dry_run": True})
        told = await web.ok("POST", path, body)
        assert (planned["kind"], told["kind"]) == ("work", "work")
        assert len(await web.receive(wait="1s")) == 1
        assert (await web.ok("GET", f"/v1/groups/{GROUP}"))["stream"] is None
        other = await web.ok("POST", "/v1/groups/another/reset", body)
        assert other["kind"] == "stream"  # as ever: one that is not there becomes one
        await web.receive(group="another")
        other = await web.ok("POST", "/v1/groups/another/reset", body)
        assert other["kind"] == "stream"

    serve_sim(scenario)


def test_a_message_that_waited() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        (row,) = await web.publish("x", delay="10s")
        assert row["id"] == "orders.0.w1"
        waiting = await web.trace(row["id"])
        assert words(waiting) == ["SCHEDULED"]
        assert line(waiting, "SCHEDULED")["due_ms"] - line(waiting, "SCHEDULED")["at_ms"] == 10_000
        await web.ok("POST", f"/v1/topics/{TOPIC}/delayed/{row['id']}/move", {"delay": "3s"})
        (one,) = await web.receive(wait="8s")
        assert (one["id"], one["offset"]) == (row["id"], 0)
        await web.settle("ack", one)
        trace = await web.trace(row["id"])
        expected = [
            "PUBLISHED",
            "SCHEDULED",
            "MOVED",
            "RELEASED",
            "REPLICATED",
            "DELIVERED",
            "ACKNOWLEDGED",
            "RETAINED",
        ]
        assert words(trace) == expected
        assert (trace["offset"], trace["groups"]) == (0, {GROUP: "settled"})
        by_offset = await web.trace("orders.0.0")
        assert words(by_offset) == expected  # the same story under the other name
        (off,) = await web.publish("y", delay="10s")
        await web.ask("DELETE", f"/v1/topics/{TOPIC}/delayed/{off['id']}")
        assert words(await web.trace(off["id"])) == ["SCHEDULED", "CANCELLED"]

    serve_sim(scenario)


def test_ids_that_are_of_nothing() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("x")
        rows = [
            ("orders.0.1", 416, "offset_out_of_range"),
            ("orders.7.0", 404, "unknown_partition"),
            ("nope.0.0", 404, "unknown_topic"),
            ("orders.0.w5", 404, "unknown_message"),
            ("orders", 400, "invalid_argument"),
            ("orders.0.x", 400, "invalid_argument"),
            ("orders.0.99999999999999999999", 400, "invalid_argument"),
            ("orders.0.9999999999999999999", 416, "offset_out_of_range"),
            ("orders.0.w9999999999999999999", 404, "unknown_message"),
        ]
        for name, status, code in rows:
            answer = await web.ask("GET", f"/v1/traces/{name}")
            assert (answer.status, answer.code) == (status, code), (name, answer.body)

    serve_sim(scenario)


def test_a_trace_survives_failover_and_restart() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        (row,) = await web.publish("x")
        (one,) = await web.receive(member="w-1")
        web.sim.advance("200ms")
        leader, others = lead(web.sim, TOPIC)
        if leader == "node-1":  # the gateway lives there
            number = web.sim.number_of(others[0])
            web.sim.command("cluster.transfer", topic=TOPIC, partition=0, to_node=number)
            web.sim.run_until(lambda: lead(web.sim, TOPIC)[0] != "node-1")
        leader, _ = lead(web.sim, TOPIC)
        web.sim.kill(leader)
        web.sim.run_until(lambda: lead(web.sim, TOPIC)[0] != leader)
        await web.settle("ack", one)
        web.sim.start(leader)
        web.sim.wait_ready()
        web.sim.advance("2s")
        trace = await web.trace(row["id"])
        assert words(trace)[2:4] == ["DELIVERED", "ACKNOWLEDGED"]
        assert web.sim.verify().identical

    serve_sim(scenario, nodes=3)


# ---------------------------------------------------------------------- many


def test_search_by_key_member_group_and_state() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("a", key="red")
        await web.publish("b", key="blue")
        await web.publish("c", key="red")
        await web.publish("d")
        assert await found(web, "key=red") == ["orders.0.0", "orders.0.2"]
        assert await found(web, "key=green") == []
        one, two = await web.receive(count=2, member="w-1")
        await web.receive(count=1, member="w-2")
        await web.receive("other", count=1, member="w-1")
        await web.settle("ack", one)
        await web.settle("nack", two, delay="1m")
        assert await found(web, "member=w-1") == ["orders.0.0", "orders.0.1"]
        assert await found(web, f"member=w-1&group={GROUP}&key=red") == ["orders.0.0"]
        assert await found(web, "member=w-1&group=other") == ["orders.0.0"]
        assert await found(web, "member=nobody") == []
        for state, ids in {
            "settled": ["orders.0.0"],
            "resting": ["orders.0.1"],
            "leased": ["orders.0.2"],
            "fresh": ["orders.0.3"],
            "dead": [],
        }.items():
            assert await found(web, f"state={state}&group={GROUP}") == ids, state
        answer = await web.ok("GET", f"{SEARCH}&key=blue")
        (row,) = answer["messages"]
        assert (row["key"], row["groups"]) == ("blue", {GROUP: "resting", "other": "fresh"})

    serve_sim(scenario)


def test_search_by_time_window() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        base = 1_790_000_000_000
        for at in range(5):
            await web.publish(str(at), timestamp=base + at * 1000)
        assert await found(web, f"from={base + 1000}&to={base + 3000}") == [
            "orders.0.1",
            "orders.0.2",
        ]
        assert len(await found(web, "from=2026-01-01T00:00:00Z")) == 5
        assert await found(web, "to=2026-01-01T00:00:00Z") == []
        assert await found(web, f"from={base + 4000}") == ["orders.0.4"]

    serve_sim(scenario)


@pytest.mark.parametrize("topic", ["orders", "tasks"])
def test_messages_without_a_time_are_found_where_none_is_asked_for(topic: str) -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(topic)
        await web.publish("1", topic=topic)
        path = f"/v1/topics/{topic}/partitions/0/messages"
        await web.ask("POST", path, seal_batch([(None, b"2", (), -1)]), {"Content-Type": BATCH})
        assert len(await web.receive("one", topic, count=2, member="w1")) == 2
        both = [f"{topic}.0.0", f"{topic}.0.1"]
        search = f"/v1/traces/search?topic={topic}"
        for query in ("", "&group=one", "&member=w1"):
            rows = (await web.ok("GET", search + query))["messages"]
            assert sorted(row["id"] for row in rows) == both
        rows = (await web.ok("GET", search + "&from=1"))["messages"]
        assert [row["id"] for row in rows] == both[:1]
        if topic == "tasks":
            assert [row["id"] for row in (await web.ok("GET", "/tasks"))["tasks"]] == both

    serve_sim(scenario)


def test_pages_leave_nothing_out_over_partitions() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=3)
        ids: list[str] = []
        for at in range(20):
            (row,) = await web.publish(str(at), partition=at * at % 3, timestamp=1000 + at)
            ids.append(row["id"])
        seen: list[str] = []
        query = f"{SEARCH}&limit=3"
        for _ in range(20):
            answer = await web.ok("GET", query)
            seen += [row["id"] for row in answer["messages"]]
            assert len(answer["messages"]) <= 3
            if answer["next"] is None:
                break
            query = f"{SEARCH}&limit=3&after={answer['next']}"
        assert seen == ids
        one = await web.ok("GET", f"{SEARCH}&partition=1&limit=2")
        assert [row["partition"] for row in one["messages"]] == [1, 1]
        rest = await web.ok("GET", f"{SEARCH}&partition=1&after={one['next']}")
        assert len(rest["messages"]) == sum(name.startswith("orders.1.") for name in ids) - 2

    serve_sim(scenario)


def test_searches_that_make_no_sense() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        rows = [
            ("/v1/traces/search", 400, "invalid_argument"),
            ("/v1/traces/search?topic=nope", 404, "unknown_topic"),
            (SEARCH + "&state=happy", 400, "invalid_argument"),
            (SEARCH + "&limit=0", 400, "invalid_argument"),
            (SEARCH + "&limit=1001", 400, "invalid_argument"),
            (SEARCH + "&from=teatime", 400, "invalid_argument"),
            (SEARCH + "&to=99999999999999999999", 400, "invalid_argument"),
            (SEARCH + "&partition=1", 404, "unknown_partition"),
            (SEARCH + "&after=x", 400, "invalid_argument"),
            (SEARCH + "&after=5:1", 400, "invalid_argument"),
            (SEARCH + "&after=0:99999999999999999999", 400, "invalid_argument"),
            (SEARCH + "&colour=red", 400, "invalid_argument"),
        ]
        for path, status, code in rows:
            answer = await web.ask("GET", path)
            assert (answer.status, answer.code) == (status, code), (path, answer.body)

    serve_sim(scenario)


# ---------------------------------------------------------------------- how much is kept


def test_traces_can_be_switched_off_and_sampled() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(trace_percent=0)
        await web.publish(*["x"] * 640)
        web.sim.advance("6s")  # the leader adopts the topic's settings
        got = await web.receive(count=64, member="w-1")
        await web.settle("ack", *got)
        trace = await web.trace("orders.0.0")
        assert words(trace) == ["PUBLISHED", "REPLICATED", "RETAINED"]
        assert (trace["traced"], trace["groups"]) == (False, {GROUP: "settled"})
        assert "trace" not in host(web.sim, "node-1", TOPIC).side
        await web.ask("PATCH", f"/v1/topics/{TOPIC}", {"settings": {"trace_percent": 30}})
        web.sim.advance("6s")
        for _ in range(9):
            got = await web.receive(count=64, member="w-2")
            await web.settle("ack", *got)
        traced = {True: 0, False: 0}
        for offset in range(64, 640, 64):
            trace = await web.trace(f"orders.0.{offset}")
            assert ("DELIVERED" in words(trace)) is trace["traced"]
            traced[trace["traced"]] += 1
        assert 0 < traced[True] < traced[False]

    serve_sim(scenario)


def test_traces_have_a_retention_of_their_own() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(trace_retention_ms=20_000)
        await web.publish("old")
        (old,) = await web.receive()
        await web.settle("ack", old)
        assert "ACKNOWLEDGED" in words(await web.trace("orders.0.0"))
        for _ in range(12):  # whole segments go: some traffic fills them
            await web.publish(*["x" * 10] * 100)
            got = await web.receive(count=100)
            for message in got[:40]:
                await web.settle("nack", message, delay="1h", reason="r" * 500)
            web.sim.advance("5s")
        log = host(web.sim, "node-1", TOPIC).side["trace"]
        assert log.log_start > 1
        trace = await web.trace("orders.0.0")
        assert "ACKNOWLEDGED" not in words(trace)
        assert trace["groups"] == {GROUP: "settled"}  # the state itself is not a trace
        assert words(await web.trace(got[0]["id"]))[-2:] == ["NACKED", "RETAINED"]

    serve_sim(scenario)


def test_a_time_of_very_many_digits_is_refused_and_no_bug() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        for digits in (19, 5_000):
            reply = await web.ask("GET", f"/v1/traces/search?topic={TOPIC}&from={'9' * digits}")
            assert (reply.status, reply.code) == (400, "invalid_argument")

    serve_sim(scenario)
