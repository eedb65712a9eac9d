"""Linearizable reads without a log entry, and the heartbeats that confirm them.

A leader answers a read with its commit mark once a majority, asked after the read came, still
follows it. Reads are numbered in order; a heartbeat carries the number of the newest one, its
answer confirms all up to that number. With ``read_only_lease_based`` the answer is given at once,
on the word of check-quorum, and is only as good as the clocks.

A new leader does not know how far the cluster has committed until an entry of its own term is,
so reads wait for that. So does a single voter, whose commit mark may be older than its log: here
we differ from etcd/raft, which answers a single voter's reads at once.
"""

from raftline.raft.errors import EntryLost, RaftFault
from raftline.raft.progress import Progress
from raftline.raft.quorum import joint_committed_index
from raftline.raft.rpc import NOBODY, Rpc, RpcKind
from raftline.raft.state import RaftState, ReadState

_HEARTBEAT = int(RpcKind.HEARTBEAT)
_HEARTBEAT_RESP = int(RpcKind.HEARTBEAT_RESP)
_READ_INDEX_RESP = int(RpcKind.READ_INDEX_RESP)
_CONTEXT_BYTES = 8


class Reads(RaftState):
    """Reads, on the leader and on the replica that asked."""

    __slots__ = ()

    def _tick_heartbeat(self) -> None:
        """Send the heartbeat that is due; an append since the last one may stand for it."""
        if not self.config.heartbeats_ride or self._unconfirmed_reads:
            self._broadcast_heartbeat()
            return
        for replica, progress in self._others:
            if progress.was_sent:
                progress.was_sent = False
            else:
                self._send_heartbeat(replica, progress, self.log.commit, b"")

    def _broadcast_heartbeat(self) -> None:
        context = self._read_context()
        commit = self.log.commit
        for replica, progress in self._others:
            self._send_heartbeat(replica, progress, commit, context)

    def _send_heartbeat(
        self, replica: int, progress: Progress, commit: int, context: bytes
    ) -> None:
        told = min(progress.match, commit)
        self._rpcs.append(
            Rpc(_HEARTBEAT, replica, self.id, self.term, commit=told, context=context)
        )
        progress.sent_commit = told

    def _answer_heartbeat(self, rpc: Rpc) -> None:
        last = self.log.last_index
        if rpc.commit > last:  # never told beyond what we acknowledged in this term
            raise EntryLost(f"it acknowledged entry {rpc.commit}, its log ends at {last}")
        self.log.commit_to(rpc.commit)
        self._rpcs.append(Rpc(_HEARTBEAT_RESP, rpc.sender, self.id, self.term, context=rpc.context))

    def _on_read(self, rpc: Rpc) -> None:
        """Take a read on the leader."""
        if len(rpc.entries) != 1:
            raise RaftFault(f"a read names itself once, not {len(rpc.entries)} times")
        if self._committed_in_term():
            self._confirm_read(rpc)
        else:
            self._pending_reads.append(rpc)

    def _on_forward_read(self, rpc: Rpc) -> None:
        """Pass a read on to the leader, who answers the sender."""
        if self.leader == NOBODY:
            if self.say is not None:
                self.say("INFO", f"{self.id:x} knows no leader in term {self.term}: read dropped")
            return
        self._rpcs.append(Rpc(rpc.kind, self.leader, rpc.sender or self.id, entries=rpc.entries))

    def _on_read_answer(self, rpc: Rpc) -> None:
        if len(rpc.entries) != 1:
            raise RaftFault(f"a read names itself once, not {len(rpc.entries)} times")
        self._read_states.append(ReadState(rpc.index, rpc.entries[0].data))

    def _release_pending_reads(self) -> None:
        """Take the reads that waited for the first commit of the term."""
        if self._pending_reads and self._committed_in_term():
            waiting, self._pending_reads = self._pending_reads, []
            for rpc in waiting:
                self._confirm_read(rpc)

    def _confirm_read(self, rpc: Rpc) -> None:
        if self.config.read_only_lease_based or self.members.is_singleton():
            self._answer_read(rpc, self.log.commit)
            return
        self._unconfirmed_reads.append((rpc, self.log.commit))
        self._acks[self.id] = self._reads_confirmed + len(self._unconfirmed_reads)
        self._broadcast_heartbeat()

    def _confirm_reads(self, sender: int, context: bytes) -> None:
        """Count a heartbeat's answer."""
        number = self._read_number(context)
        self._acks[sender] = max(number, self._acks.get(sender, 0))
        self._answer_confirmed_reads()

    def _answer_confirmed_reads(self) -> None:
        """Answer the reads that a majority confirms: of the configuration in force by now."""
        members = self.members
        confirmed = joint_committed_index(members.incoming, members.outgoing, self._acks)
        count = confirmed - self._reads_confirmed
        if count <= 0:
            return
        answered = self._unconfirmed_reads[:count]
        del self._unconfirmed_reads[:count]
        self._reads_confirmed = confirmed
        for rpc, index in answered:
            self._answer_read(rpc, index)

    def _read_number(self, context: bytes) -> int:
        issued = self._reads_confirmed + len(self._unconfirmed_reads)
        number = int.from_bytes(context, "little")
        if len(context) != _CONTEXT_BYTES or number > issued:
            raise RaftFault(f"an answer confirms read {number}, only {issued} were asked")
        return number

    def _read_context(self) -> bytes:
        if not self._unconfirmed_reads:
            return b""
        number = self._reads_confirmed + len(self._unconfirmed_reads)
        return number.to_bytes(_CONTEXT_BYTES, "little")

    def _answer_read(self, rpc: Rpc, index: int) -> None:
        if rpc.sender in (NOBODY, self.id):
            self._read_states.append(ReadState(index, rpc.entries[0].data))
        else:
            self._rpcs.append(
                Rpc(_READ_INDEX_RESP, rpc.sender, self.id, self.term, 0, index, rpc.entries)
            )

    def _committed_in_term(self) -> bool:
        return self.log.term_at(self.log.commit) == self.term
