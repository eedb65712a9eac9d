"""Open files of many logs and the tables of their closed segments, at most so many at a time.

State
    Files by path, least recently used first. The lane owns the pool; the loop may only look
    (``peek``) while it holds the lock, which it never waits for. ``fresh``: the directories in
    which a file was made since their names were last synced. Holders of tables by path, least
    recently used first, and how many bytes each holds.

Invariants
    F1  No file is closed while the loop reads it: closing takes the lock.
    F2  A pinned file (bytes not yet synced) is not closed to make room, so that an error of the
        write-back is reported to the handle that wrote.
    F3  A file that was made is in a ``fresh`` directory until somebody synced its names: files are
        made when they are first written, which may be long after their segment began.
    F4  Tables over ``tables_bytes_max`` are given up, those used longest ago first, but never the
        ones used last, nor those whose files lack something.
    F5  Nothing of a directory that is taken away stays open: the space of a removed file is free
        only when nobody has it open.
"""

from threading import Lock
from typing import Protocol

from raftline.storage.files import Disk, File

OPEN_MAX = 512
TABLES_BYTES_MAX = 32 << 20  # of a node: a log of 10 GB in batches of 16 KiB, all of it


class TablesHolder(Protocol):
    """A closed segment that may forget its tables: its files have them."""

    def unload(self) -> bool:
        """Forget the tables; False: the files lack something, they stay."""
        ...


class FilePool:
    """The open files of the logs that share one lane."""

    __slots__ = (
        "_files", "_holders", "_pinned", "_tables_bytes", "disk", "fresh", "lock", "open_max",
        "tables_bytes_max",
    )  # fmt: skip

    def __init__(
        self, disk: Disk, open_max: int = OPEN_MAX, tables_bytes_max: int = TABLES_BYTES_MAX
    ) -> None:
        self.disk = disk
        self.open_max = open_max
        self.tables_bytes_max = tables_bytes_max
        self._holders: dict[str, tuple[TablesHolder, int]] = {}
        self._tables_bytes = 0
        self.lock = Lock()
        self._files: dict[str, File] = {}
        self._pinned: set[str] = set()
        self.fresh: set[str] = set()  # F3

    def get(self, path: str, *, create: bool = False) -> File:
        """Return the open file. Raises FileNotFoundError unless ``create``. Lane only."""
        file = self._files.get(path)
        if file is None:
            file = self._open(path, create=create)
            with self.lock:
                self._files[path] = file
            self._make_room()
        elif next(reversed(self._files)) != path:
            with self.lock:
                del self._files[path]
                self._files[path] = file
        return file

    def _open(self, path: str, *, create: bool) -> File:
        try:
            return self.disk.open(path)
        except FileNotFoundError:
            if not create:
                raise
        file = self.disk.open(path, create=True)
        self.fresh.add(path.rpartition("/")[0])
        return file

    def peek(self, path: str) -> File | None:
        """Return the file if it is open. The caller holds ``lock``."""
        return self._files.get(path)

    def pin(self, path: str) -> None:
        """Keep the file open until it is synced. F2."""
        self._pinned.add(path)

    def unpin(self, path: str) -> None:
        """Let the file be closed again."""
        self._pinned.discard(path)

    def use_tables(self, path: str, holder: TablesHolder, size: int) -> None:
        """The tables of a closed segment are in memory and just used. F4."""
        holders = self._holders
        held = holders.pop(path, None)
        holders[path] = (holder, size)
        self._tables_bytes += size - (0 if held is None else held[1])
        if self._tables_bytes > self.tables_bytes_max:
            for other in list(holders)[:-1]:
                if holders[other][0].unload():
                    self._forget_tables(other)
                if self._tables_bytes <= self.tables_bytes_max:
                    break

    @property
    def tables_bytes(self) -> int:
        """Return how many bytes the tables of closed segments take."""
        return self._tables_bytes

    def _forget_tables(self, path: str) -> None:
        held = self._holders.pop(path, None)
        if held is not None:
            self._tables_bytes -= held[1]

    def drop(self, path: str) -> None:
        """Close the file if it is open; its tables do not count any more. F1."""
        self._forget_tables(path)
        self._close(path)

    def drop_under(self, directory: str) -> None:
        """Close every file under a directory that is about to go. F5."""
        within = f"{directory}/"
        for path in [path for path in (*self._files, *self._holders) if path.startswith(within)]:
            self.drop(path)
        self.fresh = {path for path in self.fresh if not path.startswith(within)}

    def _close(self, path: str) -> None:
        self._pinned.discard(path)
        with self.lock:
            file = self._files.pop(path, None)
            if file is not None:
                file.close()

    def _make_room(self) -> None:
        surplus = len(self._files) - self.open_max
        if surplus <= 0:
            return
        newest = next(reversed(self._files))
        idle = [path for path in self._files if path not in self._pinned and path != newest]
        for path in idle[:surplus]:
            self._close(path)
