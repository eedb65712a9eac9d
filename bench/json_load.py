"""The load process for messages as JSON: closed loop, or open at a steady rate.

    python -m bench.json_load '{"port": 8080, "topic": "t", "messages": 100, ...}'

*closed*: a connection sends again when it was answered (bench.load). *open* (``rate`` > 0): so many
requests a second whatever the answers do, on each connection in turn; latency counts from the
instant a request was due, so a stall is seen by all it holds up.

Every message of every reply must be stored (``"error":null``).
"""

import select
import sys
import time

import msgspec

from bench.load import REPLY_END, Connection, Load, LoadResult, LoadSpec, Meter

OFFSET = b'"offset":'
STORED = b'"error":null'
READ_BYTES = 1 << 18
BEHIND_MAX = 50_000  # requests without an answer, after which a rate is not held at all


_shared = memoryview(bytearray(READ_BYTES))


class JsonSpec(LoadSpec, kw_only=True):
    """What to send."""

    rate: float = 0.0  # requests a second; 0: closed loop


def encode_json(spec: LoadSpec) -> tuple[bytes, int]:
    """Return one whole request and the length of its body."""
    row = {"value": "v" * spec.message_bytes}
    body = msgspec.json.encode({"messages": [row] * spec.messages})
    head = (
        f"POST /v1/topics/{spec.topic}/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body, len(body)


class JsonConnection(Connection):
    """Reads replies that name every message."""

    __slots__ = ("_parts", "messages")
    messages: int

    def __init__(self, port: int, request: bytes, poll: select.epoll) -> None:
        super().__init__(port, request, poll)
        self._parts: list[bytes] = []  # of a reply that is not whole

    def receive(self) -> int:
        """Return how many replies came. Raises where a message is refused."""
        size = self.sock.recv_into(_shared)
        if not size:
            raise SystemExit("the server hung up")
        data = bytes(_shared[:size])
        self._parts.append(data)
        if data.rfind(REPLY_END) < 0 and len(data) > len(REPLY_END):
            if not self._parts[0].startswith(b"HTTP/1.1 200") and len(self._parts[0]) > 12:
                raise SystemExit(f"refused: {self._parts[0][:600]!r}")
            return 0
        data = b"".join(self._parts)
        stop = data.rfind(REPLY_END) + len(REPLY_END)
        if stop < len(REPLY_END):
            return 0
        self._parts = [data[stop:]] if stop < len(data) else []
        stored = data.count(STORED, 0, stop)
        count, rest = divmod(stored, self.messages)
        if rest or data.count(b"HTTP/1.1 200", 0, stop) != count:
            raise SystemExit(f"refused: {data[:1000]!r}")
        at = data.rfind(OFFSET, 0, stop) + len(OFFSET)
        self.last_offset = int(data[at : data.index(b",", at)])
        return count


class JsonLoad(Load):
    """Closed or open loop."""

    connection_type = JsonConnection
    encode = staticmethod(encode_json)

    def __init__(self, spec: JsonSpec) -> None:
        super().__init__(spec)
        self.rate = spec.rate
        for connection in self.connections.values():
            connection.messages = spec.messages
        self.turns = list(self.connections.values())
        self.sent = 0

    def run(self) -> LoadResult:
        """Warm up, measure, drain."""
        if self.rate:
            self.spec.in_flight = 0  # nothing is sent before it is due
        return super().run()

    def _phase(self, meter: Meter | None, seconds: float) -> None:
        if not self.rate:
            super()._phase(meter, seconds)
            return
        begun = time.perf_counter_ns()
        until, step = begun + int(seconds * 1e9), 1e9 / self.rate
        sent = 0
        while (now := time.perf_counter_ns()) < until:
            while (due := begun + int(sent * step)) <= now:
                connection = self.turns[self.sent % len(self.turns)]
                connection.send(1)
                connection.sent[-1] = (due, 1)
                self.sent += 1
                sent += 1
                self.open += 1
            if self.open > BEHIND_MAX:
                raise SystemExit(f"{self.open} requests are not answered: the rate is not held")
            wait_s = max(0.0, (min(due, until) - time.perf_counter_ns()) / 1e9)
            select.select([self.poll], [], [], wait_s)  # epoll itself waits whole milliseconds
            self._pass(0.0, meter, begun, again=False)
        if meter is None:
            self._drain()  # what is measured next does not count the answers of the warm-up


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1].encode(), type=JsonSpec)
    print(msgspec.json.encode(JsonLoad(spec).run()).decode())


if __name__ == "__main__":
    main()
