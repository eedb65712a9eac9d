"""The dialect of sreekar2307/queue on whole nodes: one message of an owned partition at a time."""

from base64 import b64decode, b64encode
from typing import Any
from zlib import crc32

from tests.unit.gateways.sim_web import SimWeb, serve_sim
from tests.unit.gateways.web import Reply


def b64(data: bytes) -> str:
    return b64encode(data).decode()


def message_id(number: int) -> str:
    return b64(number.to_bytes(8, "big"))


async def create(web: SimWeb, name: str = "orders", partitions: int = 1, **more: Any) -> Reply:
    body = {"name": name, "numberOfPartitions": partitions, "replicationFactor": 1, **more}
    return await web.ask("POST", "/topics", body)


async def send(web: SimWeb, data: bytes, key: str = "", topic: str = "orders") -> dict[str, Any]:
    body = {"topic": topic, "data": b64(data), "partitionKey": key}
    return await web.ok("POST", "/sendMessage", body)


async def connect(web: SimWeb, consumer: str, group: str = "billing") -> dict[str, Any]:
    body = {"consumerID": consumer, "consumerGroup": group, "topics": ["orders"]}
    return await web.ok("POST", "/connect", body)


async def poll(web: SimWeb, consumer: str, partition: str = "orders-0") -> Reply:
    body = {"consumerID": consumer, "partitionID": partition}
    return await web.ask("GET", "/receiveMessage", body)


async def ack(web: SimWeb, consumer: str, number: int, partition: str = "orders-0") -> Reply:
    body = {"consumerID": consumer, "partitionID": partition, "ID": message_id(number)}
    return await web.ask("POST", "/ackMessage", body)


async def head(web: SimWeb, consumer: str) -> bytes | None:
    reply = await poll(web, consumer)
    assert reply.status == 200, reply.body
    return None if reply.json is None else b64decode(reply.json["Data"])


def test_topics_in_its_spelling_twice() -> None:
    async def scenario(web: SimWeb) -> None:
        first = await create(web, partitions=4)
        assert first.status == 201
        assert (first.json["Name"], first.json["NumberOfPartitions"]) == ("orders", 4)
        again = await create(web, partitions=4)
        assert (again.status, again.code) == (409, "topic_exists")
        clash = await create(web, "other", 2, num_partitions=3)
        assert clash.status == 400
        shown = await web.ok("GET", "/shards-info?topics=orders")
        assert sorted(shown["shardInfo"]) == [f"orders-{n}" for n in range(4)]
        for row in shown["shardInfo"].values():
            assert row["Leader"]["ID"] in [broker["ID"] for broker in row["Brokers"]]
        assert shown["leader"]["RaftAddress"]
        assert len(shown["brokers"]) == 3
        await create(web, "other", 2)
        both = await web.ok("GET", "/shards-info?topics=orders&topics=other")  # as its proxy asks
        assert len(both["shardInfo"]) == 6
        assert (await web.ok("GET", "/shards-info?topics=other"))["shards"][0]["topic"] == "other"

    serve_sim(scenario, nodes=3)


def test_keys_and_data_are_hashed_by_crc32() -> None:
    async def scenario(web: SimWeb) -> None:
        await create(web, partitions=4)
        for key in ("a", "b", "order-123", "x" * 50):
            sent = await send(web, b"data", key)
            assert sent["PartitionID"] == f"orders-{crc32(key.encode()) % 4}"
            assert sent["PartitionKey"] == key
            native = await web.publish("v", key=key)  # the same partition by another way
            assert native[0]["partition"] == crc32(key.encode()) % 4
        for data in (b"one", b"two", b"\xff\x00"):
            sent = await send(web, data)
            assert sent["PartitionID"] == f"orders-{crc32(data) % 4}"

    serve_sim(scenario)


def test_ids_count_from_one() -> None:
    async def scenario(web: SimWeb) -> None:
        await create(web)
        ids = [(await send(web, b"%d" % n))["ID"] for n in range(3)]
        assert ids == [message_id(n) for n in (1, 2, 3)]

    serve_sim(scenario)


def test_a_poll_gives_the_same_head_until_it_is_acked() -> None:
    async def scenario(web: SimWeb) -> None:
        await create(web)
        await connect(web, "c1")
        assert await head(web, "c1") is None
        for data in (b"1", b"2", b"3"):
            await send(web, data)
        assert [await head(web, "c1") for _ in range(3)] == [b"1"] * 3
        for _ in range(10):  # longer than any lease, and more often than any retry
            web.sim.advance("20s")
            assert await head(web, "c1") == b"1"
        assert (await ack(web, "c1", 1)).status == 200
        assert await head(web, "c1") == b"2"

    serve_sim(scenario)


def test_an_ack_out_of_order_neither_skips_nor_rewinds() -> None:
    async def scenario(web: SimWeb) -> None:
        await create(web)
        await connect(web, "c1")
        for data in (b"1", b"2", b"3"):
            await send(web, data)
        assert (await ack(web, "c1", 2)).status == 200
        assert await head(web, "c1") == b"1"
        assert (await ack(web, "c1", 1)).status == 200
        assert await head(web, "c1") == b"3"
        assert (await ack(web, "c1", 1)).status == 200  # a repeat rewinds nothing
        assert await head(web, "c1") == b"3"
        assert (await ack(web, "c1", 3)).status == 200
        assert await head(web, "c1") is None
        assert (await ack(web, "c1", 9)).status == 404
        other = await connect(web, "d1", "audit")  # another group has everything
        assert other["consumer"]["partitions"] == ["orders-0"]
        assert await head(web, "d1") == b"1"

    serve_sim(scenario)


def test_two_consumers_share_and_neither_reads_what_is_the_others() -> None:
    async def scenario(web: SimWeb) -> None:
        await create(web, partitions=4)
        first = await connect(web, "c1")
        assert len(first["consumer"]["partitions"]) == 4
        second = await connect(web, "c2")
        assert second["consumerGroup"] == {
            "id": "billing", "consumers": ["c1", "c2"], "topics": ["orders"],
        }  # fmt: skip
        theirs = set(second["consumer"]["partitions"])
        again = await web.ok(
            "POST", "/healthCheck", {"consumerID": "c1", "pingAt": "2026-01-01T00:00:00Z"}
        )
        ours = set(again["partitions"])
        assert (len(ours), len(theirs), ours & theirs) == (2, 2, set())
        for partition in ours:
            assert (await poll(web, "c1", partition)).status == 200
            refused = await poll(web, "c2", partition)
            assert (refused.status, refused.code) == (409, "fenced_member")
            assert (await ack(web, "c2", 1, partition)).status == 409

    serve_sim(scenario, nodes=3)


def test_an_expired_consumer_is_refused_and_its_partitions_go_on() -> None:
    async def scenario(web: SimWeb) -> None:
        await create(web)
        await send(web, b"1")
        await connect(web, "c1")
        assert await head(web, "c1") == b"1"
        for _ in range(8):
            web.sim.advance("5s")
        refused = await poll(web, "c1")
        assert (refused.status, refused.code) == (404, "unknown_member")
        assert (await ack(web, "c1", 1)).status == 404
        await connect(web, "c2")
        assert await head(web, "c2") == b"1"
        ping = {"consumerID": "c1", "pingAt": "2026-01-01T00:00:00Z"}
        assert (await web.ask("POST", "/healthCheck", ping)).status == 404

    serve_sim(scenario)


def test_what_it_refuses() -> None:
    async def scenario(web: SimWeb) -> None:
        await create(web)
        await connect(web, "c1")
        rows: list[tuple[str, str, Any]] = [
            ("POST", "/sendMessage", {"topic": "orders", "data": ""}),
            ("POST", "/sendMessage", {"topic": "orders", "data": "?"}),
            ("POST", "/sendMessage", {"data": "aGk="}),
            ("POST", "/sendMessage", [1]),
            ("GET", "/receiveMessage", {"consumerID": "c1"}),
            ("GET", "/receiveMessage", {"consumerID": "c1", "partitionID": "orders"}),
            ("GET", "/receiveMessage", b""),
            ("POST", "/ackMessage", {"consumerID": "c1", "partitionID": "orders-0", "ID": "AA=="}),
            ("POST", "/connect", {"consumerID": "c1", "consumerGroup": "g", "topics": []}),
            ("POST", "/connect", {"consumerID": "", "consumerGroup": "g", "topics": ["orders"]}),
        ]
        for method, path, body in rows:
            reply = await web.ask(method, path, body)
            assert reply.status == 400, (path, body, reply.body)
        body = {"consumerID": "c1", "consumerGroup": "g", "topics": ["nope"]}
        assert (await web.ask("POST", "/connect", body)).status == 404
        body = {"consumerID": "c1", "partitionID": "orders-7"}
        assert (await web.ask("GET", "/receiveMessage", body)).code == "unknown_partition"
        # Names in any case, as the original takes them; parameters instead of a body.
        await web.ok("POST", "/sendMessage", {"Topic": "orders", "Data": "aGk="})
        path = "/receiveMessage?consumerID=c1&partitionID=orders-0"
        assert (await web.ok("GET", path))["Data"] == "aGk="

    serve_sim(scenario)


def test_acks_and_ownership_outlive_the_leader() -> None:
    async def scenario(web: SimWeb) -> None:
        made = await web.ask(
            "POST", "/topics", {"name": "orders", "numberOfPartitions": 1, "replicationFactor": 3}
        )
        assert made.status == 201
        for data in (b"1", b"2", b"3"):
            await send(web, data)
        await connect(web, "c1")
        assert (await ack(web, "c1", 2)).status == 200
        victim = web.sim.running[-1]
        body = {"topic": "orders", "partition": 0, "to_node": victim}
        await web.ask("POST", "/v1/cluster/transfer", body)
        web.sim.advance("1s")
        assert await head(web, "c1") == b"1"
        web.sim.kill(victim)
        web.sim.advance("5s")
        assert await head(web, "c1") == b"1"
        assert (await ack(web, "c1", 1)).status == 200
        assert await head(web, "c1") == b"3"
        assert (await poll(web, "c2")).status == 404

    serve_sim(scenario, nodes=3)
