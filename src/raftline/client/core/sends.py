"""Sends: from messages to batches on their way to the right partitions.

State
    One lane per partition, messages that wait until their topic is known, and messages with wishes
    that only the JSON form can carry (delay, dedup key).

Rules
    S1  A key chooses the partition as the topic says; without one messages fill a batch of one
        partition after the other.
    S2  Messages of one key and priority are stored in the order they were sent, each once; those
        with wishes and those without have two orders, not one.
    S3  ``done_bytes`` grows by the weight of every message whose fate is known: the shells hold
        senders back by it.
    S4  Messages with a delay or a dedup key are sent again after a lost answer, too: a dedup key
        makes that safe, a mere delay may then be stored twice.
    S5  A flush waits for what was taken before it, not for what others send meanwhile.
    S6  Requests of messages with wishes leave in their order. One goes beside others only if it
        shares no key with them (S2), and messages share one as they share a batch (lanes, L7).
"""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from raftline.client.core.batches import Batch, Handle, Items, Load, Sent
from raftline.client.core.caller import Caller
from raftline.client.core.lanes import PARTS_MAX, SPREAD_MS, Lane
from raftline.client.core.ports import Ask, Reply, Timer
from raftline.client.core.topology import TopicMap
from raftline.client.core.wire import read_body
from raftline.model.errors import (
    InvalidArgument,
    RaftlineError,
    TimedOut,
    Unavailable,
    UnknownPartition,
)
from raftline.model.priorities import parse_priority

if TYPE_CHECKING:
    from raftline.model.message import Header

ITEMS_MAX = 1_000  # messages in one JSON request
ITEMS_BYTES_MAX = 1 << 20
ITEMS_FLYING_MAX = 4
NOW = -1
PRIORITY_HEADER = "raftline-priority"


Row = tuple[
    Handle,
    str,  # topic
    bytes | None,  # key
    bytes | None,  # value
    "tuple[Header, ...] | list[Header]",
    int | str,  # priority
    int,  # partition, -1: chosen here
    int,  # weight in bytes
    float,  # deadline
    int,  # timestamp in ms, or NOW: when it is taken
    dict[str, Any] | None,  # fields of the JSON form, where that is needed
]
"""A message as it comes in from a shell. A plain tuple: there are many of them."""

FindTopic = Callable[[str, float, Callable[[TopicMap | RaftlineError], None]], None]


class _Result(msgspec.Struct):
    id: str | None = None
    partition: int | None = None
    offset: int | None = None
    error: dict[str, str] | None = None
    duplicate: bool = False
    deliverAt: str = ""  # noqa: N815


class _Results(msgspec.Struct):
    results: list[_Result]


class _Producer(msgspec.Struct):
    producer_id: int


_decode_producer = msgspec.json.Decoder(_Producer).decode
_decode_results = msgspec.json.Decoder(_Results).decode


class Sends:
    """All messages on their way."""

    __slots__ = (
        "_asks_producer",
        "_counted",
        "_find_topic",
        "_items",
        "_items_due_ms",
        "_items_flying",
        "_items_sent",
        "_items_timer",
        "_lanes",
        "_placed",
        "_turns",
        "_under_way",
        "_unplaced",
        "_wall_ms",
        "_watched",
        "batch_bytes",
        "batch_messages",
        "caller",
        "done_bytes",
        "done_count",
        "flying_bytes",
        "linger_ms",
        "on_done",
        "producer_id",
    )

    def __init__(
        self,
        caller: Caller,
        find_topic: FindTopic,
        *,
        linger_ms: float,
        batch_bytes: int,
        batch_messages: int,
    ) -> None:
        self.caller = caller
        self.linger_ms = linger_ms
        self.batch_bytes = batch_bytes
        self.batch_messages = batch_messages
        self.producer_id = -1
        self.done_bytes = 0
        self.done_count = 0
        self.flying_bytes = 0
        self.on_done: Callable[[], None] = lambda: None
        self._find_topic = find_topic
        self._asks_producer = False
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._counted: dict[str, int] = {}  # partitions of a topic that was looked up anew
        self._unplaced: dict[str, list[Row]] = {}  # by topic that is not known yet
        self._placed: dict[str, list[Callable[[], None]]] = {}  # who hears when it is known
        self._watched: list[tuple[Handle, Callable[[], None]]] = []  # not in a batch yet
        self._turns: dict[str, int] = {}
        self._items: dict[str, list[Items]] = {}  # that wait, by topic; the last is open
        self._items_flying: dict[str, int] = {}
        self._items_sent: dict[int, Items] = {}  # those flying, by id
        self._items_timer: Timer | None = None
        self._items_due_ms = 0.0  # when it wakes us
        self._under_way = 0  # messages
        self._wall_ms = 0

    # ------------------------------------------------------------------ in

    def take(self, rows: Iterable[Row]) -> None:
        """Take messages, in order."""
        touched: dict[int, Lane] = {}
        last: Lane | None = None
        now, self._wall_ms = self.caller.clock.mono_ms(), self.caller.clock.wall_ms()
        topics = self.caller.topology.topics
        for row in rows:
            self._under_way += 1
            if row[10] is not None:
                self._take_item(row)
                continue
            topic = topics.get(row[1])
            if topic is None or row[1] in self._unplaced:
                self._wait_for_topic(row)
                continue
            lane = self._place(row, topic, now)
            if lane is not last:
                last = lane
                if lane is not None:
                    touched[id(lane)] = lane
        if self.producer_id < 0 and touched:
            self.renew_producer()
        for lane in touched.values():
            lane.pump()
        if self._items:
            self._pump_items()

    def urge(self, handle: Handle) -> None:
        """Somebody waits for a message."""
        load = handle.load
        if isinstance(load, Batch):
            self._lanes[load.topic, load.partition].urge(load)
        elif isinstance(load, Items):
            load.is_urgent = True
            self._pump_items()

    def watch(self, handle: Handle, tell: Callable[[], None]) -> None:
        """Call ``tell`` once it is known what became of a message; it lingers no more."""
        load = handle.load
        if load is None:
            self._watched.append((handle, tell))
        elif load.is_done:
            tell()
        else:
            load.waiters.append(tell)
            self.urge(handle)

    def watch_again(self) -> None:
        """Look again for messages that were watched before they were taken."""
        watched, self._watched = self._watched, []
        for handle, tell in watched:
            self.watch(handle, tell)

    def flush(self, done: Callable[[], None]) -> None:
        """Let everything go; ``done`` when all that was taken so far has its outcome. S5."""
        self._flush(None, done)

    def _flush(self, topic: str | None, done: Callable[[], None]) -> None:
        """Let go what was taken so far of a topic, or of all of them."""
        lanes = [lane for (name, _), lane in self._lanes.items() if topic in (None, name)]
        unplaced = [name for name in self._unplaced if topic in (None, name)]
        loads: list[Load] = [batch for lane in lanes for batch in lane.batches()]
        if topic is None:
            loads += [items for waiting in self._items.values() for items in waiting]
            loads += self._items_sent.values()
        left = 1 + len(loads) + len(unplaced)

        def one_done() -> None:
            nonlocal left
            left -= 1
            if not left:
                done()

        for load in loads:
            load.waiters.append(one_done)
        for name in unplaced:
            self._placed.setdefault(name, []).append(partial(self._flush, name, one_done))
        for lane in lanes:
            lane.close_all()
        for waiting in self._items.values():
            for items in waiting:
                items.is_urgent = True
        self._pump_items()
        one_done()

    @property
    def under_way(self) -> int:
        """Return how many messages have no outcome yet."""
        return self._under_way

    def _place(self, row: Row, topic: TopicMap, now: float) -> Lane | None:
        """Put a message into the batch of its partition; one that cannot be sent fails here."""
        handle, name, key, value, headers, priority, partition, size, deadline, time_ms, _ = row
        if type(priority) is str:
            try:
                priority = parse_priority(priority, topic.lanes)
            except RaftlineError as error:
                self._fail(row, error)
                return None
        count = topic.count
        is_free = False
        if partition < 0:
            if key is not None:
                partition = topic.partition_of(key)
            else:
                partition = self._turns.get(name, 0) % count
                is_free = True
        elif partition >= count:
            if self._counted.get(name) == count:
                self._fail(row, UnknownPartition(name, partition, count))
            else:  # the topic may have grown since it was looked up
                self._counted[name] = count
                self.caller.topology.topics.pop(name, None)
                self._wait_for_topic(row)
            return None
        lane = self._lanes.get((name, partition))
        if lane is None:
            lane = self._lanes[name, partition] = Lane(self, name, partition)
        if priority:
            headers = [*headers, (PRIORITY_HEADER, b"%d" % priority)]
        assert isinstance(priority, int)
        if time_ms == NOW:
            time_ms = self._wall_ms
        batch, is_full = lane.add(priority, (key, value, headers, time_ms), size, deadline, now)
        handle.load, handle.at = batch, batch.count - 1
        if is_full and is_free:
            self._turns[name] = partition + 1  # S1
        return lane

    def _wait_for_topic(self, row: Row) -> None:
        name = row[1]
        rows = self._unplaced.get(name)
        if rows is not None:
            rows.append(row)
            return
        self._unplaced[name] = [row]
        timeout_ms = row[8] - self.caller.clock.mono_ms()

        def found(topic: TopicMap | RaftlineError) -> None:
            waiting = self._unplaced.pop(name)
            placed = self._placed.pop(name, [])
            if isinstance(topic, RaftlineError):
                self._unfound(waiting, row[8], topic)
            else:
                self._under_way -= len(waiting)  # they are counted when taken
                self.take(waiting)
            for tell in placed:
                tell()
            self.watch_again()

        self._find_topic(name, timeout_ms, found)

    def _unfound(self, rows: list[Row], until_ms: float, error: RaftlineError) -> None:
        """End messages whose topic was not found; who has more time than was looked for waits."""
        now = self.caller.clock.mono_ms()
        is_out_of_time = error.retry and now + 1 >= until_ms
        for row in rows:
            if is_out_of_time and row[8] > now + 1:
                self._wait_for_topic(row)
            else:
                self._fail(row, error)

    def _fail(self, row: Row, error: RaftlineError) -> None:
        """End a message that never came into a batch."""
        load = Load()
        load.count, load.size_bytes = 1, row[7]
        row[0].load = load
        load.finish(error)
        self.finished(load)

    # ------------------------------------------------------------------ what lanes need

    def finished(self, batch: Load) -> None:
        """Note that the fate of some messages is known. S3."""
        if isinstance(batch, Batch):
            topic = self.caller.topology.topics.get(batch.topic)
            if topic is not None and self._turns.get(batch.topic, 0) % topic.count == (
                batch.partition
            ):
                self._turns[batch.topic] = batch.partition + 1  # S1
        self.done_bytes += batch.size_bytes
        self.done_count += batch.count
        self._under_way -= batch.count
        self.on_done()

    def renew_producer(self) -> None:
        """Get a producer id; lanes wait meanwhile."""
        self.producer_id = -1
        if self._asks_producer:
            return
        self._asks_producer = True
        ask = Ask(method="POST", path="/v1/producers", is_repeatable=True)

        def answered(answer: Reply | RaftlineError) -> None:
            self._asks_producer = False
            found = read_body(_decode_producer, answer) if isinstance(answer, Reply) else answer
            if not isinstance(found, RaftlineError):
                self.producer_id = found.producer_id
            elif any(not lane.is_idle for lane in self._lanes.values()):
                self.caller.clock.call_later(self.caller.pause_ms(5), self.renew_producer)
            for lane in list(self._lanes.values()):
                lane.pump()

        self.caller.call(ask, 5_000, answered)

    # ------------------------------------------------------------------ JSON

    def _take_item(self, row: Row) -> None:
        """Put a message with wishes into a JSON request. S4."""
        handle, topic, size, deadline_ms, wishes = row[0], row[1], row[7], row[8], row[10]
        assert wishes is not None
        waiting = self._items.setdefault(topic, [])
        items = waiting[-1] if waiting else None
        if (
            items is None
            or items.count >= ITEMS_MAX
            or items.size_bytes + size > ITEMS_BYTES_MAX
            or (abs(deadline_ms - items.deadline_ms) > SPREAD_MS and len(waiting) < PARTS_MAX)
        ):
            items = Items(topic)
            waiting.append(items)
        handle.at = items.add(wishes, row[2], size, deadline_ms)
        handle.load = items

    def _pump_items(self) -> None:
        for topic, waiting in list(self._items.items()):
            while waiting and self._may_go(topic, waiting):
                self._send_items(waiting.pop(0))
            if not waiting and self._items.get(topic) is waiting:
                del self._items[topic]
        self._watch_items()

    def _watch_items(self) -> None:
        """Be woken when the time of a request that waits is up."""
        waiting = [items.deadline_ms for rows in self._items.values() for items in rows]
        due_ms = min(waiting, default=math.inf)
        if self._items_timer is not None:
            if due_ms >= self._items_due_ms:
                return  # it looks again then
            self._items_timer.cancel()
            self._items_timer = None
        if waiting:
            self._items_due_ms = due_ms
            clock = self.caller.clock
            delay = max(0.0, due_ms - clock.mono_ms())
            self._items_timer = clock.call_later(delay, self._end_late_items)

    def _end_late_items(self) -> None:
        """End requests that waited until their time was up: others of their keys took it."""
        self._items_timer = None
        now = self.caller.clock.mono_ms()
        for topic, waiting in list(self._items.items()):
            late = [items for items in waiting if items.deadline_ms <= now]
            waiting[:] = [items for items in waiting if items.deadline_ms > now]
            for items in late:
                items.finish(TimedOut(f"sending {items.count} messages to {topic}", 0))
                self.finished(items)
        self._pump_items()

    def _may_go(self, topic: str, waiting: list[Items]) -> bool:
        """Say whether the first request that waits may be sent. S6."""
        flying = self._items_flying.get(topic, 0)
        first = waiting[0]
        is_due = first.is_urgent or len(waiting) > 1
        return not flying or (
            is_due
            and flying < ITEMS_FLYING_MAX
            and all(
                first.keys.isdisjoint(before.keys)
                for before in self._items_sent.values()
                if before.topic == topic
            )
        )

    def _send_items(self, items: Items) -> None:
        topic = items.topic
        self._items_flying[topic] = self._items_flying.get(topic, 0) + 1
        self._items_sent[id(items)] = items
        items.results = [_NOWHERE] * items.count
        self._post_items(items, list(range(items.count)), 0)

    def _post_items(self, items: Items, slots: list[int], tries: int) -> None:
        """Send the messages of some slots; those that may succeed later are sent again."""
        clock, topic = self.caller.clock, items.topic
        ask = Ask(
            method="POST",
            path=f"/v1/topics/{quote(topic, safe='')}/messages",
            body=msgspec.json.encode({"messages": [items.rows[slot] for slot in slots]}),
            topic=topic,
            is_repeatable=True,
        )

        def answered(answer: Reply | RaftlineError) -> None:
            found = read_body(_decode_results, answer) if isinstance(answer, Reply) else answer
            if isinstance(found, RaftlineError) or len(found.results) != len(slots):
                problem = found if isinstance(found, RaftlineError) else _NOWHERE
                for slot in slots:
                    items.hear(slot, problem)
                self._end_items(items)
                return
            outcomes = [_sent(topic, result) for result in found.results]
            for slot, outcome in zip(slots, outcomes, strict=True):
                items.hear(slot, outcome)
            again = [s for s, outcome in zip(slots, outcomes, strict=True) if _is_passing(outcome)]
            pause = self.caller.pause_ms(tries + 1)
            if again and clock.mono_ms() + pause < items.deadline_ms:
                clock.call_later(pause, lambda: self._post_items(items, again, tries + 1))
            else:
                self._end_items(items)

        self.caller.call(ask, items.deadline_ms - clock.mono_ms(), answered)

    def _end_items(self, items: Items) -> None:
        self._items_flying[items.topic] -= 1
        del self._items_sent[id(items)]
        items.finish()
        self.finished(items)
        self._pump_items()


_NOWHERE = Unavailable("it was not sent")


def _is_passing(outcome: Sent | RaftlineError) -> bool:
    return isinstance(outcome, Unavailable | TimedOut)


def _sent(topic: str, result: _Result) -> Sent | RaftlineError:
    error = result.error
    if error is not None:
        code, message, hint = (error.get(name, "") for name in ("code", "message", "hint"))
        return RaftlineError.from_wire((code, message, hint, {}))
    if result.id is None or result.partition is None:
        return InvalidArgument("a node answered without a place")
    offset = -1 if result.offset is None else result.offset
    return Sent(result.id, topic, result.partition, offset, result.duplicate, result.deliverAt)
