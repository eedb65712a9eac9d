"""Messages with keys and an ordered group on a cluster under faults, and their verdict: P7.

One sender, a few keys, workers that ack and now and then nack. The order that counts is that of
the log: a message may be with a worker only after the one before it, of the same key, was settled.
A leader that does not know yet that it was deposed may hand out once more what was settled already,
but never what comes after something unsettled.
"""

import contextlib
import itertools
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from raftline.chaos.crowd import PATIENT, Crowd
from raftline.chaos.rig import Rig, mono_ms
from raftline.client.line import Line
from raftline.client.received import Message
from raftline.model.errors import LeaseLost, RaftlineError, TimedOut
from raftline.testing.checker import Violation

TOPIC, GROUP = "chaos-keys", "chaos-ledger"
KEYS = 8
PARTITIONS = 2
WORKERS = 2
LEASE = "4s"
PAGE = 1_000
Role = Callable[[random.Random, Line], None]
UNSETTLED = ("fresh", "leased", "resting", "ready", "dying")


class Handed(msgspec.Struct, frozen=True):
    """One message with one worker."""

    body: str
    received_ms: float  # when the call that brought it had ended
    settle_ms: float  # when its settle began
    verb: str
    outcome: str  # "ok", "lost", "unknown"


class KeyedRecord(msgspec.Struct):
    """What was seen, and the log in the end."""

    acked: set[str] = set()  # bodies whose sender was told that they are stored
    handed: list[Handed] = []
    log: list[tuple[int, int, str, str]] = []  # partition, offset, key, body


class KeyedTraffic(Crowd):
    """The load."""

    def __init__(self, rig: Rig, *, pause_s: float = 0.05, seed: int = 1) -> None:
        super().__init__(rig, "clients with keys", TOPIC, PARTITIONS, PATIENT)
        self._pause_s = pause_s
        self.record = KeyedRecord()
        self._givers = [self._client(self._send, random.Random(seed))]
        self._takers = [
            self._client(self._work, random.Random(seed * 10 + n)) for n in range(WORKERS)
        ]

    def _client(self, role: Role, rng: random.Random) -> threading.Thread:
        return self._with_line(lambda line: role(rng, line))

    def drain(self) -> None:
        """Stop sending; return when everything is worked off. Raises ChaosProblem."""
        self._stop_giving()
        self._wait_taken(lambda: not self._left(), lambda: f"left: {self._left()}", 0.5)
        self.record.log = list(self._read_back())

    def _send(self, rng: random.Random, line: Line) -> None:
        for number in itertools.count(1):
            if self._all_sent.is_set():
                return
            body = f"keyed {number}"
            with contextlib.suppress(RaftlineError, TimedOut):
                line.send_now(TOPIC, body, key=f"key-{rng.randrange(KEYS)}")
                self.record.acked.add(body)
            time.sleep(self._pause_s)

    def _work(self, rng: random.Random, line: Line) -> None:
        while not self._over.is_set():
            try:
                batch = line.receive_many(
                    TOPIC, group=GROUP, count=4, lease=LEASE, wait="500ms", ordered=True
                )
            except RaftlineError:
                time.sleep(0.1)
                continue
            received_ms = mono_ms()
            for message in batch:
                self._settle(message, received_ms, "nack" if rng.random() < 0.1 else "ack")

    def _settle(self, message: Message, received_ms: float, verb: str) -> None:
        settle_ms = mono_ms()
        try:
            if verb == "ack":
                message.ack(wait=True)
            else:
                message.nack("again, please", wait=True)
            outcome = "ok"
        except RaftlineError as error:
            outcome = "lost" if isinstance(error, LeaseLost) else "unknown"
        with self._lock:
            row = Handed(message.text, received_ms, settle_ms, verb, outcome)
            self.record.handed.append(row)

    def _left(self) -> list[Any]:
        line = self._line()
        try:
            rows = line.groups.show(GROUP, TOPIC)["work"].get(TOPIC, [])
        except RaftlineError as error:
            return [error.message]
        finally:
            line.close()
        return [row for row in rows if any(row[state] for state in UNSETTLED)]

    def _read_back(self) -> Iterator[tuple[int, int, str, str]]:
        line = self._line()
        try:
            for partition in range(PARTITIONS):
                offset = int(line.offsets(TOPIC, partition)["log_start"])
                while rows := line.read(
                    TOPIC, partition=partition, offset=offset, count=PAGE
                ).messages:
                    for row in rows:
                        key, body = (row.key or b"").decode(), (row.value or b"").decode()
                        yield partition, row.offset, key, body
                    offset = rows[-1].offset + 1
        finally:
            line.close()


def judge_keyed(record: KeyedRecord) -> tuple[list[Violation], dict[str, int]]:
    """Return what is wrong, and counts."""
    stored = {body for *_, body in record.log}
    found = [
        Violation("P1", "an acknowledged message with a key is lost", body)
        for body in sorted(record.acked - stored)
    ]
    rows: dict[str, list[Handed]] = defaultdict(list)
    for row in record.handed:
        rows[row.body].append(row)
    found += [
        Violation("P4", "a message with a key was never delivered", body)
        for body in sorted(stored - set(rows))
    ]
    found += _overtaken(record, rows)
    counts = {"sent": len(record.acked), "delivered": len(record.handed)}
    return found, counts


def _overtaken(record: KeyedRecord, rows: dict[str, list[Handed]]) -> Iterator[Violation]:
    keys: dict[tuple[int, str], list[tuple[int, str]]] = defaultdict(list)
    for partition, offset, key, body in sorted(record.log):
        keys[partition, key].append((offset, body))
    for (partition, key), line in keys.items():
        for (_, before), (offset, body) in itertools.pairwise(line):
            settled_ms = min(
                (r.settle_ms for r in rows[before] if r.verb == "ack" and r.outcome != "lost"),
                default=float("inf"),
            )
            came_ms = min((row.received_ms for row in rows[body]), default=float("inf"))
            if came_ms < settled_ms:
                text = f"{key} in {partition}: {body} @{offset} before {before} was settled"
                yield Violation("P7", "a message of an ordered group was overtaken", text)
