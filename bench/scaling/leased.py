"""Messages in flight: a million leases of single messages in one work group."""

import random
from pathlib import Path

import msgspec

from bench.cluster import BenchCluster, running
from bench.processes import cpu_ns
from bench.scaling.asks import Asker, append_call, cost_of, idle_cpu, memory_mb, restart
from bench.scaling.curve import Curve, Plot, Point, count_text
from bench.worker import field

TOPIC = "leased"
GROUP = "workers"
COUNTS = (1_000, 10_000, 100_000, 1_000_000)
TAKE = 2_000  # messages of one receive
ACKS = 10_000  # ranges of one settle
LEASE_MS = 12 * 3_600_000
HOW = """
One node, one partition, one work group. Workers receive 2,000 at a time and ack every second
message, so that no two neighbours are leased: the worst case, one row each. *take*: CPU of
receiving one of them, *settle*: of acking one among 10,000 of a request. *receive* and *ack* are
calls for one message, anywhere among those in flight; *append* is one message of 100 B meanwhile;
*group* shows the group. *start* is from spawn to the first ack, after a stop and after `kill -9`.
"""
READING = """
**No knee up to a million.** Receiving, acking and appending cost the same with 1,000 and with
1,000,000 single leases in flight: rows lie in ordered chunks, and counts are kept, not counted.
What grows is memory, about 150 bytes a lease of one message (218 MB in all; neighbours that were
leased together share one row, so most workers need far less), and a start, by 1.6 s at a million.
Showing a group takes 10 ms whatever it holds: before it says that no stream group has the name,
the node makes sure that its catalog is up to date, every 10 ms at most.

**A settle of 10,000 scattered messages does not hold up others.** It was one entry, 150 ms in one
piece on the loop of every replica. Now the leader cuts it into pieces of 250 rows, each an entry
of its own when the one before it was answered, and a turn takes 500 rows of all callers together:
the longest turn was 5 to 10 ms for acks, nacks, rejects and extends alike
(`tests/unit/node/test_settle_pieces.py` prints it). The rows themselves became three times cheaper
to apply (21 to 7 us in one run), the 40 rounds of the log take about that back: 22 to 26 us a
message in all, when everything on this machine took 1.4 times as long as in the run before (see
*append CPU*).
"""


def walk(work: Path, *, quick: bool) -> Curve:
    """Lease more and more messages and settle some of them."""
    counts = (500, 5_000) if quick else COUNTS
    with running(work / "leased", 1) as cluster:
        cluster.create(TOPIC)
        holder = Holder(cluster)
        points = [holder.point(count, 0.2 if quick else 1.0) for count in counts]
    return Curve(
        name="leased",
        title="Messages in flight",
        x_name="leased messages",
        how=HOW,
        points=points,
        plots=[
            Plot(
                "latency",
                "Calls for one message",
                "ms",
                ("append p50 ms", "append max ms", "receive p50 ms", "ack p50 ms", "group p50 ms"),
            ),
            Plot("cpu", "CPU of the node", "us", ("take CPU us", "settle CPU us", "ack CPU us")),
            Plot("memory", "Memory of the node", "MB", ("memory MB",)),
            Plot("start", "Start", "s", ("start s", "start after kill s")),
        ],
        reading=READING,
    )


class Holder:
    """A worker that holds every second message it was given."""

    def __init__(self, cluster: BenchCluster) -> None:
        self._cluster = cluster
        self._asker = Asker(cluster.nodes[0])
        self._held: list[
            tuple[str, str, int, int, int]
        ] = []  # term, sequence, attempt, gen, offset
        self._chance = random.Random(1)

    def point(self, count: int, seconds: float) -> Point:
        """Hold so many, then measure."""
        cluster, node = self._cluster, self._cluster.nodes[0]
        wanted = count - len(self._held)
        while cluster.end_of(TOPIC) < 2 * count + 100_000:
            cluster.load(TOPIC, messages=1000, in_flight=8, seconds=0.2, warm_up_s=0.0)
        self._asker = Asker(node)
        values = self._take(wanted)
        values["memory MB"] = memory_mb(node)
        values["idle CPU %"] = idle_cpu([node], seconds)
        cost = cost_of(node, append_call(self._asker, TOPIC), 2 * seconds)
        values |= {"append p50 ms": cost.p50_ms, "append max ms": cost.max_ms}
        values["append CPU us"] = cost.cpu_us
        cost = cost_of(node, self._receive, seconds)
        values |= {"receive p50 ms": cost.p50_ms, "receive CPU us": cost.cpu_us}
        cost = cost_of(node, self._ack, seconds, calls_max=count // 4)
        values |= {"ack p50 ms": cost.p50_ms, "ack CPU us": cost.cpu_us}
        path = f"/v1/groups/{GROUP}?topic={TOPIC}"
        cost = cost_of(node, lambda: self._asker.get(path), seconds / 2, warm_up=2)
        values["group p50 ms"] = cost.p50_ms
        shown = self._asker.get(path)["work"][TOPIC][0]["leased"]
        if shown < len(self._held):
            raise SystemExit(f"{len(self._held)} messages are held, {shown} are leased")
        values["start s"] = restart(cluster, TOPIC)
        values["start after kill s"] = restart(cluster, TOPIC, kill=True)
        self._asker = Asker(cluster.nodes[0])
        return Point(x=count, label=count_text(count), values=values)

    def _take(self, wanted: int) -> dict[str, float]:
        """Receive twice as many and ack every second one."""
        pid = self._cluster.nodes[0].pid
        before, taken = cpu_ns(pid), 0
        settles: list[list[object]] = []
        while taken < 2 * wanted:
            term, sequence, spans = self._receive_many(min(TAKE, 2 * wanted - taken))
            for start, end, attempt, generation in spans:
                taken += end - start
                offsets = [n for offset in range(start, end, 2) for n in (offset, offset + 1)]
                settles.append(["ack", int(term), int(sequence), attempt, generation, offsets])
                self._held += [
                    (term, sequence, attempt, generation, offset)
                    for offset in range(start + 1, end, 2)
                ]
        took_us = (cpu_ns(pid) - before) / taken / 1000
        before = cpu_ns(pid)
        path = f"/v1/topics/{TOPIC}/partitions/0/groups/{GROUP}/settle"
        for at in range(0, len(settles), ACKS // (TAKE // 2)):
            rows = settles[at : at + ACKS // (TAKE // 2)]
            lost = self._asker.post(path, settles=rows)["lost"]
            if any(lost):
                raise SystemExit("acks were refused without a fault")
        settled_us = (cpu_ns(pid) - before) / max(1, taken // 2) / 1000
        return {"take CPU us": took_us, "settle CPU us": settled_us}

    def _receive_many(self, count: int) -> tuple[str, str, list[tuple[int, int, int, int]]]:
        body = msgspec.json.encode(
            {"count": count, "partition": 0, "lease": LEASE_MS, "bytes_max": 8 << 20}
        )
        head = (
            f"POST /v1/topics/{TOPIC}/groups/{GROUP}/receive HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Accept: application/vnd.raftline.batch\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._asker.wire.send(head.encode() + body)
        fields, _ = self._asker.wire.reply()
        spans = [int(text) for text in field(fields, b"Raftline-Spans: ").split(",") if text]
        if not spans:
            raise SystemExit("no messages are left to receive")
        term, _, sequence = field(fields, b"Raftline-Lease: ").partition(".")
        fours = [tuple(spans[at : at + 4]) for at in range(0, len(spans), 4)]
        return term, sequence, fours  # type: ignore[return-value]

    def _receive(self) -> None:
        path = f"/v1/topics/{TOPIC}/groups/{GROUP}/receive"
        got = self._asker.post(path, count=1, partition=0, lease=LEASE_MS)["messages"]
        if not got:
            raise SystemExit("no messages are left to receive")

    def _ack(self) -> None:
        held = self._held
        place = self._chance.randrange(len(held))
        held[place], held[-1] = held[-1], held[place]
        term, sequence, attempt, generation, offset = held.pop()
        path = f"/v1/topics/{TOPIC}/partitions/0/groups/{GROUP}/settle"
        row = ["ack", int(term), int(sequence), attempt, generation, [offset, offset + 1]]
        if self._asker.post(path, settles=[row])["lost"] != [[]]:
            raise SystemExit(f"the ack of {offset} was refused")
