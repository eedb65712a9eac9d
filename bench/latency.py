"""How late messages come: from send to receive at a steady rate, and after their due time."""

import subprocess
import sys
import time
from pathlib import Path

import msgspec

from bench.cluster import BenchCluster, http_port, running
from bench.deliveries import START_S, TOPIC
from bench.figures import Figure, Goal, at_least, under
from bench.worker import Wire, WorkerResult, WorkerSpec
from raftline.model.records import seal_batch

RATE = 500
DELAYED_RATE = 5_000
DELAYED_BATCH = 50
DELAY_MS = 1_500
WORKERS = 2  # for delayed messages
LIMIT_S = 60.0
IDLE_S = 3.0  # longer than the first message takes, and than messages are delayed


def end_to_end(work: Path, *, quick: bool) -> list[Figure]:
    """Single messages at a steady rate, received by a worker that waits for them."""
    seconds = 1.0 if quick else 8.0
    found: list[Figure] = []
    for nodes in (1, 3):
        with running(work / f"latency-{nodes}", nodes) as cluster:
            cluster.create(TOPIC)
            workers = _start(cluster, 1, "mono_ns")
            sent = _send_steadily(cluster, seconds)
            late_ms = _finish(workers)
            if len(late_ms) < sent:
                raise SystemExit(f"{sent} messages were sent, {len(late_ms)} received")
        section = f"{nodes} node{'s' * (nodes > 1)}, send to receive at {RATE}/s"
        found += _shares(section, late_ms, under(2.0), under(10.0))
    return found


def delayed(work: Path, *, quick: bool) -> list[Figure]:
    """Messages that are due at a steady rate: how much later than that they come."""
    seconds = 1.0 if quick else 8.0
    with running(work / "delayed", 3) as cluster:
        cluster.create(TOPIC)
        workers = _start(cluster, WORKERS, "wall_ms")
        sent = _schedule_steadily(cluster, seconds)
        late_ms = _finish(workers)
    if len(late_ms) < sent:
        raise SystemExit(f"{sent} messages were to come, {len(late_ms)} did")
    if min(late_ms) < -1.0:
        raise SystemExit(f"a message came {-min(late_ms):.1f} ms before it was due")
    section = f"3 nodes, delayed messages, {DELAYED_RATE:,}/s: after their due time"
    rows = _shares(section, late_ms, None, under(100.0))
    rate = Figure(section=section, name="sent", value=sent / seconds, unit="messages/s")
    rate.goal = None if quick else at_least(DELAYED_RATE * 0.95)
    return [rate, *rows]


def _start(cluster: BenchCluster, count: int, timed: str) -> list["subprocess.Popen[bytes]"]:
    leader = cluster.leader_of(TOPIC)
    begin_at = time.time() + START_S
    started = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "bench.worker",
                msgspec.json.encode(
                    WorkerSpec(
                        port=http_port(leader),
                        topic=TOPIC,
                        member=f"worker-{number}",
                        begin_at=begin_at,
                        warm_up_s=0.0,
                        seconds=LIMIT_S,
                        idle_s=IDLE_S,
                        timed=timed,
                    )
                ).decode(),
            ],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parent.parent,
        )
        for number in range(count)
    ]
    time.sleep(START_S + 0.3)
    return started


def _finish(workers: list["subprocess.Popen[bytes]"]) -> list[float]:
    late_ms: list[float] = []
    for process in workers:
        out, _ = process.communicate(timeout=120)
        if process.returncode:
            raise SystemExit("a worker failed")
        late_ms += msgspec.json.decode(out, type=WorkerResult).late_ms
    return late_ms


def _send_steadily(cluster: BenchCluster, seconds: float) -> int:
    wire = Wire(http_port(cluster.leader_of(TOPIC)))
    head = (
        f"POST /v1/topics/{TOPIC}/partitions/0/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        "Content-Type: application/vnd.raftline.batch\r\nContent-Length: "
    ).encode()
    begun, sent = time.perf_counter(), 0
    while (due := begun + sent / RATE) < begun + seconds:
        time.sleep(max(0.0, due - time.perf_counter()))
        value = (b"%d " % time.perf_counter_ns()).ljust(100, b"v")
        batch = seal_batch([(None, value, (), 1_700_000_000_000)])
        wire.send(b"%b%d\r\n\r\n%b" % (head, len(batch), batch))
        wire.reply()
        sent += 1
    return sent


def _schedule_steadily(cluster: BenchCluster, seconds: float) -> int:
    wire = Wire(http_port(cluster.leader_of(TOPIC)))
    head = f"POST /v1/topics/{TOPIC}/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: "
    begun, sent, open_ = time.perf_counter(), 0, 0
    filler = "v" * 80
    while (at := begun + sent / DELAYED_RATE) < begun + seconds:
        time.sleep(max(0.0, at - time.perf_counter()))
        due = int(time.time() * 1000) + DELAY_MS
        rows = [
            {"value": f"{due} {filler}", "deliverAt": due, "partition": 0}
            for _ in range(DELAYED_BATCH)
        ]
        body = msgspec.json.encode({"messages": rows})
        wire.send(f"{head}{len(body)}\r\n\r\n".encode() + body)
        open_ += 1
        sent += DELAYED_BATCH
        while open_ > 4:
            _check(wire)
            open_ -= 1
    for _ in range(open_):
        _check(wire)
    return sent


def _check(wire: Wire) -> None:
    _, body = wire.reply()
    if body.count(b'"error":null') != DELAYED_BATCH:
        raise SystemExit(f"refused: {body[:500]!r}")


def _shares(
    section: str, late_ms: list[float], middle: Goal | None, high: Goal | None
) -> list[Figure]:
    ranked = sorted(late_ms)

    def share(part: float) -> float:
        return ranked[min(len(ranked) - 1, int(part * len(ranked)))]

    rows = (("p50", share(0.5), middle), ("p99", share(0.99), high), ("max", ranked[-1], None))
    return [
        Figure(section=section, name=name, value=value, unit="ms", goal=goal, on_disk=True)
        for name, value, goal in rows
    ]
