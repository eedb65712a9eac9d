"""The outer frame of a link between nodes: ``[u32 length][u32 crc32c of body][body]``, big endian.

The checksum covers the body once per frame, whatever is inside; what the body means is the business
of the other files in this folder. A length of nothing or above ``FRAME_BYTES_MAX``, or a body that
does not match its checksum, is not a frame: the link is closed.
"""

import struct
from collections.abc import Sequence

from crc32c import crc32c

from raftline.model.limits import FRAME_BYTES_MAX

Buffer = bytes | bytearray | memoryview

HELLO_BYTES_MAX = 16 << 10  # of the first body: nobody is trusted yet; later FRAME_BYTES_MAX
HEAD = struct.Struct(">II")
HEAD_BYTES = HEAD.size


def seal(buffers: Sequence[Buffer]) -> bytes:
    """Return the head of the frame whose body is the joined ``buffers``."""
    length = crc = 0
    for buffer in buffers:
        length += len(buffer)
        crc = crc32c(buffer, crc)
    assert 0 < length <= FRAME_BYTES_MAX, length
    return HEAD.pack(length, crc)
