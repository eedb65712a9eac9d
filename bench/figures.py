"""Figures and their goals.

A figure is one number with a unit, shown next to its goal where the order names one. The goals
are for a machine of 2 cores whose fdatasync takes 0.2 ms; where the disk of a run is slower, a
missed goal says so.
"""

import msgspec

SYNC_MS_OF_GOALS = 0.2
SYNC_MS_SLOW = 0.3  # a median above this is another disk than the goals speak of


class Goal(msgspec.Struct, frozen=True):
    """A bound for one figure."""

    bound: float
    below: bool  # the figure is to stay below it, or to reach it

    def text(self, unit: str) -> str:
        """Return it as shown in a table."""
        return f"{'<' if self.below else '>='} {number(self.bound)} {unit}"

    def is_met(self, value: float) -> bool:
        """Say whether ``value`` keeps to it."""
        return value < self.bound if self.below else value >= self.bound


def under(bound: float) -> Goal:
    return Goal(bound, below=True)


def at_least(bound: float) -> Goal:
    return Goal(bound, below=False)


class Figure(msgspec.Struct, kw_only=True):
    """One measured number."""

    section: str
    name: str
    value: float
    unit: str
    goal: Goal | None = None
    note: str = ""
    on_disk: bool = False  # a slow disk alone can make it miss its goal
    loop_ns: float = 0.0  # a step of a plain loop, measured beside it: how fast the machine was
    rounds: list[float] = []  # of a figure measured several times: all values; the median counts

    def verdict(self, sync_ms: float) -> str:
        """Return "met", "missed", or why a goal cannot be judged; empty without a goal."""
        if self.goal is None:
            return ""
        if self.goal.is_met(self.value):
            return "met"
        is_excused = self.on_disk and sync_ms > SYNC_MS_SLOW
        return "missed (slow disk)" if is_excused else "missed"


def median_of(rounds: list[list[Figure]]) -> list[Figure]:
    """Return the figures of several rounds of one scenario as one: medians, in the same order."""
    merged: list[Figure] = []
    for same in zip(*rounds, strict=True):
        middle = sorted(same, key=lambda figure: figure.value)[len(same) // 2]
        values = [figure.value for figure in same]
        merged.append(msgspec.structs.replace(middle, rounds=values if len(same) > 1 else []))
    return merged


class Report(msgspec.Struct, kw_only=True):
    """Everything one run found."""

    machine: dict[str, str]
    command: str
    sync_p50_ms: float
    sync_p99_ms: float
    figures: list[Figure]
    seconds: float = 0.0
    load_after: str = ""
    quick: bool = False


def number(value: float) -> str:
    """Return a number with the digits that mean something."""
    if value >= 1000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}"
