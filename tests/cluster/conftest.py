"""Clusters of real processes for tests; everything started is ended, whatever happens."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raftline.chaos.rig import Rig

MakeRig = Callable[..., Rig]


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[MakeRig]:
    """Return a maker of clusters, each in a directory of its own."""
    made: list[Rig] = []

    def make(*, start: bool = True, **options: Any) -> Rig:
        rig = Rig(tmp_path / f"cluster-{len(made)}", **options)
        made.append(rig)  # before anything runs, so that it is closed
        rig.directory.mkdir(parents=True, exist_ok=True)
        if start:
            rig.start_all()
        return rig

    yield make
    for rig in made:
        rig.close()
