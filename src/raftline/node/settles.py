"""Settles: ack, nack, reject, extend, release, from any node to the leader of a partition.

Many settles of one turn share an entry; a call of very many goes piece by piece
(settle_pieces.py). What a leader had not begun when it ceased to lead is sent on to the next one;
what may have happened is never sent again.

Costs: a settle of a partition led here costs a few dictionary look-ups.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from raftline.machines.delivery.commands import BACKOFF, NACK, Policy, Settle
from raftline.machines.delivery.outcomes import Outcome, SettledRanges
from raftline.machines.delivery.retries import backoff_ms
from raftline.machines.machine import Refused
from raftline.model.calls import Settled
from raftline.model.errors import InvalidArgument, NotLeader, RaftlineError, TimedOut, TooLarge
from raftline.model.limits import DELIVER_BYTES_MAX, DELIVER_COMMANDS_MAX
from raftline.node.deliver_proposal import DeliverCall, DeliverDone, weigh
from raftline.node.desk import Desk
from raftline.node.partition import PartitionHost
from raftline.node.ports import Rng
from raftline.node.remote import VERB_SETTLE, Reply
from raftline.node.replica import Replica
from raftline.node.router import DEFINITE
from raftline.node.settle_pieces import (
    PIECE_ROWS,
    PiecewiseSettle,
    SettledDone,
    joined,
    rest_of,
    rows_of_all,
)

if TYPE_CHECKING:
    from raftline.node.node import Node


class SettleAll(msgspec.Struct, frozen=True, array_like=True):
    """Settles on their way to the leader."""

    shard: int
    settles: list[Settle]
    in_part: bool = False  # the asker understands an answer about a part of them


class SettleCall(DeliverCall):
    """Settles of one caller at a partition that is led here."""

    __slots__ = ("_settled", "_way", "settles", "shard")

    def __init__(
        self,
        way: "Settles",
        shard: int,
        settles: list[Settle],
        deadline: float,
        timeout_ms: int,
        settled: SettledDone,
        weight: int,
        rows: int,
    ) -> None:
        self.commands = settles  # as DeliverCall does, without a call: one for every ack
        self.weight = weight
        self.rows = rows
        self.deadline = deadline
        self.timeout_ms = timeout_ms
        self.done = self._tell
        self._way = way
        self._settled = settled
        self.settles = settles
        self.shard = shard

    def _tell(self, answer: Sequence[Outcome] | RaftlineError) -> None:
        if isinstance(answer, RaftlineError):
            # If nothing of them was proposed, whoever leads now is asked.
            self._way.onward(self.shard, self.settles, self.deadline, self._settled)(answer)
            return
        if len(answer) == 1:
            outcome = answer[0]
            if type(outcome) is SettledRanges and not outcome.lost:
                self._settled(_ALL_SETTLED)
                return
        self._settled(_settled(self.settles, answer))


class Settles:
    """The way of settles."""

    def __init__(self, node: "Node") -> None:
        self._node = node

    def serve(self) -> None:
        """Answer other nodes."""
        self._node.remote.handle(VERB_SETTLE, self._on_settle)

    def settle(
        self,
        topic: str,
        partition: int,
        settles: list[Settle],
        timeout_ms: int,
        done: SettledDone,
    ) -> None:
        """Ack, nack, reject or extend; answered when it is committed."""
        shard = self._node.locate(topic, partition)
        if isinstance(shard, RaftlineError):

            def found(left_ms: int) -> None:
                self.settle(topic, partition, settles, left_ms, done)

            self._node.catalog_check.find(topic, partition, timeout_ms, done, found)
            return
        replica = self._node.shards.get(shard)
        if replica is not None and replica.is_leader:
            self.settle_led(replica, settles, timeout_ms, done)
            return
        weight = _weight_of(settles)
        if isinstance(weight, RaftlineError):
            done(weight)
        else:
            self._settle_elsewhere(shard, settles, timeout_ms, done)

    def settle_led(
        self, replica: Replica, settles: list[Settle], timeout_ms: int, done: SettledDone
    ) -> None:
        """Settle on a partition that is led here, or by whoever leads it when it comes to that."""
        weight = weigh(settles[0]) if len(settles) == 1 else _weight_of(settles)
        if isinstance(weight, RaftlineError) or weight > DELIVER_BYTES_MAX:
            refusal = _weight_of(settles)
            assert isinstance(refusal, RaftlineError)
            done(refusal)
            return
        deadline = self._node.clock.mono_ms() + timeout_ms
        host = replica.host
        assert isinstance(host, PartitionHost)
        desk = host.desk or self._node.desks.of(replica)
        policy = desk.settings.policy
        if policy.jitter_percent:
            settles = [_jittered(self._node.rng, policy, settle) for settle in settles]
        rows = rows_of_all(settles, host.machine.delivery.groups.get)
        if rows > PIECE_ROWS:
            ended = self.onward(replica.shard, settles, deadline, done)
            self._settle_bulk(replica, desk, settles, deadline, timeout_ms, ended)
            return
        shard = replica.shard
        desk.take(SettleCall(self, shard, settles, deadline, timeout_ms, done, weight, rows))

    def _settle_bulk(
        self,
        replica: Replica,
        desk: Desk,
        settles: Sequence[Settle],
        deadline: float,
        timeout_ms: int,
        done: SettledDone,
    ) -> None:
        """Settle piece by piece at one desk: when it closes, what is left is answered."""
        host = replica.host
        assert isinstance(host, PartitionHost)

        def send(piece: list[Settle], rows: int, told: DeliverDone) -> None:
            if host.desk is desk:
                desk.take(DeliverCall(piece, deadline, timeout_ms, told, 0, rows))
            else:
                told(NotLeader(replica.name, replica.leader_node))

        find = host.machine.delivery.groups.get
        clock, name = self._node.clock, replica.name
        PiecewiseSettle(clock, name, settles, deadline, timeout_ms, find, send, done).next()

    def onward(
        self, shard: int, settles: list[Settle], deadline: float, done: SettledDone
    ) -> SettledDone:
        """Have whoever leads now do what is left when leadership ended; then ``done``."""

        def ended(answer: Settled | RaftlineError) -> None:
            left = int(deadline - self._node.clock.mono_ms())
            if isinstance(answer, RaftlineError):
                if left > 0 and isinstance(answer, DEFINITE):
                    self._settle_elsewhere(shard, settles, left, done)
                else:
                    done(answer)
                return
            error = None if answer.error is None else RaftlineError.from_wire(answer.error)
            if left <= 0 or not isinstance(error, DEFINITE):
                done(answer)
                return
            parts = rest_of(settles, answer)
            rest = [part for _, part in parts]
            self._settle_elsewhere(
                shard, rest, left, lambda more: done(joined(answer, parts, more))
            )

        return ended

    def _settle_elsewhere(
        self, shard: int, settles: list[Settle], timeout_ms: int, done: SettledDone
    ) -> None:
        def local(led: Replica, left_ms: int, answer: SettledDone) -> None:
            self._settle_here(led, settles, left_ms, answer)

        deadline = self._node.clock.mono_ms() + timeout_ms

        def told(answer: Settled | bytes | RaftlineError) -> None:
            found = _decode_settled(answer) if isinstance(answer, bytes) else answer
            if isinstance(found, Settled) and found.failed:
                self.onward(shard, settles, deadline, done)(found)
            else:
                done(found)

        asked = _pack(SettleAll(shard, settles, in_part=True))
        self._node.router.send(
            shard, VERB_SETTLE, [asked], timeout_ms, told, local, repeatable=False
        )

    def _settle_here(
        self, replica: Replica, settles: Sequence[Settle], timeout_ms: int, done: SettledDone
    ) -> None:
        if not isinstance(replica.host, PartitionHost):
            done(InvalidArgument(f"{replica.name} holds no messages"))
            return

        def applied(outcomes: Sequence[Outcome] | RaftlineError) -> None:
            done(outcomes if isinstance(outcomes, RaftlineError) else _settled(settles, outcomes))

        deadline = self._node.clock.mono_ms() + timeout_ms
        desk = self._node.desks.of(replica)
        policy = desk.settings.policy
        if policy.jitter_percent:
            settles = [_jittered(self._node.rng, policy, settle) for settle in settles]
        rows = rows_of_all(settles, replica.host.machine.delivery.groups.get)
        if rows > PIECE_ROWS:
            self._settle_bulk(replica, desk, settles, deadline, timeout_ms, done)
        else:
            desk.take(DeliverCall(settles, deadline, timeout_ms, applied, 0, rows))

    def _on_settle(self, body: memoryview, timeout_ms: int, reply: Reply) -> None:
        ask = _decode_settle(body)
        replica = self._node.led(ask.shard)
        if isinstance(replica, RaftlineError):
            reply(replica)
            return

        def told(answer: Settled | RaftlineError) -> None:
            if isinstance(answer, RaftlineError):
                reply(answer)
            elif answer.failed and not ask.in_part:  # an older node would take it for all
                reply(TimedOut(f"a settle of {replica.name}", timeout_ms))
            else:
                reply(_pack(answer))

        self._settle_here(replica, ask.settles, timeout_ms, told)


def _weight_of(settles: Sequence[Settle]) -> int | RaftlineError:
    count = len(settles)
    if not 0 < count <= DELIVER_COMMANDS_MAX:
        return TooLarge("settles in one request", count, DELIVER_COMMANDS_MAX)
    weight = weigh(settles[0]) if count == 1 else sum(map(weigh, settles))
    if weight > DELIVER_BYTES_MAX:
        return TooLarge("bytes of settles in one request", weight, DELIVER_BYTES_MAX)
    return weight


def _settled(settles: Sequence[Settle], outcomes: Sequence[Outcome]) -> Settled | RaftlineError:
    if len(outcomes) == 1:
        outcome = outcomes[0]
        if type(outcome) is SettledRanges and not outcome.lost:
            return _ALL_SETTLED
    lost: list[list[int]] = []
    for settle, outcome in zip(settles, outcomes, strict=True):
        if isinstance(outcome, SettledRanges):
            lost.append(list(outcome.lost))
        elif isinstance(outcome, Refused):
            if len(settles) == 1:
                return outcome.error()
            lost.append(list(settle.ranges))
    return Settled(lost)


def _jittered(rng: Rng, policy: Policy, settle: Settle) -> Settle:
    """Stamp a delay that varies into a nack that leaves it to the policy."""
    if settle.verb != NACK or settle.delay_ms != BACKOFF:
        return settle
    delay_ms = backoff_ms(policy, max(1, settle.attempt))
    swing = delay_ms * policy.jitter_percent // 100
    delay_ms += rng.randrange(-swing, swing + 1)
    return msgspec.structs.replace(settle, delay_ms=max(0, delay_ms))


_ALL_SETTLED = Settled([[]])
_pack = msgspec.msgpack.encode
_decode_settle = msgspec.msgpack.Decoder(SettleAll).decode
_decode_settled = msgspec.msgpack.Decoder(Settled).decode
