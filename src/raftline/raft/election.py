"""Elections: ticks, campaigns, votes, and handing leadership over.

A campaign begins with a pre-vote where configured: the term moves only if a majority would grant
the vote, so a replica that was cut off does not disturb the others when it returns. With
check-quorum, a replica that heard from a leader lately ignores candidates, and a leader that has
not heard from a majority steps down. A transfer goes round both: the leader itself asked for it.
"""

from raftline.raft.membership import Membership
from raftline.raft.quorum import VoteResult, joint_vote_result
from raftline.raft.rpc import NOBODY, Entry, Rpc, RpcKind
from raftline.raft.state import CANDIDATE, LEADER, PRE_CANDIDATE

_APP = int(RpcKind.APP)
_APP_RESP = int(RpcKind.APP_RESP)
_HEARTBEAT = int(RpcKind.HEARTBEAT)
_SNAP = int(RpcKind.SNAP)
_VOTE = int(RpcKind.VOTE)
_VOTE_RESP = int(RpcKind.VOTE_RESP)
_PRE_VOTE = int(RpcKind.PRE_VOTE)
_PRE_VOTE_RESP = int(RpcKind.PRE_VOTE_RESP)
_STORAGE_APPEND_RESP = int(RpcKind.STORAGE_APPEND_RESP)

TRANSFER = b"CampaignTransfer"  # context of a vote request that the old leader wished for


class Election(Membership):
    """How a replica comes to lead, and stops."""

    __slots__ = ()

    def tick(self) -> None:
        """Let one unit of time pass."""
        self.election_elapsed += 1
        if self.role is LEADER:
            self._tick_leader()
        elif self.election_elapsed >= self.election_timeout_ticks and self.promotable():
            self.election_elapsed = 0
            self._hup(pre_vote=self.config.pre_vote)

    def campaign(self) -> None:
        """Try to become leader now."""
        self._hup(pre_vote=self.config.pre_vote)

    def forget_leader(self) -> None:
        """Stop believing in the leader, so that a candidate may get this vote at once."""
        if self.leader in (NOBODY, self.id) or self.role is LEADER:
            return
        if self.config.read_only_lease_based:
            if self.say is not None:
                self.say("ERROR", f"{self.id:x} cannot forget a leader whose lease reads rely on")
            return
        self.leader = NOBODY

    def _tick_leader(self) -> None:
        self.heartbeat_elapsed += 1
        if self.election_elapsed >= self.config.election_ticks:
            self.election_elapsed = 0
            if self.config.check_quorum:
                self._check_quorum()
            self.lead_transferee = NOBODY  # it had a full interval to take over
        if self.role is LEADER and self.heartbeat_elapsed >= self.config.heartbeat_ticks:
            self.heartbeat_elapsed = 0
            self._tick_heartbeat()

    def _check_quorum(self) -> None:
        if not self.quorum_active():
            if self.say is not None:
                self.say("WARN", f"{self.id:x} lost touch with the majority")
            self._become_follower(self.term, NOBODY)
        for _, progress in self._others:
            progress.recent_active = False

    # --- candidates

    def _hup(self, *, pre_vote: bool, transfer: bool = False) -> None:
        if self.role is LEADER:
            return
        if not self.promotable():
            if self.say is not None:
                self.say("WARN", f"{self.id:x} may not campaign: not a voter")
            return
        if self.log.has_unapplied_conf_change():
            if self.say is not None:
                self.say("WARN", f"{self.id:x} may not campaign: a change waits to be applied")
            return
        self._campaign(pre_vote=pre_vote, transfer=transfer)

    def _campaign(self, *, pre_vote: bool, transfer: bool = False) -> None:
        if pre_vote:
            self._become_pre_candidate()
            ask, answer, term = _PRE_VOTE, _PRE_VOTE_RESP, self.term + 1
        else:
            self._become_candidate()
            ask, answer, term = _VOTE, _VOTE_RESP, self.term
        log = self.log
        context = TRANSFER if transfer else b""
        for voter in self.members.voters():
            if voter == self.id:
                # Our own vote counts when it is durable, like everybody's.
                self._rpcs_after_append.append(Rpc(answer, voter, self.id, term))
                continue
            rpc = Rpc(ask, voter, self.id, term, log.last_term, log.last_index, context=context)
            self._rpcs.append(rpc)

    def _on_vote(self, rpc: Rpc) -> None:
        """Count a vote for us, if it belongs to the campaign under way."""
        expected = _PRE_VOTE_RESP if self.role is PRE_CANDIDATE else _VOTE_RESP
        if rpc.kind != expected:
            return
        self._votes.setdefault(rpc.sender, not rpc.reject)
        members = self.members
        result = joint_vote_result(members.incoming, members.outgoing, self._votes)
        if self.say is not None:
            self.say("INFO", f"{self.id:x} has the votes {self._votes}: {result.name.lower()}")
        if result is VoteResult.LOST:
            self._become_follower(self.term, NOBODY)
        elif result is VoteResult.WON:
            if self.role is PRE_CANDIDATE:
                self._campaign(pre_vote=False)
            elif self.id in self._votes or not self.config.own_vote_first:
                # Without our own: a crash could make us forget the term, and lead it once more
                # with other entries, by the votes that the others still have for us.
                self._become_leader()
                self._broadcast_append()

    def _become_leader(self) -> None:
        assert self.role is CANDIDATE
        self._reset(self.term)
        self.leader = self.id
        self._enter(LEADER)
        own = self.progress[self.id]
        own.become_replicate()
        own.recent_active = True
        # A change may wait in the tail of the log; until all of it is applied, take no other.
        self._pending_conf_index = self.log.last_index
        self._append_own([Entry(self.log.last_index + 1, self.term)])

    # --- voters

    def _on_vote_asked(self, rpc: Rpc) -> None:
        """Grant or refuse a vote. A learner may vote: it may have been promoted unawares."""
        pre_vote = rpc.kind == _PRE_VOTE
        may_vote = (
            self.vote == rpc.sender
            or (self.vote == NOBODY and self.leader == NOBODY)
            or (pre_vote and rpc.term > self.term)
        )
        granted = may_vote and self.log.is_up_to_date(rpc.index, rpc.log_term)
        if self.say is not None:
            verdict = "grants" if granted else "refuses"
            self.say("INFO", f"{self.id:x} {verdict} {rpc.sender:x} a vote of term {rpc.term}")
        # A grant answers in the term asked about: for a pre-vote that is not ours.
        self._answer_vote(rpc, rpc.term if granted else self.term, granted=granted)
        if granted and not pre_vote:
            self.election_elapsed = 0
            self.vote = rpc.sender

    def _answer_vote(self, rpc: Rpc, term: int, *, granted: bool) -> None:
        kind = _PRE_VOTE_RESP if rpc.kind == _PRE_VOTE else _VOTE_RESP
        answer = Rpc(kind, rpc.sender, self.id, term, reject=not granted)
        self._rpcs_after_append.append(answer)

    # --- terms

    def _enter_term(self, rpc: Rpc) -> bool:
        """Meet an rpc of a later term; say whether to go on with it."""
        kind = rpc.kind
        if kind in (_VOTE, _PRE_VOTE) and rpc.context != TRANSFER and self._in_lease():
            if self.say is not None:
                self.say("INFO", f"{self.id:x} ignores {rpc.sender:x}: it hears the leader")
            return False
        if kind == _PRE_VOTE or (kind == _PRE_VOTE_RESP and not rpc.reject):
            return True  # asked about a term that nobody has entered yet
        from_leader = kind in (_APP, _HEARTBEAT, _SNAP)
        self._become_follower(rpc.term, rpc.sender if from_leader else NOBODY)
        return True

    def _in_lease(self) -> bool:
        return (
            self.config.check_quorum
            and self.leader != NOBODY
            and self.election_elapsed < self.config.election_ticks
        )

    def _on_old_term(self, rpc: Rpc) -> None:
        """Meet an rpc of an earlier term."""
        kind = rpc.kind
        if kind in (_APP, _HEARTBEAT) and (self.config.check_quorum or self.config.pre_vote):
            # Its sender leads an old term and may never hear of ours otherwise: our votes are
            # ignored by those who hear it, and it is the only one who can fetch us back.
            self._rpcs_after_append.append(Rpc(_APP_RESP, rpc.sender, self.id, self.term))
        elif kind == _PRE_VOTE:
            self._answer_vote(rpc, self.term, granted=False)
        elif kind == _STORAGE_APPEND_RESP and rpc.snapshot is not None:
            # The entries may have been replaced since; a snapshot holds in any term.
            self._applied_snapshot(rpc.snapshot)

    # --- transfer

    def _on_transfer(self, rpc: Rpc) -> None:
        """Hand leadership to the sender, once its log is complete."""
        target = rpc.sender
        progress = self.progress.get(target)
        if progress is None or progress.is_learner or target == self.lead_transferee:
            return
        self.lead_transferee = NOBODY
        if target == self.id:
            return
        self.election_elapsed = 0  # it must be done within one interval
        self.lead_transferee = target
        if progress.match == self.log.last_index:
            self._send_timeout_now(target)
        else:
            self._send_append(target, progress, empty_too=True)

    def _on_forward_transfer(self, rpc: Rpc) -> None:
        if self.leader != NOBODY:
            self._rpcs.append(Rpc(rpc.kind, self.leader, rpc.sender, self.term))

    def _on_timeout_now(self, _rpc: Rpc) -> None:
        """Campaign at the leader's wish; no pre-vote, for nobody was cut off."""
        self._hup(pre_vote=False, transfer=True)
