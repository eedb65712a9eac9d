"""Who leads partitions that have no replica here: asked now and then, before clients are told.

A node hears of leaders through its own replicas. Of other partitions it knows who answered it last,
or guesses; clients of Kafka's protocol ask the leaders themselves, so it would never hear that a
guess was wrong, and would send them to the same wrong node again and again.

The question is a read before the start of the log: the leader refuses it at once, without a round
to a majority, and who does not lead names who does. The router remembers that for all gateways.

State
    When each partition was asked about last, oldest first.

Bounds
    A partition is asked about once in ``AGE_MS``; ``PLACES_MAX`` in one request, those first that
    were asked about longest ago, and ``KNOWN_MAX`` remembered. What is beyond that, or not answered
    within ``LOOK_MS``, is told as it is known.
"""

from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import Any

from raftline.gateways.fan import Call, Fan
from raftline.gateways.kafka.dispatch import Context
from raftline.gateways.kafka.ports import KafkaCalls
from raftline.node.ports import Clock

AGE_MS = 1_000
LOOK_MS = 300
PLACES_MAX = 256
KNOWN_MAX = 10_000
BEFORE_ALL = -1  # an offset that no log has
NEVER = float("-inf")

Place = tuple[str, int]  # topic, partition


class LeaderLooks:
    """Asks for the leaders of partitions of which nothing is here."""

    __slots__ = ("_asked_mono", "_calls", "_clock")

    def __init__(self, clock: Clock, calls: KafkaCalls) -> None:
        self._clock = clock
        self._calls = calls
        self._asked_mono: dict[Place, float] = {}

    def look(self, names: Iterable[str], context: Context, then: Callable[[], None]) -> None:
        """Ask where it is time to; ``then`` runs once, when it is known or takes too long."""
        places = self.due(names)
        if places:
            self.ask(places, context, then)
        else:
            then()

    def ask(self, places: list[Place], context: Context, then: Callable[[], None]) -> None:
        """Ask about these; ``then`` runs once."""
        is_over = False

        def over(_answers: object = None) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                timer.cancel()
                then()

        timer = self._clock.call_later(LOOK_MS, context.guarded(over))
        Fan([self._asking(place) for place in places], context.guarded(over)).start()

    def due(self, names: Iterable[str]) -> list[Place]:
        """Return the partitions to ask about now; they count as asked from now on."""
        now_ms, asked = self._clock.mono_ms(), self._asked_mono
        found: list[Place] = []
        for name in names:
            topic = self._calls.find_topic(name)
            for row in topic.partitions if topic is not None else ():
                place = (name, row.partition)
                # A replica that is here knows its term.
                if not row.term and now_ms - asked.get(place, NEVER) >= AGE_MS:
                    found.append(place)
        found = nsmallest(PLACES_MAX, found, key=lambda place: asked.get(place, NEVER))
        for place in found:
            asked.pop(place, None)
            asked[place] = now_ms
        while len(asked) > KNOWN_MAX:
            del asked[next(iter(asked))]
        return found

    def _asking(self, place: Place) -> Call:
        topic, number = place

        def ask(take: Callable[[Any], None]) -> None:
            self._calls.read(topic, number, BEFORE_ALL, 1, 0, LOOK_MS, take)

        return ask
