"""The way of batches to one partition: in order, several at a time, each stored once.

State
    Open batches by priority, closed ones that wait for their turn, those on their way; the
    producer's epoch and next sequence for this partition.

Rules
    L1  At most ``FLYING_MAX`` batches from the oldest one without an outcome on are sent, fewer
        than a node remembers per producer, so that a repeat of any of them is recognised.
    L2  After an attempt that failed nothing goes out before all answers are in; then the oldest
        goes alone until it is stored. So batches are stored in the order they were closed.
    L3  A batch is sent again with the same sequence as long as an attempt may have been stored.
    L4  The oldest batch refused as out of order: something before it is missing for good (it ran
        out of time, or was refused). Sequences have no gaps, so nothing from it on is stored: all
        of it is sealed anew in the next epoch.
    L5  A batch ends by its deadline. It fails with ``TimedOut`` if an attempt may have been
        stored, else with the last refusal.
    L6  A batch leaves when it is full, when somebody waits for it, or after the linger if no other
        one is on its way (the answer lets the next one go). One that somebody waits for while no
        more may be on their way stays open: all who wait meanwhile share it.
    L7  Messages share a batch if they share its deadline, ``SPREAD_MS`` more or less: none fails
        long before its time because another one was in a hurry, or had waited. Where
        ``PARTS_MAX`` batches wait already they share it all the same, until the first deadline.
    L8  A message that fills a batch has one of its own: it may be larger than nodes take.
"""

import math
from collections.abc import Callable
from typing import Annotated, Protocol

import msgspec

from raftline.client.core.batches import Batch
from raftline.client.core.caller import SLACK_MS, UNKNOWN_TOPIC_TRIES, Caller
from raftline.client.core.ports import BATCH, Answer, Ask, Lost, Reply, Timer
from raftline.client.core.wire import error_of, read_body
from raftline.model.errors import (
    FencedProducer,
    NotFound,
    NotReady,
    OutOfOrder,
    OverLimit,
    RaftlineError,
    ShuttingDown,
    TimedOut,
    Unavailable,
    UnknownProducer,
    UnknownTopic,
)
from raftline.model.limits import PRODUCER_BATCHES, SEQUENCE_MODULUS
from raftline.model.message import NewMessage

FLYING_MAX = PRODUCER_BATCHES - 1
ATTEMPT_MS = 3_000
SLOW_BYTES_PER_MS = 500  # a link that is slower than that is a node that does not answer
EPOCH_MAX = 30_000  # then the producer is changed
WAY = "send"
SPREAD_MS = 1_000
PARTS_MAX = 32

assert FLYING_MAX < PRODUCER_BATCHES  # L1


class _Row(msgspec.Struct):
    base_offset: int = -1
    duplicate: bool = False


class _Appended(msgspec.Struct):
    results: Annotated[list[_Row], msgspec.Meta(min_length=1)]


_decode = msgspec.json.Decoder(_Appended).decode


class Sender(Protocol):
    """What a lane needs of the sends around it."""

    caller: Caller
    linger_ms: float
    batch_bytes: int
    batch_messages: int
    producer_id: int
    flying_bytes: int

    def finished(self, batch: Batch) -> None:
        """A batch is done."""
        ...

    def renew_producer(self) -> None:
        """Get another producer id; lanes wait meanwhile."""
        ...


class Lane:
    """Batches of one partition."""

    __slots__ = (
        "_ends_ms",
        "_flying",
        "_is_recovering",
        "_linger",
        "_not_before_ms",
        "_number",
        "_open",
        "_partition",
        "_path",
        "_queue",
        "_resume",
        "_sender",
        "_topic",
        "_tries",
        "epoch",
        "sequence",
    )

    def __init__(self, sender: Sender, topic: str, partition: int) -> None:
        self._sender = sender
        self._topic = topic
        self._partition = partition
        self._path = f"/v1/topics/{topic}/partitions/{partition}/messages"
        self._open: dict[int, Batch] = {}
        self._queue: list[Batch] = []  # closed, in order
        self._ends_ms = math.inf  # no deadline of those is before it
        self._flying: list[Batch] = []
        self._number = 0
        self._is_recovering = False
        self._not_before_ms = 0.0
        self._tries = 0
        self._linger: Timer | None = None
        self._resume: Timer | None = None
        self.epoch = 0
        self.sequence = 0

    @property
    def is_idle(self) -> bool:
        """Say whether nothing is under way."""
        return not (self._open or self._queue or self._flying)

    def add(
        self, priority: int, message: NewMessage, size_bytes: int, deadline_ms: float, now_ms: float
    ) -> tuple[Batch, bool]:
        """Take a message; return its batch, and whether that is full now."""
        batch = self._open.get(priority)
        sender = self._sender
        if batch is not None and (
            size_bytes >= sender.batch_bytes
            or (abs(deadline_ms - batch.deadline_ms) > SPREAD_MS and len(self._queue) < PARTS_MAX)
        ):
            self._close(batch)  # L7, L8
            batch = None
        if batch is None:
            batch = self._open[priority] = Batch(self._topic, self._partition, priority, now_ms)
            batch.deadline_ms = deadline_ms
        elif deadline_ms < batch.deadline_ms:
            batch.deadline_ms = deadline_ms
        batch.messages.append(message)
        batch.count += 1
        batch.size_bytes += size_bytes
        if batch.size_bytes < sender.batch_bytes and batch.count < sender.batch_messages:
            return batch, False
        self._close(batch)
        return batch, True

    def urge(self, batch: Batch) -> None:
        """Somebody waits for a batch: no lingering."""
        batch.is_urgent = True
        if self._open.get(batch.priority) is batch:
            self.pump()

    def batches(self) -> list[Batch]:
        """Return all without an outcome."""
        return [*self._open.values(), *self._queue, *self._flying]

    def close_all(self) -> None:
        """Let everything go that was taken so far."""
        for batch in list(self._open.values()):
            self._close(batch)
        self.pump()

    def _close(self, batch: Batch) -> None:
        del self._open[batch.priority]
        self._number += 1
        batch.number = self._number
        self._queue.append(batch)
        self._ends_ms = min(self._ends_ms, batch.deadline_ms)

    # ------------------------------------------------------------------ out

    def pump(self) -> None:
        """Send what may go now."""
        sender = self._sender
        if not (self._queue or self._open):
            return
        now = sender.caller.clock.mono_ms()
        self._expire(now)
        self._ripen(now)
        self._expire(now)  # what was closed because its time is up
        wake_ms = 0.0
        if now < self._not_before_ms:
            wake_ms = self._not_before_ms
        elif sender.producer_id >= 0:  # else pumped again when there is one
            self._send_some(now)
        ends = [batch.deadline_ms for batch in self._open.values() if batch.is_urgent]
        if self._queue:
            ends.append(self._ends_ms)
        if ends:
            self._wake_at(min(wake_ms, *ends) if wake_ms else min(ends), now)

    def _send_some(self, now: float) -> None:
        flying = len(self._flying)
        room = FLYING_MAX - flying
        if self._is_recovering:
            room = 0 if flying else 1  # L2
        while room > 0 and self._queue:
            first = min([batch.number for batch in self._flying], default=self._queue[0].number)
            if self._queue[0].number - first >= FLYING_MAX:
                break  # L1
            room -= 1
            self._send(self._queue.pop(0), now)

    def _ripen(self, now: float) -> None:
        """Close open batches that waited long enough. L6."""
        linger = self._sender.linger_ms
        is_busy = bool(self._flying or self._queue)
        for batch in list(self._open.values()):
            left = batch.since_ms + linger - now
            is_ripe = self._may_send() if batch.is_urgent else left <= 0 and not is_busy
            if is_ripe or now >= batch.deadline_ms:
                self._close(batch)
            elif left > 0 and self._linger is None:
                self._linger = self._sender.caller.clock.call_later(left, self._lingered)

    def _may_send(self) -> bool:
        """Say whether a batch that is closed now leaves at once."""
        most = 1 if self._is_recovering else FLYING_MAX
        return not self._queue and len(self._flying) < most

    def _lingered(self) -> None:
        self._linger = None
        self.pump()

    def _wake_at(self, time_ms: float, now: float) -> None:
        if self._resume is not None:
            self._resume.cancel()
        delay = max(0.0, time_ms - now)
        self._resume = self._sender.caller.clock.call_later(delay, self._resumed)

    def _resumed(self) -> None:
        self._resume = None
        self.pump()

    def _expire(self, now: float) -> None:
        """End what is out of time. L5."""
        if now < self._ends_ms:
            return
        over = [batch for batch in self._queue if batch.deadline_ms <= now]
        self._queue = [batch for batch in self._queue if batch.deadline_ms > now]
        self._ends_ms = min([batch.deadline_ms for batch in self._queue], default=math.inf)
        for batch in over:
            self._end(batch, batch.problem or self._timed_out(batch))

    def _send(self, batch: Batch, now: float) -> None:
        sender = self._sender
        caller = sender.caller
        if batch.data is None:
            try:
                batch.seal(sender.producer_id, self.epoch, self.sequence)
            except RaftlineError as error:
                self._end(batch, error)
                return
            self.sequence = (self.sequence + batch.count) % SEQUENCE_MODULUS
        assert batch.data is not None
        host = caller.topology.host_of(self._topic, self._partition, now)
        ask = Ask(
            method="POST",
            path=self._path,
            body=batch.data,
            content_type=BATCH,
            priority=batch.priority,
            topic=self._topic,
            partition=self._partition,
            way=WAY,
        )
        self._flying.append(batch)
        sender.flying_bytes += batch.size_bytes
        way_ms = sender.flying_bytes / SLOW_BYTES_PER_MS
        until = min(now + ATTEMPT_MS + SLACK_MS + way_ms, batch.deadline_ms)
        caller.network.request(host, ask, ATTEMPT_MS, until, self._answering(batch, host))

    def _answering(self, batch: Batch, host: str) -> Callable[[Answer], None]:
        return lambda answer: self._answered(batch, host, answer)

    # ------------------------------------------------------------------ back

    def _answered(self, batch: Batch, host: str, answer: Answer) -> None:
        self._flying.remove(batch)
        self._sender.flying_bytes -= batch.size_bytes
        caller = self._sender.caller
        if isinstance(answer, Reply) and answer.status < 300:
            caller.topology.answered(host)
            self._stored(batch, answer)
        elif isinstance(answer, Lost):
            caller.topology.failed(host, caller.clock.mono_ms())
            problem = Unavailable(f"{host}: {answer.reason}", "it is tried again in time")
            self._retry(batch, problem, is_unknown=answer.is_sent)
        else:
            caller.topology.answered(host)
            self._refused(batch, host, error_of(answer, host))
        self.pump()

    def _stored(self, batch: Batch, reply: Reply) -> None:
        found = read_body(_decode, reply)
        if isinstance(found, RaftlineError):
            self._end(batch, found)
            return
        row = found.results[0]
        batch.base_offset, batch.is_duplicate = row.base_offset, row.duplicate
        if self._is_oldest(batch):
            self._is_recovering, self._tries = False, 0
        self._end(batch, None)

    def _refused(self, batch: Batch, host: str, error: RaftlineError) -> None:
        caller = self._sender.caller
        if isinstance(error, OutOfOrder | UnknownProducer | FencedProducer):
            self._misplaced(batch, error)
        elif isinstance(error, TimedOut):
            self._retry(batch, error, is_unknown=True)
        elif isinstance(error, Unavailable | OverLimit):
            if isinstance(error, NotReady | ShuttingDown):
                caller.topology.failed(host, caller.clock.mono_ms())
            self._retry(batch, error, is_unknown=False)
        elif isinstance(error, UnknownTopic) and batch.tries < UNKNOWN_TOPIC_TRIES:
            self._retry(batch, error, is_unknown=False)
        else:
            if isinstance(error, NotFound):
                caller.topology.forget(self._topic)  # found anew by the next message
            self._end(batch, error)
            self._is_recovering = bool(self._queue or self._flying)  # L4: what follows misses it

    def _retry(self, batch: Batch, problem: RaftlineError, *, is_unknown: bool) -> None:
        """Put a batch back in its place. L2."""
        batch.problem = problem
        batch.is_unknown = batch.is_unknown or is_unknown
        batch.tries += 1
        self._put_back(batch)
        if not self._is_recovering or not self._flying:
            caller = self._sender.caller
            self._tries += 1
            self._not_before_ms = caller.clock.mono_ms() + caller.pause_ms(self._tries)
            caller.on_trouble()
        self._is_recovering = True

    def _put_back(self, batch: Batch) -> None:
        queue = self._queue
        at = 0
        while at < len(queue) and queue[at].number < batch.number:
            at += 1
        queue.insert(at, batch)
        self._ends_ms = min(self._ends_ms, batch.deadline_ms)

    def _is_oldest(self, batch: Batch) -> bool:
        """Say whether everything before a batch has its outcome."""
        return all(other.number >= batch.number for other in (*self._queue, *self._flying))

    def _misplaced(self, batch: Batch, error: RaftlineError) -> None:
        """An earlier batch is missing: one of ours that comes again, or one that never will."""
        is_oldest = self._is_oldest(batch)
        self._put_back(batch)
        batch.problem = error
        batch.tries += 1
        self._is_recovering = True
        if not is_oldest or self._flying:
            return
        self._renew(error)  # L4

    def _renew(self, error: RaftlineError) -> None:
        for batch in self._queue:
            batch.unseal()
        self.sequence = 0
        self.epoch += 1
        if isinstance(error, FencedProducer) or self.epoch > EPOCH_MAX:
            self.epoch = 0
            self._sender.renew_producer()

    def _timed_out(self, batch: Batch) -> RaftlineError:
        where = f"{self._topic}/{self._partition}"
        return TimedOut(f"sending {batch.count} messages to {where}", 0)

    def _end(self, batch: Batch, error: RaftlineError | None) -> None:
        """L5."""
        if error is not None and batch.is_unknown:
            error = self._timed_out(batch)
        batch.finish(error)
        self._sender.finished(batch)
