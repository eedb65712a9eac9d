"""Publishing: a leader moves the chunks of a decided batch from the stage log into the log.

Only a leader has a publisher. Nothing here is replicated: that a batch is published, and how far,
is in the machine's state, so the next leader goes on there. It may apply the decision only after
it began to lead: so it looks after whatever it applies.

How a piece is made
    The next chunks are read from the stage log and put together in the segment lane
    (stage_pieces.py), and proposed as one Piece. When it is applied, the next.

Invariants
    U1  One piece is being made or proposed at a time.
    U2  A piece that is refused for dedup keys is made again without those messages.
    U3  Every caller is answered once: when its batch is published, when leadership ends, or when
        its time is up.
    U4  Messages that wait have a verdict each: one that is refused is left out for good. That is
        meant for keys that are remembered, so a piece with new keys waits until there is room for
        them, as Appends do.
    U5  A batch that cannot go on now holds up no other query.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from raftline.machines.partition.commands import extension_room
from raftline.machines.partition.side_car import HASH_BYTES
from raftline.machines.partition.staging_words import Result
from raftline.model.errors import DuplicateKey, NotWaiting, RaftlineError, TimedOut
from raftline.node.command_proposal import Applied, CommandProposal
from raftline.node.partition import STAGE, PartitionHost
from raftline.node.stage_pieces import (
    NONE_GONE,
    Built,
    Gone,
    PieceHead,
    build_piece,
    next_chunks,
    numbers_of,
)
from raftline.storage.log_words import DamagedRange

if TYPE_CHECKING:
    from raftline.node.node import Node
    from raftline.node.ports import Timer
    from raftline.node.replica import Replica

PROPOSE_MS = 10_000  # for a piece to be applied; after that it is looked at again
AGAIN_MS = 100  # after something went wrong
ENTRY_KEY_BYTES = HASH_BYTES + 4  # what a dedup key takes in an entry, at least
ALL_BYTES = 1 << 62

PublishDone = Callable[[Result | RaftlineError], None]


class _Caller:
    """Somebody who waits until a batch is published."""

    __slots__ = ("batch", "done", "query", "timer")

    def __init__(self, query: str, batch: int, done: PublishDone, timer: "Timer") -> None:
        self.query = query
        self.batch = batch
        self.done = done
        self.timer = timer


class Publisher:
    """Publishes the batches of one partition while its replica leads."""

    def __init__(
        self, node: "Node", host: PartitionHost, replica: "Replica", dedup_ms: Callable[[], int]
    ) -> None:
        self._node = node
        self._host = host
        self._replica = replica
        self._dedup_ms = dedup_ms
        self._callers: list[_Caller] = []
        self._is_busy = False
        self._turn = 0  # whose: moves on when a batch cannot. U5
        self._timer: Timer | None = None
        self._gone: tuple[str, int, int, Gone] = ("", -1, -1, NONE_GONE)  # of which chunk. U2
        self._closed = False

    def close(self, error: RaftlineError) -> None:
        """This replica leads no more. U3."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        callers, self._callers = self._callers, []
        for caller in callers:
            caller.timer.cancel()
            caller.done(error)

    def wait(self, query: str, batch: int, timeout_ms: int, done: PublishDone) -> None:
        """Tell ``done`` when a batch is published."""

        def late() -> None:
            self._callers = [other for other in self._callers if other is not caller]
            done(TimedOut(f"batch {batch} of query {query!r} in {self._host.name}", timeout_ms))

        caller = _Caller(query, batch, done, self._node.clock.call_later(timeout_ms, late))
        self._callers.append(caller)
        self.look()

    def look(self) -> None:
        """Answer who waited; make the next piece."""
        if self._closed:
            return
        if self._callers:
            self._answer()
        if self._is_busy or self._timer is not None:  # U1
            return
        under_way = self._host.machine.staging.publishing()
        if under_way:
            query, batch = under_way[self._turn % len(under_way)]
            self._make(query, batch.batch, batch.at)

    def _answer(self) -> None:
        queries = self._host.machine.staging.queries
        waiting, self._callers = self._callers, []
        for caller in waiting:
            query = queries.get(caller.query)
            if query is not None and query.fence < caller.batch and query.publishing is not None:
                self._callers.append(caller)
                continue
            caller.timer.cancel()
            is_last = query is not None and query.fence == caller.batch
            caller.done(query.result if query is not None and is_last else Result())

    # ------------------------------------------------------------------ one piece

    def _make(self, query: str, batch: int, at: int) -> None:
        host, under_way = self._host, self._host.machine.staging.queries[query].publishing
        assert under_way is not None
        log, chunks = host.log_named(STAGE), next_chunks(under_way.chunks, at)
        numbers = numbers_of(chunks)
        is_lacking = log is None or numbers[0] < log.log_start
        if is_lacking or self._node.upkeep.admission(self._replica) is not None:
            self._pause()
            return
        assert log is not None
        self._is_busy = True
        pick = log.pick_job(numbers, 1 << 62)
        at_ms = self._replica.time.stamp()
        head = PieceHead(at_ms, query, batch, at, self._dedup_ms())
        gone = self._gone[3] if self._gone[:3] == (query, batch, at) else NONE_GONE

        def made(built: Built | None, error: BaseException | None) -> None:
            self._on_made(head, built, error)

        self._node.segments.run(lambda: build_piece(head, chunks, pick(), gone), made)

    def _on_made(self, head: PieceHead, built: Built | None, error: BaseException | None) -> None:
        self._is_busy = False
        if self._closed or self._replica.is_closed:
            return
        if built is None:
            if isinstance(error, DamagedRange):
                self._node.segments.damaged(self._host, error, STAGE)
            else:
                name, reason = self._host.name, str(error)
                self._node.log("warning", "publish.failed", partition=name, reason=reason)
            self._pause()
            return
        if built.keys and not self._has_room(head.at_ms, built.keys):
            self._pause()
            return
        self._is_busy = True
        deadline = self._node.clock.mono_ms() + PROPOSE_MS
        proposal = CommandProposal(
            self._host.name, deadline, PROPOSE_MS, lambda answer: self._on_applied(head, answer)
        )
        self._replica.propose(built.data, proposal)

    def _has_room(self, at_ms: int, keys: Sequence[bytes]) -> bool:
        """Say whether the new ones of these dedup keys will be taken. U4."""
        dedup, replica = self._host.machine.dedup, self._replica
        wanted = sum([dedup.find(key, at_ms) is None for key in keys])
        if wanted:  # what comes first may bring keys too, as many as fit into it
            before = replica.raft.log.entries_from(replica.applied_index + 1, ALL_BYTES)
            wanted += sum([extension_room(entry.data) for entry in before]) // ENTRY_KEY_BYTES
        return dedup.room(at_ms, wanted) >= wanted

    def _on_applied(self, head: PieceHead, answer: Applied | RaftlineError) -> None:
        """A piece came back; the apply that brought it looks for more."""
        self._is_busy = False
        if isinstance(answer, DuplicateKey):  # U2
            place = (head.query, head.batch, head.first)
            before = self._gone[3] if self._gone[:3] == place else NONE_GONE
            kept = _kept_places(self._host, head, before)
            places = [kept[delta] for delta, _ in answer.firsts]
            self._gone = (*place, before | frozenset(places))
        elif isinstance(answer, RaftlineError) and not isinstance(answer, NotWaiting):
            self._pause()

    def _pause(self) -> None:
        """Something went wrong: try again in a while, with the next in turn. U5."""
        self._turn += 1
        if self._timer is None and not self._closed:
            self._timer = self._node.clock.call_later(AGAIN_MS, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.look()


def _kept_places(host: PartitionHost, head: PieceHead, gone: Gone) -> list[int]:
    """Return the places in its chunk of the messages that a refused piece held."""
    under_way = host.machine.staging.queries[head.query].publishing
    assert under_way is not None
    return [at for at in range(under_way.chunks[head.first][1]) if at not in gone]
