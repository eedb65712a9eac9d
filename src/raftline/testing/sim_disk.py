"""A disk in memory that loses, tears, flips, refuses and lies, all from one seed.

State
    A tree of directories and files. Every file has two images: what a reader sees now, and what
    is certainly on the platter; between them the list of unsynced writes. Names likewise: the
    tree a reader sees, the durable tree, and the name changes no ``sync_dir`` has covered yet.
    A crash settles every difference by chance and makes all open handles useless.

Rules (D1-D3 are those of storage/files.py)
    S1  After a crash each 512-byte sector holds its durable bytes plus the first k of the
        unsynced writes that touched it, k by chance and independent of every other sector.
    S2  After a crash each unsynced name change happened or not, by chance, but never one whose
        name depends on a change that did not happen.
    S3  A failed ``fdatasync`` loses a part of the writes for good: later syncs succeed without
        them, and readers still see them until the crash.
    S4  Chance comes from the given rng only; two disks with equal seeds and calls are equal.

Faults
    Scripted: ``fail_fdatasync``, ``fail_reads``, ``fail_writes``, ``flip_bit``,
    ``power_off_after``, ``capacity_bytes``, ``lies``, ``wipe``. Random: ``DiskOdds``.

Costs
    A write copies its bytes twice, a sync once more. Allocated but unwritten bytes take no memory.
"""

import errno
from collections.abc import Sequence

import msgspec

from raftline.node.ports import Rng
from raftline.storage.files import Buffer
from raftline.testing.sim_tree import SECTOR_BYTES, NameChange, SimDirectory, SimNode

__all__ = ["SECTOR_BYTES", "DiskOdds", "PowerLoss", "SimDisk", "SimFile"]

CAPACITY_BYTES = 1 << 40
ODDS_BASE = 1_000_000


class PowerLoss(BaseException):
    """The power went out inside a disk operation. Nothing may catch it but the test."""


class DiskOdds(msgspec.Struct, frozen=True):
    """Chances of random faults, in parts per million of calls."""

    read_eio: int = 0
    write_eio: int = 0
    fdatasync_eio: int = 0
    cold_read: int = 0  # read_cached finds nothing


class SimFile:
    """An open file of a simulated disk."""

    __slots__ = ("_disk", "_epoch", "_node", "path")

    def __init__(self, disk: "SimDisk", node: SimNode, path: str) -> None:
        self._disk = disk
        self._epoch = disk.epoch
        self._node = node
        self.path = path

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write all ``buffers`` one after another from ``position``; return the bytes written."""
        self._alive()
        data = bytes(buffers[0]) if len(buffers) == 1 else b"".join(buffers)
        self._disk.store(self._node, self.path, position, data)
        return len(data)

    def read_at(self, position: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``position``; fewer only at the end of the file."""
        self._alive()
        self._disk.before_read(self.path)
        return self._node.read(position, length)

    def read_cached(self, position: int, length: int) -> bytes | None:
        """Return the bytes, or None when chance says they are not cached."""
        self._alive()
        if self._disk.is_cold():
            return None
        return self._node.read(position, length)

    def fdatasync(self) -> None:
        """Make every byte written so far durable (and the size). D1, D3."""
        self._alive()
        self._disk.sync_node(self._node, self.path)

    def start_writeback(self, position: int, length: int) -> None:
        """Do nothing: what is not synced may be lost."""
        del position, length
        self._alive()

    def drop_cached(self, end: int) -> None:
        """Do nothing: there is no cache that differs from the file."""
        del end
        self._alive()

    def allocate(self, length: int) -> None:
        """Reserve ``length`` bytes; new bytes read as zero."""
        self._alive()
        self._disk.allocate_node(self._node, self.path, length)

    def truncate(self, length: int) -> None:
        """Cut the file to ``length`` bytes (or lengthen it with zeros)."""
        self._alive()
        self._disk.truncate_node(self._node, length)

    def size(self) -> int:
        """Return the length in bytes."""
        self._alive()
        return self._node.size

    def close(self) -> None:
        """Release the handle."""
        self._epoch = -1

    def _alive(self) -> None:
        if self._epoch != self._disk.epoch:
            raise OSError(errno.EBADF, "the file was closed, or the disk crashed", self.path)


class SimDisk:
    """A directory tree in memory. See the module for its rules and faults."""

    __slots__ = (
        "_changes", "_failing_reads", "_failing_syncs", "_failing_writes", "_power_left", "_rng",
        "_root", "capacity_bytes", "crash_count", "epoch", "lies", "odds", "operations",
        "used_bytes",
    )  # fmt: skip

    def __init__(
        self, rng: Rng, *, capacity_bytes: int = CAPACITY_BYTES, odds: DiskOdds | None = None
    ) -> None:
        self._rng = rng
        self._root = SimDirectory()
        self._changes: list[NameChange] = []
        self._failing_syncs: list[list[object]] = []  # [path prefix, times left]
        self._failing_reads: list[list[object]] = []
        self._failing_writes: list[list[object]] = []
        self._power_left = -1
        self.capacity_bytes = capacity_bytes
        self.odds = odds or DiskOdds()
        self.lies = False  # syncs return without making anything durable: a planted bug
        self.epoch = 0
        self.operations = 0  # changes asked for so far, for power_off_after
        self.used_bytes = 0
        self.crash_count = 0

    # ---- the port: names

    def open(self, path: str, *, create: bool = False) -> SimFile:
        """Open for reading and writing. Raises FileNotFoundError unless ``create``."""
        parent, name = self._parent_of(path)
        found = parent.names.get(name) if name else parent
        if isinstance(found, SimDirectory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        if found is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._spend_power()
            found = SimNode()
            self._change([(parent, name, found)])
        return SimFile(self, found, path)

    def exists(self, path: str) -> bool:
        """Say whether a file or directory has this name."""
        return self._find(path) is not None

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; empty if there is none."""
        found = self._find(path)
        return sorted(found.names) if isinstance(found, SimDirectory) else []

    def mkdir(self, path: str) -> None:
        """Create a directory and its parents; an existing one is fine. Syncs the parents."""
        self._spend_power()
        parent = self._root
        for name in _parts(path):
            child = parent.names.get(name)
            if child is None:
                child = SimDirectory()
                self._change([(parent, name, child)])
            if not isinstance(child, SimDirectory):
                raise NotADirectoryError(errno.ENOTDIR, "a file has this name", path)
            self._settle_names_of(parent)
            parent = child

    def rename(self, old: str, new: str) -> None:
        """Rename atomically, replacing ``new``. Durable after ``sync_dir``. D2."""
        old_parent, old_name = self._parent_of(old)
        new_parent, new_name = self._parent_of(new)
        moved = old_parent.names.get(old_name)
        if moved is None:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", old)
        replaced = new_parent.names.get(new_name)
        _check_replace(moved, replaced, new)
        self._spend_power()
        if moved is replaced:
            return
        if replaced is not None:
            self._release(replaced)
        self._change([(old_parent, old_name, None), (new_parent, new_name, moved)])

    def remove(self, path: str) -> None:
        """Remove a file."""
        parent, name = self._parent_of(path)
        found = parent.names.get(name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if isinstance(found, SimDirectory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        self._spend_power()
        self._release(found)
        self._change([(parent, name, None)])

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds; a missing one is fine."""
        found = self._find(path)
        if found is None:
            return
        if not isinstance(found, SimDirectory):
            raise NotADirectoryError(errno.ENOTDIR, "is a file", path)
        for name, child in sorted(found.names.items()):
            if isinstance(child, SimDirectory):
                self.remove_tree(f"{path}/{name}")
            else:
                self._spend_power()
                self._release(child)
                self._change([(found, name, None)])
        parent, name = self._parent_of(path)
        if name:
            self._spend_power()
            self._change([(parent, name, None)])

    def sync_dir(self, path: str) -> None:
        """Make the names in this directory durable. D2."""
        found = self._find(path)
        if not isinstance(found, SimDirectory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self._spend_power()
        if not self.lies:
            self._settle_names_of(found)

    def space(self) -> tuple[int, int]:
        """Return (free bytes, total bytes) of the file system."""
        return max(0, self.capacity_bytes - self.used_bytes), self.capacity_bytes

    # ---- faults

    def crash(self) -> None:
        """Lose the power: settle what was not synced by chance, end every handle. S1, S2."""
        self.epoch += 1
        self.crash_count += 1
        self._power_left = -1
        self._settle_names_by_chance()
        self.used_bytes = 0
        for node in self._root.walk():
            node.settle_by_chance(self._rng)
            self.used_bytes += node.size

    def wipe(self) -> None:
        """Replace the disk by an empty one."""
        self.epoch += 1
        self._root = SimDirectory()
        self._changes.clear()
        self._power_left = -1
        self.used_bytes = 0

    def fail_fdatasync(self, prefix: str = "", times: int = 1) -> None:
        """Let the next syncs of files whose path starts with ``prefix`` fail with EIO. S3."""
        self._failing_syncs.append([prefix, times])

    def fail_reads(self, prefix: str = "", times: int = 1) -> None:
        """Let the next reads of such files fail with EIO."""
        self._failing_reads.append([prefix, times])

    def fail_writes(self, prefix: str = "", times: int = 1) -> None:
        """Let the next writes to such files fail with EIO, a prefix of them written."""
        self._failing_writes.append([prefix, times])

    def power_off_after(self, operations: int) -> None:
        """Raise PowerLoss inside the change after the next ``operations`` ones. Then ``crash``."""
        self._power_left = operations

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Turn one bit of the durable bytes around (an unsynced write over it is not harmed)."""
        node = self._file(path)
        assert position < node.size, (path, position)
        node.flip(position, 1 << bit)

    # ---- what SimFile asks

    def store(self, node: SimNode, path: str, position: int, data: bytes) -> None:
        """Write, as far as space and faults allow."""
        self._spend_power(node, position, data)
        grown = position + len(data) - node.size
        if grown > 0 and self.used_bytes + grown > self.capacity_bytes:
            fits = len(data) - (self.used_bytes + grown - self.capacity_bytes)
            self._put(node, position, data[: max(0, fits)])
            raise OSError(errno.ENOSPC, "no space left", path)
        if self._fails(self._failing_writes, path, self.odds.write_eio):
            self._put(node, position, data[: self._rng.randrange(0, len(data) + 1)])
            raise OSError(errno.EIO, "input/output error", path)
        self._put(node, position, data)

    def before_read(self, path: str) -> None:
        """Raise if this read is to fail."""
        if self._fails(self._failing_reads, path, self.odds.read_eio):
            raise OSError(errno.EIO, "input/output error", path)

    def is_cold(self) -> bool:
        """Say by chance whether a cached read misses."""
        return self._happens(self.odds.cold_read)

    def sync_node(self, node: SimNode, path: str) -> None:
        """Make a file's bytes durable, or fail for good. S3."""
        self._spend_power()
        if self._fails(self._failing_syncs, path, self.odds.fdatasync_eio):
            node.forget_by_chance(self._rng)
            raise OSError(errno.EIO, "input/output error", path)
        if not self.lies:
            node.settle()

    def allocate_node(self, node: SimNode, path: str, length: int) -> None:
        """Reserve bytes at the end of a file."""
        self._spend_power()
        grown = length - node.size
        if grown <= 0:
            return
        if self.used_bytes + grown > self.capacity_bytes:
            raise OSError(errno.ENOSPC, "no space left", path)
        self.used_bytes += grown
        node.resize(length)

    def truncate_node(self, node: SimNode, length: int) -> None:
        """Change the length of a file."""
        self._spend_power()
        self.used_bytes += length - node.size
        node.resize(length)

    # ---- within

    def _put(self, node: SimNode, position: int, data: bytes) -> None:
        if data:
            before = node.size
            node.write(position, data)
            self.used_bytes += node.size - before

    def _spend_power(
        self, node: SimNode | None = None, position: int = 0, data: bytes = b""
    ) -> None:
        self.operations += 1
        if self._power_left < 0:
            return
        if self._power_left == 0:
            if node is not None:
                self._put(node, position, data)  # on its way out, so it may be torn
            raise PowerLoss
        self._power_left -= 1

    def _happens(self, odds: int) -> bool:
        return odds > 0 and self._rng.randrange(0, ODDS_BASE) < odds

    def _fails(self, scripted: list[list[object]], path: str, odds: int) -> bool:
        for rule in scripted:
            prefix, times = rule
            assert isinstance(prefix, str)
            assert isinstance(times, int)
            if path.startswith(prefix):
                rule[1] = times - 1
                if times == 1:
                    scripted.remove(rule)
                return True
        return self._happens(odds)

    def _release(self, node: SimNode | SimDirectory) -> None:
        if isinstance(node, SimNode):
            self.used_bytes -= node.size

    def _find(self, path: str) -> SimNode | SimDirectory | None:
        found: SimNode | SimDirectory | None = self._root
        for name in _parts(path):
            if not isinstance(found, SimDirectory):
                return None
            found = found.names.get(name)
        return found

    def _file(self, path: str) -> SimNode:
        found = self._find(path)
        if not isinstance(found, SimNode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return found

    def _parent_of(self, path: str) -> tuple[SimDirectory, str]:
        """Return the directory that holds the last name of ``path``, and that name."""
        head, _, name = path.rpartition("/")
        parent = self._find(head)
        if parent is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", head)
        if not isinstance(parent, SimDirectory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", head)
        return parent, name

    def _change(self, names: list[tuple[SimDirectory, str, SimNode | SimDirectory | None]]) -> None:
        change = NameChange(names)
        change.apply_now()
        self._changes.append(change)

    def _settle_names_of(self, parent: SimDirectory) -> None:
        """Make the changes in one directory durable, with all they depend on."""
        if not self._changes:
            return
        needed: list[NameChange] = []
        left: list[NameChange] = []
        for change in reversed(self._changes):
            wanted = change.concerns(parent) or any(change.shares(other) for other in needed)
            (needed if wanted else left).append(change)
        for change in reversed(needed):
            change.make_durable()
        left.reverse()
        self._changes = left

    def _settle_names_by_chance(self) -> None:
        dropped: list[NameChange] = []
        mood = self._rng.randrange(0, 3)  # nothing, everything, something
        for change in self._changes:
            lost = mood == 0 or (mood == 2 and self._rng.randrange(0, 2) == 0)
            if lost or any(change.shares(other) for other in dropped):
                dropped.append(change)
            else:
                change.make_durable()
        self._changes.clear()
        self._root.forget_unsynced()


def _parts(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _check_replace(
    moved: SimNode | SimDirectory, replaced: SimNode | SimDirectory | None, path: str
) -> None:
    """Refuse a rename the real one refuses."""
    if replaced is None or replaced is moved:
        return
    if isinstance(moved, SimDirectory):
        if not isinstance(replaced, SimDirectory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        if replaced.names:
            raise OSError(errno.ENOTEMPTY, "directory not empty", path)
    elif isinstance(replaced, SimDirectory):
        raise IsADirectoryError(errno.EISDIR, "is a directory", path)
