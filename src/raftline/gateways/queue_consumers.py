"""Consumers that poll partitions they own, one message at a time, without leases.

The way of sreekar2307/queue, for the gateways that speak it. A consumer is a member of a stream
group; what its group has acked on a partition is that of the work group of the same name.

Rules
    C1  A poll gives the first message the group has not acked, again and again until it is.
    C2  Only the member that has the partition polls and acks it. Others are refused, and so is
        one that was expired until it connects again. Polls, acks and beats keep a session.
    C3  An ack is of one message. Out of order it neither skips nor rewinds.
    C4  A consumer holds nothing between two polls, so what is revoked is given up at once.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from raftline.gateways.fan import Call, Fan
from raftline.gateways.ports import Calls
from raftline.machines.delivery.commands import ACK, Settle
from raftline.model.calls import ReadReply, Settled
from raftline.model.errors import (
    FencedMember,
    InvalidArgument,
    LeaseLost,
    NotReady,
    RaftlineError,
    UnknownGroup,
    UnknownMember,
    UnknownMessage,
    UnknownPartition,
)
from raftline.model.groups import (
    Answer,
    Beat,
    GroupList,
    GroupView,
    JoinGroup,
    MemberView,
    ShowGroup,
)
from raftline.model.limits import MEMBER_ID_CHARS_MAX
from raftline.model.message import Message
from raftline.model.names import check_group_name
from raftline.model.records import open_batches

CLIENT = "queue.v1"  # how these members are told from others
KNOWN_MAX = 10_000  # consumers whose group this node remembers
ROUNDS_MAX = 4

Connected = Callable[[GroupView | RaftlineError], None]
Polled = Callable[[tuple[int, Message] | RaftlineError | None], None]
Acked = Callable[[bool | RaftlineError], None]
Beaten = Callable[[MemberView | RaftlineError], None]
Seat = tuple[str, int]  # group, generation


class QueueConsumers:
    """Connect, beat, poll and ack for consumers that name nothing but themselves."""

    __slots__ = ("_calls", "_seats")

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._seats: OrderedDict[str, Seat] = OrderedDict()

    def group_of(self, consumer: str) -> str:
        """Return the group this node knows a consumer in; "" if none."""
        seat = self._seats.get(consumer)
        return "" if seat is None else seat[0]

    # ------------------------------------------------------------------ members

    def connect(
        self, consumer: str, group: str, topics: list[str], timeout_ms: int, done: Connected
    ) -> None:
        """Become a member; answered with the group once partitions have moved."""
        _check_consumer(consumer)
        check_group_name(group)
        if not topics:
            raise InvalidArgument("a consumer connects to topics", "name at least one")
        for topic in topics:
            self._calls.known_topic(topic)

        def joined(answer: Answer | RaftlineError) -> None:
            if not isinstance(answer, MemberView):
                done(_fault(answer))
                return
            self._note(consumer, group, answer.generation)
            self._move(group, timeout_ms, ROUNDS_MAX, done)

        wanted = JoinGroup(group, tuple(topics), consumer, CLIENT)
        self._calls.group(wanted, timeout_ms, joined)

    def _move(self, group: str, timeout_ms: int, rounds: int, done: Connected) -> None:
        """Let our members give up what is revoked, until nothing is. C4."""

        def shown(answer: Answer | RaftlineError) -> None:
            if not isinstance(answer, GroupView):
                done(_fault(answer))
                return
            beats = [
                Beat(group, row.member, answer.generation, row.revoke)
                for row in answer.members
                if row.revoke and row.client == CLIENT
            ]
            if not beats or not rounds:
                done(answer)
                return
            Fan(
                [self._asking(beat, timeout_ms) for beat in beats],
                lambda _: self._move(group, timeout_ms, rounds - 1, done),
            ).start()

        self._calls.group(ShowGroup(group), timeout_ms, shown)

    def show(self, group: str, timeout_ms: int, done: Connected) -> None:
        """Show a group."""

        def shown(answer: Answer | RaftlineError) -> None:
            done(answer if isinstance(answer, GroupView) else _fault(answer))

        self._calls.group(ShowGroup(group), timeout_ms, shown)

    def beat(self, consumer: str, timeout_ms: int, done: Beaten, topic: str = "") -> None:
        """Say that a consumer lives; hear what it has. C2, C4."""
        _check_consumer(consumer)
        seat = self._seats.get(consumer)
        if seat is None:
            self._find(consumer, topic, timeout_ms, done)
            return

        def heard(answer: MemberView | RaftlineError) -> None:
            if isinstance(answer, FencedMember | UnknownMember | UnknownGroup):
                self._seats.pop(consumer, None)  # it moved, or connected through another node
                self._find(consumer, topic, timeout_ms, done)
            else:
                done(answer)

        self._beat(consumer, seat, {}, ROUNDS_MAX, timeout_ms, heard)

    def _beat(
        self,
        consumer: str,
        seat: Seat,
        revoked: dict[str, list[int]],
        rounds: int,
        timeout_ms: int,
        done: Beaten,
    ) -> None:
        group, generation = seat

        def told(answer: Answer | RaftlineError) -> None:
            if not isinstance(answer, MemberView):
                done(_fault(answer))
                return
            self._note(consumer, group, answer.generation)
            if answer.revoke and rounds:
                now = (group, answer.generation)
                self._beat(consumer, now, answer.revoke, rounds - 1, timeout_ms, done)
            else:
                done(answer)

        self._calls.group(Beat(group, consumer, generation, revoked), timeout_ms, told)

    def _find(self, consumer: str, topic: str, timeout_ms: int, done: Beaten) -> None:
        """Look for a consumer in all groups of its kind, then beat."""

        def listed(answer: GroupList | RaftlineError) -> None:
            if isinstance(answer, RaftlineError):
                done(answer)
                return
            names = [
                row.group
                for row in answer.groups
                if row.members and (not topic or topic in row.topics)
            ]
            calls = [self._asking(ShowGroup(name), timeout_ms) for name in names]
            Fan(calls, shown).start()

        def shown(answers: list[Any]) -> None:
            for view in answers:
                if isinstance(view, GroupView) and _has(view, consumer):
                    seat = (view.group, view.generation)
                    self._beat(consumer, seat, {}, ROUNDS_MAX, timeout_ms, done)
                    return
            faults = [a for a in answers if isinstance(a, RaftlineError)]
            faults = [fault for fault in faults if not isinstance(fault, UnknownGroup)]
            done(faults[0] if faults else UnknownMember("", consumer))

        self._calls.stream_groups(timeout_ms, listed)

    def _note(self, consumer: str, group: str, generation: int) -> None:
        self._seats[consumer] = (group, generation)
        self._seats.move_to_end(consumer)
        if len(self._seats) > KNOWN_MAX:
            self._seats.popitem(last=False)

    def _asking(self, request: Any, timeout_ms: int) -> Call:
        return lambda take: self._calls.group(request, timeout_ms, take)

    # ------------------------------------------------------------------ messages

    def poll(
        self, consumer: str, topic: str, partition: int, timeout_ms: int, done: Polled
    ) -> None:
        """Read the first message the group has not acked; None if there is none. C1."""

        def owned(group: str) -> None:
            def head(answer: dict[str, Any] | RaftlineError) -> None:
                if isinstance(answer, RaftlineError):
                    done(answer)
                elif answer["offset"] < 0:
                    done(None)
                else:
                    self._read(topic, partition, answer["offset"], timeout_ms, done)

            self._ask(topic, partition, "group.head", {"group": group}, timeout_ms, head)

        self._own(consumer, topic, partition, timeout_ms, done, owned)

    def ack(
        self,
        consumer: str,
        topic: str,
        partition: int,
        offset: int,
        timeout_ms: int,
        done: Acked,
    ) -> None:
        """Ack one message, delivered or not. C3."""

        def owned(group: str) -> None:
            asked: dict[str, object] = {"group": group}

            def opened(answer: dict[str, Any] | RaftlineError) -> None:
                if isinstance(answer, RaftlineError):
                    done(answer)
                else:
                    named = {**asked, "offsets": [offset]}
                    self._ask(topic, partition, "group.messages", named, timeout_ms, found)

            def found(answer: dict[str, Any] | RaftlineError) -> None:
                if isinstance(answer, RaftlineError):
                    done(answer)
                else:
                    row = answer["rows"][0]
                    self._settle(consumer, group, topic, partition, row, timeout_ms, done)

            self._ask(topic, partition, "group.head", asked, timeout_ms, opened)

        self._own(consumer, topic, partition, timeout_ms, done, owned)

    def _settle(
        self,
        consumer: str,
        group: str,
        topic: str,
        partition: int,
        row: dict[str, Any],
        timeout_ms: int,
        done: Acked,
    ) -> None:
        offset, state = int(row["offset"]), row["state"]
        place = f"{topic}/{partition}@{offset}"
        if state == "unknown":
            done(UnknownMessage(place))
            return
        if state == "settled":
            done(True)  # a repeat
            return
        is_leased = state == "leased"
        if state not in ("fresh", "ready") and not (is_leased and row["member"] == consumer):
            done(LeaseLost(place))
            return
        settle = Settle(
            group,
            ACK,
            row["term"] if is_leased else 0,
            row["sequence"] if is_leased else 0,
            row["attempts"] if is_leased else row["attempts"] + 1,
            row["generation"],
            [offset, offset + 1],
            member=consumer,
        )

        def settled(answer: Settled | RaftlineError) -> None:
            if isinstance(answer, RaftlineError):
                done(answer)
            else:
                done(LeaseLost(place) if answer.lost[0] else True)

        self._calls.settle(topic, partition, [settle], timeout_ms, settled)

    def _own(
        self,
        consumer: str,
        topic: str,
        partition: int,
        timeout_ms: int,
        done: Callable[[Any], None],
        then: Callable[[str], None],
    ) -> None:
        """Go on with the consumer's group if the partition is its own. C2."""
        row = self._calls.known_topic(topic)
        if not 0 <= partition < len(row.partitions):
            raise UnknownPartition(topic, partition, len(row.partitions))

        def heard(answer: MemberView | RaftlineError) -> None:
            if isinstance(answer, RaftlineError):
                done(answer)
            elif partition in answer.partitions.get(topic, ()):
                then(self.group_of(consumer))
            else:
                why = f"{topic}-{partition} is not its own"
                group = self.group_of(consumer)
                done(FencedMember(group, consumer, answer.generation, answer.generation, why))

        self.beat(consumer, timeout_ms, heard, topic)

    def _read(self, topic: str, partition: int, offset: int, timeout_ms: int, done: Polled) -> None:
        def read(reply: ReadReply | RaftlineError) -> None:
            if isinstance(reply, RaftlineError):
                done(reply)
                return
            try:
                messages = open_batches(reply.batches)
            except RaftlineError as error:  # sound outside, not inside: nobody can read it
                done(error)
                return
            for message in messages:
                if message.offset >= offset:
                    done((message.offset, message))
                    return
            done(NotReady(f"{topic}/{partition}@{offset} is not here yet"))

        self._calls.read(topic, partition, offset, 1, 0, timeout_ms, read)

    def _ask(
        self,
        topic: str,
        partition: int,
        name: str,
        asked: dict[str, object],
        timeout_ms: int,
        done: Callable[[dict[str, Any] | RaftlineError], None],
    ) -> None:
        self._calls.ask(topic, partition, name, asked, timeout_ms, done)


class ConsumerView(msgspec.Struct, kw_only=True):
    """A consumer as its protocol shows it."""

    id: str
    partitions: list[str]
    consumer_group: str
    topics: list[str]
    is_active: bool
    last_health_check_at: str


def partition_ids(places: dict[str, list[int]]) -> list[str]:
    """Return partitions as ``topic-number``."""
    return [f"{topic}-{number}" for topic in sorted(places) for number in sorted(places[topic])]


def parse_partition_id(text: str) -> tuple[str, int]:
    """Return topic and number of ``topic-number``. Raises InvalidArgument."""
    topic, dash, number = text.rpartition("-")
    if not (dash and topic and number.isascii() and number.isdigit() and len(number) < 10):
        raise InvalidArgument(f"{text[:100]!r} is no partition", "write it as orders-0")
    return topic, int(number)


def message_number(offset: int) -> bytes:
    """Return the id of a message: a counter from 1, eight bytes."""
    return (offset + 1).to_bytes(8, "big")


def parse_message_number(number: bytes) -> int:
    """Return the offset of a message. Raises InvalidArgument."""
    if len(number) != 8 or not 0 < int.from_bytes(number, "big") < 1 << 62:
        raise InvalidArgument("that is no message id", "send the eight bytes a receive gave")
    return int.from_bytes(number, "big") - 1


def _has(view: GroupView, consumer: str) -> bool:
    return any(row.member == consumer for row in view.members)


def _fault(answer: object) -> RaftlineError:
    assert isinstance(answer, RaftlineError), answer
    return answer


def _check_consumer(consumer: str) -> None:
    if not 0 < len(consumer) <= MEMBER_ID_CHARS_MAX:
        raise InvalidArgument(f"a consumer's id has 1 to {MEMBER_ID_CHARS_MAX} characters")
