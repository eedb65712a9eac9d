"""DQueue's dialect on whole nodes: tasks are enqueued, leased and settled as its documents say."""

import asyncio
from typing import Any
from unittest.mock import patch

import msgspec

from raftline.model.errors import NotReady
from tests.unit.gateways.sim_web import SimWeb, serve_sim
from tests.unit.node.whole import node

EMAIL = {"type": "email", "payload": {"to": "user@example.com", "subject": "Hello"}}
FIELDS = {
    "id", "type", "payload", "priority", "status", "attempts", "max_retries", "idempotency_key",
    "worker_id", "lease_expires_at", "created_at", "last_error",
}  # fmt: skip


async def enqueue(web: SimWeb, **more: Any) -> dict[str, Any]:
    reply = await web.ask("POST", "/tasks", {**EMAIL, **more})
    assert reply.status == 201, reply.body
    assert set(reply.json) == FIELDS
    return reply.json


async def lease(web: SimWeb, worker: str = "worker-1", **more: Any) -> dict[str, Any] | None:
    reply = await web.ask("POST", "/tasks/lease", {"worker_id": worker, **more})
    assert reply.status in (200, 204), reply.body
    return reply.json if reply.status == 200 else None


async def settle(web: SimWeb, verb: str, task: Any, worker: str = "worker-1", **more: Any) -> Any:
    return await web.ask("POST", f"/tasks/{task['id']}/{verb}", {"worker_id": worker, **more})


async def show(web: SimWeb, task: dict[str, Any]) -> dict[str, Any]:
    shown = await web.ok("GET", f"/tasks/{task['id']}")
    assert set(shown) == FIELDS
    return shown


def test_a_task_is_enqueued_leased_and_acked() -> None:
    async def scenario(web: SimWeb) -> None:
        assert await lease(web) is None  # 204: nothing was ever enqueued
        made = await enqueue(web, priority=10, max_retries=5, idempotency_key="abc")
        assert made["status"] == "pending"
        assert (made["priority"], made["max_retries"], made["attempts"]) == (10, 5, 0)
        assert made["idempotency_key"] == "abc"
        leased = await lease(web)
        assert leased is not None
        assert leased["id"] == made["id"]
        assert leased["payload"] == EMAIL["payload"]
        assert (leased["status"], leased["worker_id"], leased["attempts"]) == (
            "leased", "worker-1", 1,
        )  # fmt: skip
        assert leased["lease_expires_at"]
        assert await lease(web, "worker-2") is None
        assert (await show(web, made))["worker_id"] == "worker-1"
        assert (await settle(web, "ack", made)).json["status"] == "done"
        done = await show(web, made)
        assert (done["status"], done["attempts"], done["worker_id"]) == ("done", 1, "worker-1")
        assert (await settle(web, "ack", made)).json["status"] == "done"  # its answer got lost
        assert (await settle(web, "ack", made, "worker-2")).status == 409
        assert (await settle(web, "nack", made)).status == 409

    serve_sim(scenario, nodes=3)


def test_only_the_holder_settles() -> None:
    async def scenario(web: SimWeb) -> None:
        task = await enqueue(web)
        for verb in ("ack", "nack"):  # nobody holds it
            assert (await settle(web, verb, task)).status == 409
        await lease(web, "worker-1")
        for verb, more in (("ack", {}), ("nack", {}), ("extend", {"lease": "10s"})):
            refused = await settle(web, verb, task, "worker-2", **more)
            assert (refused.status, refused.code) == (409, "lease_lost")
        assert (await settle(web, "extend", task, lease="60s")).status == 200
        web.sim.advance("31s")
        assert await lease(web, "worker-2") is None  # it was extended
        assert (await settle(web, "ack", task)).status == 200

    serve_sim(scenario)


def test_the_same_idempotency_key_is_the_same_task() -> None:
    async def scenario(web: SimWeb) -> None:
        first = await enqueue(web, idempotency_key="abc")
        again = await web.ask("POST", "/tasks", {**EMAIL, "idempotency_key": "abc"})
        assert (again.status, again.json["id"]) == (200, first["id"])
        await lease(web)
        again = await web.ask("POST", "/tasks", {**EMAIL, "idempotency_key": "abc"})
        assert (again.json["id"], again.json["status"]) == (first["id"], "leased")
        assert await lease(web) is None

    serve_sim(scenario)


def test_higher_priorities_first() -> None:
    async def scenario(web: SimWeb) -> None:
        ids = {p: (await enqueue(web, priority=p))["id"] for p in (1, 10, 5)}
        got = [(await lease(web))["id"] for _ in range(3)]  # type: ignore[index]
        assert got == [ids[10], ids[5], ids[1]]
        assert (await web.ask("POST", "/tasks", {**EMAIL, "priority": 999})).status == 400

    serve_sim(scenario)


def test_a_lease_that_runs_out_comes_back() -> None:
    async def scenario(web: SimWeb) -> None:
        await enqueue(web)
        await lease(web, "gone")
        web.sim.advance("29s")
        assert await lease(web) is None
        web.sim.advance("2s")
        again = await lease(web)
        assert again is not None
        assert again["attempts"] == 2

    serve_sim(scenario)


def test_a_task_dies_after_its_own_number_of_retries() -> None:
    async def scenario(web: SimWeb) -> None:
        for retries in (0, 1, 5):
            task = await enqueue(web, max_retries=retries)
            for attempt in range(1, retries + 2):
                leased = await lease(web, wait="60s")
                assert leased is not None
                assert (leased["id"], leased["attempts"]) == (task["id"], attempt)
                reply = await settle(web, "nack", task, reason=f"failed {attempt}")
                is_last = attempt == retries + 1
                assert reply.json["status"] == ("dead" if is_last else "pending")
            dead = await show(web, task)
            assert (dead["status"], dead["attempts"]) == ("dead", retries + 1)
            assert dead["last_error"] == f"failed {retries + 1}"
        assert await lease(web, wait="60s") is None

    serve_sim(scenario)


def test_a_nack_backs_off_and_keeps_its_reason() -> None:
    async def scenario(web: SimWeb) -> None:
        task = await enqueue(web)
        for backoff_s in (1, 2, 4):
            assert await lease(web) is not None
            await settle(web, "nack", task, reason="database connection failed")
            waiting = await show(web, task)
            assert (waiting["status"], waiting["worker_id"]) == ("pending", None)
            assert waiting["last_error"] == "database connection failed"
            web.sim.advance(backoff_s - 0.1)
            assert await lease(web) is None
            web.sim.advance(0.2)
        assert await lease(web) is not None

    serve_sim(scenario)


def test_a_task_whose_worker_always_dies_is_dead_in_the_end() -> None:
    async def scenario(web: SimWeb) -> None:
        task = await enqueue(web, max_retries=1)
        for _ in range(2):
            assert await lease(web, "fragile") is not None
            web.sim.advance("31s")
        assert (await show(web, task))["status"] == "dead"
        other = await enqueue(web)
        assert (await lease(web))["id"] == other["id"]  # type: ignore[index]
        assert (await web.ok("GET", "/stats"))["dead"] == 1

    serve_sim(scenario)


def test_a_delayed_task_keeps_its_id() -> None:
    async def scenario(web: SimWeb) -> None:
        task = await enqueue(web, delay="30s", priority=3)
        assert (task["status"], task["priority"]) == ("pending", 3)
        assert await lease(web) is None
        assert (await show(web, task))["status"] == "pending"
        assert [t["id"] for t in (await web.ok("GET", "/tasks"))["tasks"]] == [task["id"]]
        web.sim.advance("31s")
        leased = await lease(web)
        assert leased is not None
        assert leased["id"] == task["id"]
        assert (await settle(web, "ack", task)).status == 200
        assert (await show(web, task))["status"] == "done"

    serve_sim(scenario)


def test_lists_and_counts() -> None:
    async def scenario(web: SimWeb) -> None:
        assert (await web.ok("GET", "/tasks"))["tasks"] == []
        assert (await web.ok("GET", "/stats"))["total"] == 0
        ids = [(await enqueue(web, idempotency_key=f"k{n}"))["id"] for n in range(5)]
        assert (await web.ok("GET", "/stats"))["pending"] == 5
        await enqueue(web, delay="1h")
        first, second, third = [await lease(web) for _ in range(3)]
        await settle(web, "ack", first)
        for _ in range(4):
            await settle(web, "nack", second, delay=0)
            second = await lease(web)
        stats = await web.ok("GET", "/stats")
        counts = {name: stats[name] for name in ("pending", "leased", "done", "dead", "delayed")}
        assert counts == {"pending": 2, "leased": 2, "done": 1, "dead": 1, "delayed": 1}
        listed = await web.ok("GET", "/tasks?status=leased")
        held = [third, second]  # the last nack buried it, so another one was leased
        assert [task["id"] for task in listed["tasks"]] == [task["id"] for task in held if task]
        found: list[str] = []
        after = ""
        for _ in range(10):
            page = await web.ok("GET", f"/tasks?limit=2{after}")
            found += [task["id"] for task in page["tasks"]]
            if page["next"] is None:
                break
            after = f"&after={page['next']}"
        assert len(found) == len(set(found)) == 6
        assert found[:5] == ids
        assert (await web.ask("GET", "/tasks?status=odd")).status == 400
        assert (await web.ask("GET", "/tasks?after=odd")).status == 400

    serve_sim(scenario)


def test_a_page_of_one_status_is_full_while_there_are_more() -> None:
    """The limit was of tasks looked at: with fifty old ones done, no pending one was shown."""

    async def scenario(web: SimWeb) -> None:
        ids = [(await enqueue(web))["id"] for _ in range(8)]
        ids += [(await enqueue(web, delay="1h"))["id"] for _ in range(3)]
        for _ in range(4):
            await settle(web, "ack", await lease(web))
        page = await web.ok("GET", "/tasks?status=pending&limit=3")
        assert [task["id"] for task in page["tasks"]] == ids[4:7]
        for limit in range(1, 9):
            found: list[str] = []
            after = ""
            for _ in range(12):
                page = await web.ok("GET", f"/tasks?status=pending&limit={limit}{after}")
                assert len(page["tasks"]) <= limit
                found += [task["id"] for task in page["tasks"]]
                if page["next"] is None:
                    break
                after = f"&after={page['next']}"
            assert found == ids[4:], limit
        assert len((await web.ok("GET", "/tasks?status=done&limit=4"))["tasks"]) == 4
        assert (await web.ok("GET", "/tasks?status=dead")) == {"tasks": [], "next": None}

    serve_sim(scenario)


def test_long_poll() -> None:
    async def scenario(web: SimWeb) -> None:
        await enqueue(web, delay="5s")
        reading = asyncio.ensure_future(lease(web, wait="20s"))
        leased = await reading
        assert leased is not None

    serve_sim(scenario)


def test_what_is_no_task_is_refused() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create("orders")
        await web.publish("x")
        await enqueue(web)
        for name in ("orders.0.0", "tasks.0.99", "tasks.1.0", "tasks.0.w9", "nonsense"):
            reply = await web.ask("GET", f"/tasks/{name}")
            assert reply.status == 404, name
        bad = [{}, {"type": ""}, {"type": "x", "max_retries": -1}, {"type": "x", "colour": 1}]
        for body in bad:
            assert (await web.ask("POST", "/tasks", body)).status == 400, body
        assert (await web.ask("POST", "/tasks/lease", {})).status == 400
        assert (await web.ask("POST", "/tasks/lease", {"worker_id": ""})).status == 400
        for after in ("w1", f"w{'9' * 5000}.1", f"w1.{'9' * 20}", "9" * 5000):
            assert (await web.ask("GET", f"/tasks?after={after}")).status == 400, after[:9]

    serve_sim(scenario)


def test_a_payload_that_is_too_deep_is_refused_or_shown_as_text() -> None:
    """How deep is too deep hangs on who reads it: what one took may be too much for another."""

    async def scenario(web: SimWeb) -> None:
        await enqueue(web)
        deep = "[" * 5000 + "]" * 5000
        refused = await web.ask("POST", "/tasks", f'{{"type": "t", "payload": {deep}}}'.encode())
        assert (refused.status, refused.code) == (400, "invalid_argument")
        (sent,) = await web.publish(deep, topic="tasks")
        shown = await web.ask("GET", f"/tasks/{sent['id']}")
        assert (shown.status, shown.json["payload"]) == (200, deep)
        for body in ({"name": "t", "settings": "DEEP"}, {"topic": "DEEP"}):
            path = "/v1/topics" if "name" in body else "/sendMessage"
            raw = msgspec.json.encode(body).replace(b'"DEEP"', deep.encode())
            assert (await web.ask("POST", path, raw)).status == 400, path

    serve_sim(scenario)


def test_leases_and_attempts_outlive_their_leader() -> None:
    async def scenario(web: SimWeb) -> None:
        held = await enqueue(web, max_retries=1)
        await lease(web)
        failed = await enqueue(web, max_retries=1)
        await lease(web)
        await settle(web, "nack", failed, delay=0, reason="first")
        victim = web.sim.running[-1]  # the gateway is on the first
        for _ in range(3):
            body = {"topic": "tasks", "partition": 0, "to_node": victim}
            if (await web.ask("POST", "/v1/cluster/transfer", body)).status == 200:
                break
        web.sim.advance("1s")
        web.sim.kill(victim)
        web.sim.advance("5s")
        assert (await settle(web, "ack", held, "worker-2")).status == 409
        assert (await settle(web, "ack", held)).json["status"] == "done"
        again = await lease(web, wait="10s")
        assert again is not None
        assert (again["id"], again["attempts"]) == (failed["id"], 2)
        assert (await settle(web, "nack", failed, reason="second")).json["status"] == "dead"
        assert (await show(web, failed))["last_error"] == "second"

    serve_sim(scenario, nodes=3)


def test_a_task_that_is_stored_is_not_denied() -> None:
    """A refusal after the store would have said that nothing was done: it was enqueued again."""

    async def scenario(web: SimWeb) -> None:
        await enqueue(web)
        first = node(web.sim, web.sim.running[0])

        def ask(_: object, *asked: Any) -> None:
            asked[-1](NotReady("a new leader finds its end"))

        with patch.object(type(first), "ask", ask):
            task = await enqueue(web, priority=3)
        shown = await show(web, task)
        assert shown == task

    serve_sim(scenario)


def test_a_header_that_tells_no_priority_spoils_no_list() -> None:
    """Anybody may send to the topic, with any header."""

    async def scenario(web: SimWeb) -> None:
        await enqueue(web)
        message = {"value": "{}", "headers": {"raftline-priority": "urgent"}}
        await web.ok("POST", "/v1/topics/tasks/messages", {"messages": [message]})
        listed = await web.ok("GET", "/tasks")
        assert [task["priority"] for task in listed["tasks"]] == [0, 0]

    serve_sim(scenario)
