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
from raftline.machines.catalog.commands import AdmitNode, Found, NodeSpec
from raftline.machines.catalog.events import Event
from raftline.machines.catalog.machine import CatalogMachine
from raftline.machines.catalog.nodes import founding_seats
from raftline.machines.catalog.state import REMOVED
from raftline.machines.partition.commands import Trim
from raftline.model.errors import (
    DiskFull,
    NotLeader,
    NotReady,
    RaftlineError,
    UnknownNode,
    WrongCluster,
    WrongDirectory,
)
from raftline.model.ids import CATALOG_SHARD, NodeId, ReplicaId, ShardId, node_of
from raftline.model.settings import effective
from raftline.node.admin import Admin
from raftline.node.calls import NodeCalls
from raftline.node.catalog import CatalogHost
from raftline.node.catch_up import CatchUps
from raftline.node.elections import Elections
from raftline.node.founding import Admission, AdmitRequest, Founding
from raftline.node.identity import Identity, load_identity, not_ours, save_identity
from raftline.node.log_time import ClusterTime
from raftline.node.membership import HandOver, Wish, next_step
from raftline.node.partition import Applied, CommandProposal, PartitionHost
from raftline.node.peers import Peers
from raftline.node.ports import Clock, Lane, Rng
from raftline.node.recovery import Recovery
from raftline.node.remote import VERB_ADMIT, VERB_FRESH, VERB_MEMBER, Remote, Reply
from raftline.node.replica import Replica
from raftline.node.router import Router
from raftline.node.segments import Segments
from raftline.node.shards import Shards, find_shards, shard_directory
from raftline.node.status import StatusPages
from raftline.node.turn import Turn
from raftline.node.verifier import Verifier
from raftline.raft.progress import ProgressState
from raftline.raft.rpc import Entry, RpcKind
from raftline.storage.checkpoint import CheckpointRefused
from raftline.storage.files import Disk
from raftline.storage.wal import Wal, WalIdentity
from raftline.storage.wal_format import WalRefused
from raftline.telemetry.log import LogEvent
from raftline.transport.ports import Link, Network
from raftline.transport.rpcs import (
    FRAME_CALL,
    FRAME_FOUND,
    FRAME_HEARTBEAT,
    FRAME_QUIET,
    FRAME_REPLY,
    FRAME_RPCS,
    FRAME_UNQUIET,
    BadFrame,
    FoundingNode,
    Heartbeat,
    Quiet,
    decode_found,
    decode_heartbeat,
    decode_quiets,
    decode_rpcs,
    encode_quiets,
    encode_struct,
)
from raftline.transport.rpcs import Found as FoundFrame
from raftline.wire.peer.hello import WIRE_FORMAT, Hello

EXPIRE_MS = 50
HOUSEKEEPING_MS = 200
RETENTION_MS = 5_000
SPACE_MS = 1_000
QUIET_ROUNDS = 8  # of housekeeping in which each quiet shard is looked at once
LEVEL_ENTRIES = 256  # a learner this near to the end is level
MEMBER_ASK_MS = 2_000
ASK_TIMEOUT_MS = 3_000
QUIET_ROWS_MAX = 2_000
STRANGERS_MS = 10_000  # after the start: later a stranger at a peer's address is its problem
WAL_PRESSURE = 0.5  # of bytes_max: checkpoint the shards that pin the oldest file


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
        self.free_bytes = self.total_bytes = -1
        self._sync_lane = sync_lane
        self._segment_lane = segment_lane
        self._network = network
        self._process = rng.randbytes(16).hex()
        self._stopped = False
        self._tick_due = 0.0
        self._asked_member: dict[int, float] = {}
        self._asking_replace: set[int] = set()
        self._admitting = False
        self._is_fresh = False  # the catalog here is as new as our start
        self._confirming = False
        self._retention_mono = self._space_mono = 0.0
        self._leading = 0  # shards, counted now and then
        self._kept_round = 0
        self._kept_version = -1  # of the catalog, at the last housekeeping
        self._is_full = False
        self._at_home = False  # a node of our own cluster was met
        self._strangers: set[str] = set()  # addresses where another cluster answered
        self._full_peers: dict[int, Heartbeat] = {}
        self._partitioners: dict[str, str] = {}
        self.catalog_host: CatalogHost | None = None
        self._no_catalog = CatalogMachine()
        super().__init__(self)

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
            )
        except (CheckpointRefused, WalRefused) as error:
            raise not_ours(error) from error
        self._assemble()
        self._measure_space()
        if CATALOG_SHARD in found:
            self.catalog_host = self.new_catalog_host()
            checkpoint = found[CATALOG_SHARD].checkpoint
            if checkpoint is not None and checkpoint.state:
                self.catalog_host.machine.restore(checkpoint.state)
            self.shards.restore(found[CATALOG_SHARD], recovered, self.catalog_host)
        for shard in sorted(found):
            if shard != CATALOG_SHARD:
                self.shards.restore(found[shard], recovered, None)
        self._begin()

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
        self.segments.repairer = self.catch_ups
        self.admin = Admin(self)
        self.verifier = Verifier(self)
        self.recovery = Recovery(self)
        self.status_pages = StatusPages(self)
        self.founding = Founding(
            clock,
            self.rng,
            self.disk,
            self.remote,
            self.log,
            identity=self.identity,
            peers=dict(settings.node.peers),
            joining=bool(settings.node.join),
            request=self._admit_request(),
            on_member=self._became_member,
        )
        for part in (self, self.admin, self.verifier, self.catch_ups, self.recovery):
            part.serve()

    def serve(self) -> None:
        """Answer other nodes' questions."""
        super().serve()
        self.remote.handle(VERB_ADMIT, self._on_admit)
        self.remote.handle(VERB_MEMBER, self._on_member)
        self.remote.handle(VERB_FRESH, self._on_fresh)

    def _begin(self) -> None:
        settings = self.settings
        now = self.clock.mono_ms()
        self._tick_due = now + settings.raft.tick_ms
        self.clock.call_later(settings.raft.tick_ms, self._tick)
        self.clock.call_later(settings.raft.heartbeat_ms, self._beat)
        self.clock.call_later(EXPIRE_MS, self._expire)
        self.clock.call_later(HOUSEKEEPING_MS, self._housekeeping)
        for address in settings.node.peers.values():
            self.peers.know(address)
        self.peers.know(settings.node.join)
        for address, node in self.identity.addresses.items():
            self.peers.know(address, node)
        if self.catalog_host is not None:
            self._catalog_changed(())
        self.founding.start()
        self.turn.must_write()

    def stop(self, done: Callable[[], None]) -> None:
        """Checkpoint what changed, so that the next start is quick, then hang up."""
        if self._stopped:
            done()
            return
        self._stopped = True
        led = [replica for replica in self.shards if replica.is_leader]
        for replica in led:
            self._hand_over(replica)
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
                self.turn.when_idle(finish)

        if not waiting:
            self.turn.when_idle(finish)
            return
        for replica in waiting:
            if replica.frozen:
                one()
            else:
                self.segments.checkpoint(replica, one)

    def _stop_replica(self, replica: Replica, reason: str) -> None:
        self.shards.stop_replica(replica, reason)

    def _fatal(self, reason: str) -> None:
        if not self._stopped:
            self._stopped = True
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
        return not self._stopped and bool(self.catalog_machine.cluster) and self._admitted()

    @property
    def reason(self) -> str:
        """Say why not, or what is degraded."""
        if self._stopped:
            return "the node is stopping"
        if not self.founding.done:
            return self.founding.reason
        if CATALOG_SHARD in self.shards.quarantined:
            return (
                f"the catalog is out of service here: {self.shards.quarantined[CATALOG_SHARD][1]}"
            )
        if not self.catalog_machine.cluster:
            return "waiting for the catalog"
        if not self._admitted():
            return "waiting to be admitted to the catalog"
        if self._is_full:
            return "the disk is nearly full: appends are refused"
        if not self.time.healthy():
            return f"the clock is {-self.time.offset_ms()} ms off the others'"
        return ""

    def _admitted(self) -> bool:
        row = self.catalog_machine.nodes.get(NodeId(self.id))
        return row is not None and row.directory == self.identity.directory

    def _admit_request(self) -> AdmitRequest:
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
            process=self._process,
            address=self.peer_address,
        )

    # ------------------------------------------------------------------ becoming a member

    def _became_member(self, identity: Identity) -> None:
        self.identity = identity
        self._is_fresh = True  # nothing was ever here
        self.router.node = identity.node
        self.wal.set_cluster(identity.cluster)
        for address, node in identity.addresses.items():
            self.peers.know(address, node)
        for peer in list(self.peers):  # new hellos, with our number
            for link in (peer.control, peer.bulk):
                if link is not None:
                    link.close()
        self._open_catalog()

    def _open_catalog(self) -> None:
        identity = self.identity
        if self.shards.get(CATALOG_SHARD) is not None or not identity.catalog_replica:
            return
        voters: tuple[int, ...] = ()
        if identity.founders:
            voters = founding_seats(_specs(identity.founders))[0]
        if identity.catalog_replica not in voters:
            voters = ()
        self.catalog_host = self.new_catalog_host()
        replica = self.shards.open_catalog(
            ReplicaId(identity.catalog_replica), voters, self.catalog_host
        )
        if voters and identity.node == 1:
            self.elections.campaign_within(replica, 0)

    def new_catalog_host(self) -> CatalogHost:
        """Return an empty host for our catalog replica."""
        return CatalogHost(shard_directory(CATALOG_SHARD), self._catalog_changed)

    def _propose_founding(self) -> None:
        """As the catalog's first leader: write down who founded the cluster."""
        host = self.catalog_host
        assert host is not None
        replica = host.replica
        assert replica is not None
        command = Found(
            self.identity.cluster, tuple(_specs(self.identity.founders)), replica.time.stamp()
        )
        host.propose(command, self._proposal(lambda _: None))

    def _proposal(self, done: Callable[[Applied | RaftlineError], None]) -> CommandProposal:
        deadline = self.clock.mono_ms() + ASK_TIMEOUT_MS
        return CommandProposal("catalog", deadline, ASK_TIMEOUT_MS, done)

    def _on_admit(self, body: memoryview, timeout_ms: int, reply: Reply) -> None:
        """A fresh node, or one with new addresses, asks to be admitted."""
        request = msgspec.msgpack.decode(body, type=AdmitRequest)
        copy = [bytes(body)]

        def local(replica: Replica, left_ms: int, answer: Reply) -> None:
            self._admit(replica, request, left_ms, answer)

        self.router.send(CATALOG_SHARD, VERB_ADMIT, copy, timeout_ms, reply, local, repeatable=True)

    def _admit(
        self, replica: Replica, request: AdmitRequest, timeout_ms: int, reply: Reply
    ) -> None:
        host = replica.host
        assert isinstance(host, CatalogHost)
        known = host.machine.node_named(request.name)
        if (
            known is not None
            and known.directory != request.directory
            and self.peers.is_live(known.id)
        ):
            reply(NotReady(f"node {request.name} is alive with another data directory"))
            return
        command = AdmitNode(
            request.name,
            request.directory,
            request.peer,
            request.http,
            request.grpc,
            request.kafka,
            request.rack,
            replica.time.stamp(),
        )

        def admitted(result: Applied | RaftlineError) -> None:
            if isinstance(result, RaftlineError):
                reply(result)
                return
            row = host.machine.node_named(request.name)
            assert row is not None
            seat = host.machine.shards[CATALOG_SHARD].replica_on(row.id)
            addresses = {
                n.peer: int(n.id)
                for n in host.machine.nodes.values()
                if n.state != REMOVED and n.id != row.id
            }
            reply(
                msgspec.msgpack.encode(
                    Admission(host.machine.cluster, row.id, seat or 0, addresses)
                )
            )

        deadline = self.clock.mono_ms() + timeout_ms
        host.propose(command, CommandProposal("catalog", deadline, timeout_ms, admitted))

    def invite(
        self,
        address: str,
        timeout_ms: int,
        done: Callable[[dict[str, object] | RaftlineError], None],
    ) -> None:
        """Call a waiting node at ``address`` into the cluster; answer once it is a member."""
        deadline = self.clock.mono_ms() + timeout_ms
        self.peers.know(address)

        def look() -> None:
            for row in self.catalog_machine.members():
                if row.peer == address:
                    done({"node": int(row.id), "name": row.name})
                    return
            if self.clock.mono_ms() >= deadline:
                self.peers.drop(address)
                done(
                    NotReady(
                        f"no node at {address} joined; start one there with "
                        f"raftline serve --join {self.peer_address}"
                    )
                )
                return
            self.clock.call_later(HOUSEKEEPING_MS, look)

        look()

    # ------------------------------------------------------------------ links

    def link_up(self, link: Link) -> str:
        """Accept a link to a node of ours, or to a fresh one."""
        refusal = self._refuse_link(link)
        if refusal:
            if link.dialed:
                self.peers.dial_failed(link.address, refused=False)
            return refusal
        peer = link.peer
        if not link.dialed:
            if peer.cluster == self.identity.cluster and peer.node:
                self.peers.know(peer.address, peer.node)
            return ""
        self.peers.up(link)
        self._at_home = self._at_home or bool(peer.cluster)
        if not peer.cluster and self._is_founder_of(peer.directory):
            found = FoundFrame(self.identity.cluster, self.identity.founders)
            link.send(encode_struct(FRAME_FOUND, found))
        elif not peer.cluster and self.identity.cluster:
            link.send(encode_struct(FRAME_FOUND, FoundFrame(self.identity.cluster, ())))
        if link.lane == "control":
            self.founding.link_up(link)
        return ""

    def _refuse_link(self, link: Link) -> str:
        peer = link.peer
        if self._stopped:
            return "the node is stopping"
        if peer.cluster and self.identity.cluster and peer.cluster != self.identity.cluster:
            wrong = WrongCluster(self.identity.cluster, peer.cluster)
            return f"{wrong.code}: {wrong.message}"
        if peer.directory == self.identity.directory:
            self.peers.drop(link.address)
            return "this is the same node"
        row = self.catalog_machine.nodes.get(NodeId(peer.node)) if peer.node else None
        if row is not None and row.directory != peer.directory:
            return f"node {peer.name} was taken back with another data directory"
        return ""

    def _is_founder_of(self, directory: str) -> bool:
        return any(n.directory == directory for n in self.identity.founders)

    def link_down(self, link: Link) -> None:
        """An accepted link is gone."""
        self.remote.on_link_down(link)
        self.founding.link_down(link)
        if link.dialed and not self._stopped:
            self.peers.down(link)

    def dial_failed(self, address: str, refused: bool, reason: str) -> None:  # noqa: FBT001
        """A dial did not become a link."""
        if self._stopped:
            return
        self.peers.dial_failed(address, refused=refused)
        if WrongCluster.code in reason:
            self._met_stranger(address)

    def _met_stranger(self, address: str) -> None:
        """End a young node when most of those it was told of belong to another cluster."""
        node = self.settings.node
        named = {*node.peers.values(), node.join} - {"", self.peer_address}
        self._strangers.add(address)
        met = sorted(self._strangers & named)
        age = self.clock.mono_ms() - self.started_mono
        if self._at_home or age > STRANGERS_MS or 2 * len(met) <= len(named):
            return
        self._stopped = True
        self.on_refused(
            WrongDirectory(
                f"the data directory belongs to cluster {self.identity.cluster}, "
                f"{' and '.join(met)} to another",
                "start with the --data-dir of that cluster, or name nodes of this one with "
                "--peers or --join",
            )
        )

    def link_frame(self, link: Link, frame: memoryview) -> None:
        """Take one frame. What does not parse closes the link."""
        if self._stopped or not len(frame):
            return
        try:
            self._take_frame(link, frame)
        except (BadFrame, msgspec.DecodeError, ValueError) as error:
            self.log("warning", "link.bad_frame", peer=link.peer.name, reason=str(error))
            link.close()

    def _take_frame(self, link: Link, frame: memoryview) -> None:
        kind = frame[0]
        if kind == FRAME_RPCS:
            self._on_rpcs(frame)
        elif kind == FRAME_REPLY:
            self.remote.on_reply(frame)
        elif kind == FRAME_CALL:
            self.remote.on_call(link, frame)
        elif kind == FRAME_HEARTBEAT:
            self.peers.heard(decode_heartbeat(frame))
        elif kind == FRAME_QUIET:
            self._on_quiet(link, decode_quiets(frame))
        elif kind == FRAME_UNQUIET:
            self._on_unquiet(decode_quiets(frame))
        elif kind == FRAME_FOUND:
            self.founding.invited(decode_found(frame), link)
        else:
            raise BadFrame(f"frames of kind {kind} are unknown")

    def _on_rpcs(self, frame: memoryview) -> None:
        for shard, rpc in decode_rpcs(frame):
            replica = self.shards.get(shard)
            if replica is None or replica.id != rpc.to:
                if rpc.kind == RpcKind.SNAP:
                    self.catch_ups.not_here(shard, rpc)
                continue
            if rpc.kind == RpcKind.SNAP:
                self.catch_ups.offered(replica, rpc)
            elif self._is_full and rpc.kind == RpcKind.APP and rpc.entries and shard != 1:
                continue  # no room: as if it had not come
            else:
                replica.step(rpc)

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

    def _beat(self) -> None:
        if self._stopped:
            return
        self.clock.call_later(self.settings.raft.heartbeat_ms, self._beat)
        if not self.id:
            return
        healthy = not self._is_full and self.time.healthy()
        self.peers.beat(
            Heartbeat(
                self.id,
                self._process,
                self.clock.wall_ms(),
                self.free_bytes,
                self.total_bytes,
                self._leading,
                healthy,
            )
        )
        ratio = self.settings.log.free_ratio_min
        self._full_peers = {
            peer.node: beat
            for peer in self.peers
            if not peer.silent
            and (beat := peer.heartbeat) is not None
            and beat.free_bytes < ratio * beat.total_bytes
        }
        if not healthy:
            self._hand_over_all()

    def _hand_over_all(self) -> None:
        for replica in list(self.shards):
            if replica.is_leader and not replica.raft.lead_transferee:
                self._hand_over(replica)

    def _hand_over(self, replica: Replica) -> None:
        """Give leadership to a live, level, healthy voter, if there is one."""
        for other in replica.conf.voters:
            node = node_of(ReplicaId(other))
            peer = self.peers.get(node)
            if other == replica.id or peer is None or peer.silent:
                continue
            if (
                peer.heartbeat is not None
                and peer.heartbeat.healthy
                and self._level(replica)(other)
            ):
                replica.transfer(ReplicaId(other))
                return

    # ------------------------------------------------------------------ time

    def _tick(self) -> None:
        if self._stopped:
            return
        tick_ms = self.settings.raft.tick_ms
        now = self.clock.mono_ms()
        if now - self._tick_due > tick_ms:
            # A late turn: sockets that became readable meanwhile are drained before any tick.
            self._tick_due = now
            self.clock.call_later(0, lambda: self.clock.call_soon(self._tick_now))
        else:
            self._tick_now()
        self._tick_due = max(self._tick_due + tick_ms, now)
        self.clock.call_later(max(0.0, self._tick_due - now), self._tick)

    def _tick_now(self) -> None:
        if self._stopped:
            return
        # Quiet first: no heartbeat of this tick may follow the word that wakes who hears it.
        for node, rows in self.elections.quiet_rows(self.clock.mono_ms()).items():
            for start in range(0, len(rows), QUIET_ROWS_MAX):
                self.peers.send(
                    node, encode_quiets(FRAME_QUIET, rows[start : start + QUIET_ROWS_MAX])
                )
        for replica in list(self.turn.awake):
            replica.tick()
        self.turn.mark_idle()

    def _on_quiet(self, link: Link, rows: list[Quiet]) -> None:
        refused = [
            row for row in rows if not self.elections.told_quiet(self.shards.get(row.shard), row)
        ]
        if refused:
            link.send(encode_quiets(FRAME_UNQUIET, refused))

    def _on_unquiet(self, rows: list[Quiet]) -> None:
        for row in rows:
            replica = self.shards.get(row.shard)
            if replica is not None and replica.quiet:
                replica.wake()

    def _expire(self) -> None:
        if self._stopped:
            return
        self.clock.call_later(EXPIRE_MS, self._expire)
        now = self.clock.mono_ms()
        for replica in list(self.turn.awake):
            replica.expire(now)
        for host in list(self.shards.pressure.parked):
            host.expire(now)
        if self.catalog_host is not None:
            self.catalog_host.expire(now)
        self.remote.expire(now)

    # ------------------------------------------------------------------ housekeeping

    def _housekeeping(self) -> None:
        if self._stopped:
            return
        self.clock.call_later(HOUSEKEEPING_MS, self._housekeeping)
        now = self.clock.mono_ms()
        replicas = self._due_for_housekeeping()
        for replica in replicas:
            if self.segments.checkpoint_due(replica, replica.host.applied_bytes, now):
                self.segments.checkpoint(replica)
            if replica.is_leader:
                self._mend_membership(replica)
                self.catch_ups.watch(replica, now)
        self._relieve_wal()
        self.segments.release_wal()
        self._confirm_catalog()
        self._ask_about_leaving(now, replicas)
        self._ask_replacements()
        self._refresh_row()
        if now - self._retention_mono >= RETENTION_MS:
            self._retention_mono = now
            self._retain()
        if now - self._space_mono >= SPACE_MS:
            self._space_mono = now
            self._measure_space()
            self.segments.scrub(self.shards.partitions())

    def _due_for_housekeeping(self) -> list[Replica]:
        """Return the replicas to look after now: the busy ones, and the quiet ones in turn.

        All of them after the catalog changed: it may want something of any.
        """
        version = self.catalog_machine.version
        self._kept_round += 1
        if self._kept_round >= QUIET_ROUNDS:
            self._kept_round = 0
            self._leading = sum(1 for replica in self.shards if replica.is_leader)
        if version != self._kept_version:
            self._kept_version = version
            return list(self.shards)
        turn = self._kept_round
        quiet = [shard for shard in self.shards.ids() if shard % QUIET_ROUNDS == turn]
        return [*self.turn.awake, *(r for s in quiet if (r := self.shards.get(s)) and r.quiet)]

    def _relieve_wal(self) -> None:
        """Near the WAL's limit: checkpoint who pins the oldest file, write small pins again."""
        settings = self.settings.wal
        if self.wal.bytes_used <= settings.bytes_max * WAL_PRESSURE and self.wal.file_count < 4:
            return
        for shard in self.wal.pins()[:4]:
            replica = self.shards.get(shard)
            if replica is not None and self.segments.checkpoint_due(replica, 1 << 62, 0):
                self.segments.checkpoint(replica)
        if self.wal.rewrite_pins(1 << 20, self._entries_of):
            self.turn.must_write()

    def _entries_of(self, shard: int, start: int, end: int) -> Sequence[Entry]:
        replica = self.shards.get(shard)
        if replica is None:
            return []
        first, last = replica.log.first_index(), replica.log.last_index()
        start, end = max(start, first), min(end, last + 1)
        return replica.log.entries(start, end, 1 << 62) if start < end else []

    def _measure_space(self) -> None:
        try:
            self.free_bytes, self.total_bytes = self.disk.space()
        except OSError as error:
            self.log("warning", "disk.unmeasured", reason=str(error))
            return
        floor = self.settings.log.free_ratio_min * self.total_bytes
        full = self.free_bytes < floor or self.segments.disk_full
        if full != self._is_full:
            self._is_full = full
            event = "disk.nearly_full" if full else "disk.has_room"
            self.log("warning" if full else "info", event, free_bytes=self.free_bytes)

    def admission(self, replica: Replica) -> RaftlineError | None:
        """Refuse an append that would find no room: here, or on a majority of the replicas."""
        if self._is_full:
            floor = int(self.settings.log.free_ratio_min * self.total_bytes)
            return DiskFull(self.identity.name, self.free_bytes, floor)
        if self.wal.bytes_used > self.settings.wal.bytes_max:
            return DiskFull(self.identity.name, 0, self.settings.wal.bytes_max)
        if self._full_peers:
            return self._no_room(replica)
        return None

    def _no_room(self, replica: Replica) -> RaftlineError | None:
        """Refuse if too few replicas have room for a majority."""
        full = [v for v in replica.conf.voters if node_of(ReplicaId(v)) in self._full_peers]
        if (len(replica.conf.voters) - len(full)) * 2 > len(replica.conf.voters):
            return None
        node = node_of(ReplicaId(full[0]))
        beat = self._full_peers[node]
        floor = int(self.settings.log.free_ratio_min * beat.total_bytes)
        return DiskFull(node, beat.free_bytes, floor)

    def _retain(self) -> None:
        """Propose to trim what the topic's retention lets go, where we lead."""
        machine = self.catalog_machine
        for replica in list(self.shards):
            host = replica.host
            row = machine.shards.get(replica.shard)
            if not replica.is_leader or not isinstance(host, PartitionHost) or row is None:
                continue
            settings = effective(machine.topics[row.topic].settings)
            age, size = int(settings["retention_ms"]), int(settings["retention_bytes"])
            now_ms = replica.time.stamp()
            start = host.log.retention_start(
                now_ms - age if age >= 0 else None, size if size >= 0 else None
            )
            if start > host.log.log_start:
                host.command(Trim(start, now_ms), self._proposal(lambda _: None))

    # ------------------------------------------------------------------ catalog and shards

    def _catalog_changed(self, _events: Sequence[Event]) -> None:
        """Act on the applied catalog: peers, replicas to open, close or delete."""
        machine = self.catalog_machine
        if not machine.cluster:
            return
        self._partitioners.clear()
        self._know_peers()
        if not self._admitted():
            return
        ours = {shard.id: shard for shard in machine.shards_on(NodeId(self.id))}
        for shard, row in ours.items():
            wanted = row.replica_on(NodeId(self.id))
            assert wanted is not None
            known = self.shards.known(shard)
            if shard == CATALOG_SHARD:
                self._catalog_seat(wanted)
            elif not self._is_fresh:
                pass  # what we know may be old: a replica that was here must not begin anew
            elif known == 0 and shard not in self.shards.quarantined:
                self._open(shard, wanted)
            elif 0 < known < wanted:
                self.shards.destroy(shard, lambda s=shard, w=wanted: self._open_if_wanted(s, w))
            replica = self.shards.get(shard)
            if replica is not None and row.topic:
                self._name(replica, row.topic, row.partition)
        self._delete_dead()

    def _name(self, replica: Replica, topic: str, partition: int) -> None:
        replica.name = f"{topic}/{partition}"
        host = replica.host
        if isinstance(host, PartitionHost):
            host.name = replica.name
        self.place(topic, partition, replica)

    def _open_if_wanted(self, shard: ShardId, wanted: ReplicaId) -> None:
        row = self.catalog_machine.shards.get(shard)
        if row is not None and row.replica_on(NodeId(self.id)) == wanted:
            self._open(shard, wanted)

    def _open(self, shard: ShardId, wanted: ReplicaId) -> None:
        row = self.catalog_machine.shards[shard]
        voters = row.initial if wanted in row.initial else ()

        def opened(replica: Replica) -> None:
            now = self.catalog_machine.shards.get(shard)
            if now is None or now.replica_on(NodeId(self.id)) != wanted:
                self._catalog_changed(())  # the catalog moved on while we opened
            elif now.topic:
                self._name(replica, now.topic, now.partition)
            if voters and row.initial[0] == wanted:
                self.elections.campaign_within(replica, 0)

        self.shards.open_partition(
            shard, wanted, row.place, row.topic_uuid, row.partition, voters, opened
        )

    def _catalog_seat(self, wanted: ReplicaId) -> None:
        """Keep the number of our catalog replica in the identity, for the next start."""
        if self.identity.catalog_replica != wanted:
            self._save(msgspec.structs.replace(self.identity, catalog_replica=wanted))

    def _know_peers(self) -> None:
        machine = self.catalog_machine
        addresses: dict[str, int] = {}
        for number, row in machine.nodes.items():
            if number == self.id:
                continue
            if row.state == REMOVED:
                self.peers.drop(row.peer)
                continue
            self.peers.know(row.peer, number)
            addresses[row.peer] = int(number)
        if addresses != self.identity.addresses:
            self._save(msgspec.structs.replace(self.identity, addresses=addresses))

    def _save(self, identity: Identity) -> None:
        self.identity = identity

        def saved(_: object, error: BaseException | None) -> None:
            if error is not None:
                self.log("warning", "identity.unsaved", reason=str(error))

        self.segments.run(lambda: save_identity(self.disk, identity), saved)

    def _delete_dead(self) -> None:
        """Remove replicas of deleted topics: the catalog has a tombstone."""
        machine = self.catalog_machine
        for replica in list(self.shards):
            host = replica.host
            if isinstance(host, PartitionHost) and machine.is_deleted(
                replica.shard, host.identity.topic_uuid
            ):
                topic, _, partition = replica.name.rpartition("/")
                if topic:
                    self.place(topic, int(partition), None)
                self.shards.destroy(replica.shard, lambda: None)

    def _replica_changed(self, replica: Replica) -> None:
        """A replica opened, closed, or changed role or configuration."""
        shard = replica.shard
        if replica.is_closed:
            self.catch_ups.closed(shard)
        if shard == CATALOG_SHARD:
            replica.name = "catalog"
            host = replica.host
            if not replica.is_closed and isinstance(host, CatalogHost):
                if host.replica is not replica:
                    host.replica = replica
                    self.clock.call_soon(lambda: self._catalog_changed(()))  # a new state
                self.catalog_host = host
        self.router.hint(shard, replica.leader_node)
        if replica.is_closed or not replica.is_leader:
            return
        if shard == CATALOG_SHARD and not self.catalog_machine.cluster and self.identity.founders:
            self.clock.call_soon(self._propose_founding)
        self._mend_membership(replica)

    # ------------------------------------------------------------------ membership

    def _mend_membership(self, replica: Replica) -> None:
        """As a shard's leader: take the next step toward what the catalog wants."""
        row = self.catalog_machine.shards.get(replica.shard)
        if row is None or replica.raft.lead_transferee:
            return
        if replica.applied_index < replica.raft.commit:
            return
        step = next_step(
            replica.conf,
            replica.id,
            Wish(row.replicas, row.observers),
            live=lambda r: r == replica.id or self.peers.is_live(node_of(ReplicaId(r))),
            level=self._level(replica),
        )
        if step is None:
            return
        if isinstance(step, HandOver):
            replica.transfer(ReplicaId(step.to))
        else:
            self.log("info", "membership.changing", shard=replica.name, change=str(step.changes))
            replica.change_conf(step)

    @staticmethod
    def _level(replica: Replica) -> Callable[[int], bool]:
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

    def _ask_about_leaving(self, now: float, replicas: list[Replica]) -> None:
        """A replica the catalog no longer wants asks whether it is out of the configuration."""
        if not self.is_ready:
            return
        machine = self.catalog_machine
        for replica in replicas:
            row = machine.shards.get(replica.shard)
            if row is None or row.replica_on(NodeId(self.id)) == replica.id:
                continue
            if now - self._asked_member.get(replica.shard, 0.0) < MEMBER_ASK_MS:
                continue
            self._asked_member[replica.shard] = now
            self._ask_member(replica)
        row = machine.nodes.get(NodeId(self.id))
        if row is not None and row.state == "leaving" and len(self.shards) <= 1:
            self.admin.run("cluster.drained", {"node": self.id}, ASK_TIMEOUT_MS, lambda _: None)

    def _ask_member(self, replica: Replica) -> None:
        body = [msgspec.msgpack.encode((int(replica.shard), int(replica.id)))]

        def answered(answer: bytes | RaftlineError) -> None:
            if answer == b"out" and self.shards.get(replica.shard) is replica:
                self.log("info", "replica.removed", shard=replica.name)
                shard = replica.shard
                self.shards.destroy(shard, lambda: self._catalog_changed(()))

        def local(_replica: Replica, _left: int, answer: Reply) -> None:
            answer(b"in")

        self.router.send(
            replica.shard, VERB_MEMBER, body, ASK_TIMEOUT_MS, answered, local, repeatable=True
        )

    def _on_member(self, body: memoryview, _timeout_ms: int, reply: Reply) -> None:
        shard, asked = msgspec.msgpack.decode(body, type=tuple[int, int])
        replica = self.led(shard)
        if isinstance(replica, RaftlineError):
            reply(replica)
            return
        conf = replica.conf
        present = (*conf.voters, *conf.learners, *conf.voters_outgoing, *conf.learners_next)
        row = self.catalog_machine.shards.get(ShardId(shard))
        wanted = row is not None and asked in (*row.replicas, *row.observers)
        reply(b"in" if asked in present or wanted else b"out")

    def _ask_replacements(self) -> None:
        """Ask the catalog for new incarnations of replicas that are out of service."""
        if not self.founding.done:
            return
        machine = self.catalog_machine
        for shard, (known, _) in list(self.shards.quarantined.items()):
            replica = known
            row = machine.shards.get(ShardId(shard))
            if shard == CATALOG_SHARD:
                replica = self.identity.catalog_replica
            elif row is None or row.replica_on(NodeId(self.id)) is None:
                continue
            elif replica and row.replica_on(NodeId(self.id)) != replica:
                continue  # it has a new one; the catalog's change opens it
            elif len(row.replicas) < 3:
                continue  # no majority without it: nothing is automatic
            if shard not in self._asking_replace:
                self._replace(shard, replica)

    def _replace(self, shard: int, seen: int) -> None:
        """Ask for the next incarnation after ``seen``; 0 asks which is the present one."""
        self._asking_replace.add(shard)

        def answered(answer: dict[str, object] | RaftlineError) -> None:
            self._asking_replace.discard(shard)
            found = self.shards.quarantined.get(shard)
            if isinstance(answer, RaftlineError) or found is None:
                return
            replica = answer.get("replica")
            assert isinstance(replica, int)
            if shard == CATALOG_SHARD:
                self._save(msgspec.structs.replace(self.identity, catalog_replica=replica))
                self.shards.destroy(shard, self._open_catalog)
            elif not seen:
                self.shards.quarantined[shard] = (replica, found[1])

        arguments: dict[str, object] = {"shard": shard, "node": self.id, "seen": seen}
        self.admin.ask_catalog("replica.replace", arguments, ASK_TIMEOUT_MS, answered)

    def _confirm_catalog(self) -> None:
        """After a start: learn that what our catalog says is not from before we went down."""
        if self._is_fresh or self._confirming or not self._admitted():
            return
        self._confirming = True

        def answered(answer: int | bytes | RaftlineError) -> None:
            self._confirming = False
            if isinstance(answer, RaftlineError):
                return
            if isinstance(answer, bytes):
                answer = msgspec.msgpack.decode(answer, type=int)
            self.wait_catalog(answer, self.clock.mono_ms() + ASK_TIMEOUT_MS, reached)

        def reached(ok: bool) -> None:  # noqa: FBT001
            if ok and not self._is_fresh:
                self._is_fresh = True
                self._catalog_changed(())

        self.router.send(
            CATALOG_SHARD, VERB_FRESH, [], ASK_TIMEOUT_MS, answered, _applied_now, repeatable=True
        )

    def _on_fresh(self, _body: memoryview, timeout_ms: int, reply: Reply) -> None:
        replica = self.led(CATALOG_SHARD)
        if isinstance(replica, RaftlineError):
            reply(replica)
            return
        _applied_now(
            replica,
            timeout_ms,
            lambda at: reply(at if isinstance(at, RaftlineError) else msgspec.msgpack.encode(at)),
        )

    def _refresh_row(self) -> None:
        """Tell the catalog our addresses where it has others."""
        row = self.catalog_machine.nodes.get(NodeId(self.id))
        ours = self._admit_request()
        if row is None or not self._admitted() or self._admitting or row.state == REMOVED:
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
            self._admit(replica, ours, left_ms, answer)

        self.router.send(
            CATALOG_SHARD,
            VERB_ADMIT,
            [msgspec.msgpack.encode(ours)],
            ASK_TIMEOUT_MS,
            answered,
            local,
            repeatable=True,
        )

    # ------------------------------------------------------------------ what the parts ask

    def replica(self, shard: int) -> Replica | None:
        """Return our own replica of a shard."""
        return self.shards.get(shard)

    def hosts(self, shard: int) -> tuple[int, ...]:
        """Return the nodes with a replica, preferred leader first."""
        row = self.catalog_machine.shards.get(ShardId(shard))
        if row is not None:
            return tuple(int(node_of(r)) for r in row.replicas)
        return tuple(p.node for p in self.peers if p.node) if shard == CATALOG_SHARD else ()

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
        found = self._partitioners.get(topic)
        if found is None:
            found = str(effective(self.catalog_machine.topics[topic].settings)["partitioner"])
            self._partitioners[topic] = found
        return found


def _applied_now(
    replica: Replica, _timeout_ms: int, answer: Callable[[int | RaftlineError], None]
) -> None:
    """Answer with the index that all that was committed until now has been applied up to."""
    replica.read_index(lambda error: answer(replica.applied_index if error is None else error))


def _specs(founders: Sequence[FoundingNode]) -> list[NodeSpec]:
    return [NodeSpec(NodeId(n.id), n.name, n.directory, n.peer) for n in founders]
