"""Sealing and opening, against the compiled codec and against aiokafka as a stranger."""

import struct
import subprocess
import sys

import pytest
from crc32c import crc32c

from raftline.model import records
from raftline.model.batch import check_batch
from raftline.model.compression import decompress
from raftline.model.errors import CorruptBatch, InvalidArgument, TooLarge
from raftline.model.message import Message
from raftline.model.varint import put_varint

MESSAGES = [
    (b"key", b"value", [("h", b"1"), ("none", None)], 1_700_000_000_000),
    (None, b"", (), 1_700_000_000_005),
    (b"", None, (("\u00e4", b""),), 1_699_999_999_999),
]
OPENED = [
    Message(0, 1_700_000_000_000, b"key", b"value", (("h", b"1"), ("none", None))),
    Message(1, 1_700_000_000_005, None, b"", ()),
    Message(2, 1_699_999_999_999, b"", None, (("\u00e4", b""),)),
]
PACKED = ["gzip", "snappy", "lz4", "zstd"]


def test_the_compiled_codec_is_in_use():
    assert records.codec_name() == "compiled"


def test_both_codecs_give_the_same_bytes():
    plain = records.seal_plain(MESSAGES, (-1, -1, -1))
    sealed = records.seal_batch(MESSAGES)
    assert sealed[16:] == plain[16:]
    assert records.open_batch(sealed) == records.open_plain(plain) == OPENED
    assert check_batch(sealed).max_timestamp == 1_700_000_000_005


def test_offsets_come_from_the_head():
    placed = bytearray(records.seal_batch(MESSAGES))
    struct.pack_into(">q", placed, 0, 100)
    assert [m.offset for m in records.open_batch(placed)] == [100, 101, 102]
    assert [m.offset for m in records.open_batches(placed * 2)] == [100, 101, 102] * 2


@pytest.mark.parametrize("compression", PACKED)
def test_compressions(compression):
    sealed = records.seal_batch(MESSAGES * 100, compression=compression)
    assert check_batch(sealed).compression == compression
    assert len(sealed) < len(records.seal_batch(MESSAGES * 100))
    opened = records.open_batch(sealed)
    assert [m.key for m in opened] == [m[0] for m in MESSAGES * 100]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_batches_of_a_kafka_client_are_opened(codec):
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for offset in range(50):
        builder.append(offset, 1000 + offset, b"k", b"v" * 50, [("a", b"b")])
    opened = records.open_batch(bytes(builder.build()))
    assert opened[49] == Message(49, 1049, b"k", b"v" * 50, (("a", b"b"),))


def test_snappy_as_java_frames_it():
    import cramjam

    blocks = [b"first " * 20, b"second " * 20]
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for block in blocks:
        packed = bytes(cramjam.snappy.compress_raw(block))
        framed += struct.pack(">I", len(packed)) + packed
    assert decompress("snappy", framed) == b"".join(blocks)


@pytest.mark.parametrize("compression", PACKED)
def test_a_bomb_is_refused(compression):
    from raftline.model.compression import compress

    bomb = compress(compression, bytes(1 << 20))
    with pytest.raises(CorruptBatch):
        decompress(compression, bomb, bytes_max=1 << 16)
    assert len(decompress(compression, bomb, bytes_max=1 << 20)) == 1 << 20
    with pytest.raises(CorruptBatch):
        decompress(compression, bomb[: len(bomb) // 2])


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_damage_is_no_reason_for_a_larger_buffer(compression):
    from raftline.model import compression as packing

    tried = []
    decompress_into = getattr(packing._cramjam(compression), compression).decompress_into

    def counted(data, out):
        tried.append(len(out))
        return decompress_into(data, out)

    packed = packing.compress(compression, bytes(1 << 20))
    with pytest.raises(ValueError, match=r"\w") as caught:
        packing._unpack_into(counted, b"junk" * 20, 64 << 20)
    assert len(tried) == 1, caught.value
    assert len(packing._unpack_into(counted, packed, 64 << 20)) == 1 << 20


def test_without_cramjam_the_error_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(InvalidArgument, match="'zstd' is not available") as caught:
        records.seal_batch(MESSAGES, compression="zstd")
    assert "cramjam" in caught.value.hint
    assert records.open_batch(records.seal_batch(MESSAGES, compression="gzip")) == OPENED


def test_bad_requests():
    with pytest.raises(InvalidArgument, match="at least one"):
        records.seal_batch([])
    with pytest.raises(InvalidArgument, match="rar"):
        records.seal_batch(MESSAGES, compression="rar")
    with pytest.raises(TooLarge, match="key"):
        records.seal_batch([(b"k" * 100_000, b"", (), 0)])
    with pytest.raises(TooLarge, match="headers of a message"):
        records.seal_batch([(b"", b"", [("h", b"")] * 101, 0)])


@pytest.mark.parametrize("open_one", [records.open_batch, records.open_plain])
def test_a_lying_body_is_refused(open_one):
    sealed = bytearray(records.seal_batch(MESSAGES))
    for at in range(61, len(sealed)):
        for flip in (0x01, 0x40, 0x80):
            batch = bytearray(sealed)
            batch[at] ^= flip
            struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
            try:
                opened = open_one(bytes(batch))
            except CorruptBatch:
                continue
            assert len(opened) == 3  # a changed value, not a crash


@pytest.mark.parametrize("open_one", [records.open_batch, records.open_plain])
@pytest.mark.parametrize("length", [(1 << 63) - 1, (1 << 63) - 60, (1 << 63) - 90])
@pytest.mark.parametrize("what", ["key", "value", "content of a header"])
def test_a_length_that_leads_past_all_bytes_is_refused(what, length, open_one):
    values = {"key": b"a", "value": b"b" * 40, "content of a header": b"c" * 40}
    parts = [bytes(3)]  # attributes, deltas
    for name, value in values.items():
        if name == "content of a header":
            parts.append(b"\x02\x02h")  # one header
        lying = bytearray()
        put_varint(lying, length if name == what else len(value))
        parts.append(bytes(lying) + value)
    body = bytearray()
    put_varint(body, len(b"".join(parts)))
    body += b"".join(parts)
    sealed = bytearray(records.seal_batch([(None, None, (), 0)])[:61]) + body
    struct.pack_into(">i", sealed, 8, len(sealed) - 12)
    struct.pack_into(">I", sealed, 17, crc32c(memoryview(sealed)[21:]))
    check_batch(sealed)  # so it is stored
    with pytest.raises(CorruptBatch):
        open_one(sealed)
    assert [message.value for message in records.open_or_count(sealed)] == [None]


def test_a_wrong_count_is_refused():
    sealed = bytearray(records.seal_batch(MESSAGES))
    struct.pack_into(">i", sealed, 57, 2)
    with pytest.raises(CorruptBatch):
        records.open_batch(sealed)


@pytest.mark.parametrize("deltas", [(0, 0, 0), (1, 2, 3), (0, 2, 1), (0, 40, 2)])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_messages_that_count_their_offsets_otherwise_are_refused(deltas, compression):
    one = [(None, b"x", (), 0)]
    sealed = bytearray(records.seal_batch(one * 3))
    for at, delta in zip(range(61 + 3, len(sealed), 8), deltas, strict=True):
        sealed[at] = delta << 1  # length, attributes, time, offset
    forged = bytes(records._repack(bytes(sealed), records.COMPRESSIONS.index(compression)))
    with pytest.raises(CorruptBatch, match="offsets"):
        records.open_batch(forged)


def test_a_control_batch_holds_no_messages():
    sealed = bytearray(records.seal_batch(MESSAGES))
    struct.pack_into(">h", sealed, 21, 0x20)
    assert records.open_batch(sealed) == []


def test_the_codec_comes_without_the_kafka_client_and_lets_it_come_later():
    code = """
import sys
from raftline.model.records import codec_name, seal_batch
assert codec_name() == "compiled", codec_name()
assert seal_batch([(b"k", b"v", (), 1)])
assert not {"aiokafka", "aiokafka.client", "aiokafka.consumer"} & set(sys.modules)
import aiokafka
from aiokafka.record.default_records import DefaultRecordBatch
assert len(list(DefaultRecordBatch(seal_batch([(b"k", b"v", (), 1)])))) == 1
assert aiokafka.AIOKafkaProducer
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_compiled_codec_is_loaded_once_by_many_threads() -> None:
    """Two clients that start in two threads seal their first batches at the same moment."""
    script = """
import threading
from raftline.model.records import open_batch, seal_batch
start, failed = threading.Barrier(8), []
def work():
    start.wait()
    try:
        assert open_batch(seal_batch([(b"k", b"v", (), 1)]))[0].value == b"v"
    except BaseException as error:
        failed.append(repr(error))
threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert not failed, failed
"""
    for _ in range(3):
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
