"""What the dialects do when one of their looks fails: drop nothing found, hide nothing."""

import asyncio
from typing import Any

import pytest

from raftline.model.errors import NoLeader
from tests.unit.gateways.sim_web import TOPIC, SimWeb, serve_sim
from tests.unit.gateways.test_unreadable_batches import join, no_messages, store
from tests.unit.gateways.web import request
from tests.unit.node.whole import node


def fail(
    web: SimWeb, monkeypatch: pytest.MonkeyPatch, method: str, name: str = "", after: int = 0
) -> None:
    """Let the node refuse a kind of call from now on, as one without a leader does."""
    served = node(web.sim, web.sim.nodes[0])
    ask = getattr(served, method)
    count = 0

    def refuse(*arguments: Any, **more: Any) -> None:
        nonlocal count
        count += 1
        if count > after and (not name or name in arguments):
            arguments[-1](NoLeader("tasks/0"))
        else:
            ask(*arguments, **more)

    monkeypatch.setattr(served, method, refuse)


@pytest.mark.parametrize("how", ["auto", "manual"])
def test_falconq_gives_what_it_leased_before_an_unreadable_batch(how: str) -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("a")
        await store(web, no_messages())
        await consumes_the_first(web, how)

    serve_sim(scenario)


@pytest.mark.parametrize("how", ["auto", "manual"])
def test_falconq_gives_what_it_leased_before_a_look_failed(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("a")
        await web.publish("b")
        fail(web, monkeypatch, "receive", after=1)
        await consumes_the_first(web, how)

    serve_sim(scenario)


async def consumes_the_first(web: SimWeb, how: str) -> None:
    path = f"/topic/{TOPIC}/consume?consumerID=worker&batch=2&ack={how}"
    told = await web.ok("GET", path)
    assert [row["v"] for row in told["messages"]] == ["a"]
    assert (await web.state("worker"))["floor"] == (1 if how == "auto" else 0)


@pytest.mark.parametrize(
    ("path", "method", "name"),
    [
        ("/tasks", "read", ""),
        ("/tasks", "ask", "waiting.show"),
        ("/stats", "ask", "group.show"),
    ],
)
def test_tasks_that_could_not_be_looked_at_are_not_left_out(
    monkeypatch: pytest.MonkeyPatch, path: str, method: str, name: str
) -> None:
    async def scenario(web: SimWeb) -> None:
        for fields in ({}, {"delay": "1h"}):
            reply = await web.ask("POST", "/tasks", {"type": "mail", "payload": "{}", **fields})
            assert reply.status == 201, reply.body
        assert (await web.ask("GET", path)).status == 200
        fail(web, monkeypatch, method, name)
        reply = await web.ask("GET", path)
        assert (reply.status, reply.code) == (503, "no_leader"), reply.body

    serve_sim(scenario)


def test_a_worker_that_came_before_the_first_task_of_all_waits_for_it() -> None:
    """It was told at once that there is none, and asked again as fast as it could."""

    async def scenario(web: SimWeb) -> None:
        clock = node(web.sim, web.sim.nodes[0]).clock
        began_ms = clock.mono_ms()
        lease = request("POST", "/tasks/lease", {"worker_id": "w1", "wait": "3s"})
        web.client.send(lease)
        assert (await web.wait(web.client)).status == 204
        assert 3_000 <= clock.mono_ms() - began_ms < 3_300
        waiting = await web.web.client()
        waiting.send(lease)
        await asyncio.sleep(0.05)
        made = await web.ask("POST", "/tasks", {"type": "email"})
        assert (await web.wait(waiting)).json["id"] == made.json["id"]

    serve_sim(scenario)


@pytest.mark.parametrize("how", ["cancelled", "trimmed"])
def test_an_enqueue_whose_first_task_is_gone_is_told_so(how: str) -> None:
    """It was denied the task it wanted to make: 404, as if the route were not there."""

    async def scenario(web: SimWeb) -> None:
        task = {"type": "email", "idempotency_key": "k1"}
        if how == "cancelled":
            task["delay"] = "1h"
        made = await web.ask("POST", "/tasks", task)
        name = made.json["id"]
        if how == "cancelled":
            await web.ok("DELETE", f"/v1/topics/tasks/delayed/{name}")
        else:
            await web.ok("POST", "/v1/topics/tasks/partitions/0/trim", {"offset": 1})
        again = await web.ask("POST", "/tasks", task)
        assert (again.status, again.code) == (409, "duplicate_key"), again.body
        assert name in again.json["error"]["message"]

    serve_sim(scenario)


def test_a_poll_that_leases_is_as_long_as_one_receive_however_many_partitions() -> None:
    """Each gave a mebibyte, or its largest message: a reply of a hundred partitions took a node."""

    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=8)
        for partition in range(8):
            await web.publish("x" * 400_000, partition=partition)
        path = f"/groups/readers/poll?{await join(web)}"
        seen: set[str] = set()
        for count in (3, 3, 2):
            polled = await web.ok("GET", path)
            assert len(polled["messages"]) == count
            seen |= set(polled["messages"])
        assert seen == {str(partition) for partition in range(8)}

    serve_sim(scenario)


@pytest.mark.parametrize("dialect", ["falconq", "goqueue"])
def test_many_partitions_that_answer_at_once_do_not_pile_up(dialect: str) -> None:
    """Each was asked from within the answer of the one before, until the stack was at its end."""

    async def scenario(web: SimWeb) -> None:
        count = 300
        await web.create(partitions=count)
        path = f"/topic/{TOPIC}/consume?consumerID=worker&batch=1000"
        if dialect == "goqueue":
            path = f"/groups/readers/poll?{await join(web)}&limit=1000"
        messages = [{"value": str(number), "partition": number} for number in range(count)]
        for _ in range(2):  # the first begins the groups, which takes a moment each
            await web.ok("POST", f"/v1/topics/{TOPIC}/messages", {"messages": messages})
            assert len((await web.ok("GET", path))["messages"]) == count

    serve_sim(scenario)


def test_nothing_is_taken_by_a_request_that_is_given_nothing() -> None:
    """HEAD is GET without a body: what it consumed was acked, and nobody ever saw it."""

    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("a")
        member = await join(web)
        paths = [
            f"/topic/{TOPIC}/consume?consumerID=c1",
            f"/v1/groups/readers/poll?{member}",
            f"/groups/readers/poll?{member}",
        ]
        for path in paths:
            web.client.send(request("HEAD", path))
            reading = asyncio.ensure_future(web.client.reply(head_only=True))
            while not reading.done():
                await asyncio.sleep(0)
                web.sim.advance(0.001)
            assert (reading.result().status, reading.result().fields["allow"]) == (405, "GET")
        consumed = await web.ok("GET", paths[0])
        assert [row["v"] for row in consumed["messages"]] == ["a"]
        assert len((await web.ok("GET", paths[1]))["messages"]) == 1
        assert len((await web.ok("GET", paths[2]))["messages"]["0"]) == 1

    serve_sim(scenario)
