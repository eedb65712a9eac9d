"""What a walk along one axis found: points, what is plotted of them, and how it is read."""

import msgspec


class Point(msgspec.Struct):
    """Everything measured at one place of an axis; names carry their unit as the last word."""

    x: float
    label: str
    values: dict[str, float]


class Plot(msgspec.Struct, frozen=True):
    """One picture: columns of the same unit over the axis."""

    name: str
    title: str
    unit: str
    columns: tuple[str, ...]
    x_log: bool = True
    y_log: bool = True


class Curve(msgspec.Struct, kw_only=True):
    """One axis, measured."""

    name: str
    title: str
    x_name: str
    how: str  # what was done at each point
    points: list[Point]
    plots: list[Plot]
    reading: str  # where the knees are, and why
    machine: dict[str, str] = {}
    sync_p50_ms: float = 0.0
    seconds: float = 0.0
    quick: bool = False


def size_text(size: int) -> str:
    """Return a size in bytes as people write it."""
    for unit, scale in (("GB", 10**9), ("MiB", 1 << 20), ("KiB", 1 << 10), ("MB", 10**6)):
        if size >= scale and size % scale == 0:
            return f"{size // scale} {unit}"
    return f"{size} B"


def count_text(count: int) -> str:
    """Return a number with thousands set apart."""
    return f"{count:,}"
