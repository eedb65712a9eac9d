"""The kernel's FUSE protocol (7.31 and later), spoken on ``/dev/fuse`` without any library.

``Mount`` mounts a directory and turns requests into calls on an ``Answerer``; what that raises as
``OSError`` is the answer. One request at a time, from one thread: no locks are needed behind it.
Nothing is cached by the kernel: files are opened for direct I/O and names and attributes have no
lifetime, so that every call of the program under test arrives here.

Needs root (``mount(2)`` on an open ``/dev/fuse``).
"""

import contextlib
import ctypes
import errno
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICE = "/dev/fuse"
WRITE_BYTES_MAX = 1 << 20
BUFFER_BYTES = WRITE_BYTES_MAX + (1 << 16)
MAJOR, MINOR = 7, 31

_IN = struct.Struct("<IIQQIIIHH")
_OUT = struct.Struct("<IiQ")
_INIT_IN = struct.Struct("<IIII")
_INIT_OUT = struct.Struct("<IIIIHHIIHH32x")
_ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
_ENTRY = struct.Struct("<QQQQII")
_GETATTR_OUT = struct.Struct("<QII")
_SETATTR_IN = struct.Struct("<IIQQ")
_OPEN_OUT = struct.Struct("<QIi")
_CREATE_IN = struct.Struct("<IIII")
_MKDIR_IN = struct.Struct("<II")
_RENAME_IN = struct.Struct("<Q")
_RENAME2_IN = struct.Struct("<QII")
_READ_IN = struct.Struct("<QQIIQII")
_WRITE_OUT = struct.Struct("<II")
_FALLOCATE_IN = struct.Struct("<QQQII")
_STATFS = struct.Struct("<QQQQQIII28x")
_DIRENT = struct.Struct("<QQII")

_INIT_BIG_WRITES, _INIT_ATOMIC_TRUNCATE, _INIT_MAX_PAGES = 1 << 5, 1 << 3, 1 << 22
_OPEN_DIRECT = 1 << 0
_SET_MODE, _SET_SIZE = 1 << 0, 1 << 3
_FALLOCATE_KEEP_SIZE = 1
_PAGE_BYTES = 4096
_DIRECTORY, _REGULAR = 0o040000, 0o100000
_LIBC_MOUNT_FLAGS = 2 | 4  # MS_NOSUID, MS_NODEV
_DETACH = 2  # MNT_DETACH
_SILENT = (2, 36, 42)  # FORGET, INTERRUPT, BATCH_FORGET: nobody waits for an answer


class Attributes(msgspec.Struct, frozen=True):
    """What ``stat`` shows of a file or directory."""

    number: int
    mode: int  # permissions only
    size: int
    is_directory: bool


class Answerer(Protocol):
    """A file system: numbers stand for files, 1 is the root. Everything may raise OSError."""

    def look_up(self, parent: int, name: str) -> Attributes:
        """Return what has a name."""
        ...

    def attributes(self, number: int) -> Attributes:
        """Return what ``stat`` shows."""
        ...

    def set_mode(self, number: int, mode: int) -> None:
        """Change permissions."""
        ...

    def resize(self, number: int, size: int) -> None:
        """Change a file's length."""
        ...

    def make(self, parent: int, name: str, mode: int, *, is_directory: bool) -> Attributes:
        """Create a file or directory."""
        ...

    def remove(self, parent: int, name: str) -> None:
        """Take a name away."""
        ...

    def rename(self, parent: int, name: str, new_parent: int, new_name: str) -> None:
        """Give something another name, in place of what had it."""
        ...

    def opened(self, number: int) -> None:
        """Note one more handle."""
        ...

    def released(self, number: int) -> None:
        """Note one handle less."""
        ...

    def read(self, number: int, position: int, length: int) -> bytes:
        """Return bytes; fewer only at the end."""
        ...

    def write(self, number: int, position: int, data: bytes) -> None:
        """Write bytes."""
        ...

    def sync(self, number: int) -> None:
        """Make a file's bytes durable."""
        ...

    def sync_names(self, number: int) -> None:
        """Make a directory's names durable."""
        ...

    def names(self, number: int) -> list[tuple[str, Attributes]]:
        """Return what lies in a directory."""
        ...

    def space(self) -> tuple[int, int]:
        """Return (free bytes, total bytes)."""
        ...


def why_not() -> str:
    """Say why no file system can be mounted here; empty if it can."""
    if not Path(DEVICE).exists():
        return f"there is no {DEVICE}"
    return "" if os.geteuid() == 0 else "a file system of our own is mounted by root only"


class Mount:
    """A mounted directory whose calls come here. Raises OSError if it cannot be mounted."""

    def __init__(self, directory: Path, answerer: Answerer) -> None:
        self._answerer = answerer
        self._directory = str(directory).encode()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
        self._buffer = bytearray(BUFFER_BYTES)
        options = f"fd={self.fd},rootmode=40755,user_id=0,group_id=0,allow_other"
        if self._libc.mount(
            b"raftline-chaos", self._directory, b"fuse", _LIBC_MOUNT_FLAGS, options.encode()
        ):
            number = ctypes.get_errno()
            os.close(self.fd)
            raise OSError(number, os.strerror(number), str(directory))
        self._calls: dict[int, Callable[[int, memoryview], bytes]] = {
            1: self._look_up, 3: self._getattr, 4: self._setattr, 9: self._mkdir,
            10: self._remove, 11: self._remove, 12: self._rename, 14: self._open,
            15: self._read, 16: self._write, 17: self._statfs, 18: self._release,
            20: self._sync, 25: self._nothing, 26: self._init, 27: self._open_directory,
            28: self._readdir, 29: self._nothing, 30: self._sync_names, 35: self._create,
            38: self._nothing, 43: self._fallocate, 45: self._rename2,
        }  # fmt: skip

    def unmount(self) -> None:
        """Take the directory away, also from those who still have files open."""
        self._libc.umount2(self._directory, _DETACH)

    def close(self) -> None:
        """Unmount and hang up."""
        self.unmount()
        os.close(self.fd)

    def serve_one(self) -> bool:
        """Take one request and answer it; False: the kernel has unmounted us."""
        try:
            length = os.readv(self.fd, [self._buffer])
        except OSError as error:
            return error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN)
        _, opcode, unique, number, *_ = _IN.unpack_from(self._buffer)
        if opcode in _SILENT:
            return True
        problem, body = 0, b""
        with memoryview(self._buffer)[_IN.size : length] as rest:
            call = self._calls.get(opcode)
            try:
                if call is None:
                    problem = errno.ENOSYS
                else:
                    body = call(number, rest)
            except KeyError:
                problem = errno.ESTALE
            except OSError as error:
                problem = error.errno or _number_of(error)
        head = _OUT.pack(_OUT.size + len(body), -problem, unique)
        with contextlib.suppress(FileNotFoundError):  # the caller was killed meanwhile
            os.writev(self.fd, [head, body])
        return True

    # ------------------------------------------------------------------ calls

    def _init(self, number: int, rest: memoryview) -> bytes:
        del number
        _, minor, readahead, offered = _INIT_IN.unpack_from(rest)
        flags = offered & (_INIT_BIG_WRITES | _INIT_ATOMIC_TRUNCATE | _INIT_MAX_PAGES)
        pages = WRITE_BYTES_MAX // _PAGE_BYTES
        return _INIT_OUT.pack(
            MAJOR, min(MINOR, minor), readahead, flags, 12, 10, WRITE_BYTES_MAX, 1, pages, 0
        )

    @staticmethod
    def _nothing(number: int, rest: memoryview) -> bytes:
        del number, rest
        return b""

    def _look_up(self, number: int, rest: memoryview) -> bytes:
        return _entry(self._answerer.look_up(number, _name(rest)))

    def _getattr(self, number: int, rest: memoryview) -> bytes:
        del rest
        return _GETATTR_OUT.pack(0, 0, 0) + _attributes(self._answerer.attributes(number))

    def _setattr(self, number: int, rest: memoryview) -> bytes:
        valid, _, _, size = _SETATTR_IN.unpack_from(rest)
        if valid & _SET_SIZE:
            self._answerer.resize(number, size)
        if valid & _SET_MODE:
            self._answerer.set_mode(number, int.from_bytes(rest[68:72], "little") & 0o7777)
        return self._getattr(number, rest)

    def _mkdir(self, number: int, rest: memoryview) -> bytes:
        mode, umask = _MKDIR_IN.unpack_from(rest)
        name = _name(rest[_MKDIR_IN.size :])
        made = self._answerer.make(number, name, mode & ~umask & 0o7777, is_directory=True)
        return _entry(made)

    def _create(self, number: int, rest: memoryview) -> bytes:
        _, mode, umask, _ = _CREATE_IN.unpack_from(rest)
        name = _name(rest[_CREATE_IN.size :])
        made = self._answerer.make(number, name, mode & ~umask & 0o7777, is_directory=False)
        self._answerer.opened(made.number)
        return _entry(made) + _OPEN_OUT.pack(made.number, _OPEN_DIRECT, 0)

    def _remove(self, number: int, rest: memoryview) -> bytes:
        self._answerer.remove(number, _name(rest))
        return b""

    def _rename(self, number: int, rest: memoryview) -> bytes:
        (to,) = _RENAME_IN.unpack_from(rest)
        return self._renamed(number, to, rest[_RENAME_IN.size :])

    def _rename2(self, number: int, rest: memoryview) -> bytes:
        to, flags, _ = _RENAME2_IN.unpack_from(rest)
        if flags:
            raise OSError(errno.EINVAL, "flags of renameat2")
        return self._renamed(number, to, rest[_RENAME2_IN.size :])

    def _renamed(self, number: int, to: int, names: memoryview) -> bytes:
        old, new, _ = bytes(names).split(b"\0", 2)
        self._answerer.rename(number, os.fsdecode(old), to, os.fsdecode(new))
        return b""

    def _open(self, number: int, rest: memoryview) -> bytes:
        flags = int.from_bytes(rest[:4], "little")
        self._answerer.opened(number)
        if flags & os.O_TRUNC:
            self._answerer.resize(number, 0)
        return _OPEN_OUT.pack(number, _OPEN_DIRECT, 0)

    def _release(self, number: int, rest: memoryview) -> bytes:
        del rest
        self._answerer.released(number)
        return b""

    def _open_directory(self, number: int, rest: memoryview) -> bytes:
        del rest
        return _OPEN_OUT.pack(number, 0, 0)

    def _read(self, number: int, rest: memoryview) -> bytes:
        _, position, length, *_ = _READ_IN.unpack_from(rest)
        return self._answerer.read(number, position, length)

    def _write(self, number: int, rest: memoryview) -> bytes:
        _, position, length, *_ = _READ_IN.unpack_from(rest)
        data = bytes(rest[_READ_IN.size : _READ_IN.size + length])
        self._answerer.write(number, position, data)
        return _WRITE_OUT.pack(length, 0)

    def _sync(self, number: int, rest: memoryview) -> bytes:
        del rest
        self._answerer.sync(number)
        return b""

    def _sync_names(self, number: int, rest: memoryview) -> bytes:
        del rest
        self._answerer.sync_names(number)
        return b""

    def _fallocate(self, number: int, rest: memoryview) -> bytes:
        _, position, length, mode, _ = _FALLOCATE_IN.unpack_from(rest)
        if mode & ~_FALLOCATE_KEEP_SIZE:
            raise OSError(errno.EOPNOTSUPP, "holes")
        if position + length > self._answerer.attributes(number).size and not mode:
            self._answerer.resize(number, position + length)
        return b""

    def _statfs(self, number: int, rest: memoryview) -> bytes:
        del number, rest
        free, total = (room // _PAGE_BYTES for room in self._answerer.space())
        return _STATFS.pack(total, free, free, 1 << 20, 1 << 20, _PAGE_BYTES, 255, _PAGE_BYTES)

    def _readdir(self, number: int, rest: memoryview) -> bytes:
        _, position, length, *_ = _READ_IN.unpack_from(rest)
        rows = self._answerer.names(number)
        found = bytearray()
        for at, (name, attributes) in enumerate(rows[position:], position + 1):
            encoded = os.fsencode(name)
            kind = 4 if attributes.is_directory else 8  # DT_DIR, DT_REG
            row = _DIRENT.pack(attributes.number, at, len(encoded), kind) + encoded
            row += bytes(-len(row) % 8)
            if len(found) + len(row) > length:
                break
            found += row
        return bytes(found)


def _name(rest: memoryview) -> str:
    return os.fsdecode(bytes(rest).split(b"\0", 1)[0])


def _attributes(a: Attributes) -> bytes:
    mode = (_DIRECTORY if a.is_directory else _REGULAR) | a.mode
    blocks, links = -(-a.size // 512), 2 if a.is_directory else 1
    return _ATTRIBUTES.pack(
        a.number, a.size, blocks, 0, 0, 0, 0, 0, 0, mode, links, 0, 0, 0, _PAGE_BYTES, 0
    )


def _entry(a: Attributes) -> bytes:
    return _ENTRY.pack(a.number, 1, 0, 0, 0, 0) + _attributes(a)


def _number_of(error: OSError) -> int:
    match error:
        case FileNotFoundError():
            return errno.ENOENT
        case FileExistsError():
            return errno.EEXIST
        case NotADirectoryError():
            return errno.ENOTDIR
        case _:
            return errno.EIO
