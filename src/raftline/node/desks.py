"""Desks: receive, from any node at the leader of a partition.

A receive names a partition or leaves the choice: then every leader of the topic is asked what
waits for the group, and the partition with the highest waiting lane serves it. While nothing waits
anywhere all leaders are asked to say when that changes.

Costs: a receive of a partition led here costs a few dictionary look-ups.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from raftline.machines.delivery.commands import START_FIRST, Policy
from raftline.model.calls import Received
from raftline.model.errors import (
    InvalidArgument,
    OverLimit,
    RaftlineError,
    TooLarge,
)
from raftline.model.limits import (
    MEMBER_ID_CHARS_MAX,
    PRIORITY_MIN,
    RECEIVE_COUNT_MAX,
    RECEIVERS_PARKED_MAX,
    WAIT_BOUND_MS,
)
from raftline.model.names import is_dead_letter_topic
from raftline.model.settings import effective
from raftline.node.counter import Receiver, Watcher, always
from raftline.node.desk import Desk, DeskSettings
from raftline.node.partition import PartitionHost
from raftline.node.receives import SpreadReceive
from raftline.node.remote import VERB_READY, VERB_RECEIVE, Reply
from raftline.node.replica import Replica
from raftline.node.router import DEFINITE

if TYPE_CHECKING:
    from raftline.node.node import Node

ReceivedDone = Callable[[Received | RaftlineError], None]


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


class AskReady(msgspec.Struct, frozen=True, array_like=True):
    """Ask a node which of these partitions, if it leads them, have something for a group."""

    shards: list[int]
    group: str
    wait_ms: int
    start: int = START_FIRST  # of the group, where this is the first that is heard of it
    ordered: bool = False


Ready = list[tuple[int, int]]  # shard, highest waiting lane


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
            is_open = left > 0 and not self._node.is_stopping  # else nobody could be told of it
            if is_open and isinstance(answer, DEFINITE):  # nothing was leased: ask who leads now
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

    # ------------------------------------------------------------------ what waits where

    def ready_here(self, shards: Sequence[int], ask: AskReady | Receive) -> Ready:
        """Return those of ``shards`` that are led here and have something for a group.

        A group that is to begin other than with all there is begins on all of them now, whichever
        serves: one where it has not yet begun is returned too, as the last to be asked.
        """
        found: Ready = []
        is_plain = ask.start == START_FIRST and not ask.ordered
        for shard in shards:
            replica = self._node.shards.get(shard)
            if replica is None or not replica.is_leader:
                continue
            desk = self.of(replica)
            lane = desk.waiting_lane(ask.group)
            if not is_plain and desk.begins(ask.group, ask.start, ordered=ask.ordered):
                lane = PRIORITY_MIN if lane is None else lane
            if lane is not None:
                found.append((shard, lane))
        return found

    def _led_elsewhere(self, shards: Sequence[int]) -> Ready:
        """Return those of ``shards`` that others lead, as the last to be asked.

        Who asks guessed wrong, and would again: asking such a one, it finds the leader.
        """
        node = self._node
        found: Ready = []
        for shard in shards:
            leader = node.router.known_leader(shard)
            if leader != node.id and node.peers.is_live(leader):
                found.append((shard, PRIORITY_MIN))
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
        found = self.ready_here(ask.shards, ask) + self._led_elsewhere(ask.shards)
        if found or ask.wait_ms <= 0:
            reply(_pack(found))
            return

        def changed() -> None:
            reply(_pack(self.ready_here(ask.shards, ask)))

        wait_ms = min(ask.wait_ms, timeout_ms)
        if not self.when_ready_here(ask.shards, ask.group, wait_ms, changed):
            changed()


def _check(ask: Receive) -> RaftlineError | None:
    if not 0 < ask.count_max <= RECEIVE_COUNT_MAX:
        return InvalidArgument(
            f"a receive takes 1 to {RECEIVE_COUNT_MAX} messages, not {ask.count_max}"
        )
    if len(ask.member) > MEMBER_ID_CHARS_MAX:
        return TooLarge("characters of a member's name", len(ask.member), MEMBER_ID_CHARS_MAX)
    return None


_pack = msgspec.msgpack.encode
_decode_receive = msgspec.msgpack.Decoder(Receive).decode
_decode_ready = msgspec.msgpack.Decoder(AskReady).decode
_decode_received = msgspec.msgpack.Decoder(Received).decode
