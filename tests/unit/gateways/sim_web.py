"""HTTP on a whole simulated node: real requests, simulated disk, network and time.

Time passes while a request is waited for, a millisecond at a time, and when a test says so.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from raftline.config.settings import Settings
from raftline.gateways.http.gateway import HttpGateway
from raftline.testing import SimCluster, cluster
from tests.unit.gateways.web import Client, Reply, Web, request
from tests.unit.node.whole import node

STEP_S = 0.001
STEPS_MAX = 120_000
TOPIC = "orders"
GROUP = "workers"
Row = dict[str, Any]


class SimWeb:
    """A simulated cluster with a gateway on its first node, and one connection to it."""

    def __init__(self, sim: SimCluster, web: Web, client: Client) -> None:
        self.sim = sim
        self.web = web
        self.client = client

    async def wait(self, client: Client) -> Reply:
        """Let time pass until the next reply of a connection is here."""
        reading = asyncio.ensure_future(client.reply())
        for _ in range(STEPS_MAX):
            await asyncio.sleep(0)
            if reading.done():
                return reading.result()
            self.sim.advance(STEP_S)
        reading.cancel()
        raise AssertionError("no reply")

    async def ask(
        self, method: str, path: str, body: Any = b"", fields: dict[str, str] | None = None
    ) -> Reply:
        self.client.send(request(method, path, body, fields))
        return await self.wait(self.client)

    async def ok(self, method: str, path: str, body: Any = b"") -> Any:
        """Ask and return the JSON of an answer that is no refusal."""
        reply = await self.ask(method, path, body)
        assert reply.status == 200, reply.body
        return reply.json

    async def create(self, topic: str = TOPIC, partitions: int = 1, **settings: Any) -> None:
        body = {"name": topic, "num_partitions": partitions, "settings": settings}
        reply = await self.ask("POST", "/v1/topics", body)
        assert reply.status == 201, reply.body

    async def publish(self, *values: str, topic: str = TOPIC, **fields: Any) -> list[Row]:
        messages = [{"value": value, **fields} for value in values]
        answer = await self.ok("POST", f"/v1/topics/{topic}/messages", {"messages": messages})
        return answer["results"]

    async def receive(self, group: str = GROUP, topic: str = TOPIC, **body: Any) -> list[Row]:
        path = f"/v1/topics/{topic}/groups/{group}/receive"
        return (await self.ok("POST", path, body))["messages"]

    async def settle(self, verb: str, *messages: Row, **body: Any) -> Reply:
        tokens = [message["lease_token"] for message in messages]
        named = {"lease_token": tokens[0]} if len(tokens) == 1 else {"lease_tokens": tokens}
        return await self.ask("POST", f"/v1/messages/{verb}", {**named, **body})

    async def trace(self, message_id: str) -> Row:
        return await self.ok("GET", f"/v1/traces/{message_id}")

    async def state(self, group: str = GROUP, topic: str = TOPIC, partition: int = 0) -> Row:
        """Return what the leader knows of a group."""
        answers: list[Any] = []
        asked = node(self.sim, self.sim.running[0])
        asked.ask(topic, partition, "group.show", {"group": group}, 5_000, answers.append)
        self.sim.run_until(lambda: bool(answers))
        assert isinstance(answers[0], dict), answers[0]
        return answers[0]


def serve_sim(
    scenario: Callable[[SimWeb], Awaitable[None]], *, nodes: int = 1, seed: int = 5
) -> None:
    """Run a scenario."""
    with (
        cluster(nodes=nodes, seed=seed) as sim,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):

        async def main() -> None:
            first, loop = node(sim, sim.running[0]), asyncio.get_running_loop()
            web = Web(Settings(), first)  # type: ignore[arg-type]
            web.gateway = HttpGateway(loop, first.clock, first, Settings(), web.log)
            await web.gateway.start(web.listener)
            try:
                await scenario(SimWeb(sim, web, await web.client()))
            finally:
                for client in web.clients:
                    client.close()
                web.gateway.close()
                await web.until(lambda: not web.gateway.server.connection_count)

        runner.run(main())


def words(trace: Row) -> list[str]:
    """Return the events of a timeline, in order."""
    return [line["event"] for line in trace["timeline"]]
