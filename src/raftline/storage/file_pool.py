"""Open files of many logs, at most so many at a time.

State
    Files by path, least recently used first. The lane owns the pool; the loop may only look
    (``peek``) while it holds the lock, which it never waits for. ``fresh``: the directories in
    which a file was made since their names were last synced.

Invariants
    F1  No file is closed while the loop reads it: closing takes the lock.
    F2  A pinned file (bytes not yet synced) is not closed to make room, so that an error of the
        write-back is reported to the handle that wrote.
    F3  A file that was made is in a ``fresh`` directory until somebody synced its names: files are
        made when they are first written, which may be long after their segment began.
"""

from threading import Lock

from raftline.storage.files import Disk, File

OPEN_MAX = 512


class FilePool:
    """The open files of the logs that share one lane."""

    __slots__ = ("_files", "_pinned", "disk", "fresh", "lock", "open_max")

    def __init__(self, disk: Disk, open_max: int = OPEN_MAX) -> None:
        self.disk = disk
        self.open_max = open_max
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

    def drop(self, path: str) -> None:
        """Close the file if it is open. F1."""
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
            self.drop(path)
