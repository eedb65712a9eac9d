"""How far a job is: one bar on standard error while people look, nothing where nobody does."""

import sys
from types import TracebackType
from typing import Any


class Bar:
    """A progress bar. ``total`` may be unknown, and may grow while the job runs."""

    __slots__ = ("_done", "_label", "_progress", "_task", "_total")

    def __init__(self, unit: str, total: int | None, label: str, *, is_shown: bool) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._done = 0
        self._label = label
        self._total = total
        self._progress: Any = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not is_shown,
            transient=True,
        )
        self._task = self._progress.add_task(label, total=total)

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def advance(self, count: int = 1) -> None:
        """Say that so many more are done."""
        self._done += count
        self._progress.update(self._task, completed=self._done)

    @property
    def done(self) -> int:
        """How many are done."""
        return self._done

    @property
    def total(self) -> int | None:
        """How many there are; None: not known."""
        return self._total

    @total.setter
    def total(self, total: int | None) -> None:
        self._total = total
        self._progress.update(self._task, total=total)

    @property
    def label(self) -> str:
        """What is being done."""
        return self._label

    @label.setter
    def label(self, label: str) -> None:
        self._label = label
        self._progress.update(self._task, description=label)


def is_watched() -> bool:
    """Say whether somebody looks at standard error."""
    return sys.stderr.isatty()
