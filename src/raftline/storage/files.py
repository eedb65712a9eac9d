"""The storage port: the few file operations everything on disk is built from.

Two implementations pass one suite: ``OsDisk`` (storage/os_disk.py) and the simulated disk of
``raftline.testing``, which loses unsynced bytes, tears writes, flips bits, fails and fills up.
WAL, segments, indexes and checkpoints are production code above this port in both worlds.

All calls block and are made from a lane (a helper thread, or a simulated one), except at start-up.
Paths are strings with ``/``, relative to the disk's root (the node's data directory).

Rules the implementations share
    D1  Bytes written are durable only after ``fdatasync`` of that file returned.
    D2  A created, renamed or removed name is durable only after ``sync_dir`` of its directory.
    D3  A failed ``fdatasync`` is final: the caller stops, it never tries again.
"""

from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """One open file."""

    path: str

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write all ``buffers`` one after another from ``position``; return the bytes written.

        Raises OSError (ENOSPC, EIO). On an error any prefix may have been written.
        """
        ...

    def read_at(self, position: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``position``; fewer only at the end of the file."""
        ...

    def read_cached(self, position: int, length: int) -> bytes | None:
        """Return the bytes if the page cache holds them all, else None without waiting."""
        ...

    def fdatasync(self) -> None:
        """Make every byte written so far durable (and the size). D1, D3."""
        ...

    def start_writeback(self, position: int, length: int) -> None:
        """Hint: begin writing this range out now. No durability."""
        ...

    def drop_cached(self, end: int) -> None:
        """Hint: nobody is expected to read the bytes before ``end`` soon. They stay as they are."""
        ...

    def allocate(self, length: int) -> None:
        """Reserve ``length`` bytes; new bytes read as zero."""
        ...

    def truncate(self, length: int) -> None:
        """Cut the file to ``length`` bytes."""
        ...

    def size(self) -> int:
        """Return the length in bytes."""
        ...

    def close(self) -> None:
        """Release the handle. Does not sync."""
        ...


class Disk(Protocol):
    """A directory tree."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. Raises FileNotFoundError unless ``create``."""
        ...

    def exists(self, path: str) -> bool:
        """Say whether a file or directory has this name."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; empty if there is none."""
        ...

    def mkdir(self, path: str) -> None:
        """Create a directory and its parents; an existing one is fine. Syncs the parents."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename atomically, replacing ``new``. Durable after ``sync_dir``. D2."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds; a missing one is fine."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make the names in this directory durable. D2."""
        ...

    def space(self) -> tuple[int, int]:
        """Return (free bytes, total bytes) of the file system."""
        ...
