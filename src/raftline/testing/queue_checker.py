"""The checker of the work queue, by what clients saw: which of P4 to P8 a history breaks.

It reads a ``QueueHistory`` and the ``QueueFinal`` reading and knows nothing of how they were made:
runs with real processes are judged the same way. What only the committed log can show (two leases
at once, a key in flight twice) is in queue_replay.py.

A delivery is *committed* for sure if its attempt is 2 or more (a redelivery goes out after its
Grant committed), if a settle of its lease was answered as done, or if the committed log has its
Grant. A first delivery that is not may come from a leader that was just deposed: it may bring what
is settled already, and its settles are refused.
"""

import math
from collections.abc import Iterator
from itertools import pairwise

from raftline.testing.checker import Violation
from raftline.testing.history import Op
from raftline.testing.queue_history import (
    DeadLetter,
    Delivery,
    Item,
    QueueFinal,
    QueueHistory,
    Sent,
    Settlement,
)

Message = tuple[str, int, str, int, int]  # topic, partition, group, offset, generation
SENDER_MS = 500.0  # clocks that agree may differ by so much, all in all


def check_queue(history: QueueHistory, final: QueueFinal) -> list[Violation]:
    """Check every promise of the queue that clients can see."""
    story = _Story(history, final)
    found: list[Violation] = []
    for rule in (_p1, _p4, _p5, _p6, _p7, _p8):
        found.extend(rule(story, final))
    return found


class _Story:
    """The history by message."""

    def __init__(self, history: QueueHistory, final: QueueFinal) -> None:
        self.history = history
        self._granted = final.granted
        self.sent = history.sent()
        self.deliveries: dict[Message, list[tuple[Delivery, Item]]] = {}
        self.done: dict[Message, list[Settlement]] = {}  # settles answered as done
        self.releases: dict[Message, list[Settlement]] = {}  # whatever was answered
        for delivery in history.deliveries:
            place = (delivery.topic, delivery.partition, delivery.group)
            for item in delivery.items:
                message = (*place, item.offset, item.generation)
                self.deliveries.setdefault(message, []).append((delivery, item))
        for settlement in history.settlements:
            place = (settlement.topic, settlement.partition, settlement.group)
            is_done = history.op(settlement.op).outcome == "ok"
            for offset in settlement.offsets:
                message = (*place, offset, settlement.generation)
                if settlement.verb == "release":
                    self.releases.setdefault(message, []).append(settlement)
                if is_done and offset not in settlement.lost:
                    self.done.setdefault(message, []).append(settlement)

    def is_granted(self, message: Message, delivery: Delivery, item: Item) -> bool:
        """Say whether a delivery's Grant is known to be in the committed log."""
        topic, partition, group, offset, _ = message
        grantee = (topic, partition, group, *delivery.lease, offset)
        return item.attempt > 1 or grantee in self._granted

    def is_committed(self, message: Message, delivery: Delivery, item: Item) -> bool:
        """Say whether the committed log knows of a delivery, if only by an adopted settle."""
        return self.is_granted(message, delivery, item) or any(
            s.lease == delivery.lease for s in self.done.get(message, ())
        )

    def op(self, it: Delivery | Settlement | Sent) -> Op:
        """Return the call of something."""
        return self.history.op(it.op)


def _name(message: Message) -> str:
    topic, partition, group, offset, generation = message
    return f"{topic}/{partition}@{offset} (group {group}, generation {generation})"


def _evidence(story: _Story, *things: Delivery | Settlement | Sent) -> str:
    words: list[str] = []
    for thing in things:
        op = story.op(thing)
        text = f"op {op.id} {op.kind} via {op.node} {op.invoked_ms:.1f}..{op.ended_ms:.1f}"
        if isinstance(thing, Settlement):
            text += f" {thing.verb}"
        if not isinstance(thing, Sent):
            text += f" lease {thing.term}.{thing.sequence}"
        words.append(text)
    return "; ".join(words)


# P1


def _p1(story: _Story, final: QueueFinal) -> Iterator[Violation]:
    """What was acknowledged is where it was said to be."""
    rows = {name: {row.offset: row.number for row in log} for name, log in final.logs.items()}
    for sent in story.history.sends:
        if story.op(sent).outcome != "ok" or sent.offset < 0 or sent.duplicate:
            continue
        name = f"{sent.topic}/{sent.partition}"
        if sent.offset < final.log_starts.get(name, 0) or name not in rows:
            continue
        if rows[name].get(sent.offset) != sent.number:
            yield Violation(
                "P1",
                f"message {sent.number} is not at {name}@{sent.offset}",
                _evidence(story, sent),
            )


# P4


def _p4(story: _Story, final: QueueFinal) -> Iterator[Violation]:
    """What is not acked or dead is delivered again; attempts never decrease; letters once."""
    for message, deliveries in story.deliveries.items():
        yield from _attempts(story, message, deliveries)
        yield from _after_an_ack(story, message, deliveries)
    for left in final.left:
        if left.delivered:
            yield Violation(
                "P4",
                f"{left.topic}/{left.partition}@{left.offset} of group {left.group} is {left.state}"
                f" after {left.attempts} attempts, long after workers were there for it",
            )
    yield from _letters(story, final)


def _attempts(
    story: _Story, message: Message, deliveries: list[tuple[Delivery, Item]]
) -> Iterator[Violation]:
    """A delivery after a committed one has a higher attempt; each release takes one back."""
    released = len(story.releases.get(message, ()))
    sure = [pair for pair in deliveries if story.is_committed(message, *pair)]
    granted = [pair for pair in sure if story.is_granted(message, *pair)]
    committed = [(story.op(d).ended_ms, item.attempt) for d, item in granted]
    committed += [(story.op(s).ended_ms, s.attempt) for s in story.done.get(message, ())]
    for delivery, item in sure:
        began_ms = story.op(delivery).invoked_ms
        before = max((a for ended_ms, a in committed if ended_ms < began_ms), default=0)
        if item.attempt <= before - released:
            yield Violation(
                "P4",
                f"{_name(message)} was delivered as attempt {item.attempt} after attempt {before}",
                _evidence(story, delivery),
            )


def _after_an_ack(
    story: _Story, message: Message, deliveries: list[tuple[Delivery, Item]]
) -> Iterator[Violation]:
    """What was acked or given up on is over: no delivery of that generation begins later."""
    for settlement in story.done.get(message, ()):
        if settlement.verb not in ("ack", "reject"):
            continue
        for delivery, item in deliveries:
            late = story.op(delivery).invoked_ms > story.op(settlement).ended_ms
            if late and story.is_committed(message, delivery, item):
                yield Violation(
                    "P4",
                    f"{_name(message)} was delivered after its {settlement.verb}",
                    _evidence(story, settlement, delivery),
                )


def _letters(story: _Story, final: QueueFinal) -> Iterator[Violation]:
    """The dead-letter topic has each message that was given up on, once."""
    letters: dict[Message, list[DeadLetter]] = {}
    for letter in final.letters:
        message = (letter.topic, letter.partition, letter.group, letter.offset, letter.generation)
        letters.setdefault(message, []).append(letter)
    for message, found in letters.items():
        if len(found) > 1:
            yield Violation(
                "P4", f"{_name(message)} is in the dead-letter topic {len(found)} times"
            )
        acked = [s for s in story.done.get(message, ()) if s.verb == "ack"]
        if acked:
            yield Violation(
                "P4",
                f"{_name(message)} was acked and is in the dead-letter topic",
                _evidence(story, *acked),
            )
        yield from _same_message(story, final, message, found[0])
    for message, settlements in story.done.items():
        rejects = [s for s in settlements if s.verb == "reject"]
        if rejects and message not in letters:
            yield Violation(
                "P4",
                f"{_name(message)} was rejected and is not in the dead-letter topic",
                _evidence(story, *rejects),
            )


def _same_message(
    story: _Story, final: QueueFinal, message: Message, letter: DeadLetter
) -> Iterator[Violation]:
    del story
    topic, partition, _, offset, _ = message
    for stored in final.logs.get(f"{topic}/{partition}", ()):
        if stored.offset == offset and stored.number != letter.number:
            yield Violation(
                "P4",
                f"the dead letter of {_name(message)} holds message {letter.number}, the log has "
                f"{stored.number}",
            )


# P5


def _p5(story: _Story, final: QueueFinal) -> Iterator[Violation]:
    """One lease at a time; a settle whose lease moved on is refused."""
    del final
    for message, settlements in story.done.items():
        yield from _stale(story, message, settlements)
        final_ones = [s for s in settlements if s.verb in ("ack", "reject")]
        for one, other in pairwise(final_ones):
            if one.lease != other.lease:
                yield Violation(
                    "P5",
                    f"{_name(message)} was settled for good by two leases",
                    _evidence(story, one, other),
                )
    for message, deliveries in story.deliveries.items():
        leases: dict[int, Delivery] = {}
        for delivery, item in deliveries:
            if item.attempt > 1:
                first = leases.setdefault(item.attempt, delivery)
                if first.lease != delivery.lease and message not in story.releases:
                    yield Violation(
                        "P5",
                        f"attempt {item.attempt} of {_name(message)} was leased twice",
                        _evidence(story, first, delivery),
                    )


def _stale(story: _Story, message: Message, settlements: list[Settlement]) -> Iterator[Violation]:
    """A later attempt that was known before the settle was asked for has ended its lease."""
    for settlement in settlements:
        began_ms = story.op(settlement).invoked_ms
        for delivery, item in story.deliveries.get(message, ()):
            if item.attempt > max(1, settlement.attempt) and story.op(delivery).ended_ms < began_ms:
                yield Violation(
                    "P5",
                    f"{settlement.verb} of attempt {settlement.attempt} of {_name(message)} was "
                    f"accepted, attempt {item.attempt} was out before",
                    _evidence(story, delivery, settlement),
                )
        for other in settlements:
            if (
                other.lease != settlement.lease
                and other.verb != "release"  # then it is free
                and other.attempt >= settlement.attempt
                and story.op(other).ended_ms < began_ms
            ):
                yield Violation(
                    "P5",
                    f"{settlement.verb} of {_name(message)} was accepted after another lease's "
                    f"{other.verb}",
                    _evidence(story, other, settlement),
                )


# P6


def _p6(story: _Story, final: QueueFinal) -> Iterator[Violation]:
    """Nothing before its time; what was cancelled is gone; what waits is kept."""
    earliest, cancelled, doubtful = _dues(story)
    moved = {change.number for change in story.history.changes}
    began: dict[int, float] = {}  # when a message was first sent
    for sent in story.history.sends:
        began[sent.number] = min(began.get(sent.number, math.inf), story.op(sent).invoked_ms)
    for deliveries in story.deliveries.values():
        for delivery, item in deliveries:
            sent = story.sent.get(item.number)
            if sent is None or not sent.delay_ms:
                continue
            due_ms = earliest.get(item.number, 0)
            if delivery.at_ms < due_ms:
                yield Violation(
                    "P6",
                    f"message {item.number} was delivered {due_ms - delivery.at_ms} ms early",
                    _evidence(story, delivery),
                )
            early_ms = _due_for_sender(sent, began[item.number]) - story.op(delivery).ended_ms
            if final.clocks_are_true and item.number not in moved and early_ms > 0:
                yield Violation(
                    "P6",
                    f"message {item.number} was delivered {early_ms:.0f} ms early by its sender's "
                    f"clock",
                    _evidence(story, delivery),
                )
            if item.number in cancelled:
                yield Violation(
                    "P6",
                    f"message {item.number} was cancelled and delivered",
                    _evidence(story, delivery),
                )
    stored: dict[int, int] = {}
    for log in (final.ever or final.logs).values():
        for row in log:
            stored[row.number] = stored.get(row.number, 0) + 1
    redriven = _redriven(final)
    for sent in story.history.sends:
        if not sent.delay_ms or story.op(sent).outcome != "ok" or sent.duplicate:
            continue
        count = stored.get(sent.number, 0)
        if sent.number in cancelled:
            if count:
                yield Violation("P6", f"message {sent.number} was cancelled and released")
        elif count > 1 and sent.number not in redriven:
            yield Violation("P6", f"message {sent.number} was released {count} times")
        elif not count and sent.number not in doubtful:
            yield Violation(
                "P6", f"message {sent.number} waited and was never released", _evidence(story, sent)
            )
    for text in final.waiting:
        yield Violation("P6", f"still waiting long after it was due: {text}")


def _due_for_sender(sent: Sent, began_ms: float) -> float:
    """Return when its sender would call a message early, where clocks are true.

    Log time may run fast by a tenth while it is drawn to cluster time.
    """
    return began_ms + sent.delay_ms * 0.9 - SENDER_MS


def _redriven(final: QueueFinal) -> dict[int, bool]:
    """Return what may be stored again: a redrive appends what was trimmed meanwhile."""
    return {letter.number: True for letter in final.letters}


def _dues(story: _Story) -> tuple[dict[int, int], dict[int, bool], dict[int, bool]]:
    """Return the earliest time allowed, what was cancelled, and what may have been cancelled."""
    earliest = {s.number: s.due_ms for s in story.history.sends if s.delay_ms and not s.duplicate}
    cancelled: dict[int, bool] = {}
    doubtful: dict[int, bool] = {}
    for change in story.history.changes:
        op = story.history.op(change.op)
        if change.verb == "cancel":  # refused too: a repeat of one whose answer got lost
            (cancelled if op.outcome == "ok" else doubtful)[change.number] = True
        elif op.outcome == "ok" and change.number in earliest:
            earliest[change.number] = min(earliest[change.number], change.due_ms)
        else:
            earliest[change.number] = 0  # nobody knows
    return earliest, cancelled, doubtful


# P7


def _p7(story: _Story, final: QueueFinal) -> Iterator[Violation]:
    """Keys in order; every lane is served."""
    redriven = _redriven(final)
    for left in final.left:
        if not left.delivered:
            yield Violation(
                "P7",
                f"{left.topic}/{left.partition}@{left.offset} was never delivered to group "
                f"{left.group}, long after workers were there for it",
            )
    lines: dict[tuple[str, int, str, bytes, int], list[tuple[Delivery, Item]]] = {}
    for (topic, partition, group, _, _), deliveries in story.deliveries.items():
        delivery, item = min(deliveries, key=lambda pair: story.op(pair[0]).ended_ms)
        sent = story.sent.get(item.number)
        if sent is None or sent.key is None or sent.number in redriven:
            continue
        if delivery.ordered and not item.generation:
            line = (topic, partition, group, sent.key, sent.priority)
            lines.setdefault(line, []).append((delivery, item))
    for (topic, partition, group, key, priority), firsts in lines.items():
        firsts.sort(key=lambda pair: story.op(pair[0]).ended_ms)
        highest: tuple[Delivery, Item] | None = None
        for delivery, item in firsts:
            if highest is not None and item.offset < highest[1].offset:
                if story.op(highest[0]).ended_ms < story.op(delivery).invoked_ms:
                    yield Violation(
                        "P7",
                        f"key {key!r} of {topic}/{partition}, priority {priority}: group {group} "
                        f"got {item.offset} after {highest[1].offset}",
                        _evidence(story, highest[0], delivery),
                    )
            else:
                highest = (delivery, item)


# P8


def _p8(story: _Story, final: QueueFinal) -> Iterator[Violation]:
    """One dedup key, one message."""
    redriven = _redriven(final)
    sends: dict[tuple[str, int, str], list[Sent]] = {}
    for sent in story.history.sends:
        if sent.dedup_key:
            sends.setdefault((sent.topic, sent.partition, sent.dedup_key), []).append(sent)
    for (topic, partition, dedup_key), same in sends.items():
        name = f"dedup key {dedup_key!r} of {topic}/{partition}"
        told = [s for s in same if story.op(s).outcome == "ok"]
        ids = sorted({(s.offset, s.waiting) for s in told})
        if len(ids) > 1:
            yield Violation(
                "P8", f"{name} was answered with different messages {ids}", _evidence(story, *told)
            )
        numbers = {s.number for s in same}
        stored = [
            row
            for row in (final.ever or final.logs).get(f"{topic}/{partition}", ())
            if row.number in numbers and row.number not in redriven
        ]
        if len(stored) > 1:
            at = [row.offset for row in stored]
            yield Violation(
                "P8", f"{name} is stored {len(at)} times: {at}", _evidence(story, *same)
            )
        firsts = [s for s in told if not s.duplicate]
        if len(firsts) > 1:
            yield Violation(
                "P8", f"{name} was taken as new {len(firsts)} times", _evidence(story, *firsts)
            )
