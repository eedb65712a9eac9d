"""FalconQ's dialect on whole nodes: nothing lost, nothing twice, high before low."""

from typing import Any

from tests.unit.gateways.sim_web import SimWeb, serve_sim


async def publish(web: SimWeb, text: str, priority: str = "low", **more: Any) -> dict[str, Any]:
    body = {"message": text, "priority": priority, **more}
    return await web.ok("POST", "/topic/orders/publish", body)


async def consume(web: SimWeb, more: str = "", consumer: str = "worker1") -> dict[str, Any]:
    return await web.ok("GET", f"/topic/orders/consume?consumerID={consumer}{more}")


def texts(batch: dict[str, Any]) -> list[str]:
    assert batch["count"] == len(batch["messages"])
    return [message["v"] for message in batch["messages"]]


def test_the_first_publish_to_a_new_topic_succeeds() -> None:
    async def scenario(web: SimWeb) -> None:
        sent = await publish(web, "Urgent refund request #RF001", "high")
        assert (sent["status"], sent["topic"]) == ("message committed", "orders")
        assert (sent["priority"], sent["offset"]) == ("high", 0)
        assert (await web.ok("GET", "/topics"))["topics"] == ["orders"]
        shown = await web.ok("GET", "/topics/orders/partitions")
        assert shown["configuredPartitions"] == len(shown["activePartitions"]) > 1
        batch = await consume(web, "&batch=2")
        assert texts(batch) == ["Urgent refund request #RF001"]
        assert batch["messages"][0]["p"] == "high"
        assert (batch["consumerID"], batch["nextOffset"]) == ("worker1", 1)

    serve_sim(scenario, nodes=3)


def test_mixed_priorities_lose_and_double_nothing() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=1)
        for name, priority in (("m1", "low"), ("m2", "high"), ("m3", "low"), ("m4", "high")):
            await publish(web, name, priority)
        got = [texts(await consume(web, "&batch=2&partitionID=0")) for _ in range(3)]
        assert got == [["m2", "m4"], ["m1", "m3"], []]

    serve_sim(scenario)


def test_high_comes_first_over_all_partitions() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=3)
        sent = [
            await publish(web, f"m{n}", "high" if n % 3 == 0 else "low", partitionKey=f"k{n}")
            for n in range(12)
        ]
        assert len({row["partitionID"] for row in sent}) > 1
        got: list[str] = []
        for _ in range(6):
            got += texts(await consume(web, "&batch=2"))
        assert sorted(got) == sorted(f"m{n}" for n in range(12))
        assert set(got[:4]) == {"m0", "m3", "m6", "m9"}
        assert texts(await consume(web, "&batch=2")) == []

    serve_sim(scenario, nodes=3)


def test_a_consumer_goes_on_where_it_was_and_others_have_everything() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=1)
        for n in range(5):
            await publish(web, f"m{n}")
        assert texts(await consume(web)) == ["m0"]  # one is the default
        assert texts(await consume(web, "&batch=2")) == ["m1", "m2"]
        web.sim.advance("60s")  # nothing was leased: nothing comes back
        assert texts(await consume(web, "&batch=10")) == ["m3", "m4"]
        assert texts(await consume(web, "&batch=10", "worker2")) == [f"m{n}" for n in range(5)]

    serve_sim(scenario)


def test_manual_acks_lease() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=2)
        for n in range(4):
            await publish(web, f"m{n}", partitionKey=f"k{n}")
        first = await consume(web, "&batch=4&ack=manual")
        assert len(texts(first)) == 4
        assert texts(await consume(web, "&batch=4&ack=manual")) == []
        for message in first["messages"][:2]:
            body = {"receipt_handle": message["receipt_handle"]}
            assert (await web.ok("POST", "/messages/ack", body))["success"] is True
        web.sim.advance("31s")
        again = await consume(web, "&batch=4&ack=manual")
        assert sorted(texts(again)) == sorted(texts(first)[2:])

    serve_sim(scenario)


def test_a_peek_moves_nothing() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=3)
        for n in range(9):
            await publish(web, f"m{n}", partitionKey=f"k{n}")
        for _ in range(2):
            seen = await web.ok("GET", "/topic/orders/peek?offset=0&batch=5")
            assert len(texts(seen)) == 5
        everything = await web.ok("GET", "/topic/orders/peek?offset=0&batch=100")
        assert sorted(texts(everything)) == [f"m{n}" for n in range(9)]
        for n in range(3):
            one = await web.ok("GET", f"/topic/orders/peek?offset=1&batch=100&partitionID={n}")
            assert [m["offset"] for m in one["messages"]] == list(range(1, 1 + one["count"]))
        beyond = await web.ok("GET", "/topic/orders/peek?offset=500&batch=5")
        assert texts(beyond) == []
        assert len(texts(await consume(web, "&batch=100"))) == 9

    serve_sim(scenario)


def test_a_peek_begins_with_what_is_kept() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=1)
        for n in range(5):
            await publish(web, f"m{n}")
        path = "/v1/topics/orders/partitions/0/trim"
        assert (await web.ok("POST", path, {"offset": 3}))["log_start"] == 3
        for more in ("", "&offset=1", "&partitionID=0"):
            peeked = await web.ok("GET", f"/topic/orders/peek?batch=5{more}")
            assert texts(peeked) == ["m3", "m4"], more
            assert (peeked["startOffset"], peeked["nextOffset"]) == (3, 5)
        assert texts(await web.ok("GET", "/topic/orders/peek?offset=9")) == []

    serve_sim(scenario)


def test_raft_stats_and_refusals() -> None:
    async def scenario(web: SimWeb) -> None:
        await publish(web, "m")
        stats = await web.ok("GET", "/raft/stats?topic=orders&partitionID=0")
        assert stats["state"] in ("Leader", "Follower")
        assert int(stats["term"]) > 0
        assert stats["num_peers"] == "2"
        rows = [
            ("GET", "/topic/orders/consume", b"", 400),
            ("GET", "/topic/nope/consume?consumerID=w", b"", 404),
            ("GET", "/topic/nope/peek", b"", 404),
            ("GET", "/topic/orders/peek?partitionID=99", b"", 404),
            ("GET", "/topic/orders/consume?consumerID=w&batch=0", b"", 400),
            ("GET", "/topic/orders/consume?consumerID=w&ack=perhaps", b"", 400),
            ("GET", "/raft/stats", b"", 400),
            ("GET", "/raft/stats?topic=orders&partitionID=77", b"", 404),
            ("POST", "/topic/orders/publish", {"message": "x", "priority": "urgent"}, 400),
            ("POST", "/topic/orders/publish", {"priority": "high"}, 400),
        ]
        for method, path, body, status in rows:
            reply = await web.ask(method, path, body)
            assert reply.status == status, (path, reply.body)

    serve_sim(scenario, nodes=3)


def test_a_consumer_goes_on_after_the_leader_died() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=1)
        for n in range(6):
            await publish(web, f"m{n}")
        assert texts(await consume(web, "&batch=2")) == ["m0", "m1"]
        victim = web.sim.running[-1]  # the gateway is on the first
        body = {"topic": "orders", "partition": 0, "to_node": victim}
        assert (await web.ask("POST", "/v1/cluster/transfer", body)).status == 200
        web.sim.advance("1s")
        assert texts(await consume(web)) == ["m2"]
        web.sim.kill(victim)
        web.sim.advance("5s")
        assert texts(await consume(web, "&batch=10")) == ["m3", "m4", "m5"]
        sent = await publish(web, "m6")
        assert sent["offset"] == 6  # dense
        assert texts(await consume(web, "&batch=10")) == ["m6"]

    serve_sim(scenario, nodes=3)


def test_a_consume_over_all_partitions_is_bounded_in_bytes() -> None:
    """It went on until the batch was full, a megabyte a look: a thousand of them in one reply."""

    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=2)
        for number in range(6):
            await publish(web, str(number) * 600_000)
        sizes: list[int] = []
        while found := texts(await consume(web, "&batch=100")):
            sizes.append(sum(map(len, found)))
        assert sum(sizes) == 6 * 600_000
        assert max(sizes) <= 2 << 20

    serve_sim(scenario)
