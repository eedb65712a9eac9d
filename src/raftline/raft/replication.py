"""Appends: the leader sends them, a follower takes them, the answers move the commit mark.

Leader: ``_send_append`` chooses what a replica needs next: entries, only the commit mark, or a
snapshot when the log no longer reaches back. A rejected append is answered with a guess of where
the logs still match; leader and follower both skip whole terms in guessing, so a probe costs one
round trip per term at most.

Invariant: an entry counts as committed only when a majority holds it *and* it is of the leader's
own term; older ones are committed with it.
"""

from raftline.raft.errors import RaftFault
from raftline.raft.log import NO_TERM
from raftline.raft.progress import PROBE, REPLICATE, SNAPSHOT, Progress
from raftline.raft.reads import Reads
from raftline.raft.rpc import APPEND_ENTRIES_MAX, Entry, Rpc, RpcKind, payload_bytes
from raftline.raft.state import LEADER
from raftline.raft.storage import Compacted, SnapshotUnavailable

_APP = int(RpcKind.APP)
_APP_RESP = int(RpcKind.APP_RESP)
_SNAP = int(RpcKind.SNAP)
_TIMEOUT_NOW = int(RpcKind.TIMEOUT_NOW)


class Replication(Reads):
    """The way of an entry from the leader's log to everyone's."""

    __slots__ = ()

    # --- leader: sending

    def _append_own(self, entries: list[Entry]) -> bool:
        """Add numbered ``entries`` to the leader's log; say no when too much is uncommitted."""
        size = payload_bytes(entries)
        held = self._uncommitted_bytes
        if held and size and held + size > self._uncommitted_bytes_max:
            if self.say is not None:
                self.say("WARN", f"{self.id:x} holds {held} uncommitted bytes: proposal dropped")
            return False
        self._uncommitted_bytes = held + size
        log = self.log
        log.append(entries)
        self._rpcs_after_append.append(
            Rpc(_APP_RESP, self.id, self.id, self.term, 0, log.last_index)
        )
        return True

    def _broadcast_append(self) -> None:
        for replica, progress in self._others:
            self._send_append(replica, progress, empty_too=True)

    def _broadcast_commit(self) -> None:
        """Tell everyone of a new commit mark, or let it ride on the next append."""
        empty_too = not self.config.commit_rides
        last = self.log.last_index
        for replica, progress in self._others:
            if empty_too or progress.next <= last:
                self._send_append(replica, progress, empty_too=empty_too)

    def flush_commit(self) -> None:
        """Send the commit mark to every replica that was not told it with an append."""
        commit = self.log.commit
        for replica, progress in self._others if self.role is LEADER else ():
            if progress.can_bump_commit(commit):
                self._send_append(replica, progress, empty_too=True)

    def _send_append(self, replica: int, progress: Progress, *, empty_too: bool) -> bool:
        """Send what ``replica`` needs next; say whether anything was sent."""
        state = progress.state
        if progress.flow_paused or state == SNAPSHOT:
            return False
        log = self.log
        start = progress.next
        prev_term = log.term_at(start - 1)
        if prev_term == NO_TERM:
            return self._send_snapshot(replica, progress)
        entries: list[Entry] = []
        if start <= log.last_index and (state != REPLICATE or not progress.inflights.is_full()):
            try:
                entries = log.entries_from(start, self.config.message_bytes_max)
            except Compacted:
                return self._send_snapshot(replica, progress) if empty_too else False
        if not (entries or empty_too):
            return False
        if len(entries) > APPEND_ENTRIES_MAX:
            del entries[APPEND_ENTRIES_MAX:]
        self._rpcs.append(
            Rpc(_APP, replica, self.id, self.term, prev_term, start - 1, entries, log.commit)
        )
        progress.sent_entries(len(entries), payload_bytes(entries))
        progress.sent_commit = log.commit
        progress.was_sent = True
        return True

    def _send_snapshot(self, replica: int, progress: Progress) -> bool:
        if not progress.recent_active:
            if self.say is not None:
                self.say("DEBUG", f"{self.id:x} sends no snapshot to the silent {replica:x}")
            return False
        try:
            snapshot = self.log.snapshot or self.log.storage.snapshot()
        except SnapshotUnavailable:
            if self.say is not None:
                self.say("DEBUG", f"{self.id:x} has no snapshot for {replica:x} yet")
            return False
        if snapshot.index == 0:
            raise RaftFault(f"a snapshot for {replica:x} is needed and there is none")
        progress.become_snapshot(snapshot.index)
        self._rpcs.append(Rpc(_SNAP, replica, self.id, self.term, snapshot=snapshot))
        if self.say is not None:
            self.say("DEBUG", f"{self.id:x} sent the snapshot at {snapshot.index} to {replica:x}")
        return True

    def _send_timeout_now(self, replica: int) -> None:
        self._rpcs.append(Rpc(_TIMEOUT_NOW, replica, self.id, self.term))

    # --- leader: answers

    def _advance_commit(self) -> bool:
        """Move the commit mark as far as a majority allows; say whether it moved."""
        log = self.log
        index = self._quorum_index()
        if index <= log.commit or log.term_at(index) != self.term:
            return False
        log.commit = index
        return True

    def _on_append_answer(self, rpc: Rpc) -> None:
        sender = rpc.sender
        progress = self.progress.get(sender)
        if progress is None:
            return
        progress.recent_active = True
        if rpc.reject:
            self._on_append_rejected(rpc, progress)
            return
        log = self.log
        index = rpc.index
        if index > log.last_index:
            raise RaftFault(f"{sender:x} acks {index}, the last entry is {log.last_index}")
        if not progress.update(index) and (index != progress.match or progress.state != PROBE):
            return
        self._resume(progress, index)
        if index > log.commit and self._advance_commit():
            self._release_pending_reads()
            self._broadcast_commit()
        elif (
            sender != self.id
            and not self.config.commit_rides
            and progress.can_bump_commit(log.commit)
        ):
            self._send_append(sender, progress, empty_too=True)
        if sender == self.id:
            return
        while progress.next <= log.last_index:
            if not self._send_append(sender, progress, empty_too=False):
                break
        if sender == self.lead_transferee and progress.match == log.last_index:
            self._send_timeout_now(sender)

    def _resume(self, progress: Progress, index: int) -> None:
        """Send more to a replica whose log is now known to match up to ``index``."""
        state = progress.state
        if state == REPLICATE:
            progress.inflights.free_to(index)
        elif state == PROBE:
            progress.become_replicate()
        elif progress.match + 1 >= self.log.first_index():
            # Whichever snapshot it took: what follows can come from the log again.
            progress.become_probe()
            progress.become_replicate()

    def _on_append_rejected(self, rpc: Rpc, progress: Progress) -> None:
        hint = rpc.reject_hint
        if rpc.log_term > 0:
            # Where our term is above the follower's at the hint, the logs cannot match.
            hint = self.log.guess_match(min(hint, self.log.last_index + 1), rpc.log_term)[0]
        if progress.back_off(rpc.index, hint):
            if progress.state == REPLICATE:
                progress.become_probe()
            self._send_append(rpc.sender, progress, empty_too=True)

    def _on_heartbeat_answer(self, rpc: Rpc) -> None:
        progress = self.progress.get(rpc.sender)
        if progress is None:
            return
        progress.recent_active = True
        progress.flow_paused = False
        # A full pipeline may have been lost as a whole; an empty append finds that out.
        if progress.match < self.log.last_index or progress.state == PROBE:
            self._send_append(rpc.sender, progress, empty_too=True)
        if rpc.context and not self.config.read_only_lease_based:
            self._confirm_reads(rpc.sender, rpc.context)

    def _on_snapshot_status(self, rpc: Rpc) -> None:
        progress = self.progress.get(rpc.sender)
        if progress is None or progress.state != SNAPSHOT:
            return
        if rpc.reject:
            progress.pending_snapshot = 0
        progress.become_probe()
        # Taken: its answer comes next. Failed: the next heartbeat is soon enough.
        progress.flow_paused = True

    def _on_unreachable(self, rpc: Rpc) -> None:
        progress = self.progress.get(rpc.sender)
        if progress is not None and progress.state == REPLICATE:
            progress.become_probe()

    # --- follower

    def _take_append(self, rpc: Rpc) -> None:
        log = self.log
        prev = rpc.index
        if prev < log.commit:
            self._answer_append(rpc, log.commit)
            return
        entries = rpc.entries
        if entries:
            check_run(rpc)
        if log.term_at(prev) != rpc.log_term:
            self._reject_append(rpc)
            return
        last = prev + len(entries)
        if entries:
            if prev == log.last_index:
                log.append(entries)
            else:
                log.merge(entries)
        log.commit_to(min(rpc.commit, last))
        self._answer_append(rpc, last)

    def _answer_append(self, rpc: Rpc, index: int) -> None:
        self._rpcs_after_append.append(Rpc(_APP_RESP, rpc.sender, self.id, self.term, 0, index))

    def _reject_append(self, rpc: Rpc) -> None:
        log = self.log
        hint, hint_term = log.guess_match(min(rpc.index, log.last_index), rpc.log_term)
        self._rpcs_after_append.append(
            Rpc(
                _APP_RESP,
                rpc.sender,
                self.id,
                self.term,
                hint_term,
                rpc.index,
                reject=True,
                reject_hint=hint,
            )
        )
        if self.say is not None:
            self.say("DEBUG", f"{self.id:x} rejected the append after {rpc.index}")


def check_run(rpc: Rpc) -> None:
    """Raise a ``RaftFault`` unless the entries follow each other and fit the sender's term."""
    index, term = rpc.index, rpc.log_term
    for entry in rpc.entries:
        index += 1
        if entry.index != index or entry.term < term:
            raise RaftFault(f"entry {entry.term}/{entry.index} cannot stand at {index}")
        term = entry.term
    if term > rpc.term:
        raise RaftFault(f"an entry of term {term} in an append of term {rpc.term}")
