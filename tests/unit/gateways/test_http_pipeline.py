"""What jobs ask over HTTP, on a whole simulated node: staged writes, query leases, the mark."""

from typing import Any

import msgspec
import pytest

from raftline.model.records import open_batches, seal_batch
from raftline.node import stage_pieces
from tests.unit.gateways.sim_web import SimWeb, serve_sim
from tests.unit.gateways.web import Reply, request

ONE = "/v1/topics/orders/partitions/0"
LEASE = f"{ONE}/groups/spark/lease"
BATCH = {"Content-Type": "application/vnd.raftline.batch"}
STAGE = {"Content-Type": "application/vnd.raftline.stage"}
EPOCH_MS = 1_790_000_000_000  # of the simulated clock


def sealed(*values: str, compression: str = "none") -> bytes:
    rows = [(b"k" + value.encode(), value.encode(), (), 1_000) for value in values]
    return seal_batch(rows, compression=compression)


async def stage(
    web: SimWeb, name: str, payload: bytes, extras: dict[str, Any] | None = None
) -> Reply:
    """Stage under ``query/batch/task/attempt/chunk``."""
    query, *numbers = name.split("/")
    names = ("batch", "task", "attempt", "chunk")
    words = "&".join(f"{key}={value}" for key, value in zip(names, numbers, strict=True))
    fields = BATCH
    if extras is not None:
        told = msgspec.msgpack.encode(extras)
        payload, fields = len(told).to_bytes(4, "big") + told + payload, STAGE
    return await web.ask("PUT", f"{ONE}/stage?query={query}&{words}", payload, fields)


async def publish(web: SimWeb, query: str, batch: int, *winners: tuple[int, int, int]) -> Any:
    body = {"query": query, "batch": batch, "winners": winners}
    return await web.ok("POST", f"{ONE}/publish", body)


async def values(web: SimWeb, group: str = "") -> list[str]:
    if group:
        return [m["value"] for m in await web.receive(group, count=100)]
    read = await web.ok("GET", f"{ONE}/messages?limit=10000&bytes_max=8388608")
    return [message["value"] for message in read["messages"]]


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_batch_is_published_once(nodes: int) -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        assert (await stage(web, "q/0/1/7/0", sealed("c", "d"))).json == {
            "staged": True,
            "already": False,
        }
        await stage(web, "q/0/0/3/0", sealed("a", compression="gzip"))
        await stage(web, "q/0/0/3/1", sealed("b"), {"priorities": [(0, 1, 9)]})
        await stage(web, "q/0/0/4/0", sealed("zombie"))
        fence = await web.ok("GET", f"{ONE}/fence?query=q")
        assert (fence["fence"], fence["chunks"]) == (-1, 4)
        told = {"offset": 0, "count": 4, "waiting": 0, "duplicates": 0, "already": False}
        assert await publish(web, "q", 0, (1, 7, 1), (0, 3, 2)) == told
        assert await publish(web, "q", 0, (0, 4, 1)) == {**told, "already": True}
        assert (await stage(web, "q/0/0/4/1", sealed("zombie"))).json["already"]
        assert await values(web) == ["a", "b", "c", "d"]
        assert (await values(web, "workers"))[0] == "b"  # its priority came along
        assert await web.ok("GET", f"{ONE}/fence?query=q") == {
            "fence": 0,
            "chunks": 0,
            "bytes": 0,
            "publishing": False,
        }

    serve_sim(scenario, nodes=nodes)


def test_more_than_an_entry_is_moved_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_pieces, "PUBLISH_BYTES_MAX", 1_000)

    async def scenario(web: SimWeb) -> None:
        await web.create()
        texts = [f"{chunk}-{at}" for chunk in range(11) for at in range(4)]
        for chunk in range(11):
            rows = [(None, f"{chunk}-{at}".ljust(60).encode(), (), 5) for at in range(4)]
            assert (await stage(web, f"q/0/0/0/{chunk}", seal_batch(rows))).status == 200
        done = await publish(web, "q", 0, (0, 0, 11))
        assert (done["offset"], done["count"]) == (0, 44)
        assert [text.strip() for text in await values(web)] == texts

    serve_sim(scenario, nodes=3)


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_batch_that_is_to_follow_another_one(nodes: int) -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        for batch in (100, 150):
            await stage(web, f"q/{batch}/0/{batch}/0", sealed(f"up to {batch}"))
        body = {"query": "q", "batch": 100, "winners": [[0, 100, 1]], "after": -1}
        assert (await web.ok("POST", f"{ONE}/publish", body))["already"] is False
        assert (await web.ok("POST", f"{ONE}/publish", body))["already"] is True
        body = {"query": "q", "batch": 150, "winners": [[0, 150, 1]], "after": -1}
        refused = await web.ask("POST", f"{ONE}/publish", body)
        assert (refused.status, refused.json["error"]["code"]) == (409, "fenced_query")
        refused = await web.ask("POST", f"{ONE}/publish", {**body, "after": -2})
        assert refused.status == 400
        assert await values(web) == ["up to 100"]
        await web.ok("POST", f"{ONE}/publish", {**body, "after": 100})
        assert await values(web) == ["up to 100", "up to 150"]

    serve_sim(scenario, nodes=nodes)


def test_known_dedup_keys_are_left_out_and_due_times_are_kept() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("first", dedup_key="k2")
        keys = [(place, b"k%d" % place) for place in range(4)]
        extras = {"dedup": keys, "priorities": [(1, 3, 5)]}
        await stage(web, "q/0/0/0/0", sealed("m0", "m1", "m2", "m3"), extras)
        due_ms = EPOCH_MS + int(web.sim.now_ms) + 60_000
        waits = {"dues_ms": [5, due_ms, due_ms], "priorities": [(2, 3, 7)], "dedup": [(1, b"k1")]}
        await stage(web, "q/0/0/0/1", sealed("now", "known", "later"), waits)
        await stage(web, "q/0/0/0/2", sealed("d0"), {"dedup": [(0, b"k0")]})
        done = await publish(web, "q", 0, (0, 0, 3))
        assert done == {"offset": 1, "count": 3, "waiting": 2, "duplicates": 3, "already": False}
        web.sim.advance(1)
        assert await values(web) == ["first", "m0", "m1", "m3", "now"]
        (waiting,) = (await web.ok("GET", "/v1/topics/orders/delayed"))["messages"]
        assert (waiting["due_ms"], waiting["priority"]) == (due_ms, 7)
        web.sim.advance(90)
        assert (await values(web))[-1] == "later"

    serve_sim(scenario)


def test_bad_chunks_and_batches_are_refused_with_a_reason() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        with_producer = seal_batch([(None, b"v", (), 1)], producer_id=5, producer_epoch=0,
                                   base_sequence=0)  # fmt: skip
        far_ms = EPOCH_MS + 400 * 24 * 3_600_000
        cases: list[tuple[Reply, str, str]] = [
            (await stage(web, "q/0/0/0/0", b"junk"), "corrupt_batch", "less than a head"),
            (await stage(web, "q/0/0/0/0", with_producer), "invalid_argument", "producer"),
            (await stage(web, "q/0/0/0/0", sealed("a"), {"dues_ms": [1, 2]}), "invalid_argument",
             "2 due times for 1"),
            (await stage(web, "q/0/0/0/0", sealed("a"), {"dues_ms": [far_ms]}), "invalid_argument",
             "over the limit"),
            (await stage(web, "q/0/0/0/0", sealed("a", compression="gzip"), {"dues_ms": [5]}),
             "invalid_argument", "compressed"),
            (await stage(web, "q/0/0/0/0", sealed("a"), {"priorities": [(0, 2, 5)]}),
             "invalid_argument", "run [0, 2)"),
            (await stage(web, "q/0/0/0/0", sealed("a"), {"dedup": [(0, b"")]}), "invalid_argument",
             "dedup key"),
            (await stage(web, "q/0/0/0/0", sealed("a"), {"colour": 1}), "invalid_argument",
             "colour"),
            (await stage(web, "q/x/0/0/0", sealed("a")), "invalid_argument", "batch='x'"),
            (await stage(web, "q/0/0/-1/0", sealed("a")), "invalid_argument", "attempt=-1"),
            (await stage(web, "/0/0/0/0", sealed("a")), "invalid_argument", "not named"),
            (await stage(web, f"{'q' * 250}/0/0/0/0", sealed("a")), "invalid_argument", "too long"),
            (await web.ask("PUT", f"{ONE}/stage?query=q&batch=0&task=0&attempt=0&chunk=0", b"x"),
             "invalid_argument", "sealed batch"),
            (await web.ask("PUT", f"{ONE}/stage?query=q&batch=0&task=0&attempt=0&chunk=0",
                           b"\0\0\1\0x", STAGE), "invalid_argument", "extras of 256 bytes"),
            (await web.ask("POST", f"{ONE}/publish", {"query": "q", "batch": 0}),
             "invalid_argument", "winners"),
            (await web.ask("POST", f"{ONE}/publish",
                           {"query": "q", "batch": 0, "winners": [[0, 0, 1]]}),
             "stage_missing", "chunk 0 of 1 is not here"),
            (await web.ask("POST", f"{ONE}/publish",
                           {"query": "q", "batch": -1, "winners": []}),
             "invalid_argument", "batch is -1"),
            (await web.ask("GET", f"{ONE}/fence"), "invalid_argument", "not named"),
            (await web.ask("GET", "/v1/topics/none/offsets"), "unknown_topic", "none"),
            (await web.ask("POST", f"{ONE}/archived", {"offset": 7}), "invalid_argument",
             "ends at 0"),
            (await web.ask("POST", f"{ONE}/trim", {"offset": -7}), "invalid_argument", "-7"),
        ]  # fmt: skip
        for reply, code, words in cases:
            assert reply.code == code, (reply.body, words)
            assert words in reply.json["error"]["message"], reply.body
        await stage(web, "q/0/0/0/0", sealed("a"))
        other = await stage(web, "q/0/0/0/0", sealed("b"))
        assert "other bytes" in other.json["error"]["message"]

    serve_sim(scenario)


def test_what_is_abandoned_or_forgotten_is_gone() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        for batch in range(3):
            await stage(web, f"q/{batch}/0/0/0", sealed("a"))
        assert await web.ok("POST", f"{ONE}/abandon", {"query": "q", "batch": 1}) == {"dropped": 2}
        await publish(web, "q", 2, (0, 0, 1))
        assert await web.ok("POST", f"{ONE}/forget", {"query": "q"}) == {"dropped": 0}
        assert (await web.ok("GET", f"{ONE}/fence?query=q"))["fence"] == -1

    serve_sim(scenario)


def test_staged_writes_of_a_silent_query_go() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(stage_ms=60_000)
        await stage(web, "q/0/0/0/0", sealed("a"))
        web.sim.advance(200)
        assert (await web.ok("GET", f"{ONE}/fence?query=q"))["chunks"] == 0

    serve_sim(scenario)


def test_leases_of_an_ordered_group_have_one_message_a_key() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        for at in range(6):
            await web.publish(f"m{at}", key="ab"[at % 2])
        body = {"query": "q", "count": 10, "ordered": True}
        first = await web.ok("POST", LEASE, {**body, "n": 0})
        assert (first["ranges"], first["count"]) == ([[0, 2]], 2)
        second = await web.ok("POST", LEASE, {**body, "n": 1})
        assert second["ranges"] == [[2, 4]]
        assert await web.receive("spark", count=10) == []
        await web.ok("POST", f"{LEASE}/reject", {"query": "q", "n": 1, "ranges": [[2, 3]]})
        third = await web.ok("POST", LEASE, {**body, "n": 2})
        assert third["ranges"] == [[5, 6]]  # the other key is parked behind its dead message

    serve_sim(scenario)


def test_leases_wait_begin_where_told_and_are_shown() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(query_lease_ms=60_000)
        await web.publish("old", "older")
        body = {"query": "q", "n": 5, "count": 10, "start": "next"}
        assert (await web.ok("POST", LEASE, body))["ranges"] == []
        web.client.send(lease_request({**body, "wait": "20s"}))
        other = await web.web.client()
        web.sim.advance(1)
        other.send(publish_request("new"))
        await web.wait(other)
        reply = await web.wait(web.client)
        assert reply.json["ranges"] == [[2, 3]]
        held = await web.ok("GET", f"{LEASE}?query=q")
        assert held == {"n": 5, "ranges": [[2, 3]], "lost": [], "acked": False}
        assert (await web.ok("GET", f"{LEASE}?query=nobody"))["n"] == -1
        shown = await web.ok("GET", "/v1/groups/spark?topic=orders")
        (query,) = shown["work"]["orders"][0]["queries"]
        assert (query["query"], query["n"], query["held"]) == ("q", 5, 1)
        web.sim.advance(61)  # the query is silent for too long
        (again,) = await web.receive("spark", count=10)
        assert (again["offset"], again["attempt"]) == (2, 2)
        lost = await web.ok("POST", LEASE, body)
        assert (lost["ranges"], lost["lost"]) == ([], [[2, 3]])

    serve_sim(scenario)


def lease_request(body: dict[str, Any]) -> bytes:
    return request("POST", LEASE, body)


def publish_request(value: str) -> bytes:
    return request("POST", "/v1/topics/orders/messages", {"messages": [{"value": value}]})


def test_bad_leases_are_refused_with_a_reason() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("a", "b")
        lease = {"query": "q", "n": 0, "count": 1}
        await web.ok("POST", LEASE, lease)
        cases = [
            ({**lease, "count": 0}, "", "invalid_argument", "a lease of 0"),
            ({**lease, "count": 2_000_000}, "", "too_large", "1000000"),
            ({**lease, "wait": "2h"}, "", "invalid_argument", "a wait of"),
            ({**lease, "n": -1}, "", "invalid_argument", "n is -1"),
            ({**lease, "start": "middle"}, "", "invalid_argument", "asks for nothing"),
            ({**lease, "query": ""}, "", "invalid_argument", "no name"),
            ({**lease, "n": 7}, "", "fenced_query", "1 is next"),
            ({"query": "q", "n": 1, "ranges": [[0, 1]]}, "/reject", "fenced_query", "stands at 0"),
            ({"query": "q", "n": 0, "ranges": [[1, 2]]}, "/reject", "invalid_argument",
             "not in the lease"),
            ({"query": "q", "n": 0, "ranges": [[0]]}, "/reject", "invalid_argument", "ranges"),
            ({"query": "q"}, "/ack", "invalid_argument", "missing required field `n`"),
        ]  # fmt: skip
        for body, path, code, words in cases:
            reply = await web.ask("POST", LEASE + path, body)
            assert reply.code == code, (body, reply.body)
            assert words in reply.json["error"]["message"], reply.body
        unknown = f"{ONE}/groups/nobody/lease"
        assert (await web.ask("POST", f"{unknown}/ack", {"query": "q", "n": 0})).code == (
            "unknown_group"
        )

    serve_sim(scenario)


def test_nothing_is_trimmed_that_is_not_archived() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(archive="required", archive_dir="/srv/archive", retention_bytes=1_000_000,
                         segment_bytes=1 << 20)  # fmt: skip
        value = "x" * 300_000
        for _ in range(12):
            await web.publish(value)
        web.sim.advance(30)
        (bounds,) = (await web.ok("GET", "/v1/topics/orders/offsets"))["partitions"]
        assert (bounds["log_start"], bounds["commit_end"], bounds["archived"]) == (0, 12, 0)
        refused = await web.ask("POST", f"{ONE}/trim", {"offset": 5})
        assert (refused.status, refused.code) == (409, "not_archived")
        assert "orders/0 is archived up to offset 0" in refused.json["error"]["message"]
        assert await web.ok("POST", f"{ONE}/archived", {"offset": 4}) == {"archived": 4}
        assert await web.ok("POST", f"{ONE}/archived", {"offset": 2}) == {"archived": 4}
        web.sim.advance(30)
        (bounds,) = (await web.ok("GET", "/v1/topics/orders/offsets"))["partitions"]
        assert 0 < bounds["log_start"] <= 4
        shown = await web.ok("GET", "/v1/topics/orders")
        assert shown["partitions"][0]["archived"] == 4
        assert shown["settings"]["archive_dir"] == "/srv/archive"
        await web.ok("PATCH", "/v1/topics/orders", {"settings": {"archive": "off"}})
        assert (await web.ok("POST", f"{ONE}/trim", {"offset": 11})) == {"log_start": 11}

    serve_sim(scenario)


def test_bounds_of_all_partitions_and_reads_that_end() -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=2)
        for at in range(5):
            await web.publish(f"m{at}", partition=0, timestamp=1_000 + at)
        rows = (await web.ok("GET", "/v1/topics/orders/offsets?time=1002"))["partitions"]
        assert [(r["partition"], r["commit_end"], r["offset"]) for r in rows] == [
            (0, 5, 2),
            (1, 0, 0),
        ]
        assert rows[0]["timestamp"] == 1_002
        fields = {"Accept": BATCH["Content-Type"]}
        whole = await web.ask("GET", f"{ONE}/messages?offset=1&end_offset=3", b"", fields)
        assert [m.offset for m in open_batches(whole.body)] == [1, 2]

    serve_sim(scenario)
