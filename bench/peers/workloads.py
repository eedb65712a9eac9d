"""The workloads, from the side that starts servers and load processes.

A *turn* is one system, fresh on an empty directory: started until it acknowledges, loaded with each
workload, killed, started again. Nothing else runs meanwhile. A turn yields samples.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.peers import install
from bench.peers.adapters import System
from bench.peers.load import LoadResult, LoadSpec
from bench.peers.servers import Servers, prepared

ROOT = Path(__file__).parents[2]
WORKERS = 8
PACE_PER_S = 500
FILL_MAX = 250_000
SETTLE_S = 0.5
LIMIT_S = 120


class Sample(msgspec.Struct, kw_only=True):
    """One number of one turn."""

    system: str
    nodes: int
    workload: str
    metric: str
    value: float


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How long each piece of a turn takes."""

    warm_up_s: float = 1.0  # before a, b and c: those on a JVM need it
    repeats: int = 3  # of a, b and c in one turn
    publish_s: float = 0.7
    bulk_s: float = 0.8
    consume_s: float = 3.0
    fill_s: float = 2.0
    work_s: float = 3.0
    pace_s: float = 3.0
    kills: int = 1
    idle_s: float = 2.0


QUICK = Sizes(
    warm_up_s=0.2,
    repeats=1,
    publish_s=0.3,
    bulk_s=0.3,
    consume_s=1.0,
    fill_s=0.3,
    work_s=1.0,
    pace_s=0.8,
    kills=1,
    idle_s=0.2,
)
SINGLE = ("single", "window", "bulk", "consume", "work", "paced", "restart")
REPLICATED = ("single", "window", "work", "failover")


class Turn:
    """One system, measured once."""

    def __init__(
        self, system: System, servers: Servers, sizes: Sizes, wanted: tuple[str, ...]
    ) -> None:
        self._system, self._servers, self._sizes, self._wanted = system, servers, sizes, wanted
        self.samples: list[Sample] = []
        self.at = ""
        self._stored = 0

    def run(self) -> None:
        """Measure everything that is wanted."""
        self._start("start")
        time.sleep(self._sizes.idle_s)
        self._put("memory", "idle_mb", self._servers.memory_mb())
        for name in self._wanted:
            self._servers.check_alive()
            self.at = name
            getattr(self, f"_{name}")()

    def _single(self) -> None:
        self._publish(1)

    def _window(self) -> None:
        self._publish(64)

    def _publish(self, window: int) -> None:
        sizes = self._sizes
        wish = self._spec("publish", window=window, seconds=sizes.publish_s, repeats=sizes.repeats)
        for result in _run_all(wish):
            self._latencies(result)

    def _bulk(self) -> None:
        sizes = self._sizes
        for result in _run_all(self._spec("bulk", seconds=sizes.bulk_s, repeats=sizes.repeats)):
            self._rates(result)
            self._stored = result.stored
        self._put("memory", "loaded_mb", self._servers.memory_mb())
        self._put("memory", "stored", self._stored)
        self._put("memory", "disk_mb", self._servers.disk_mb())

    def _consume(self) -> None:
        if "bulk" not in self._wanted:
            self.at = "bulk"
            self._bulk()
            self.at = "consume"
        spec = self._spec("consume", seconds=self._sizes.consume_s, count=self._stored)
        self._rates(_run(msgspec.structs.replace(spec, topic="bulk")))

    def _work(self) -> None:
        fill = self._load("fill", seconds=self._sizes.fill_s, count=FILL_MAX)
        specs = [
            self._spec("work", seconds=self._sizes.work_s, member=f"worker-{number}")
            for number in range(WORKERS)
        ]
        with contextlib.ExitStack() as stack:
            workers = [stack.enter_context(_ready(spec)) for spec in specs]
            before = self._servers.cpu_s()
            for worker in workers:
                _go(worker)
            results = [_result(worker) for worker in workers]
            server_cpu_s = self._servers.cpu_s() - before
        busy = [result for result in results if result.count]
        if not busy:
            raise RuntimeError(f"8 workers got none of {fill.count} messages")
        total = LoadResult(count=sum(result.count for result in busy))
        begun, ended = min(r.first_ns for r in busy), max(r.last_ns for r in busy)
        total.seconds = max(ended - begun, 1) / 1e9
        total.load_cpu_s = sum(result.load_cpu_s for result in results)
        total.server_cpu_s = server_cpu_s
        self._rates(total)
        self._put(self.at, "busy_workers", len(busy))

    def _paced(self) -> None:
        seconds = self._sizes.pace_s
        timed = self._spec("work", seconds=seconds + 30, is_timed=True)
        paced = self._spec("pace", rate=PACE_PER_S, seconds=seconds)
        with _ready(timed) as worker, _spawned(paced) as sender:
            _go(worker)
            if _line(sender) != b"ready":
                raise _failed(sender)
            _line(worker)  # it has the first message: a group may take seconds to form
            time.sleep(SETTLE_S)
            before = self._servers.cpu_s()
            _go(sender)
            sent = _result(sender)
            server_cpu_s = self._servers.cpu_s() - before
            got = _result(worker)
        got.seconds = seconds
        got.server_cpu_s = server_cpu_s
        got.load_cpu_s += sent.load_cpu_s
        self._latencies(got)
        self._put(self.at, "sent", sent.count)
        self._put(self.at, "received", got.count)

    def _restart(self) -> None:
        self._put("memory", "worked_mb", self._servers.memory_mb())
        self._servers.kill_all()
        self._start("restart")

    def _failover(self) -> None:
        for number in range(self._sizes.kills):
            spec = msgspec.structs.replace(self._spec("probe"), topic=f"failover-{number}")
            with _spawned(spec) as probe:
                leader = int(_line(probe))
                begun_ns = time.perf_counter_ns()
                self._servers.kill(leader)
                assert probe.stdin is not None
                probe.stdin.write(b"%d\n" % time.perf_counter_ns())
                probe.stdin.flush()
                result = _result(probe)
            self._put("failover", "outage_ms", (result.last_ns - begun_ns) / 1e6)
            if number + 1 < self._sizes.kills:
                self._start("rejoin")
                time.sleep(3 * self._sizes.idle_s)

    def _start(self, name: str) -> None:
        """Start what does not run, and measure until a message is acknowledged."""
        with _ready(msgspec.structs.replace(self._spec("first"), topic=f"first-{name}")) as first:
            begun = time.perf_counter_ns()
            self._servers.start()
            _go(first)
            result = _result(first)
        if name != "rejoin":
            self._put("start", f"{name}_ms", (result.last_ns - begun) / 1e6)

    def _latencies(self, result: LoadResult) -> None:
        for metric in ("p50_ms", "p99_ms", "max_ms"):
            self._put(self.at, metric, getattr(result, metric))
        self._rates(result)

    def _rates(self, result: LoadResult) -> None:
        count = max(result.count, 1)
        self._put(self.at, "per_s", result.count / max(result.seconds, 1e-9))
        self._put(self.at, "count", result.count)
        self._put(self.at, "server_cpu_us", result.server_cpu_s / count * 1e6)
        self._put(self.at, "load_cpu_us", result.load_cpu_s / count * 1e6)

    def _put(self, workload: str, metric: str, value: float) -> None:
        self.samples.append(
            Sample(
                system=self._system.name,
                nodes=self._servers.count,
                workload=workload,
                metric=metric,
                value=value,
            )
        )

    def _spec(self, task: str, **wanted: object) -> LoadSpec:
        return LoadSpec(
            system=self._system.name,
            address=self._servers.address,
            task=task,
            topic=self.at,
            pids=self._servers.pids(),
            warm_up_s=self._sizes.warm_up_s,
            **wanted,  # type: ignore[arg-type]
        )

    def _load(self, task: str, **wanted: object) -> LoadResult:
        return _run(self._spec(task, **wanted))


def take_turn(
    system: System, work: Path, nodes: int, sizes: Sizes, wanted: tuple[str, ...]
) -> tuple[list[Sample], str]:
    """Measure one system; return its samples, and what went wrong."""
    folder = work / f"{system.name}-{nodes}"
    try:
        with prepared(system.servers(folder, nodes)) as servers:
            turn = Turn(system, servers, sizes, wanted)
            try:
                turn.run()
            except (RuntimeError, subprocess.SubprocessError, OSError) as error:
                return turn.samples, f"{turn.at or 'start'}: {error}"
            return turn.samples, ""
    except install.CannotInstall as error:
        return [], str(error)


# ---------------------------------------------------------------------- load processes


@contextlib.contextmanager
def _spawned(spec: LoadSpec) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        [str(install.python()), "-m", "bench.peers.load", msgspec.json.encode(spec).decode()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@contextlib.contextmanager
def _ready(spec: LoadSpec) -> Iterator["subprocess.Popen[bytes]"]:
    with _spawned(spec) as process:
        if _line(process) != b"ready":
            raise _failed(process)
        yield process


def _go(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    process.stdin.write(b"go\n")
    process.stdin.flush()


def _line(process: "subprocess.Popen[bytes]") -> bytes:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise _failed(process)
    return line


def _results(process: "subprocess.Popen[bytes]") -> list[LoadResult]:
    try:
        out, errors = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    if process.returncode:
        raise RuntimeError(f"a load process failed: {_last_words(errors)}")
    return msgspec.json.decode(out, type=list[LoadResult])


def _result(process: "subprocess.Popen[bytes]") -> LoadResult:
    return _results(process)[-1]


def _run_all(spec: LoadSpec) -> list[LoadResult]:
    with _spawned(spec) as process:
        return _results(process)


def _run(spec: LoadSpec) -> LoadResult:
    return _run_all(spec)[-1]


def _failed(process: "subprocess.Popen[bytes]") -> RuntimeError:
    _, errors = process.communicate(timeout=5)
    return RuntimeError(f"a load process failed: {_last_words(errors)}")


def _last_words(errors: bytes) -> str:
    return " / ".join(errors.decode(errors="replace").strip().splitlines()[-4:])[-800:]
