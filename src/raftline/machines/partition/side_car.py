"""The side car of a batch: what the machines must know of its messages without opening it.

The gateway that built a batch writes it: runs of messages with one priority, and the dedup keys.
All side cars of an entry are its extension (commands.py): msgpack ``[[at, [priorities, dedup,
window_ms]], ...]`` in the order of ``at``, the batch's place in the entry. The entry's flags say
what is inside.

Words
    *delta* is a message's place in its batch, from 0. A run is ``[start, end)`` in deltas.
    Messages in no run have priority 0. A dedup key travels as a hash of 128 bits.
    ``window_ms`` is how long the keys hold, in log time; the leader stamps it (topic setting).

Invariants of a side car that ``problem`` finds nothing wrong with
    S1  Runs are inside the batch, in order, apart; their priority is in bounds and not 0.
    S2  Deltas of dedup keys are inside the batch and rise; no hash comes twice.

The layout is permanent: golden bytes in tests/unit/machines/golden.
"""

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from raftline.machines.partition.commands import Malformed
from raftline.model.limits import (
    DEDUP_KEYS_PER_BATCH_MAX,
    DEDUP_MS_MAX,
    EXTENSION_BYTES_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    PRIORITY_RUNS_PER_BATCH_MAX,
)

PRIORITIES_FLAG = 0x01
DEDUP_FLAG = 0x02
SIDE_FLAGS = PRIORITIES_FLAG | DEDUP_FLAG

HASH_BYTES = 16
UNSTAMPED = -1  # the leader knows the window
KEY_WEIGHT = 128  # what a dedup key counts in an entry: more than its bytes, for the work at apply
RUN_WEIGHT = 32

PriorityRun = tuple[int, int, int]  # delta start, delta end, priority
DedupKey = tuple[int, bytes]  # delta, hash


class SideCar(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Priorities and dedup keys of one batch."""

    priorities: tuple[PriorityRun, ...] = ()
    dedup: tuple[DedupKey, ...] = ()
    window_ms: int = UNSTAMPED

    @property
    def weight(self) -> int:
        """Return what it counts towards the size of an entry."""
        return len(self.dedup) * KEY_WEIGHT + len(self.priorities) * RUN_WEIGHT

    @property
    def flags(self) -> int:
        """Return the bits of an Append's flags that say what is inside."""
        return (PRIORITIES_FLAG if self.priorities else 0) | (DEDUP_FLAG if self.dedup else 0)


_Extension = list[tuple[int, SideCar]]


def hash_key(dedup_key: bytes) -> bytes:
    """Return the hash under which a dedup key is remembered."""
    return blake2b(dedup_key, digest_size=HASH_BYTES).digest()


def stamped(side: SideCar, window_ms: int) -> SideCar | None:
    """Return the side car as the leader proposes it; None if nothing is left of it."""
    if window_ms > 0 and side.dedup:
        return SideCar(side.priorities, side.dedup, window_ms)
    return SideCar(side.priorities) if side.priorities else None


def problem(side: SideCar, count: int) -> str:
    """Say what is wrong with the side car of a batch of ``count`` messages; empty: nothing."""
    return _run_problem(side.priorities, count) or _dedup_problem(side, count)


def _run_problem(runs: tuple[PriorityRun, ...], count: int) -> str:
    if len(runs) > PRIORITY_RUNS_PER_BATCH_MAX:
        return f"{len(runs)} runs of priorities, at most {PRIORITY_RUNS_PER_BATCH_MAX} go"
    before = 0
    for start, end, priority in runs:
        if not before <= start < end <= count:
            return f"run [{start}, {end}) in a batch of {count} after {before}"
        if not priority or not PRIORITY_MIN <= priority <= PRIORITY_MAX:
            return f"run [{start}, {end}) with priority {priority}"
        before = end
    return ""


def _dedup_problem(side: SideCar, count: int) -> str:
    keys = side.dedup
    if not keys:
        return ""
    if len(keys) > DEDUP_KEYS_PER_BATCH_MAX:
        return f"{len(keys)} dedup keys, at most {DEDUP_KEYS_PER_BATCH_MAX} go"
    if not UNSTAMPED <= side.window_ms <= DEDUP_MS_MAX:
        return f"a dedup window of {side.window_ms} ms"
    before = -1
    for delta, key_hash in keys:
        if not before < delta < count:
            return f"a dedup key at {delta} in a batch of {count} after {before}"
        if len(key_hash) != HASH_BYTES:
            return f"a dedup hash of {len(key_hash)} bytes"
        before = delta
    if len({key_hash for _, key_hash in keys}) < len(keys):
        return "one dedup key twice in a batch: send the first message alone"
    return ""


def encode_side(side: SideCar) -> bytes:
    """Return one side car on its way to the leader."""
    return _encode(side)


def decode_side(data: bytes | memoryview) -> SideCar:
    """Read one side car.

    Raises:
        Malformed: it is none.
    """
    try:
        return _decode_side(data)
    except msgspec.MsgspecError as error:
        raise Malformed(f"a side car: {error}") from error


def encode_extension(sides: Iterable[tuple[int, SideCar]]) -> tuple[int, bytes]:
    """Return flags and extension of an Append; ``sides`` in the order of their batches."""
    rows = list(sides)
    flags = 0
    for _, side in rows:
        flags |= side.flags
    return (flags, _encode(rows)) if rows else (0, b"")


def decode_extension(flags: int, extension: bytes, counts: list[int]) -> dict[int, SideCar]:
    """Read the side cars of an Append whose batches hold ``counts`` messages.

    Raises:
        Malformed: they do not fit the batches or the flags.
    """
    try:
        rows = _decode_extension(extension)
    except msgspec.MsgspecError as error:
        raise Malformed(f"an Append's extension: {error}") from error
    before, found = -1, 0
    for at, side in rows:
        if not before < at < len(counts):
            raise Malformed(f"a side car of batch {at} of {len(counts)} after {before}")
        wrong = problem(side, counts[at])
        if wrong or (side.dedup and side.window_ms == UNSTAMPED):
            raise Malformed(f"side car of batch {at}: {wrong or 'no dedup window'}")
        before = at
        found |= side.flags
    if found != flags & SIDE_FLAGS:
        raise Malformed(f"flags {flags:#x} over side cars with {found:#x}")
    return dict(rows)


_encode = msgspec.msgpack.Encoder().encode
_decode_side = msgspec.msgpack.Decoder(SideCar).decode
_decode_extension = msgspec.msgpack.Decoder(_Extension).decode

_KEY_BYTES = 24  # the longest a dedup key gets, and a run
assert KEY_WEIGHT > _KEY_BYTES < RUN_WEIGHT
assert (DEDUP_KEYS_PER_BATCH_MAX + PRIORITY_RUNS_PER_BATCH_MAX) * _KEY_BYTES < EXTENSION_BYTES_MAX
