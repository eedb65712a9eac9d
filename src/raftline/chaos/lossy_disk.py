"""A disk of our own for one node: a mounted file system that forgets what was not synced.

The file system runs as a process of its own (``servant``), because it must answer while the run's
other threads are busy. When the run hangs up it unmounts itself and lays the tree out as plain
files, as evidence.

Orders
    cut     the power fails: what was not synced is lost, in whole or in part (``lossy_tree``)
    sync    make everything durable
    fail    EIO for ``what`` (read, write, sync) of files that match a pattern, so many ``times``
    heal    no more EIO
    show    how many bytes wait for a sync, how many calls were made and how many failed
"""

import errno
import fnmatch
import os
import random
import resource
import select
import sys
from pathlib import Path
from typing import Any

from raftline.chaos.fuse_wire import Attributes, Mount
from raftline.chaos.lossy_tree import Content, Tree
from raftline.chaos.servant import Orders, Servant

CAPACITY_BYTES = 1 << 40


class Disk:
    """What the mounted directory does (an ``Answerer``)."""

    def __init__(self, backing: Path, seed: int, capacity_bytes: int) -> None:
        self._rng = random.Random(seed)
        self.tree = Tree(backing, self._rng)
        self._capacity_bytes = capacity_bytes
        self._used_at_most = 0  # what was freed since is not taken off
        self._failing: list[list[Any]] = []  # what, pattern, times left (negative: for ever)
        self.counts = {"calls": 0, "syncs": 0, "failed": 0}

    # ------------------------------------------------------------------ faults

    def fail(self, what: str, pattern: str, times: int) -> None:
        """Let calls on some files fail with EIO, so many times (-1: until healed)."""
        self._failing.append([what, pattern, times])

    def heal(self) -> None:
        """Let no more calls fail."""
        self._failing.clear()

    def _check(self, what: str, content: Content) -> None:
        self.counts["calls"] += 1
        for rule in self._failing:
            each, pattern, times = rule
            if times and each == what and fnmatch.fnmatch(self.tree.path_of(content), pattern):
                rule[2] -= 1
                self.counts["failed"] += 1
                if what == "sync":
                    content.fail_sync(self._rng)
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _need_room(self, more_bytes: int) -> None:
        """Refuse what does not fit. Counting all files is left for when it may matter."""
        if more_bytes <= 0:
            return
        if self._used_at_most + more_bytes > self._capacity_bytes:
            self._used_at_most = self.tree.used_bytes()
            if self._used_at_most + more_bytes > self._capacity_bytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._used_at_most += more_bytes

    # ------------------------------------------------------------------ answers

    def look_up(self, parent: int, name: str) -> Attributes:
        """Return what has a name."""
        number = self.tree.entries(parent).get(name)
        if number is None:
            raise FileNotFoundError(errno.ENOENT, name)
        return self.attributes(number)

    def attributes(self, number: int) -> Attributes:
        """Return what ``stat`` shows."""
        content = self.tree.contents[number]
        return Attributes(number, content.mode, content.size, content.entries is not None)

    def set_mode(self, number: int, mode: int) -> None:
        """Change permissions."""
        self.tree.contents[number].mode = mode

    def resize(self, number: int, size: int) -> None:
        """Change a file's length."""
        content = self.tree.contents[number]
        self._check("write", content)
        self._need_room(size - content.size)
        content.resize(size)

    def make(self, parent: int, name: str, mode: int, *, is_directory: bool) -> Attributes:
        """Create a file or directory."""
        self._need_room(1)
        return self.attributes(self.tree.make(parent, name, mode, is_directory=is_directory).number)

    def remove(self, parent: int, name: str) -> None:
        """Take a name away."""
        self.tree.remove(parent, name)

    def rename(self, parent: int, name: str, new_parent: int, new_name: str) -> None:
        """Give something another name."""
        self.tree.rename(parent, name, new_parent, new_name)

    def opened(self, number: int) -> None:
        """Note one more handle."""
        self.tree.contents[number].handles += 1

    def released(self, number: int) -> None:
        """Note one handle less."""
        content = self.tree.contents.get(number)
        if content is not None and content.handles:
            content.handles -= 1
            if not content.handles:
                content.close()
                if not self.tree.is_named(content):
                    self.tree.sweep()

    def read(self, number: int, position: int, length: int) -> bytes:
        """Return bytes as they are now."""
        content = self.tree.contents[number]
        self._check("read", content)
        return content.read(position, length)

    def write(self, number: int, position: int, data: bytes) -> None:
        """Write bytes; they last when they are synced."""
        content = self.tree.contents[number]
        self._check("write", content)
        self._need_room(position + len(data) - content.size)
        content.write(position, data)

    def sync(self, number: int) -> None:
        """Make a file's bytes durable."""
        content = self.tree.contents[number]
        self.counts["syncs"] += 1
        self._check("sync", content)
        content.sync()

    def sync_names(self, number: int) -> None:
        """Make a directory's names durable."""
        self.counts["syncs"] += 1
        self._check("sync", self.tree.contents[number])
        self.tree.sync_names(number)

    def names(self, number: int) -> list[tuple[str, Attributes]]:
        """Return what lies in a directory."""
        return [(name, self.attributes(n)) for name, n in self.tree.entries(number).items()]

    def space(self) -> tuple[int, int]:
        """Return (free bytes, total bytes)."""
        return max(0, self._capacity_bytes - self.tree.used_bytes()), self._capacity_bytes

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry an order out."""
        match order["order"]:
            case "cut":
                told = self.tree.cut()
                self._used_at_most = self.tree.used_bytes()
                return told
            case "sync":
                self.tree.sync_all()
            case "fail":
                self.fail(order["what"], order["pattern"], order["times"])
            case "heal":
                self.heal()
            case "show":
                waiting = sum(content.waiting() for content in self.tree.contents.values())
                return {**self.counts, "waiting": waiting, "used": self.tree.used_bytes()}
            case _:
                return {"problem": f"no order {order}"}
        return {}


def serve(directory: Path, backing: Path, seed: int, capacity_bytes: int) -> None:
    """Mount, answer the kernel and obey orders until the run hangs up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 65_536)), hard))
    disk = Disk(backing, seed, capacity_bytes)
    orders = Orders(disk.obey)
    mount = Mount(directory, disk)
    poll = select.poll()
    for fd in (mount.fd, orders.fd):
        poll.register(fd, select.POLLIN)
    orders.ready()
    try:
        while True:
            ready = dict(poll.poll())
            if mount.fd in ready and not mount.serve_one():
                break
            if orders.fd in ready and not orders.take():
                break
    finally:
        mount.close()
        disk.tree.show(directory)


class LossyDisk:
    """The run's side of such a disk."""

    def __init__(
        self, directory: Path, backing: Path, *, seed: int, capacity_bytes: int = CAPACITY_BYTES
    ) -> None:
        """Mount over an empty directory. Raises OSError if it does not work."""
        backing.mkdir(parents=True)
        self._servant = Servant(
            "raftline.chaos.lossy_disk",
            *(str(directory), str(backing), str(seed), str(capacity_bytes)),
            log=backing.parent / f"{backing.name}.log",
        )

    def cut(self) -> dict[str, int]:
        """Lose what was not synced; say how much that was and how much of it arrived anyway."""
        return self._servant.order(order="cut")

    def sync(self) -> None:
        """Make everything durable."""
        self._servant.order(order="sync")

    def fail(self, what: str, pattern: str = "*", times: int = -1) -> None:
        """Let ``read``, ``write`` or ``sync`` of matching files fail with EIO."""
        self._servant.order(order="fail", what=what, pattern=pattern, times=times)

    def heal(self) -> None:
        """Let no more calls fail."""
        self._servant.order(order="heal")

    def show(self) -> dict[str, int]:
        """Return what the disk has counted."""
        return self._servant.order(order="show")

    def close(self) -> None:
        """Unmount and end."""
        self._servant.close()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
