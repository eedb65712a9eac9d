"""Seats: what the catalog wants of this node, and what the node asks of the catalog.

The applied catalog says which replicas this node should hold; shards are opened and deleted to
match. As a shard's leader the node takes the steps of membership.py. For a replica that is out of
service it asks for a new incarnation.

Rules
    B1  Replicas are opened only from a catalog that a leader confirmed since our start: an old one
        might name a replica that was here and voted.
    B2  A replica that the catalog no longer names, in service or not, stays until its shard's
        leader, confirmed by a majority, says it is out of the configuration. So does one that the
        catalog wants a newer one of (it was moved away and back): it may go where the rest, live,
        level and wanted, is a majority without it.
    B3  Where the rest of a shard is no majority, nothing is automatic, and nothing is deleted that
        is out of service; nor where just now too few of the rest live.
    B4  A node that leaves is gone, and hung up on, only when it votes nowhere any more: not in the
        catalog either.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from raftline.machines.catalog.events import Event
from raftline.machines.catalog.state import REMOVED, Shard
from raftline.model.errors import (
    RaftlineError,
)
from raftline.model.ids import (
    CATALOG_SHARD,
    COORDINATION_SHARDS,
    NodeId,
    ReplicaId,
    ShardId,
    node_of,
)
from raftline.node.identity import Identity, save_identity
from raftline.node.membership import HandOver, Wish, next_step
from raftline.node.partition import PartitionHost
from raftline.node.remote import VERB_ADMIT, VERB_MEMBER, Reply
from raftline.node.replica import Replica
from raftline.raft.progress import ProgressState

if TYPE_CHECKING:
    from raftline.node.node import Node

LEVEL_ENTRIES = 256  # a learner this near to the end is level
ENOUGH_REPLICAS = 3  # one may be lost: the rest is a majority
MEMBER_ASK_MS = 2_000
ASK_TIMEOUT_MS = 3_000


class Seats:
    """Between the catalog and the replicas of this node."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._asked_member: dict[int, float] = {}
        self._asking_replace: set[int] = set()
        self._admitting = False
        self._confirming = False
        self.is_fresh = False  # the catalog here is as new as our start

    def serve(self) -> None:
        """Answer other nodes."""
        self._node.remote.handle(VERB_MEMBER, self._on_member)

    def catalog_changed(self, _events: Sequence[Event]) -> None:
        """Act on the applied catalog: peers, replicas to open, close or delete."""
        machine = self._node.catalog_machine
        if not machine.cluster:
            return
        self._node.partitioners.clear()
        self._know_peers()
        if not self._node.is_admitted():
            return
        ours = {shard.id: shard for shard in machine.shards_on(NodeId(self._node.id))}
        for shard, row in ours.items():
            wanted = row.replica_on(NodeId(self._node.id))
            assert wanted is not None
            known = self._node.shards.known(shard)
            if shard == CATALOG_SHARD:
                self._catalog_seat(wanted)
            elif not self.is_fresh:
                pass  # what we know may be old: a replica that was here must not begin anew
            elif self._node.shards.is_leaving(shard):
                pass  # opened anew when its directory is out of the way
            elif known == 0 and shard not in self._node.shards.quarantined:
                self._open(shard, wanted)
            elif 0 < known < wanted and self._node.shards.get(shard) is None:  # B2
                self._let_go(shard, lambda s=shard, w=wanted: self._open_if_wanted(s, w))
            replica = self._node.shards.get(shard)
            if replica is not None and row.topic:
                self._name(replica, row.topic, row.partition)
        self._delete_dead()
        self._node.desks.settings_changed()
        self._node.group_calls.catalog_changed()
        self.confirm()

    def _name(self, replica: Replica, topic: str, partition: int) -> None:
        replica.name = f"{topic}/{partition}"
        host = replica.host
        if isinstance(host, PartitionHost):
            host.name = replica.name
            settings = self._node.catalog_machine.topics[topic].settings
            default = self._node.settings.log.segment_bytes
            host.log.limit_segments(int(settings.get("segment_bytes", default)))
        self._node.place(topic, partition, replica)

    def _open_if_wanted(self, shard: ShardId, wanted: ReplicaId) -> None:
        row = self._node.catalog_machine.shards.get(shard)
        if row is None or self._node.shards.known(shard):
            return
        if row.replica_on(NodeId(self._node.id)) == wanted:
            self._open(shard, wanted)
        else:
            self.catalog_changed(())  # the catalog moved on meanwhile

    def _open(self, shard: ShardId, wanted: ReplicaId) -> None:
        row = self._node.catalog_machine.shards[shard]
        voters = row.initial if wanted in row.initial else ()

        def opened(replica: Replica) -> None:
            now = self._node.catalog_machine.shards.get(shard)
            if now is None or now.replica_on(NodeId(self._node.id)) != wanted:
                self.catalog_changed(())  # the catalog moved on while we opened
            elif now.topic:
                self._name(replica, now.topic, now.partition)
            if voters and row.initial[0] == wanted:
                self._node.elections.campaign_within(replica, 0)

        if shard in COORDINATION_SHARDS:
            self._node.shards.open_coordination(shard, wanted, voters, opened)
            return
        self._node.shards.open_partition(
            shard, wanted, row.place, row.topic_uuid, row.partition, voters, opened
        )

    def _catalog_seat(self, wanted: ReplicaId) -> None:
        """Keep the number of our catalog replica in the identity, for the next start."""
        if self._node.identity.catalog_replica != wanted:
            self.save(msgspec.structs.replace(self._node.identity, catalog_replica=wanted))

    def _know_peers(self) -> None:
        machine = self._node.catalog_machine
        addresses: dict[str, int] = {}
        used = {row.peer for row in machine.nodes.values() if row.state != REMOVED}
        for number, row in machine.nodes.items():
            if number == self._node.id:
                continue
            if row.state == REMOVED:
                if row.peer not in used:  # it may have come back under another number
                    self._node.peers.drop(row.peer)
                continue
            self._node.peers.know(row.peer, number)
            addresses[row.peer] = int(number)
        if addresses != self._node.identity.addresses:
            self.save(msgspec.structs.replace(self._node.identity, addresses=addresses))

    def save(self, identity: Identity, then: Callable[[], None] | None = None) -> None:
        """Keep the identity file up with what the catalog says."""
        self._node.identity = identity

        def saved(_: object, error: BaseException | None) -> None:
            if error is not None:
                self._node.log("warning", "identity.unsaved", reason=str(error))
            if then is not None:
                then()

        self._node.segments.run(lambda: save_identity(self._node.disk, identity), saved)

    def _delete_dead(self) -> None:
        """Remove replicas of deleted topics: the catalog has a tombstone."""
        machine = self._node.catalog_machine
        for replica in list(self._node.shards):
            host = replica.host
            if isinstance(host, PartitionHost) and machine.is_deleted(
                replica.shard, host.identity.topic_uuid
            ):
                topic, _, partition = replica.name.rpartition("/")
                if topic:
                    self._node.place(topic, int(partition), None)
                self._node.shards.destroy(replica.shard, lambda: None)
        for shard in list(self._node.shards.quarantined):
            if machine.is_gone(ShardId(shard)):  # nobody will ever give us another one
                self._node.shards.destroy(shard, lambda: None)

    def mend(self, replica: Replica) -> None:
        """As a shard's leader: take the next step toward what the catalog wants."""
        row = self._node.catalog_machine.shards.get(replica.shard)
        if row is None or not self.is_fresh or replica.raft.lead_transferee:
            return
        if replica.applied_index < replica.raft.commit:
            return
        step = next_step(
            replica.conf,
            replica.id,
            Wish(row.replicas, row.observers),
            live=lambda r: r == replica.id or self._node.peers.is_live(node_of(ReplicaId(r))),
            level=self.level(replica),
        )
        if step is None:
            return
        if isinstance(step, HandOver):
            replica.transfer(ReplicaId(step.to))
        else:
            self._node.log(
                "info", "membership.changing", shard=replica.name, change=str(step.changes)
            )
            replica.change_conf(step)

    @staticmethod
    def level(replica: Replica) -> Callable[[int], bool]:
        """Return a test for replicas that are near the end of the log."""
        progress = replica.raft.progress
        last = replica.raft.last_index

        def level(other: int) -> bool:
            found = progress.get(other)
            return (
                found is not None
                and found.state == ProgressState.REPLICATE
                and last - found.match <= LEVEL_ENTRIES
            )

        return level

    def ask_about_leaving(self, now: float, replicas: list[Replica]) -> None:
        """Ask the leaders of replicas the catalog no longer names; say when we are drained. B2."""
        if not self._node.is_ready or not self.is_fresh:
            return
        machine = self._node.catalog_machine
        for replica in replicas:
            row = machine.shards.get(replica.shard)
            if row is None or row.replica_on(NodeId(self._node.id)) == replica.id:
                continue
            if self._may_ask(replica.shard, now):
                self._ask_member(replica.shard, replica.id)
        for shard, (known, _) in list(self._node.shards.quarantined.items()):
            row = machine.shards.get(ShardId(shard))
            if row is None or not known or row.replica_on(NodeId(self._node.id)) is not None:
                continue  # it has a tombstone, or another one will take its place
            if shard != CATALOG_SHARD and self._may_ask(shard, now):
                self._ask_member(shard, known)
        row = machine.nodes.get(NodeId(self._node.id))
        if row is not None and row.state == "leaving" and self._is_drained():
            self._node.admin.run(
                "cluster.drained", {"node": self._node.id}, ASK_TIMEOUT_MS, lambda _: None
            )

    def _is_drained(self) -> bool:
        """Say whether nothing is left here but a copy of the catalog that does not vote. B4."""
        catalog = self._node.shards.get(CATALOG_SHARD)
        if catalog is None or len(self._node.shards) > 1:
            return False
        return catalog.id not in (*catalog.conf.voters, *catalog.conf.voters_outgoing)

    def _may_ask(self, shard: int, now: float) -> bool:
        """Say whether to ask about a shard now: not again and again."""
        if now - self._asked_member.get(shard, 0.0) < MEMBER_ASK_MS:
            return False
        self._asked_member[shard] = now
        return True

    def _ask_member(self, shard: int, known: int) -> None:
        """Ask a shard's leader about the replica of this number, in service here or not."""
        body = [msgspec.msgpack.encode((int(shard), int(known)))]
        shards = self._node.shards

        def answered(answer: bytes | RaftlineError) -> None:
            replica = shards.get(shard)
            present = shards.quarantined.get(shard, (0, ""))[0] if replica is None else replica.id
            if answer == b"out" and present == known:
                name = self._node.shard_name(shard) if replica is None else replica.name
                self._node.log("info", "replica.removed", shard=name)
                self._let_go(shard, lambda: self.catalog_changed(()))

        def local(led: Replica, _left: int, answer: Reply) -> None:
            if self._may_go(led, led.id):
                self._node.upkeep.hand_over(led)
            answer(b"in")

        self._node.router.send(
            shard, VERB_MEMBER, body, ASK_TIMEOUT_MS, answered, local, repeatable=True
        )

    def _let_go(self, shard: int, then: Callable[[], None]) -> None:
        """Delete a replica that is out; what may be the only whole one stays on the disk. B3."""
        row = self._node.catalog_machine.shards.get(ShardId(shard))
        is_needed = row is not None and not self._is_spare(row)
        is_needed = is_needed or self._node.recovery.is_unwritten(shard)
        keep = is_needed and shard in self._node.shards.quarantined
        self._node.shards.destroy(shard, then, keep=keep)

    def _is_spare(self, row: Shard) -> bool:
        """Say whether the rest of a shard, on nodes that live, is a majority without ours. B3."""
        nodes = [node for node in row.nodes() if node != self._node.id]
        live = sum(self._node.peers.is_live(node) for node in nodes)
        return len(row.replicas) >= ENOUGH_REPLICAS and live * 2 > len(row.replicas)

    def _on_member(self, body: memoryview, _timeout_ms: int, reply: Reply) -> None:
        shard, asked = msgspec.msgpack.decode(body, type=tuple[int, int])
        replica = self._node.led(shard)
        if isinstance(replica, RaftlineError):
            reply(replica)
            return

        def confirmed(error: RaftlineError | None) -> None:
            reply(error if error is not None else b"in" if self._is_in(replica, asked) else b"out")

        replica.read_index(confirmed)  # a leader of the past knows a configuration of the past

    def _is_in(self, replica: Replica, asked: int) -> bool:
        conf = replica.conf
        present = (*conf.voters, *conf.learners, *conf.voters_outgoing, *conf.learners_next)
        row = self._node.catalog_machine.shards.get(replica.shard)
        wanted = row is not None and asked in (*row.replicas, *row.observers)
        return wanted or (asked in present and not self._may_go(replica, asked))

    def _may_go(self, replica: Replica, asked: int) -> bool:
        """Say whether a newer replica may take a voter's place on its node already. B2.

        One that went is never wanted again, so it is not counted in the rest of the next to ask.
        """
        conf = replica.conf
        row = self._node.catalog_machine.shards.get(replica.shard)
        newer = None if row is None else row.replica_on(node_of(ReplicaId(asked)))
        if row is None or newer is None or newer <= asked or conf.voters_outgoing:
            return False
        level, is_live = self.level(replica), self._node.peers.is_live
        rest = [
            v
            for v in conf.voters
            if v != asked
            and v in row.replicas
            and (v == replica.id or (is_live(node_of(ReplicaId(v))) and level(v)))
        ]
        return asked in conf.voters and 2 * len(rest) > len(conf.voters)

    def ask_replacements(self) -> None:
        """Ask the catalog for new incarnations of replicas that are out of service."""
        if not self._node.founding.done:
            return
        machine = self._node.catalog_machine
        for shard, (known, _) in list(self._node.shards.quarantined.items()):
            replica = known
            row = machine.shards.get(ShardId(shard))
            if self._node.recovery.is_unwritten(shard):
                continue  # nothing is wrong with what is on its disk
            if shard == CATALOG_SHARD:
                replica = self._node.identity.catalog_replica
            elif row is None or row.replica_on(NodeId(self._node.id)) is None:
                continue
            elif replica and row.replica_on(NodeId(self._node.id)) != replica:
                continue  # it has a new one; the catalog's change opens it
            elif len(row.replicas) < ENOUGH_REPLICAS:
                continue  # no majority without it: nothing is automatic
            if shard not in self._asking_replace:
                self._replace(shard, replica)

    def _replace(self, shard: int, seen: int) -> None:
        """Ask for the next incarnation after ``seen``; 0 asks which is the present one."""
        self._asking_replace.add(shard)

        def answered(answer: dict[str, object] | RaftlineError) -> None:
            self._asking_replace.discard(shard)
            found = self._node.shards.quarantined.get(shard)
            if isinstance(answer, RaftlineError) or found is None:
                return
            replica = answer.get("replica")
            assert isinstance(replica, int)
            if shard == CATALOG_SHARD:
                self.save(msgspec.structs.replace(self._node.identity, catalog_replica=replica))
                self._node.shards.destroy(shard, self._node.open_catalog)
            elif not seen:
                self._node.shards.quarantined[shard] = (replica, found[1])

        arguments: dict[str, object] = {"shard": shard, "node": self._node.id, "seen": seen}
        self._node.admin.ask_catalog("replica.replace", arguments, ASK_TIMEOUT_MS, answered)

    def confirm(self) -> None:
        """After a start: learn that what our catalog says is not from before we went down."""
        check = self._node.catalog_check
        if (self.is_fresh and check.is_sure) or self._confirming or not self._node.is_ready:
            return
        self._confirming = True

        def checked(error: RaftlineError | None) -> None:
            self._confirming = False
            if error is None and not self.is_fresh:
                self.is_fresh = True
                self.catalog_changed(())

        check.run(ASK_TIMEOUT_MS, checked)

    def refresh_row(self) -> None:
        """Tell the catalog our addresses where it has others."""
        row = self._node.catalog_machine.nodes.get(NodeId(self._node.id))
        ours = self._node.admit_request()
        if row is None or not self._node.is_admitted() or self._admitting or row.state == REMOVED:
            return
        if (row.peer, row.http, row.grpc, row.kafka, row.rack) == (
            ours.peer,
            ours.http,
            ours.grpc,
            ours.kafka,
            ours.rack,
        ):
            return
        self._admitting = True

        def answered(_: object) -> None:
            self._admitting = False

        def local(replica: Replica, left_ms: int, answer: Reply) -> None:
            self._node.admissions.admit(replica, ours, left_ms, answer)

        self._node.router.send(
            CATALOG_SHARD,
            VERB_ADMIT,
            [msgspec.msgpack.encode(ours)],
            ASK_TIMEOUT_MS,
            answered,
            local,
            repeatable=True,
        )
