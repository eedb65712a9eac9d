"""Pieces of dead letters: what goes in, where they are cut, what cannot be read."""

import gzip
import random

from raftline.machines.delivery.outbox import Dying
from raftline.model.batch import check_batch
from raftline.model.dead_letter import read_letter
from raftline.model.limits import HEADERS_MAX, MIB, PIECE_BYTES_MAX
from raftline.model.records import open_batch, seal_batch
from raftline.node.letter_pieces import PIECE_BYTES, Letter, PieceBuilt, Place, build_piece

PLACE = Place("orders", 2, "u1")


def letter(number: int, offset: int) -> Letter:
    dying = Dying(1, "workers", 0, 99, 1, "max_retries", 4, 1000, 9000, "w-1", "no such customer")
    return Letter(number, offset, PLACE, dying)


def batch(base_offset: int, *values: bytes, headers=(), compression: str = "none") -> bytes:
    messages = [(b"k", value, list(headers), 777) for value in values]
    sealed = seal_batch(messages, compression=compression)
    return base_offset.to_bytes(8, "big") + sealed[8:]


def letters(built: PieceBuilt):
    check_batch(built.batch, bytes_max=PIECE_BYTES_MAX)
    found = [read_letter(message) for message in open_batch(built.batch)]
    return [(one.story.offset, one.message[1], one.story.lost) for one in found]


def test_messages_of_several_batches_in_the_order_of_their_numbers():
    wanted = [letter(5, 12), letter(6, 3), letter(7, 10)]
    built = build_piece(wanted, [batch(3, b"c", b"d"), batch(10, b"j", b"k", b"l")], {})
    assert letters(built) == [(12, b"l", ""), (3, b"c", ""), (10, b"j", "")]
    assert built.number == 7


def test_the_story_is_told():
    (message,) = open_batch(build_piece([letter(5, 3)], [batch(3, b"c")], {}).batch)
    assert (message.key, message.value, message.timestamp_ms) == (b"k", b"c", 777)
    story = dict(message.headers)
    assert story["raftline-origin"] == b"orders/2@3"
    assert story["raftline-reason"] == b"MAX_RETRIES"
    assert story["raftline-attempts"] == b"4"
    assert story["raftline-dead-ms"] == b"9000"
    assert story["raftline-error"] == b"no such customer"


def test_what_cannot_be_read_goes_without_a_value():
    sound_outside = bytearray(batch(20, b"x"))
    sound_outside[-3:] = b"\xff\xff\xff"
    wanted = [letter(1, 3), letter(2, 4), letter(3, 20)]
    built = build_piece(wanted, [batch(4, b"d"), bytes(sound_outside)], {3: "trimmed"})
    assert letters(built) == [(3, None, "trimmed"), (4, b"d", ""), (20, None, "unreadable")]


def test_a_piece_is_cut_after_so_many_bytes():
    big = b"x" * (PIECE_BYTES // 2)
    wanted = [letter(1, 0), letter(2, 1), letter(3, 2)]
    built = build_piece(wanted, [batch(0, big, big, big)], {})
    assert built.number == 1
    small = [letter(n + 1, n) for n in range(100)]
    built = build_piece(small, [batch(0, *[b"x" * 15_000] * 100)], {})
    assert 50 < built.number < 100
    assert len(built.batch) <= PIECE_BYTES


def test_a_message_as_large_as_they_come():
    value = random.Random(1).randbytes(8 * MIB - 1000)
    built = build_piece([letter(1, 0), letter(2, 1)], [batch(0, value, b"x")], {})
    assert letters(built) == [(0, value, "")]
    assert built.number == 1


def test_a_message_that_was_sent_compressed():
    value = bytes(20 * MIB)
    assert len(gzip.compress(value)) < MIB
    built = build_piece([letter(1, 0)], [batch(0, value, compression="gzip")], {})
    assert letters(built) == [(0, value, "")]


def test_a_message_with_as_many_headers_as_allowed():
    headers = [(f"h{n}", b"v") for n in range(HEADERS_MAX)]
    built = build_piece([letter(1, 0)], [batch(0, b"x", headers=headers)], {})
    (message,) = open_batch(built.batch)
    assert len(message.headers) == HEADERS_MAX + 12
    assert letters(built) == [(0, b"x", "")]
