"""A load process: one workload of one system, through that system's Python client.

    python -m bench.peers.load '{"system": "redis", "task": "publish", ...}'

Run by the Python of bench/peers/install.py. Its own CPU and that of the servers are taken around
the measured time only. One JSON object on standard output at the end. The tasks *work*, *pace* and
*first* say ``ready`` before, and wait for a line on standard input.
"""

import os
import sys
import time

import msgspec

from bench.peers.adapters import SYSTEMS
from bench.peers.clients import Client
from bench.peers.servers import cpu_s

VALUE_BYTES = 100
COUNT_MAX = 1_000_000
IDLE_S = 1.5  # a worker that got nothing for so long is done
FIRST_S_MAX = 20.0  # before its first message
RETRY_S = 0.01
HERALD = b"herald"  # a message that shows that a worker is there


class LoadSpec(msgspec.Struct, kw_only=True):
    """What the process does and for how long."""

    system: str
    address: str
    task: str
    topic: str
    pids: list[int] = []
    window: int = 1
    seconds: float = 2.0
    warm_up_s: float = 0.4
    repeats: int = 1
    count: int = COUNT_MAX
    rate: float = 500.0
    member: str = "worker"
    is_timed: bool = False


class LoadResult(msgspec.Struct, kw_only=True):
    """What came of it."""

    count: int
    seconds: float = 0.0
    load_cpu_s: float = 0.0
    server_cpu_s: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    first_ns: int = 0  # monotonic, the same for all processes
    last_ns: int = 0
    stored: int = 0  # how many there are to consume


class Phase:
    """Time and CPU around a block."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids

    def __enter__(self) -> "Phase":
        self._servers, self._own = cpu_s(self._pids), time.process_time()
        self.begun = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self.begun
        self.load_cpu_s = time.process_time() - self._own
        self.server_cpu_s = cpu_s(self._pids) - self._servers

    def result(self, count: int, took_s: list[float] | None = None) -> LoadResult:
        result = LoadResult(
            count=count,
            seconds=self.seconds,
            load_cpu_s=self.load_cpu_s,
            server_cpu_s=self.server_cpu_s,
        )
        if took_s:
            _put_quantiles(result, took_s)
        return result


def publish(client: Client, spec: LoadSpec) -> list[LoadResult]:
    """Publish in a closed loop, several times."""
    value = b"x" * VALUE_BYTES
    client.create(spec.topic, work=False)
    client.publish(spec.topic, value, spec.window, time.perf_counter() + spec.warm_up_s)
    found: list[LoadResult] = []
    for _ in range(spec.repeats):
        with Phase(spec.pids) as phase:
            until = time.perf_counter() + spec.seconds
            took = client.publish(spec.topic, value, spec.window, until)
        found.append(phase.result(len(took), took))
    return found


def bulk(client: Client, spec: LoadSpec) -> list[LoadResult]:
    """Publish in bulk, several times."""
    value = b"x" * VALUE_BYTES
    client.create(spec.topic, work=False)
    total = client.bulk(spec.topic, value, time.perf_counter() + spec.warm_up_s, COUNT_MAX)
    found: list[LoadResult] = []
    for _ in range(spec.repeats):
        with Phase(spec.pids) as phase:
            count = client.bulk(spec.topic, value, time.perf_counter() + spec.seconds, spec.count)
        total += count
        found.append(phase.result(count))
        found[-1].stored = total
    return found


def fill(client: Client, spec: LoadSpec) -> LoadResult:
    """Put messages there for workers."""
    client.create(spec.topic, work=True)
    until = time.perf_counter() + spec.seconds
    with Phase(spec.pids) as phase:
        count = client.bulk(spec.topic, b"x" * VALUE_BYTES, until, spec.count)
    return phase.result(count)


def consume(client: Client, spec: LoadSpec) -> LoadResult:
    """Read what bulk stored."""
    client.create(spec.topic, work=False)
    with Phase(spec.pids) as phase:
        count = client.consume(spec.topic, spec.count, time.perf_counter() + spec.seconds)
    return phase.result(count)


def pace(client: Client, spec: LoadSpec) -> LoadResult:
    """Publish at a rate; every value says when it was sent."""
    pad = b"x" * (VALUE_BYTES - 20)

    def make() -> bytes:
        return b"%020d" % time.perf_counter_ns() + pad

    client.create(spec.topic, work=True)
    client.publish_one(spec.topic, HERALD + b"." * (VALUE_BYTES - len(HERALD)))
    _wait_for_go()
    with Phase(spec.pids) as phase:
        count = client.pace(spec.topic, make, spec.rate, time.perf_counter() + spec.seconds)
    return phase.result(count)


def work(client: Client, spec: LoadSpec) -> LoadResult:
    """Take and ack until time is over or nothing comes any more."""
    client.create(spec.topic, work=True)
    client.join(spec.topic, spec.member)
    _wait_for_go()
    clock = time.perf_counter_ns
    began = clock()
    count = first = last = 0
    end, first_end = began + int(spec.seconds * 1e9), began + int(FIRST_S_MAX * 1e9)
    late: list[float] = []

    def take(value: bytes | None) -> bool:
        nonlocal count, first, last
        now = clock()
        if value is None:
            idle = now - last > IDLE_S * 1e9 if count else now > first_end
            return not idle
        if spec.is_timed and value.startswith(HERALD):
            print("here", flush=True)
            return True
        if not count:
            first = now
        count += 1
        last = now
        if spec.is_timed:
            late.append((now - int(value[:20])) / 1e9)
        return now < end or count < 2

    with Phase([]) as phase:
        client.work(spec.topic, spec.member, take)
    result = phase.result(count, late)
    result.first_ns, result.last_ns = first, last
    return result


def first(client: Client, spec: LoadSpec) -> LoadResult:
    """Store one message as early as that is possible."""
    _wait_for_go()
    until = time.perf_counter() + 90
    while time.perf_counter() < until:
        try:
            client.create(spec.topic, work=False)
            client.publish_one(spec.topic, b"x" * VALUE_BYTES)
        except Exception as error:  # noqa: BLE001 - not there yet; the last one is told
            failed = error
            client.close()
            client = SYSTEMS[spec.system].connect(spec.address)
            time.sleep(RETRY_S)
            continue
        return LoadResult(count=1, last_ns=time.perf_counter_ns())
    raise SystemExit(f"nothing was acknowledged within 90 s: {failed!r}")


def probe(client: Client, spec: LoadSpec) -> LoadResult:
    """Publish one after the other; say who leads; go on until well after a line has come."""
    client.create(spec.topic, work=False)
    value = b"x" * VALUE_BYTES
    until = time.perf_counter() + 1.0
    while time.perf_counter() < until:
        client.publish_one(spec.topic, value)
    print(client.leader(spec.topic), flush=True)
    killed_ns = 0
    failed: Exception | None = None
    os.set_blocking(0, False)
    end = time.perf_counter() + 60
    while time.perf_counter() < end:
        begun = time.perf_counter_ns()
        try:
            client.publish_one(spec.topic, value)
        except Exception as error:  # noqa: BLE001 - the leader is dead; told if it never ends
            failed = error
            time.sleep(RETRY_S)
            continue
        finally:
            line = b"" if killed_ns else _read_line()
            if line:
                killed_ns = int(line)
        if killed_ns and begun > killed_ns:  # sent after the leader was dead
            return LoadResult(count=1, last_ns=time.perf_counter_ns())
    raise SystemExit(f"nothing was acknowledged within 60 s of a kill: {failed!r}")


def _read_line() -> bytes:
    try:
        return os.read(0, 100).strip()
    except BlockingIOError:
        return b""


def _wait_for_go() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def _put_quantiles(result: LoadResult, took_s: list[float]) -> None:
    took = sorted(took_s)
    result.p50_ms = took[len(took) // 2] * 1e3
    result.p99_ms = took[min(len(took) - 1, len(took) * 99 // 100)] * 1e3
    result.max_ms = took[-1] * 1e3


TASKS = {
    "publish": publish,
    "bulk": bulk,
    "fill": fill,
    "consume": consume,
    "pace": pace,
    "work": work,
    "first": first,
    "probe": probe,
}


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1].encode(), type=LoadSpec)
    client = SYSTEMS[spec.system].connect(spec.address)
    result = TASKS[spec.task](client, spec)
    found = result if isinstance(result, list) else [result]
    print(msgspec.json.encode(found).decode(), flush=True)
    os._exit(0)  # whatever a client still does in the background


if __name__ == "__main__":
    main()
