"""Staged writes: chunks that nobody sees, until their batch is published, each once.

A job that writes in numbered batches (a *query*; Spark) runs its tasks more than once, and old
tasks come back from the dead. So tasks stage, and who commits the batch says which of them count.

State
    For each query its *fence* (the last batch that was published) with what came of it, the chunks
    it staged, and the batch that is being published. The bytes of chunks are in the partition's
    stage log, whose offsets are their *numbers*.

Commands
    Stage, Publish, Piece, Abandon, ForgetQuery: see staging_commands.py. Publish decides; then the
    leader, whoever that is, moves the chunks to the log in Pieces that hold their bytes.

Invariants
    Y1  A chunk (query, batch, task, attempt, chunk) is kept once; a repeat changes nothing, and so
        does a chunk of a batch at or below the fence or the batch being published. Other bytes
        under the same name are refused: two runs of a task have taken one number.
    Y2  A batch is published only if every chunk it names is there: all of task by task, chunk by
        chunk. Then every other chunk of the query up to this batch is gone.
    Y3  A Piece is taken only if it holds the next chunks of the batch being published. So each is
        moved once and in order, whoever proposes it and however often.
    Y4  The fence never goes back; when all chunks are moved it stands at the batch.
    Y5  ``log_start`` of the stage log is the lowest number of a chunk that is kept.
    Y6  Bounds: model/limits.py, ``QUERIES_MAX`` to ``STAGE_IDLE_MS``. Chunks of a query that was
        silent for its ``keep_ms`` go, and its fence after ``FENCE_EXPIRE_MS``; not while it is
        publishing.
    Y7  A batch that is to follow another one (PublishAfter) is decided only if that is the last:
        of two jobs that go on from one place in steps of their own, one is refused.

Costs: about 300 bytes and 3 us a chunk; nothing per message.
"""

from collections import deque
from collections.abc import Callable

import msgspec

from raftline.machines.partition.staging_commands import (
    Abandon,
    ForgetQuery,
    Piece,
    Publish,
    PublishAfter,
    Stage,
    Winner,
)
from raftline.machines.partition.staging_words import (
    NO_BATCH,
    Chunk,
    Dropped,
    PublishBegun,
    Publishing,
    QueryState,
    Result,
    Staged,
    StagingState,
    chunks_of,
)
from raftline.model.errors import (
    FencedQuery,
    InvalidArgument,
    NewerFormat,
    NotWaiting,
    OverLimit,
    RaftlineError,
    StageMissing,
    TooLarge,
)
from raftline.model.limits import (
    FENCE_EXPIRE_MS,
    QUERIES_MAX,
    STAGE_BYTES_MAX,
    STAGE_CHUNKS_MAX,
    STAGE_IDLE_MS,
    STAGE_SPAN_BYTES_MAX,
)

STAGING_FORMAT = 1
FIRST_NUMBER = 1
LOOK_MS = 60_000  # how often silent queries are looked for


class Staging:
    """The staged writes of one partition."""

    __slots__ = (
        "_kept", "_moving", "_order", "looked_ms", "next_number", "queries", "staged_bytes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.next_number = FIRST_NUMBER
        self.staged_bytes = 0  # of all chunks there ever were
        self.looked_ms = 0  # when silent queries were looked for
        self.queries: dict[str, QueryState] = {}
        self._moving: dict[str, Publishing] = {}  # of queries that are publishing
        self._kept: set[int] = set()  # numbers of chunks
        self._order: deque[tuple[int, int]] = deque()  # number, bytes before it; some are gone

    # ------------------------------------------------------------------ questions

    @property
    def log_start(self) -> int:
        """Return the first number whose bytes are needed. Y5."""
        return self._front()[0]

    @property
    def chunk_count(self) -> int:
        """Return how many chunks are kept."""
        return len(self._kept)

    @property
    def kept_bytes(self) -> int:
        """Return how many bytes the queries have staged."""
        return sum([query.bytes for query in self.queries.values()])

    def publishing(self) -> list[tuple[str, Publishing]]:
        """Return the batches on their way."""
        return list(self._moving.items())

    def fence(self, name: str) -> int:
        """Return the last batch that is published or will be; NO_BATCH: none."""
        query = self.queries.get(name)
        if query is None:
            return NO_BATCH
        return query.fence if query.publishing is None else query.publishing.batch

    def next_expiry_ms(self) -> int | None:
        """Return when the next chunks of a silent query go."""
        times = [q.used_ms + q.keep_ms for q in self.queries.values() if q.chunks]
        return min(times, default=None)

    # ------------------------------------------------------------------ commands

    def stage(self, command: Stage, at_ms: int) -> Staged | RaftlineError:
        """Keep a chunk; the caller stores its bytes under the number. Y1, Y6."""
        query = self._use(command.query, at_ms)
        if isinstance(query, RaftlineError):
            return query
        query.keep_ms = command.keep_ms
        if command.key[0] <= self.fence(command.query):
            return Staged(-1)
        size, before = command.end - command.extra, query.chunks.get(command.key)
        if before is not None:
            is_same = (before[1], before[3], before[5]) == (command.count, size, command.crc)
            return Staged(0) if is_same else _other_bytes(command)
        if len(query.chunks) >= STAGE_CHUNKS_MAX:
            what = f"chunks that query {command.query!r} staged here"
            return OverLimit(what, len(query.chunks) + 1, STAGE_CHUNKS_MAX)
        if query.bytes + size > STAGE_BYTES_MAX:
            what = f"bytes that query {command.query!r} staged here"
            return OverLimit(what, query.bytes + size, STAGE_BYTES_MAX)
        refusal = self._make_room(size, at_ms)
        if refusal is not None:
            return refusal
        number, has_extras = self.next_number, int(command.body > command.extra)
        query.chunks[command.key] = (
            number, command.count, has_extras, size, self.staged_bytes, command.crc,
        )  # fmt: skip
        query.bytes += size
        self._kept.add(number)
        self._order.append((number, self.staged_bytes))
        self.staged_bytes += size
        self.next_number += has_extras + command.count
        return Staged(number)

    def publish(self, command: Publish, at_ms: int) -> PublishBegun | RaftlineError:
        """Decide on a batch, once. Y2, Y4, Y7."""
        query = self._use(command.query, at_ms)
        if isinstance(query, RaftlineError):
            return query
        batch, fence = command.batch, self.fence(command.query)
        if batch <= fence:
            return self._again(query, batch)
        if isinstance(command, PublishAfter) and command.after != fence:
            reason = f"batch {fence} was published, and this one was to follow {command.after}"
            return FencedQuery(command.query, batch, reason)
        if query.publishing is not None:
            reason = f"batch {query.publishing.batch} is being published"
            return FencedQuery(command.query, batch, reason)
        found = _chosen(query, command.query, batch, command.winners)
        if isinstance(found, RaftlineError):
            return found
        self._drop(query, batch)
        query.publishing = self._moving[command.query] = Publishing(batch, found)
        query.bytes += sum([chunk[3] for chunk in found])
        self._kept.update([chunk[0] for chunk in found])
        if not found:
            self._finish(command.query, query)
            return PublishBegun(batch, is_repeat=False, result=query.result)
        return PublishBegun(batch, is_repeat=False, result=None)

    def refuse_piece(self, command: Piece) -> RaftlineError | None:
        """Say why a Piece cannot be applied; None if it can. Changes nothing. Y3."""
        query = self.queries.get(command.query)
        under_way = None if query is None else query.publishing
        if under_way is None or under_way.batch != command.batch:
            return NotWaiting(f"batch {command.batch} of {command.query!r} is not being published")
        if command.first != under_way.at or command.end > len(under_way.chunks):
            return NotWaiting(f"chunk {command.first} of {command.query!r} is not the next")
        if command.append is not None:
            count = sum([row[1] for row in command.append.rows])
        else:
            count = len(command.schedule.rows) if command.schedule is not None else 0
        chunks = under_way.chunks[command.first : command.end]
        if count + command.dropped != sum([chunk[1] for chunk in chunks]):
            return InvalidArgument(f"a Piece of {count} messages without {command.dropped}")
        return None

    def moved(self, command: Piece, offset: int, count: int, waiting: int) -> PublishBegun:
        """Note that a Piece is where readers find it; ``refuse_piece`` had nothing against it."""
        query = self.queries[command.query]
        under_way = query.publishing
        assert under_way is not None
        if count and under_way.offset < 0:
            under_way.offset = offset
        total = 0
        for chunk in under_way.chunks[command.first : command.end]:
            total += chunk[1]
            query.bytes -= chunk[3]
            self._kept.discard(chunk[0])
        under_way.at = command.end
        under_way.count += count
        under_way.waiting += waiting
        under_way.duplicates += total - count - waiting
        if under_way.at < len(under_way.chunks):
            return PublishBegun(command.batch, is_repeat=False, result=None)
        self._finish(command.query, query)
        return PublishBegun(command.batch, is_repeat=False, result=query.result)

    def abandon(self, command: Abandon, at_ms: int) -> Dropped:
        """Drop chunks of batches up to one; what is being published stays."""
        self.expire(at_ms)
        query = self.queries.get(command.query)
        return Dropped(0 if query is None else self._drop(query, command.batch))

    def forget(self, command: ForgetQuery) -> Dropped | RaftlineError:
        """Drop everything of a query."""
        query = self.queries.get(command.query)
        if query is None:
            return Dropped(0)
        if query.publishing is not None:
            reason = f"batch {query.publishing.batch} is being published"
            return FencedQuery(command.query, query.publishing.batch, reason)
        dropped = self._drop(query, None)
        del self.queries[command.query]
        return Dropped(dropped)

    def expire(self, at_ms: int) -> None:
        """Look for silent queries, now and then. Y6."""
        if at_ms - self.looked_ms < LOOK_MS:
            return
        self.looked_ms = at_ms
        for name, query in list(self.queries.items()):
            silent_ms = at_ms - query.used_ms
            if query.publishing is not None:
                continue
            if query.chunks and silent_ms > query.keep_ms:
                self._drop(query, None)
            if not query.chunks and silent_ms > FENCE_EXPIRE_MS:
                del self.queries[name]

    # ------------------------------------------------------------------ state

    def freeze(self) -> Callable[[], bytes]:
        """Hold the state as it is now; the callable joins its bytes."""
        if self.next_number == FIRST_NUMBER and not self.queries and not self.looked_ms:
            return lambda: b""
        head = self.next_number, self.staged_bytes, self.looked_ms
        rows = [
            (name, q.fence, q.used_ms, q.keep_ms, q.bytes, q.result, list(q.chunks.items()), copy)
            for name, q in self.queries.items()
            for copy in (None if q.publishing is None else msgspec.structs.replace(q.publishing),)
        ]
        return lambda: msgspec.msgpack.encode(StagingState(STAGING_FORMAT, *head, rows))

    def restore(self, data: bytes) -> None:
        """Replace the state.

        Raises:
            NewerFormat: the bytes are of a newer build.
        """
        self.__init__()
        if not data:
            return
        state = _decoder.decode(data)
        if state.format > STAGING_FORMAT:
            raise NewerFormat("staged writes in a snapshot", state.format, STAGING_FORMAT)
        self.next_number, self.staged_bytes = state.next_number, state.staged_bytes
        self.looked_ms = state.looked_ms
        for name, fence, used_ms, keep_ms, size, result, chunks, under_way in state.queries:
            query = QueryState(fence, used_ms, keep_ms, size, result, dict(chunks), under_way)
            self.queries[name] = query
            if under_way is not None:
                self._moving[name] = under_way
        kept = sorted(chunk for query in self.queries.values() for chunk in chunks_of(query))
        self._kept.update([chunk[0] for chunk in kept])
        self._order.extend([(chunk[0], chunk[4]) for chunk in kept])

    def check(self) -> None:
        """Raise if an invariant is broken."""
        assert len(self.queries) <= QUERIES_MAX
        numbers: list[int] = []
        for query in self.queries.values():
            under_way = query.publishing
            assert all(key[0] > query.fence for key in query.chunks)  # Y1
            assert query.bytes == sum([chunk[3] for chunk in chunks_of(query)])
            if under_way is not None:
                assert under_way.batch > query.fence
                assert 0 <= under_way.at < len(under_way.chunks)
                assert all(key[0] > under_way.batch for key in query.chunks)  # Y2
            numbers += [chunk[0] for chunk in chunks_of(query)]
        assert sorted(numbers) == sorted(self._kept)
        moving = {n: q.publishing for n, q in self.queries.items() if q.publishing is not None}
        assert list(moving) == sorted(self._moving, key=list(self.queries).index)
        assert all(self._moving[name] is under_way for name, under_way in moving.items())
        assert all(FIRST_NUMBER <= number < self.next_number for number in numbers)
        assert self.log_start == min(numbers, default=self.next_number)  # Y5

    def __len__(self) -> int:
        return len(self.queries)

    # ------------------------------------------------------------------ inside

    def _use(self, name: str, at_ms: int) -> QueryState | RaftlineError:
        """Return a query, which gives a sign of life."""
        self.expire(at_ms)
        query = self.queries.get(name)
        if query is None:
            if len(self.queries) >= QUERIES_MAX:
                return OverLimit(
                    "queries that write to this partition", QUERIES_MAX + 1, QUERIES_MAX
                )
            query = self.queries[name] = QueryState(NO_BATCH, at_ms, 0, 0, Result(), {})
        query.used_ms = max(query.used_ms, at_ms)
        return query

    def _again(self, query: QueryState, batch: int) -> PublishBegun:
        """Answer a batch that is published, or is being published."""
        if query.publishing is not None and query.publishing.batch == batch:
            return PublishBegun(batch, is_repeat=True, result=None)
        result = query.result if batch == query.fence else Result()
        return PublishBegun(batch, is_repeat=True, result=result)

    def _finish(self, name: str, query: QueryState) -> None:
        under_way = query.publishing
        assert under_way is not None
        query.fence, query.result = under_way.batch, under_way.result()  # Y4
        query.publishing = None
        del self._moving[name]

    def _drop(self, query: QueryState, batch: int | None) -> int:
        """Drop chunks of batches up to one, or all."""
        gone = [key for key in query.chunks if batch is None or key[0] <= batch]
        for key in gone:
            chunk = query.chunks.pop(key)
            query.bytes -= chunk[3]
            self._kept.discard(chunk[0])
        return len(gone)

    def _make_room(self, size: int, at_ms: int) -> RaftlineError | None:
        """Keep the stage log short: queries that are silent give way. Y6."""
        span = self.staged_bytes + size - self._front()[1]
        if span <= STAGE_SPAN_BYTES_MAX:
            return None
        for query in self.queries.values():
            if query.publishing is None and at_ms - query.used_ms > STAGE_IDLE_MS:
                self._drop(query, None)
        span = self.staged_bytes + size - self._front()[1]
        if span <= STAGE_SPAN_BYTES_MAX:
            return None
        return OverLimit("bytes of the stage log", span, STAGE_SPAN_BYTES_MAX)

    def _front(self) -> tuple[int, int]:
        """Return number and bytes before the oldest chunk that is kept."""
        order = self._order
        while order and order[0][0] not in self._kept:
            order.popleft()
        return order[0] if order else (self.next_number, self.staged_bytes)


def _other_bytes(command: Stage) -> RaftlineError:
    batch, task, attempt, chunk = command.key
    return InvalidArgument(
        f"chunk {chunk} of batch {batch}, task {task}, attempt {attempt} has other bytes already",
        "give every run of a task an attempt number of its own, also after a restart of the job",
    )


def _chosen(
    query: QueryState, name: str, batch: int, winners: list[Winner]
) -> list[Chunk] | RaftlineError:
    """Return the chunks of the winners, in order. Y2."""
    tasks = [task for task, _, _ in winners]
    if len(set(tasks)) < len(tasks) or any(count < 0 for _, _, count in winners):
        reason = "names a task twice, or fewer than no chunks"
        return InvalidArgument(f"batch {batch} of query {name!r} {reason}")
    total = sum([count for _, _, count in winners])
    if total > STAGE_CHUNKS_MAX or len(winners) > STAGE_CHUNKS_MAX:
        return TooLarge("chunks of a batch", max(total, len(winners)), STAGE_CHUNKS_MAX)
    found: list[Chunk] = []
    for task, attempt, count in sorted(winners):
        for number in range(count):
            chunk = query.chunks.get((batch, task, attempt, number))
            if chunk is None:
                where = f"task {task}, attempt {attempt}: chunk {number} of {count} is not here"
                return StageMissing(name, batch, where)
            found.append(chunk)
        if (batch, task, attempt, count) in query.chunks:
            where = f"task {task}, attempt {attempt} staged more than {count} chunks"
            return StageMissing(name, batch, where)
    return found


_decoder = msgspec.msgpack.Decoder(StagingState)
