"""A server that acknowledges what Kafka's clients produce, and keeps nothing.

    python -m bench.peers.kafka.sink

It shows how much one client can hand over on this machine: no server can be quicker than one that
only reads the bytes off the socket. It prints its port and serves until it is ended. Every topic
that is named exists, with one partition; all it knows of a topic is how many messages came.
"""

import contextlib
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raftline.gateways.kafka import schema
from raftline.gateways.kafka.codec import decoder, encoder
from raftline.gateways.kafka.connection import HEAD, LENGTH, REPLY, skip_tags

if TYPE_CHECKING:
    from raftline.gateways.kafka.schema import Api

HOST = "127.0.0.1"
NODE = 1
LAST_DELTA = struct.Struct(">i")  # of the last message in a batch
LAST_DELTA_AT = 23
START_S_MAX = 30
ROOT = Path(__file__).parents[3]

Fields = dict[str, Any]


class Sink:
    """Counts messages by topic."""

    def __init__(self) -> None:
        self._counted: Counter[str] = Counter()
        self._apis: dict[int, tuple[Api, int, int, Callable[[Fields], Fields]]] = {
            api.key: (api, first, last, answer)
            for api, first, last, answer in (
                (schema.PRODUCE, 3, 9, self._produce),
                (schema.FETCH, 4, 11, self._nothing),  # without it clients send an older format
                (schema.LIST_OFFSETS, 1, 5, self._ends),
                (schema.METADATA, 1, 8, self._metadata),
                (schema.API_VERSIONS, 0, 3, self._versions),
                (schema.INIT_PRODUCER_ID, 0, 1, self._producer),
            )
        }
        self._socket = socket.create_server((HOST, 0))
        self.port: int = self._socket.getsockname()[1]

    def serve(self) -> None:
        """Take connections, each in a thread of its own, until the process ends."""
        while True:
            connection, _ = self._socket.accept()
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, connection.makefile("rb") as stream, contextlib.suppress(OSError):
            while head := stream.read(LENGTH.size):
                connection.sendall(self._answer(stream.read(*LENGTH.unpack(head))))

    def _answer(self, frame: bytes) -> bytes:
        key, version, correlation, name = HEAD.unpack_from(frame)
        api, first, last, answer = self._apis[key]
        assert first <= version <= last, f"{api.name} {version}"
        flexible = version >= api.flexible_from
        at = HEAD.size + max(0, name)
        if flexible:
            at = skip_tags(frame, at)
        fields = answer(decoder(api.request, version, flexible=flexible)(frame, at))
        out = bytearray(REPLY.size)
        if api.has_response_tags(version):
            out.append(0)
        encoder(api.response, version, flexible=flexible)(out, fields)
        REPLY.pack_into(out, 0, len(out) - LENGTH.size, correlation)
        return bytes(out)

    def _produce(self, request: Fields) -> Fields:
        topics = []
        for topic in request["topics"]:
            name = topic["name"]
            base = self._counted[name]
            (row,) = topic["partitions"]
            (last,) = LAST_DELTA.unpack_from(row["records"], LAST_DELTA_AT)
            self._counted[name] = base + last + 1
            stored = {"partition": row["partition"], "base_offset": base}
            topics.append({"name": name, "partitions": [stored]})
        return {"topics": topics}

    def _ends(self, request: Fields) -> Fields:
        topics = []
        for topic in request["topics"]:
            end = self._counted[topic["name"]]
            rows = [
                {"partition": row["partition"], "offset": end if row["timestamp"] == -1 else 0}
                for row in topic["partitions"]
            ]
            topics.append({"name": topic["name"], "partitions": rows})
        return {"topics": topics}

    def _metadata(self, request: Fields) -> Fields:
        partition = {"partition": 0, "leader_id": NODE, "replicas": [NODE], "isr": [NODE]}
        named = [topic["name"] for topic in request["topics"] or []]
        return {
            "brokers": [{"node_id": NODE, "host": HOST, "port": self.port}],
            "controller_id": NODE,
            "topics": [{"name": name, "partitions": [partition]} for name in named],
        }

    def _versions(self, _: Fields) -> Fields:
        rows = [
            {"api_key": key, "min_version": first, "max_version": last}
            for key, (_, first, last, _) in self._apis.items()
        ]
        return {"api_keys": rows}

    def _producer(self, _: Fields) -> Fields:
        return {"producer_id": threading.get_ident() & 0xFFFF_FFFF}

    def _nothing(self, _: Fields) -> Fields:
        raise AssertionError("nothing can be read here")


@contextlib.contextmanager
def sink() -> Iterator["RunningSink"]:
    """Run one in a process of its own."""
    child = subprocess.Popen(
        [sys.executable, "-m", "bench.peers.kafka.sink"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        assert child.stdout is not None
        ready, _, _ = select.select([child.stdout], [], [], START_S_MAX)
        line = child.stdout.readline() if ready else b""
        if not line:
            raise SystemExit("the server that keeps nothing did not start")
        yield RunningSink(child.pid, f"{HOST}:{int(line)}")
    finally:
        child.terminate()
        child.communicate()


class RunningSink:
    """A target like a cluster."""

    def __init__(self, pid: int, servers: str) -> None:
        self.pids = [pid]
        self.servers = servers

    def create(self, topic: str) -> str:
        """Every topic exists."""
        del topic
        return self.servers

    def delete(self, topic: str) -> None:
        """Nothing is kept of it."""


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    made = Sink()
    print(made.port, flush=True)
    made.serve()
