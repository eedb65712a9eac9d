"""Codecs: both give the same bytes, and opening gives back what was sealed."""

from hypothesis import given
from hypothesis import strategies as st

from raftline.model.batch import check_batch
from raftline.model.compression import compress, decompress
from raftline.model.records import open_batch, open_plain, seal_batch, seal_plain
from raftline.model.varint import get_uvarint, get_varint, put_uvarint, put_varint
from raftline.wire.primitives import (
    get_compact_bytes,
    get_compact_text,
    put_compact_bytes,
    put_compact_text,
)

maybe_bytes = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=8), maybe_bytes), max_size=3)
message = st.tuples(maybe_bytes, maybe_bytes, headers, st.integers(0, 2**41))


@given(
    st.lists(message, min_size=1, max_size=12),
    st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
)
def test_sealed_and_opened(messages, compression):
    plain = seal_plain(messages, (7, 1, 3))
    producer = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 3}
    assert seal_batch(messages, **producer)[16:] == plain[16:]
    sealed = seal_batch(messages, compression=compression, **producer)
    info = check_batch(sealed)
    assert (info.count, info.compression) == (len(messages), compression)
    opened = open_batch(sealed)
    assert opened == open_plain(plain)
    assert [(m.key, m.value, list(m.headers), m.timestamp_ms) for m in opened] == messages


@given(st.binary(max_size=3000), st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]))
def test_compressed_and_back(data, name):
    assert decompress(name, compress(name, data)) == data


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**64 - 1))
def test_varints(signed, unsigned):
    out = bytearray()
    put_varint(out, signed)
    put_uvarint(out, unsigned)
    value, position = get_varint(out, 0)
    assert value == signed
    assert get_uvarint(out, position) == (unsigned, len(out))


@given(st.binary(max_size=12))
def test_any_bytes_as_a_varint_give_a_number_or_valueerror(data):
    try:
        value, position = get_uvarint(data, 0)
    except ValueError:
        return
    assert 0 <= value < 2**64
    assert 0 < position <= min(len(data), 10)


@given(st.none() | st.binary(max_size=300), st.none() | st.text(max_size=50))
def test_compact_forms(data, text):
    out = bytearray()
    put_compact_bytes(out, data)
    put_compact_text(out, text)
    got, position = get_compact_bytes(out, 0)
    assert got == data
    assert get_compact_text(out, position) == (text, len(out))
