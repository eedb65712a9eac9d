"""The load process: raw appends over HTTP, as cheap as Python can send them.

    python -m bench.load '{"port": 8080, "topic": "t", ...}'

State
    Per connection the requests on their way, as groups (sent at, how many): those of one write
    share an instant. The request is encoded once; a write of n requests is n references to it.

What it measures
    From the write to the read of the reply, and its own CPU and that of the server processes,
    after a warm-up. One JSON object on standard output.

What it checks
    Every reply is a success and names an offset; the last one is remembered, so that the caller
    can compare it with what was sent.
"""

import select
import socket
import sys
import time
from collections import deque

import msgspec

from bench.processes import cpu_ns
from raftline.model.records import seal_batch

REPLY_END = b"}]}"
OFFSET = b'"base_offset":'
IOVECS_MAX = 512
READ_BYTES = 1 << 18

_shared = memoryview(bytearray(READ_BYTES))


class LoadSpec(msgspec.Struct, kw_only=True):
    """What to send and for how long."""

    port: int
    topic: str
    partition: int = 0
    message_bytes: int = 100
    messages: int = 1  # in a batch
    connections: int = 1
    in_flight: int = 1  # per connection
    warm_up_s: float = 0.5
    seconds: float = 3.0
    pids: list[int] = []


class LoadResult(msgspec.Struct, kw_only=True):
    """What came of it."""

    seconds: float
    appends: int  # acknowledged in the measured time
    appends_total: int  # with the warm-up and the last ones
    messages: int
    batch_bytes: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    last_offset: int
    client_cpu_us: float  # per append
    server_cpu_us: list[float]  # per append, in the order of the pids
    rates: list[float] = []  # appends per second, second by second


def encode_request(spec: LoadSpec) -> tuple[bytes, int]:
    """Return one whole request and the length of its batch."""
    value = b"v" * spec.message_bytes
    batch = seal_batch([(None, value, (), 1_700_000_000_000)] * spec.messages)
    head = (
        f"POST /v1/topics/{spec.topic}/partitions/{spec.partition}/messages HTTP/1.1\r\n"
        "Host: 127.0.0.1\r\nContent-Type: application/vnd.raftline.batch\r\n"
        f"Content-Length: {len(batch)}\r\n\r\n"
    )
    return head.encode() + batch, len(batch)


class Connection:
    """One connection with a bounded number of requests on their way."""

    __slots__ = ("_poll", "_request", "_rest", "_tail", "_unsent", "last_offset", "sent", "sock")

    def __init__(self, port: int, request: bytes, poll: select.epoll) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setblocking(False)
        self.sent: deque[tuple[int, int]] = deque()
        self.last_offset = -1
        self._request = request
        self._poll = poll
        self._unsent = 0  # whole requests
        self._rest = memoryview(b"")  # of a request that is half written
        self._tail = b""
        poll.register(self.sock, select.EPOLLIN)

    def send(self, count: int) -> None:
        """Put ``count`` more requests on their way."""
        self.sent.append((time.perf_counter_ns(), count))
        if count == 1 and not self._unsent and not self._rest:
            try:
                wrote = self.sock.send(self._request)
            except BlockingIOError:
                wrote = 0
            if wrote == len(self._request):
                return
            if wrote:
                self._rest = memoryview(self._request)[wrote:]
                count = 0
        self._unsent += count
        self.flush()

    def flush(self) -> None:
        """Write until the socket is full."""
        request = self._request
        while self._rest or self._unsent:
            whole = min(self._unsent, IOVECS_MAX)
            vectors = [self._rest] if self._rest else []
            vectors += [request] * whole
            try:
                wrote = self.sock.sendmsg(vectors)
            except BlockingIOError:
                self._poll.modify(self.sock, select.EPOLLIN | select.EPOLLOUT)
                return
            wrote -= len(self._rest)
            if wrote < 0:
                self._rest = self._rest[wrote:]
                continue
            done, part = divmod(wrote, len(request))
            self._unsent -= done + bool(part)
            self._rest = memoryview(request)[part:] if part else memoryview(b"")

    def writable(self) -> None:
        """Go on writing."""
        self._poll.modify(self.sock, select.EPOLLIN)
        self.flush()

    def receive(self) -> int:
        """Return how many replies came. Raises where one is not a success."""
        size = self.sock.recv_into(_shared)
        if not size:
            raise SystemExit("the server hung up")
        data = self._tail + _shared[:size] if self._tail else bytes(_shared[:size])
        stop = data.rfind(REPLY_END) + len(REPLY_END)
        if stop < len(REPLY_END):
            self._tail = data
            if b"HTTP/1.1 200" not in data and len(data) > 12:
                raise SystemExit(f"refused: {data[:600]!r}")
            return 0
        self._tail = data[stop:]
        count = data.count(REPLY_END)
        if data.count(b"HTTP/1.1 200", 0, stop) != count:
            raise SystemExit(f"refused: {data[:1000]!r}")
        at = data.rfind(OFFSET, 0, stop) + len(OFFSET)
        self.last_offset = int(data[at : data.index(b",", at)])
        return count


class Meter:
    """Latencies as (ns, how many), and a count per second."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []
        self.count = 0
        self.seconds: list[int] = []

    def note(self, sent_ns: int, now_ns: int, count: int, begun_ns: int) -> None:
        self.rows.append((now_ns - sent_ns, count))
        self.count += count
        second = (now_ns - begun_ns) // 1_000_000_000
        while len(self.seconds) <= second:
            self.seconds.append(0)
        self.seconds[second] += count

    def quantiles_ms(self, wanted: list[float]) -> list[float]:
        """Return the latency at each share of all appends."""
        rows = sorted(self.rows)
        if not rows:
            return [0.0 for _ in wanted]
        found: list[float] = []
        seen = at = 0
        for share in wanted:
            need = share * self.count
            while at < len(rows) - 1 and seen + rows[at][1] < need:
                seen += rows[at][1]
                at += 1
            found.append(rows[at][0] / 1e6)
        return found


class Load:
    """Keeps every connection full until time is over, then waits for the last replies."""

    connection_type = Connection
    encode = staticmethod(encode_request)

    def __init__(self, spec: LoadSpec) -> None:
        self.spec = spec
        self.request, self.batch_bytes = self.encode(spec)
        self.poll = select.epoll()
        connect = self.connection_type
        made = [connect(spec.port, self.request, self.poll) for _ in range(spec.connections)]
        self.connections = {one.sock.fileno(): one for one in made}
        self.acked = 0
        self.open = 0

    def run(self) -> LoadResult:
        """Warm up, measure, drain."""
        spec = self.spec
        for connection in self.connections.values() if spec.in_flight else ():
            connection.send(spec.in_flight)
            self.open += spec.in_flight
        self._phase(None, spec.warm_up_s)
        meter = Meter()
        servers = [cpu_ns(pid) for pid in spec.pids]
        own = time.process_time_ns()
        begun = time.perf_counter()
        self._phase(meter, spec.seconds)
        seconds = time.perf_counter() - begun
        own = time.process_time_ns() - own
        servers = [cpu_ns(pid) - before for pid, before in zip(spec.pids, servers, strict=True)]
        self._drain()
        count = max(meter.count, 1)
        p50, p99, p999, most = meter.quantiles_ms([0.5, 0.99, 0.999, 1.0])
        return LoadResult(
            seconds=seconds,
            appends=meter.count,
            appends_total=self.acked,
            messages=meter.count * spec.messages,
            batch_bytes=self.batch_bytes,
            p50_ms=p50,
            p99_ms=p99,
            p999_ms=p999,
            max_ms=most,
            last_offset=max(one.last_offset for one in self.connections.values()),
            client_cpu_us=own / count / 1000,
            server_cpu_us=[ns / count / 1000 for ns in servers],
            rates=[float(n) for n in meter.seconds[: int(spec.seconds)]],
        )

    def _phase(self, meter: Meter | None, seconds: float) -> None:
        begun = time.perf_counter_ns()
        until = begun + int(seconds * 1e9)
        while (now := time.perf_counter_ns()) < until:
            self._pass((until - now) / 1e9, meter, begun, again=True)

    def _drain(self) -> None:
        until = time.perf_counter() + 20
        while self.open:
            if time.perf_counter() > until:
                raise SystemExit(f"{self.open} appends without an answer after 20 s")
            self._pass(1.0, None, 0, again=False)

    def _pass(self, timeout_s: float, meter: Meter | None, begun: int, *, again: bool) -> None:
        for fd, events in self.poll.poll(timeout_s):
            connection = self.connections[fd]
            if events & select.EPOLLOUT:
                connection.writable()
            if not events & ~select.EPOLLOUT:
                continue
            count = connection.receive()
            if not count:
                continue
            self.acked += count
            self._settle(connection, count, meter, begun)
            if again:
                connection.send(count)
            else:
                self.open -= count

    def _settle(self, connection: Connection, count: int, meter: Meter | None, begun: int) -> None:
        now = time.perf_counter_ns()
        sent = connection.sent
        while count:
            at, many = sent[0]
            took = min(many, count)
            count -= took
            if took == many:
                sent.popleft()
            else:
                sent[0] = (at, many - took)
            if meter is not None:
                meter.note(at, now, took, begun)


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1].encode(), type=LoadSpec)
    print(msgspec.json.encode(Load(spec).run()).decode())


if __name__ == "__main__":
    main()
