"""The real disk: the storage port on a directory of the operating system.

State
    The root directory, and the lock file that says one process owns it.

Rules
    D1-D3 of storage/files.py. On macOS only ``F_FULLFSYNC`` reaches the platter.

Costs
    A write is one ``pwritev`` per IOV_MAX buffers, a sync one ``fdatasync``; nothing is copied.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from raftline.storage.files import Buffer

IOV_MAX = os.sysconf("SC_IOV_MAX")
LOCK_NAME = "lock"
_OPEN_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
_NOT_OFFERED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_WRITEBACK_START = 2  # SYNC_FILE_RANGE_WRITE


class DirectoryInUse(Exception):
    """Another process owns the data directory."""


class OsFile:
    """One open file of the operating system."""

    __slots__ = ("_fd", "path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self.path = path

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write all ``buffers`` one after another from ``position``; return the bytes written."""
        total = sum(map(len, buffers))
        if len(buffers) <= IOV_MAX and os.pwritev(self._fd, buffers, position) == total:
            return total
        return self._write_pieces(position, buffers)

    def _write_pieces(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write what one call could not take: too many buffers, or a short write."""
        start = position
        rest = [memoryview(buffer) for buffer in buffers if len(buffer)]
        rest.reverse()  # so that finished buffers come off the end
        while rest:
            written = os.pwritev(self._fd, rest[: -IOV_MAX - 1 : -1], position)
            if not written:
                raise OSError(errno.EIO, "the write made no progress", self.path)
            position += written
            while rest and written >= len(rest[-1]):
                written -= len(rest.pop())
            if written:
                rest[-1] = rest[-1][written:]
        return position - start

    def read_at(self, position: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``position``; fewer only at the end of the file."""
        data = os.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        pieces = [data]
        got = len(data)
        while got < length and (data := os.pread(self._fd, length - got, position + got)):
            pieces.append(data)
            got += len(data)
        return b"".join(pieces)

    def read_cached(self, position: int, length: int) -> bytes | None:
        """Return the bytes if the page cache holds them all, else None without waiting."""
        if not _NOWAIT or not length:
            return None if length else b""
        into = bytearray(length)
        try:
            got = os.preadv(self._fd, [into], position, _NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in _NOT_OFFERED:
                return None
            raise
        if got == length:
            return bytes(into)
        if position + got < self.size():
            return None  # the rest is not cached
        return bytes(into[:got])

    def fdatasync(self) -> None:
        """Make every byte written so far durable (and the size). D1, D3."""
        _sync_data(self._fd)

    def start_writeback(self, position: int, length: int) -> None:
        """Hint: begin writing this range out now. No durability."""
        _start_writeback(self._fd, position, length)

    def drop_cached(self, end: int) -> None:
        """Hint: let the pages before ``end`` go, those that are written out."""
        if end > 0 and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, 0, end, os.POSIX_FADV_DONTNEED)

    def allocate(self, length: int) -> None:
        """Reserve ``length`` bytes; new bytes read as zero."""
        if length <= 0:
            return
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._fd, 0, length)
        elif self.size() < length:
            os.ftruncate(self._fd, length)

    def truncate(self, length: int) -> None:
        """Cut the file to ``length`` bytes."""
        os.ftruncate(self._fd, length)

    def size(self) -> int:
        """Return the length in bytes."""
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """Release the handle. Does not sync."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OsDisk:
    """The directory tree under ``root``, which is created if it is missing."""

    __slots__ = ("_lock_fd", "_root", "_synced")

    def __init__(self, root: str) -> None:
        self._root = Path(root)
        self._root.mkdir(parents=True, exist_ok=True)
        self._lock_fd = -1
        self._synced: set[Path] = set()  # directories whose names from before us are durable

    def lock(self) -> None:
        """Own the directory until ``unlock`` or the end of the process.

        Raises DirectoryInUse when another process (or another ``OsDisk``) owns it.
        """
        assert self._lock_fd < 0, "already locked"
        path = self._root / LOCK_NAME
        fd = os.open(path, _OPEN_FLAGS | os.O_CREAT, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise DirectoryInUse(
                f"{self._root} is in use by process {owner}; stop that process, "
                "or give this node a data directory of its own"
            ) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode("ascii"), 0)
        self._lock_fd = fd

    def unlock(self) -> None:
        """Let the directory go. Harmless when it is not owned."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def open(self, path: str, *, create: bool = False) -> OsFile:
        """Open for reading and writing. Raises FileNotFoundError unless ``create``."""
        flags = _OPEN_FLAGS | os.O_CREAT if create else _OPEN_FLAGS
        return OsFile(os.open(self._root / path, flags, 0o644), path)

    def exists(self, path: str) -> bool:
        """Say whether a file or directory has this name."""
        return (self._root / path).exists()

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; empty if there is none."""
        try:
            return sorted(child.name for child in (self._root / path).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def mkdir(self, path: str) -> None:
        """Create a directory and its parents; an existing one is fine. Syncs the parents.

        What an earlier process made is synced once for all of a parent's directories: a start with
        a thousand shards would wait for that.
        """
        parent = self._root
        for name in path.split("/"):
            child = parent / name
            is_new = True
            try:
                child.mkdir()
            except FileExistsError:
                is_new = False
            if is_new or parent not in self._synced:
                _sync_directory(parent)
                self._synced.add(parent)
            parent = child
        if not parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "a file has this name", path)

    def rename(self, old: str, new: str) -> None:
        """Rename atomically, replacing ``new``. Durable after ``sync_dir``. D2."""
        (self._root / old).rename(self._root / new)

    def remove(self, path: str) -> None:
        """Remove a file."""
        (self._root / path).unlink()

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds; a missing one is fine."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._root / path)

    def sync_dir(self, path: str) -> None:
        """Make the names in this directory durable. D2."""
        _sync_directory(self._root / path)

    def space(self) -> tuple[int, int]:
        """Return (free bytes, total bytes) of the file system."""
        stat = os.statvfs(self._root)
        return stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_data(fd: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)


def _load_writeback() -> Callable[[int, int, int], None]:
    """Return the platform's write-back hint. ctypes is loaded on first use only."""
    if sys.platform != "linux":
        return _no_writeback
    import ctypes  # noqa: PLC0415  (keeps it out of a lean start)

    try:
        call = ctypes.CDLL(None, use_errno=True).sync_file_range
    except (OSError, AttributeError):
        return _no_writeback
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    call.restype = ctypes.c_int

    def start(fd: int, position: int, length: int) -> None:
        call(fd, position, length, _WRITEBACK_START)  # a hint: its errors mean nothing to us

    return start


def _no_writeback(fd: int, position: int, length: int) -> None:
    del fd, position, length


_writeback: Callable[[int, int, int], None] | None = None


def _start_writeback(fd: int, position: int, length: int) -> None:
    global _writeback  # noqa: PLW0603  (one binding per process, made on first use)
    if _writeback is None:
        _writeback = _load_writeback()
    _writeback(fd, position, length)
