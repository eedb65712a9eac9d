"""Wishes in the headers of messages, on topics with ``headers=true``.

``raftline-delay-ms`` or ``raftline-due-ms`` (Unix milliseconds), ``raftline-priority`` (a number or
a name) and ``raftline-dedup-key``: text, as everywhere in record headers. A batch without any of
them goes the usual way. Priorities go beside the batch, which stays as it is. A batch in which a
message waits or has a dedup key is taken apart: as a publish over HTTP is, or, if its producer is
idempotent, in one entry together with its sequence numbers (node/parcels.py).

Costs
    A search for ``raftline-`` in a batch that is not compressed; opening it if it is, or if there
    is a wish. Topics without the setting pay nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any

from raftline.gateways.new_messages import PRIORITY_HEADER
from raftline.gateways.publication import Draft, Publication, Result
from raftline.gateways.publisher import NodePublisher
from raftline.gateways.wanted import NOTHING, NOW, Wanted, wanted_of
from raftline.machines.partition.side_car import SideCar
from raftline.model.batch import COMPRESSION_MASK, NO_PRODUCER, BatchInfo, Buffer, check_batch
from raftline.model.calls import Appended, NewWaiting
from raftline.model.errors import CorruptBatch, InvalidArgument, RaftlineError
from raftline.model.message import Header, Message, NewMessage
from raftline.model.records import check_messages, open_batch, seal_batch
from raftline.model.settings import Value
from raftline.node.led import LedPartition
from raftline.node.parcels import NewParcel

PREFIX = b"raftline-"
DELAY, DUE, DEDUP = "raftline-delay-ms", "raftline-due-ms", "raftline-dedup-key"
NAMES = (DELAY, DUE, PRIORITY_HEADER, DEDUP)
NUMBER_CHARS_MAX = 19

Done = Callable[[Appended | RaftlineError], None]


class Wishing:
    """The fields of one message that ask for something (wanted.Wishes)."""

    __slots__ = ("dedup_key", "delay", "deliverAt", "deliver_at", "priority")

    def __init__(self, headers: dict[str, str]) -> None:
        """Read them. Raises InvalidArgument."""
        self.priority: int | str | None = headers.get(PRIORITY_HEADER)
        self.delay: int | str | None = _number(headers, DELAY)
        self.deliver_at: str | int | None = _number(headers, DUE)
        self.deliverAt: str | int | None = None
        self.dedup_key: str | None = headers.get(DEDUP)


class Wishes:
    """Grants what messages ask for."""

    __slots__ = ("_publisher",)

    def __init__(self, publisher: NodePublisher) -> None:
        self._publisher = publisher

    def append(
        self, led: LedPartition, partition: int, batch: Buffer, info: BatchInfo, timeout_ms: int,
        done: Done,
    ) -> None:  # fmt: skip
        """Store a batch of a topic whose headers are read. Raises RaftlineError."""
        data = bytes(batch)
        if not info.attributes & COMPRESSION_MASK and PREFIX not in data:
            led.append(data, info, timeout_ms, done)
            return
        try:
            messages = open_batch(data)
        except CorruptBatch as error:  # its checksum is right: repeated, it would be the same
            raise InvalidArgument(error.message) from error
        wanted = self._wanted(led.topic, messages)
        if all(one.due_ms == NOW and one.key_hash is None for one in wanted):
            led.append(data, info, timeout_ms, done, _side(wanted))
        elif info.producer_id != NO_PRODUCER:
            led.send_parcel(make_parcel(info, messages, wanted), timeout_ms, done)
        else:
            # Clients may seal longer keys and headers than we do: known now, nothing is stored.
            check_messages([(one.key, one.value, one.headers, 0) for one in messages])
            _Apart(self._publisher, led.topic, partition, timeout_ms, done).send(messages, wanted)

    def _wanted(self, topic: str, messages: list[Message]) -> list[Wanted]:
        settings = self._publisher.settings_of(topic)()
        return read_wishes(messages, settings, self._publisher.wall_ms())


def read_wishes(
    messages: list[Message], settings: Mapping[str, Value], now_ms: int
) -> list[Wanted]:
    """Return what each message asks for; equal headers are read once. Raises InvalidArgument."""
    read: dict[tuple[Header, ...], Wanted] = {(): NOTHING}
    found: list[Wanted] = []
    for message in messages:
        headers = message.headers
        wanted = read.get(headers)
        if wanted is None:
            wanted = read[headers] = _read(headers, settings, now_ms)
        found.append(wanted)
    return found


class _Apart:
    """A batch that is taken apart: some of it waits, or is known already."""

    __slots__ = ("_done", "_partition", "_publication")

    def __init__(
        self, publisher: NodePublisher, topic: str, partition: int, timeout_ms: int, done: Done
    ) -> None:
        self._done = done
        self._partition = partition
        self._publication = Publication(publisher, self, topic, timeout_ms, self._finish)

    def send(self, messages: list[Message], wanted: list[Wanted]) -> None:
        """Store each message as it wants."""

        def draft(slot: int) -> Draft:
            one = messages[slot]
            message = (one.key, one.value, list(one.headers), one.timestamp_ms)
            return Draft(slot, message, self._partition, wanted[slot])

        self._publication.send(len(messages), draft, "")

    def fail(self, error: RaftlineError) -> None:
        """Refuse the whole batch (publication.Answering)."""
        self._done(error)

    def guard(self, step: Callable[..., None], *arguments: Any) -> None:
        """Run a step; what it raises is the answer."""
        try:
            step(*arguments)
        except RaftlineError as error:
            self._done(error)

    def _finish(self, results: list[Result], error: RaftlineError | None) -> None:
        if error is not None:
            self._done(error)
            return
        offsets = [result.offset for result in results if result.offset is not None]
        self._done(Appended(min(offsets, default=-1), len(results), self._partition, 0))


def make_parcel(source: BatchInfo, messages: list[Message], wanted: list[Wanted]) -> NewParcel:
    """Seal a batch anew: what waits and what has a dedup key by itself, the rest in runs."""
    batches: list[tuple[bytes, BatchInfo, SideCar | None]] = []
    waiting: list[NewWaiting] = []
    timestamps: list[int] = []
    run: list[NewMessage] = []
    run_wanted: list[Wanted] = []

    def seal_run() -> None:
        if run:
            batch = seal_batch(run)
            keys = tuple((0, one.key_hash) for one in run_wanted if one.key_hash is not None)
            side = _side(run_wanted)
            if keys:
                side = SideCar(() if side is None else side.priorities, keys)
            batches.append((batch, check_batch(batch), side))
            run.clear()
            run_wanted.clear()

    for one, wish in zip(messages, wanted, strict=True):
        message = (one.key, one.value, list(one.headers), one.timestamp_ms)
        if wish.due_ms != NOW:
            batch = seal_batch([message])
            dedup = wish.key_hash or b""
            waiting.append(NewWaiting(batch, wish.due_ms, wish.priority, dedup))
            timestamps.append(check_batch(batch).max_timestamp)
            continue
        if wish.key_hash is not None:
            seal_run()
        run.append(message)
        run_wanted.append(wish)
        if wish.key_hash is not None:
            seal_run()
    seal_run()
    return NewParcel(source, batches, waiting, timestamps)


def _side(wanted: list[Wanted]) -> SideCar | None:
    """Return the priorities of a batch."""
    runs: list[tuple[int, int, int]] = []
    for delta, one in enumerate(wanted):
        if one.priority and runs and runs[-1][1:] == (delta, one.priority):
            runs[-1] = (runs[-1][0], delta + 1, one.priority)
        elif one.priority:
            runs.append((delta, delta + 1, one.priority))
    return SideCar(tuple(runs)) if runs else None


def _read(headers: tuple[Header, ...], settings: Mapping[str, Value], now_ms: int) -> Wanted:
    asked = {
        name: str(value, "utf-8", "replace")
        for name, value in headers
        if name in NAMES and value is not None
    }
    return wanted_of(Wishing(asked), lambda: settings, now_ms) if asked else NOTHING


def _number(headers: dict[str, str], name: str) -> int | None:
    text = headers.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > NUMBER_CHARS_MAX:
        raise InvalidArgument(f"{name} is {text[:40]!r}", "milliseconds, as text: 5000")
    return int(text)
