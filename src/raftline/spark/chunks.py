"""Rows of one task on their way: gathered per partition, sealed into chunks, staged.

A chunk is one sealed batch of about ``chunkBytes``. Rows with a due time are in chunks of their
own, because they go to the waiting messages instead of the log; nodes take those uncompressed, and
no larger than ``STAGE_DUE_BYTES_MAX``. Nothing that is staged can be read; the driver publishes it
when all tasks are done.
"""

import secrets
from itertools import islice, repeat
from typing import Any, cast

import msgspec

from raftline.client import clock
from raftline.client.fenced import Fenced
from raftline.model.errors import RaftlineError
from raftline.model.limits import (
    BATCH_BYTES_MAX,
    BATCH_HEADER_BYTES,
    STAGE_DUE_BYTES_MAX,
    WAITING_NUMBERS_MAX,
)
from raftline.model.message import Header, NewMessage
from raftline.model.names import check_topic_name, place
from raftline.model.records import seal_batch
from raftline.spark.options import Options, bad
from raftline.spark.routing import partitions_by_value, partitions_of
from raftline.spark.rows import PRIORITY_HEADER, Rows

MESSAGES_MAX = 10_000  # of one chunk: as many dedup keys and priorities may be in it
MESSAGE_BYTES = 40  # what a message takes in a batch besides its bytes
DUE_BYTES_MAX = STAGE_DUE_BYTES_MAX - BATCH_HEADER_BYTES  # of the messages of a chunk that wait

Place = tuple[str, int]  # topic, partition


class Target(msgspec.Struct):
    """A topic that rows go to."""

    count: int
    partitioner: str
    chunk_bytes: int  # of messages in one chunk: as wished, and as the topic takes


class Pile:
    """Rows of one partition that are not staged yet."""

    __slots__ = ("dedup", "dues_ms", "messages", "priorities", "seen", "size")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.messages: list[NewMessage] = []
        self.priorities: list[int] = []  # of the messages; those behind the last have none
        self.dedup: list[tuple[int, bytes]] = []
        self.seen: set[bytes] = set()
        self.dues_ms: list[int] = []
        self.size = 0

    def rank(self, priorities: list[int]) -> None:
        """Note the priorities of messages that are about to be added."""
        self.priorities += [0] * (len(self.messages) - len(self.priorities))
        self.priorities += priorities


class Stager:
    """Stages the rows of one task. Its attempt number is its own for ever: nothing mixes."""

    __slots__ = (
        "_chunks",
        "_fenced",
        "_options",
        "_piles",
        "_targets",
        "attempt",
        "batch",
        "query",
        "rows",
        "task",
    )

    def __init__(self, options: Options, fenced: Fenced, query: str, batch: int, task: int) -> None:
        self._options = options
        self._fenced = fenced
        self.query, self.batch, self.task = query, batch, task
        self.attempt = secrets.randbits(62)
        self.rows = 0
        self._targets: dict[str, Target] = {}
        self._piles: dict[tuple[str, int, bool], Pile] = {}
        self._chunks: dict[Place, int] = {}

    def add(self, rows: Rows) -> None:
        """Take rows. Raises RaftlineError."""
        for topic, which in self._by_topic(rows).items():
            self._add_to(topic, rows, which)
        self.rows += rows.count

    def finish(self) -> dict[Place, int]:
        """Stage what is left; return how many chunks each partition has."""
        for (topic, partition, _), pile in self._piles.items():
            self._stage(topic, partition, pile)
        return self._chunks

    # ------------------------------------------------------------------ routing

    def _by_topic(self, rows: Rows) -> dict[str, list[int]]:
        if self._options.topic:
            return {self._options.topic: list(range(rows.count))}
        found: dict[str, list[int]] = {}
        for at, topic in enumerate(rows.topics or [None] * rows.count):
            if topic is None:
                raise bad("a row has no topic", 'fill the column topic, or .option("topic", …)')
            found.setdefault(topic, []).append(at)
        return found

    def _target(self, topic: str) -> Target:
        if topic not in self._targets:
            check_topic_name(topic)
            told = self._fenced.ensure_topic(topic)  # as a first publish creates it
            settings: dict[str, Any] = told.get("settings", {})
            most = int(settings.get("batch_bytes_max", BATCH_BYTES_MAX)) - BATCH_HEADER_BYTES
            self._targets[topic] = Target(
                int(told["num_partitions"]),
                str(settings.get("partitioner", "murmur2")),
                min(self._options.chunk_bytes, most),
            )
        return self._targets[topic]

    def _route(self, topic: str, rows: Rows, which: list[int]) -> list[int]:
        """Return the partition of each row."""
        target = self._target(topic)
        if rows.partitions is None and rows.dedup_keys is None:
            if rows.keys is None:
                values = [rows.values[at] for at in which]
                return partitions_by_value(values, target.count).tolist()
            keys = [rows.keys[at] for at in which]
            if None not in keys:
                known = cast("list[bytes]", keys)
                return partitions_of(target.partitioner, known, target.count).tolist()
        return self._route_one_by_one(topic, target, rows, which)

    def _route_one_by_one(
        self, topic: str, target: Target, rows: Rows, which: list[int]
    ) -> list[int]:
        found = [-1] * len(which)
        by_key: list[tuple[int, bytes]] = []
        by_value: list[int] = []
        for slot, at in enumerate(which):
            named = rows.partitions[at] if rows.partitions is not None else None
            if named is not None:
                if not 0 <= named < target.count:
                    raise bad(
                        f"a row goes to {topic}/{named}, which is not there",
                        f"partitions are 0 to {target.count - 1}; drop the column partition to "
                        "let keys choose",
                    )
                found[slot] = named
                continue
            key = rows.keys[at] if rows.keys is not None else None
            if key is None and rows.dedup_keys is not None:
                key = rows.dedup_keys[at]
            if key is None:
                by_value.append(slot)
            else:
                by_key.append((slot, key))
        if by_key:
            chosen = partitions_of(target.partitioner, [key for _, key in by_key], target.count)
            for (slot, _), partition in zip(by_key, chosen.tolist(), strict=True):
                found[slot] = partition
        if by_value:
            values = [rows.values[which[slot]] for slot in by_value]
            chosen = partitions_by_value(values, target.count)
            for slot, partition in zip(by_value, chosen.tolist(), strict=True):
                found[slot] = partition
        return found

    # ------------------------------------------------------------------ gathering

    def _add_to(self, topic: str, rows: Rows, which: list[int]) -> None:
        """Put rows on the piles of their partitions, in their order."""
        now_ms = clock.wall_ms()
        lots: dict[int, list[int]] = {}
        for at, partition in zip(which, self._route(topic, rows, which), strict=True):
            lot = lots.get(partition)
            if lot is None:
                lots[partition] = [at]
            else:
                lot.append(at)
        is_plain = rows.dedup_keys is None and rows.dues_ms is None
        for partition, lot in sorted(lots.items()):
            if is_plain:
                self._add_plain(topic, partition, rows, lot, now_ms)
            else:
                self._add_one_by_one(topic, partition, rows, lot, now_ms)

    def _add_plain(
        self, topic: str, partition: int, rows: Rows, lot: list[int], now_ms: int
    ) -> None:
        """Add rows without due times and dedup keys: as many at once as a chunk holds."""
        messages = _messages(rows, lot, now_ms)
        sizes = _sizes(messages)
        pile = self._pile(topic, partition, is_due=False)
        chunk_bytes = self._target(topic).chunk_bytes
        begin, count = 0, len(lot)
        while begin < count:
            if pile.messages:
                room = chunk_bytes - pile.size
                fitting = _fitting(sizes, begin, room, MESSAGES_MAX - len(pile.messages))
                if not fitting:
                    self._stage(topic, partition, pile)
                    continue
            else:
                fitting = _fitting(sizes, begin, chunk_bytes, MESSAGES_MAX) or 1
            end = begin + fitting
            if rows.priorities is not None:
                pile.rank([rows.priorities[at] for at in lot[begin:end]])
            pile.messages += messages[begin:end]
            pile.size += sum(sizes[begin:end])
            begin = end

    def _add_one_by_one(
        self, topic: str, partition: int, rows: Rows, lot: list[int], now_ms: int
    ) -> None:
        messages = _messages(rows, lot, now_ms)
        for at, message, size in zip(lot, messages, _sizes(messages), strict=True):
            due_ms = rows.dues_ms[at] if rows.dues_ms is not None else None
            pile = self._pile(topic, partition, is_due=due_ms is not None)
            dedup = rows.dedup_keys[at] if rows.dedup_keys is not None else None
            if self._is_full(topic, pile, size, dedup, is_due=due_ms is not None):
                self._stage(topic, partition, pile)
            if dedup is not None:
                pile.dedup.append((len(pile.messages), dedup))
                pile.seen.add(dedup)
            if rows.priorities is not None:
                pile.rank([rows.priorities[at]])
            pile.messages.append(message)
            if due_ms is not None:
                pile.dues_ms.append(due_ms)
            pile.size += size

    def _pile(self, topic: str, partition: int, *, is_due: bool) -> Pile:
        name = (topic, partition, is_due)
        pile = self._piles.get(name)
        if pile is None:
            pile = self._piles[name] = Pile()
        return pile

    def _is_full(
        self, topic: str, pile: Pile, size: int, dedup: bytes | None, *, is_due: bool
    ) -> bool:
        if not pile.messages:
            return False
        most = WAITING_NUMBERS_MAX if is_due else MESSAGES_MAX
        chunk_bytes = self._target(topic).chunk_bytes
        return (
            pile.size + size > (min(chunk_bytes, DUE_BYTES_MAX) if is_due else chunk_bytes)
            or len(pile.messages) >= most
            or (dedup is not None and dedup in pile.seen)  # a chunk has a key once
        )

    def _stage(self, topic: str, partition: int, pile: Pile) -> None:
        if not pile.messages:
            return
        where = place(topic, partition)
        compression = "none" if pile.dues_ms else self._options.compression
        try:
            sealed = seal_batch(pile.messages, compression=compression)
        except RaftlineError as error:
            raise bad(
                f"a row for {where}: {error.message}", error.hint or "make it smaller"
            ) from error
        if len(sealed) > BATCH_BYTES_MAX:
            raise bad(
                f"a message for {where} takes {len(sealed)} bytes of at most {BATCH_BYTES_MAX}",
                'set .option("compression", "zstd"), or keep large values elsewhere',
            )
        number = self._chunks.get((topic, partition), 0)
        self._fenced.stage(
            topic,
            partition,
            self.query,
            self.batch,
            self.task,
            self.attempt,
            number,
            sealed,
            priorities=runs_of(pile.priorities),
            dedup=pile.dedup,
            dues_ms=pile.dues_ms,
        )
        self._chunks[topic, partition] = number + 1
        pile.clear()


def runs_of(priorities: list[int]) -> list[tuple[int, int, int]]:
    """Return (start, end, priority) of neighbours with one priority that is not 0."""
    found: list[tuple[int, int, int]] = []
    for at, priority in enumerate(priorities):
        if not priority:
            continue
        if found and found[-1][1] == at and found[-1][2] == priority:
            found[-1] = (found[-1][0], at + 1, priority)
        else:
            found.append((at, at + 1, priority))
    return found


_NONE: list[Header] = []


def _messages(rows: Rows, lot: list[int], now_ms: int) -> list[NewMessage]:
    """Return rows as messages."""
    values = [rows.values[at] for at in lot]
    keys = repeat(None) if rows.keys is None else [rows.keys[at] for at in lot]
    times = repeat(now_ms) if rows.times_ms is None else [_time(rows, at, now_ms) for at in lot]
    if rows.headers is None and rows.priorities is None:
        return list(zip(keys, values, repeat(_NONE), times, strict=False))
    return list(zip(keys, values, (_headers(rows, at) for at in lot), times, strict=False))


def _time(rows: Rows, at: int, now_ms: int) -> int:
    assert rows.times_ms is not None
    time_ms = rows.times_ms[at]
    return now_ms if time_ms is None else time_ms


def _headers(rows: Rows, at: int) -> list[Header]:
    headers = rows.headers[at] if rows.headers is not None else _NONE
    if rows.priorities is not None and rows.priorities[at]:
        return [*headers, (PRIORITY_HEADER, b"%d" % rows.priorities[at])]
    return headers


def _sizes(messages: list[NewMessage]) -> list[int]:
    """Return about how many bytes each takes in a batch."""
    return [
        MESSAGE_BYTES
        + len(key or b"")
        + len(value or b"")
        + (sum(len(name) + len(content or b"") + 4 for name, content in headers) if headers else 0)
        for key, value, headers, _ in messages
    ]


def _fitting(sizes: list[int], begin: int, room: int, most: int) -> int:
    """Return how many messages from here on fit."""
    count = 0
    for size in islice(sizes, begin, begin + most):
        room -= size
        if room < 0:
            break
        count += 1
    return count
