"""A world for the client's core: a clock that the test moves, and nodes that answer as told.

``Script`` answers requests from a list. ``Nodes`` is a small cluster that keeps the promises of a
real one towards producers (with the machine's own ``Producers``) and loses, delays or refuses
requests by chance.
"""

import heapq
import itertools
import json
from collections.abc import Callable
from random import Random
from urllib.parse import parse_qs, urlsplit

from raftline.client.core.ports import ALONE, Ask, Done, Lost, Reply
from raftline.client.core.wire import request_of
from raftline.machines.partition.producers import Producers
from raftline.model.batch import check_batch
from raftline.model.errors import RaftlineError
from raftline.model.records import open_batch


class FakeTimer:
    def __init__(self) -> None:
        self.is_off = False

    def cancel(self) -> None:
        self.is_off = True


class FakeClock:
    """Time that passes when told."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, FakeTimer, Callable[[], None]]] = []

    def mono_ms(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.now)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer()
        heapq.heappush(
            self._due, (self.now + max(0.0, delay_ms), next(self._order), timer, callback)
        )
        return timer

    def advance(self, ms: float) -> None:
        self.run_until(lambda: False, ms)

    def run_until(self, condition: Callable[[], bool], within_ms: float) -> bool:
        """Let time pass until something holds; False if it did not."""
        end = self.now + within_ms
        while not condition():
            if not self._due or self._due[0][0] > end:
                self.now = end
                return condition()
            at, _, timer, callback = heapq.heappop(self._due)
            self.now = max(self.now, at)
            if not timer.is_off:
                callback()
        return True


class Request:
    """A request, taken apart again."""

    def __init__(
        self, host: str, ask: Ask, timeout_ms: int, deadline_ms: float, done: Done
    ) -> None:
        way, data = ask.way, request_of(host, ask, timeout_ms)
        head, _, self.body = data.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        self.method, target, _ = lines[0].split(" ")
        parts = urlsplit(target)
        self.path, self.query = parts.path, {k: v[0] for k, v in parse_qs(parts.query).items()}
        self.fields = dict(line.split(": ", 1) for line in lines[1:])
        assert int(self.fields["Content-Length"]) == len(self.body)
        self.host, self.way, self.deadline_ms, self._done = host, way, deadline_ms, done
        self.is_answered = False

    def answer(self, answer: Reply | Lost) -> None:
        """Answer once."""
        if not self.is_answered:
            self.is_answered = True
            self._done(answer)

    def json(self):
        return json.loads(self.body)


def reply(body: object = None, status: int = 200, **fields: object) -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}"
    for name, value in fields.items():
        head += f"\r\n{name.replace('_', '-')}: {value}"
    return Reply(status, head.encode(), data)


def refusal(code: str, status: int = 503) -> Reply:
    return reply({"error": {"code": code, "message": f"it is {code}", "hint": ""}}, status)


class Script:
    """A network whose answers are written down by the test, in the order of the requests.

    What is answered with None stays without an answer until its deadline.
    """

    def __init__(self, clock: FakeClock, *answers: Reply | Lost | None) -> None:
        self.clock = clock
        self.answers = list(answers)
        self.seen: list[Request] = []

    def request(self, host: str, ask: Ask, timeout_ms: int, deadline_ms: float, done: Done) -> None:
        request = Request(host, ask, timeout_ms, deadline_ms, done)
        self.seen.append(request)
        answer = self.answers.pop(0)
        if answer is None:
            left = deadline_ms - self.clock.now
            lost = Lost("it did not answer in time", is_sent=True)
            self.clock.call_later(left, lambda: request.answer(lost))
        else:
            self.clock.call_later(1, lambda: request.answer(answer))

    def hang_up(self, way: str) -> None:
        """Lose what is under way there."""
        for request in self.seen:
            if request.way == way and not request.is_answered:
                request.answer(Lost("nobody waits for it", is_sent=True))


class Partition:
    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.producers = Producers()
        self.leader = 1

    def append(self, batch: bytes) -> tuple[int, bool] | RaftlineError:
        info = check_batch(batch)
        answer = self.producers.admit(
            info.producer_id, info.producer_epoch, info.base_sequence, info.count
        )
        if isinstance(answer, RaftlineError):
            return answer
        if answer >= 0:
            return answer, True
        base = len(self.values)
        self.values += [message.value or b"" for message in open_batch(batch)]
        self.producers.stored(
            info.producer_id, info.producer_epoch, info.base_sequence, info.count, base, 0
        )
        return base, False


class Nodes:
    """Three nodes that know each other, and a network that is as bad as ``badness`` says."""

    def __init__(self, clock: FakeClock, rng: Random, *, partitions: int = 3) -> None:
        self.clock = clock
        self.rng = rng
        self.badness = 0.0
        self.partitions = [Partition() for _ in range(partitions)]
        self.down: set[int] = set()
        self._ways: dict[tuple[str, str], float] = {}  # when the last reply of a way comes
        self._broken: dict[tuple[str, str], int] = {}
        self._numbers = itertools.count(1)
        self.requests = 0

    def request(self, host: str, ask: Ask, timeout_ms: int, deadline_ms: float, done: Done) -> None:
        request = Request(host, ask, timeout_ms, deadline_ms, done)
        self.requests += 1
        key = (host, ask.way if ask.way != ALONE else f"alone {self.requests}")
        life = self._broken.get(key, 0)
        arrives = max(self.clock.now + self.rng.uniform(0.1, 3), self._ways.get(key, 0.0))
        self._ways[key] = arrives
        self.clock.call_later(arrives - self.clock.now, lambda: self._arrive(request, key, life))

    def _arrive(self, request: Request, key: tuple[str, str], life: int) -> None:
        """Serve a request, or lose it; a lost one breaks the connection for those behind it."""
        node = int(request.host.rpartition(":")[2])
        if node in self.down:
            request.answer(Lost("refused", is_sent=False))
            return
        if self._broken.get(key, 0) != life:
            request.answer(Lost("broken", is_sent=True))
            return
        fault = self.rng.random() < self.badness
        kind = self.rng.choice(["lost", "lost late", "stray", "refused", "unknown", "silent"])
        if fault and kind == "stray":  # it happens, long after the client gave up on it
            self.clock.call_later(self.rng.uniform(1, 30), lambda: self.serve(request, node))
        answer: Reply | None = None
        if not fault or kind in ("lost late", "unknown"):
            answer = self.serve(request, node)
        if not fault:
            assert answer is not None
            request.answer(answer)
        elif kind == "refused":
            request.answer(refusal(self.rng.choice(["not_leader", "no_leader", "shutting_down"])))
        elif kind == "unknown":
            request.answer(refusal("timed_out", 504))
        elif kind == "silent":
            self._break(key)
            left = request.deadline_ms - self.clock.now
            lost = Lost("late", is_sent=True)
            self.clock.call_later(left, lambda: request.answer(lost))
        else:
            self._break(key)
            request.answer(Lost("broken", is_sent=True))

    def _break(self, key: tuple[str, str]) -> None:
        self._broken[key] = self._broken.get(key, 0) + 1
        self._ways.pop(key, None)

    def hang_up(self, way: str) -> None:
        raise AssertionError("nobody receives here")

    # ------------------------------------------------------------------ what nodes say

    def serve(self, request: Request, node: int) -> Reply:
        parts = request.path.strip("/").split("/")
        if request.path == "/shards-info":
            return reply({"shards": self._shards(), "nodes": self._nodes()})
        if request.path == "/v1/producers":
            return reply({"producer_id": next(self._numbers), "epoch": 0})
        if len(parts) == 3 and parts[1] == "topics":
            rows = [{"partition": s["partition"], "leader": s["leader"]} for s in self._shards()]
            return reply(
                {
                    "name": parts[2],
                    "num_partitions": len(rows),
                    "partitions": rows,
                    "settings": {"partitioner": "murmur2", "lanes": 5, "lease_ms": 30_000},
                }
            )
        assert parts[3] == "partitions", request.path
        assert parts[5] == "messages", request.path
        stored = self.partitions[int(parts[4])].append(request.body)
        if isinstance(stored, RaftlineError):
            return refusal(stored.code, 409)
        count = int.from_bytes(request.body[57:61], "big")
        row = {"base_offset": stored[0], "count": count, "duplicate": stored[1]}
        return reply({"results": [{**row, "partition": int(parts[4])}]})

    def _shards(self) -> list[dict]:
        return [
            {"topic": "t", "partition": number, "leader": partition.leader}
            for number, partition in enumerate(self.partitions)
        ]

    def _nodes(self) -> list[dict]:
        return [{"id": number, "http": f"node:{number}"} for number in (1, 2, 3)]
