"""Parts of a partition's state, each with bytes of its own in the snapshot.

A part keeps one kind of state (dedup keys, lanes, work groups, waiting messages ...). The
partition's machine holds them in a fixed order and passes entries on; it knows nothing inside.

Rules
    R1  ``freeze`` is cheap on the loop (arrays are shared, not copied) and returns the joining,
        which runs in a lane while the part goes on changing.
    R2  Equal states freeze to equal bytes; an empty part freezes to ``b""`` and takes no room.
    R3  ``restore(freeze()())`` gives the same state back, ``restore(b"")`` the empty one.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from raftline.model.errors import NewerFormat

Freeze = Callable[[], bytes]
Section = tuple[str, bytes]  # name of a part, its bytes


class Part(Protocol):
    """What the partition's machine asks of each of its parts."""

    def freeze(self) -> Freeze:
        """Hold the state as it is now; the callable joins its bytes. R1, R2."""
        ...

    def restore(self, data: bytes) -> None:
        """Replace the state. R3."""
        ...

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        ...


NamedParts = Sequence[tuple[str, Part]]


def freeze_parts(parts: NamedParts) -> Callable[[], list[Section]]:
    """Freeze all parts at once; the callable joins them and leaves out the empty ones."""
    frozen = [(name, part.freeze()) for name, part in parts]

    def join() -> list[Section]:
        sections = [(name, freeze()) for name, freeze in frozen]
        return [section for section in sections if section[1]]

    return join


def restore_parts(parts: NamedParts, sections: Iterable[Section], snapshot_format: int) -> None:
    """Give every part its section, or the empty state.

    Raises:
        NewerFormat: a section belongs to a part that this build does not have.
    """
    given = dict(sections)
    known = [name for name, _ in parts]
    for name in given:
        if name not in known:
            what = f"section {name!r} of a partition's snapshot"
            raise NewerFormat(what, snapshot_format + 1, snapshot_format)
    for name, part in parts:
        part.restore(given.get(name, b""))
