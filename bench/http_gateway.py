"""CPU of the HTTP gateway per small append, with a node that answers at once.

    .venv/bin/python bench/http_gateway.py [requests] [in flight]

The client is a thread-less raw socket in a child process, so that the CPU time of this process is
the server's alone.
"""

import asyncio
import os
import socket
import sys
import time

import uvloop

from raftline.config.settings import Settings
from raftline.gateways.http.gateway import HttpGateway
from raftline.model.batch import BatchInfo
from raftline.model.calls import Appended
from raftline.model.records import seal_batch
from raftline.node.clock import LoopClock
from raftline.telemetry.counters import Counters
from raftline.telemetry.log import no_log


class AnswersAtOnce:
    """Calls that cost next to nothing."""

    offset = 0
    counters = Counters()

    def append(self, topic, partition, batch, info: BatchInfo, timeout_ms, done) -> None:
        base = self.offset
        self.offset = base + info.count
        done(Appended(base, info.count, partition, 0))


def client(port: int, requests: int, inflight: int) -> None:
    batch = seal_batch([(b"k", b"v" * 100, (), 1_700_000_000_000)])
    request = (
        b"POST /v1/topics/orders/partitions/0/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        b"Content-Type: application/vnd.raftline.batch\r\nContent-Length: %d\r\n\r\n" % len(batch)
    ) + batch
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sent = got = 0
    while got < requests:
        many = min(inflight - (sent - got), requests - sent)
        if many:
            sock.sendall(request * many)
            sent += many
        got += sock.recv(1 << 20).count(b"HTTP/1.1 200 OK")
    sock.close()


def main() -> None:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    inflight = int(sys.argv[2]) if len(sys.argv) > 2 else 64
    listener = socket.create_server(("127.0.0.1", 18_999))
    listener.setblocking(False)
    alive, held = os.pipe()
    if not os.fork():
        listener.close()
        client(18_999, requests, inflight)
        os._exit(0)
    os.close(held)

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        gateway = HttpGateway(loop, LoopClock(loop), AnswersAtOnce(), Settings(), no_log)
        await gateway.start(listener)
        begun, cpu = time.perf_counter(), time.process_time()
        ended = asyncio.Event()
        loop.add_reader(alive, ended.set)  # readable once the child is gone
        await ended.wait()
        cpu_us = (time.process_time() - cpu) * 1e6 / requests
        wall_us = (time.perf_counter() - begun) * 1e6 / requests
        print(f"{requests} requests, {inflight} in flight: {cpu_us:.2f} us CPU, {wall_us:.2f} us")
        gateway.close()

    uvloop.run(serve())


if __name__ == "__main__":
    main()
