"""Reading WAL files: find every group header that verifies, whatever lies between.

A group follows the one before. Where none verifies, the search goes on sector by sector to the end
of the file, so a damaged group does not hide the ones after it. Nothing here changes a file.

Costs
    One sequential read of the file in large pieces. A piece that cannot be read is read again
    sector group by sector group; what stays unreadable counts as zeros, that is, as damage, and
    ``is_unread`` knows it: there may be groups in it, whatever the zeros look like.
"""

from collections.abc import Collection, Iterator

import msgspec
from crc32c import crc32c

from raftline.model.errors import WrongCluster
from raftline.raft.rpc import Entry
from raftline.storage.files import Disk, File
from raftline.storage.wal_format import (
    COPY,
    ENTRY,
    FILE_SUFFIX,
    FIRST_POSITION,
    GROUP_HEADER_BYTES,
    GROUP_MAGIC,
    SECTOR_BYTES,
    FileHeader,
    GroupHeader,
    WalIdentity,
    WalRefused,
    aligned,
    decode_file_header,
    decode_frames,
    decode_group_header,
    generation_of,
    seed_of,
)

WINDOW_BYTES = 1 << 20
RETRY_BYTES = 4096


class GroupFound(msgspec.Struct, frozen=True):
    """A group whose header verifies."""

    header: GroupHeader
    position: int
    follows: bool  # it starts where the group before it ended

    @property
    def end(self) -> int:
        """Return the position after it."""
        return self.position + self.header.bytes


class FileScan:
    """One WAL file, read only."""

    __slots__ = ("_file", "_unread", "_windows", "generation", "header", "path", "seed", "size")

    def __init__(self, file: File, generation: int, identity: WalIdentity) -> None:
        self._file = file
        self._unread: set[tuple[int, int]] = set()  # [start, end) that the disk did not give
        self._windows: list[tuple[int, bytes]] = []  # the latest two: readers look one group ahead
        self.path = file.path
        self.generation = generation
        self.seed = seed_of(generation, identity.directory_uuid)
        self.size = file.size()
        self.header = decode_file_header(self.read(0, SECTOR_BYTES), self.path)

    def read(self, position: int, length: int) -> bytes:
        """Return bytes; fewer at the end of the file, zeros where the disk gives none."""
        for start, window in self._windows:
            at = position - start
            if at >= 0 and at + length <= len(window):
                return window if length == len(window) else window[at : at + length]
        window = self._load(position, max(length, WINDOW_BYTES))
        self._windows = [(position, window), *self._windows[:1]]
        return window[:length]

    def groups(self) -> Iterator[GroupFound]:
        """Yield every group that can be found, in the order of positions."""
        position = FIRST_POSITION
        while (found := self._next(position)) is not None:
            position = found.end
            yield found

    def is_unread(self, start: int, end: int) -> bool:
        """Say whether the disk did not give a byte of ``[start, end)`` when it was asked."""
        return any(low < end and start < high for low, high in self._unread)

    def run(self) -> int:
        """Return the run this file belongs to, from its header or its first group; 0: unknown."""
        if self.header is not None:
            return self.header.run
        found = next(self.groups(), None)
        return found.header.run if found else 0

    def close(self) -> None:
        """Release the handle."""
        self._file.close()

    def _next(self, end: int) -> GroupFound | None:
        """Return the next group after one that ended at ``end``."""
        position = end
        head = self.read(position, GROUP_HEADER_BYTES)
        while len(head) == GROUP_HEADER_BYTES:
            header = decode_group_header(head, 0, self.seed)
            if header is not None:
                return GroupFound(header, position, position == end)
            position = self._next_magic(position + SECTOR_BYTES)
            head = self.read(position, GROUP_HEADER_BYTES)
        return None

    def _next_magic(self, position: int) -> int:
        """Return the next sector from ``position`` on that starts like a group, or the end."""
        position = aligned(position)
        while position < self.size:
            data = self.read(position, min(WINDOW_BYTES, self.size - position))
            if not data:
                break
            at = data.find(GROUP_MAGIC)
            while at >= 0 and at % SECTOR_BYTES:
                at = data.find(GROUP_MAGIC, at + 1)
            if at >= 0:
                return position + at
            position += WINDOW_BYTES  # whole sectors: a magic never straddles two pieces
        return self.size

    def _load(self, position: int, length: int) -> bytes:
        try:
            return self._file.read_at(position, length)
        except OSError:
            return self._load_pieces(position, min(length, self.size - position))

    def _load_pieces(self, position: int, length: int) -> bytes:
        pieces: list[bytes] = []
        for start in range(position, position + length, RETRY_BYTES):
            wanted = min(RETRY_BYTES, position + length - start)
            try:
                pieces.append(self._file.read_at(start, wanted))
            except OSError:
                pieces.append(bytes(wanted))
                self._unread.add((start, start + wanted))
        return b"".join(pieces)


def read_back(scan: FileScan, shards: Collection[int]) -> dict[int, dict[int, Entry]]:
    """Return the entries that a sound file holds of some shards, by index: the last of each."""
    found: dict[int, dict[int, Entry]] = {shard: {} for shard in shards}
    for group in scan.groups():
        body = scan.read(group.position + GROUP_HEADER_BYTES, group.header.body_bytes)
        frames, _ = decode_frames(body, scan.seed)
        for kind, entry_kind, shard, index, term, at, length, crc in frames:
            if kind & ~COPY == ENTRY and shard in found:
                data = body[at : at + length]
                if crc32c(data) == crc:
                    found[shard][index] = Entry(index, term, entry_kind, data, crc)
    return found


def open_scans(disk: Disk, directory: str, identity: WalIdentity) -> list[FileScan]:
    """Open every WAL file, oldest first.

    Raises NewerFormat, WrongCluster or WalRefused when a file is not this node's.
    """
    scans: list[FileScan] = []
    try:
        for name in disk.listdir(directory):
            generation = generation_of(name)
            if generation is not None and name.endswith(FILE_SUFFIX):
                scan = FileScan(disk.open(f"{directory}/{name}"), generation, identity)
                scans.append(scan)
                _check_identity(scan, identity)
    except BaseException:
        close_scans(scans)
        raise
    return scans


def close_scans(scans: list[FileScan]) -> None:
    """Release the handles."""
    for scan in scans:
        scan.close()


def _check_identity(scan: FileScan, identity: WalIdentity) -> None:
    header: FileHeader | None = scan.header
    if header is None:
        return  # damaged: its groups are verified with our own identity
    if header.directory_uuid != identity.directory_uuid:
        raise WalRefused(
            f"the WAL file {scan.path} belongs to data directory {header.directory_uuid}, this is "
            f"{identity.directory_uuid}; put the file back where it came from, or start with an "
            "empty directory. Nothing was changed"
        )
    if header.cluster and identity.cluster and header.cluster != identity.cluster:
        raise WrongCluster(identity.cluster, header.cluster)
    if header.generation != scan.generation:
        raise WalRefused(
            f"the WAL file {scan.path} was written as generation {header.generation:x}; "
            "it was renamed: give it its name back. Nothing was changed"
        )
