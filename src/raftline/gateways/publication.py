"""One publish request from its checked messages to one result each, for every gateway.

Every message has its own result, so one that is refused does not hold up the others. Messages are
grouped by partition and sealed into batches; a batch keeps their order, its side car says which
have a priority or a dedup key.

A batch in which a dedup key is remembered is refused whole: its duplicates are answered with the
id of the first message, the rest is sealed again and sent. Equal dedup keys inside a request are
one message.

Messages with a delay are sealed one by one and wait; each is refused or stored by itself.
"""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from raftline.config.moments import show_moment
from raftline.gateways.error_table import error_body
from raftline.gateways.fan import Gather
from raftline.gateways.message_ids import message_id, waiting_id
from raftline.gateways.new_messages import (
    PRIORITY_HEADER,
    PRODUCER_HEADER,
    check_headers,
    size_of,
)
from raftline.gateways.wanted import NOTHING, NOW, Settings, Wanted
from raftline.machines.partition.side_car import SideCar
from raftline.model.calls import Appended, Scheduled
from raftline.model.errors import DuplicateKey, InvalidArgument, RaftlineError, TimedOut
from raftline.model.limits import BATCH_BYTES_MAX
from raftline.model.message import Header, NewMessage

GROUP_BYTES_MAX = BATCH_BYTES_MAX // 2
WAITING_BYTES = 512 << 10  # in one call that lets messages wait
WAITING_COUNT = 1000

Answer = Appended | Scheduled | RaftlineError
Finish = Callable[["list[Result]", RaftlineError | None], None]
"""who hears what became of each message, and of the first refusal"""


class Result(msgspec.Struct):
    """What became of one message."""

    id: str | None
    partition: int | None
    offset: int | None
    error: dict[str, Any] | None = None
    duplicate: bool | UnsetType = UNSET  # of an earlier message with the dedup key: its id is here
    priority: int | UnsetType = UNSET
    delayed: bool | UnsetType = UNSET
    deliverAt: str | UnsetType = UNSET  # noqa: N815


class Draft:
    """A sound message on its way into a batch."""

    __slots__ = ("message", "partition", "slot", "wanted")

    def __init__(
        self, slot: int, message: NewMessage, partition: int | None, wanted: Wanted
    ) -> None:
        self.slot = slot
        self.message = message
        self.partition = partition
        self.wanted = wanted


class Group:
    """Messages that go into one batch, or that wait and go in one call."""

    __slots__ = ("_bytes", "drafts", "is_waiting", "partition")

    def __init__(self, partition: int, *, is_waiting: bool) -> None:
        self.partition = partition
        self.is_waiting = is_waiting
        self.drafts: list[Draft] = []
        self._bytes = 0

    def takes(self, draft: Draft) -> bool:
        """Take a message in if there is room."""
        size = size_of(draft.message)
        if self.is_waiting:
            is_full = self._bytes + size > WAITING_BYTES or len(self.drafts) >= WAITING_COUNT
        else:
            is_full = self._bytes + size > GROUP_BYTES_MAX
        if self.drafts and is_full:
            return False
        self.drafts.append(draft)
        self._bytes += size
        return True

    def side(self) -> SideCar | None:
        """Return the side car of the batch; None if no message wants anything."""
        runs: list[tuple[int, int, int]] = []
        keys: list[tuple[int, bytes]] = []
        for delta, draft in enumerate(self.drafts):
            wanted = draft.wanted
            if wanted is NOTHING:
                continue
            priority = wanted.priority
            if priority and runs and runs[-1][1:] == (delta, priority):
                runs[-1] = (runs[-1][0], delta + 1, priority)
            elif priority:
                runs.append((delta, delta + 1, priority))
            if wanted.key_hash is not None:
                keys.append((delta, wanted.key_hash))
        return SideCar(tuple(runs), tuple(keys)) if runs or keys else None


class Answering(Protocol):
    """Who is answered: the request as a gateway knows it."""

    def fail(self, error: RaftlineError) -> None:
        """Refuse the whole request."""
        ...

    def guard(self, step: Callable[..., None], *arguments: Any) -> None:
        """Run a step of the request; what it raises is the answer."""
        ...


class Publisher(Protocol):
    """What a publication needs of the routes (publisher.py)."""

    def wall_ms(self) -> int:
        """Return the time for messages that come without one."""
        ...

    def mono_ms(self) -> float:
        """Return the time that timeouts go by."""
        ...

    def settings_of(self, topic: str) -> Settings:
        """Return a way to the topic's settings."""
        ...

    def choose(
        self,
        topic: str,
        keys: list[bytes | None],
        timeout_ms: int,
        done: Callable[[list[int] | RaftlineError], None],
    ) -> None:
        """Choose a partition for each key."""
        ...

    def append(
        self,
        topic: str,
        group: Group,
        timeout_ms: int,
        done: Callable[[Appended | RaftlineError], None],
    ) -> None:
        """Seal and store the messages of ``group``."""
        ...

    def schedule(
        self,
        topic: str,
        group: Group,
        timeout_ms: int,
        done: Callable[[Scheduled | RaftlineError], None],
    ) -> None:
        """Seal the messages of ``group`` one by one and let them wait."""
        ...


class Publication:
    """The way of one request."""

    __slots__ = (
        "_answering",
        "_copies",
        "_deadline",
        "_drafts",
        "_finish",
        "_first_error",
        "_publisher",
        "_results",
        "_timeout_ms",
        "_topic",
    )

    def __init__(
        self,
        publisher: Publisher,
        answering: Answering,
        topic: str,
        timeout_ms: int,
        finish: Finish,
    ) -> None:
        self._publisher = publisher
        self._answering = answering
        self._finish = finish
        self._topic = topic
        self._timeout_ms = timeout_ms
        self._deadline = publisher.mono_ms() + timeout_ms
        self._first_error: RaftlineError | None = None
        self._results: list[Result] = []
        self._drafts: list[Draft] = []
        self._copies: list[tuple[int, int]] = []  # slot, slot of the same dedup key before it

    def send(self, count: int, draft_of: Callable[[int], Draft], producer: str) -> None:
        """Check every message (``draft_of`` its slot, or a refusal), then choose partitions."""
        self._results = [Result(None, None, None) for _ in range(count)]
        extra: list[Header] = [(PRODUCER_HEADER, producer.encode())] if producer else []
        for slot in range(count):
            try:
                draft = draft_of(slot)
                draft.message = _with_headers(draft.message, extra, draft.wanted)
            except RaftlineError as error:
                self._fail(slot, None, error)
                continue
            self._drafts.append(draft)
        free = [draft for draft in self._drafts if draft.partition is None]
        if free:
            keys = [_choosing_key(draft) for draft in free]
            self._publisher.choose(
                self._topic, keys, self._timeout_ms, lambda chosen: self._chosen(free, chosen)
            )
        else:
            self._send_all()

    def _chosen(self, free: list[Draft], chosen: list[int] | RaftlineError) -> None:
        if isinstance(chosen, RaftlineError):
            self._answering.fail(chosen)
            return
        for draft, partition in zip(free, chosen, strict=True):
            draft.partition = partition
        self._answering.guard(self._send_all)

    def _send_all(self) -> None:
        """Send each dedup key once."""
        firsts: dict[tuple[int | None, bytes], int] = {}
        once: list[Draft] = []
        for draft in self._drafts:
            key_hash = draft.wanted.key_hash
            if key_hash is not None:
                first = firsts.setdefault((draft.partition, key_hash), draft.slot)
                if first != draft.slot:
                    self._copies.append((draft.slot, first))
                    continue
            once.append(draft)
        self._send(once)

    def _send(self, drafts: list[Draft]) -> None:
        left_ms = min(self._timeout_ms, int(self._deadline - self._publisher.mono_ms()) + 1)
        if drafts and left_ms <= 0:
            late = TimedOut(f"publishing to {self._topic}", self._timeout_ms)
            for draft in drafts:
                self._fail(draft.slot, draft.partition, late)
            drafts = []
        if not drafts:
            self._reply()
            return
        groups = _groups(drafts)
        gather = Gather(len(groups), lambda answers: self._answered(groups, answers))
        for at, group in enumerate(groups):
            send = self._publisher.schedule if group.is_waiting else self._publisher.append
            send(self._topic, group, left_ms, gather.taker(at))

    def _answered(self, groups: list[Group], answers: list[Answer]) -> None:
        self._answering.guard(self._take, groups, answers)

    def _take(self, groups: list[Group], answers: list[Answer]) -> None:
        """Take the node's answers; what was refused for its neighbours goes again."""
        again: list[Draft] = []
        for group, answer in zip(groups, answers, strict=True):
            if isinstance(answer, DuplicateKey):
                again += self._take_duplicates(group, answer)
            elif isinstance(answer, RaftlineError):
                for draft in group.drafts:
                    self._fail(draft.slot, group.partition, answer)
            elif isinstance(answer, Scheduled):
                self._take_waiting(group, answer)
            else:
                for delta, draft in enumerate(group.drafts):
                    self._stored(draft, answer.partition, answer.base_offset + delta)
        self._send(again)

    def _take_waiting(self, group: Group, answer: Scheduled) -> None:
        """Note the numbers of waiting messages."""
        for at, (draft, number) in enumerate(zip(group.drafts, answer.numbers, strict=True)):
            wire = answer.refusals.get(at)
            error = None if wire is None else RaftlineError.from_wire(wire)
            if isinstance(error, DuplicateKey):
                self._duplicate(draft, answer.partition, error.firsts[0][1])
            elif error is not None:
                self._fail(draft.slot, answer.partition, error)
            else:
                self._stored(draft, answer.partition, -number)
                due_ms = draft.wanted.due_ms
                result = self._results[draft.slot]
                result.delayed = True
                result.deliverAt = show_moment(due_ms if due_ms > 0 else answer.at_ms - due_ms)

    def _take_duplicates(self, group: Group, refusal: DuplicateKey) -> list[Draft]:
        """Give duplicates the ids of their first messages; return the others."""
        firsts = dict(refusal.firsts)
        again: list[Draft] = []
        for delta, draft in enumerate(group.drafts):
            first = firsts.get(delta)
            if first is None:
                again.append(draft)
            else:
                self._duplicate(draft, group.partition, first)
        return again

    def _duplicate(self, draft: Draft, partition: int, first: int) -> None:
        self._place(draft, partition, first)
        self._results[draft.slot].duplicate = True

    def _stored(self, draft: Draft, partition: int, first: int) -> None:
        self._place(draft, partition, first)
        if draft.wanted.priority:
            self._results[draft.slot].priority = draft.wanted.priority

    def _place(self, draft: Draft, partition: int, first: int) -> None:
        """Note where a message is: an offset, or -n for the waiting message number n."""
        result = self._results[draft.slot]
        result.partition = partition
        if first >= 0:
            result.id, result.offset = message_id(self._topic, partition, first), first
        else:
            result.id = waiting_id(self._topic, partition, -first)

    def _fail(self, slot: int, partition: int | None, error: RaftlineError) -> None:
        self._results[slot] = Result(None, partition, None, error_body(error))
        self._first_error = self._first_error or error

    def _reply(self) -> None:
        for slot, first in self._copies:
            result = msgspec.structs.replace(self._results[first])
            if result.error is None:
                result.duplicate = True
            self._results[slot] = result
        self._finish(self._results, self._first_error)


def check_partition(partition: int) -> int:
    """Return the partition that a message names. Raises InvalidArgument."""
    if partition < 0:
        raise InvalidArgument(f"partition {partition} is below 0", "leave it out to have it chosen")
    return partition


def _choosing_key(draft: Draft) -> bytes | None:
    """Return what chooses the partition: the key, else the dedup key, so that repeats meet."""
    key = draft.message[0]
    return draft.wanted.dedup_key if key is None else key


def _groups(drafts: list[Draft]) -> list[Group]:
    """Put messages together by partition, in their order; those that wait by themselves."""
    groups: list[Group] = []
    latest: dict[tuple[int, bool], Group] = {}
    for draft in drafts:
        assert draft.partition is not None
        place = (draft.partition, draft.wanted.due_ms != NOW)
        group = latest.get(place)
        if group is None or not group.takes(draft):
            group = latest[place] = Group(place[0], is_waiting=place[1])
            group.takes(draft)
            groups.append(group)
    return groups


def _with_headers(message: NewMessage, extra: list[Header], wanted: Wanted) -> NewMessage:
    """Add what readers of the log should know."""
    if wanted.priority:
        extra = [*extra, (PRIORITY_HEADER, b"%d" % wanted.priority)]
    if not extra:
        return message
    key, value, headers, timestamp_ms = message
    added = [name for name, _ in extra]
    headers = [*(header for header in headers if header[0] not in added), *extra]
    check_headers(headers)
    return key, value, headers, timestamp_ms
