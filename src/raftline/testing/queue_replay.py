"""The committed log of a partition again, by the production machine and the plain model at once.

Whatever the log says was leased, refused, given up on or revived, the model must say too; where
they differ the promise that is broken is named. Here too: what only the committed log can show,
such as a key with two messages in flight or a message that waits while younger ones are served.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from raftline.machines.delivery.commands import (
    DELIVER_TAG,
    Command,
    Deliver,
    Forget,
    Grant,
    Reset,
    Revive,
    Settle,
    decode_deliver,
)
from raftline.machines.delivery.outcomes import Done, Granted, Outcome, SettledRanges
from raftline.machines.partition.machine import AppendedEntry, PartitionMachine
from raftline.model.limits import WAIT_BOUND_MS
from raftline.testing.batches import open_batches
from raftline.testing.checker import Violation
from raftline.testing.delivery_model import (
    DEAD,
    FRESH,
    LEASED,
    SETTLED,
    DeliveryModel,
    GroupModel,
    Verdict,
)
from raftline.testing.queue_history import DeadLetter, Grantee, Left, Sent, Stored, number_of
from raftline.testing.queue_workers import expand
from raftline.testing.tape import Applied

if TYPE_CHECKING:
    from collections.abc import Mapping

BOUND_SLACK_MS = 5_000  # a choice is made a moment before its Grant is in the log
GRANT_LATE_MS = 1_000  # Grants of one moment may come in another order: one was read from the disk
FOUND_MAX = 5  # per partition: the rest follows from these


class _Row:
    """A stored message as the replay knows it."""

    __slots__ = ("at_ms", "key", "number", "priority")

    def __init__(self, number: int, key: bytes | None, priority: int, at_ms: int) -> None:
        self.number = number
        self.key = key
        self.priority = priority
        self.at_ms = at_ms


class Replay:
    """One partition's log, entry by entry."""

    def __init__(self, topic: str, partition: int, *, is_aged: bool = True) -> None:
        self.name = f"{topic}/{partition}"
        self._topic = topic
        self._partition = partition
        self._is_aged = is_aged  # nothing waits longer than the bound
        self.sent: Mapping[int, Sent] = {}  # by message number
        self._machine = PartitionMachine()
        self._model = DeliveryModel()
        self._rows: dict[int, _Row] = {}
        self._numbers: dict[int, bool] = {}  # of messages stored before
        self._oldest: dict[str, int] = {}  # by group: nothing below it is fresh
        self._passed_over: dict[str, tuple[int, int, Violation]] = {}  # perhaps: offset, when
        self._delivered: dict[tuple[str, int], bool] = {}
        self.index = 0  # of the last entry fed
        self.found: list[Violation] = []
        self._is_lost = False  # machine and model disagree too much to say more
        self.granted: dict[Grantee, bool] = {}

    @property
    def digest(self) -> str:
        """Return the digest of the machine's state."""
        return self._machine.digest()

    @property
    def stored(self) -> tuple[Stored, ...]:
        """Return every message that was ever stored."""
        return tuple(Stored(o, row.number, row.key) for o, row in sorted(self._rows.items()))

    @property
    def waiting(self) -> int:
        """Return how many messages wait."""
        return self._machine.waiting.count

    def feed(self, entries: Iterable[Applied]) -> None:
        """Apply what is new."""
        for index, term, data in entries:
            if index <= self.index:
                continue
            self.index = index
            if not data:
                continue
            if data[0] == DELIVER_TAG:
                self._deliver(index, term, decode_deliver(data))
            else:
                self._other(index, term, data)

    def left(self) -> list[Left]:
        """Return what groups still owe somebody."""
        if self._is_lost:
            return []
        found: list[Left] = []
        for name, group in self._model.groups.items():
            for offset in range(
                max(group.start, self._machine.log_start), self._machine.next_offset
            ):
                state, attempts, _ = group.state_of(offset)
                if state not in (SETTLED, DEAD):
                    delivered = (name, offset) in self._delivered
                    found.append(
                        Left(self._topic, self._partition, name, offset, state, attempts, delivered)
                    )
        return found

    def dead(self) -> list[tuple[str, int]]:
        """Return group and offset of every message that is dead now."""
        return [
            (name, offset)
            for name, group in self._model.groups.items()
            for offset, life in group.open.items()
            if life.state == DEAD
        ]

    def check_letters(self, letters: Iterable[DeadLetter]) -> Iterator[Violation]:
        """Every message given up on is in the dead-letter topic, once; nothing else is."""
        if self._is_lost:
            return
        count: dict[tuple[str, int, int], int] = {}
        for letter in letters:
            if (letter.topic, letter.partition) == (self._topic, self._partition):
                key = (letter.group, letter.offset, letter.generation)
                count[key] = count.get(key, 0) + 1
        for group, offset, generation in self._model.dead:
            times = count.pop((group, offset, generation), 0)
            if times != 1:
                yield Violation(
                    "P4",
                    f"{self.name}@{offset} died in group {group} (generation {generation}) and is "
                    f"in the dead-letter topic {times} times",
                )
        for group, offset, generation in count:
            yield Violation(
                "P4",
                f"{self.name}@{offset} is a dead letter of group {group} (generation {generation})"
                " and never died there",
            )

    # Entries

    def _other(self, index: int, term: int, data: bytes) -> None:
        machine = self._machine
        start = machine.log_start
        for event in machine.apply(index, term, data):
            if isinstance(event, AppendedEntry):
                for batch in event.stored:
                    piece = data[batch.start : batch.start + batch.length]
                    self._store(batch.base_offset, piece)
        if machine.log_start != start:
            self._model.trim(machine.log_start)

    def _store(self, base_offset: int, batch: bytes) -> None:
        for delta, message in enumerate(open_batches(batch)):
            number = number_of(message.value)
            sent = self.sent.get(number)
            priority = sent.priority if sent is not None else 0
            if number in self._numbers:  # redriven after the original was trimmed: in another lane
                priority = self._machine.lanes.lane_of(base_offset + delta)
            self._numbers[number] = True
            row = _Row(number, message.key, priority, self._machine.at_ms)
            self._rows[base_offset + delta] = row

    def _deliver(self, index: int, term: int, entry: Deliver) -> None:
        machine = self._machine
        outcomes = machine.apply_deliver(index, term, entry)
        if self._is_lost:
            return
        self._model.pass_time(entry.at_ms)
        self._is_lost = len(self.found) >= FOUND_MAX
        where = f"entry {index} at {entry.at_ms}"
        for command, outcome in zip(entry.commands, outcomes, strict=True):
            if isinstance(command, Grant):
                self._note_grant(term, command, outcome)
            elif isinstance(command, Reset):
                self._oldest.pop(command.group, None)
            verdict = self._model.apply(term, command, machine.log_start, machine.next_offset)
            if verdict is not None:
                self.found.extend(self._compare(command, outcome, verdict, where))

    def _note_grant(self, term: int, command: Grant, outcome: Outcome) -> None:
        """Look at a Grant before the model applies it: what does it pass over?"""
        group = self._model.groups.get(command.group)
        offsets = _granted(outcome)
        for offset in offsets:
            lease = (term, command.sequence)
            grantee = (self._topic, self._partition, command.group, *lease, offset)
            self.granted[grantee] = True
            self._delivered[(command.group, offset)] = True
            if group is not None and group.policy.ordered:
                self.found.extend(self._overtakes(command.group, group, offset, offsets))
        if group is not None and offsets and self._is_aged:
            self.found.extend(self._passes_over(command.group, group, offsets))

    def _overtakes(
        self, name: str, group: GroupModel, offset: int, offsets: dict[int, tuple[int, int]]
    ) -> Iterator[Violation]:
        """In an ordered group a key of a priority has one message in flight, in order."""
        row = self._rows.get(offset)
        if row is None or row.key is None:
            return
        for other in offsets:
            if other < offset and self._is_behind(row, other):
                yield self._overtaken(name, offset, other, "is in the same Grant")
        for other, life in group.open.items():
            if other != offset and self._is_behind(row, other):
                yield self._overtaken(name, offset, other, f"is {life.state}")
        if group.state_of(offset)[0] != FRESH:
            return
        for other in range(max(group.start, self._machine.log_start), offset):
            if self._is_behind(row, other) and group.state_of(other)[0] == FRESH:
                yield self._overtaken(name, offset, other, "was never delivered")

    def _is_behind(self, row: _Row, other: int) -> bool:
        """Say whether two messages are of one key and one priority."""
        theirs = self._rows.get(other)
        return theirs is not None and (theirs.key, theirs.priority) == (row.key, row.priority)

    def _overtaken(self, name: str, offset: int, other: int, how: str) -> Violation:
        key = self._rows[offset].key
        return Violation(
            "P7",
            f"{self.name}@{offset} with key {key!r} is leased in the ordered group {name} while "
            f"@{other} with the same key and priority {how}",
        )

    def _passes_over(
        self, name: str, group: GroupModel, offsets: dict[int, tuple[int, int]]
    ) -> Iterator[Violation]:
        """A message that waited longer than the bound goes before younger ones.

        Or with them: its own Grant may be a moment behind theirs.
        """
        suspect = self._passed_over.get(name)
        if suspect is not None:
            offset, since_ms, violation = suspect
            if offset in offsets or group.state_of(offset)[0] != FRESH:
                del self._passed_over[name]
            elif self._machine.at_ms - since_ms > GRANT_LATE_MS:
                del self._passed_over[name]
                yield violation
        oldest = max(self._oldest.get(name, 0), group.start, self._machine.log_start)
        while oldest < self._machine.next_offset and group.state_of(oldest)[0] != FRESH:
            oldest += 1
        self._oldest[name] = oldest
        row = self._rows.get(oldest)
        if row is None or oldest in offsets or (group.policy.ordered and row.key is not None):
            return
        waited_ms = self._machine.at_ms - row.at_ms
        younger = [offset for offset in offsets if offset > oldest]
        if younger and waited_ms > WAIT_BOUND_MS + BOUND_SLACK_MS:
            text = (
                f"{self.name}@{oldest} (priority {row.priority}) waits for {waited_ms} ms in group "
                f"{name} while @{younger[0]} is leased"
            )
            self._passed_over.setdefault(name, (oldest, self._machine.at_ms, Violation("P7", text)))

    # What the machine and the model say

    def _compare(
        self, command: Command, outcome: Outcome, verdict: Verdict, where: str
    ) -> Iterator[Violation]:
        match command:
            case Grant():
                yield from self._compare_grant(command, outcome, verdict, where)
            case Settle():
                yield from self._compare_settle(command, outcome, verdict, where)
            case Revive() | Forget():
                count = outcome.count if isinstance(outcome, Done) else 0
                if count != len(verdict):
                    yield Violation(
                        "P4",
                        f"{self.name}: {type(command).__name__} in group {command.group} changed "
                        f"{count} messages, {len(verdict)} were dead",
                        where,
                    )
            case _:
                return

    def _compare_grant(
        self, command: Grant, outcome: Outcome, verdict: Verdict, where: str
    ) -> Iterator[Violation]:
        offsets = _granted(outcome)
        for offset, why in verdict.items():
            given = offset in offsets
            if given == (not why):
                continue
            text = f"{self.name}@{offset} in group {command.group}"
            if not given:
                yield Violation("P4", f"{text} could be delivered and was not leased", where)
            elif why == LEASED:
                yield Violation("P5", f"{text} was leased twice at once", where)
            elif why == "parked":
                yield Violation("P7", f"{text} overtook its parked key", where)
            else:
                attempt, generation = offsets[offset]
                yield Violation(
                    "P4",
                    f"{text} was leased as attempt {attempt} of generation {generation}, which the "
                    f"log forbids: {why}",
                    where,
                )

    def _compare_settle(
        self, command: Settle, outcome: Outcome, verdict: Verdict, where: str
    ) -> Iterator[Violation]:
        lost = dict.fromkeys(verdict, True)
        if isinstance(outcome, SettledRanges):
            lost = dict.fromkeys(expand(outcome.lost), True)
        for offset, why in verdict.items():
            if (offset in lost) != bool(why):
                text = f"{self.name}@{offset} in group {command.group}"
                lease = f"attempt {command.attempt}, lease {command.term}.{command.sequence}"
                if why:
                    yield Violation(
                        "P5", f"a settle of {text} ({lease}) was accepted: {why}", where
                    )
                else:
                    yield Violation("P5", f"a settle of {text} ({lease}) was refused", where)


def _granted(outcome: Outcome) -> dict[int, tuple[int, int]]:
    """Return attempt and generation of every offset that was leased."""
    found: dict[int, tuple[int, int]] = {}
    if isinstance(outcome, Granted):
        spans = outcome.spans
        for at in range(0, len(spans), 4):
            for offset in range(spans[at], spans[at + 1]):
                found[offset] = (spans[at + 2], spans[at + 3])
    return found
