"""Batches that are sound outside and not inside: no poll of one may end a node, or hang."""

import struct

import pytest
from crc32c import crc32c

from raftline.model.records import seal_batch
from raftline.model.varint import put_varint
from tests.unit.gateways.sim_web import TOPIC, SimWeb, serve_sim
from tests.unit.gateways.web import BATCH, Reply

HEAD_BYTES, CRC_FROM, CRC = 61, 21, slice(17, 21)


def _resealed(batch: bytearray) -> bytes:
    batch[CRC] = struct.pack(">I", crc32c(bytes(batch[CRC_FROM:])))
    return bytes(batch)


def no_messages() -> bytes:
    batch = bytearray(seal_batch([(None, b"hello world", (), 1)]))
    batch[HEAD_BYTES + 1 :] = b"\xff" * (len(batch) - HEAD_BYTES - 1)
    return _resealed(batch)


def other_offsets() -> bytes:
    """Return a batch whose message says that it is the tenth of it."""
    batch = bytearray(seal_batch([(None, b"hello world", (), 1)]))
    batch[HEAD_BYTES + 3] = 18
    return _resealed(batch)


def endless_header() -> bytes:
    """Return a batch with a header as long as a number can say, which overflows the codec."""
    header = bytearray(b"\x02\x02h")  # one, named h
    put_varint(header, (1 << 63) - 1)
    batch = bytearray(seal_batch([(None, b"hello world", (), 1)]))
    batch[-1:] = header
    batch[HEAD_BYTES] = (len(batch) - HEAD_BYTES - 1) << 1
    batch[8:12] = struct.pack(">i", len(batch) - 12)
    return _resealed(batch)


BATCHES = [no_messages(), other_offsets(), endless_header()]


async def store(web: SimWeb, batch: bytes, partition: int = 0) -> None:
    path = f"/v1/topics/{TOPIC}/partitions/{partition}/messages"
    reply = await web.ask("POST", path, batch, {"Content-Type": BATCH})
    assert reply.status == 200, reply.body


async def join(web: SimWeb) -> str:
    """Return a new member of a group, as a poll names it."""
    body = {"client_id": "c", "topics": [TOPIC]}
    member = await web.ok("POST", "/v1/groups/readers/join", body)
    return f"member_id={member['member_id']}&generation={member['generation']}"


def is_refused(reply: Reply) -> bool:
    return (reply.status, reply.code) == (400, "corrupt_batch")


@pytest.mark.parametrize("batch", BATCHES)
def test_a_poll_of_a_stream_group_serves_its_other_partitions(batch: bytes) -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=2)
        await store(web, batch)
        await web.publish("a", partition=1)
        path = f"/v1/groups/readers/poll?{await join(web)}"
        polled = await web.ok("GET", path)
        assert [row["value"] for row in polled["messages"]] == ["a"]
        assert polled["next_offsets"] == {TOPIC: {"1": 1}}
        assert is_refused(await web.ask("GET", path))
        assert is_refused(await web.ask("GET", path + "&wait_ms=1000"))
        await web.publish("b", partition=1)
        assert [row["value"] for row in (await web.ok("GET", path))["messages"]] == ["b"]

    serve_sim(scenario)


@pytest.mark.parametrize("batch", BATCHES)
def test_a_poll_of_a_stream_group_gives_what_is_before_it(batch: bytes) -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        await web.publish("a")
        await store(web, batch)
        await web.publish("behind it")
        path = f"/v1/groups/readers/poll?{await join(web)}"
        assert (await web.ok("GET", path))["next_offsets"] == {TOPIC: {"0": 1}}
        assert is_refused(await web.ask("GET", path))

    serve_sim(scenario)


@pytest.mark.parametrize("batch", BATCHES)
def test_a_poll_that_leases_serves_its_other_partitions(batch: bytes) -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create(partitions=2)
        await store(web, batch)
        await web.publish("a", partition=1)
        path = f"/groups/readers/poll?{await join(web)}"
        polled = await web.ok("GET", path)
        assert [row["value"] for row in polled["messages"]["1"]] == ["a"]
        await web.ok("GET", "/health")

    serve_sim(scenario)


@pytest.mark.parametrize("batch", BATCHES)
def test_a_receive_is_refused(batch: bytes) -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        await store(web, batch)
        assert is_refused(await web.ask("POST", f"/v1/topics/{TOPIC}/groups/workers/receive"))
        assert is_refused(await web.ask("GET", f"/groups/readers/poll?{await join(web)}"))

    serve_sim(scenario)


@pytest.mark.parametrize("batch", BATCHES)
def test_a_receive_of_an_ordered_group_is_refused(batch: bytes) -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        await store(web, batch)  # its leader reads the keys in it, to know whose turn it is
        path = f"/v1/topics/{TOPIC}/groups/workers/receive"
        assert is_refused(await web.ask("POST", path, {"ordered": True}))
        await web.ok("GET", "/health")

    serve_sim(scenario)


@pytest.mark.parametrize("batch", BATCHES)
def test_a_consumer_that_polls_one_message_is_refused(batch: bytes) -> None:
    async def scenario(web: SimWeb) -> None:
        await web.create()
        await store(web, batch)
        body = {"consumerID": "c-1", "consumerGroup": "readers", "topics": [TOPIC]}
        await web.ok("POST", "/connect", body)
        path = f"/receiveMessage?consumerID=c-1&partitionID={TOPIC}-0"
        assert is_refused(await web.ask("GET", path))
        await web.ok("GET", "/health")

    serve_sim(scenario)
