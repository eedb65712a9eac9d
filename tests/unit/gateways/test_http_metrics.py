"""What the HTTP gateway counts, writes about requests, and serves to those who watch."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from raftline.config.settings import LogOutputSettings, Settings
from raftline.gateways import stream_server
from tests.unit.gateways.sim_web import TOPIC, SimWeb, serve_sim
from tests.unit.gateways.web import Web, request, serve

PUBLISH = f"/v1/topics/{TOPIC}/messages"


def parse(text: bytes) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_requests_connections_and_refusals_are_counted() -> None:
    async def scenario(web: Web) -> None:
        client, _other = await web.client(), await web.client()
        for _ in range(3):
            client.send(request("GET", "/health"))
            await client.reply()
        client.send(request("GET", "/nowhere"))
        await client.reply()
        client.send(request("POST", PUBLISH, {"messages": [{"value": "a"}, {"key": "no value"}]}))
        assert (await client.reply()).status == 200
        counts = web.node.counters.gateways["http"]
        assert counts.requests == 5
        assert counts.refused == {"unknown_route": 1, "invalid_argument": 1}
        await web.until(lambda: counts.connections == 2)

    serve(scenario)


def test_a_request_that_does_not_parse_is_counted() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        client.send(b"GET /health HTTP/1.1\nHost: x\r\n\r\n")
        assert (await client.reply()).status == 400
        assert sum(web.node.counters.gateways["http"].refused.values()) == 1

    serve(scenario)


@pytest.mark.parametrize("path", ["/metrics", "/v1/overview"])
def test_whoever_watches_is_answered(path: str) -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        client.send(request("GET", path))
        reply = await client.reply()
        assert reply.status == 200
        if path == "/metrics":
            assert reply.fields["content-type"].startswith("text/plain; version=0.0.4")
            found = parse(reply.body)
            assert found[("raftline_ready", ())] == 1
            assert found[("process_cpu_seconds_total", ())] > 0
        else:
            assert [row["name"] for row in reply.json["nodes"]] == ["n1"]

    serve(scenario)


def test_requests_are_logged_where_asked_for() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        client.send(request("GET", "/health") + request("GET", "/nowhere?x=1"))
        await client.reply()
        await client.reply()
        lines = [fields for _, event, fields in web.logged if event == "request.answered"]
        assert [(row["request"], row["status"]) for row in lines] == [
            ("GET /health", 200),
            ("GET /nowhere", 404),
        ]
        assert all(0 <= float(str(row["ms"])) < 5_000 for row in lines)

    serve(scenario, Settings(log_output=LogOutputSettings(requests=True)))


def test_requests_are_not_logged_by_default() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        client.send(request("GET", "/health"))
        await client.reply()
        assert web.logged == []

    serve(scenario)


def test_a_request_without_an_answer_is_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_server, "TICK_MS", 10)

    async def scenario(web: Web) -> None:
        web.node.later = []
        client = await web.client()
        client.send(request("POST", PUBLISH, {"messages": [{"value": "a"}]}))
        await web.until(lambda: bool(web.logged))
        tick = web.gateway.server.tick
        await web.until(lambda: web.gateway.server.tick > tick + 20)
        (line,) = web.logged
        assert line[:2] == ("warning", "request.slow")
        assert line[2]["request"] == f"POST {PUBLISH}"
        assert web.node.counters.gateways["http"].slow == 1
        web.node.release()
        assert (await client.reply()).status == 200

    serve(scenario, Settings(log_output=LogOutputSettings(slow_request_ms=50)))


def test_a_long_poll_is_not_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_server, "TICK_MS", 10)

    async def scenario(web: Web) -> None:
        web.node.topic(TOPIC)
        client = await web.client()
        client.send(request("GET", f"/v1/topics/{TOPIC}/partitions/0/messages?wait_ms=30000"))
        tick = web.gateway.server.tick
        await web.until(lambda: web.gateway.server.tick > tick + 20)
        assert web.logged == []

    serve(scenario, Settings(log_output=LogOutputSettings(slow_request_ms=50)))


def test_the_overview_is_the_whole_cluster() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        messages = [{"value": str(n), "key": str(n)} for n in range(20)]
        await web.ok("POST", PUBLISH, {"messages": [*messages, {"value": "z", "delay": "1h"}]})
        receive = f"/v1/topics/{TOPIC}/groups/workers/receive"
        got = await web.ok("POST", receive, {"count": 1})
        token = got["messages"][0]["lease_token"]
        await web.ok("POST", "/v1/messages/reject", {"lease_token": token})
        await web.ok("POST", "/v1/groups/readers/join", {"topics": [TOPIC]})
        seen = await web.ok("GET", "/v1/overview")
        (topic,) = [row for row in seen["topics"] if row["name"] == TOPIC]
        assert (topic["messages"], topic["messages_in"]) == (20, 20)
        assert (topic["waiting"], topic["dead_total"]) == (1, 1)
        assert [row["leader"] > 0 for row in topic["partitions"]] == [True]
        groups = {(row["group"], row["kind"]): row for row in seen["groups"]}
        assert groups[("workers", "work")]["lag"] == 19
        assert groups[("workers", "work")]["dead"] == 1
        assert groups[("readers", "stream")]["lag"] == 20
        assert groups[("readers", "stream")]["members"] == 1
        assert {row["state"] for row in seen["nodes"]} == {"live"}
        assert sum(row["leads"] for row in seen["nodes"]) >= 3
        found = parse((await web.ask("GET", "/metrics")).body)
        assert found[("raftline_connections", ("http",))] == 1

    serve_sim(scenario, nodes=3)
