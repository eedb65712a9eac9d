"""A load process for anything that speaks Kafka's protocol: Raftline and Apache Kafka alike.

    python -m bench.kafka_load '{"task": "produce", "servers": "...", "pids": [...], ...}'

``produce`` and ``consume`` use librdkafka through its Python client, as does ``latency`` (single
messages at a rate); ``produce_arrays`` as a C program would, which takes less of the processors
that clients and servers share. With
``single`` requests of one message go over a plain socket, so many in flight, so that the client
costs as little as can be. CPU of the servers is read from /proc before and after.
"""

import socket
import struct
import sys
import time

import msgspec

from bench.processes import cpu_ns
from raftline.gateways.kafka import schema
from raftline.gateways.kafka.codec import encoder
from raftline.model.records import seal_batch

WAIT_S = 120.0
WARM_UP = 2_000
PRODUCE_VERSION = 9
CODE_AT = 16  # and the topic's name: where the error is in a reply about one partition
BULK = {"linger.ms": 5, "queue.buffering.max.kbytes": 1 << 20}
CONSUMER = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 1_000_000,
    "fetch.queue.backoff.ms": 2,  # librdkafka's own brake, a second by default
}


class KafkaSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, to whom."""

    task: str  # produce | produce_arrays | consume | latency | single
    servers: str
    topic: str
    pids: list[int]
    partitions: int = 1
    count: int = 100_000
    message_bytes: int = 100
    in_flight: int = 1
    per_second: int = 200
    leader: str = ""  # address of the leader of partition 0, for ``single``
    idempotent: bool = True
    acks: str = "all"
    headers: dict[str, str] = {}
    seconds_max: float = WAIT_S  # of ``single``: then the rest is not sent


class KafkaResult(msgspec.Struct, frozen=True, kw_only=True):
    """What it found."""

    count: int
    seconds: float
    server_cpu_s: float
    client_cpu_s: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0


class Meter:
    """CPU and time from one moment to another."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self._server_ns = sum(map(cpu_ns, pids))
        self._client_s = time.process_time()
        self._began = time.perf_counter()

    def result(self, count: int, latencies_ms: list[float] | None = None) -> KafkaResult:
        seconds = time.perf_counter() - self._began
        client_s = time.process_time() - self._client_s
        server_s = (sum(map(cpu_ns, self._pids)) - self._server_ns) / 1e9
        times = sorted(latencies_ms or [0.0])
        return KafkaResult(
            count=count,
            seconds=seconds,
            server_cpu_s=server_s,
            client_cpu_s=client_s,
            p50_ms=times[len(times) // 2],
            p99_ms=times[min(len(times) - 1, len(times) * 99 // 100)],
        )


def produce(spec: KafkaSpec) -> KafkaResult:
    from confluent_kafka import Producer

    producer = Producer(_settings(spec, BULK))
    value = b"x" * spec.message_bytes
    headers = {name: text.encode() for name, text in spec.headers.items()}
    _send(producer, spec.topic, value, WARM_UP, headers)
    before = _stored(spec)
    meter = Meter(spec.pids)
    _send(producer, spec.topic, value, spec.count, headers)
    result = meter.result(spec.count)
    if (grown := _stored(spec) - before) < spec.count:
        raise SystemExit(f"{spec.count} messages were sent, {grown} are stored")
    return result


def _stored(spec: KafkaSpec) -> int:
    """Return the ends of all partitions: to hear of each message would cost the client more."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": spec.servers, "log_level": 2, **CONSUMER})
    ends = [
        consumer.get_watermark_offsets(TopicPartition(spec.topic, number), timeout=WAIT_S)[1]
        for number in range(spec.partitions)
    ]
    consumer.close()
    return sum(ends)


def produce_arrays(spec: KafkaSpec) -> KafkaResult:
    from bench.librdkafka import ArrayProducer

    producer = ArrayProducer(spec.topic, _settings(spec, BULK))
    value = b"x" * spec.message_bytes
    producer.send(value, WARM_UP)
    meter = Meter(spec.pids)
    producer.send(value, spec.count)
    return meter.result(spec.count)


def _settings(spec: KafkaSpec, more: dict[str, object]) -> dict[str, object]:
    return {
        "bootstrap.servers": spec.servers,
        "acks": spec.acks,
        "enable.idempotence": spec.idempotent and spec.acks == "all",
        "queue.buffering.max.messages": 1_000_000,
        "log_level": 2,
        **more,
    }


def _send(
    producer, topic: str, value: bytes, count: int, headers: dict[str, bytes] | None = None
) -> None:
    send = producer.produce
    more = {"headers": headers} if headers else {}
    for _ in range(count):
        while True:
            try:
                send(topic, value, **more)
                break
            except BufferError:
                producer.poll(0.02)
    _flush(producer)


def _flush(producer) -> None:
    if producer.flush(WAIT_S):
        raise SystemExit("messages were not taken in time")


def consume(spec: KafkaSpec) -> KafkaResult:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": spec.servers, "log_level": 2, **CONSUMER})
    meter = Meter(spec.pids)
    consumer.assign([TopicPartition(spec.topic, n, 0) for n in range(spec.partitions)])
    got, until = 0, time.perf_counter() + WAIT_S
    while got < spec.count and time.perf_counter() < until:
        got += len(consumer.consume(20_000, 0.5))
    result = meter.result(got)
    consumer.close()
    if got < spec.count:
        raise SystemExit(f"{got} of {spec.count} messages came")
    return result


def latency(spec: KafkaSpec) -> KafkaResult:
    from confluent_kafka import Producer

    producer = Producer(_settings(spec, {"linger.ms": 0}))
    _send(producer, spec.topic, b"x" * spec.message_bytes, 50)
    times: list[float] = []

    def told(error: object, at: float) -> None:
        if error is not None:
            raise SystemExit(f"a message was refused: {error}")
        times.append((time.perf_counter() - at) * 1000)

    meter = Meter(spec.pids)
    began = time.perf_counter()
    for n in range(spec.count):
        while (left := began + n / spec.per_second - time.perf_counter()) > 0:
            producer.poll(left)
        at = time.perf_counter()
        producer.produce(
            spec.topic,
            b"x" * spec.message_bytes,
            on_delivery=lambda error, _, at=at: told(error, at),
        )
    _flush(producer)
    return meter.result(len(times), times)


def single(spec: KafkaSpec) -> KafkaResult:
    host, _, port = spec.leader.rpartition(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request, code_at = _request(spec), CODE_AT + len(spec.topic)
        _exchange(sock, request, code_at, 500, spec.in_flight)
        meter = Meter(spec.pids)
        times = _exchange(sock, request, code_at, spec.count, spec.in_flight, spec.seconds_max)
        return meter.result(len(times), times)


def _request(spec: KafkaSpec) -> bytes:
    batch = seal_batch([(None, b"x" * spec.message_bytes, (), 1_700_000_000_000)])
    rows = [{"partition": 0, "records": batch}]
    out = bytearray(struct.pack(">hhih", 0, PRODUCE_VERSION, 7, 5) + b"bench\0")
    encoder(schema.PRODUCE.request, PRODUCE_VERSION, flexible=True)(
        out,
        {"acks": -1, "timeout_ms": 30_000, "topics": [{"name": spec.topic, "partitions": rows}]},
    )
    return struct.pack(">i", len(out)) + bytes(out)


def _exchange(
    sock: socket.socket,
    request: bytes,
    code_at: int,
    count: int,
    in_flight: int,
    seconds_max: float = WAIT_S,
) -> list[float]:
    """Keep so many requests in flight; replies come in order and are all of one length."""
    sent, times, starts, data = 0, [], [], b""
    until = time.perf_counter() + seconds_max
    while len(times) < count:
        if time.perf_counter() > until:
            count = sent
            if sent == len(times):
                break
        many = min(in_flight - (sent - len(times)), count - sent)
        if many:
            starts += [time.perf_counter()] * many
            sock.sendall(request * many)
            sent += many
        data += sock.recv(1 << 18)
        now, at = time.perf_counter(), 0
        while len(data) - at >= 4:
            size = 4 + int.from_bytes(data[at : at + 4], "big")
            if len(data) - at < size:
                break
            if data[at + code_at : at + code_at + 2] != b"\0\0":
                raise SystemExit("a request was refused")
            times.append((now - starts[len(times)]) * 1000)
            at += size
        data = data[at:]
    return times


TASKS = {
    "produce": produce,
    "produce_arrays": produce_arrays,
    "consume": consume,
    "latency": latency,
    "single": single,
}

if __name__ == "__main__":
    asked = msgspec.json.decode(sys.argv[1].encode(), type=KafkaSpec)
    print(msgspec.json.encode(TASKS[asked.task](asked)).decode())
