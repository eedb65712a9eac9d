"""The lane side of the write-ahead log: making, filling, recycling files.

State
    The file being filled, the next one made ahead, the names of free ones, and up to which group
    everything is synced.

Invariants
    F1  A file has its ``.wal`` name only after its header is synced.
    F2  Files are filled in the order of their generations; the next one is touched only after
        the last byte of the one before is synced.
    F3  A group's header says ``synced_through`` only of what ``fdatasync`` returned for before.
    F4  Files are let go oldest first, each durably before the next, so what is left is always
        the newest part of the WAL: a frame never outlives the later one that voids it. One that
        could not be let go is first in line the next time.

Two lanes come here: the sync lane (``write``) and the segment lane (``prepare_spare``, ``retire``);
the lock is about making the next file, and is waited for only when the sync lane runs out of one.
"""

import contextlib
import threading

from raftline.config.settings import WalSettings
from raftline.storage.files import Disk, File
from raftline.storage.wal_format import (
    FILE_SUFFIX,
    FREE_SUFFIX,
    TEMPORARY_SUFFIX,
    FileHeader,
    GroupHeader,
    WalIdentity,
    encode_file_header,
    encode_group_header,
    file_name,
    generation_of,
    seed_of,
)

FREE_COUNT_MAX = 2


class WalFiles:
    """The files of one run. See the module."""

    __slots__ = (
        "_dirty", "_disk", "_file", "_free", "_generation", "_identity", "_last", "_leaving",
        "_lock", "_ready", "_seed", "_settings", "_synced_through", "directory", "run",
    )  # fmt: skip

    def __init__(
        self, disk: Disk, directory: str, identity: WalIdentity, settings: WalSettings, run: int
    ) -> None:
        self._disk = disk
        self._identity = identity
        self._settings = settings
        self._lock = threading.Lock()
        self._file: File | None = None
        self._generation = run - 1
        self._ready: tuple[int, File] | None = None
        self._free: list[str] = []
        self._leaving: list[int] = []  # generations to be let go, oldest first
        self._dirty = False
        self._seed = 0
        self._last = 0  # group written
        self._synced_through = 0
        self.directory = directory
        self.run = run

    @property
    def has_spare(self) -> bool:
        """Say whether the next file is made."""
        return self._ready is not None

    def set_identity(self, identity: WalIdentity) -> None:
        """Let the files made from now on name another cluster."""
        assert identity.directory_uuid == self._identity.directory_uuid
        self._identity = identity

    def write(
        self, generation: int, position: int, header: GroupHeader, body: list[bytes], *, sync: bool
    ) -> None:
        """Write one group, and sync it. Any error is final: the caller ends the process."""
        if generation != self._generation:
            self._roll(generation)
        if self._dirty and not header.frame_count:
            self._sync()  # an empty group is there to say that all before it is synced
        file = self._file
        assert file is not None
        header = GroupHeader(
            header.flags,
            header.frame_count,
            header.sequence,
            header.run,
            self._synced_through,  # F3
            header.body_bytes,
        )
        self._dirty = True
        self._last = header.sequence
        file.write_at(position, [encode_group_header(header, self._seed), *body])
        if sync:
            self._sync()

    def prepare_spare(self) -> None:
        """Make the file after the current one, so that the sync lane will not wait for it."""
        with self._lock:
            if self._ready is None:
                generation = self._generation + 1
                self._ready = (generation, self._make(generation))

    def open(self, generation: int) -> File:
        """Open a file to be read."""
        return self._disk.open(f"{self.directory}/{file_name(generation)}")

    def retire(self, generations: list[int]) -> None:
        """Let files go: keep a few to be used again, remove the rest. F4."""
        self._leaving += generations
        while self._leaving:
            free = self._retire(file_name(self._leaving[0]))
            self._disk.sync_dir(self.directory)
            self._free += free  # used again only when its old name is durably gone
            del self._leaving[0]

    def remove_unfinished(self, paths: list[str]) -> None:
        """Remove the files of openings that never ended, and those that were being made."""
        names = [name for name in self._disk.listdir(self.directory) if _is_temporary(name)]
        made = [f"{self.directory}/{name}" for name in names]
        if paths or made:
            for path in (*paths, *made):
                self._disk.remove(path)
            self._disk.sync_dir(self.directory)  # their generations may be given again

    def retire_old(self, names: list[str]) -> None:
        """Let go what runs before this one left. In any order: this one is complete."""
        free = [path for name in names for path in self._retire(name)]
        self._disk.sync_dir(self.directory)
        self._free += free[:FREE_COUNT_MAX]
        for path in free[FREE_COUNT_MAX:]:
            self._disk.remove(path)

    def _retire(self, name: str) -> list[str]:
        """Take a file's name away; return its new one if it is kept to be used again."""
        path = f"{self.directory}/{name}"
        stem, _, suffix = name.partition(".")
        free = f"{self.directory}/{stem}{FREE_SUFFIX}"
        if not self._disk.exists(path):  # an earlier try came that far
            return [free] if self._disk.exists(free) else []
        if f".{suffix}" == TEMPORARY_SUFFIX or len(self._free) >= FREE_COUNT_MAX:
            self._disk.remove(path)
            return []
        if path != free:
            self._disk.rename(path, free)
        return [free]

    def close(self) -> None:
        """Release the handles."""
        for file in (self._file, self._ready[1] if self._ready else None):
            if file is not None:
                file.close()
        self._file = self._ready = None

    def _sync(self) -> None:
        assert self._file is not None
        self._file.fdatasync()
        self._dirty = False
        self._synced_through = self._last

    def _roll(self, generation: int) -> None:
        """Go on in the next file. F2."""
        if self._file is not None:
            if self._dirty:
                self._sync()
            self._file.close()
        with self._lock:
            if self._ready is None:
                self._ready = (generation, self._make(generation))
            made, self._file = self._ready
            self._ready = None
            self._generation = generation
        assert made == generation, (made, generation)
        self._seed = seed_of(generation, self._identity.directory_uuid)

    def _make(self, generation: int) -> File:
        """Make an empty file under its final name. F1."""
        path = f"{self.directory}/{file_name(generation)}"
        temporary = self._take_free() or path.replace(FILE_SUFFIX, TEMPORARY_SUFFIX)
        try:
            self._fill_in(temporary, generation)
        except OSError:
            with contextlib.suppress(OSError):
                self._disk.remove(temporary)  # a full disk gets its bytes back
            raise
        self._disk.rename(temporary, path)
        self._disk.sync_dir(self.directory)
        return self._disk.open(path)

    def _fill_in(self, path: str, generation: int) -> None:
        """Give a file its size and its header, synced."""
        identity, file_bytes = self._identity, self._settings.file_bytes
        file = self._disk.open(path, create=True)
        try:
            if file.size() > file_bytes:
                file.truncate(file_bytes)
            file.allocate(file_bytes)
            header = FileHeader(generation, self.run, identity.cluster, identity.directory_uuid)
            file.write_at(0, [encode_file_header(header)])
            file.fdatasync()
        finally:
            file.close()

    def _take_free(self) -> str:
        try:
            return self._free.pop()
        except IndexError:
            return ""


def _is_temporary(name: str) -> bool:
    return generation_of(name) is not None and name.endswith(TEMPORARY_SUFFIX)
