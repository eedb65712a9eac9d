"""Bugs planted into the work queue, one context manager each: the checker must name the promise."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

Planted = Generator[None]


@contextmanager
def attempts_forgotten_at_failover() -> Planted:
    """With a new term what was delivered before counts as never delivered (P4)."""
    from raftline.machines.delivery.machine import DeliveryMachine
    from raftline.machines.delivery.rows import (
        READY,
        RESTING,
        generation_of,
        mark_of,
        state_of,
    )

    real = DeliveryMachine.apply
    terms: dict[int, int] = {}

    def forget(machine: Any) -> None:
        for group in machine.groups.values():
            for start, end, row in list(group.rows):
                if state_of(row) in (READY, RESTING):
                    mark = mark_of(state_of(row), 0, generation_of(row))
                    group.change((start, end, row, end), (mark, *row[1:]))

    def apply(self: Any, term: int, *words: Any) -> Any:
        if terms.get(id(self), term) != term:
            forget(self)
        terms[id(self)] = term
        return real(self, term, *words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeliveryMachine, "apply", apply)
        yield


@contextmanager
def leased_twice() -> Planted:
    """A message that is leased counts as free, and nobody keeps it for one receiver (P5)."""
    from raftline.machines.delivery import leases
    from raftline.machines.delivery.rows import LEASED, attempt_of, state_of
    from raftline.node.counter import Counter

    real = leases.is_free

    def is_free(group: Any, row: Any, attempt: int, generation: int) -> bool:
        if row is not None and state_of(row) == LEASED and attempt_of(row) == attempt:
            return True
        return real(group, row, attempt, generation)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leases, "is_free", is_free)
        patch.setattr(Counter, "reserve", lambda self, spans: self.returned_spans(spans))
        patch.setattr(
            Counter,
            "returned_spans",
            lambda self, spans: [
                self._chooser.returned(spans[at], spans[at + 1]) for at in range(0, len(spans), 4)
            ],
            raising=False,
        )
        yield


@contextmanager
def released_early() -> Planted:
    """Waiting messages are released two seconds before they are due (P6)."""
    from raftline.machines.partition.waiting import Waiting

    early_ms = 2_000
    earliest, lanes = Waiting.earliest_due_ms, Waiting.due_lanes
    next_due, refuse = Waiting.next_due, Waiting.refuse_release

    def sooner(self: Any) -> int | None:
        due_ms = earliest(self)
        return None if due_ms is None else due_ms - early_ms

    def numbers(self: Any, priority: int, at_ms: int, *words: Any) -> list[int]:
        return next_due(self, priority, at_ms + early_ms, *words)

    def refusal(self: Any, command: Any, at_ms: int) -> Any:
        return refuse(self, command, at_ms + early_ms)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Waiting, "earliest_due_ms", sooner)
        patch.setattr(Waiting, "due_lanes", lambda self, at_ms: lanes(self, at_ms + early_ms))
        patch.setattr(Waiting, "next_due", numbers)
        patch.setattr(Waiting, "refuse_release", refusal)
        yield


@contextmanager
def cancelled_yet_delivered() -> Planted:
    """A cancel answers that it is done and forgets to do it (P6)."""
    from raftline.machines.partition.waiting import Cancelled, Waiting

    def cancel(self: Any, command: Any) -> Cancelled:
        return Cancelled([n for n in command.numbers if self.find(n).state == "waiting"], [], [])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Waiting, "cancel", cancel)
        yield


@contextmanager
def a_lane_skipped() -> Planted:
    """The lowest lane is never looked at (P7)."""
    from raftline.machines.delivery.lanes import Lanes

    real = Lanes.lanes

    def lanes(self: Any) -> Any:
        found = list(real(self))
        return found[:-1] if len(found) > 1 else found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lanes, "lanes", lanes)
        yield


@contextmanager
def a_dead_letter_twice() -> Planted:
    """The dead-letter topic stores a piece that the source repeats, as it may, again (P4)."""
    from raftline.machines.partition.streams import Streams
    from raftline.node.pieces import Pieces

    real = Pieces.send
    count = [0]

    def send(self: Any, *words: Any) -> None:
        count[0] += 1
        if count[0] % 4 == 0:
            real(self, *words[:-1], lambda answer: None)
        real(self, *words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Streams, "takes", lambda self, head: True)
        patch.setattr(Pieces, "send", send)
        yield


@contextmanager
def a_dead_letter_never() -> Planted:
    """The source believes that a piece is buried before it was sent (P4)."""
    from raftline.machines.partition.streams import Streamed
    from raftline.node.dead_letters import Outgoing

    real = Outgoing._send
    count = [0]

    def send(self: Any, built: Any) -> None:
        count[0] += 1
        if count[0] % 4 == 0:
            self._answered(Streamed(built.number, True))
        else:
            real(self, built)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Outgoing, "_send", send)
        yield


@contextmanager
def a_stale_settle_accepted() -> Planted:
    """Whoever names a message that is leased settles it (P5)."""
    from raftline.machines.delivery import leases
    from raftline.machines.delivery.commands import EXTEND
    from raftline.machines.delivery.rows import LEASED, state_of

    real = leases._is_adopted

    def adopted(group: Any, row: Any, command: Any) -> bool:
        if row is not None and state_of(row) == LEASED and command.verb != EXTEND:
            return True
        return real(group, row, command)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leases, "_is_adopted", adopted)
        yield


@contextmanager
def a_parked_key_overtaken() -> Planted:
    """The leader does not know the keys of every other message (P7)."""
    from raftline.node import key_pages

    real = key_pages.key_hash
    count = [0]

    def key_hash(*words: Any) -> int:
        count[0] += 1
        return real(*words) if count[0] % 2 else 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_pages, "key_hash", key_hash)
        yield


@contextmanager
def a_dedup_key_forgotten() -> Planted:
    """A dedup key holds for a second only, whatever the window is (P8)."""
    from raftline.node import append_calls

    real = append_calls.stamped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(append_calls, "stamped", lambda side, window_ms: real(side, 1_000))
        yield


@contextmanager
def a_member_expired_early() -> Planted:
    """A member of a stream group is expired before its session is over (GROUPS)."""
    from raftline.node.sessions import Sessions

    real = Sessions.late

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sessions, "late", lambda self, group, now: real(self, group, now + 2_200))
        yield
