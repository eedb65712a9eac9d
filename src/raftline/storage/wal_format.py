"""The bytes of the write-ahead log: file headers, group headers, frames.

A file is ``<generation, 16 hex digits>.wal``: one header sector, then groups, each on a sector
boundary (a later write never touches the sector of an earlier group). A group is one header and
its frames; a frame is a header and a payload with a CRC each.

Every CRC but the payload's starts from a seed made of the file's generation and the data
directory's uuid, so what an earlier life of a recycled file left behind never verifies. The
payload's is plain CRC32C of the bytes (it travels with the entry to peers and segments) and is
itself covered by the frame header's.

Numbers
    generation  of a file; every file made gets the next one, recycled or not
    run         the first generation made by one opening of the WAL; all its files carry it
    sequence    of a group; consecutive within a run
"""

from collections.abc import Sequence
from struct import Struct

import msgspec
from crc32c import crc32c

from raftline.model.errors import NewerFormat
from raftline.raft.rpc import Entry

FORMAT_VERSION = 1
SECTOR_BYTES = 512
FIRST_POSITION = SECTOR_BYTES  # of the first group in a file
FILE_SUFFIX = ".wal"
TEMPORARY_SUFFIX = ".tmp"  # being made: nothing in it counts
FREE_SUFFIX = ".free"  # emptied by the checkpoints, waiting to be used again

GROUP_MAGIC = b"RLWGROUP"
GROUP_HEADER_BYTES = 64
FRAME_HEADER_BYTES = 40
COPIED_BYTES_MAX = 4096  # smaller payloads are gathered, larger ones written from where they are

# Frame kinds. COPY marks a frame written again: it repeats what holds, and voids nothing.
ENTRY = 1  # index, term, entry kind, data; voids the shard's earlier entries from index on
HARD_STATE = 2  # index = commit, term, payload = vote
RESET = 3  # index, term: the log starts after them; voids every earlier entry
REMOVED = 4  # voids every earlier frame of the shard
DAMAGED = 5  # payload = reason; stays until REMOVED
COPY = 0x80

# Group flags.
COMPLETE = 1  # all that was live before this run is in this run's files, synced

_FILE_MAGIC = b"RLWALFIL"
_FILE_HEADER = Struct("<8sIIQQH")
_GROUP_HEADER = Struct("<8sHHIQQQQ12x")
_FRAME = Struct("<QQQBBHII")
_WHOLE_FRAME = Struct("<QQQBBHIII")
_CRC = Struct("<I")
_SEED = Struct("<Q")
_VOTE = Struct("<Q")
_ZEROS = bytes(SECTOR_BYTES)

Frame = tuple[int, int, int, int, int, int, int, int]
"""kind, entry kind, shard, index, term, payload start, payload length, payload crc."""


class WalRefused(Exception):
    """The WAL's files are not this node's. Says what, where and what to do. Nothing was changed."""


class WalIdentity(msgspec.Struct, frozen=True):
    """Whose WAL it is. ``cluster`` is empty until the node is a member."""

    cluster: str
    directory_uuid: str


class FileHeader(msgspec.Struct, frozen=True):
    """What the first sector of a file says."""

    generation: int
    run: int
    cluster: str
    directory_uuid: str


class GroupHeader(msgspec.Struct, frozen=True):
    """What a group header says."""

    flags: int
    frame_count: int
    sequence: int
    run: int
    synced_through: int  # groups up to this sequence were synced when this one was written
    body_bytes: int

    @property
    def bytes(self) -> int:
        """Return the length on disk, padding included."""
        return aligned(GROUP_HEADER_BYTES + self.body_bytes)


def aligned(length: int) -> int:
    """Return ``length`` rounded up to whole sectors."""
    return -(-length // SECTOR_BYTES) * SECTOR_BYTES


def file_name(generation: int) -> str:
    """Return the name of a file."""
    return f"{generation:016x}{FILE_SUFFIX}"


def generation_of(name: str) -> int | None:
    """Return the generation in a file's name, whatever its suffix; None if it is not ours."""
    stem, _, suffix = name.partition(".")
    if len(stem) != 16 or f".{suffix}" not in (FILE_SUFFIX, TEMPORARY_SUFFIX, FREE_SUFFIX):
        return None
    try:
        return int(stem, 16)
    except ValueError:
        return None


def seed_of(generation: int, directory_uuid: str) -> int:
    """Return where the CRCs of a file start."""
    return crc32c(_SEED.pack(generation) + directory_uuid.encode())


# ---- file header


def encode_file_header(header: FileHeader) -> bytes:
    """Return the first sector of a file."""
    names = f"{header.directory_uuid}\n{header.cluster}".encode()
    fixed = _FILE_HEADER.pack(
        _FILE_MAGIC, FORMAT_VERSION, 0, header.generation, header.run, len(names)
    )
    sector = fixed + names
    assert len(sector) <= SECTOR_BYTES - _CRC.size, "cluster or directory name too long"
    sector += bytes(SECTOR_BYTES - _CRC.size - len(sector))
    return sector + _CRC.pack(crc32c(sector))


def decode_file_header(sector: bytes, where: str) -> FileHeader | None:
    """Return what a file's first sector says; None if it is damaged.

    Raises NewerFormat. The magic, the version and the place of the CRC never change.
    """
    if len(sector) < SECTOR_BYTES or not sector.startswith(_FILE_MAGIC):
        return None
    (crc,) = _CRC.unpack_from(sector, SECTOR_BYTES - _CRC.size)
    if crc32c(sector[: SECTOR_BYTES - _CRC.size]) != crc:
        return None
    _, version, _, generation, run, length = _FILE_HEADER.unpack_from(sector)
    if version > FORMAT_VERSION:
        raise NewerFormat(f"the WAL file {where}", version, FORMAT_VERSION)
    names = sector[_FILE_HEADER.size : _FILE_HEADER.size + length].decode()
    directory_uuid, _, cluster = names.partition("\n")
    return FileHeader(generation, run, cluster, directory_uuid)


# ---- group header


def encode_group_header(header: GroupHeader, seed: int) -> bytes:
    """Return the bytes before the frames of a group."""
    fixed = _GROUP_HEADER.pack(
        GROUP_MAGIC,
        FORMAT_VERSION,
        header.flags,
        header.frame_count,
        header.sequence,
        header.run,
        header.synced_through,
        header.body_bytes,
    )
    return fixed + _CRC.pack(crc32c(fixed, seed))


def decode_group_header(data: bytes, at: int, seed: int) -> GroupHeader | None:
    """Return the group header at ``at``, or None if none verifies there."""
    if not data.startswith(GROUP_MAGIC, at) or len(data) - at < GROUP_HEADER_BYTES:
        return None
    (crc,) = _CRC.unpack_from(data, at + _GROUP_HEADER.size)
    if crc32c(data[at : at + _GROUP_HEADER.size], seed) != crc:
        return None
    _, _, *fields = _GROUP_HEADER.unpack_from(data, at)
    return GroupHeader(*fields)


# ---- frames


class GroupEncoder:
    """Gathers the frames of one group as buffers. Large payloads are not copied."""

    __slots__ = ("_seed", "_small", "body_bytes", "buffers", "frame_count")

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._small: list[bytes] = []
        self.buffers: list[bytes] = []
        self.body_bytes = 0
        self.frame_count = 0

    def entries(self, kind: int, shard: int, entries: Sequence[Entry]) -> None:
        """Add entries; fills in their ``crc`` where it is missing. The hot path."""
        seed, small, pack = self._seed, self._small, _FRAME.pack
        total = 0
        for entry in entries:
            data = entry.data
            length = len(data)
            crc = entry.crc
            if crc < 0:
                entry.crc = crc = crc32c(data)
            head = pack(shard, entry.index, entry.term, kind, entry.kind, 0, length, crc)
            small.append(head)
            small.append(crc32c(head, seed).to_bytes(4, "little"))
            if length < COPIED_BYTES_MAX:
                small.append(data)
            else:
                self._gather()
                self.buffers.append(data)
            total += length
        self.body_bytes += total + FRAME_HEADER_BYTES * len(entries)
        self.frame_count += len(entries)

    def mark(self, kind: int, shard: int, index: int, term: int, payload: bytes = b"") -> None:
        """Add a frame that is not an entry."""
        head = _FRAME.pack(shard, index, term, kind, 0, 0, len(payload), crc32c(payload))
        self._small += (head, _CRC.pack(crc32c(head, self._seed)), payload)
        self.body_bytes += FRAME_HEADER_BYTES + len(payload)
        self.frame_count += 1

    def finish(self) -> list[bytes]:
        """Return the body's buffers, padded to whole sectors with the header counted in."""
        length = GROUP_HEADER_BYTES + self.body_bytes
        self._small.append(_ZEROS[: aligned(length) - length])
        self._gather()
        return self.buffers

    def _gather(self) -> None:
        self.buffers.append(b"".join(self._small))
        self._small.clear()


def encode_vote(vote: int) -> bytes:
    """Return the payload of a hard state frame."""
    return _VOTE.pack(vote)


def decode_vote(payload: bytes) -> int:
    """Return the vote in the payload of a hard state frame."""
    (vote,) = _VOTE.unpack(payload)
    return vote


def decode_frames(body: bytes, seed: int) -> tuple[list[Frame], int]:
    """Return the frames whose headers verify, from the first on, and where they end.

    They are all of the group if the end is ``len(body)``. Payloads are not looked at.
    """
    frames: list[Frame] = []
    view = memoryview(body)
    unpack, fixed, end = _WHOLE_FRAME.unpack_from, _FRAME.size, len(body)
    at = 0
    while at + FRAME_HEADER_BYTES <= end:
        shard, index, term, kind, entry_kind, _, length, payload_crc, crc = unpack(body, at)
        if crc32c(view[at : at + fixed], seed) != crc:
            break
        start = at + FRAME_HEADER_BYTES
        if start + length > end:
            break
        frames.append((kind, entry_kind, shard, index, term, start, length, payload_crc))
        at = start + length
    return frames, at
