"""Proposals, changes of the configuration, and snapshots (which carry one).

A change takes effect when it is *applied*, not when it is appended, so one may be under way at
most: the leader remembers the index of the last one it took and turns the next into an empty
entry until that index is applied. A joint configuration that leaves by itself is left by the
leader's own proposal, as soon as everything up to the change is applied.
"""

from raftline.raft.conf_change import ConfChange, ConfChangeV2, as_v2, decode_conf_change
from raftline.raft.errors import ProposalDropped, RaftFault
from raftline.raft.members import Plan, members_from, plan_change
from raftline.raft.replication import Replication
from raftline.raft.rpc import (
    NOBODY,
    ConfState,
    Entry,
    EntryKind,
    Rpc,
    RpcKind,
    Snapshot,
    entries_bytes,
    payload_bytes,
)
from raftline.raft.state import LEADER

_NORMAL = int(EntryKind.NORMAL)
_PROPOSE = int(RpcKind.PROPOSE)
NO_INDEX = 0


class Membership(Replication):
    """Who takes part, and what is proposed."""

    __slots__ = ()

    def conf_state(self) -> ConfState:
        """Return the configuration in force."""
        return self.members.conf_state()

    def apply_conf_change(
        self, change: ConfChange | ConfChangeV2, index: int = NO_INDEX
    ) -> ConfState:
        """Put a committed change into force and return the new configuration.

        ``index`` is that of its entry: a change that a snapshot has overtaken, because it came
        while the entries before it were being applied, is passed over. Without it the caller
        vouches that this cannot be.

        Raises:
            ConfChangeFault: it cannot be made; the old configuration stays.
        """
        if NO_INDEX < index <= self._snapshot_index:
            return self.members.conf_state()
        return self._switch(plan_change(self.members, as_v2(change)))

    # --- proposals

    def _propose_data(self, datas: list[bytes]) -> tuple[int, int]:
        """Append one entry per data on the leader; return their term and first index."""
        self._check_open()
        term = self.term
        first = index = self.log.last_index + 1
        entries: list[Entry] = []
        for data in datas:
            entries.append(Entry(index, term, _NORMAL, data))
            index += 1
        if not self._append_own(entries):
            raise ProposalDropped("too much is uncommitted")
        self._broadcast_append()
        return term, first

    def _on_propose(self, rpc: Rpc) -> None:
        """Append what a follower forwarded, or a change, on the leader."""
        if not rpc.entries:
            raise RaftFault("a proposal without entries")
        self._check_open()
        before = self._pending_conf_index
        entries: list[Entry] = []
        index = self.log.last_index
        for given in rpc.entries:
            index += 1
            if given.kind != _NORMAL and not self._admit_change(given, index):
                entries.append(Entry(index, self.term))
            else:
                entries.append(Entry(index, self.term, given.kind, given.data, given.crc))
        if not self._append_own(entries):
            self._pending_conf_index = before
            raise ProposalDropped("too much is uncommitted")
        self._broadcast_append()

    def _check_open(self) -> None:
        if self.id not in self.progress:
            raise ProposalDropped("the leader was removed")
        if self.lead_transferee != NOBODY:
            raise ProposalDropped(f"leadership is passing to {self.lead_transferee:x}")

    def _on_forward_proposal(self, rpc: Rpc) -> None:
        """Pass a proposal on to the leader."""
        if self.leader == NOBODY:
            raise ProposalDropped(f"no leader is known in term {self.term}")
        if self.config.proposal_forwarding_disabled:
            raise ProposalDropped(f"the leader is {self.leader:x}")
        self._rpcs.append(Rpc(_PROPOSE, self.leader, rpc.sender or self.id, entries=rpc.entries))

    def _on_lost_proposal(self, rpc: Rpc) -> None:
        """Drop a proposal: a candidate knows no leader."""
        raise ProposalDropped(f"no leader is known in term {self.term}")

    def _admit_change(self, entry: Entry, index: int) -> bool:
        """Say whether a change may enter the log at ``index``, and remember it if so."""
        change = decode_conf_change(entry)
        joint = self.members.is_joint()
        objection = ""
        if self._pending_conf_index > self.log.applied:
            objection = f"one may be pending at {self._pending_conf_index}"
        elif joint and change.changes:
            objection = "the joint configuration must be left first"
        elif not joint and not change.changes:
            objection = "there is no joint configuration to leave"
        if objection and not self.config.conf_change_validation_disabled:
            if self.say is not None:
                self.say("INFO", f"{self.id:x} turned down a change: {objection}")
            return False
        self._pending_conf_index = index
        return True

    # --- applying

    def _on_applied(self, rpc: Rpc) -> None:
        """Learn that the entries handed out for applying were applied."""
        entries = rpc.entries
        if entries:
            self._applied_to(entries[-1].index, entries_bytes(entries))
            self._uncommitted_bytes = max(0, self._uncommitted_bytes - payload_bytes(entries))

    def _on_stored(self, rpc: Rpc) -> None:
        """Learn that the log is durable up to an index, or a snapshot is."""
        if rpc.index:
            self.log.stable_to(rpc.index, rpc.log_term)
        if rpc.snapshot is not None:
            self._applied_snapshot(rpc.snapshot)

    def _applied_snapshot(self, snapshot: Snapshot) -> None:
        self.log.stable_snapshot_to(snapshot.index)
        self._applied_to(snapshot.index, 0)

    def _applied_to(self, index: int, size: int) -> None:
        log = self.log
        log.applied_to(max(index, log.applied), size)
        if (
            self.members.auto_leave
            and self.role is LEADER
            and log.applied >= self._pending_conf_index
        ):
            self._leave_joint()

    def _leave_joint(self) -> None:
        leave = Entry(0, 0, EntryKind.CONF_CHANGE_V2)
        try:
            self._on_propose(Rpc(_PROPOSE, sender=self.id, entries=[leave]))
        except ProposalDropped as dropped:
            if self.say is not None:
                self.say("DEBUG", f"{self.id:x} stays in the joint configuration: {dropped}")

    def _switch(self, plan: Plan) -> ConfState:
        self._install(plan)
        if self.say is not None:
            self.say("INFO", f"{self.id:x} now has the configuration {self.members}")
        conf = self.members.conf_state()
        if self.role is not LEADER:
            return conf
        if self.id not in self.progress or self.is_learner:
            if self.config.step_down_on_removal:
                if self.config.commit_rides:
                    self.flush_commit()  # the last chance to tell that the change is committed
                self._become_follower(self.term, NOBODY)
            return conf
        if not conf.voters:
            return conf
        if self._advance_commit():
            self._broadcast_commit()
        else:
            for replica, progress in self._others:
                self._send_append(replica, progress, empty_too=False)
        if self._unconfirmed_reads:
            self._answer_confirmed_reads()
        if self.lead_transferee not in (*conf.voters, *conf.voters_outgoing):
            self.lead_transferee = NOBODY
        return conf

    # --- snapshots on a follower

    def _take_snapshot(self, rpc: Rpc) -> None:
        snapshot = rpc.snapshot or Snapshot()
        taken = self._restore(snapshot)
        if self.say is not None:
            fate = "taken" if taken else "passed over"
            self.say("INFO", f"{self.id:x}: the snapshot at {snapshot.index} was {fate}")
        self._answer_append(rpc, self.log.last_index if taken else self.log.commit)

    def _restore(self, snapshot: Snapshot) -> bool:
        """Replace log and configuration by ``snapshot``; say no if it is old or not for us."""
        log = self.log
        conf = snapshot.conf
        if snapshot.index <= log.commit:
            return False
        if self.id not in (*conf.voters, *conf.learners, *conf.voters_outgoing):
            return False
        if log.term_at(snapshot.index) == snapshot.term:
            log.commit_to(snapshot.index)  # the log holds all of it
            return False
        members = members_from(conf)
        log.restore(snapshot)
        self._snapshot_index = snapshot.index
        self._switch(Plan(members, tuple(members.everyone())))
        return True
