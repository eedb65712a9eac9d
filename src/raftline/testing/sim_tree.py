"""What the simulated disk is made of: directories, changes of names, the bytes of files.

Each keeps two versions, what readers see and what is durable, and knows how to settle the
difference, whole or by chance (rules S1-S3 of testing/sim_disk.py).
"""

from collections.abc import Iterator

from raftline.node.ports import Rng

SECTOR_BYTES = 512


class SimDirectory:
    """A directory: the names seen now, and those a crash cannot take."""

    __slots__ = ("durable", "names")

    def __init__(self) -> None:
        self.names: dict[str, SimNode | SimDirectory] = {}
        self.durable: dict[str, SimNode | SimDirectory] = {}

    def walk(self) -> "Iterator[SimNode]":
        """Yield every file below, in the order of names."""
        for _, child in sorted(self.names.items()):
            if isinstance(child, SimDirectory):
                yield from child.walk()
            else:
                yield child

    def forget_unsynced(self) -> None:
        """See only what is durable."""
        self.names = dict(self.durable)
        for child in self.names.values():
            if isinstance(child, SimDirectory):
                child.forget_unsynced()


class NameChange:
    """One atomic change of names: each (directory, name) gets a file or loses it."""

    __slots__ = ("_names",)

    def __init__(
        self, names: "list[tuple[SimDirectory, str, SimNode | SimDirectory | None]]"
    ) -> None:
        self._names = names

    def apply_now(self) -> None:
        """Let readers see it."""
        for parent, name, node in self._names:
            _put_name(parent.names, name, node)

    def make_durable(self) -> None:
        """Let no crash take it."""
        for parent, name, node in self._names:
            _put_name(parent.durable, name, node)

    def concerns(self, parent: SimDirectory) -> bool:
        """Say whether it changes a name of this directory."""
        return any(directory is parent for directory, _, _ in self._names)

    def shares(self, other: "NameChange") -> bool:
        """Say whether both change the same name."""
        return any(
            mine is theirs and name == their_name
            for mine, name, _ in self._names
            for theirs, their_name, _ in other._names
        )


def _put_name(
    names: "dict[str, SimNode | SimDirectory]", name: str, node: "SimNode | SimDirectory | None"
) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


class SimNode:
    """The bytes of one file. Images may be shorter than the size: the rest is zero."""

    __slots__ = ("_durable", "_durable_size", "_now", "_pending", "size")

    def __init__(self) -> None:
        self._now = bytearray()
        self._durable = bytearray()
        self._pending: list[tuple[int, bytes | None]] = []  # (position, bytes) or (size, None)
        self._durable_size = 0
        self.size = 0

    def read(self, position: int, length: int) -> bytes:
        """Return what a reader sees."""
        length = min(length, self.size - position)
        if length <= 0:
            return b""
        data = bytes(memoryview(self._now)[position : position + length])
        return data if len(data) == length else data + bytes(length - len(data))

    def write(self, position: int, data: bytes) -> None:
        """Write, not yet durable."""
        _overlay(self._now, position, data)
        self._pending.append((position, data))
        self.size = max(self.size, position + len(data))

    def resize(self, length: int) -> None:
        """Cut or lengthen, not yet durable."""
        del self._now[length:]
        self._pending.append((length, None))
        self.size = length

    def settle(self) -> None:
        """Make all of it durable. D1."""
        durable = self._durable
        for position, data in self._pending:
            if data is None:
                del durable[position:]
            else:
                _overlay(durable, position, data)
        self._pending.clear()
        self._durable_size = self.size

    def forget_by_chance(self, rng: Rng) -> None:
        """Make a part durable and the rest never: a failed sync. S3."""
        self._durable, self._durable_size = self._chosen(rng)
        self._pending.clear()

    def settle_by_chance(self, rng: Rng) -> None:
        """Become what a crash leaves. S1."""
        if self._pending:
            self.forget_by_chance(rng)
        self._now = bytearray(self._durable)
        self.size = self._durable_size

    def flip(self, position: int, mask: int) -> None:
        """Turn a bit of the durable image, and of what readers see unless it is newer."""
        for image in (self._durable, self._now):
            if len(image) <= position:
                image.extend(bytes(position + 1 - len(image)))
        newer = any(
            data is not None and start <= position < start + len(data)
            for start, data in self._pending
        )
        self._durable[position] ^= mask
        if not newer:
            self._now[position] ^= mask

    def _chosen(self, rng: Rng) -> tuple[bytearray, int]:
        """Return a durable image with a part of the pending writes in it, and its size."""
        mood = rng.randrange(0, 4)  # nothing, everything, else sector by sector
        image, size = bytearray(self._durable), self._durable_size
        left = {} if mood < 2 else self._writes_kept(rng)
        for position, data in self._pending:
            if data is None:
                if mood == 1 or (mood > 1 and rng.randrange(0, 2)):
                    del image[position:]
                    size = position
                continue
            for start, piece in _sectors(position, data):
                sector = start // SECTOR_BYTES
                if mood == 1 or left.get(sector, 0) > 0:
                    if mood > 1:
                        left[sector] -= 1
                    _overlay(image, start, piece)
                    size = max(size, start + len(piece))
        return image, size

    def _writes_kept(self, rng: Rng) -> dict[int, int]:
        """Choose for each sector how many of its unsynced writes arrived. S1."""
        counts: dict[int, int] = {}
        for position, data in self._pending:
            if data:
                last = (position + len(data) - 1) // SECTOR_BYTES
                for sector in range(position // SECTOR_BYTES, last + 1):
                    counts[sector] = counts.get(sector, 0) + 1
        return {sector: rng.randrange(0, count + 1) for sector, count in counts.items()}


def _overlay(image: bytearray, position: int, data: bytes) -> None:
    if position > len(image):
        image.extend(bytes(position - len(image)))
    image[position : position + len(data)] = data


def _sectors(position: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Cut a write where the disk may tear it."""
    end = position + len(data)
    start = position
    while start < end:
        stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        yield start, data[start - position : stop - position]
        start = stop
