"""The framing: whatever the pieces the bytes arrive in, the same frames come out."""

import random

import pytest

from raftline.model.limits import FRAME_BYTES_MAX
from raftline.transport.frames import BUFFER_BYTES, POOL_BYTES_MAX, BufferPool, FrameReader
from raftline.wire.peer.frames import HEAD, HELLO_BYTES_MAX, seal


def sealed(body: bytes) -> bytes:
    return seal((body,)) + body


def feed(reader: FrameReader, stream: bytes, sizes: list[int]) -> tuple[list[bytes], str]:
    """Put ``stream`` in, cut as ``sizes`` say (the last size repeats)."""
    frames: list[bytes] = []

    def keep(frame: memoryview) -> bool:
        frames.append(bytes(frame))
        return True

    at = step = 0
    while at < len(stream):
        space = reader.space()
        assert len(space) > 0, "R3"
        count = min(sizes[min(step, len(sizes) - 1)], len(space), len(stream) - at)
        space[:count] = stream[at : at + count]
        wrong = reader.filled(count, keep)
        if wrong:
            return frames, wrong
        at, step = at + count, step + 1
    return frames, ""


@pytest.mark.parametrize("seed", range(20))
def test_any_cut_gives_the_same_frames(seed: int) -> None:
    rng = random.Random(seed)
    reader = FrameReader(BufferPool())
    reader.trust()
    largest = rng.choice([30, 5_000, BUFFER_BYTES * 3])
    bodies = [rng.randbytes(rng.randrange(1, largest)) for _ in range(rng.randrange(1, 30))]
    sizes = [rng.randrange(1, rng.choice([10, 70_000, 1 << 20])) for _ in range(200)]
    assert feed(reader, b"".join(sealed(b) for b in bodies), sizes) == (bodies, "")


def test_one_byte_at_a_time() -> None:
    bodies = [b"a", b"bc", b"d" * 300]
    reader = FrameReader(BufferPool())
    assert feed(reader, b"".join(sealed(b) for b in bodies), [1]) == (bodies, "")


def test_a_head_sealed_over_pieces_fits_the_joined_body() -> None:
    pieces = (b"one", bytearray(b"two"), memoryview(b"three"))
    assert seal(pieces) == seal((b"onetwothree",))


@pytest.mark.parametrize("length", [0, FRAME_BYTES_MAX + 1, 0xFFFFFFFF])
def test_a_length_out_of_bounds_is_refused_before_any_memory_is_taken(length: int) -> None:
    reader = FrameReader(BufferPool())
    reader.trust()
    frames, wrong = feed(reader, sealed(b"fine") + HEAD.pack(length, 0), [4096])
    assert frames == [b"fine"]
    assert str(length) in wrong


def test_before_the_hello_only_small_frames_are_taken() -> None:
    reader = FrameReader(BufferPool())
    _, wrong = feed(reader, HEAD.pack(HELLO_BYTES_MAX + 1, 0), [4096])
    assert "allowed are" in wrong


@pytest.mark.parametrize("flip", range(8))
def test_a_flipped_bit_is_refused(flip: int) -> None:
    damaged = bytearray(sealed(b"payload"))
    damaged[8 + flip % 7] ^= 1 << flip
    _, wrong = feed(FrameReader(BufferPool()), bytes(damaged), [4096])
    assert "checksum" in wrong


def test_a_big_buffer_goes_back_to_the_pool_and_is_used_again() -> None:
    pool = BufferPool()
    reader = FrameReader(pool)
    reader.trust()
    big = sealed(b"x" * (BUFFER_BYTES * 2))
    feed(reader, big, [1 << 20])
    assert len(reader.space()) == BUFFER_BYTES
    first = pool.take(BUFFER_BYTES * 4)
    pool.give(first)
    feed(reader, big, [1 << 20])
    assert pool.take(BUFFER_BYTES * 4) is first


def test_the_pool_is_bounded() -> None:
    pool = BufferPool()
    kept = [bytearray(POOL_BYTES_MAX // 2) for _ in range(3)]
    for buffer in kept:
        pool.give(buffer)
    again = [pool.take(POOL_BYTES_MAX // 2) for _ in range(3)]
    assert sum(any(a is k for k in kept) for a in again) == 2


def test_delivery_stops_when_the_receiver_has_enough() -> None:
    reader = FrameReader(BufferPool())
    stream = sealed(b"a") + sealed(b"b")
    seen: list[bytes] = []

    def once(frame: memoryview) -> bool:
        seen.append(bytes(frame))
        return False

    reader.space()[: len(stream)] = stream
    assert reader.filled(len(stream), once) == ""
    assert seen == [b"a"]
