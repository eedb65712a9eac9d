"""The history of a run: every call with its beginning, its end and what came of it.

The simulator fills it, and so do tests with real processes and real clients: the checker knows
nothing of either. What was sent is known by its *body*, the bytes that must come back unchanged
(for a sealed batch everything from byte 16 on, for a single message its value). A body is given a
number, its *ident*; bytes that nobody sent get a negative one.

Outcomes
    ok        the call was answered and did what it says
    refused   an error that promises: nothing happened
    unknown   it may or may not have happened (timeout, connection lost)
    ""        it has not ended
"""

import struct
from collections.abc import Iterator

import msgspec

from raftline.model.batch import split_batches
from raftline.model.errors import CorruptBatch

BODY_FROM = 16  # of a batch: base offset, length and leader epoch are not the sender's
_BASE_OFFSET = struct.Struct(">q")
_COUNT = struct.Struct(">i")
_COUNT_FROM = 57

Run = tuple[int, int, int]  # offset, count, ident: messages [offset, offset + count)


class Producer(msgspec.Struct, frozen=True):
    """Who sent a batch, for the check that a repeat is stored once."""

    id: int
    epoch: int
    sequence: int


class Op(msgspec.Struct, kw_only=True):
    """One call."""

    id: int
    kind: str  # "append" | "read" | "lookup" | "trim" | "command"
    node: str
    topic: str
    partition: int
    invoked_ms: float
    timeout_ms: float
    ended_ms: float = -1.0
    outcome: str = ""
    error: str = ""  # "code: message" of a refusal or an unknown end
    excused: bool = False  # the asked process died or was stopped, so the client gave up itself
    calm: bool = False  # after all faults ended: it must succeed
    # append
    ident: int = 0
    count: int = 0
    timestamps_ms: tuple[int, ...] = ()
    producer: Producer | None = None
    offset: int = -1  # answered (append, lookup) or asked for (read, trim)
    duplicate: bool = False
    # read and lookup
    runs: tuple[Run, ...] = ()
    log_start: int = -1
    commit_end: int = -1
    linearizable: bool = False
    time_ms: int = 0


class ReplicaLog(msgspec.Struct, frozen=True):
    """All one replica gives out at the end."""

    node: str
    log_start: int
    commit_end: int
    runs: tuple[Run, ...]


class Final(msgspec.Struct, kw_only=True):
    """What was found after the faults had ended and everything had had time to heal."""

    replicas: dict[str, tuple[ReplicaLog, ...]] = {}  # by "topic/partition"
    unread: tuple[str, ...] = ()  # "orders/2 on node-1: why": replicas that gave no answer
    verify: str = ""  # what `verify` complains of; "" when all replicas are identical
    out_of_service: tuple[str, ...] = ()  # shards a node reports as quarantined
    boot_ms: float = 0.0  # until every node was ready; -1: never
    recovery_ms: float = 0.0  # from the end of the faults until every partition took a write
    misplaced: str = ""  # nodes and replicas that are not what the catalog was asked for
    bugs: tuple[str, ...] = ()  # exceptions nobody caught


class History:
    """All calls of a run, and all bodies ever sent."""

    __slots__ = ("_alien", "_idents", "ops")

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self._idents: dict[bytes, int] = {}
        self._alien = 0

    def sent(self, body: bytes) -> int:
        """Give a body its number (the same for a repeat)."""
        return self._idents.setdefault(body, len(self._idents) + 1)

    def ident_of(self, body: bytes) -> int:
        """Return the number of a body that came back; negative if nobody sent it."""
        ident = self._idents.get(body)
        if ident is None:
            self._alien -= 1
            return self._alien
        return ident

    def invoke(
        self,
        kind: str,
        now_ms: float,
        node: str,
        topic: str,
        partition: int,
        timeout_ms: float,
    ) -> Op:
        """Note that a call begins; the caller fills in what it asks for."""
        op = Op(
            id=len(self.ops),
            kind=kind,
            node=node,
            topic=topic,
            partition=partition,
            invoked_ms=now_ms,
            timeout_ms=timeout_ms,
        )
        self.ops.append(op)
        return op

    def end(self, op: Op, now_ms: float, outcome: str, error: str = "") -> None:
        """Note how a call ended."""
        assert not op.outcome, f"op {op.id} ended twice"
        op.ended_ms = now_ms
        op.outcome = outcome
        op.error = error

    def runs_of(self, batches: bytes) -> tuple[Run, ...]:
        """Return what a read reply holds; a torn one ends in an alien run."""
        return tuple(self._runs(batches))

    def _runs(self, batches: bytes) -> Iterator[Run]:
        try:
            places = split_batches(batches)
        except CorruptBatch:
            self._alien -= 1
            yield (-1, 0, self._alien)
            return
        for start, length in places:
            (offset,) = _BASE_OFFSET.unpack_from(batches, start)
            (count,) = _COUNT.unpack_from(batches, start + _COUNT_FROM)
            yield (offset, count, self.ident_of(batches[start + BODY_FROM : start + length]))
