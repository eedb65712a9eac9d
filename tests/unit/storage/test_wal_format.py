"""The WAL's bytes: what was written is read, what is stale or turned does not verify."""

import pytest

from raftline.model.errors import NewerFormat
from raftline.raft.rpc import Entry
from raftline.storage.wal_format import (
    ENTRY,
    FRAME_HEADER_BYTES,
    GROUP_HEADER_BYTES,
    HARD_STATE,
    SECTOR_BYTES,
    FileHeader,
    GroupEncoder,
    GroupHeader,
    aligned,
    decode_file_header,
    decode_frames,
    decode_group_header,
    decode_vote,
    encode_file_header,
    encode_group_header,
    encode_vote,
    file_name,
    generation_of,
    seed_of,
)

SEED = seed_of(7, "dir")
GROUP = GroupHeader(1, 2, 3, 4, 5, 6)


def body() -> bytes:
    encoder = GroupEncoder(SEED)
    encoder.mark(HARD_STATE, 9, 8, 7, encode_vote(1 << 63))
    encoder.entries(ENTRY, 9, [Entry(1, 2, 1, b"abc"), Entry(2, 2, 0, b"x" * 5000)])
    joined = b"".join(encoder.finish())
    assert (GROUP_HEADER_BYTES + len(joined)) % SECTOR_BYTES == 0
    assert encoder.frame_count == 3
    return joined[: encoder.body_bytes]


def test_golden_bytes():
    """The format is on disks: a change of these bytes is a new FORMAT_VERSION."""
    assert encode_group_header(GROUP, SEED).hex() == (
        "524c5747524f5550" "0100" "0100" "02000000" "0300000000000000" "0400000000000000"
        "0500000000000000" "0600000000000000" "000000000000000000000000" "1708da75"
    )  # fmt: skip
    assert body()[:48].hex() == (
        "0900000000000000" "0800000000000000" "0700000000000000" "02" "00" "0000" "08000000"
        "f289de0e7d75af3c" "0000000000000080"
    )  # fmt: skip


def test_a_file_header_reads_as_written_and_refuses_turned_bits():
    header = FileHeader(5, 4, "blue", "dir-1")
    sector = encode_file_header(header)
    assert len(sector) == SECTOR_BYTES
    assert decode_file_header(sector, "f") == header
    for at in range(0, SECTOR_BYTES, 3):
        turned = bytearray(sector)
        turned[at] ^= 1
        assert decode_file_header(bytes(turned), "f") is None
    assert decode_file_header(sector[:100], "f") is None


def test_a_newer_file_header_is_told_from_a_damaged_one(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("raftline.storage.wal_format.FORMAT_VERSION", 9)
        sector = encode_file_header(FileHeader(5, 4, "blue", "dir-1"))
    with pytest.raises(NewerFormat, match="format 9"):
        decode_file_header(sector, "f")


def test_a_group_header_reads_only_with_its_seed():
    data = encode_group_header(GROUP, SEED)
    assert len(data) == GROUP_HEADER_BYTES
    assert decode_group_header(b"??" + data, 2, SEED) == GROUP
    for generation, directory in ((6, "dir"), (8, "dir"), (7, "other")):
        assert decode_group_header(data, 0, seed_of(generation, directory)) is None
    for at in range(GROUP_HEADER_BYTES):
        turned = bytearray(data)
        turned[at] ^= 16
        assert decode_group_header(bytes(turned), 0, SEED) is None


def test_frames_read_as_written():
    data = body()
    frames, end = decode_frames(data, SEED)
    assert end == len(data)
    assert [frame[:5] for frame in frames] == [
        (HARD_STATE, 0, 9, 8, 7),
        (ENTRY, 1, 9, 1, 2),
        (ENTRY, 0, 9, 2, 2),
    ]
    start, length = frames[0][5:7]
    assert decode_vote(data[start : start + length]) == 1 << 63
    start, length = frames[1][5:7]
    assert data[start : start + length] == b"abc"


def test_stale_frames_never_verify():
    assert decode_frames(body(), seed_of(8, "dir")) == ([], 0)


def test_frames_stop_at_a_turned_bit_in_a_header():
    data = body()
    second = FRAME_HEADER_BYTES + 8
    for at in range(second, second + FRAME_HEADER_BYTES):
        turned = bytearray(data)
        turned[at] ^= 1
        frames, end = decode_frames(bytes(turned), SEED)
        assert len(frames) == 1
        assert end == second
    frames, end = decode_frames(data[:-1], SEED)
    assert len(frames) == 2
    assert end < len(data)


def test_names_and_sizes():
    assert file_name(255) == "00000000000000ff.wal"
    assert generation_of(file_name(255)) == 255
    assert generation_of("00000000000000ff.free") == 255
    assert generation_of("lock") is None
    assert generation_of("notes.wal") is None
    assert generation_of("00000000000000zz.wal") is None
    assert generation_of("00000000000000ff.txt") is None
    assert [aligned(n) for n in (0, 1, 512, 513)] == [0, 512, 512, 1024]
