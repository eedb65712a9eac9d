"""``raftline pipeline archive``, ``restore`` and ``optimize``."""

import typer

from raftline.model.errors import InvalidArgument


def archive(context: typer.Context) -> None:
    """Write topics to Parquet."""
    raise _later("archive")


def restore(context: typer.Context) -> None:
    """Bring a time window of the archive back into a topic."""
    raise _later("restore")


def optimize(context: typer.Context) -> None:
    """Merge small files of the archive."""
    raise _later("optimize")


def _later(name: str) -> InvalidArgument:
    return InvalidArgument(f"raftline pipeline {name} is not there yet", "raftline pipeline --help")
