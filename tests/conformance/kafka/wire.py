"""Kafka's protocol by hand over a real socket.

Requests are written and replies read with the codecs that tests/unit/gateways/kafka holds to kio:
so the hand-written Produce and Fetch are held to it too.
"""

import socket
import struct
from typing import Any

from raftline.gateways.kafka.codec import decoder, encoder
from raftline.gateways.kafka.schema import FETCH, PRODUCE, Api

TIMEOUT_S = 20.0
Fields = dict[str, Any]


class Hung(Exception):
    """The node hung up."""


class Wire:
    """One connection."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._count = 0

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, api: Api, version: int, request: Fields) -> int:
        """Send a request; return its number."""
        self._count += 1
        self.raw(frame(body_of(api, version, request, self._count)))
        return self._count

    def raw(self, data: bytes) -> None:
        """Send bytes."""
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise Hung(str(error)) from error

    def reply(self, api: Api, version: int, number: int) -> Fields:
        """Receive the reply to a request."""
        try:
            (length,) = struct.unpack(">i", self._exactly(4))
            data = self._exactly(length)
        except ConnectionError as error:
            raise Hung(str(error)) from error
        assert struct.unpack_from(">i", data) == (number,)
        start = 4
        if api.has_response_tags(version):
            assert data[4] == 0
            start = 5
        flexible = version >= api.flexible_from
        message = decoder(api.response, version, flexible=flexible)(data, start)
        again = bytearray(data[:start])
        encoder(api.response, version, flexible=flexible)(again, message)
        assert bytes(again) == data, "bytes are left, or not as they should be"
        return message

    def ask(self, api: Api, version: int, request: Fields) -> Fields:
        """Send a request and receive its reply."""
        return self.reply(api, version, self.send(api, version, request))

    def produce(
        self, version: int, topic: str, batch: bytes, acks: int = -1, partition: int = 0
    ) -> Fields:
        """Send one batch; return the row of its partition."""
        answer = self.ask(PRODUCE, version, produce(topic, {partition: batch}, acks))
        return answer["topics"][0]["partitions"][0]

    def fetch(self, version: int, topic: str | bytes, offset: int, **more: int) -> Fields:
        """Read from an offset on; return the row of the partition."""
        answer = self.ask(FETCH, version, fetch(topic, {0: offset}, **more))
        assert answer["session_id"] == 0
        return answer["topics"][0]["partitions"][0]

    def is_closed(self) -> bool:
        """Wait for the node to hang up."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True

    def close_writing(self) -> None:
        """Send no more."""
        self._socket.shutdown(socket.SHUT_WR)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise Hung(f"after {len(data)} of {count} bytes")
            data += piece
        return bytes(data)


def frame(body: bytes) -> bytes:
    """Put the length before a request."""
    return struct.pack(">i", len(body)) + body


def body_of(api: Api, version: int, request: Fields, number: int, client: bytes = b"me") -> bytes:
    """Return a request without its length."""
    out = bytearray(struct.pack(">hhih", api.key, version, number, len(client)) + client)
    flexible = version >= api.flexible_from
    if flexible:
        out.append(0)
    encoder(api.request, version, flexible=flexible)(out, request)
    return bytes(out)


def produce(topic: str, batches: dict[int, bytes], acks: int = -1) -> Fields:
    """Return a Produce of one topic."""
    rows = [{"partition": number, "records": batch} for number, batch in batches.items()]
    return {"acks": acks, "timeout_ms": 10_000, "topics": [{"name": topic, "partitions": rows}]}


def fetch(
    topic: str | bytes,
    offsets: dict[int, int],
    *,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_bytes: int = 1 << 20,
    epoch: int = -1,
) -> Fields:
    """Return a Fetch of one topic, by name or by id."""
    rows = [
        {
            "partition": number,
            "fetch_offset": offset,
            "partition_max_bytes": partition_bytes,
            "current_leader_epoch": epoch,
        }
        for number, offset in offsets.items()
    ]
    name = {"topic_id": topic} if isinstance(topic, bytes) else {"topic": topic}
    return {
        "max_wait_ms": wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "topics": [{**name, "partitions": rows}],
    }
