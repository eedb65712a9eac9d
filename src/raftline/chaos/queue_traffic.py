"""Senders, schedulers and workers on a cluster under faults, and what became of every message.

Every message has a body of its own. Senders send at once, with a dedup key twice, or with a delay;
schedulers cancel some of what waits. Workers of one group ack, now and then nack or reject. All
of them are plain users of the Python client. What each of them was told is noted; in the end the
group has worked everything off, the log is read back, and ``queue_verdict`` judges.
"""

import contextlib
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec

from raftline.chaos.crowd import PATIENT, Crowd
from raftline.chaos.rig import Rig
from raftline.client.line import Line
from raftline.client.received import Message
from raftline.model.errors import LeaseLost, RaftlineError, TimedOut

TOPIC, GROUP = "chaos-jobs", "chaos-crew"
PARTITIONS = 3
LEASE = "4s"
DELAY_MS_MAX = 4_000

Role = Callable[[random.Random, str, Line], None]
UNSETTLED = ("fresh", "leased", "resting", "ready", "dying")


class Sending(msgspec.Struct):
    """One message, as its sender knows it."""

    body: str
    delay_ms: int = 0
    due_ms: int = 0  # by the wall clock of the sender; 0: at once
    dedup_key: str = ""
    outcome: str = ""  # "ok", "refused", "unknown"
    id: str = ""
    second_id: str = ""  # what a repeat with the same dedup key was told
    cancelled: bool = False  # a cancel was answered with done
    cancel_in_doubt: bool = False  # nobody knows whether a cancel was done


class Delivery(msgspec.Struct, frozen=True):
    """One delivery, and what the worker was told about its settle."""

    body: str
    partition: int
    offset: int
    attempt: int
    at_ms: int
    verb: str
    outcome: str  # "ok", "lost", "unknown"
    error: str = ""


class QueueRecord(msgspec.Struct):
    """What clients were told, and what is stored in the end."""

    sendings: dict[str, Sending] = {}
    deliveries: dict[str, list[Delivery]] = {}
    bodies: dict[str, list[tuple[int, int]]] = {}  # in the log: partition, offset
    letters: dict[str, int] = {}  # in the dead-letter topic: how often


class QueueTraffic(Crowd):
    """The load."""

    def __init__(
        self,
        rig: Rig,
        *,
        senders: int = 1,
        schedulers: int = 1,
        workers: int = 3,
        pause_s: float = 0.02,
        seed: int = 1,
    ) -> None:
        super().__init__(rig, "clients of the queue", TOPIC, PARTITIONS, PATIENT)
        self._pause_s = pause_s
        self._seed = seed
        self.sendings: dict[str, Sending] = {}
        self.deliveries: dict[str, list[Delivery]] = defaultdict(list)
        roles = [self._send] * senders + [self._schedule] * schedulers
        self._givers = [self._client(role, n) for n, role in enumerate(roles)]
        self._takers = [self._client(self._work, len(roles) + n) for n in range(workers)]

    def _client(self, role: Role, number: int) -> threading.Thread:
        rng, who = random.Random(self._seed * 100 + number), f"{self._seed}.{number}"
        return self._with_line(lambda line: role(rng, who, line))

    def drain(self) -> None:
        """Stop sending; return when the group has worked everything off and the workers ended.

        Raises:
            ChaosProblem: it did not in time.
        """
        self._stop_giving()
        self._wait_taken(lambda: not self._left(), lambda: f"left: {self._left()}", 0.5)

    def _left(self) -> list[dict[str, Any]]:
        """Return the partitions where something waits or is leased."""
        line = self._line()
        try:
            rows = line.groups.show(GROUP, TOPIC)["work"].get(TOPIC, [])
            waiting = int(line.scheduled.list(TOPIC)["count"])
        except RaftlineError as error:
            return [{"error": error.message}]
        finally:
            line.close()
        left = [row for row in rows if any(row[state] for state in UNSETTLED)]
        return left + ([{"waiting": waiting}] if waiting else [])

    # ------------------------------------------------------------------ givers

    def _send(self, rng: random.Random, who: str, line: Line) -> None:
        number = 0
        while not self._all_sent.is_set():
            number += 1
            sending = self._new(f"{who}/{number}")
            if rng.random() < 0.1:
                sending.dedup_key = sending.body
            self._give(line, sending)
            if sending.dedup_key and sending.outcome == "ok":
                with contextlib.suppress(RaftlineError):
                    again = line.send_now(TOPIC, sending.body, dedup_key=sending.dedup_key)
                    sending.second_id = again.id
            time.sleep(self._pause_s)

    def _schedule(self, rng: random.Random, who: str, line: Line) -> None:
        number = 0
        while not self._all_sent.is_set():
            number += 1
            sending = self._new(f"{who}/{number} later")
            delay_ms = rng.randrange(200, DELAY_MS_MAX)
            # The key makes a repeat after a lost answer safe: delayed messages have no sequence.
            sending.dedup_key = sending.body
            sending.delay_ms, sending.due_ms = delay_ms, wall_ms() + delay_ms
            self._give(line, sending, delay=delay_ms / 1000)
            if sending.outcome == "ok" and rng.random() < 0.2:
                self._cancel(line, sending)
            time.sleep(self._pause_s * 3)

    def _new(self, body: str) -> Sending:
        with self._lock:
            return self.sendings.setdefault(body, Sending(body))

    def _give(self, line: Line, sending: Sending, **wishes: Any) -> None:
        if sending.dedup_key:
            wishes["dedup_key"] = sending.dedup_key
        try:
            sending.id = line.send_now(TOPIC, sending.body, **wishes).id
            sending.outcome = "ok"
        except TimedOut:
            sending.outcome = "unknown"
        except RaftlineError:
            sending.outcome = "refused"

    @staticmethod
    def _cancel(line: Line, sending: Sending) -> None:
        try:
            line.scheduled.cancel(sending.id)
            sending.cancelled = True
        except TimedOut:
            sending.cancel_in_doubt = True
        except RaftlineError:
            return  # it was not: too late, or nobody led

    # ------------------------------------------------------------------ workers

    def _work(self, rng: random.Random, who: str, line: Line) -> None:
        del who
        while not self._over.is_set():
            try:
                batch = line.receive_many(TOPIC, group=GROUP, count=10, lease=LEASE, wait="500ms")
            except RaftlineError:
                time.sleep(0.1)
                continue
            for message in batch:
                self._settle(rng, message)

    def _settle(self, rng: random.Random, message: Message) -> None:
        at_ms = wall_ms()
        chance = rng.random()
        verb = "reject" if chance < 0.01 else "nack" if chance < 0.06 else "ack"
        try:
            if verb == "ack":
                message.ack(wait=True)
            elif verb == "nack":
                message.nack("again, please", wait=True)
            else:
                message.reject("not wanted", wait=True)
            outcome, told = "ok", ""
        except RaftlineError as error:
            outcome = "lost" if isinstance(error, LeaseLost) else "unknown"
            told = f"{error.code}: {error.message}"
        row = Delivery(
            body=message.text,
            partition=message.partition,
            offset=message.offset,
            attempt=message.attempt,
            at_ms=at_ms,
            verb=verb,
            outcome=outcome,
            error=told,
        )
        with self._lock:
            self.deliveries[row.body].append(row)


def wall_ms() -> int:
    """Return the time of day."""
    return time.time_ns() // 1_000_000
