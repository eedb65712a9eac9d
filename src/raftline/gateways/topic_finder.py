"""Choosing partitions, and creating the topic first where a first message may do that.

The partition of a key depends on the number of partitions, so a topic that does not exist yet is
created (and seen by this node) before anything is chosen: the same key never moves.
"""

from collections.abc import Callable, Sequence

from raftline.gateways.ports import Calls
from raftline.gateways.second_look import SecondLook
from raftline.model.errors import NotReady, RaftlineError, TopicExists, UnknownTopic
from raftline.model.tasks import TASK_TOPIC, TASK_TOPIC_SETTINGS
from raftline.node.ports import Clock

LOOK_AGAIN_MS = 10

Chosen = Callable[["list[int] | RaftlineError"], None]


class TopicFinder:
    """Asks the node for partitions."""

    __slots__ = ("_auto_create", "_calls", "_clock", "_look")

    def __init__(self, clock: Clock, calls: Calls, *, auto_create: bool) -> None:
        self._clock = clock
        self._calls = calls
        self._look = SecondLook(clock, calls)
        self._auto_create = auto_create

    def choose(
        self, topic: str, keys: Sequence[bytes | None], timeout_ms: int, done: Chosen
    ) -> None:
        """Choose a partition for each key (None: round robin); create the topic if need be."""
        chosen = self._calls.partitions_for(topic, keys)
        if isinstance(chosen, RaftlineError) and self._look.is_due(chosen):
            self._look_again(chosen, topic, keys, timeout_ms, done)
        elif chosen is not None:
            done(chosen)
        elif not self._auto_create:
            done(UnknownTopic(topic))
        else:
            deadline_ms = self._clock.mono_ms() + timeout_ms

            def created(answer: dict[str, object] | RaftlineError) -> None:
                if isinstance(answer, RaftlineError) and not isinstance(answer, TopicExists):
                    done(answer)
                else:
                    self._again(topic, keys, deadline_ms, done)

            self._calls.command("topic.create", _new(topic), timeout_ms, created)

    def _look_again(
        self,
        error: RaftlineError,
        topic: str,
        keys: Sequence[bytes | None],
        timeout_ms: int,
        done: Chosen,
    ) -> None:
        def judged(told: RaftlineError | None) -> None:
            done(told or self._calls.partitions_for(topic, keys) or UnknownTopic(topic))

        self._look.take(error, timeout_ms, judged)

    def _again(
        self, topic: str, keys: Sequence[bytes | None], deadline_ms: float, done: Chosen
    ) -> None:
        chosen = self._calls.partitions_for(topic, keys)
        if chosen is not None:
            done(chosen)
        elif self._clock.mono_ms() > deadline_ms:
            done(NotReady(f"topic {topic!r} is created and not known here yet"))
        else:
            self._clock.call_later(
                LOOK_AGAIN_MS, lambda: self._again(topic, keys, deadline_ms, done)
            )


def _new(topic: str) -> dict[str, object]:
    """Return what a topic is created with that nobody described."""
    if topic == TASK_TOPIC:
        return {"name": topic, "settings": dict(TASK_TOPIC_SETTINGS)}
    return {"name": topic}
