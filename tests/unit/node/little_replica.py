"""Replicas without a node: a real turn, WAL and core, with a host that only writes down."""

from collections.abc import Callable

from raftline.config.settings import RaftSettings, WalSettings
from raftline.model.errors import RaftlineError
from raftline.model.ids import NodeId, ReplicaId, ShardId, replica_id
from raftline.node.log_time import ClusterTime, LogTime
from raftline.node.replica import Proposal, Replica, Start
from raftline.node.turn import Turn
from raftline.raft.rpc import ConfState, Entry, HardState, Rpc, RpcKind
from raftline.storage.checkpoint import Checkpoint
from raftline.storage.log_words import LogMark
from raftline.storage.wal import Wal, WalIdentity
from raftline.testing import SimDisk
from raftline.transport.rpcs import decode_rpcs
from tests.unit.node.little_ports import HandClock, HandLane, rng

MIB = 1 << 20
OURS = replica_id(NodeId(1), 1)
SECOND, THIRD = replica_id(NodeId(2), 1), replica_id(NodeId(3), 1)
THREE = (OURS, SECOND, THIRD)
SHARD = ShardId(100)


class Asker:
    """Somebody who waits for an entry."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def refuse(self, error: RaftlineError) -> None:
        self.heard.append(error.code)

    def expire(self, now_ms: float) -> bool:
        if now_ms != float("inf"):
            return False
        self.heard.append("timed_out")
        return True


class LittleHost:
    """Keeps what is applied."""

    directory = "little"
    applied_bytes = 0

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.collected: list[tuple[bytes, Proposal]] = []

    def proposals(self, replica: Replica) -> list[tuple[bytes, Proposal]]:
        collected, self.collected = self.collected, []
        return collected

    def refuse_collected(self, error: RaftlineError) -> None:
        collected, self.collected = self.collected, []
        for _, asker in collected:
            asker.refuse(error)

    def apply(self, entry: Entry, proposal: Proposal | None) -> None:
        if entry.data:
            self.entries.append(entry)
        if isinstance(proposal, Asker):
            proposal.heard.append(entry.index)

    def applied(self) -> None: ...

    def offer(self, index: int) -> bytes:
        return b""

    def checkpoint(self) -> Callable[[], Checkpoint]:
        raise NotImplementedError

    def checkpointed(self, mark: LogMark) -> None: ...

    def expire(self, now_ms: float) -> None: ...

    def close(self) -> None: ...


class LittleNode:
    """A turn, its WAL, and replicas on it."""

    def __init__(self, settings: RaftSettings | None = None) -> None:
        self.clock = HandClock()
        self.lane = HandLane()
        self.disk = SimDisk(rng())
        self.settings = settings or RaftSettings()
        wal = WalSettings(file_bytes=MIB, bytes_max=8 * MIB)
        self.wal, _ = Wal.open(self.disk, "wal", WalIdentity("c", "d"), wal, {})
        self.frames: list[tuple[int, list[tuple[int, Rpc]]]] = []
        self.fatal: list[str] = []
        self.turn = Turn(
            self.clock,
            self.wal,
            self.lane,
            turn_bytes=1024,
            send=self._send,
            fatal=self.fatal.append,
        )
        self.changed: list[Replica] = []
        self.rng = rng()

    def _send(self, node: int, buffers: list[bytes]) -> bool:
        self.frames.append((node, decode_rpcs(memoryview(b"".join(buffers)))))
        return True

    def open(self, shard: int = SHARD, voters: tuple[int, ...] = THREE, term: int = 1) -> Replica:
        """Open a replica that is at index 1."""
        conf = ConfState(voters=voters)
        return Replica(
            self.clock,
            self.rng,
            self.turn,
            ShardId(shard),
            ReplicaId(OURS),
            "c",
            LittleHost(),
            LogTime(self.clock, ClusterTime(self.clock)),
            self.settings,
            Start(1, 1, conf, HardState(term, 0, 1), []),
            self.changed.append,
        )

    def sent(self, kind: RpcKind) -> list[Rpc]:
        """Return what was sent so far of one kind."""
        return [rpc for _, rpcs in self.frames for _, rpc in rpcs if rpc.kind == kind]

    def settle(self) -> None:
        """Run turns and syncs until nothing is left to do."""
        for _ in range(100):
            self.clock.advance()
            if not self.lane.jobs:
                return
            self.lane.run()
        raise AssertionError("it goes round in circles")

    def elect(self, replica: Replica) -> None:
        """Let the others vote for ``replica``."""
        replica.campaign()
        for kind in (RpcKind.PRE_VOTE, RpcKind.VOTE):
            self.settle()
            asked = self.sent(kind)[-1]
            answer = RpcKind.PRE_VOTE_RESP if kind is RpcKind.PRE_VOTE else RpcKind.VOTE_RESP
            for other in replica.conf.voters:
                if other != OURS and not replica.is_leader:
                    replica.step(Rpc(answer, to=OURS, sender=other, term=asked.term))
        self.settle()
        assert replica.is_leader

    def ack(self, replica: Replica, index: int = 0, sender: int = SECOND) -> None:
        """Let another replica acknowledge everything, or up to ``index``."""
        term, last = replica.raft.term, index or replica.raft.last_index
        replica.step(Rpc(RpcKind.APP_RESP, to=OURS, sender=sender, term=term, index=last))


def append(term: int, index: int, log_term: int, *datas: bytes, commit: int = 1) -> Rpc:
    """Return an append of the second replica: entries after ``index``."""
    entries = [Entry(index + at, term, 0, data) for at, data in enumerate(datas, start=1)]
    return Rpc(
        RpcKind.APP, to=OURS, sender=SECOND, term=term, log_term=log_term, index=index,
        entries=entries, commit=commit,
    )  # fmt: skip


def little_host(replica: Replica) -> LittleHost:
    assert isinstance(replica.host, LittleHost)
    return replica.host
