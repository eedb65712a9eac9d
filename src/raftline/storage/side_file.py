"""The head every side file of a segment begins with: what it is, whose, and for which segment.

Layout, 256 bytes: magic (8), format u16, body length u16, body (msgpack), zeros, crc32c u32 of all
before it. The .log file itself holds only batches; its identity is that of its .sum file.
"""

import struct

import msgspec
from crc32c import crc32c

from raftline.storage.log_words import ForeignLog, LogIdentity

FORMAT = 1
HEADER_BYTES = 256
MAGIC_SUM = b"RLINESUM"
MAGIC_INDEX = b"RLINEIDX"
MAGIC_TIME = b"RLINETIM"

_FRONT = struct.Struct("<8sHH")
_CRC = struct.Struct("<I")


class SideHead(msgspec.Struct, frozen=True, array_like=True):
    """The body of the head."""

    identity: LogIdentity
    base_offset: int
    chain: int  # at base_offset


def encode_head(magic: bytes, head: SideHead) -> bytes:
    """Return the head as bytes."""
    body = msgspec.msgpack.encode(head)
    front = _FRONT.pack(magic, FORMAT, len(body)) + body
    assert len(front) <= HEADER_BYTES - _CRC.size, "cluster and topic ids are too long"
    front = front.ljust(HEADER_BYTES - _CRC.size, b"\0")
    return front + _CRC.pack(crc32c(front))


def decode_head(data: bytes, magic: bytes, identity: LogIdentity, path: str) -> SideHead | None:
    """Return the head, or None if it is damaged.

    Raises:
        ForeignLog: it is sound, and says that the file is not ours or not for this version.
    """
    if len(data) < HEADER_BYTES or data[:8] != magic:
        return None
    if _CRC.unpack_from(data, HEADER_BYTES - _CRC.size)[0] != crc32c(data[: HEADER_BYTES - 4]):
        return None
    _, version, length = _FRONT.unpack_from(data)
    if version > FORMAT:
        text = f"{path} has format {version}, this version reads up to {FORMAT}; upgrade the node"
        raise ForeignLog(text)
    body = data[_FRONT.size : _FRONT.size + length]
    head = msgspec.msgpack.decode(body, type=SideHead)
    if head.identity != identity:
        found, ours = head.identity, identity
        text = (
            f"{path} belongs to cluster {found.cluster}, topic {found.topic_uuid}, partition "
            f"{found.partition}; expected {ours.cluster}, {ours.topic_uuid}, {ours.partition}"
        )
        raise ForeignLog(text)
    return head
