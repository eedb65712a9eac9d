"""Recovery after the loss of a majority: nothing is automatic, a person accepts the loss.

For every shard whose majority is on nodes that are gone, the live replica with the longest log goes
on alone; the catalog then forgets the lost nodes, so that the shard's own leader fills new replicas
on those that are left. Whether there is a majority is for that replica to say: who has none of a
shard can only guess, and who led it when it went quiet does so still, by its own account.

What may be lost: entries that only lost nodes had. What the lost nodes hold must never come back:
their disks are to be wiped before they are started again.

Rules
    V1  The survivor goes on from an index and term that no other log has, as if it had been given
        an empty entry there: so whoever is to follow it is filled with its state, and with that
        learns the new configuration. By entries, the live ones among the others would keep one
        that counts the lost nodes. Also an empty survivor begins at an index, as a new shard does.
    V2  Changes of the configuration that it had not applied were meant for the old one: void.
    V3  Nobody goes on alone before every live node has said how far it is: the one that could not
        just now may have the longest log, and would be told that it is out.
    V4  A voter on a live node may be gone all the same. Its node is asked: it is, if its replica is
        out of service, or is another one, or if there is none and the catalog wants none of that
        number there. A voter that is wanted and not open yet counts.
    V5  Not by way of a node that leaves or left: nobody talks to it any more, so to itself it is
        the only one that lives, and its catalog would go on beside the others'.
    V6  Who could not write that it goes on alone is out of service until its node is started again,
        as it was before then. Until then nobody goes on in its place, and it gets no new number.
"""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import msgspec

from raftline.machines.catalog.state import MEMBER
from raftline.model.errors import InvalidArgument, NotLeader, NotReady, RaftlineError
from raftline.model.ids import CATALOG_SHARD, NodeId, ReplicaId, ShardId, node_of
from raftline.node.remote import VERB_FORCE, VERB_POSITION, Answer, Reply
from raftline.node.replica import Replica, Start
from raftline.raft.rpc import ConfState, EntryKind, HardState
from raftline.storage.checkpoint import Checkpoint, write_checkpoint

if TYPE_CHECKING:
    from raftline.node.node import Node

STEP_MS = 2_000
WAIT_MS = 300
OPEN_TRIES = 10  # for the replicas that the catalog gave to others just before
NO_REPLICA = NotReady("no replica here")
OUT_OF_SERVICE = NotReady("its replica here is out of service")

Done = Callable[[dict[str, object] | RaftlineError], None]

_pack = msgspec.msgpack.encode


class Position(msgspec.Struct, frozen=True, array_like=True):
    """How far a replica's log goes."""

    term: int
    last: int
    commit: int
    node: int
    has_majority: bool = False  # of its voters, live and wanted
    leads: bool = False  # or did, and has not noticed that it cannot
    replica: int = 0  # its number; 0: an older node, which does not say

    @property
    def rank(self) -> tuple[int, int, int, bool, int]:
        """Return what makes a good survivor, the greatest the best: a leader before its equals."""
        return self.term, self.last, self.commit, self.leads, self.node


class Recovery:
    """``cluster recover --accept-loss``."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._unwritten: dict[int, str] = {}  # shard -> what to do about its replica here. V6

    def serve(self) -> None:
        """Answer other nodes."""
        self._node.remote.handle(VERB_POSITION, self._on_position)
        self._node.remote.handle(VERB_FORCE, self._on_force)

    def run(self, arguments: dict[str, object], timeout_ms: int, done: Done) -> None:
        """Recover every shard without a majority: the catalog first, then the partitions."""
        if arguments.get("accept_loss") is not True:
            raise InvalidArgument(
                "recovering without a majority loses what only the lost nodes had",
                "start the missing nodes; if they are gone for good, add --accept-loss",
            )
        row = self._node.catalog_machine.nodes.get(NodeId(self._node.id))
        if row is not None and row.state != MEMBER:  # V5
            raise InvalidArgument(
                f"node {row.name} was told to leave the cluster",
                "recover by way of a node that stays",
            )
        _Run(self._node, timeout_ms, done).start()

    def _on_position(self, body: memoryview, _timeout_ms: int, reply: Reply) -> None:
        reply(self.told(msgspec.msgpack.decode(body, type=int)))

    def told(self, shard: int) -> Answer:
        """Return what this node says of its replica."""
        position = self.position(shard)
        if position is not None:
            return _pack(position)
        if self.is_unwritten(shard):
            return NotReady(self._unwritten[shard])
        return OUT_OF_SERVICE if shard in self._node.shards.quarantined else NO_REPLICA

    def is_unwritten(self, shard: int) -> bool:
        """Say whether our replica is out of service only until the next start. V6."""
        return shard in self._unwritten and shard in self._node.shards.quarantined

    def position(self, shard: int) -> Position | None:
        """Return how far our replica's log goes."""
        replica = self._node.shards.get(shard)
        if replica is None:
            return None
        last = replica.raft.last_index
        term = replica.raft.log.term_at(last)
        return Position(
            term,
            last,
            replica.raft.commit,
            self._node.id,
            self.has_majority(replica, self.unwanted(replica)),
            replica.is_leader,
            replica.id,
        )

    def has_majority(self, replica: Replica, gone: Collection[int] = ()) -> bool:
        """Say whether live nodes can elect a leader, as far as our replica knows its voters.

        Those that are ``gone`` are nowhere, although their nodes live.
        """
        conf, is_live = replica.conf, self._node.peers.is_live
        for voters in (conf.voters, conf.voters_outgoing or conf.voters):
            live = [
                v
                for v in voters
                if v == replica.id or (v not in gone and is_live(node_of(ReplicaId(v))))
            ]
            if len(live) * 2 <= len(voters):
                return False
        return True

    def unwanted(self, replica: Replica) -> list[int]:
        """Return the other voters that the catalog wants no more: they may be gone. V4."""
        row = self._node.catalog_machine.shards.get(replica.shard)
        wanted = () if row is None else (*row.replicas, *row.observers)
        voters = {*replica.conf.voters, *replica.conf.voters_outgoing} if wanted else ()
        return sorted(v for v in voters if v != replica.id and v not in wanted)

    def _on_force(self, body: memoryview, _timeout_ms: int, reply: Reply) -> None:
        self.force(msgspec.msgpack.decode(body, type=int), reply)

    def force(self, shard: int, reply: Reply) -> None:
        """Go on alone with our replica of a shard."""
        node = self._node
        replica = node.shards.get(shard)
        if replica is None or replica.frozen:
            reply(NotReady(f"shard {shard} has no whole replica here"))
            return
        if node.peers.is_live(replica.leader_node):
            reply(InvalidArgument(f"{replica.name} has a leader", "nothing to recover"))
            return
        if self.has_majority(replica):
            self._ask_voters(replica, reply)
        else:
            self._force_without(replica, (), reply)

    def _ask_voters(self, replica: Replica, reply: Reply) -> None:
        """Ask the live nodes of the other voters whether they still have them. V4."""
        others = {*replica.conf.voters, *replica.conf.voters_outgoing} - {replica.id}
        voters = [v for v in sorted(others) if self._node.peers.is_live(node_of(ReplicaId(v)))]
        gone: list[int] = []
        waiting = len(voters)

        def answered(voter: int, answer: Answer) -> None:
            nonlocal waiting
            waiting -= 1
            if self._is_gone(replica, voter, answer):
                gone.append(voter)
            if not waiting:
                self._force_without(replica, gone, reply)

        for voter in voters:
            self._node.remote.call(
                node_of(ReplicaId(voter)),
                VERB_POSITION,
                [_pack(int(replica.shard))],
                STEP_MS // 2,
                lambda answer, voter=voter: answered(voter, answer),
            )
        if not voters:
            self._force_without(replica, (), reply)

    def _is_gone(self, replica: Replica, voter: int, answer: Answer) -> bool:
        if isinstance(answer, RaftlineError):
            is_none = answer.message == NO_REPLICA.message and voter in self.unwanted(replica)
            return is_none or answer.message == OUT_OF_SERVICE.message
        there = msgspec.msgpack.decode(answer, type=Position)
        return there.replica != voter if there.replica else not there.last

    def _force_without(self, replica: Replica, gone: Collection[int], reply: Reply) -> None:
        node = self._node
        if self.has_majority(replica, gone):
            reply(InvalidArgument(f"{replica.name} has a majority", "it elects a leader by itself"))
            return
        if replica.is_closed or replica.frozen or node.peers.is_live(replica.leader_node):
            reply(NotReady(f"{replica.name} is not as it was a moment ago"))
            return
        node.log("warning", "shard.forced", shard=replica.name, replica=replica.id)
        replica.frozen = True  # no other checkpoint, with the old configuration, may follow ours
        took = _take_tail(replica)
        index, term = replica.applied_index + 1, replica.raft.term + 1
        alone, hard = ConfState(voters=(replica.id,)), HardState(term, replica.id, index)
        build = replica.host.checkpoint()
        directory = replica.host.directory

        def job() -> Checkpoint:
            checkpoint = msgspec.structs.replace(
                build(),
                index=index,
                term=term,
                hard_state=hard,
                conf_state=alone,
                term_runs=((index, term),),
            )
            write_checkpoint(node.disk, directory, checkpoint)
            return checkpoint

        def written(made: Checkpoint | None, error: BaseException | None) -> None:
            if made is not None and not replica.is_closed:
                now = replica.hard_state  # it may have voted meanwhile
                later = HardState(now.term, now.vote or replica.id, index)
                start = Start(index, term, alone, later if now.term >= term else hard)
                node.shards.reopen(replica, replica.host, start).campaign()
                reply(b"")
                return
            told = f"{replica.name} could not be forced: {error}"
            if not replica.is_closed:
                if took:  # nobody else has agreed to what was applied
                    told += f"; mend that and start {node.identity.name} again first"
                    self._unwritten[replica.shard] = told
                    node.shards.stop_replica(replica, f"it could not be forced: {error}")
                else:
                    replica.thaw()
            reply(NotReady(told))

        node.segments.run(job, written)


def _take_tail(replica: Replica) -> bool:
    """Apply what the survivor has and nobody can commit any more; say whether there was any. V2."""
    log = replica.log
    entries = log.entries(
        max(replica.applied_index + 1, log.first_index()), log.last_index() + 1, 1 << 62
    )
    if not entries:
        return False
    replica.host.refuse_collected(NotLeader(replica.name, 0))
    for entry in entries:
        replica.applied_index, replica.applied_term = entry.index, entry.term
        if entry.kind == EntryKind.NORMAL:
            replica.host.apply(entry, None)
    replica.host.applied()
    return True


class _Run:
    """One recovery, step by step."""

    def __init__(self, node: "Node", timeout_ms: int, done: Done) -> None:
        self._node = node
        self._deadline = node.clock.mono_ms() + timeout_ms
        self._done = done
        self._forced: list[str] = []
        self._failed: list[str] = []
        self._lost: list[str] = []
        self._sound: set[str] = set()

    def start(self) -> None:
        """The catalog first: without it nothing else can be decided."""
        node = self._node
        hosts = [node.id, *(p.node for p in node.peers if p.node and not p.silent)]
        self._force(CATALOG_SHARD, "catalog", hosts, self._wait_catalog)

    def _left_ms(self) -> int:
        return max(1, int(self._deadline - self._node.clock.mono_ms()))

    def _late(self) -> bool:
        return self._node.clock.mono_ms() >= self._deadline

    def _wait_catalog(self) -> None:
        node = self._node
        if node.has_leader(CATALOG_SHARD):
            self._drop_lost()
        elif self._late():
            self._done(NotReady("the catalog has no leader yet; ask again"))
        else:
            node.clock.call_later(WAIT_MS, self._wait_catalog)

    def _force(
        self,
        shard: int,
        name: str,
        hosts: list[int],
        then: Callable[[], None],
        tries: int = OPEN_TRIES,
    ) -> None:
        """Ask all live replicas how far they are; the furthest goes on alone, if it must."""
        node = self._node
        positions: list[Position] = []
        unheard: list[str] = []
        is_hurt = False
        waiting = len(hosts)

        def answered(answer: Answer) -> None:
            nonlocal waiting, is_hurt
            waiting -= 1
            if not isinstance(answer, RaftlineError):
                positions.append(msgspec.msgpack.decode(answer, type=Position))
            elif answer.message == OUT_OF_SERVICE.message:
                is_hurt = True
            elif answer.message != NO_REPLICA.message:
                unheard.append(answer.message)
            if waiting == 0:
                chosen()

        def chosen() -> None:
            if unheard:  # V3
                self._failed.append(f"{name}: {unheard[0]}")
                then()
                return
            if not positions and not is_hurt and tries and self._is_wanted_at(shard, hosts):
                again = lambda: self._force(shard, name, hosts, then, tries - 1)  # noqa: E731
                node.clock.call_later(WAIT_MS, again)
                return
            if not positions:
                self._lost.append(name)
                then()
                return
            best = max(positions, key=lambda position: position.rank)
            if best.has_majority and not is_hurt:  # V4
                self._sound.add(name)
                then()
                return

            def forced(answer: Answer) -> None:
                if isinstance(answer, InvalidArgument):
                    self._sound.add(name)  # it has a leader by now
                elif isinstance(answer, RaftlineError):
                    self._failed.append(f"{name}: {answer.message}")
                else:
                    text = f"{name}: goes on from node {best.node} at entry {best.last}"
                    self._forced.append(text)
                then()

            if best.node == node.id:
                node.recovery.force(shard, forced)
            else:
                node.remote.call(best.node, VERB_FORCE, [_pack(shard)], STEP_MS, forced)

        for host in hosts:
            if host == node.id:
                answered(node.recovery.told(shard))
            else:
                node.remote.call(host, VERB_POSITION, [_pack(shard)], STEP_MS, answered)

    def _is_wanted_at(self, shard: int, hosts: list[int]) -> bool:
        """Say whether one of these nodes is about to open a replica."""
        row = self._node.catalog_machine.shards.get(ShardId(shard))
        return row is not None and any(node_of(replica) in hosts for replica in row.replicas)

    def _drop_lost(self) -> None:
        """Let the catalog forget the silent nodes, one after another."""
        node = self._node
        silent = [
            row.id
            for row in node.catalog_machine.members()
            if row.id != node.id and not node.peers.is_live(row.id)
        ]
        if not silent:
            self._partitions()
            return
        number = silent[0]

        def left(_: object) -> None:
            node.admin.run("cluster.drained", {"node": number}, self._left_ms(), dropped)

        def dropped(answer: dict[str, object] | RaftlineError) -> None:
            if isinstance(answer, RaftlineError):
                self._done(answer)
            else:
                self._drop_lost()

        node.admin.run("cluster.remove", {"node": number, "force": True}, self._left_ms(), left)

    def _partitions(self) -> None:
        """Force every partition that has no majority, one after another."""
        node, recovery = self._node, self._node.recovery
        seen = self._seen()
        for row in node.catalog_machine.shards.values():
            if row.id == CATALOG_SHARD or row.place in seen:
                continue
            ours = node.shards.get(row.id)
            if ours is not None and ours.raft.leader and recovery.has_majority(ours):
                continue
            if self._late():
                self._done(NotReady(f"time was up before {row.place}; ask again"))
                return
            live = [node.id, *(p.node for p in node.peers if p.node and not p.silent)]
            # By way of the loop: a thousand lost ones in a row are no depth to recurse to.
            then = lambda: node.clock.call_soon(self._partitions)  # noqa: E731
            self._force(row.id, row.place, live, then)
            return
        if self._failed:
            self._done(NotReady(f"not recovered yet, ask again: {'; '.join(self._failed[:5])}"))
            return
        self._done({"forced": list(self._forced), "lost": list(self._lost)})

    def _seen(self) -> set[str]:
        told = {text.split(":")[0] for text in (*self._forced, *self._failed)}
        return told | {*self._lost, *self._sound}
