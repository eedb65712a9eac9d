"""Where messages begin in opened batches, and the numbers in them, for many at once.

A message begins with its length, so each is found by stepping over the one before: where neighbours
are equally long in one numpy comparison, which proves itself (if the next length field is where it
should be and says the same, so does the one after), else byte by byte.

Anything that leads outside the bytes is a ``ValueError`` or ``IndexError``.
"""

# pyright: basic
# numpy says too little of its types for more.

from typing import Any

import numpy as np

_RUN_MIN = 8  # equally long messages that are worth a numpy comparison
_RUN_FIRST = 4096  # often a whole batch is of one length
_RUN_AGAIN = 256  # looked at where it was not
_SMALL = 64  # a batch of so few messages is stepped through
_DENSE = 0.3  # where more have another byte all are looked at, else only those
_WALK = 256  # messages stepped over one by one before trying again

Array = Any
Batch = tuple[int, int, int]  # where its messages begin and end, and how many there are


def all_starts(body: bytes, raw: Array, batches: list[Batch]) -> Array:
    """Return where each message begins. Neighbouring small batches share one array."""
    found: list[Array] = []
    small: list[int] = []
    for batch in batches:
        start, end, count = batch
        if count <= _SMALL:
            some, at = _walk(body, start, count)
            if at != end:
                raise ValueError(f"byte {at}: the messages should end at {end}")
            small += some
            continue
        if small:
            found.append(np.array(small, np.int64))
            small = []
        found.append(_starts(body, raw, batch))
    if small:
        found.append(np.array(small, np.int64))
    return found[0] if len(found) == 1 else np.concatenate(found)


def _starts(body: bytes, raw: Array, batch: Batch) -> Array:
    """Return where each message of a batch begins (its length field)."""
    found: list[Array] = []
    (at, end, left), run = batch, _RUN_FIRST
    while left:
        head = _varint_at(body, at)
        stride = head[0] + head[1]
        if stride <= 0:
            raise ValueError(f"byte {at}: a message of {stride} bytes")
        most = min(left, run, (end - at) // stride)
        same = _equal_run(raw, at, head[1], stride, most) if most >= _RUN_MIN else 0
        if same >= _RUN_MIN:
            found.append(np.arange(at, at + same * stride, stride, dtype=np.int64))
            at += same * stride
            left -= same
            run = 4 * run if same == most else _RUN_AGAIN
        else:
            run = _RUN_AGAIN
            steps = min(left, _WALK)
            some, at = _walk(body, at, steps)
            found.append(np.array(some, np.int64))
            left -= steps
    if at != end:
        raise ValueError(f"byte {at}: the messages should end at {end}")
    return found[0] if len(found) == 1 else np.concatenate(found)


def _equal_run(raw: Array, at: int, width: int, stride: int, most: int) -> int:
    """Return how many messages from here on have the same length field. At most ``most``."""
    heads = raw[at : at + most * stride].reshape(most, stride)[:, :width]
    same = (heads == heads[0]).all(axis=1) if width > 1 else heads[:, 0] == heads[0, 0]
    return most if same.all() else int(same.argmin())


def _walk(body: bytes, at: int, steps: int) -> tuple[list[int], int]:
    """Step over messages one by one: lengths up to 8,191 bytes by the short way."""
    found: list[int] = []
    add = found.append
    for _ in range(steps):
        add(at)
        low = body[at]
        if low < 0x80:
            at += 1 + (low >> 1)
        else:
            high = body[at + 1]
            if high < 0x80:
                at += 2 + ((low & 0x7F | high << 7) >> 1)
            else:
                size, width = _varint_at(body, at)
                at += width + size
                if size < 0:
                    raise ValueError(f"byte {at}: a message of {size} bytes")
    return found, at


def _varint_at(body: bytes, at: int) -> tuple[int, int]:
    """Return one zigzag varint and its width."""
    value, shift, begin = 0, 0, at
    while True:
        byte = body[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at - begin
        shift += 7
        if shift > 63:
            raise ValueError(f"byte {begin}: a number without an end")


def varints(raw: Array, at: Array) -> tuple[Array, Array]:
    """Return the zigzag varints at these places, and the places after them."""
    byte = raw.take(at)
    value = (byte & 0x7F).astype(np.int64)
    after = at + 1
    more = byte >= 0x80
    shift = 7
    while more.any():
        if shift > 63:
            raise ValueError("a number without an end")
        if more.mean() > _DENSE:
            # A place past the end is caught by whoever compares with the end of the message.
            byte = raw.take(after, mode="clip")
            value |= np.where(more, byte & 0x7F, 0).astype(np.int64) << shift
            after += more
            more &= byte >= 0x80
        else:
            which = np.flatnonzero(more)
            byte = raw.take(after[which])
            value[which] |= (byte & 0x7F).astype(np.int64) << shift
            after[which] += 1
            more[which] = byte >= 0x80
        shift += 7
    return (value >> 1) ^ -(value & 1), after


def skip_varints(raw: Array, at: Array) -> Array:
    """Return the places after the varints at these places."""
    byte = raw.take(at)
    after = at + 1
    more = byte >= 0x80
    for _ in range(9):
        if not more.any():
            return after
        byte = raw.take(after, mode="clip")
        after += more
        more &= byte >= 0x80
    raise ValueError("a number without an end")
