"""The names and bytes of a disk that loses what was not synced, when its power is cut.

State
    Every file is an *object*: one file of the backing directory, named by its number. It always
    holds what a reader sees; beside it stands the list of changes that no sync has covered yet,
    each with what it takes to undo it. Names are kept the same way: the tree a reader sees, and
    the list of name changes that no sync of their directory has covered.

Rules
    T1  A sync of a file makes its bytes and its size durable, not its name; a sync of a directory
        makes the names in it durable, not the bytes behind them.
    T2  After a cut each file holds its durable bytes and, by chance: nothing else, the first so
        many unsynced changes with the last of them torn, or for each sector the first so many.
    T3  After a cut each unsynced change of names happened or not, by chance, but never one that
        builds on a change that did not happen. A rename happens whole.
    T4  A failed sync loses a part of the changes for good: later syncs succeed without them, and
        readers see them until the next cut.
    T5  More than ``UNSYNCED_BYTES_MAX`` waiting bytes of a file become durable by themselves, as
        the kernel's write-back would do it.

Costs
    A write reads what it replaces and keeps both. A cut takes time by what was not synced.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path

SECTOR_BYTES = 512
UNSYNCED_BYTES_MAX = 64 << 20
ROOT = 1


class Change:
    """One change of a file, and what undoes it."""

    __slots__ = ("is_lost", "is_synced", "new", "new_size", "old", "old_size", "position")

    def __init__(self, position: int, old: bytes, new: bytes, old_size: int, new_size: int) -> None:
        self.position = position  # of a write; -1: the size was set
        self.old = old  # the replaced bytes; of a shortened file those cut off
        self.new = new
        self.old_size = old_size
        self.new_size = new_size
        self.is_synced = False
        self.is_lost = False


class Content:
    """One file or directory. Directories have ``entries``, files have bytes."""

    __slots__ = ("_fd", "_path", "changes", "entries", "handles", "mode", "name", "number",
                 "parent", "size", "unsynced_bytes")  # fmt: skip

    def __init__(self, number: int, mode: int, path: Path, *, is_directory: bool) -> None:
        self.number = number
        self.mode = mode
        self.entries: dict[str, int] | None = {} if is_directory else None
        self.parent, self.name = ROOT, ""
        self.size = 0
        self.handles = 0
        self.changes: list[Change] = []
        self.unsynced_bytes = 0
        self._path = path
        self._fd = -1

    def _file(self) -> int:
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._fd

    def read(self, position: int, length: int) -> bytes:
        """Return what a reader sees."""
        return os.pread(self._file(), length, position)

    def write(self, position: int, data: bytes) -> None:
        """Write through, and remember what was there."""
        fd = self._file()
        old = os.pread(fd, len(data), position)
        os.pwrite(fd, data, position)
        self._note(Change(position, old, data, self.size, max(self.size, position + len(data))))

    def resize(self, size: int) -> None:
        """Cut off or lengthen with zeros."""
        if size == self.size:
            return
        fd = self._file()
        tail = os.pread(fd, self.size - size, size) if size < self.size else b""
        os.ftruncate(fd, size)
        self._note(Change(-1, tail, b"", self.size, size))

    def _note(self, change: Change) -> None:
        self.size = change.new_size
        self.changes.append(change)
        self.unsynced_bytes += len(change.new) + len(change.old)
        if self.unsynced_bytes > UNSYNCED_BYTES_MAX:
            self.sync()

    def sync(self) -> None:
        """Make everything that can be saved durable (T1, T4)."""
        if any(change.is_lost for change in self.changes):
            for change in self.changes:
                change.is_synced = not change.is_lost
        else:
            self.changes.clear()
        self.unsynced_bytes = 0

    def fail_sync(self, rng: random.Random) -> None:
        """Lose some of the changes for good (T4)."""
        for change in self.changes:
            if not change.is_synced and rng.random() < 0.5:
                change.is_lost = True

    def waiting(self) -> int:
        """Return how many bytes a cut may take."""
        return sum(len(change.new) for change in self.changes if not change.is_synced)

    def cut(self, rng: random.Random) -> int:
        """Keep what is durable and what chance lets through (T2); return the bytes kept of it."""
        changes, self.changes, self.unsynced_bytes = self.changes, [], 0
        for change in reversed(changes):
            self._undo(change)
        kept = 0
        way = rng.randrange(3)
        prefix = rng.randrange(len(changes) + 1)
        stopped: set[int] = set()
        for number, change in enumerate(changes):
            if change.is_synced:
                self._redo(change, 0, len(change.new))
            elif change.is_lost or way == 0:
                continue
            elif way == 1 and number <= prefix:
                end = len(change.new) if number < prefix else _torn(rng, change)
                kept += self._redo(change, 0, end) if end or change.position < 0 else 0
            elif way == 2:
                for start, end in _sectors(rng, change, stopped):
                    kept += self._redo(change, start, end)
        return kept

    def _undo(self, change: Change) -> None:
        fd = self._file()
        os.ftruncate(fd, change.old_size)
        if change.old:
            os.pwrite(fd, change.old, change.position if change.position >= 0 else change.new_size)
        self.size = change.old_size

    def _redo(self, change: Change, start: int, end: int) -> int:
        fd = self._file()
        if change.position < 0:
            os.ftruncate(fd, change.new_size)
            self.size = change.new_size
            return 0
        os.pwrite(fd, change.new[start:end], change.position + start)
        self.size = max(self.size, change.position + end)
        return end - start

    def close(self) -> None:
        """Let the backing file go."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def remove(self) -> None:
        """Delete the backing file."""
        self.close()
        self._path.unlink(missing_ok=True)

    def show_as(self, path: Path) -> None:
        """Give the backing file a second name, for people."""
        self._file()
        os.link(self._path, path)


def _torn(rng: random.Random, change: Change) -> int:
    return rng.randrange(0, len(change.new) + 1, SECTOR_BYTES) if change.new else 0


def _sectors(rng: random.Random, change: Change, stopped: set[int]) -> Iterator[tuple[int, int]]:
    """Yield what arrives of a change: a sector that misses one write misses all later ones."""
    if change.position < 0:
        if rng.random() < 0.5:
            yield 0, 0
        return
    at, end = change.position, change.position + len(change.new)
    while at < end:
        sector = at // SECTOR_BYTES
        to = min(end, (sector + 1) * SECTOR_BYTES)
        if sector not in stopped and rng.random() < 0.3:
            stopped.add(sector)
        if sector not in stopped:
            yield at - change.position, to - change.position
        at = to


class Move:
    """A change of names that happens whole: places with what they held before and hold now."""

    __slots__ = ("places",)

    def __init__(self, *places: tuple[int, str, int, int]) -> None:
        self.places = places  # directory, name, number before (0: none), number now


class Tree:
    """All names and contents of a disk."""

    def __init__(self, backing: Path, rng: random.Random) -> None:
        self._backing = backing
        self._rng = rng
        self._next = ROOT + 1
        self._moves: list[Move] = []
        self.contents = {ROOT: Content(ROOT, 0o755, backing / "1", is_directory=True)}

    # ------------------------------------------------------------------ reading

    def entries(self, number: int) -> dict[str, int]:
        """Return a directory's names. Raises NotADirectoryError."""
        entries = self.contents[number].entries
        if entries is None:
            raise NotADirectoryError(number)
        return entries

    def path_of(self, content: Content) -> str:
        """Return where a file lies (or lay last)."""
        names: list[str] = []
        while content.number != ROOT and len(names) < 64:
            names.append(content.name)
            content = self.contents.get(content.parent, self.contents[ROOT])
        return "/".join(reversed(names))

    def used_bytes(self) -> int:
        """Return the room all files take."""
        return sum(c.size for c in self.contents.values() if c.handles or self.is_named(c))

    def is_named(self, content: Content) -> bool:
        """Say whether a name leads to it now."""
        parent = self.contents.get(content.parent)
        entries = (parent.entries if parent else None) or {}
        return entries.get(content.name) == content.number

    # ------------------------------------------------------------------ changing names

    def make(self, parent: int, name: str, mode: int, *, is_directory: bool) -> Content:
        """Create a file or directory. Raises FileExistsError."""
        if name in self.entries(parent):
            raise FileExistsError(name)
        number, self._next = self._next, self._next + 1
        made = Content(number, mode, self._backing / str(number), is_directory=is_directory)
        self.contents[number] = made
        self._move(Move((parent, name, 0, number)))
        return made

    def remove(self, parent: int, name: str) -> None:
        """Take a name away. Raises FileNotFoundError, or OSError for a directory that is full."""
        number = self._known(parent, name)
        if self.contents[number].entries:
            raise OSError(39, "not empty", name)  # ENOTEMPTY
        self._move(Move((parent, name, number, 0)))

    def rename(self, parent: int, name: str, new_parent: int, new_name: str) -> None:
        """Give something another name, in place of what had it."""
        number = self._known(parent, name)
        before = self.entries(new_parent).get(new_name, 0)
        if before == number:
            return
        if before and self.contents[before].entries:
            raise OSError(39, "not empty", new_name)
        self._move(Move((parent, name, number, 0), (new_parent, new_name, before, number)))

    def _known(self, parent: int, name: str) -> int:
        number = self.entries(parent).get(name)
        if number is None:
            raise FileNotFoundError(name)
        return number

    def _move(self, move: Move) -> None:
        self._moves.append(move)
        self._redo(move)

    def _redo(self, move: Move) -> None:
        for parent, name, _, now in move.places:
            self._put(parent, name, now)

    def _put(self, parent: int, name: str, number: int) -> None:
        entries = self.contents[parent].entries
        assert entries is not None
        if number:
            entries[name] = number
            self.contents[number].parent, self.contents[number].name = parent, name
        else:
            entries.pop(name, None)

    # ------------------------------------------------------------------ durability

    def sync_names(self, directory: int) -> None:
        """Make the names in a directory durable, and what they build on (T1)."""
        wanted: set[tuple[int, str]] = set()
        kept: list[Move] = []
        frees = False
        for move in reversed(self._moves):
            places = {place[:2] for place in move.places}
            if directory in {place[0] for place in move.places} or places & wanted:
                wanted |= places
                frees = frees or any(before for _, _, before, _ in move.places)
            else:
                kept.append(move)
        self._moves = kept[::-1]
        if frees:
            self.sweep()

    def sync_all(self) -> None:
        """Make everything durable."""
        self._moves.clear()
        for content in self.contents.values():
            content.sync()
        self.sweep()

    def cut(self) -> dict[str, int]:
        """Lose what was not synced; return what that was."""
        told = {"bytes": sum(content.waiting() for content in self.contents.values())}
        told["kept"] = sum(
            content.cut(self._rng) for content in self.contents.values() if content.changes
        )
        moves, self._moves = self._moves, []
        for move in reversed(moves):
            for parent, name, before, _ in reversed(move.places):
                self._put(parent, name, before)
        told["names"], told["names_kept"] = len(moves), self._let_through(moves)
        for content in self.contents.values():
            content.handles = 0
        self.sweep()
        return told

    def _let_through(self, moves: list[Move]) -> int:
        """Do again those changes of names that happened before the cut (T3)."""
        chance = self._rng.choice((0.0, 0.5, 1.0))
        stopped: set[tuple[int, str]] = set()
        kept = 0
        for move in moves:
            places = {place[:2] for place in move.places}
            if places & stopped or self._rng.random() >= chance:
                stopped |= places
            else:
                self._redo(move)
                kept += 1
        return kept

    def sweep(self) -> None:
        """Delete what no name, no handle and no undo reaches any more."""
        found: set[int] = set()
        self._reach([ROOT], found)
        open_moves, moot = self._moves, self._moves
        while moot:  # what an undo may bring back is kept, with all that lies in it
            now = [m for m in moot if any(place[0] in found for place in m.places)]
            if not now:
                break
            for move in now:
                self._reach([n for at, _, *both in move.places for n in (at, *both)], found)
            reached = set(map(id, now))
            moot = [move for move in moot if id(move) not in reached]
        unreached = set(map(id, moot))
        self._moves = [move for move in open_moves if id(move) not in unreached]
        gone = [n for n, c in self.contents.items() if n not in found and not c.handles]
        for number in gone:
            self.contents.pop(number).remove()

    def _reach(self, todo: list[int], found: set[int]) -> None:
        while todo:
            number = todo.pop()
            content = self.contents.get(number)
            if content is not None and number not in found:
                found.add(number)
                todo += (content.entries or {}).values()

    def show(self, directory: Path, number: int = ROOT) -> None:
        """Lay the tree out as plain files, for people who look at it later."""
        for name, each in self.entries(number).items():
            content = self.contents[each]
            if content.entries is None:
                content.show_as(directory / name)
            else:
                (directory / name).mkdir()
                self.show(directory / name, each)
