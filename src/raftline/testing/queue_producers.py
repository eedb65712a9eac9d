"""Producers of the queue: sends with keys, priorities and dedup keys."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from raftline.machines.partition.side_car import PriorityRun, SideCar, hash_key
from raftline.model.batch import check_batch
from raftline.model.errors import DuplicateKey, RaftlineError
from raftline.testing.batches import seal
from raftline.testing.clients import Clients
from raftline.testing.history import Op
from raftline.testing.queue_history import QueueHistory, Sent
from raftline.testing.world import EPOCH_MS

if TYPE_CHECKING:
    from raftline.model.calls import Appended
    from raftline.testing.hosts import SimHost


class Producers:
    """Sends to one topic."""

    def __init__(self, clients: Clients, history: QueueHistory, topic: str, keys: int) -> None:
        self._clients = clients
        self._history = history
        self._topic = topic
        self._keys = keys

    def send(
        self,
        host: "SimHost",
        partition: int,
        priorities: list[int],
        *,
        dedup_key: str = "",
        calm: bool = False,
        done: Callable[[Op], None] | None = None,
    ) -> list[Sent]:
        """Send one batch with a message for each of ``priorities``, once."""
        rng, topic = self._clients.rng, self._topic
        op = self._clients.invoke("send", host, topic, partition)
        op.calm = calm
        sends: list[Sent] = []
        values: list[bytes] = []
        for priority in priorities:
            number, value = self._history.next_value(rng.randrange(60))
            key = b"k%d" % rng.randrange(self._keys) if rng.randrange(3) else None
            sent = Sent(
                op=op.id,
                number=number,
                topic=topic,
                partition=partition,
                key=key,
                priority=priority,
                dedup_key=dedup_key,
            )
            sends.append(sent)
            values.append(value)
        self._history.sends.extend(sends)
        now_ms = EPOCH_MS + int(self._clients.world.now_ms)
        batch = seal(values, [now_ms] * len(values), keys=[sent.key for sent in sends])
        side = _side_of(sends)

        def taken(op: Op, answer: "Appended | _First") -> None:
            del op
            for at, sent in enumerate(sends):
                if isinstance(answer, _First):
                    take_first(sent, answer.first)
                else:
                    sent.offset = answer.base_offset + at
                    sent.duplicate = answer.duplicate

        self._clients.call(
            host,
            op,
            lambda node, answer: node.append(
                topic,
                partition,
                batch,
                check_batch(batch),
                int(op.timeout_ms),
                lambda result: answer(_duplicate_is_an_answer(result)),
                side,
            ),
            taken,
            done,
        )
        return sends


class _First(msgspec.Struct, frozen=True):
    """The first message with a dedup key: an offset, or -n for the waiting message n."""

    first: int


def _duplicate_is_an_answer(
    result: "Appended | RaftlineError",
) -> "Appended | _First | RaftlineError":
    """Gateways answer a duplicate with the first message's id, and so is it noted."""
    return _First(result.firsts[0][1]) if isinstance(result, DuplicateKey) else result


def take_first(sent: Sent, first: int) -> None:
    """Note that a send was a duplicate: of an offset, or of the waiting message -n."""
    sent.duplicate = True
    if first < 0:
        sent.waiting = -first
    else:
        sent.offset = first


def _side_of(sends: list[Sent]) -> SideCar | None:
    runs: list[PriorityRun] = [
        (at, at + 1, sent.priority) for at, sent in enumerate(sends) if sent.priority
    ]
    dedup = [(at, hash_key(s.dedup_key.encode())) for at, s in enumerate(sends) if s.dedup_key]
    return SideCar(tuple(runs), tuple(dedup)) if runs or dedup else None
