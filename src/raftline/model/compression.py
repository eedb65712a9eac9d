"""The four compressions a record batch may use. For the edges only.

gzip is always there; snappy, lz4 and zstd need the package ``cramjam`` and are refused with a clear
error without it. What unpacks to more than ``BATCH_DECODED_BYTES_MAX`` is refused: gzip and snappy
before it is unpacked, lz4 and zstd by unpacking into a buffer no larger than the bound.
"""

import importlib
import struct
import zlib
from functools import cache
from typing import Any

from raftline.model.batch import COMPRESSIONS, Buffer
from raftline.model.errors import CorruptBatch, InvalidArgument
from raftline.model.limits import BATCH_DECODED_BYTES_MAX

_GZIP_WINDOW = 31  # zlib: 15 bits of window, gzip's head and tail
_XERIAL_MAGIC = b"\x82SNAPPY\x00"  # the framing Java clients put around snappy blocks
_XERIAL_HEAD_BYTES = 16
_LENGTH = struct.Struct(">I")


def compress(name: str, data: Buffer) -> bytes:
    """Pack ``data`` the way Kafka clients expect it."""
    match name:
        case "none":
            return bytes(data)
        case "gzip":
            packer = zlib.compressobj(wbits=_GZIP_WINDOW)
            return packer.compress(data) + packer.flush()
        case "snappy":
            return bytes(_cramjam(name).snappy.compress_raw(data))
        case "lz4":
            return bytes(_cramjam(name).lz4.compress(data))
        case "zstd":
            return bytes(_cramjam(name).zstd.compress(data))
        case _:
            raise InvalidArgument(f"compression {name!r} is not one of {', '.join(COMPRESSIONS)}")


def decompress(name: str, data: Buffer, bytes_max: int = BATCH_DECODED_BYTES_MAX) -> bytes:
    """Unpack ``data``.

    Raises:
        CorruptBatch: it does not unpack, or to more than ``bytes_max``.
        InvalidArgument: the compression is not available here.
    """
    try:
        match name:
            case "none":
                return bytes(data)
            case "gzip":
                return _gunzip(data, bytes_max)
            case "snappy":
                return _unsnappy(data, bytes_max)
            case "lz4":
                return _unpack_into(_cramjam(name).lz4.decompress_into, data, bytes_max)
            case "zstd":
                return _unpack_into(_cramjam(name).zstd.decompress_into, data, bytes_max)
            case _:
                raise InvalidArgument(f"compression {name!r} is not known")
    except (zlib.error, ValueError, struct.error) as error:
        raise CorruptBatch(f"its {name} data does not unpack: {error}") from error


def _gunzip(data: Buffer, bytes_max: int) -> bytes:
    unpacker = zlib.decompressobj(wbits=_GZIP_WINDOW)
    unpacked = unpacker.decompress(data, bytes_max + 1)
    _bound(len(unpacked), bytes_max)
    if not unpacker.eof:
        raise ValueError("it ends too early")
    return unpacked


def _unsnappy(data: Buffer, bytes_max: int) -> bytes:
    """Unpack one raw block, or Java's frame of many."""
    snappy = _cramjam("snappy").snappy
    data = bytes(data)
    blocks = _xerial_blocks(data) if data.startswith(_XERIAL_MAGIC) else [data]
    try:
        _bound(sum(snappy.decompress_raw_len(block) for block in blocks), bytes_max)
        return b"".join(bytes(snappy.decompress_raw(block)) for block in blocks)
    except _cramjam("snappy").DecompressionError as error:
        raise ValueError(str(error)) from error


def _xerial_blocks(data: bytes) -> list[bytes]:
    blocks: list[bytes] = []
    position = _XERIAL_HEAD_BYTES
    while position < len(data):
        (length,) = _LENGTH.unpack_from(data, position)
        blocks.append(data[position + 4 : position + 4 + length])
        position += 4 + length
    return blocks


def _unpack_into(unpack: Any, data: Buffer, bytes_max: int) -> bytes:
    """Try ever larger buffers, up to the bound."""
    data = bytes(data)
    size = min(bytes_max, max(64 * 1024, 8 * len(data)))
    while True:
        out = bytearray(size)
        try:
            return bytes(memoryview(out)[: unpack(data, out)])
        except _cramjam("").DecompressionError as error:
            if str(error) != _no_room():
                raise ValueError(str(error)) from error  # damage, in a buffer of any size
            if size == bytes_max:
                raise ValueError(f"it unpacks to more than {bytes_max} bytes") from error
            size = min(bytes_max, size * 8)


@cache
def _no_room() -> str:
    """Return what cramjam, whose errors all look alike, says of a buffer that is too small."""
    zstd = _cramjam("zstd").zstd
    try:
        zstd.decompress_into(zstd.compress(b"one"), bytearray())
    except _cramjam("zstd").DecompressionError as error:
        return str(error)
    raise AssertionError("three bytes were unpacked into none")


def _bound(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise ValueError(f"it unpacks to more than {bytes_max} bytes")


def _cramjam(name: str) -> Any:
    try:
        return importlib.import_module("cramjam")
    except ImportError as error:
        raise InvalidArgument(
            f"compression {name!r} is not available on this machine",
            "pip install cramjam, or send gzip or uncompressed batches",
        ) from error
