"""Questions about one partition, answered by its leader: anything that is asked now and then.

A part of the node adds a handler under a name; any node asks by topic, partition and name. The
leader confirms its leadership first, so a handler sees everything that was committed when the
question was asked, and every lease that was handed out by then. Handlers that propose something do
it so that a repeat does no harm: questions are repeated when an answer got lost.

Costs: a round to a majority each. What is paid per batch has calls of its own (calls.py).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from raftline.machines.delivery.outcomes import Outcome
from raftline.machines.machine import Refused
from raftline.model.errors import InvalidArgument, NotFound, RaftlineError
from raftline.node.partition import PartitionHost
from raftline.node.remote import VERB_ASK, Reply
from raftline.node.replica import Replica

if TYPE_CHECKING:
    from raftline.node.node import Node

Arguments = dict[str, Any]
Done = Callable[[dict[str, Any] | RaftlineError], None]
Handler = Callable[[PartitionHost, Arguments, int, Done], None]  # host, arguments, timeout_ms, done


class Question(msgspec.Struct, frozen=True, array_like=True):
    """One question on its way between nodes."""

    shard: int
    name: str
    arguments: Arguments


class Questions:
    """The questions this node can answer, and asking others."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._handlers: dict[str, Handler] = {}

    def serve(self) -> None:
        """Answer other nodes."""
        self._node.remote.handle(VERB_ASK, self._on_ask)

    def add(self, name: str, handler: Handler) -> None:
        """Let ``handler`` answer questions of this name."""
        assert name not in self._handlers, name
        self._handlers[name] = handler

    def ask(
        self,
        topic: str,
        partition: int,
        name: str,
        arguments: Arguments,
        timeout_ms: int,
        done: Done,
    ) -> None:
        """Ask the leader of a partition, wherever it is."""
        shard = self._node.locate(topic, partition)
        if isinstance(shard, NotFound):  # an answer may be made of that: none of it is guessed
            self._node.catalog_check.before(
                timeout_ms,
                done,
                lambda left_ms: self._send(
                    self._node.locate(topic, partition), name, arguments, left_ms, done
                ),
            )
        else:
            self._send(shard, name, arguments, timeout_ms, done)

    def _send(
        self,
        shard: int | RaftlineError,
        name: str,
        arguments: Arguments,
        timeout_ms: int,
        done: Done,
    ) -> None:
        if isinstance(shard, RaftlineError):
            done(shard)
            return

        def local(replica: Replica, left_ms: int, answer: Done) -> None:
            self._answer(replica, name, arguments, left_ms, answer)

        self._node.router.send(
            shard,
            VERB_ASK,
            [_pack(Question(shard, name, arguments))],
            timeout_ms,
            lambda answer: done(_decode_answer(answer) if isinstance(answer, bytes) else answer),
            local,
            repeatable=True,
        )

    def _on_ask(self, body: memoryview, timeout_ms: int, reply: Reply) -> None:
        question = _decode_question(body)
        replica = self._node.led(question.shard)
        if isinstance(replica, RaftlineError):
            reply(replica)
            return
        self._answer(
            replica,
            question.name,
            question.arguments,
            timeout_ms,
            lambda answer: reply(answer if isinstance(answer, RaftlineError) else _pack(answer)),
        )

    def _answer(
        self, replica: Replica, name: str, arguments: Arguments, timeout_ms: int, answer: Done
    ) -> None:
        handler = self._handlers.get(name)
        if handler is None:
            answer(
                InvalidArgument(f"no partition answers {name!r}", "is a node older than others?")
            )
            return
        if not isinstance(replica.host, PartitionHost):
            answer(InvalidArgument(f"{replica.name} holds no messages"))
            return

        def confirmed(error: RaftlineError | None) -> None:
            host = replica.host
            if error is not None:
                answer(error)
                return
            assert isinstance(host, PartitionHost)
            try:
                handler(host, arguments, timeout_ms, answer)
            except RaftlineError as refusal:
                answer(refusal)

        host = replica.host
        if host.desk is not None and host.desk.has_reserved:  # who was given it may be asking
            deadline = self._node.clock.mono_ms() + timeout_ms
            host.deliver((), deadline, timeout_ms, lambda told: confirmed(_error_of(told)))
        else:
            replica.read_index(confirmed)


def _error_of(told: Sequence[Outcome] | RaftlineError) -> RaftlineError | None:
    return told if isinstance(told, RaftlineError) else None


def answering(answer: Arguments, done: Done) -> Callable[[Sequence[Outcome] | RaftlineError], None]:
    """Return who hears of one delivery command: ``done`` with ``answer``, or why it was refused."""

    def applied(outcomes: Sequence[Outcome] | RaftlineError) -> None:
        if isinstance(outcomes, RaftlineError):
            done(outcomes)
        elif isinstance(outcomes[0], Refused):
            done(outcomes[0].error())
        else:
            done(answer)

    return applied


_pack = msgspec.msgpack.encode
_decode_question = msgspec.msgpack.Decoder(Question).decode
_decode_answer = msgspec.msgpack.Decoder(Arguments).decode
