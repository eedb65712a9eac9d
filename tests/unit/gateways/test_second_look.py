"""A node whose catalog is behind denies nothing before it has asked (second_look.py)."""

import pytest

from raftline.gateways.lease_tokens import LeaseToken, encode_token
from raftline.model.batch import check_batch
from raftline.model.calls import Received
from raftline.model.ids import CATALOG_SHARD
from raftline.model.records import seal_batch
from raftline.model.tasks import TASK_TOPIC
from raftline.testing import SimCluster
from tests.unit.gateways.sim_web import Row, SimWeb, serve_sim
from tests.unit.node.whole import answer_of, node


def isolate(sim: SimCluster) -> str:
    """Cut the node with the gateway off until another leads the catalog; return that one."""
    first, *others = sim.nodes
    for other in others:
        sim.cut(first, other)

    def leaders() -> list[str]:
        return [n for n in others if not isinstance(node(sim, n).led(CATALOG_SHARD), Exception)]

    sim.run_until(lambda: bool(leaders()), "20s")
    return leaders()[0]


def create(sim: SimCluster, via: str, topic: str, partitions: int = 1) -> None:
    arguments: dict[str, object] = {"name": topic, "partitions": partitions}
    answer = answer_of(sim, lambda d: node(sim, via).command("topic.create", arguments, 5_000, d))
    assert isinstance(answer, dict), answer


REQUESTS = [
    ("GET", "/v1/topics/later", b""),
    ("GET", "/v1/topics/later/partitions", b""),
    ("GET", "/v1/topics/later/partitions/1/messages?offset=0", b""),
    ("GET", "/v1/topics/later/partitions/1/offsets", b""),
    ("GET", "/v1/topics/later/offsets", b""),
    ("GET", "/v1/topics/later/delayed", b""),
    ("GET", "/v1/topics/later/dlq", b""),
    ("GET", "/v1/traces/search?topic=later", b""),
    ("POST", "/v1/topics/later/groups/crew/receive", {}),
]


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
def test_what_was_made_while_this_node_was_away_is_found(
    method: str, path: str, body: object
) -> None:
    async def scenario(web: SimWeb) -> None:
        web.sim.advance("1s")
        create(web.sim, isolate(web.sim), "later", 2)
        reply = await web.ask(method, f"{path}{'&' if '?' in path else '?'}timeout_ms=700", body)
        assert (reply.status, reply.json["error"]["code"]) == (503, "not_ready"), reply.body
        first = node(web.sim, web.sim.nodes[0])
        assert "later" not in first.catalog_machine.topics
        web.sim.heal()
        reply = await web.ask(method, path, body)
        assert reply.status in (200, 204), reply.body
        assert "later" in first.catalog_machine.topics

    serve_sim(scenario, nodes=3, seed=31)


def test_what_is_not_there_is_denied_once_the_leader_said_so() -> None:
    async def scenario(web: SimWeb) -> None:
        web.sim.advance("1s")
        await web.create()
        for method, path, body in REQUESTS:
            reply = await web.ask(method, path, body)
            assert reply.status == 404, (path, reply.body)
            assert reply.json["error"]["code"] == "unknown_topic", (path, reply.body)
        reply = await web.ask("GET", "/v1/topics/orders/partitions/7/messages?offset=0")
        assert (reply.status, reply.json["error"]["code"]) == (404, "unknown_partition")

    serve_sim(scenario, nodes=3, seed=32)


def test_what_is_known_is_served_without_the_catalog() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        web.sim.advance("1s")
        isolate(web.sim)
        before_ms = web.sim.world.now_ms
        assert (await web.ask("GET", "/v1/topics/orders")).status == 200
        assert (await web.ask("GET", "/v1/topics")).status == 200
        assert web.sim.world.now_ms - before_ms < 50, "nobody was asked"

    serve_sim(scenario, nodes=3, seed=33)


def test_a_partition_that_was_added_while_this_node_was_away_is_found() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=1)
        web.sim.advance("1s")
        via = isolate(web.sim)
        arguments: dict[str, object] = {"name": "orders", "partitions": 3}
        grow = lambda done: node(web.sim, via).command("topic.grow", arguments, 5_000, done)  # noqa: E731
        assert isinstance(answer_of(web.sim, grow), dict)
        web.sim.heal()
        reply = await web.ask("GET", "/v1/topics/orders/partitions/2/messages?offset=0")
        assert reply.status == 200, reply.body

    serve_sim(scenario, nodes=3, seed=34)


RESET = {"topic": "orders", "partitions": [0, 2], "to": "earliest"}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/topics/orders/delayed?partition=2", b"", 200),
        ("GET", "/v1/topics/orders/delay/stats?partition=2", b"", 200),
        ("POST", "/v1/groups/g/reset", RESET, 200),
        ("POST", "/v1/groups/g/reset", {**RESET, "kind": "work", "create": True}, 200),
        ("GET", "/receiveMessage?consumerID=c1&partitionID=orders-2", b"", 404),  # not connected
        ("GET", "/topic/orders/peek?partitionID=2", b"", 200),
        ("GET", "/v1/traces/search?topic=orders&partition=2", b"", 200),
    ],
)
def test_no_way_to_name_a_partition_is_refused_by_a_node_that_was_away(
    method: str, path: str, body: object, status: int
) -> None:
    """Some called a partition that is not known here a bad argument: that holds at once."""

    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=1)
        web.sim.advance("1s")
        via = isolate(web.sim)
        arguments: dict[str, object] = {"name": "orders", "partitions": 3}
        grow = lambda done: node(web.sim, via).command("topic.grow", arguments, 5_000, done)  # noqa: E731
        assert isinstance(answer_of(web.sim, grow), dict)
        web.sim.heal()
        reply = await web.ask(method, path, body)
        assert reply.status == status, reply.body
        if status == 404:
            assert reply.json["error"]["code"] == "unknown_member"

    serve_sim(scenario, nodes=3, seed=34)


@pytest.mark.parametrize("more", [{}, {"headers": {"a": "b"}}, {"delay": "1h"}])
def test_messages_for_a_partition_that_was_added_meanwhile_are_stored(more: Row) -> None:
    """Each message has a result of its own, and a refusal among them is not looked at twice."""

    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=1)
        web.sim.advance("1s")
        via = isolate(web.sim)
        arguments: dict[str, object] = {"name": "orders", "partitions": 3}
        grow = lambda done: node(web.sim, via).command("topic.grow", arguments, 5_000, done)  # noqa: E731
        assert isinstance(answer_of(web.sim, grow), dict)
        body = {"messages": [{"value": "x", **more}]}
        path = "/v1/topics/orders/partitions/2/messages"
        reply = await web.ask("POST", path + "?timeout_ms=500", body)
        assert (reply.status, reply.json["error"]["code"]) == (503, "not_ready"), reply.body
        web.sim.heal()
        body["messages"].append({"value": "y", "partition": 9})
        body["messages"][0]["partition"] = 2
        results = (await web.ok("POST", "/v1/topics/orders/messages", body))["results"]
        assert (results[0]["error"], results[0]["partition"]) == (None, 2)
        assert results[1]["error"]["code"] == "unknown_partition"

    serve_sim(scenario, nodes=3, seed=34)


def test_leases_on_a_topic_that_was_made_meanwhile_are_settled() -> None:
    async def scenario(web: SimWeb) -> None:
        web.sim.advance("1s")
        other = isolate(web.sim)
        create(web.sim, other, "later")
        via = node(web.sim, other)
        batch = seal_batch([(None, b"a", (), 1), (None, b"b", (), 1)])
        info = check_batch(batch)
        answer_of(web.sim, lambda d: via.append("later", 0, batch, info, 5_000, d))
        got = answer_of(
            web.sim, lambda d: via.receive("later", "g", 0, 10, 1000, 0, 5_000, "m", 9_000, d)
        )
        assert isinstance(got, Received)
        tokens = [
            encode_token(
                LeaseToken("later", 0, "g", got.term, got.sequence, offset, 1, got.spans[3])
            )
            for offset in (0, 1)
        ]
        web.sim.heal()
        assert (await web.ok("POST", "/v1/messages/ack", {"lease_tokens": tokens}))["settled"] == 2

    serve_sim(scenario, nodes=3, seed=35)


def test_tasks_that_came_first_while_this_node_was_away_are_there() -> None:
    """Without the topic of tasks there are none: so said a node that had not heard of it."""

    async def scenario(web: SimWeb) -> None:
        web.sim.advance("1s")
        other = isolate(web.sim)
        create(web.sim, other, TASK_TOPIC)
        via = node(web.sim, other)
        batch = seal_batch([(None, b"{}", (), 1)])
        answer_of(web.sim, lambda d: via.append(TASK_TOPIC, 0, batch, check_batch(batch), 5_000, d))
        worker = {"worker_id": "w1"}
        asked = (
            ("GET", "/tasks", b""),
            ("GET", "/stats", b""),
            ("GET", "/tasks/tasks.0.0", b""),
            ("POST", "/tasks/tasks.0.0/ack", worker),
            ("POST", "/tasks/lease", worker),
        )
        for method, path, body in asked:
            reply = await web.ask(method, f"{path}?timeout_ms=500", body)
            assert (reply.status, reply.code) == (503, "not_ready"), (path, reply.body)
        web.sim.heal()
        replies = [await web.ask(method, path, body) for method, path, body in asked]
        assert [reply.status for reply in replies] == [200, 200, 200, 409, 200]
        assert len(replies[0].json["tasks"]) == replies[1].json["pending"] == 1

    serve_sim(scenario, nodes=3, seed=36)


@pytest.mark.parametrize("more", [{}, {"delay": "1h"}])
def test_the_first_message_makes_the_topic_also_if_it_names_its_partition(more: Row) -> None:
    async def scenario(web: SimWeb) -> None:
        for topic, rows in (("one", [{"partition": 1}]), ("two", [{"partition": 1}, {}])):
            messages = [{"value": "x", **row, **more} for row in rows]
            body = {"messages": messages}
            results = (await web.ok("POST", f"/v1/topics/{topic}/messages", body))["results"]
            assert [row["error"] for row in results] == [None] * len(rows)

    serve_sim(scenario)
