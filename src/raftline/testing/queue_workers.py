"""Workers of the queue: receive and settle."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from raftline.machines.delivery.commands import BACKOFF, VERBS, Settle
from raftline.testing.batches import open_batches
from raftline.testing.clients import Clients
from raftline.testing.history import Op
from raftline.testing.queue_history import Delivery, Item, QueueHistory, Settlement, number_of

if TYPE_CHECKING:
    from raftline.model.calls import Received, Settled
    from raftline.testing.hosts import SimHost

RECEIVE_BYTES = 64 << 10


class Workers:
    """Receives and settles of one topic."""

    def __init__(self, clients: Clients, history: QueueHistory, topic: str) -> None:
        self._clients = clients
        self._history = history
        self._topic = topic

    def receive(
        self,
        host: "SimHost",
        partition: int,
        group: str,
        count_max: int,
        *,
        ordered: bool = False,
        wait_ms: int = 0,
        lease_ms: int = 0,
        member: str = "w",
        calm: bool = False,
        got: Callable[[Delivery], None] | None = None,
        ended: Callable[[Op], None] | None = None,
    ) -> Op:
        """Ask for messages; ``got`` hears of a delivery that is not empty."""
        topic = self._topic
        op = self._clients.invoke("receive", host, topic, partition)
        op.calm = calm
        deliveries: list[Delivery] = []

        def taken(op: Op, answer: "Received") -> None:
            if answer.spans:
                deliveries.append(self._delivery(op, group, member, answer, ordered=ordered))
                self._history.deliveries.append(deliveries[0])

        def over(op: Op) -> None:
            if deliveries and got is not None:
                got(deliveries[0])
            if ended is not None:
                ended(op)

        self._clients.call(
            host,
            op,
            lambda node, answer: node.receive(
                topic, group, partition, count_max, RECEIVE_BYTES, lease_ms, wait_ms, member,
                int(op.timeout_ms), answer, ordered=ordered,
            ),
            taken,
            over,
        )  # fmt: skip
        return op

    def _delivery(
        self, op: Op, group: str, member: str, answer: "Received", *, ordered: bool
    ) -> Delivery:
        numbers = {m.offset: number_of(m.value) for m in open_batches(answer.batches)}
        spans = answer.spans
        items = tuple(
            Item(offset, spans[at + 2], spans[at + 3], numbers.get(offset, -1))
            for at in range(0, len(spans), 4)
            for offset in range(spans[at], spans[at + 1])
        )
        return Delivery(
            op=op.id,
            topic=op.topic,
            partition=answer.partition,
            group=group,
            member=member,
            term=answer.term,
            sequence=answer.sequence,
            at_ms=answer.at_ms,
            deadline_ms=answer.deadline_ms,
            items=items,
            ordered=ordered,
        )

    def settle(
        self,
        host: "SimHost",
        delivery: Delivery,
        verb: str,
        items: "list[Item] | tuple[Item, ...]",
        *,
        calm: bool = False,
        ended: Callable[[Op], None] | None = None,
    ) -> Op:
        """Settle some messages of a delivery."""
        rng = self._clients.rng
        op = self._clients.invoke("settle", host, delivery.topic, delivery.partition)
        op.calm = calm
        delay_ms = 0
        if verb == "nack":
            delay_ms = BACKOFF if rng.randrange(2) else rng.randrange(1_500)
        elif verb == "extend":
            delay_ms = 200 + rng.randrange(3_000)
        settles: list[Settle] = []
        notes: list[Settlement] = []
        for (attempt, generation), offsets in _by_attempt(items).items():
            settles.append(
                Settle(
                    delivery.group, VERBS.index(verb), delivery.term, delivery.sequence, attempt,
                    generation, _ranges(offsets), delay_ms, f"{verb} by chance", delivery.member,
                )
            )  # fmt: skip
            notes.append(
                Settlement(
                    op=op.id,
                    topic=delivery.topic,
                    partition=delivery.partition,
                    group=delivery.group,
                    verb=verb,
                    term=delivery.term,
                    sequence=delivery.sequence,
                    attempt=attempt,
                    generation=generation,
                    offsets=tuple(offsets),
                )
            )
        self._history.settlements.extend(notes)

        def taken(op: Op, answer: "Settled") -> None:
            del op
            for note, lost in zip(notes, answer.lost, strict=True):
                note.lost = tuple(
                    o for a in range(0, len(lost), 2) for o in range(*lost[a : a + 2])
                )

        self._clients.call(
            host,
            op,
            lambda node, answer: node.settle(
                delivery.topic, delivery.partition, settles, int(op.timeout_ms), answer
            ),
            taken,
            ended,
        )
        return op


def _by_attempt(items: "list[Item] | tuple[Item, ...]") -> dict[tuple[int, int], list[int]]:
    found: dict[tuple[int, int], list[int]] = {}
    for item in items:
        found.setdefault((item.attempt, item.generation), []).append(item.offset)
    return found


def _ranges(offsets: list[int]) -> list[int]:
    """Return flat ranges of sorted offsets."""
    flat: list[int] = []
    for offset in sorted(offsets):
        if flat and flat[-1] == offset:
            flat[-1] = offset + 1
        else:
            flat += (offset, offset + 1)
    return flat


def expand(ranges: list[int]) -> tuple[int, ...]:
    """Return the offsets of flat ranges."""
    return tuple(
        offset for at in range(0, len(ranges), 2) for offset in range(ranges[at], ranges[at + 1])
    )
