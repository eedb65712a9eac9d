"""Those who look after the queue: messages that wait, cancels and moves, redrives and purges."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from raftline.machines.partition.side_car import hash_key
from raftline.model.calls import NewWaiting
from raftline.model.errors import DuplicateKey, RaftlineError
from raftline.model.names import dead_letter_topic
from raftline.testing.batches import seal
from raftline.testing.clients import Clients
from raftline.testing.history import Op
from raftline.testing.queue_history import Change, QueueHistory, Redrive, Sent
from raftline.testing.queue_producers import take_first
from raftline.testing.world import EPOCH_MS

if TYPE_CHECKING:
    from raftline.model.calls import Scheduled
    from raftline.testing.hosts import SimHost

Answer = dict[str, object]


class Keepers:
    """Calls about messages that wait and messages that died, of one topic."""

    def __init__(self, clients: Clients, history: QueueHistory, topic: str) -> None:
        self._clients = clients
        self._history = history
        self._topic = topic

    # Messages that wait

    def schedule(
        self,
        host: "SimHost",
        partition: int,
        delay_ms: int,
        *,
        priority: int = 0,
        key: bytes | None = None,
        dedup_key: str = "",
        calm: bool = False,
    ) -> Sent:
        """Send one message that is to wait."""
        rng, topic = self._clients.rng, self._topic
        op = self._clients.invoke("schedule", host, topic, partition)
        op.calm = calm
        number, value = self._history.next_value(rng.randrange(60))
        sent = Sent(
            op=op.id,
            number=number,
            topic=topic,
            partition=partition,
            key=key,
            priority=priority,
            dedup_key=dedup_key,
            delay_ms=delay_ms,
        )
        self._history.sends.append(sent)
        batch = seal([value], [EPOCH_MS + int(self._clients.world.now_ms)], keys=[key])
        dedup = hash_key(dedup_key.encode()) if dedup_key else b""
        item = NewWaiting(batch, -delay_ms, priority, dedup)

        def taken(op: Op, answer: "Scheduled") -> None:
            del op
            if answer.refusals:
                refusal = RaftlineError.from_wire(answer.refusals[0])
                assert isinstance(refusal, DuplicateKey), refusal
                take_first(sent, refusal.firsts[0][1])
            else:
                sent.waiting = answer.numbers[0]
                sent.due_ms = answer.at_ms + delay_ms

        self._clients.call(
            host,
            op,
            lambda node, answer: node.schedule(
                topic, partition, [item], int(op.timeout_ms), answer
            ),
            taken,
        )
        return sent

    def change(self, host: "SimHost", sent: Sent, verb: str, delay_ms: int = 0) -> Op:
        """Cancel or move a waiting message; it may have been released by now."""
        op = self._clients.invoke(verb, host, sent.topic, sent.partition)
        change = Change(
            op=op.id,
            topic=sent.topic,
            partition=sent.partition,
            verb=verb,
            waiting=sent.waiting,
            number=sent.number,
        )
        self._history.changes.append(change)
        arguments: Answer = {"number": sent.waiting}
        if verb == "move":
            arguments["due_ms"] = -delay_ms if delay_ms else sent.due_ms

        def taken(op: Op, answer: Answer) -> None:
            del op
            due_ms = answer.get("due_ms", 0)
            assert isinstance(due_ms, int)
            change.done, change.due_ms = True, due_ms

        self._ask(host, op, f"waiting.{verb}", arguments, taken)
        return op

    def trim(self, host: "SimHost", partition: int, offset: int) -> Op:
        """Remove messages of the log; those that wait stay."""
        op = self._clients.invoke("trim", host, self._topic, partition)
        op.offset = offset
        arguments: Answer = {"name": self._topic, "partition": partition, "offset": offset}

        def taken(op: Op, answer: Answer) -> None:
            del op, answer

        self._clients.call(
            host,
            op,
            lambda node, answer: node.command("topic.trim", arguments, int(op.timeout_ms), answer),
            taken,
        )
        return op

    def restart_group(self, host: "SimHost", partition: int, group: str, offset: int) -> Op:
        """Reset a group to an offset of a partition; -1: drop it, so that it begins anew."""
        name = "group.drop" if offset < 0 else "group.reset"
        op = self._clients.invoke(name, host, self._topic, partition)

        def taken(op: Op, answer: Answer) -> None:
            del op, answer

        self._ask(host, op, name, {"group": group, "offset": offset}, taken)
        return op

    # Messages that died

    def redrive(
        self,
        host: "SimHost",
        verb: str,
        *,
        group: str = "",
        calm: bool = False,
        ended: Callable[[Op], None] | None = None,
    ) -> Op:
        """Redrive or purge dead letters: all there are, or those of a group."""
        op = self._clients.invoke(verb, host, dead_letter_topic(self._topic), 0)
        op.calm = calm
        self._history.redrives.append(Redrive(op=op.id, topic=self._topic, group=group, verb=verb))
        wanted: Answer = {"group": group} if group else {}

        def taken(op: Op, answer: Answer) -> None:
            del op, answer

        self._ask(host, op, f"letters.{verb}", {"wanted": wanted}, taken, ended)
        return op

    def _ask(
        self,
        host: "SimHost",
        op: Op,
        name: str,
        arguments: Answer,
        taken: Callable[[Op, Answer], None],
        ended: Callable[[Op], None] | None = None,
    ) -> None:
        self._clients.call(
            host,
            op,
            lambda node, answer: node.ask(
                op.topic, op.partition, name, arguments, int(op.timeout_ms), answer
            ),
            taken,
            ended,
        )
