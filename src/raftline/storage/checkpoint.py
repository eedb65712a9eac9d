"""The checkpoint of one shard: all a replica needs to start without the WAL below it.

Three names in the shard's directory: ``checkpoint`` (the newest), ``checkpoint.old`` (the one
before it) and ``checkpoint.tmp`` (being written). The file: a head of 32 bytes (magic, format,
body length, body crc32c, head crc32c), then the body (msgpack). The crcs cover every byte.

Invariants
    C1  At every instant a complete, durable checkpoint has one of the names: the new one is
        synced under its temporary name before any other name moves.
    C2  A complete checkpoint is true: segments and side files were synced before it was written.
        So a complete ``checkpoint.tmp`` stands in for a missing ``checkpoint``, and gets that
        name before the next one is written over it.
    C3  Files of a newer format, another cluster or another shard are refused and left alone.
"""

import struct

import msgspec
from crc32c import crc32c

from raftline.raft.rpc import ConfState, HardState
from raftline.storage.files import Disk
from raftline.storage.log_words import LogMark

FORMAT = 1
NAME = "checkpoint"
OLD_NAME = "checkpoint.old"
TEMPORARY_NAME = "checkpoint.tmp"
MAGIC = b"RLINECKP"

_HEAD = struct.Struct("<8sIQI4xI")  # magic, format, body length, body crc, head crc
_HEAD_CRC_AT = _HEAD.size - 4


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one shard's replica after applying ``index``."""

    cluster: str
    shard: int
    replica: int
    index: int  # applied
    term: int  # of the entry at index
    hard_state: HardState
    conf_state: ConfState
    term_runs: tuple[tuple[int, int], ...]  # (first index, term), ascending
    log: LogMark | None  # None: the shard has no partition log
    state: bytes  # the machine, canonical
    at_ms: int  # log time at index
    feature_level: int
    topic_uuid: str = ""
    partition: int = -1
    side: dict[str, LogMark] = {}  # the side logs of a partition, by name


class Loaded(msgspec.Struct, frozen=True):
    """What was found. With ``damage`` the caller decides whether ``older`` may be used.

    It may if the WAL still holds every entry after it; the loader cannot know that.
    """

    checkpoint: Checkpoint | None
    damage: str = ""
    older: Checkpoint | None = None


class CheckpointRefused(Exception):
    """A sound checkpoint that is not for us: newer format, other cluster or shard."""


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the bytes of the file."""
    body = msgspec.msgpack.encode(checkpoint)
    head = _HEAD.pack(MAGIC, FORMAT, len(body), crc32c(body), 0)[:_HEAD_CRC_AT]
    return head + crc32c(head).to_bytes(4, "little") + body


def decode_checkpoint(data: bytes, path: str = "") -> Checkpoint:
    """Return what ``encode_checkpoint`` was given.

    Raises:
        ValueError: the bytes are damaged; the text says where.
        CheckpointRefused: the format is newer than this version.
    """
    if len(data) < _HEAD.size:
        raise ValueError(f"{path}: {len(data)} bytes are less than a head")
    magic, version, length, body_crc, head_crc = _HEAD.unpack_from(data)
    if magic != MAGIC or crc32c(data[:_HEAD_CRC_AT]) != head_crc:
        raise ValueError(f"{path}: the head does not match its crc")
    if version > FORMAT:
        text = f"{path} has format {version}, this version reads up to {FORMAT}; upgrade the node"
        raise CheckpointRefused(text)
    body = data[_HEAD.size :]
    if len(body) != length:
        raise ValueError(f"{path}: the body has {len(body)} bytes, not {length}")
    if crc32c(body) != body_crc:
        raise ValueError(f"{path}: the body does not match its crc")
    return msgspec.msgpack.decode(body, type=Checkpoint)


def write_checkpoint(disk: Disk, directory: str, checkpoint: Checkpoint) -> None:
    """Make ``checkpoint`` the newest one, durably; the one before it is kept as the old. C1.

    Raises:
        OSError: ENOSPC (the one before it is still the newest) or a failed fsync (stop).
    """
    _replace(disk, directory, encode_checkpoint(checkpoint))


def load_checkpoint(disk: Disk, directory: str, *, cluster: str = "", shard: int = 0) -> Loaded:
    """Return the newest checkpoint, or what is wrong with it and the one before it.

    ``cluster`` and ``shard``, where given, must be those in the file.

    Raises:
        CheckpointRefused: C3. Nothing was changed.
    """
    newest, problem = _read(disk, f"{directory}/{NAME}", cluster, shard)
    older, _ = _read(disk, f"{directory}/{OLD_NAME}", cluster, shard)
    if newest is None and not problem:
        newest, _ = _read(disk, f"{directory}/{TEMPORARY_NAME}", cluster, shard)  # C2
        if newest is None and older is not None:
            problem = f"{directory}/{NAME} is missing"
    return Loaded(newest, problem, older)


def _replace(disk: Disk, directory: str, data: bytes) -> None:
    disk.mkdir(directory)
    temporary, newest = f"{directory}/{TEMPORARY_NAME}", f"{directory}/{NAME}"
    has_newest = disk.exists(newest)
    if not has_newest and _read(disk, temporary, "", 0)[0] is not None:  # C2
        disk.rename(temporary, newest)
        disk.sync_dir(directory)
        has_newest = True
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write_at(0, [data])
        file.fdatasync()
    finally:
        file.close()
    if has_newest:
        disk.sync_dir(directory)  # the temporary name, before the newest one moves
        disk.rename(newest, f"{directory}/{OLD_NAME}")
    disk.rename(temporary, newest)
    disk.sync_dir(directory)


def _read(disk: Disk, path: str, cluster: str, shard: int) -> tuple[Checkpoint | None, str]:
    """Return (checkpoint, damage); neither if there is no such file."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None, ""
    try:
        found = decode_checkpoint(file.read_at(0, file.size()), path)
    except (ValueError, OSError) as error:
        return None, str(error)
    finally:
        file.close()
    if (cluster and found.cluster != cluster) or (shard and found.shard != shard):
        raise CheckpointRefused(
            f"{path} belongs to cluster {found.cluster}, shard {found.shard}; "
            f"expected {cluster or found.cluster}, {shard or found.shard}"
        )
    return found, ""
