"""A node: the loop's objects put together, and the events that move them.

A node is a state machine over its ports: links (``LinkEvents``), calls (``Calls``, in calls.py),
timers and lanes. One thread, no awaiting; the same code runs in a process and in the simulator.

Life
    start     read the identity, recover WAL and checkpoints, open what is whole
    member    found a cluster or be admitted (founding.py); then the catalog tells which shards
    running   ticks, heartbeats, housekeeping; every event ends in a turn (turn.py)
    stop      checkpoint what changed, hang up
"""

from collections.abc import Callable, Sequence

import msgspec

from raftline.config.settings import Settings
from raftline.machines.catalog.commands import Found, NodeSpec
from raftline.machines.catalog.machine import CatalogMachine
from raftline.machines.catalog.nodes import founding_seats
from raftline.model.errors import (
    Damaged,
    NotLeader,
    RaftlineError,
    UnknownNode,
)
from raftline.model.ids import (
    CATALOG_SHARD,
    NodeId,
    ReplicaId,
    ShardId,
    node_of,
)
from raftline.model.settings import effective
from raftline.node.admin import Admin
from raftline.node.admissions import Admissions
from raftline.node.calls import NodeCalls
from raftline.node.catalog import CatalogHost
from raftline.node.catalog_check import CatalogCheck
from raftline.node.catch_up import CatchUps
from raftline.node.command_proposal import Applied, CommandProposal
from raftline.node.dead_letters import DeadLetters
from raftline.node.dead_questions import DeadQuestions
from raftline.node.desks import Desks
from raftline.node.elections import Elections
from raftline.node.founding import AdmitRequest, Founding
from raftline.node.giving import Giving
from raftline.node.glances import Glances
from raftline.node.group_calls import GroupCalls
from raftline.node.identity import Identity, load_identity, not_ours
from raftline.node.letters import Letters
from raftline.node.links import Links
from raftline.node.log_questions import LogQuestions
from raftline.node.log_time import ClusterTime
from raftline.node.measures import Measures
from raftline.node.message_states import MessageStates
from raftline.node.partition import PartitionHost
from raftline.node.peers import Peers
from raftline.node.pieces import Pieces
from raftline.node.ports import Clock, Lane, Rng
from raftline.node.query_leases import QueryLeases
from raftline.node.questions import Questions
from raftline.node.recovery import Recovery
from raftline.node.remote import Remote
from raftline.node.repairs import Repairs
from raftline.node.replica import Replica
from raftline.node.router import Router
from raftline.node.seats import Seats
from raftline.node.segments import Segments
from raftline.node.settles import Settles
from raftline.node.shards import Found as FoundShard
from raftline.node.shards import Shards, find_shards, lost_shards, shard_directory
from raftline.node.staging import StagedWrites
from raftline.node.status import StatusPages
from raftline.node.tallies import Tally
from raftline.node.timelines import Timelines
from raftline.node.trace_logs import TraceLogs
from raftline.node.turn import Turn
from raftline.node.upkeep import Upkeep
from raftline.node.verifier import Verifier
from raftline.node.waiting import WaitingMessages
from raftline.node.work_groups import WorkGroupQuestions
from raftline.storage.checkpoint import CheckpointRefused
from raftline.storage.files import Disk
from raftline.storage.wal import Recovered, Wal, WalIdentity
from raftline.storage.wal_format import WalRefused
from raftline.telemetry.counters import Counters
from raftline.telemetry.log import LogEvent
from raftline.transport.ports import Link, Network
from raftline.transport.rpcs import (
    FRAME_UNQUIET,
    FoundingNode,
    Quiet,
    encode_quiets,
)
from raftline.wire.peer.hello import WIRE_FORMAT, Hello

ASK_TIMEOUT_MS = 3_000


class Node(NodeCalls):
    """One Raftline process, without its sockets and threads."""

    def __init__(
        self,
        clock: Clock,
        rng: Rng,
        disk: Disk,
        sync_lane: Lane,
        segment_lane: Lane,
        network: Network,
        settings: Settings,
        log: LogEvent,
    ) -> None:
        self.clock = clock
        self.rng = rng
        self.disk = disk
        self.settings = settings
        self.log = log
        self.on_fatal: Callable[[str], None] = lambda _reason: None
        self.on_refused: Callable[[RaftlineError], None] = lambda error: self._fatal(error.message)
        self.started_mono = clock.mono_ms()
        self.counters = Counters()
        self._sync_lane = sync_lane
        self._segment_lane = segment_lane
        self._network = network
        self.process = rng.randbytes(16).hex()
        self.is_stopping = False
        self.links = Links(self)
        self.partitioners: dict[str, str] = {}
        self.catalog_host: CatalogHost | None = None
        self._no_catalog = CatalogMachine()
        super().__init__(self)
        self.upkeep = Upkeep(self)
        self.seats = Seats(self)
        self.catalog_check = CatalogCheck(self)
        self.admissions = Admissions(self)

    # ------------------------------------------------------------------ start and stop

    def start(self) -> None:
        """Recover from the disk and begin. Blocks; raises a refusal and then changed nothing."""
        settings = self.settings
        self.time = ClusterTime(self.clock)
        self.identity: Identity = load_identity(
            self.disk, settings.node.name, self.rng, bootstrap=settings.node.bootstrap
        )
        try:
            found = find_shards(self.disk, self.identity.cluster)
            self.wal, recovered = Wal.open(
                self.disk,
                "wal",
                WalIdentity(self.identity.cluster, self.identity.directory),
                settings.wal,
                {
                    shard: (it.checkpoint.index, it.checkpoint.term)
                    for shard, it in found.items()
                    if it.checkpoint is not None
                },
                keep_unknown=False,
                lost=lost_shards(self.disk, found),
            )
        except (CheckpointRefused, WalRefused) as error:
            raise not_ours(error) from error
        self._assemble()
        self.upkeep.measure_space()
        try:
            self._restore(found, recovered)
        except RaftlineError:
            self.is_stopping = True
            self.turn.stop()
            raise
        self._begin()

    def _restore(self, found: dict[int, FoundShard], recovered: Recovered) -> None:
        """Open every shard that has a directory, the catalog first."""
        self._restore_catalog(found.get(CATALOG_SHARD), recovered)
        for shard in sorted(found):
            if shard != CATALOG_SHARD:
                self.shards.restore(found[shard], recovered, None)
        for shard, it in sorted(recovered.shards.items()):
            if shard not in found:  # only what is lost comes back without a directory
                self.shards.quarantine(shard, 0, it.damage)

    def _restore_catalog(self, found: FoundShard | None, recovered: Recovered) -> None:
        identity = self.identity
        checkpoint = found.checkpoint if found is not None else None
        if checkpoint is None and (found is None or not found.damage):
            if identity.catalog_opened in (-1, identity.catalog_replica) and identity.cluster:
                reason = "its directory is gone"
                self.shards.quarantine(CATALOG_SHARD, identity.catalog_replica, reason)
            return  # else it never took part: opened anew
        assert found is not None
        self.catalog_host = self.new_catalog_host()
        if checkpoint is not None and checkpoint.state:
            self.catalog_host.machine.restore(checkpoint.state)
        self.shards.restore(found, recovered, self.catalog_host)

    def _assemble(self) -> None:
        settings, clock = self.settings, self.clock
        patience = settings.raft.election_ticks * settings.raft.tick_ms
        self.peers = Peers(
            clock,
            self._network,
            self.time,
            heartbeat_ms=settings.raft.heartbeat_ms,
            silent_ms=max(patience, 4 * settings.raft.heartbeat_ms),
            on_gone=self._peer_gone,
            on_silent=self._peer_silent,
            on_heard=self._peer_heard,
        )
        self.peers.us = self.peer_address
        self.remote = Remote(clock, self.peers)
        self.turn = Turn(
            clock,
            self.wal,
            self._sync_lane,
            turn_bytes=settings.wal.turn_bytes,
            send=self.peers.send,
            fatal=self._fatal,
            counters=self.counters,
        )
        self.segments = Segments(
            clock,
            self._segment_lane,
            self.disk,
            self.wal,
            settings.log,
            self.log,
            stop_replica=self._stop_replica,
        )
        self.shards = Shards(
            clock,
            self.rng,
            self.disk,
            self.turn,
            self.wal,
            self.segments,
            self.time,
            settings,
            self.log,
            cluster=lambda: self.identity.cluster,
            on_change=self._replica_changed,
        )
        self.router = Router(clock, self.peers, self.remote, self, self.id)
        self.elections = Elections(
            clock,
            self.rng,
            settings.raft,
            lambda: self.shards,
            self.turn.awake,
            self.peers.is_live,
        )
        self.catch_ups = CatchUps(self)
        self.giving = Giving(self)
        self.repairs = Repairs(self)
        self.segments.repairer = self.repairs
        self.admin = Admin(self)
        self.verifier = Verifier(self)
        self.questions = Questions(self)
        self.group_calls = GroupCalls(self)
        self.desks = Desks(self)
        self.settles = Settles(self)
        self.waiting = WaitingMessages(self)
        self.staging = StagedWrites(self)
        self.log_questions = LogQuestions(self)
        QueryLeases(self)
        WorkGroupQuestions(self)
        MessageStates(self)
        self.timelines = Timelines(self)
        self.trace_logs = TraceLogs(self)
        self.pieces = Pieces(self)
        self.dead_letters = DeadLetters(self)
        self.letters = Letters(self)
        self.dead_questions = DeadQuestions(self)
        self.recovery = Recovery(self)
        self.status_pages = StatusPages(self)
        self.glances = Glances(self)
        self.measures = Measures(self)
        self.founding = Founding(
            clock,
            self.rng,
            self.disk,
            self.remote,
            self.log,
            identity=self.identity,
            peers=dict(settings.node.peers),
            joining=bool(settings.node.join),
            request=self.admit_request(),
            on_member=self._became_member,
            fatal=self._fatal,
        )
        parts = (
            self,
            self.admin,
            self.verifier,
            self.questions,
            self.group_calls,
            self.desks,
            self.settles,
            self.waiting,
            self.pieces,
            self.letters,
            self.dead_questions,
            self.giving,
            self.repairs,
            self.recovery,
            self.glances,
        )
        for part in parts:
            part.serve()

    def serve(self) -> None:
        """Answer other nodes' questions."""
        super().serve()
        self.admissions.serve()
        self.seats.serve()
        self.catalog_check.serve()

    def _begin(self) -> None:
        settings = self.settings
        self.upkeep.start()
        for address in settings.node.peers.values():
            self.peers.know(address)
        self.peers.know(settings.node.join)
        for address, node in self.identity.addresses.items():
            self.peers.know(address, node)
        catalog = self.shards.get(CATALOG_SHARD)
        if catalog is not None and catalog.id != self.identity.catalog_opened:
            self.seats.save(msgspec.structs.replace(self.identity, catalog_opened=catalog.id))
        if self.catalog_host is not None:
            self.seats.catalog_changed(())
        else:
            self.open_catalog()
        self.founding.start()
        self.shards.sweep()
        self.turn.must_write()

    def stop(self, done: Callable[[], None]) -> None:
        """Checkpoint what changed, so that the next start is quick, then hang up."""
        if self.is_stopping:
            done()
            return
        self.is_stopping = True
        led = [replica for replica in self.shards if replica.is_leader]
        for replica in led:
            self.upkeep.hand_over(replica)
        waiting = list(self.shards)
        left = len(waiting)

        def finish() -> None:
            self.turn.stop()
            self.peers.stop()
            for replica in list(self.shards):
                self.shards.close(replica.shard)
            self.wal.close()
            done()

        def one() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self.turn.finish(finish)

        if not waiting:
            self.turn.finish(finish)
            return
        for replica in waiting:
            if replica.frozen:
                one()
            else:
                self.segments.checkpoint(replica, one)

    def _stop_replica(self, replica: Replica, reason: str) -> None:
        self.shards.stop_replica(replica, reason)

    def _fatal(self, reason: str) -> None:
        if not self.is_stopping:
            self.is_stopping = True
            self.log("error", "node.failed", reason=reason)
            self.on_fatal(reason)

    # ------------------------------------------------------------------ who we are

    @property
    def id(self) -> int:
        """Return our number; 0 before we belong to a cluster."""
        return self.identity.node

    @property
    def peer_address(self) -> str:
        """Return where other nodes reach us."""
        listen = self.settings.listen
        return listen.advertise_peer or listen.peer

    @property
    def catalog_machine(self) -> CatalogMachine:
        """Return the catalog as applied here."""
        return self.catalog_host.machine if self.catalog_host is not None else self._no_catalog

    @property
    def is_ready(self) -> bool:
        """Say whether this node belongs to a cluster whose catalog it knows."""
        return not self.is_stopping and bool(self.catalog_machine.cluster) and self.is_admitted()

    @property
    def reason(self) -> str:
        """Say why not, or what is degraded."""
        if self.is_stopping:
            return "the node is stopping"
        if not self.founding.done:
            return self.founding.reason
        if CATALOG_SHARD in self.shards.quarantined:
            return (
                f"the catalog is out of service here: {self.shards.quarantined[CATALOG_SHARD][1]}"
            )
        if not self.catalog_machine.cluster:
            return "waiting for the catalog"
        if not self.is_admitted():
            return "waiting to be admitted to the catalog"
        members = self.catalog_machine.members()
        silent = [
            row.name for row in members if row.id != self.id and not self.peers.is_live(row.id)
        ]
        if silent and 2 * len(silent) >= len(members):
            return f"{', '.join(silent)} cannot be heard: who needs a majority there cannot write"
        if self.upkeep.is_full:
            return "the disk is nearly full: appends are refused"
        if not self.time.healthy():
            return f"the clock is {-self.time.offset_ms()} ms off the others'"
        return ""

    def is_admitted(self) -> bool:
        """Say whether the catalog knows this very directory under our number."""
        row = self.catalog_machine.nodes.get(NodeId(self.id))
        return row is not None and row.directory == self.identity.directory

    def admit_request(self) -> AdmitRequest:
        """Return what we tell the cluster about ourselves."""
        listen, node = self.settings.listen, self.settings.node
        return AdmitRequest(
            name=node.name,
            directory=self.identity.directory,
            rack=node.rack,
            peer=self.peer_address,
            http=listen.advertise_http or listen.http,
            grpc=listen.advertise_grpc or listen.grpc,
            kafka=listen.advertise_kafka or listen.kafka,
        )

    def hello(self) -> Hello:
        """Return what to say on a new connection."""
        identity = self.identity
        return Hello(
            format=WIRE_FORMAT,
            cluster=identity.cluster,
            node=identity.node,
            name=identity.name,
            directory=identity.directory,
            process=self.process,
            address=self.peer_address,
        )

    # ------------------------------------------------------------------ becoming a member

    def _became_member(self, identity: Identity) -> None:
        self.identity = identity
        self.seats.is_fresh = True  # nothing was ever here
        self.router.node = identity.node
        self.wal.set_cluster(identity.cluster)
        for address, node in identity.addresses.items():
            self.peers.know(address, node)
        for peer in list(self.peers):  # new hellos, with our number
            for link in (peer.control, peer.bulk):
                if link is not None:
                    link.close()
        self.open_catalog()

    def open_catalog(self) -> None:
        """Open our catalog replica: as a founder, or to be filled."""
        identity = self.identity
        if self.shards.known(CATALOG_SHARD) or not identity.catalog_replica:
            return
        voters: tuple[int, ...] = ()
        if identity.founders:
            voters = founding_seats(_specs(identity.founders))[0]
        if identity.catalog_replica not in voters:
            voters = ()
        host = self.new_catalog_host()
        self._take_catalog(host)
        try:
            made = self.shards.make_catalog(ReplicaId(identity.catalog_replica), voters)
        except OSError as error:
            self._fatal(f"a new catalog replica could not be written: {error}")
            return

        def noted() -> None:
            if self.is_stopping:
                return
            replica = self.shards.open_catalog(made, host)
            if voters and identity.node == 1:
                self.elections.campaign_within(replica, 0)

        self.seats.save(msgspec.structs.replace(identity, catalog_opened=made.replica), noted)

    def new_catalog_host(self) -> CatalogHost:
        """Return an empty host for our catalog replica."""
        return CatalogHost(shard_directory(CATALOG_SHARD), self.seats.catalog_changed)

    def _propose_founding(self) -> None:
        """As the catalog's first leader: write down who founded the cluster."""
        host = self.catalog_host
        assert host is not None
        replica = host.replica
        assert replica is not None
        command = Found(
            self.identity.cluster, tuple(_specs(self.identity.founders)), replica.time.stamp()
        )
        host.propose(command, self.proposal(lambda _: None))

    def proposal(self, done: Callable[[Applied | RaftlineError], None]) -> CommandProposal:
        """Return a proposal nobody but ``done`` waits for."""
        deadline = self.clock.mono_ms() + ASK_TIMEOUT_MS
        return CommandProposal("catalog", deadline, ASK_TIMEOUT_MS, done)

    # ------------------------------------------------------------------ links

    def link_up(self, link: Link) -> str:
        """Accept a link to a node of ours, or to a fresh one."""
        return self.links.up(link)

    def link_down(self, link: Link) -> None:
        """An accepted link is gone."""
        self.links.down(link)

    def dial_failed(self, address: str, refused: bool, reason: str) -> None:  # noqa: FBT001
        """A dial did not become a link."""
        self.links.dial_failed(address, reason, refused=refused)

    def link_frame(self, link: Link, frame: memoryview) -> None:
        """Take one frame."""
        self.links.take(link, frame)

    # ------------------------------------------------------------------ peers

    def _peer_gone(self, node: int) -> None:
        self.log("warning", "peer.gone", node=node)
        self.elections.node_gone(node)

    def _peer_silent(self, node: int) -> None:
        self.log("warning", "peer.silent", node=node)
        self.remote.on_silent(node)
        self.elections.node_silent(node)

    def _peer_heard(self, node: int, restarted: bool) -> None:  # noqa: FBT001
        if restarted:
            self.elections.node_gone(node)
        self.elections.node_back(node)

    # ------------------------------------------------------------------ catalog and shards

    def _replica_changed(self, replica: Replica) -> None:
        """A replica opened, closed, or changed role or configuration."""
        shard = replica.shard
        self._keep_place(replica)
        if replica.is_closed:
            self.catch_ups.closed(shard)
            self.giving.closed(shard)
            if replica.raft.leader == replica.id and not self.is_stopping:
                self._resign(replica)
        if shard == CATALOG_SHARD:
            replica.name = "catalog"
            host = replica.host
            if not replica.is_closed and isinstance(host, CatalogHost):
                if host.replica is not replica:
                    host.replica = replica
                    self.clock.call_soon(lambda: self.seats.catalog_changed(()))  # a new state
                self._take_catalog(host)
        self.router.hint(shard, 0 if replica.is_closed else replica.leader_node)
        self.desks.role_changed(replica)
        self.group_calls.replica_changed(replica)
        self.waiting.role_changed(replica)
        self.staging.role_changed(replica)
        if replica.is_closed or not replica.is_leader:
            return
        if shard == CATALOG_SHARD and not self.catalog_machine.cluster and self.identity.founders:
            self.clock.call_soon(self._propose_founding)
        self.seats.mend(replica)

    def _take_catalog(self, host: CatalogHost) -> None:
        """Let this be our catalog; who waits at the one before hears that it comes no further."""
        before, self.catalog_host = self.catalog_host, host
        if before is not None and before is not host:
            before.close()

    def _keep_place(self, replica: Replica) -> None:
        """Keep the table of replicas held here to those that are open."""
        row = self.catalog_machine.shards.get(replica.shard)
        if row is None or not row.topic:
            return
        if not replica.is_closed:
            self.place(row.topic, row.partition, replica)
        elif self.shards.get(replica.shard) is None:
            self.place(row.topic, row.partition, None)

    def place(self, topic: str, partition: int, replica: Replica | None) -> None:
        """Keep the table of replicas held here; what goes through them counts for ``topic``."""
        super().place(topic, partition, replica)
        host = replica.host if replica is not None else None
        if isinstance(host, PartitionHost) and host.tally is None:
            host.tally = Tally(self.clock, self.counters, topic)

    def _resign(self, replica: Replica) -> None:
        """Tell the other replicas that their leader is gone; our heartbeats say it lives. L6.

        Said for a while: a link may be down just now. To whom it stays down, we are silent.
        """
        raft = replica.raft
        rows = [
            Quiet(replica.shard, other, replica.id, raft.term, 0, 0)
            for other in raft.progress
            if other != replica.id
        ]
        until_mono = self.clock.mono_ms() + 2 * self.peers.silent_ms

        def say() -> None:
            for row in rows:
                node = node_of(ReplicaId(row.to))
                self.peers.send(node, encode_quiets(FRAME_UNQUIET, [row]))
            if self.clock.mono_ms() < until_mono and not self.is_stopping:
                self.clock.call_later(self.settings.raft.heartbeat_ms, say)

        say()

    # ------------------------------------------------------------------ what the parts ask

    def replica(self, shard: int) -> Replica | None:
        """Return our own replica of a shard."""
        return self.shards.get(shard)

    def is_opening(self, shard: int) -> bool:
        """Say whether our own replica of a shard is about to be open."""
        return self.shards.is_opening(shard)

    def hosts(self, shard: int) -> tuple[int, ...]:
        """Return the nodes with a replica, preferred leader first."""
        row = self.catalog_machine.shards.get(ShardId(shard))
        if row is not None:
            return tuple(int(node_of(r)) for r in row.replicas)
        return tuple(p.node for p in self.peers if p.node) if shard == CATALOG_SHARD else ()

    def out_of_service(self, shard: int) -> RaftlineError | None:
        """Say so if the only replica of a shard is ours and cannot be trusted."""
        found = self.shards.quarantined.get(shard)
        if found is None or self.hosts(shard) not in ((), (self.id,)):
            return None
        error = Damaged(self.shard_name(shard), found[1])
        error.hint = "nobody else has it: restore the data directory from a backup, or delete it"
        return error

    def shard_name(self, shard: int) -> str:
        """Return what people call the shard."""
        row = self.catalog_machine.shards.get(ShardId(shard))
        return row.place if row is not None else "catalog" if shard == CATALOG_SHARD else str(shard)

    def led(self, shard: int) -> Replica | RaftlineError:
        """Return our replica if it leads its shard, else the refusal that says who does."""
        replica = self.shards.get(shard)
        if replica is None:
            return NotLeader(self.shard_name(shard), 0)
        if not replica.is_leader:
            return NotLeader(replica.name, replica.leader_node)
        return replica

    def has_leader(self, shard: int) -> bool:
        """Say whether a live leader of the shard is known."""
        replica = self.shards.get(shard)
        if replica is not None and replica.is_leader:
            return True
        leader = self.router.leader_of(shard)
        return bool(leader) and self.peers.is_live(leader)

    def wait_catalog(self, index: int, deadline: float, done: Callable[[bool], None]) -> None:
        """Call ``done`` once our catalog has applied ``index``."""
        host = self.catalog_host
        if host is None:
            done(False)
        else:
            host.wait_index(index, deadline, done)

    def node_number(self, named: object) -> NodeId:
        """Return the number of a node given by name or number. Raises UnknownNode."""
        nodes = self.catalog_machine.nodes
        if isinstance(named, str):
            row = self.catalog_machine.node_named(named)
            if row is not None:
                return row.id
            if named.isdigit():
                named = int(named)
        if isinstance(named, int) and NodeId(named) in nodes:
            return NodeId(named)
        raise UnknownNode(str(named))

    def partitioner_of(self, topic: str) -> str:
        """Return how a topic's keys are spread."""
        found = self.partitioners.get(topic)
        if found is None:
            found = str(effective(self.catalog_machine.topics[topic].settings)["partitioner"])
            self.partitioners[topic] = found
        return found


def _specs(founders: Sequence[FoundingNode]) -> list[NodeSpec]:
    return [NodeSpec(NodeId(n.id), n.name, n.directory, n.peer) for n in founders]
