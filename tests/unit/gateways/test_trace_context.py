"""Other systems' traces: carried through messages, and told to a collector where there is one."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest

from raftline.config.settings import Settings, TelemetrySettings
from raftline.gateways.trace_context import parse_context
from raftline.telemetry.spans import traces_url
from tests.unit.gateways.sim_web import TOPIC, SimWeb, serve_sim
from tests.unit.gateways.web import Web, request, serve

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
PUBLISH = f"/v1/topics/{TOPIC}/messages"
READ = f"/v1/topics/{TOPIC}/partitions/0/messages"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        PARENT[:-1],
        PARENT.upper(),
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"{PARENT}-more",
    ],
)
def test_what_is_no_context_is_none(text: str) -> None:
    assert parse_context(text) is None


def test_a_context_is_read_and_written() -> None:
    context = parse_context(f" {PARENT} ", "a=1,b=2")
    assert context is not None
    assert context.is_sampled
    assert context.headers() == [("traceparent", PARENT.encode()), ("tracestate", b"a=1,b=2")]
    later = parse_context(f"01-{TRACE}-{SPAN}-00-new", "x" * 600)
    assert later is not None
    assert not later.is_sampled
    assert later.state == ""


def test_messages_carry_the_context_of_their_request_to_who_receives_them() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        own = f"00-{'a' * 32}-{'b' * 16}-00"
        messages = [
            {"value": "plain"},
            {"value": "own", "headers": {"traceparent": own, "tracestate": "mine=1"}},
            {"value": "later", "delay": "1s"},
        ]
        fields = {"traceparent": PARENT, "tracestate": "vendor=7"}
        reply = await web.ask("POST", PUBLISH, {"messages": messages}, fields)
        assert reply.status == 200
        await web.ask("POST", PUBLISH, {"messages": [{"value": "without"}]})
        await web.ask(
            "POST", PUBLISH, {"messages": [{"value": "odd"}]}, {"traceparent": "nonsense"}
        )
        web.sim.advance("3s")
        got = {m["value"]: m["headers"] for m in await web.receive(count=10)}
        carried = {"traceparent": PARENT, "tracestate": "vendor=7"}
        assert got["plain"] == carried
        assert got["own"] == {"traceparent": own, "tracestate": "mine=1"}
        assert carried.items() <= got["later"].items()
        assert got["without"] == got["odd"] == {}

    serve_sim(scenario)


def test_a_request_with_a_context_is_not_remembered_by_its_head() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        for number in range(5):
            parent = f"00-{TRACE}-{number + 1:016x}-01"
            body = {"messages": [{"value": str(number), "partition": 0}]}
            client.send(request("POST", PUBLISH, body, {"traceparent": parent}))
            assert (await client.reply()).status == 200
        client.send(request("GET", READ))
        messages = (await client.reply()).json["messages"]
        spans = [message["headers"]["traceparent"].split("-")[2] for message in messages]
        assert spans == [f"{n + 1:016x}" for n in range(5)]
        assert not any(b"traceparent" in head for head in web.gateway.server.prefixes)

    serve(scenario)


class Collector(BaseHTTPRequestHandler):
    """A collector that remembers what it was told."""

    spans: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/v1/traces"
        for resource in body["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                Collector.spans += scope["spans"]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def collector() -> Iterator[str]:
    Collector.spans = []
    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_collector_is_told_of_publishes_and_deliveries(collector: str) -> None:
    settings = Settings(telemetry=TelemetrySettings(otlp_endpoint=collector))

    async def scenario(web: SimWeb) -> None:
        from raftline.gateways.http.spans import open_spans

        server = web.web.gateway.server
        server.spans = open_spans(settings, web.web.log)
        await web.create()
        body = {"messages": [{"value": "a"}]}
        await web.ask("POST", PUBLISH, body, {"traceparent": PARENT})
        await web.ask("POST", PUBLISH, body, {"traceparent": PARENT[:-1] + "0"})  # not sampled
        (first, second) = await web.receive(count=2)
        server.spans.close()
        sent, received = Collector.spans
        assert (sent["traceId"], sent["parentSpanId"], sent["kind"]) == (TRACE, SPAN, 4)
        assert sent["name"] == f"send {TOPIC}"
        assert first["headers"]["traceparent"] == f"00-{TRACE}-{sent['spanId']}-01"
        assert second["headers"]["traceparent"] == PARENT[:-1] + "0"
        assert (received["traceId"], received["parentSpanId"]) == (TRACE, sent["spanId"])
        assert int(sent["startTimeUnixNano"]) <= int(sent["endTimeUnixNano"])
        about = {row["key"]: row["value"] for row in received["attributes"]}
        assert about["messaging.message.id"] == {"stringValue": first["id"]}
        assert server.spans.dropped == 0

    serve_sim(scenario)


def test_a_collector_that_is_not_there_costs_only_its_spans() -> None:
    settings = Settings(telemetry=TelemetrySettings(otlp_endpoint="http://127.0.0.1:9"))

    async def scenario(web: Web) -> None:
        client = await web.client()
        client.send(
            request("POST", PUBLISH, {"messages": [{"value": "a"}]}, {"traceparent": PARENT})
        )
        assert (await client.reply()).status == 200
        spans = web.gateway.server.spans
        assert spans is not None
        spans.close()
        assert spans.dropped == 1
        assert [event for _, event, _ in web.logged] == ["spans.not_sent"]

    serve(scenario, settings)


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://host:4318", "http://host:4318/v1/traces"),
        ("http://host:4318/", "http://host:4318/v1/traces"),
        ("https://host/otlp/v1/traces", "https://host/otlp/v1/traces"),
    ],
)
def test_where_traces_go(endpoint: str, url: str) -> None:
    assert traces_url(endpoint) == url
