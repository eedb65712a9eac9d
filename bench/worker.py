"""A worker process: receives messages of a work group and acks every one by itself.

    python -m bench.worker '{"port": 8080, "topic": "t", ...}'

Two forms, both over HTTP on sockets of the worker's own: stored batches are received, and ranges
settled on the partition's route, as fast clients do. *pipelined*: ``ack`` of a message queues it; a
request carries what is queued when a receive is used up, and up to ``in_flight`` of them are on
their way while the next messages are received. *blocking*: every ack is a request of its own and is
waited for; a reply that is, byte for byte, the one before it is not parsed anew.

With ``timed`` every message says in its value since when it may be delivered (ns of the monotonic
clock, or ms of the wall clock); the worker notes how late each one comes.

Every message is opened, as a worker would. One JSON object on standard output at the end: acks in
the measured time, and how many of all acks were refused because their lease had moved on.
"""

import socket
import sys
import time

import msgspec

from raftline.model.batch import split_batches
from raftline.model.records import open_batch

READ_BYTES = 1 << 18
SETTLED_BYTES = 1 << 12  # a reply to a settle: a buffer that costs nothing to make
HEAD_END = b"\r\n\r\n"
ALL_SETTLED = b'{"lost":[[]]}'


class WorkerSpec(msgspec.Struct, kw_only=True):
    """What a worker does and for how long."""

    port: int
    topic: str
    group: str = "workers"
    partition: int = 0
    member: str = "worker"
    count: int = 100  # messages of one receive
    form: str = "pipelined"
    in_flight: int = 4
    begin_at: float = 0.0  # wall clock
    warm_up_s: float = 0.5
    seconds: float = 3.0
    idle_s: float = 0.0  # end when nothing came for so long; 0: work on
    timed: str = ""  # "", "mono_ns" or "wall_ms"


class WorkerResult(msgspec.Struct, kw_only=True):
    """What came of it."""

    acks: int  # answered in the measured time
    acks_total: int
    lost: int
    cpu_s: float
    late_ms: list[float] = []  # of each timed message


class Wire:
    """One connection; requests may be on their way without having been answered."""

    def __init__(self, port: int, read_bytes: int = READ_BYTES) -> None:
        self._read_bytes = read_bytes
        self._usual = b""  # the last reply that came alone and whole
        self._parts = (b"", b"")
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def send(self, request: bytes) -> None:
        """Put a request on its way."""
        self.sock.sendall(request)

    def is_as_before(self, body: bytes) -> bool:
        """Wait for the next bytes; say whether they are the last whole reply again, with ``body``.

        If not, they are kept for ``reply``.
        """
        if not self._buffer:
            self._more()
        if self._buffer == self._usual and self._parts[1] == body:
            self._buffer = b""
            return True
        return False

    def reply(self) -> tuple[bytes, bytes]:
        """Wait for the next reply: head, body. One that is as the last one is not parsed anew."""
        if not self._buffer:
            self._more()
            if self._buffer == self._usual:
                self._buffer = b""
                return self._parts
        read = self._buffer
        while (end := self._buffer.find(HEAD_END)) < 0:
            self._more()
        head = self._buffer[:end]
        at = head.find(b"Content-Length: ") + 16
        stop = head.find(b"\r\n", at)
        size = int(head[at : stop if stop > 0 else len(head)])
        whole = end + 4 + size
        while len(self._buffer) < whole:
            self._more()
        body, self._buffer = self._buffer[end + 4 : whole], self._buffer[whole:]
        if len(read) == whole:
            self._usual, self._parts = read, (head, body)
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"refused: {head!r} {body[:500]!r}")
        return head, body

    def _more(self) -> None:
        data = self.sock.recv(self._read_bytes)
        if not data:
            raise SystemExit("the server hung up")
        self._buffer += data


class Worker:
    """One worker."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.receives, self.settles = Wire(spec.port), Wire(spec.port, SETTLED_BYTES)
        body = (
            f'{{"count":{spec.count},"wait":1000,"member":"{spec.member}",'
            f'"partition":{spec.partition},"lease":60000}}'
        )
        self.receive_request = (
            f"POST /v1/topics/{spec.topic}/groups/{spec.group}/receive HTTP/1.1\r\n"
            "Host: 127.0.0.1\r\nAccept: application/vnd.raftline.batch\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}"
        ).encode()
        path = f"/v1/topics/{spec.topic}/partitions/{spec.partition}/groups/{spec.group}/settle"
        self.settle_head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode()
        self.open: list[int] = []  # acks of each settle on its way
        self.acked = self.lost = 0
        self.late_ms: list[float] = []

    def run(self) -> WorkerResult:
        """Work until time is over; then wait for what is on its way."""
        spec = self.spec
        time.sleep(max(0.0, spec.begin_at - time.time()))
        self._until(time.perf_counter() + spec.warm_up_s)
        before, cpu = self.acked, time.process_time()
        self._until(time.perf_counter() + spec.seconds)
        measured, cpu = self.acked - before, time.process_time() - cpu
        while self.open:
            self._take_settled()
        return WorkerResult(
            acks=measured,
            acks_total=self.acked,
            lost=self.lost,
            cpu_s=cpu,
            late_ms=self.late_ms,
        )

    def _until(self, end: float) -> None:
        idle_s, last, seen = self.spec.idle_s, time.perf_counter(), 0
        while (now := time.perf_counter()) < end:
            self._round()
            done = self.acked + sum(self.open)
            if done != seen:
                seen, last = done, now
            elif idle_s and now - last > idle_s:
                return

    def _round(self) -> None:
        self.receives.send(self.receive_request)
        head, body = self.receives.reply()
        lease, spans = field(head, b"Raftline-Lease: "), field(head, b"Raftline-Spans: ")
        if not spans:
            return
        numbers = [int(text) for text in spans.split(",")]
        opened = _open(body)
        if self.spec.timed:
            self._note(
                [
                    opened[o]
                    for at in range(0, len(numbers), 4)
                    for o in range(*numbers[at : at + 2])
                ]
            )
        term, sequence = lease.split(".")
        for at in range(0, len(numbers), 4):
            start, end, attempt, generation = numbers[at : at + 4]
            prefix = f'["ack",{term},{sequence},{attempt},{generation},['
            offsets = range(start, end)
            assert all(offset in opened for offset in offsets)
            if self.spec.form == "blocking":
                self._ack_each(f'{{"settles":[{prefix}'.encode(), offsets)
            else:
                acks = [f"{offset},{offset + 1}" for offset in offsets]
                self._settle(f"{prefix}{','.join(acks)}]]", len(acks))
        while len(self.open) > self.spec.in_flight:
            self._take_settled()

    def _ack_each(self, prefix: bytes, offsets: range) -> None:
        """Ack one by one, each when the one before is answered."""
        wire, head = self.settles, self.settle_head
        for offset in offsets:
            body = b"%b%d,%d]]]}" % (prefix, offset, offset + 1)
            wire.send(b"%b%d\r\n\r\n%b" % (head, len(body), body))
            if wire.is_as_before(ALL_SETTLED):
                self.acked += 1
            else:
                self.open.append(1)
                self._take_settled()

    def _note(self, values: list[bytes]) -> None:
        if self.spec.timed == "mono_ns":
            now = time.perf_counter_ns()
            self.late_ms += [(now - int(value.split(b" ", 1)[0])) / 1e6 for value in values]
        else:
            wall = time.time() * 1000
            self.late_ms += [wall - int(value.split(b" ", 1)[0]) for value in values]

    def _settle(self, settle: str, count: int) -> None:
        body = f'{{"settles":[{settle}]}}'.encode()
        self.settles.send(b"%b%d\r\n\r\n%b" % (self.settle_head, len(body), body))
        self.open.append(count)

    def _take_settled(self) -> None:
        _, body = self.settles.reply()
        lost = 0
        if body != ALL_SETTLED:
            for ranges in msgspec.json.decode(body)["lost"]:
                lost += sum(ranges[1::2]) - sum(ranges[::2])
        count = self.open.pop(0)
        self.acked += count - lost
        self.lost += lost


def _open(body: bytes) -> dict[int, bytes]:
    view = memoryview(body)
    found: dict[int, bytes] = {}
    for start, length in split_batches(body):
        for message in open_batch(view[start : start + length]):
            found[message.offset] = message.value or b""
    return found


def field(head: bytes, name: bytes) -> str:
    at = head.find(name)
    if at < 0:
        return ""
    stop = head.find(b"\r\n", at)
    return head[at + len(name) : stop if stop > 0 else len(head)].decode()


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1].encode(), type=WorkerSpec)
    print(msgspec.json.encode(Worker(spec).run()).decode())


if __name__ == "__main__":
    main()
