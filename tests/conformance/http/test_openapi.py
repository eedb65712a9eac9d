"""The document of all routes: nothing is missing, and what it says of answers is true."""

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from raftline.config.settings import Settings
from raftline.gateways.http import gateway
from raftline.gateways.http.openapi import describe
from raftline.gateways.http.routes import Route, Router
from raftline.node.clock import LoopClock
from tests.unit.gateways.little_node import LittleNode
from tests.unit.gateways.sim_web import SimWeb, serve_sim

DOCUMENT = Path("docs/protocols/http.md")


@pytest.fixture(scope="module")
def routes() -> list[Route]:
    """Every route of a gateway."""
    kept: list[Router] = []

    class Kept(Router):
        def __init__(self, *arguments: int) -> None:
            super().__init__(*arguments)
            kept.append(self)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        calls: Any = LittleNode()
        gateway.HttpGateway(loop, LoopClock(loop), calls, Settings(), lambda *_, **__: None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gateway, "Router", Kept)
        asyncio.run(main())
    return kept[0].routes


def test_every_route_is_described(routes: list[Route]) -> None:
    for route in routes:
        name, about = f"{route.method} {route.pattern}", route.about
        assert about.summary.endswith("."), name
        assert about.answer is not None or about.produces != "application/json", name
        if route.method in ("POST", "PATCH"):
            without = ("/verify", "/producers")  # nothing to say
            assert about.body is not None or route.pattern.endswith(without), name


def test_no_two_routes_are_one(routes: list[Route]) -> None:
    seen = [(r.method, re.sub(r"\{\w+\}", "{}", r.pattern)) for r in routes]
    assert len(seen) == len(set(seen))


def test_the_document_is_whole(routes: list[Route]) -> None:
    document = describe(routes)
    count = sum(len(methods) for methods in document["paths"].values())
    assert count == len(routes) > 140
    names = [op["operationId"] for path in document["paths"].values() for op in path.values()]
    assert len(names) == len(set(names))
    text = msgspec.json.encode(document).decode()
    for name in re.findall(r"#/components/schemas/([\w.]+)", text):
        assert name in document["components"]["schemas"]
    assert {tag["name"] for tag in document["tags"]} == {
        "raftline", "dqueue", "falconq", "goqueue", "sreekar",
    }  # fmt: skip


def test_every_route_has_a_line_for_people(routes: list[Route]) -> None:
    """Paths without /v1 that only repeat native ones are told of in one sentence."""
    text = DOCUMENT.read_text()
    native = {route.pattern for route in routes if route.pattern.startswith("/v1/")}
    for route in routes:
        pattern = route.pattern
        if f"/v1{pattern}" in native or pattern.endswith("/cooperative"):
            continue
        literals = [part for part in route.segments if part and not part.startswith("{")]
        assert not literals or f"/{literals[-1]}" in text, pattern


def test_it_is_served() -> None:
    async def scenario(web: SimWeb) -> None:
        document = await web.ok("GET", "/openapi.json")
        assert document["openapi"] == "3.1.0"
        assert "/tasks/{id}/ack" in document["paths"]

    serve_sim(scenario)
