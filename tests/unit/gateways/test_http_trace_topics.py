"""The trace of a topic over HTTP: it reads like a topic of its own."""

from tests.unit.gateways.sim_web import TOPIC, SimWeb, serve_sim

TRACE = f"{TOPIC}.trace"


def test_a_trace_reads_like_a_topic() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=2)
        await web.publish("x")
        for partition in range(2):
            (one,) = await web.receive(partition=partition) or (None,)
            if one is not None:
                await web.settle("ack", one)
        shown = await web.ok("GET", f"/v1/topics/{TRACE}")
        assert (shown["name"], shown["num_partitions"]) == (TRACE, 2)
        shards = (await web.ok("GET", f"/shards-info?topics={TRACE}"))["shards"]
        assert [(row["topic"], row["partition"]) for row in shards] == [(TRACE, 0), (TRACE, 1)]
        whole = (await web.ok("GET", f"/v1/topics/{TRACE}/offsets"))["partitions"]
        later = (await web.ok("GET", f"/v1/topics/{TRACE}/offsets?time=4000000000000"))[
            "partitions"
        ]
        assert [row["offset"] for row in later] == [row["commit_end"] for row in whole]
        counts = []
        for partition in range(2):
            one = f"/v1/topics/{TRACE}/partitions/{partition}"
            bounds = await web.ok("GET", f"{one}/offsets")
            assert bounds["commit_end"] == whole[partition]["commit_end"]
            rows = (await web.ok("GET", f"{one}/messages?offset={bounds['log_start']}"))["messages"]
            assert len(rows) == bounds["commit_end"] - bounds["log_start"]
            counts.append(len(rows))
        assert sorted(counts)[0] == 0 < sorted(counts)[1]

    serve_sim(scenario, nodes=3)


def test_it_is_in_no_list_and_a_trace_of_nothing_is_unknown() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        names = [row["name"] for row in (await web.ok("GET", "/v1/topics"))["topics"]]
        assert names == [TOPIC]
        for path in ("/v1/topics/other.trace", "/v1/topics/other.trace/partitions/0/messages"):
            assert (await web.ask("GET", path)).status == 404
        missing = await web.ask("GET", f"/v1/topics/{TRACE}/partitions/7/messages")
        assert missing.status == 404

    serve_sim(scenario, nodes=1)
