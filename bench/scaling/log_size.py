"""Size of a log: ten gigabytes in one partition."""

import os
import random
import shutil
import time
from pathlib import Path

from bench.cluster import BenchCluster, running
from bench.scaling.asks import BATCH, Asker, append_call, cost_of, memory_mb, request, restart
from bench.scaling.curve import Curve, Plot, Point, size_text
from raftline.model.records import seal_batch

TOPIC = "log"
SIZES = (10**8, 10**9, 10**10)
MESSAGE_BYTES = 10_000
MESSAGES = 100  # of one batch
FIRST_MS = 1_700_000_000_000
STEP_MS = 1_000  # between messages
SPARE = 1.6  # free disk per byte of log: segments, and the write-ahead log until it is checkpointed
HOW = """
One node, one partition, batches of 100 messages of 10,000 B, each a second later than the one
before; retention off. *start*: from spawn to the first ack; after a stop, after `kill -9`, and
after a stop with nothing of its files in the page cache. *time lookup*: the first message at or
after a random moment; *read*: one batch at a random offset. *cold* is the first hundred of them
after the cold start.
"""
READING = """
**A start does not depend on the size of the log**: 0.3 s with 10 GB, after `kill -9` and cold
too. The checkpoint says what each segment holds, and only the write-ahead log is read. Memory
does not either.

**Asking for a place anywhere in it does**: each question reads a batch of 1 MB. In a small log
its bytes are in the page cache; in a large one they are not, as pages more than `log.cache_bytes`
(64 MiB) behind the end are given back to the kernel, and have to be read from the disk. The
indexes of a closed segment, 1.5 ms to decode for 128 MiB, are kept by last use, 32 MiB of them a
node, which is all of a log of 10 GB (with only the newest 4 of a log kept, a look-up by time took
2 to 3 times as long as its read). Reading on from a place is not concerned, nor is the loop: all of
it is done in the lane.
"""


def walk(work: Path, *, quick: bool) -> Curve:
    """Grow one log and ask it."""
    sizes = [10**7, 3 * 10**7] if quick else list(SIZES)
    free = shutil.disk_usage(work).free
    fitting = [size for size in sizes if size * SPARE + 3 * 10**9 < free]
    if fitting != sizes:
        print(f"only {free / 1e9:.0f} GB are free: {sizes} becomes {fitting}")
    with running(work / "log", 1) as cluster:
        with cluster.client(60_000) as client:
            settings = {"retention_bytes": -1, "retention_ms": -1}
            client.create_topic(TOPIC, partitions=1, replication_factor=0, settings=settings)
        grower = Grower(cluster)
        points = [grower.point(size, 0.2 if quick else 1.5) for size in fitting]
    return Curve(
        name="log",
        title="Size of a log",
        x_name="bytes in the log",
        how=HOW,
        points=points,
        plots=[
            Plot("start", "Start", "s", ("start s", "start after kill s", "start cold s")),
            Plot(
                "lookup",
                "Asking for a moment or an offset",
                "ms",
                ("time lookup p50 ms", "time lookup cold ms", "read p50 ms", "read cold ms"),
            ),
            Plot("memory", "Memory of the node", "MB", ("memory MB", "memory after start MB")),
        ],
        reading=READING,
    )


class Grower:
    """Fills one partition with messages whose times go up, and asks for places in it."""

    def __init__(self, cluster: BenchCluster) -> None:
        self._cluster = cluster
        self._messages = 0
        self._bytes = 0
        self._chance = random.Random(1)
        self._value = random.Random(2).randbytes(MESSAGE_BYTES)

    def point(self, size: int, seconds: float) -> Point:
        """Grow to ``size``, then measure."""
        cluster, node = self._cluster, self._cluster.nodes[0]
        values = {"fill MB/s": self._fill(size)}
        values["memory MB"] = memory_mb(node)
        asker = Asker(node)
        cost = cost_of(node, append_call(asker, TOPIC), seconds)
        values |= {"append p50 ms": cost.p50_ms, "append max ms": cost.max_ms}
        values |= self._ask(asker, seconds)
        values["start s"] = restart(cluster, TOPIC)
        values["start after kill s"] = restart(cluster, TOPIC, kill=True)
        values["start cold s"] = restart(cluster, TOPIC, cold=True)
        values["memory after start MB"] = memory_mb(cluster.nodes[0])
        asker = Asker(cluster.nodes[0])
        for name, ask in (("time lookup", self._look_up), ("read", self._read)):
            begun = time.perf_counter()
            for _ in range(100):
                ask(asker)
            values[f"{name} cold ms"] = (time.perf_counter() - begun) * 10
        values["files"] = sum(1 for _ in cluster.directory.rglob("*.log"))
        return Point(x=size, label=size_text(size), values=values)

    def _ask(self, asker: Asker, seconds: float) -> dict[str, float]:
        looked = cost_of(asker.node, lambda: self._look_up(asker), seconds)
        read = cost_of(asker.node, lambda: self._read(asker), seconds)
        return {
            "time lookup p50 ms": looked.p50_ms,
            "time lookup p99 ms": looked.p99_ms,
            "time lookup CPU us": looked.cpu_us,
            "read p50 ms": read.p50_ms,
            "read p99 ms": read.p99_ms,
        }

    def _fill(self, size: int) -> float:
        """Append until the log has ``size`` bytes, four batches on their way; return MB/s."""
        asker, open_ = Asker(self._cluster.nodes[0]), 0
        path = f"/v1/topics/{TOPIC}/partitions/0/messages"
        begun, before = time.perf_counter(), self._bytes
        while self._bytes < size:
            first = FIRST_MS + self._messages * STEP_MS
            rows = [(None, self._value, (), first + n * STEP_MS) for n in range(MESSAGES)]
            asker.wire.send(request("POST", path, seal_batch(rows), BATCH))
            self._messages += MESSAGES
            self._bytes += MESSAGES * MESSAGE_BYTES
            open_ += 1
            if open_ > 4 or first == FIRST_MS:  # those after it find a leader: in order
                asker.wire.reply()
                open_ -= 1
        for _ in range(open_):
            asker.wire.reply()
        os.sync()
        return (self._bytes - before) / (time.perf_counter() - begun) / 1e6

    def _look_up(self, asker: Asker) -> None:
        number = self._chance.randrange(self._messages)
        moment = FIRST_MS + number * STEP_MS - 1
        found = asker.get(f"/v1/topics/{TOPIC}/partitions/0/offsets?time={moment}")
        if found["timestamp"] != FIRST_MS + number * STEP_MS:
            raise SystemExit(f"asked for {moment}, found {found}")

    def _read(self, asker: Asker) -> None:
        offset = self._chance.randrange(self._messages)
        path = f"/v1/topics/{TOPIC}/partitions/0/messages?offset={offset}&limit=1&bytes_max=1"
        if not asker.ask("GET", path, kind=BATCH):
            raise SystemExit(f"nothing is at {offset}")
