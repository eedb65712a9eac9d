"""Verify: compare the digests of all replicas of all shards.

For each shard a command that changes nothing goes through the log; every replica marks its digest
when it applies it. The marks are then collected, and each partition replica digests the bytes of
its logs, side logs too, over the ranges that all of them hold.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from raftline.model.calls import ReplicaDigest, Verified, VerifiedShard
from raftline.model.errors import NotReady, RaftlineError
from raftline.model.ids import ReplicaId, ShardId, node_of
from raftline.node.marks import Mark
from raftline.node.partition import PartitionHost
from raftline.node.remote import VERB_DIGEST, VERB_STATE, Answer, Reply
from raftline.node.state_host import StateHost
from raftline.storage.log import DigestRun
from raftline.storage.log_words import DamagedRange

if TYPE_CHECKING:
    from raftline.node.node import Node

POLL_MS = 50
REPAIR_MS = 200
TRIES = 3

Range = tuple[str, int, int]  # name of a log ("": the main one), start, end

_pack = msgspec.msgpack.encode


class Verifier:
    """Runs and answers verification."""

    def __init__(self, node: "Node") -> None:
        self._node = node

    def serve(self) -> None:
        """Answer other nodes."""
        self._node.remote.handle(VERB_STATE, self._on_mark)
        self._node.remote.handle(VERB_DIGEST, self._on_digest)

    def run(self, timeout_ms: int, done: Callable[[Verified | RaftlineError], None]) -> None:
        """Compare everything."""
        node = self._node
        if not node.is_ready:
            done(NotReady(node.reason))
            return
        shards = sorted(node.catalog_machine.shards)
        deadline = node.clock.mono_ms() + timeout_ms
        found: dict[int, VerifiedShard] = {}

        def finished(shard: int, verdict: VerifiedShard) -> None:
            found[shard] = verdict
            if len(found) == len(shards):
                rows = tuple(found[number] for number in shards)
                done(Verified(all(row.identical for row in rows), rows))

        for shard in shards:
            Comparison(node, shard, deadline, finished).start()

    def _on_mark(self, body: memoryview, timeout_ms: int, reply: Reply) -> None:
        shard, index = msgspec.msgpack.decode(body, type=tuple[int, int])
        self.mark(shard, index, self._node.clock.mono_ms() + timeout_ms, reply)

    def mark(self, shard: int, index: int, deadline: float, reply: Reply) -> None:
        """Answer with our mark at ``index`` once it is applied here."""
        replica = self._node.shards.get(shard)
        if replica is None:
            quarantined = self._node.shards.quarantined.get(shard)
            why = quarantined[1] if quarantined else "no replica here"
            reply(NotReady(f"shard {shard}: {why}"))
            return
        host = replica.host
        assert isinstance(host, PartitionHost | StateHost)
        mark = host.marks.get(index)
        if mark is not None:
            reply(_pack(mark))
        elif self._node.clock.mono_ms() + POLL_MS >= deadline:
            reply(NotReady(f"{replica.name} is at {replica.applied_index}, not yet at {index}"))
        else:
            self._node.clock.call_later(POLL_MS, lambda: self.mark(shard, index, deadline, reply))

    def _on_digest(self, body: memoryview, timeout_ms: int, reply: Reply) -> None:
        shard, ranges = msgspec.msgpack.decode(body, type=tuple[int, list[Range]])
        self.digest(shard, ranges, self._node.clock.mono_ms() + timeout_ms, reply)

    def digest(
        self, shard: int, ranges: Sequence[Range], deadline: float, reply: Reply, before: str = ""
    ) -> None:
        """Answer with the digests of our logs' bytes in ``ranges``, repairing on the way."""
        if not ranges:
            reply(before.encode())
            return
        (name, start, end), left = ranges[0], ranges[1:]
        replica = self._node.shards.get(shard)
        host = replica.host if replica is not None else None
        log = host.log_named(name) if isinstance(host, PartitionHost) else None
        if not isinstance(host, PartitionHost) or log is None:
            reply(NotReady(f"shard {shard} has no log {name or 'of messages'} here"))
            return

        run = DigestRun(log, start, end)

        def stepped(text: str | None, error: BaseException | None) -> None:
            """A step is done: others get the lane before the next one."""
            clock, now = self._node.clock, self._node.shards.get(shard)
            if text is None and error is None:
                if now is None or now.host is not host or clock.mono_ms() >= deadline:
                    reply(NotReady(f"{host.name}: not all of the log was read in time"))
                else:
                    self._node.segments.run(run.step, stepped)
                return
            if text is not None:
                found = f"{before}+{name}:{text}" if name else text
                self.digest(shard, left, deadline, reply, found)
                return
            if isinstance(error, DamagedRange):
                self._node.segments.damaged(host, error, name)
                if clock.mono_ms() + REPAIR_MS < deadline:
                    again = lambda: self.digest(shard, ranges, deadline, reply, before)  # noqa: E731
                    clock.call_later(REPAIR_MS, again)
                    return
            reply(NotReady(f"{host.name}: {error}"))

        self._node.segments.run(run.step, stepped)


class Comparison:
    """One shard's comparison."""

    def __init__(
        self,
        node: "Node",
        shard: int,
        deadline: float,
        done: Callable[[int, VerifiedShard], None],
    ) -> None:
        self._node = node
        self._shard = shard
        self._deadline = deadline
        self._done = done
        row = node.catalog_machine.shards[ShardId(shard)]
        self._name = row.place
        self._nodes = [node_of(ReplicaId(r)) for r in (*row.replicas, *row.observers)]
        self._has_log = bool(row.topic)
        self._marks: dict[int, Mark | RaftlineError] = {}
        self._digests: dict[int, str | RaftlineError] = {}
        self._tries = 1

    def _left_ms(self) -> int:
        return max(1, int(self._deadline - self._node.clock.mono_ms()))

    def start(self) -> None:
        """Put the mark through the log."""
        self._node.admin.run("shard.mark", {"shard": self._shard}, self._left_ms(), self._marked)

    def _marked(self, result: dict[str, object] | RaftlineError) -> None:
        if isinstance(result, RaftlineError):
            rows = tuple(ReplicaDigest(n, -1, -1, "", "", result.message) for n in self._nodes)
            self._done(self._shard, VerifiedShard(self._name, False, rows))
            return
        index = result["index"]
        assert isinstance(index, int)
        wait = max(1, self._left_ms() * 3 // 4)
        for node in self._nodes:
            self._ask_mark(node, index, wait)

    def _ask_mark(self, node: int, index: int, wait_ms: int) -> None:
        def answered(answer: Answer) -> None:
            self._marks[node] = (
                answer
                if isinstance(answer, RaftlineError)
                else msgspec.msgpack.decode(answer, type=Mark)
            )
            if len(self._marks) == len(self._nodes):
                self._compare_logs()

        if node == self._node.id:
            deadline = self._node.clock.mono_ms() + wait_ms
            self._node.verifier.mark(self._shard, index, deadline, answered)
        else:
            body = [_pack((self._shard, index))]
            self._node.remote.call(node, VERB_STATE, body, wait_ms, answered)

    def _compare_logs(self) -> None:
        marks = [m for m in self._marks.values() if isinstance(m, Mark)]
        if not self._has_log or not marks:
            self._finish()
            return
        start = max(mark.log_start for mark in marks)
        end = min(mark.log_end for mark in marks)
        ranges: list[Range] = [("", start, max(start, end))]
        for name in sorted({name for mark in marks for name in mark.side}):
            start = max(mark.side.get(name, (0, 0))[0] for mark in marks)
            end = min(mark.side.get(name, (0, 0))[1] for mark in marks)
            if start < end:
                ranges.append((name, start, end))
        for node in self._nodes:
            self._ask_digest(node, ranges)

    def _ask_digest(self, node: int, ranges: Sequence[Range]) -> None:
        def answered(answer: Answer) -> None:
            self._digests[node] = answer if isinstance(answer, RaftlineError) else answer.decode()
            if len(self._digests) == len(self._nodes):
                self._finish()

        if node == self._node.id:
            self._node.verifier.digest(self._shard, ranges, self._deadline, answered)
        else:
            body = [_pack((self._shard, ranges))]
            self._node.remote.call(node, VERB_DIGEST, body, self._left_ms(), answered)

    def _finish(self) -> None:
        is_marked = all(isinstance(mark, Mark) for mark in self._marks.values())
        is_failed = any(isinstance(digest, RaftlineError) for digest in self._digests.values())
        is_early = self._tries < TRIES and self._left_ms() > REPAIR_MS
        if is_marked and is_failed and is_early:
            self._tries += 1  # a trim may have removed bytes after the marks: take new ones
            self._marks, self._digests = {}, {}
            self.start()
            return
        rows = tuple(self._row(node) for node in self._nodes)
        alike = {(row.log_start, row.commit_end, row.log, row.state) for row in rows}
        identical = len(alike) == 1 and not any(row.error for row in rows)
        self._done(self._shard, VerifiedShard(self._name, identical, rows))

    def _row(self, node: int) -> ReplicaDigest:
        mark, digest = self._marks[node], self._digests.get(node, "")
        if isinstance(mark, RaftlineError):
            return ReplicaDigest(node, -1, -1, "", "", mark.message)
        if isinstance(digest, RaftlineError):
            error = digest.message
            return ReplicaDigest(node, mark.log_start, mark.log_end, "", mark.state, error)
        return ReplicaDigest(node, mark.log_start, mark.log_end, digest, mark.state)
