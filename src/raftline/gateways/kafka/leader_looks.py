"""Who leads partitions that have no replica here: asked now and then, before clients are told.

A node hears of leaders through its own replicas. Of other partitions it knows who answered it last,
or guesses; clients of Kafka's protocol ask the leaders themselves, so it would never hear that a
guess was wrong, and would send them to the same wrong node again and again.

The question is a read before the start of the log: the leader refuses it at once, without a round
to a majority, and who does not lead names who does. The router remembers that for all gateways.

State
    When each partition was asked about last, oldest first.

Bounds
    A partition is asked about once in ``AGE_MS``; ``PLACES_MAX`` in one request, and ``KNOWN_MAX``
    remembered. What is beyond that, or not answered within ``LOOK_MS``, is told as it is known.
"""

from collections.abc import Callable, Iterable
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
        places = self._due(names)
        if not places:
            then()
            return
        is_over = False

        def over(_answers: object = None) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                timer.cancel()
                then()

        timer = self._clock.call_later(LOOK_MS, context.guarded(over))
        Fan([self._asking(place) for place in places], context.guarded(over)).start()

    def _due(self, names: Iterable[str]) -> list[Place]:
        now_ms = self._clock.mono_ms()
        found: list[Place] = []
        for name in names:
            topic = self._calls.find_topic(name)
            for row in topic.partitions if topic is not None else ():
                place = (name, row.partition)
                if row.term or now_ms - self._asked_mono.get(place, -AGE_MS) < AGE_MS:
                    continue  # a replica that is here knows its term
                found.append(place)
                self._asked_mono.pop(place, None)
                self._asked_mono[place] = now_ms
                if len(self._asked_mono) > KNOWN_MAX:
                    del self._asked_mono[next(iter(self._asked_mono))]
                if len(found) == PLACES_MAX:
                    return found
        return found

    def _asking(self, place: Place) -> Call:
        topic, number = place

        def ask(take: Callable[[Any], None]) -> None:
            self._calls.read(topic, number, BEFORE_ALL, 1, 0, LOOK_MS, take)

        return ask
