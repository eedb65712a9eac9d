"""What a node costs before it does anything: start, memory, idle CPU."""

import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from bench.appends import check_end
from bench.cluster import free_port_base, running
from bench.figures import Figure, under
from bench.load import LoadSpec, encode_request
from bench.processes import cpu_ns, rss_mb

PARTITIONS = 1000
START_S_MAX = 20.0


def cold_start(work: Path, *, quick: bool) -> list[Figure]:
    """Spawn one node on an empty directory, then again on the same one: time to the first ack."""
    rounds = 1 if quick else 7
    fresh: list[float] = []
    again: list[float] = []
    memory = 0.0
    for _ in range(rounds):
        directory = work / "cold"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        took, memory = _start_once(directory, settle_s=0.0 if quick else 1.0)
        fresh.append(took)
        again.append(_start_once(directory, settle_s=0.0)[0])
        shutil.rmtree(directory)
    section = "start of one node: spawn to the first ack"
    names = {"empty directory": fresh, "directory with data": again}
    found = [
        Figure(
            section=section,
            name=f"{name}, median of {rounds}",
            value=sorted(values)[len(values) // 2] * 1000,
            unit="ms",
            goal=under(500),
            note="best " + f"{min(values) * 1000:.0f}, worst {max(values) * 1000:.0f}",
        )
        for name, values in names.items()
    ]
    memory_row = Figure(
        section="memory", name="idle node after its first ack", value=memory, unit="MB"
    )
    memory_row.goal = under(90)
    return [*found, memory_row]


def _start_once(directory: Path, settle_s: float) -> tuple[float, float]:
    """Start, append once, stop; return the seconds it took and the memory after a while."""
    base = free_port_base(1)
    addresses = {"http": base, "grpc": base + 1000, "kafka": base + 2000, "peer": base + 3000}
    flags = [
        word for name, port in addresses.items() for word in (f"--{name}-addr", f"127.0.0.1:{port}")
    ]
    request, _ = encode_request(LoadSpec(port=base, topic="first"))
    command = [sys.executable, "-m", "raftline", "serve", "--data-dir", str(directory), *flags]
    begun = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _first_ack(base, request, child)
        took = time.perf_counter() - begun
        time.sleep(settle_s)
        return took, rss_mb(child.pid)
    finally:
        child.terminate()
        child.wait(30)


def _first_ack(port: int, request: bytes, child: subprocess.Popen[bytes]) -> None:
    """Try until an append is acknowledged."""
    until = time.perf_counter() + START_S_MAX
    while time.perf_counter() < until:
        if child.poll() is not None:
            raise SystemExit(f"the node ended with {child.returncode} while it started")
        try:
            with socket.create_connection(("127.0.0.1", port), 1.0) as sock:
                sock.settimeout(START_S_MAX)
                sock.sendall(request)
                if sock.recv(65_536).startswith(b"HTTP/1.1 200"):
                    return
        except ConnectionError:
            pass
        time.sleep(0.002)
    raise SystemExit(f"no ack within {START_S_MAX:.0f} s of the start")


def idle(work: Path, *, quick: bool) -> list[Figure]:
    """CPU and memory of three nodes with many partitions that nobody uses."""
    partitions = 20 if quick else PARTITIONS
    seconds = 1.0 if quick else 20.0
    with running(work / "idle", 3) as cluster:
        cluster.create("idle", partitions)
        cluster.leader_of("idle", partitions - 1)
        time.sleep(0.5 if quick else 15.0)  # for every shard to go quiet
        pids = [node.pid for node in cluster.nodes]
        before = [cpu_ns(pid) for pid in pids]
        begun = time.perf_counter()
        time.sleep(seconds)
        used = [cpu_ns(pid) - ns for pid, ns in zip(pids, before, strict=True)]
        passed = time.perf_counter() - begun
        memory = max(rss_mb(pid) for pid in pids)
        check_end(cluster)
    section = f"idle, {partitions} partitions on 3 nodes"
    shares = [ns / passed / 1e7 for ns in used]
    return [
        Figure(
            section=section,
            name="CPU of all nodes",
            value=sum(shares),
            unit="% of a core",
            goal=under(3.0),
            note="each " + " ".join(f"{share:.2f}" for share in shares),
        ),
        Figure(section=section, name="memory of the largest node", value=memory, unit="MB"),
    ]
