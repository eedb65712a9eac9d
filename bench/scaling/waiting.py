"""Waiting messages: a million that are due later."""

import random
import time
from pathlib import Path

import msgspec

from bench.cluster import BenchCluster, running
from bench.processes import cpu_ns
from bench.scaling.asks import Asker, append_call, cost_of, idle_cpu, memory_mb, restart
from bench.scaling.curve import Curve, Plot, Point, count_text

TOPIC = "waiting"
COUNTS = (1_000, 10_000, 100_000, 1_000_000)
PER_CALL = 1_000
DUE = 5_000  # that come due while all others wait
DAY_MS = 86_400_000
HOW = """
One node, one partition. So many messages of 100 B wait, due at random moments between one and six
days from now. *schedule*: a call for 1,000 of them, CPU by the message. *one*: schedule a single
message, *cancel*: cancel one, *list*: the next 100, *append*: a message of 100 B that does not
wait. *due*: 5,000 more that become due at the same moment; how late the last of them can be read.
*start* is from spawn to the first ack, after a stop and after `kill -9`.
"""
READING = """
**No knee up to a million.** Scheduling, cancelling, listing and appending cost the same beside
1,000 and beside 1,000,000 waiting messages, and 5,000 that become due at one moment are all in
the log 40 to 50 ms later. Memory is what grows: 170 bytes a message at the end of this run, of
which 25 are the indexes (`python -m bench.waiting_memory`) and the rest what the process keeps
after taking in a million.

A call that schedules 1,000 takes 30 us of CPU a message, so 30 ms, and up to 145 ms when a
checkpoint falls into it; a start takes 0.6 s with a million.
"""


def walk(work: Path, *, quick: bool) -> Curve:
    """Let more and more messages wait."""
    counts = (500, 5_000) if quick else COUNTS
    with running(work / "waiting", 1) as cluster:
        cluster.create(TOPIC)
        planner = Planner(cluster, DUE // 10 if quick else DUE)
        points = [planner.point(count, 0.2 if quick else 1.0) for count in counts]
    return Curve(
        name="waiting",
        title="Waiting messages",
        x_name="waiting messages",
        how=HOW,
        points=points,
        plots=[
            Plot(
                "latency",
                "Calls for one message",
                "ms",
                ("append p50 ms", "append max ms", "one p50 ms", "cancel p50 ms", "list p50 ms"),
            ),
            Plot("cpu", "CPU of the node", "us", ("schedule CPU us", "one CPU us", "due CPU us")),
            Plot("memory", "Memory of the node", "MB", ("memory MB",)),
            Plot("start", "Start", "s", ("start s", "start after kill s")),
        ],
        reading=READING,
    )


class Planner:
    """Schedules, and measures beside what waits."""

    def __init__(self, cluster: BenchCluster, due: int) -> None:
        self._cluster, self._due = cluster, due
        self._asker = Asker(cluster.nodes[0])
        self._chance = random.Random(1)
        self._count = 0
        self._ids: list[str] = []

    def point(self, count: int, seconds: float) -> Point:
        """Let so many wait, then measure."""
        cluster, node = self._cluster, self._cluster.nodes[0]
        self._asker = asker = Asker(node)
        values = self._schedule(count)
        values["memory MB"] = memory_mb(node)
        values["idle CPU %"] = idle_cpu([node], seconds)
        cost = cost_of(node, append_call(asker, TOPIC), 2 * seconds)
        values |= {"append p50 ms": cost.p50_ms, "append max ms": cost.max_ms}
        cost = cost_of(node, self._one, seconds)
        values |= {"one p50 ms": cost.p50_ms, "one CPU us": cost.cpu_us}
        cost = cost_of(node, self._cancel, seconds / 2, warm_up=0)
        values["cancel p50 ms"] = cost.p50_ms
        path = f"/v1/topics/{TOPIC}/delayed?limit=100"
        cost = cost_of(node, lambda: asker.get(path), seconds / 2)
        values["list p50 ms"] = cost.p50_ms
        values |= self._burst()
        values["start s"] = restart(cluster, TOPIC)
        values["start after kill s"] = restart(cluster, TOPIC, kill=True)
        return Point(x=count, label=count_text(count), values=values)

    def _schedule(self, count: int) -> dict[str, float]:
        """Schedule until ``count`` wait."""
        asker, pid = self._asker, self._cluster.nodes[0].pid
        waiting = int(asker.get(f"/v1/topics/{TOPIC}/delay/stats")["waiting"])
        before, made, slowest = cpu_ns(pid), 0, 0.0
        while waiting + made < count:
            many = min(PER_CALL, count - waiting - made)
            body = self._body(many, lambda now: now + self._chance.randrange(DAY_MS, 6 * DAY_MS))
            at = time.perf_counter()
            reply = asker.ask("POST", f"/v1/topics/{TOPIC}/messages", body)
            slowest = max(slowest, time.perf_counter() - at)
            if reply.count(b'"error":null') != many:
                raise SystemExit(f"refused: {reply[:500]!r}")
            made += many
        rows = asker.get(f"/v1/topics/{TOPIC}/delayed?limit=1000")["messages"]
        self._ids = [row["id"] for row in rows]
        return {
            "schedule CPU us": (cpu_ns(pid) - before) / max(1, made) / 1000,
            "schedule max ms": slowest * 1000,
        }

    def _body(self, many: int, due: object) -> bytes:
        now = int(time.time() * 1000)
        rows = [
            {"value": "v" * 100, "deliverAt": due(now), "partition": 0}  # type: ignore[operator]
            for _ in range(many)
        ]
        return msgspec.json.encode({"messages": rows})

    def _one(self) -> None:
        body = self._body(1, lambda now: now + self._chance.randrange(DAY_MS, 6 * DAY_MS))
        self._asker.ask("POST", f"/v1/topics/{TOPIC}/messages", body)

    def _cancel(self) -> None:
        if not self._ids:
            rows = self._asker.get(f"/v1/topics/{TOPIC}/delayed?limit=1000")["messages"]
            self._ids = [row["id"] for row in rows]
        place = self._chance.randrange(len(self._ids))
        self._asker.ask("DELETE", f"/v1/topics/{TOPIC}/delayed/{self._ids.pop(place)}")

    def _burst(self) -> dict[str, float]:
        """Let some come due at one moment; how late the last one is in the log."""
        asker, node = self._asker, self._cluster.nodes[0]
        end = self._cluster.end_of(TOPIC) + self._due
        due = int(time.time() * 1000) + 2_000
        for _ in range(0, self._due, 500):
            asker.ask("POST", f"/v1/topics/{TOPIC}/messages", self._body(500, lambda _: due))
        time.sleep(max(0.0, due / 1000 - time.time()))
        before = cpu_ns(node.pid)
        path = f"/v1/topics/{TOPIC}/partitions/0/offsets"
        while asker.get(path)["commit_end"] < end:
            if time.time() * 1000 > due + 60_000:
                raise SystemExit("what was due a minute ago is not all there")
            time.sleep(0.002)
        late_ms = time.time() * 1000 - due
        return {
            "due late ms": late_ms,
            "due CPU us": (cpu_ns(node.pid) - before) / self._due / 1000,
        }
