"""Elections: when a node stands for which shard, and when a shard may be quiet. L1-L6."""

import msgspec
import pytest

from raftline.config.settings import RaftSettings
from raftline.node.elections import Elections
from raftline.node.replica import Replica
from raftline.raft.rpc import Rpc, RpcKind
from raftline.transport.rpcs import Quiet
from tests.unit.node.little_ports import rng
from tests.unit.node.little_replica import OURS, SECOND, THIRD, LittleNode, append

SETTINGS = msgspec.structs.replace(RaftSettings(), campaigns_max=5)


class Voters:
    """A node with some shards and its elections."""

    def __init__(self, count: int = 1) -> None:
        self.little = LittleNode(SETTINGS)
        self.clock = self.little.clock
        self.live = {2, 3}
        self.replicas = [self.little.open(shard) for shard in range(100, 100 + count)]
        self.elections = Elections(
            self.clock,
            rng(),
            SETTINGS,
            lambda: self.replicas,
            self.little.turn.awake,
            lambda node: node in self.live,
        )

    def follow(self) -> None:
        """Let node 2 lead every shard, level and quiet."""
        for replica in self.replicas:
            replica.step(append(2, 1, 1, b"one", commit=2))
        self.little.settle()
        for replica in self.replicas:
            assert self.elections.told_quiet(replica, self.row(replica))

    @staticmethod
    def row(replica: Replica) -> Quiet:
        raft = replica.raft
        return Quiet(replica.shard, OURS, SECOND, raft.term, raft.last_index, raft.commit)

    def lead(self) -> Replica:
        """Let us lead the first shard, with everybody level."""
        replica = self.replicas[0]
        self.little.elect(replica)
        for sender in (SECOND, THIRD):
            self.little.ack(replica, sender=sender)
        self.little.settle()
        self.clock.advance(SETTINGS.quiet_after_ms)
        self.little.settle()
        return replica

    def campaigns(self) -> int:
        """Return how many shards have asked for votes."""
        self.little.settle()
        return len({shard for _, rpcs in self.little.frames for shard, rpc in rpcs
                    if rpc.kind == RpcKind.PRE_VOTE})  # fmt: skip


def test_the_leaders_of_a_dead_process_are_forgotten_and_campaigned_for_at_once() -> None:
    """L1."""
    voters = Voters(3)
    voters.follow()
    voters.elections.node_gone(3)
    voters.clock.advance(100)
    assert voters.campaigns() == 0
    voters.elections.node_gone(2)
    assert all(replica.raft.leader == 0 for replica in voters.replicas)
    voters.clock.advance(SETTINGS.quick_failover_ms_max)
    assert voters.campaigns() == 3


def test_a_silent_node_wakes_the_quiet_shards_it_led_spread_over_time() -> None:
    """L2: the ones that are awake have timers of their own."""
    voters = Voters(4)
    voters.follow()
    voters.replicas[0].wake()
    voters.elections.node_silent(2)
    assert voters.replicas[0].raft.leader == SECOND
    assert not any(replica.quiet for replica in voters.replicas)
    counts: list[int] = []
    for _ in range(8):
        voters.clock.advance(100)
        counts.append(voters.campaigns())
    assert counts[-1] == 3
    assert counts[0] < 3


def test_a_leader_that_resigns_is_forgotten() -> None:
    """L6."""
    voters = Voters()
    voters.follow()
    voters.elections.resigned(voters.replicas[0])
    voters.clock.advance(SETTINGS.quick_failover_ms_max)
    assert voters.campaigns() == 1


def test_campaigns_begin_a_few_at_a_time_and_all_of_them_do() -> None:
    """L4."""
    voters = Voters(23)
    for replica in voters.replicas:
        voters.elections.campaign_within(replica, 0)
    counts: list[int] = []
    voters.clock.advance(1)
    for _ in range(12):
        counts.append(voters.campaigns())
        voters.clock.advance(50)
    begun = [after - before for before, after in zip([0, *counts], counts, strict=False)]
    assert max(begun) <= SETTINGS.campaigns_max
    assert counts[-1] == 23


def test_a_campaign_is_repeated_until_somebody_leads() -> None:
    voters = Voters()
    replica = voters.replicas[0]
    voters.elections.campaign_within(replica, 0)
    voters.clock.advance(400)
    voters.little.settle()
    asked = len(voters.little.sent(RpcKind.PRE_VOTE))
    assert asked > 2
    replica.step(Rpc(RpcKind.HEARTBEAT, to=OURS, sender=SECOND, term=9, commit=1))
    voters.little.settle()
    asked = len(voters.little.sent(RpcKind.PRE_VOTE))
    voters.clock.advance(2_000)
    voters.little.settle()
    assert len(voters.little.sent(RpcKind.PRE_VOTE)) == asked


def test_who_has_no_vote_does_not_stand() -> None:
    voters = Voters(0)
    watcher = voters.little.open(200, voters=(SECOND, THIRD))
    voters.elections.campaign_within(watcher, 0)
    voters.clock.advance(500)
    assert voters.campaigns() == 0


def test_a_level_shard_goes_quiet_and_its_replicas_are_told() -> None:
    voters = Voters()
    replica = voters.lead()
    rows = voters.elections.quiet_rows(voters.clock.now)
    raft = replica.raft
    assert rows == {
        node: [Quiet(replica.shard, to, OURS, raft.term, raft.last_index, raft.commit)]
        for node, to in ((2, SECOND), (3, THIRD))
    }
    assert replica.quiet
    assert replica not in voters.little.turn.awake


@pytest.mark.parametrize(
    "why", ["busy", "behind", "uncommitted", "no majority", "transfer", "frozen"]
)
def test_a_shard_that_is_not_level_stays_awake(why: str) -> None:
    """L5."""
    voters = Voters()
    replica = voters.lead()
    if why == "busy":
        replica.wake()
        replica.active_mono = voters.clock.now
    elif why == "behind":
        replica.raft.progress[THIRD].match -= 1
    elif why in ("uncommitted", "frozen"):
        replica.frozen = why == "frozen"
        replica.raft.propose([b"more"])
        voters.little.settle()
        if why == "frozen":
            voters.little.ack(replica)
            voters.little.ack(replica, sender=THIRD)
            voters.little.settle()
    elif why == "no majority":
        voters.live.clear()
    else:
        replica.raft.transfer_leadership(SECOND)
    if why != "busy":
        replica.active_mono = 0.0
    assert voters.elections.quiet_rows(voters.clock.now) == {}
    assert not replica.quiet


def test_a_replica_on_a_dead_node_keeps_nobody_awake() -> None:
    """L5: it will be told when it is back."""
    voters = Voters()
    replica = voters.lead()
    replica.raft.progress[THIRD].match -= 1
    voters.live.discard(3)
    voters.elections.quiet_rows(voters.clock.now)
    assert replica.quiet
    voters.elections.node_back(3)
    assert not replica.quiet


@pytest.mark.parametrize("field", ["to", "sender", "term", "last", "commit"])
def test_a_follower_that_differs_refuses_to_be_quiet(field: str) -> None:
    voters = Voters()
    replica = voters.replicas[0]
    replica.step(append(2, 1, 1, b"one", commit=2))
    voters.little.settle()
    row = voters.row(replica)
    other = msgspec.structs.replace(row, **{field: getattr(row, field) + 1})
    assert not voters.elections.told_quiet(replica, other)
    assert not voters.elections.told_quiet(None, row)
    voters.live.discard(2)
    assert not voters.elections.told_quiet(replica, row), "L3: nobody hears that node"
    voters.live.add(2)
    assert voters.elections.told_quiet(replica, row)
    assert replica.quiet


def test_any_rpc_wakes_a_quiet_shard_but_a_late_heartbeat_answer() -> None:
    voters = Voters()
    replica = voters.lead()
    voters.elections.quiet_rows(voters.clock.now)
    term = replica.raft.term
    replica.step(Rpc(RpcKind.HEARTBEAT_RESP, to=OURS, sender=SECOND, term=term))
    assert replica.quiet
    voters.little.ack(replica)
    assert not replica.quiet
