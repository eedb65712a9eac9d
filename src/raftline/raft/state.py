"""What a replica remembers, and how it changes its role.

The classes ``RaftState`` < ``Reads`` < ``Replication`` < ``Membership`` < ``Election`` < ``Raft``
are one object, cut into files by duty. Each may call what stands below it.

Two queues of outgoing rpcs: ``_rpcs`` may leave at once; ``_rpcs_after_append`` claim that
something is durable here, so they leave only after the write they were queued behind.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, ClassVar

import msgspec

from raftline.raft.config import Config
from raftline.raft.log import RaftLog
from raftline.raft.members import Members, Plan
from raftline.raft.progress import Inflights, Progress
from raftline.raft.quorum import VoteResult, joint_vote_result, majority_index
from raftline.raft.rpc import NO_LIMIT, NOBODY, HardState, Rpc
from raftline.raft.storage import LogStorage


class Role(IntEnum):
    """What a replica is in its term."""

    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2
    PRE_CANDIDATE = 3


FOLLOWER, CANDIDATE, LEADER, PRE_CANDIDATE = Role

Handler = Callable[[Any, Rpc], None]


class ReadState(msgspec.Struct, frozen=True):
    """A read named ``context`` is linearizable once ``index`` is applied."""

    index: int
    context: bytes


class RaftState:
    """Memory and roles of one replica."""

    __slots__ = (
        "_acks",
        "_handlers",
        "_others",
        "_pending_conf_index",
        "_pending_reads",
        "_read_states",
        "_reads_confirmed",
        "_rpcs",
        "_rpcs_after_append",
        "_snapshot_index",
        "_uncommitted_bytes",
        "_uncommitted_bytes_max",
        "_unconfirmed_reads",
        "_voters_in",
        "_voters_out",
        "_votes",
        "config",
        "election_elapsed",
        "election_timeout_ticks",
        "heartbeat_elapsed",
        "id",
        "is_learner",
        "lead_transferee",
        "leader",
        "log",
        "members",
        "progress",
        "role",
        "say",
        "term",
        "vote",
    )

    _tables: ClassVar[tuple[tuple[Handler | None, ...], ...]] = ()  # by role, then by kind

    def __init__(self, config: Config, storage: LogStorage) -> None:
        problems = config.problems()
        if problems:
            raise ValueError("; ".join(problems))
        self.config = config
        self.say = config.logger
        self.id = config.id
        self.log = RaftLog(storage, config.committed_bytes_max or config.message_bytes_max)
        self.term = 0
        self.vote = NOBODY
        self.role: Role = FOLLOWER
        self.leader = NOBODY
        self.lead_transferee = NOBODY
        self.is_learner = False
        self.members = Members()
        self.progress: dict[int, Progress] = {}  # sorted by replica
        self.election_elapsed = self.heartbeat_elapsed = 0
        self.election_timeout_ticks = config.election_ticks
        self._others: list[tuple[int, Progress]] = []
        self._voters_in: list[Progress] = []
        self._voters_out: list[Progress] = []
        self._votes: dict[int, bool] = {}
        self._rpcs: list[Rpc] = []
        self._rpcs_after_append: list[Rpc] = []
        self._snapshot_index = 0  # where the last snapshot taken from a leader stands
        self._pending_conf_index = 0
        self._uncommitted_bytes = 0
        self._uncommitted_bytes_max = config.uncommitted_bytes_max or NO_LIMIT
        self._read_states: list[ReadState] = []
        self._pending_reads: list[Rpc] = []
        self._clear_reads()

    # --- what callers may read

    @property
    def commit(self) -> int:
        """The last index known to be committed."""
        return self.log.commit

    @property
    def applied(self) -> int:
        """The last index known to be applied."""
        return self.log.applied

    @property
    def last_index(self) -> int:
        """The last index of the log, durable or not."""
        return self.log.last_index

    def hard_state(self) -> HardState:
        """Return what must be durable now."""
        return HardState(self.term, self.vote, self.log.commit)

    def quorum_active(self) -> bool:
        """Say whether, to this leader, a majority was heard from in the last interval."""
        heard = {
            replica: progress.recent_active
            for replica, progress in self.progress.items()
            if not progress.is_learner
        }
        result = joint_vote_result(self.members.incoming, self.members.outgoing, heard)
        return result is VoteResult.WON

    def reset_election_timer(self) -> None:
        """Be patient again, as if the leader had just been heard."""
        self.election_elapsed = 0

    def promotable(self) -> bool:
        """Say whether this replica may become leader: a voter, with no snapshot half taken."""
        own = self.progress.get(self.id)
        return own is not None and not own.is_learner and self.log.snapshot is None

    # --- roles

    def _become_follower(self, term: int, leader: int) -> None:
        self._reset(term)
        self.leader = leader
        self._enter(FOLLOWER)

    def _become_candidate(self) -> None:
        assert self.role is not LEADER
        self._reset(self.term + 1)
        self.vote = self.id
        self._enter(CANDIDATE)

    def _become_pre_candidate(self) -> None:
        """Ask whether an election could be won; term and vote stay."""
        assert self.role is not LEADER
        self._votes = {}
        self.leader = NOBODY
        self._enter(PRE_CANDIDATE)

    def _enter(self, role: Role) -> None:
        self.role = role
        self._handlers = self._tables[role]
        if self.say is not None:
            self.say("INFO", f"{self.id:x} is {role.name.lower()} in term {self.term}")

    def _reset(self, term: int) -> None:
        """Forget what belonged to the role before."""
        if term != self.term:
            self.term = term
            self.vote = NOBODY
        self.leader = NOBODY
        self.lead_transferee = NOBODY
        self.election_elapsed = self.heartbeat_elapsed = 0
        ticks = self.config.election_ticks
        self.election_timeout_ticks = ticks + self.config.rng.randrange(0, ticks)
        self._votes = {}
        last = self.log.last_index
        for replica, progress in self.progress.items():
            progress.reset(last + 1)
            if replica == self.id:
                progress.match = last
        self._pending_conf_index = 0
        self._uncommitted_bytes = 0
        self._clear_reads()

    def _clear_reads(self) -> None:
        self._unconfirmed_reads: list[tuple[Rpc, int]] = []  # request, commit when it came
        self._reads_confirmed = 0
        self._acks: dict[int, int] = {}

    # --- the configuration

    def _install(self, plan: Plan) -> None:
        """Take part as ``plan`` says: keep the progress of who stays, start that of who is new."""
        members = plan.members
        config = self.config
        progress = carry_over(
            plan,
            self.progress,
            self.log.last_index,
            lambda: Inflights(config.inflight_max, config.inflight_bytes_max),
        )
        self.members = members
        self.progress = progress
        self._others = [
            (replica, known) for replica, known in progress.items() if replica != self.id
        ]
        self._voters_in = [progress[replica] for replica in members.incoming]
        self._voters_out = [progress[replica] for replica in members.outgoing]
        own = progress.get(self.id)
        self.is_learner = own is not None and own.is_learner

    def _quorum_index(self) -> int:
        """Return the last index that the log of a majority is known to reach."""
        index = majority_index([progress.match for progress in self._voters_in])
        if self._voters_out:
            other = majority_index([progress.match for progress in self._voters_out])
            return min(index, other)
        return index

    def _load(self, state: HardState, applied: int) -> None:
        """Take up where the last process stopped.

        The commit mark need not be durable: what was applied or compacted was committed.
        """
        log = self.log
        log.commit_to(state.commit)
        log.commit_to(applied)
        if applied:
            log.applied_to(applied, 0)
        self.term = state.term
        self.vote = state.vote


def carry_over(
    plan: Plan, progress: dict[int, Progress], last_index: int, inflights: Callable[[], Inflights]
) -> dict[int, Progress]:
    """Return the progress of everyone in ``plan``: kept for who stays, begun for who is new.

    A new replica is probed at the end of the log first: it may have been fed some other way.
    """
    fresh = set(plan.fresh)
    learners = plan.members.learners
    carried: dict[int, Progress] = {}
    for replica in plan.members.everyone():
        known = None if replica in fresh else progress.get(replica)
        if known is None:
            known = Progress(max(last_index, 1), inflights(), is_learner=False)
        known.is_learner = replica in learners
        carried[replica] = known
    return carried
