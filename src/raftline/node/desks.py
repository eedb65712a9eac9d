"""Desks: receive and settle, from any node to the leader of a partition.

A receive names a partition or leaves the choice: then every leader of the topic is asked what
waits for the group, and the partition with the highest waiting lane serves it. While nothing waits
anywhere all leaders are asked to say when that changes.

Costs: a receive and a settle of a partition led here cost a few dictionary look-ups; many settles
share one entry.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from raftline.machines.delivery.commands import BACKOFF, NACK, START_FIRST, Policy, Settle
from raftline.machines.delivery.outcomes import Outcome, SettledRanges
from raftline.machines.delivery.retries import backoff_ms
from raftline.machines.machine import Refused
from raftline.model.calls import Received, Settled
from raftline.model.errors import InvalidArgument, OverLimit, RaftlineError, TooLarge
from raftline.model.limits import (
    DELIVER_BYTES_MAX,
    DELIVER_COMMANDS_MAX,
    MEMBER_ID_CHARS_MAX,
    RECEIVE_COUNT_MAX,
    RECEIVERS_PARKED_MAX,
    WAIT_BOUND_MS,
)
from raftline.model.names import is_dead_letter_topic
from raftline.model.settings import effective
from raftline.node.counter import Receiver, Watcher, always
from raftline.node.deliver_proposal import DeliverCall, weigh
from raftline.node.desk import Desk, DeskSettings
from raftline.node.partition import PartitionHost
from raftline.node.ports import Rng
from raftline.node.receives import SpreadReceive
from raftline.node.remote import VERB_READY, VERB_RECEIVE, VERB_SETTLE, Reply
from raftline.node.replica import Replica
from raftline.node.router import DEFINITE

if TYPE_CHECKING:
    from raftline.node.node import Node

ReceivedDone = Callable[[Received | RaftlineError], None]
SettledDone = Callable[[Settled | RaftlineError], None]


class Receive(msgspec.Struct, frozen=True, array_like=True):
    """A receive on its way to the leader."""

    shard: int
    group: str
    count_max: int
    bytes_max: int
    lease_ms: int
    wait_ms: int
    member: str
    start: int = START_FIRST
    ordered: bool = False


class SettleAll(msgspec.Struct, frozen=True, array_like=True):
    """Settles on their way to the leader."""

    shard: int
    settles: list[Settle]


class AskReady(msgspec.Struct, frozen=True, array_like=True):
    """Ask a node which of these partitions, if it leads them, have something for a group."""

    shards: list[int]
    group: str
    wait_ms: int


Ready = list[tuple[int, int]]  # shard, highest waiting lane


class SettleCall(DeliverCall):
    """Settles of one caller at a partition that is led here."""

    __slots__ = ("_desks", "_settled", "settles", "shard")

    def __init__(
        self,
        desks: "Desks",
        shard: int,
        settles: list[Settle],
        deadline: float,
        timeout_ms: int,
        settled: SettledDone,
        weight: int,
    ) -> None:
        self.commands = settles  # as DeliverCall does, without a call: one for every ack
        self.weight = weight
        self.deadline = deadline
        self.timeout_ms = timeout_ms
        self.done = self._tell
        self._desks = desks
        self._settled = settled
        self.settles = settles
        self.shard = shard

    def _tell(self, answer: Sequence[Outcome] | RaftlineError) -> None:
        if isinstance(answer, RaftlineError):
            self._desks.refused(self, answer, self._settled)
            return
        if len(answer) == 1:
            outcome = answer[0]
            if type(outcome) is SettledRanges and not outcome.lost:
                self._settled(_ALL_SETTLED)
                return
        self._settled(_settled(self.settles, answer))


class Desks:
    """Every partition's desk here, and the way to those elsewhere."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._turns: dict[str, int] = {}  # by topic: which partition is asked first
        self._spread = 0  # receives over all partitions that are not answered yet

    def serve(self) -> None:
        """Answer other nodes."""
        remote = self._node.remote
        remote.handle(VERB_RECEIVE, self._on_receive)
        remote.handle(VERB_SETTLE, self._on_settle)
        remote.handle(VERB_READY, self._on_ready)

    # ------------------------------------------------------------------ desks

    def of(self, replica: Replica) -> Desk:
        """Return the desk of a partition that is led here; open it if there is none yet."""
        host = replica.host
        assert isinstance(host, PartitionHost)
        desk = host.desk
        if desk is None:
            desk = Desk(host, replica, self._node.clock)
            desk.settings = self._settings_of(replica)
            host.desk = desk
            desk.arm()
        return desk

    def next_turn(self, topic: str) -> int:
        """Return a number that grows with every receive over a topic's partitions."""
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + 1
        return turn

    def role_changed(self, replica: Replica) -> None:
        """A replica of a partition began or ceased to lead."""
        host = replica.host
        if not isinstance(host, PartitionHost):
            return
        host.open_desk = lambda: self.of(replica)
        desk = host.desk
        if desk is not None and not (replica.is_leader and desk.term == replica.raft.term):
            host.desk = None
            desk.close()
        if replica.is_leader and host.desk is None and host.machine.delivery.groups:
            self.of(replica)

    def settings_changed(self) -> None:
        """The catalog changed: topics may have other settings."""
        for replica in self._node.shards:
            host = replica.host
            if isinstance(host, PartitionHost) and host.desk is not None:
                host.desk.adopt(self._settings_of(replica))

    def _settings_of(self, replica: Replica) -> DeskSettings:
        machine = self._node.catalog_machine
        row = machine.shards.get(replica.shard)
        topic = machine.topics.get(row.topic) if row is not None else None
        found = effective(topic.settings if topic is not None else {})
        is_last = topic is not None and is_dead_letter_topic(topic.name)  # it stays there anyhow
        policy = Policy(
            max_retries=int(found["max_retries"]),
            backoff_ms=int(found["backoff_ms"]),
            backoff_ms_max=int(found["backoff_ms_max"]),
            dead_letters=bool(found["dead_letters"]) and not is_last,
            jitter_percent=int(found["backoff_jitter"]),
        )
        raft = self._node.settings.raft
        return DeskSettings(
            policy,
            int(found["lease_ms"]),
            str(found["priorities"]),
            WAIT_BOUND_MS,
            raft.election_ticks * raft.tick_ms,
            is_durable=found["grant"] == "durable",
        )

    # ------------------------------------------------------------------ receive

    def receive(
        self,
        topic: str,
        partition: int,
        ask: Receive,
        timeout_ms: int,
        done: ReceivedDone,
        is_wanted: Callable[[], bool] = always,
    ) -> None:
        """Lease messages of one partition, or (-1) of whichever has the highest lane waiting."""
        refusal = _check(ask)
        if refusal is not None:
            done(refusal)
            return
        if partition < 0:
            self._receive_spread(topic, ask, timeout_ms, done, is_wanted)
            return
        shard = self._node.locate(topic, partition)
        if isinstance(shard, RaftlineError):
            done(shard)
            return
        ask = msgspec.structs.replace(ask, shard=shard)
        self.receive_shard(ask, timeout_ms, done, is_wanted)

    def _receive_spread(
        self,
        topic: str,
        ask: Receive,
        timeout_ms: int,
        done: ReceivedDone,
        is_wanted: Callable[[], bool],
    ) -> None:
        if self._spread >= RECEIVERS_PARKED_MAX:
            what = "receives that wait on this node"
            done(OverLimit(what, self._spread, RECEIVERS_PARKED_MAX))
            return
        self._spread += 1

        def answered(answer: Received | RaftlineError) -> None:
            self._spread -= 1
            done(answer)

        SpreadReceive(self._node, self, topic, ask, timeout_ms, answered, is_wanted).start()

    def receive_shard(
        self,
        ask: Receive,
        timeout_ms: int,
        done: ReceivedDone,
        is_wanted: Callable[[], bool] = always,
    ) -> None:
        """Lease messages of one shard, wherever it is led."""
        replica = self._node.shards.get(ask.shard)
        if replica is None or not replica.is_leader:
            self._receive_elsewhere(ask, timeout_ms, done)
            return
        give_up = self._node.clock.mono_ms() + timeout_ms

        def answered(answer: Received | RaftlineError) -> None:
            left = int(give_up - self._node.clock.mono_ms())
            if left > 0 and isinstance(answer, DEFINITE):  # nothing was leased: ask who leads now
                wait_ms = min(max(0, ask.wait_ms - (timeout_ms - left)), left)
                again = msgspec.structs.replace(ask, wait_ms=wait_ms)
                self._receive_elsewhere(again, left, done)
            else:
                done(answer)

        self._receive_here(replica, ask, ask.wait_ms, timeout_ms, answered, is_wanted)

    def _receive_elsewhere(self, ask: Receive, timeout_ms: int, done: ReceivedDone) -> None:
        def local(led: Replica, left_ms: int, answer: ReceivedDone) -> None:
            self._receive_here(led, ask, min(ask.wait_ms, left_ms), left_ms, answer)

        self._node.router.send(
            ask.shard,
            VERB_RECEIVE,
            [_pack(ask)],
            timeout_ms,
            lambda answer: done(_decode_received(answer) if isinstance(answer, bytes) else answer),
            local,
            repeatable=True,  # what a lost answer leased comes back by itself, as for any caller
        )

    def _receive_here(
        self,
        replica: Replica,
        ask: Receive,
        wait_ms: int,
        timeout_ms: int,
        done: ReceivedDone,
        is_wanted: Callable[[], bool] = always,
    ) -> None:
        if not isinstance(replica.host, PartitionHost):
            done(InvalidArgument(f"{replica.name} holds no messages"))
            return
        desk = self.of(replica)
        if desk.parked(ask.group) >= RECEIVERS_PARKED_MAX:
            done(
                OverLimit(
                    f"receivers of {ask.group} that wait at {replica.name}",
                    desk.parked(ask.group),
                    RECEIVERS_PARKED_MAX,
                )
            )
            return
        now = self._node.clock.mono_ms()
        desk.receive(
            Receiver(
                ask.group,
                ask.count_max,
                ask.bytes_max,
                ask.lease_ms,
                ask.member,
                now + wait_ms,
                now + timeout_ms,
                timeout_ms,
                ask.start,
                done,
                ordered=ask.ordered,
                is_wanted=is_wanted,
            )
        )

    def _on_receive(self, body: memoryview, timeout_ms: int, reply: Reply) -> None:
        ask = _decode_receive(body)
        replica = self._node.led(ask.shard)
        if isinstance(replica, RaftlineError):
            reply(replica)
            return
        refusal = _check(ask)
        if refusal is not None:
            reply(refusal)
            return
        self._receive_here(
            replica,
            ask,
            min(ask.wait_ms, timeout_ms),
            timeout_ms,
            lambda answer: reply(answer if isinstance(answer, RaftlineError) else _pack(answer)),
        )

    # ------------------------------------------------------------------ settle

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
            done(shard)
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
        desk = host.desk or self.of(replica)
        policy = desk.settings.policy
        if policy.jitter_percent:
            settles = [_jittered(self._node.rng, policy, settle) for settle in settles]
        desk.take(SettleCall(self, replica.shard, settles, deadline, timeout_ms, done, weight))

    def refused(self, call: "SettleCall", error: RaftlineError, done: SettledDone) -> None:
        """Settles were refused here; if nothing of them was proposed, ask who leads now."""
        left = int(call.deadline - self._node.clock.mono_ms())
        if left > 0 and isinstance(error, DEFINITE):
            self._settle_elsewhere(call.shard, call.settles, left, done)
        else:
            done(error)

    def _settle_elsewhere(
        self, shard: int, settles: list[Settle], timeout_ms: int, done: SettledDone
    ) -> None:
        def local(led: Replica, left_ms: int, answer: SettledDone) -> None:
            self._settle_here(led, settles, left_ms, answer)

        self._node.router.send(
            shard,
            VERB_SETTLE,
            [_pack(SettleAll(shard, settles))],
            timeout_ms,
            lambda answer: done(_decode_settled(answer) if isinstance(answer, bytes) else answer),
            local,
            repeatable=False,
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
        desk = self.of(replica)
        policy = desk.settings.policy
        if policy.jitter_percent:
            settles = [_jittered(self._node.rng, policy, settle) for settle in settles]
        desk.collect(settles, deadline, timeout_ms, applied)

    def _on_settle(self, body: memoryview, timeout_ms: int, reply: Reply) -> None:
        ask = _decode_settle(body)
        replica = self._node.led(ask.shard)
        if isinstance(replica, RaftlineError):
            reply(replica)
            return
        self._settle_here(
            replica,
            ask.settles,
            timeout_ms,
            lambda answer: reply(answer if isinstance(answer, RaftlineError) else _pack(answer)),
        )

    # ------------------------------------------------------------------ what waits where

    def ready_here(self, shards: Sequence[int], group: str) -> Ready:
        """Return those of ``shards`` that are led here and have something for a group."""
        found: Ready = []
        for shard in shards:
            replica = self._node.shards.get(shard)
            if replica is None or not replica.is_leader:
                continue
            lane = self.of(replica).waiting_lane(group)
            if lane is not None:
                found.append((shard, lane))
        return found

    def leads_any(self, shards: Sequence[int]) -> bool:
        """Say whether one of ``shards`` is led here."""
        replicas = [self._node.shards.get(shard) for shard in shards]
        return any(replica is not None and replica.is_leader for replica in replicas)

    def when_ready_here(
        self, shards: Sequence[int], group: str, wait_ms: int, call: Callable[[], None]
    ) -> bool:
        """Call once one of ``shards`` led here has something, or time is up; False: none is."""
        watcher = Watcher(group, self._node.clock.mono_ms() + wait_ms, call)
        is_any = False
        for shard in shards:
            replica = self._node.shards.get(shard)
            if replica is not None and replica.is_leader:
                is_any = True
                self.of(replica).watch(watcher)
        return is_any

    def _on_ready(self, body: memoryview, timeout_ms: int, reply: Reply) -> None:
        ask = _decode_ready(body)
        found = self.ready_here(ask.shards, ask.group)
        if found or ask.wait_ms <= 0:
            reply(_pack(found))
            return

        def changed() -> None:
            reply(_pack(self.ready_here(ask.shards, ask.group)))

        wait_ms = min(ask.wait_ms, timeout_ms)
        if not self.when_ready_here(ask.shards, ask.group, wait_ms, changed):
            changed()


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


def _check(ask: Receive) -> RaftlineError | None:
    if not 0 < ask.count_max <= RECEIVE_COUNT_MAX:
        return InvalidArgument(
            f"a receive takes 1 to {RECEIVE_COUNT_MAX} messages, not {ask.count_max}"
        )
    if len(ask.member) > MEMBER_ID_CHARS_MAX:
        return TooLarge("characters of a member's name", len(ask.member), MEMBER_ID_CHARS_MAX)
    return None


_ALL_SETTLED = Settled([[]])
_pack = msgspec.msgpack.encode
_decode_receive = msgspec.msgpack.Decoder(Receive).decode
_decode_settle = msgspec.msgpack.Decoder(SettleAll).decode
_decode_ready = msgspec.msgpack.Decoder(AskReady).decode
_decode_received = msgspec.msgpack.Decoder(Received).decode
_decode_settled = msgspec.msgpack.Decoder(Settled).decode
