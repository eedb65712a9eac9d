"""Dedup: which keys were seen, and what the first message of each was.

State
    Rows in the order in which they came: hash of the key, first message, and until when it holds
    (log time). Rows are only added at the end and forgotten at the front. A map from hash to its
    latest row, rebuilt from the rows.

    The first message is an offset, or -n for the waiting message number n.

Invariants
    D1  A key that holds has exactly one row that holds; ``find`` returns its first message.
    D2  A row is forgotten only when its time is over. Past ``keys_max`` rows new keys are refused.
    D3  Rows never change. So a frozen snapshot shares all chunks but the last, of which it has a
        copy.

A row whose time is over may stay a while (a few are forgotten per entry, and the window of a topic
may have become shorter behind a longer one): it is not found any more, and a new row takes over.

Costs: 32 bytes a row, about 130 more in the map; about 1 us to look up and add a key. The map is
split by the first byte of the hash, so that no single growth of it holds up the loop.
"""

from array import array
from collections.abc import Callable, Sequence

import msgspec

from raftline.machines.partition.side_car import HASH_BYTES, DedupKey
from raftline.model.errors import DuplicateKey, NewerFormat, OverLimit, RaftlineError
from raftline.model.limits import DEDUP_EXPIRE_PER_APPLY, DEDUP_KEYS_MAX
from raftline.model.numbers import pack_numbers, unpack_numbers

CHUNK_ROWS = 4096
SNAPSHOT_FORMAT = 1


class DedupState(msgspec.Struct, array_like=True):
    """The canonical snapshot: the columns of all rows."""

    format: int
    hashes: bytes
    firsts: bytes
    untils: bytes


class Chunk:
    """Up to ``CHUNK_ROWS`` rows, by columns."""

    __slots__ = ("firsts", "hashes", "untils")

    def __init__(self) -> None:
        self.hashes = bytearray()
        self.firsts = array("q")
        self.untils = array("q")

    def copy(self) -> "Chunk":
        """Return a copy that stays as it is."""
        copy = Chunk()
        copy.hashes += self.hashes
        copy.firsts += self.firsts
        copy.untils += self.untils
        return copy


class Dedup:
    """The dedup keys of one partition."""

    __slots__ = ("_chunks", "_dropped", "_end", "_keys_max", "_maps", "_start")

    def __init__(self, keys_max: int = DEDUP_KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._clear()

    def _clear(self) -> None:
        self._chunks: list[Chunk] = []
        self._dropped = 0  # chunks that were before the first one
        self._start = 0  # rows are numbered on and on: [start, end) are kept
        self._end = 0
        self._maps: tuple[dict[bytes, int], ...] = ()  # by the hash's first byte: hash -> row

    def __len__(self) -> int:
        return self._end - self._start

    def find(self, key_hash: bytes, at_ms: int) -> int | None:
        """Return the first message with this key if it still holds. D1."""
        if not self._maps:
            return None
        row = self._maps[key_hash[0]].get(key_hash)
        if row is None:
            return None
        chunk = self._chunks[row // CHUNK_ROWS - self._dropped]
        at = row % CHUNK_ROWS
        return chunk.firsts[at] if chunk.untils[at] > at_ms else None

    def full(self, count: int) -> RaftlineError | None:
        """Return the refusal of ``count`` keys more, if they do not fit. D2."""
        rows = self._end - self._start + count
        if rows <= self._keys_max:
            return None
        return OverLimit("dedup keys of this partition", rows, self._keys_max)

    def room(self, at_ms: int, count: int) -> int:
        """Return how many new keys fit, as far as ``count``. Changes nothing."""
        room, row = self._keys_max - len(self), self._start
        while room < count and row < self._end:
            chunk = self._chunks[row // CHUNK_ROWS - self._dropped]
            if chunk.untils[row % CHUNK_ROWS] > at_ms:
                break
            room, row = room + 1, row + 1
        return room

    def add(self, key_hash: bytes, first: int, until_ms: int) -> None:
        """Remember a key that ``find`` does not find, when ``full`` lets it in."""
        row = self._end
        if row == (self._dropped + len(self._chunks)) * CHUNK_ROWS:
            self._chunks.append(Chunk())
            if not self._maps:
                self._maps = tuple({} for _ in range(256))
        chunk = self._chunks[-1]
        chunk.hashes += key_hash
        chunk.firsts.append(first)
        chunk.untils.append(until_ms)
        self._maps[key_hash[0]][key_hash] = row
        self._end = row + 1

    def admit(self, keys: Sequence[DedupKey], at_ms: int) -> RaftlineError | None:
        """Decide on a batch with these keys: None to store it. Changes no answer of ``find``."""
        self.expire(at_ms, 2 * len(keys))
        pairs: list[tuple[int, int]] = []
        for delta, key_hash in keys:
            first = self.find(key_hash, at_ms)
            if first is not None:
                pairs.append((delta, first))
        return DuplicateKey(pairs) if pairs else self.full(len(keys))

    def stored(self, keys: Sequence[DedupKey], base_offset: int, until_ms: int) -> None:
        """Remember the keys of a batch that ``admit`` let through."""
        for delta, key_hash in keys:
            self.add(key_hash, base_offset + delta, until_ms)

    def expire(self, at_ms: int, rows_max: int = DEDUP_EXPIRE_PER_APPLY) -> None:
        """Forget up to so many rows at the front whose time is over. D2."""
        row = self._start
        last = min(row + rows_max, self._end)
        while row < last:
            chunk = self._chunks[0]
            at = row % CHUNK_ROWS
            if chunk.untils[at] > at_ms:
                break
            key_hash = bytes(chunk.hashes[at * HASH_BYTES : (at + 1) * HASH_BYTES])
            rows = self._maps[key_hash[0]]
            if rows.get(key_hash) == row:  # else a later row took over
                del rows[key_hash]
            row += 1
            if row % CHUNK_ROWS == 0:
                del self._chunks[0]
                self._dropped += 1
        self._start = row
        if row == self._end:
            self._clear()

    def freeze(self) -> Callable[[], bytes]:
        """Hold the rows as they are now; the callable joins their bytes. D3."""
        if not len(self):
            return bytes
        skip = self._start - self._dropped * CHUNK_ROWS
        chunks = [*self._chunks[:-1], self._chunks[-1].copy()]

        def join() -> bytes:
            state = DedupState(
                SNAPSHOT_FORMAT,
                b"".join([chunk.hashes for chunk in chunks])[skip * HASH_BYTES :],
                b"".join([pack_numbers(chunk.firsts) for chunk in chunks])[skip * 8 :],
                b"".join([pack_numbers(chunk.untils) for chunk in chunks])[skip * 8 :],
            )
            return msgspec.msgpack.encode(state)

        return join

    def restore(self, data: bytes) -> None:
        """Replace the state.

        Raises:
            NewerFormat: the snapshot is of a newer build.
        """
        self._clear()
        if not data:
            return
        state = _decoder.decode(data)
        if state.format > SNAPSHOT_FORMAT:
            raise NewerFormat("a snapshot of dedup keys", state.format, SNAPSHOT_FORMAT)
        hashes = state.hashes
        firsts, untils = unpack_numbers(state.firsts), unpack_numbers(state.untils)
        for row, (first, until_ms) in enumerate(zip(firsts, untils, strict=True)):
            self.add(hashes[row * HASH_BYTES : (row + 1) * HASH_BYTES], first, until_ms)

    def check(self) -> None:
        """Raise if an invariant is broken."""
        assert 0 <= len(self) <= self._keys_max  # D2
        rows = {key_hash: row for maps in self._maps for key_hash, row in maps.items()}
        latest: dict[bytes, int] = {}
        for row in range(self._start, self._end):
            chunk = self._chunks[row // CHUNK_ROWS - self._dropped]
            at = row % CHUNK_ROWS
            key_hash = bytes(chunk.hashes[at * HASH_BYTES : (at + 1) * HASH_BYTES])
            latest[key_hash] = row
        assert rows == latest  # D1
        sizes = [len(chunk.firsts) for chunk in self._chunks]
        assert sum(sizes) == self._end - self._dropped * CHUNK_ROWS
        assert all(size == CHUNK_ROWS for size in sizes[:-1])


_decoder = msgspec.msgpack.Decoder(DedupState)
