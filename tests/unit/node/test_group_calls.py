"""Finding the coordinator of a stream group, on whole nodes."""

from collections.abc import Callable
from typing import Any

import pytest

from raftline.testing import cluster
from tests.unit.node.whole import node


def test_a_coordinator_is_looked_for_no_longer_than_a_call_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Placing the shard may take nearly all of that; nobody leads it yet."""
    with cluster(nodes=3, seed=5) as sim:
        sim.create_topic("orders", partitions=1)
        asked = node(sim, sim.running[0])

        def place(_name: str, _asked: Any, _ms: int, done: Callable[[Any], None]) -> None:
            asked.clock.call_later(900, lambda: done({}))

        monkeypatch.setattr(asked.admin, "run", place)
        heard: list[Any] = []
        began_ms = sim.now_ms
        asked.find_coordinator("workers", 1_000, heard.append)
        sim.run_until(lambda: bool(heard))
        assert sim.now_ms - began_ms < 1_100
