"""Waiting messages: schedule, list, show, cancel, move, from any node to a partition's leader.

``schedule`` is a call of its own (schedule_pieces.py), many of them share an entry. The rest are
questions (questions.py): ``waiting.list``, ``waiting.show``, ``waiting.cancel``, ``waiting.move``,
``waiting.stats``. Each may be repeated: a message that was cancelled is cancelled, and one that was
moved is where it was moved to.

Questions and answers
    waiting.list    {after: [due_ms, number] | nil, limit}
                    -> {rows: [[due_ms, number, priority], ...], count, at_ms}
    waiting.show    {number, read: bool} -> {state, due_ms, priority, offset, batch, at_ms}
                    state: waiting | released | cancelled; batch: the sealed message if it waits
    waiting.cancel  {number} -> {number, cancelled: true}; not_waiting or unknown_message
    waiting.move    {number, due_ms} -> {number, due_ms}; negative: so long from now
    waiting.stats   {} -> {waiting, released, cancelled, scheduled, earliest_due_ms, at_ms, bytes}
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from raftline.machines.partition.waiting import Cancelled, Moved, over_limit
from raftline.machines.partition.waiting_commands import encode_cancel, encode_move
from raftline.model.batch import check_batch
from raftline.model.calls import NewWaiting, Scheduled
from raftline.model.errors import (
    InvalidArgument,
    OverLimit,
    RaftlineError,
    StorageFault,
    TooLarge,
    UnknownMessage,
)
from raftline.model.limits import (
    BATCH_BYTES_MAX,
    ENTRY_BATCHES_MAX,
    OFFSET_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    READ_BYTES_MAX,
)
from raftline.model.settings import SETTINGS
from raftline.node.command_proposal import Applied, CommandProposal
from raftline.node.partition import WAITING, PartitionHost
from raftline.node.questions import Arguments, Done
from raftline.node.releases import Releaser
from raftline.node.remote import VERB_SCHEDULE, Reply
from raftline.node.replica import Replica
from raftline.node.schedule_pieces import PIECE_BYTES, PIECE_ITEMS, PiecewiseSchedule
from raftline.node.schedules import ScheduleCall, ScheduleDone
from raftline.storage.files import Buffer
from raftline.storage.log_words import DamagedRange

if TYPE_CHECKING:
    from raftline.node.node import Node

ID_ROOM_BYTES = 1024  # a header with its id is added when a message is released
TIME_MS_MAX = 1 << 50
LIST_MAX = 10_000


class ScheduleAll(msgspec.Struct, frozen=True, array_like=True):
    """Messages to wait, on their way to the leader."""

    shard: int
    items: list[NewWaiting]


class WaitingMessages:
    """What a node does about waiting messages."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        add = node.questions.add
        add("waiting.list", self._list)
        add("waiting.show", self._show)
        add("waiting.cancel", self._cancel)
        add("waiting.move", self._move)
        add("waiting.stats", self._stats)

    def serve(self) -> None:
        """Answer other nodes."""
        self._node.remote.handle(VERB_SCHEDULE, self._on_schedule)

    def role_changed(self, replica: Replica) -> None:
        """A leader releases what is due; nobody else does."""
        host = replica.host
        if not isinstance(host, PartitionHost) or host.replica is not replica:
            return
        if not replica.is_leader:
            if host.releaser is not None:
                host.releaser.close()
                host.releaser = None
        elif host.releaser is None:
            host.releaser = Releaser(self._node, host, replica)
            host.releaser.look()

    # ------------------------------------------------------------------ scheduling

    def schedule(
        self,
        topic: str,
        partition: int,
        items: Sequence[NewWaiting],
        timeout_ms: int,
        done: ScheduleDone,
    ) -> None:
        """Let messages wait in a partition; each has its own outcome. The topic may be made."""
        shard = self._node.locate(topic, partition)
        if isinstance(shard, RaftlineError):

            def found(left_ms: int) -> None:
                self.schedule(topic, partition, items, left_ms, done)

            self._node.first_use.find(topic, partition, timeout_ms, done, found)
            return
        if not items:
            done(InvalidArgument("there are no messages to wait"))
            return

        def send(piece: list[NewWaiting], left_ms: int, answer: ScheduleDone) -> None:
            self._send(shard, piece, left_ms, answer)

        name = f"{topic}/{partition}"
        PiecewiseSchedule(self._node.clock, name, partition, items, timeout_ms, send, done).start()

    def _send(
        self, shard: int, items: list[NewWaiting], timeout_ms: int, done: ScheduleDone
    ) -> None:
        def local(replica: Replica, left_ms: int, answer: ScheduleDone) -> None:
            self._schedule_here(replica, items, left_ms, answer)

        self._node.router.send(
            shard,
            VERB_SCHEDULE,
            [_pack(ScheduleAll(shard, items))],
            timeout_ms,
            lambda answer: done(_decode_scheduled(answer) if isinstance(answer, bytes) else answer),
            local,
            repeatable=all(item.dedup for item in items),
        )

    def _on_schedule(self, body: memoryview, timeout_ms: int, reply: Reply) -> None:
        asked = _decode_schedule(body)
        replica = self._node.led(asked.shard)
        if isinstance(replica, RaftlineError):
            reply(replica)
            return
        self._schedule_here(
            replica,
            asked.items,
            timeout_ms,
            lambda answer: reply(answer if isinstance(answer, RaftlineError) else _pack(answer)),
        )

    def _schedule_here(
        self, replica: Replica, items: list[NewWaiting], timeout_ms: int, done: ScheduleDone
    ) -> None:
        node, host = self._node, replica.host
        if not isinstance(host, PartitionHost):
            done(InvalidArgument(f"{replica.name} holds no messages"))
            return
        refusal = node.upkeep.admission(replica) or self._too_much(items)
        try:
            timestamps = [_check_item(item, replica.name) for item in items]
        except RaftlineError as error:
            refusal = refusal or error
            timestamps = []
        if refusal is not None:
            done(refusal)
            return
        limit_ms = self._setting(replica, "delay_ms_max")
        now_ms = replica.time.stamp()
        late = [_delay_ms(item, now_ms) for item in items]
        if min(late) > limit_ms:  # a courtesy: apply decides
            done(over_limit(min(late), limit_ms))
            return
        deadline = node.clock.mono_ms() + timeout_ms
        call = ScheduleCall(items, timestamps, deadline, timeout_ms, done)
        host.schedule(call, limit_ms, self._setting(replica, "dedup_ms"))

    def _too_much(self, items: Sequence[NewWaiting]) -> RaftlineError | None:
        limit = self._node.settings.limits.node_uncommitted_bytes_max
        waiting = self._node.shards.pressure.bytes
        if waiting + sum([len(item.batch) for item in items]) > limit:
            return OverLimit("uncommitted bytes on this node", waiting, limit)
        if len(items) > ENTRY_BATCHES_MAX:
            return TooLarge("messages to wait in one call", len(items), ENTRY_BATCHES_MAX)
        return None

    def _setting(self, replica: Replica, name: str) -> int:
        machine = self._node.catalog_machine
        row = machine.shards.get(replica.shard)
        topic = machine.topics.get(row.topic) if row is not None else None
        settings = topic.settings if topic is not None else {}
        return int(settings.get(name, SETTINGS[name].default))

    # ------------------------------------------------------------------ questions

    def _list(self, host: PartitionHost, asked: Arguments, _ms: int, done: Done) -> None:
        after = asked.get("after") or (-1, -1)
        limit = max(1, min(_number(asked, "limit", 100), LIST_MAX))
        waiting = host.machine.waiting
        rows = waiting.page((int(after[0]), int(after[1])), limit)
        done({"rows": rows, "count": waiting.count, "at_ms": _now_ms(host)})

    def _stats(self, host: PartitionHost, _asked: Arguments, _ms: int, done: Done) -> None:
        waiting = host.machine.waiting
        log = host.log_named(WAITING)
        earliest = waiting.earliest_due_ms()
        done(
            {
                "waiting": waiting.count,
                "released": waiting.released_count,
                "cancelled": waiting.cancelled_count,
                "scheduled": waiting.next_number - 1,
                "earliest_due_ms": -1 if earliest is None else earliest,
                "at_ms": _now_ms(host),
                "bytes": 0 if log is None else log.bytes,
            }
        )

    def _show(self, host: PartitionHost, asked: Arguments, _ms: int, done: Done) -> None:
        number = _number(asked, "number")
        found = host.machine.waiting.find(number)
        if found.state == "unknown":
            raise UnknownMessage(f"w{number}", "it was never given")
        answer = {**msgspec.structs.asdict(found), "at_ms": _now_ms(host)}
        log = host.log_named(WAITING)
        if found.state != "waiting" or not asked.get("read", True) or log is None:
            done(answer)
            return

        def read(batches: list[Buffer] | None, error: BaseException | None) -> None:
            if batches is not None:
                done({**answer, "batch": bytes(batches[0])})
            elif isinstance(error, DamagedRange):
                done(self._node.segments.damaged(host, error, WAITING))
            else:
                done(StorageFault(host.name, f"reading a waiting message: {error}"))

        self._node.segments.run(log.pick_job([number], 1), read)

    def _cancel(self, host: PartitionHost, asked: Arguments, ms: int, done: Done) -> None:
        number = _number(asked, "number")

        def applied(answer: Applied | RaftlineError) -> None:
            if isinstance(answer, RaftlineError):
                done(answer)
                return
            event = answer.events[0]
            assert isinstance(event, Cancelled)
            if event.cancelled:
                done({"number": number, "cancelled": True})
            else:
                done(host.machine.waiting.refusal(number))

        self._propose(host, encode_cancel(_now_ms(host), [number]), ms, applied)

    def _move(self, host: PartitionHost, asked: Arguments, ms: int, done: Done) -> None:
        number, due_ms = _number(asked, "number"), _number(asked, "due_ms")
        replica = host.replica
        assert replica is not None
        now_ms = replica.time.stamp()
        due_ms = min(due_ms if due_ms >= 0 else now_ms - due_ms, TIME_MS_MAX)

        def applied(answer: Applied | RaftlineError) -> None:
            if isinstance(answer, RaftlineError):
                done(answer)
                return
            event = answer.events[0]
            assert isinstance(event, Moved)
            done({"number": event.number, "due_ms": event.due_ms})

        limit_ms = self._setting(replica, "delay_ms_max")
        self._propose(host, encode_move(now_ms, number, due_ms, limit_ms), ms, applied)

    def _propose(
        self,
        host: PartitionHost,
        data: bytes,
        timeout_ms: int,
        done: Callable[[Applied | RaftlineError], None],
    ) -> None:
        assert host.replica is not None
        deadline = self._node.clock.mono_ms() + timeout_ms
        host.replica.propose(data, CommandProposal(host.name, deadline, timeout_ms, done))


def _check_item(item: NewWaiting, where: str) -> int:
    """Return the timestamp of a message that may wait. Raises RaftlineError."""
    info = check_batch(item.batch, where, bytes_max=BATCH_BYTES_MAX - ID_ROOM_BYTES)
    if info.count != 1 or info.attributes:
        text = f"a waiting message is a plain batch of one, not of {info.count}"
        raise InvalidArgument(text, "seal each message alone and without compression")
    if not PRIORITY_MIN <= item.priority <= PRIORITY_MAX:
        raise InvalidArgument(f"priority {item.priority} is out of bounds")
    if item.due_ms > TIME_MS_MAX or item.due_ms < -TIME_MS_MAX:
        raise InvalidArgument(f"due time {item.due_ms} is out of bounds", "Unix milliseconds")
    return info.max_timestamp


def _delay_ms(item: NewWaiting, now_ms: int) -> int:
    return item.due_ms - now_ms if item.due_ms >= 0 else -item.due_ms


def _number(asked: Arguments, name: str, default: int | None = None) -> int:
    value = asked.get(name, default)
    if not isinstance(value, int) or abs(value) > OFFSET_MAX:  # a command has 64 bits for it
        raise InvalidArgument(f"{name} is missing, no number, or out of bounds")
    return value


def _now_ms(host: PartitionHost) -> int:
    assert host.replica is not None
    return host.replica.time.stamp()


_pack = msgspec.msgpack.encode
_decode_schedule = msgspec.msgpack.Decoder(ScheduleAll).decode
_decode_scheduled = msgspec.msgpack.Decoder(Scheduled).decode

assert PIECE_ITEMS <= ENTRY_BATCHES_MAX
assert PIECE_BYTES < READ_BYTES_MAX
