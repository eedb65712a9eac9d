"""A process that uses the Python client as a program would.

    python -m bench.client_load '{"servers": "http://127.0.0.1:8080", "form": "send", ...}'

*send*: ``line.send`` in a plain loop, then ``flush``. *receive*: ``for message in line.receive``
and ``message.ack()``, until time is over. One JSON object on standard output at the end.
"""

import sys
import time

import msgspec

import raftline


class ClientSpec(msgspec.Struct, kw_only=True):
    """What the process does and for how long."""

    servers: str
    topic: str
    form: str = "send"
    keyed: bool = False
    value_bytes: int = 100
    group: str = "workers"
    member: str = "worker"
    begin_at: float = 0.0  # wall clock
    warm_up_s: float = 0.5
    seconds: float = 3.0


class ClientResult(msgspec.Struct, kw_only=True):
    """What came of it."""

    messages: int  # in the measured time
    total: int
    lost: int
    seconds: float
    cpu_s: float


def send(line: raftline.Line, spec: ClientSpec) -> ClientResult:
    """Send in a plain loop; measured from the first send to the last stored message."""
    value = b"x" * spec.value_bytes
    keys = [f"key-{number}" for number in range(1000)]
    total = _send_until(line, spec, value, keys, time.perf_counter() + spec.warm_up_s)
    line.flush("30s")
    began, cpu = time.perf_counter(), time.process_time()
    count = _send_until(line, spec, value, keys, began + spec.seconds)
    line.flush("30s")
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    return ClientResult(messages=count, total=total + count, lost=0, seconds=took, cpu_s=cpu)


def _send_until(
    line: raftline.Line, spec: ClientSpec, value: bytes, keys: list[str], end: float
) -> int:
    topic, count = spec.topic, 0
    while time.perf_counter() < end:
        if spec.keyed:
            for key in keys:
                line.send(topic, value, key=key)
        else:
            for _ in range(1000):
                line.send(topic, value)
        count += 1000
    return count


def receive(line: raftline.Line, spec: ClientSpec) -> ClientResult:
    """Receive and ack in a plain loop; the acks of the measured time are counted when they end."""
    total = count = 0
    measure_at = time.perf_counter() + spec.warm_up_s
    end = measure_at + spec.seconds
    cpu = 0.0
    for message in line.receive(spec.topic, group=spec.group, member=spec.member, wait="2s"):
        assert message.value
        message.ack()
        total += 1
        if total % 100:
            continue
        now = time.perf_counter()
        if not cpu and now >= measure_at:
            cpu, count = time.process_time(), total
        if now >= end:
            break
    measured, used = total - count, time.process_time() - cpu
    line.flush("30s")
    return ClientResult(
        messages=measured if cpu else 0,
        total=total,
        lost=line.settles_lost,
        seconds=spec.seconds,
        cpu_s=used if cpu else 0.0,
    )


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1].encode(), type=ClientSpec)
    with raftline.connect(spec.servers, timeout="30s") as line:
        line.topics.show(spec.topic)
        time.sleep(max(0.0, spec.begin_at - time.time()))
        result = send(line, spec) if spec.form == "send" else receive(line, spec)
    print(msgspec.json.encode(result).decode())


if __name__ == "__main__":
    main()
