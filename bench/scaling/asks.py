"""Questions to one node, one at a time, with what each cost: latency here, CPU there."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from bench.cluster import BenchCluster, http_port
from bench.load import LoadSpec, encode_request
from bench.processes import cpu_ns, rss_mb
from bench.worker import Wire
from raftline.server.local_cluster import LocalNode

SERVED_S_MAX = 120.0
JSON = "application/json"
BATCH = "application/vnd.raftline.batch"


class Asker:
    """One connection to one node."""

    def __init__(self, node: LocalNode) -> None:
        self.node = node
        self.wire = Wire(http_port(node))

    def send(self, verb: str, path: str, body: bytes = b"", kind: str = JSON) -> None:
        """Put a request on its way."""
        self.wire.send(request(verb, path, body, kind))

    def ask(self, verb: str, path: str, body: bytes = b"", kind: str = JSON) -> bytes:
        """Ask, wait, and return the body of the answer. Ends the run unless it is a success."""
        self.send(verb, path, body, kind)
        return self.wire.reply()[1]

    def post(self, path: str, **fields: object) -> Any:
        """Post JSON and return what is answered."""
        return msgspec.json.decode(self.ask("POST", path, msgspec.json.encode(fields)))

    def get(self, path: str) -> Any:
        """Return the answer to a GET."""
        return msgspec.json.decode(self.ask("GET", path))


def request(verb: str, path: str, body: bytes = b"", kind: str = JSON) -> bytes:
    """Return one whole request; ``kind`` is what is sent, or what is wanted where nothing is."""
    field = "Content-Type" if body else "Accept"
    head = f"{verb} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{field}: {kind}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Cost(msgspec.Struct):
    """What a call costs, from many of them."""

    p50_ms: float
    p99_ms: float
    max_ms: float
    cpu_us: float  # of the node, per call
    calls_s: float


def cost_of(
    node: LocalNode,
    call: Callable[[], object],
    seconds: float,
    warm_up: int = 20,
    calls_max: int = 1 << 30,
) -> Cost:
    """Repeat a call until time is over; its latency, and the CPU the node used per call."""
    for _ in range(warm_up):
        call()
    took: list[int] = []
    cpu, begun = cpu_ns(node.pid), time.perf_counter()
    while (at := time.perf_counter()) < begun + seconds or len(took) < 10:
        call()
        took.append(int((time.perf_counter() - at) * 1e9))
        if len(took) >= calls_max:
            break
    passed, cpu = time.perf_counter() - begun, cpu_ns(node.pid) - cpu
    took.sort()
    return Cost(
        p50_ms=took[len(took) // 2] / 1e6,
        p99_ms=took[min(len(took) - 1, len(took) * 99 // 100)] / 1e6,
        max_ms=took[-1] / 1e6,
        cpu_us=cpu / len(took) / 1e3,
        calls_s=len(took) / passed,
    )


def append_call(
    asker: Asker, topic: str, size: int = 100, messages: int = 1
) -> Callable[[], object]:
    """Return a call that appends one batch to partition 0 and waits until it is durable."""
    spec = LoadSpec(port=0, topic=topic, message_bytes=size, messages=messages)
    whole, _ = encode_request(spec)

    def call() -> None:
        asker.wire.send(whole)
        asker.wire.reply()

    return call


def idle_cpu(nodes: list[LocalNode], seconds: float) -> float:
    """Return the share of a core that nodes use while nobody asks anything, in percent."""
    before = sum(cpu_ns(node.pid) for node in nodes)
    begun = time.perf_counter()
    time.sleep(seconds)
    used = sum(cpu_ns(node.pid) for node in nodes) - before
    return used / (time.perf_counter() - begun) / 1e7


def memory_mb(node: LocalNode) -> float:
    """Return a node's resident memory."""
    return rss_mb(node.pid)


def restart(cluster: BenchCluster, topic: str, *, kill: bool = False, cold: bool = False) -> float:
    """Stop a cluster of one node and start it again: seconds from the spawn to the first ack."""
    if kill:
        cluster.kill(cluster.nodes[0])
    else:
        cluster.stop()
    if cold:
        forget_pages(cluster.directory)
    begun = time.perf_counter()
    cluster.local.start()
    until_acked(http_port(cluster.nodes[0]), topic)
    took = time.perf_counter() - begun
    cluster.local.wait_ready()
    return took


def until_acked(port: int, topic: str, limit_s: float = SERVED_S_MAX) -> None:
    """Try until an append is acknowledged."""
    whole, _ = encode_request(LoadSpec(port=port, topic=topic))
    until = time.perf_counter() + limit_s
    while time.perf_counter() < until:
        with contextlib.suppress(OSError, SystemExit):
            wire = Wire(port)
            try:
                wire.sock.settimeout(limit_s)
                wire.send(whole)
                wire.reply()
            finally:
                wire.sock.close()
            return
        time.sleep(0.005)
    raise SystemExit(f"no ack within {limit_s:.0f} s of the start")


def forget_pages(directory: Path) -> None:
    """Have the kernel drop what it caches of all files below a directory."""
    for file in directory.rglob("*"):
        if file.is_file():
            fd = os.open(file, os.O_RDONLY)
            try:
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
