"""100,000 messages due in the same second: how long is a turn of the loop? Prints CPU times.

    .venv/bin/python -m bench.waiting_burst [messages]

Three production nodes in the simulated world, so that each turn can be timed by itself: what
other processes of this machine do, and what helper threads would do, does not count.
"""

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

from raftline.config.settings import Settings
from raftline.model.calls import NewWaiting, Scheduled
from raftline.model.records import seal_batch
from raftline.testing import SimCluster, cluster
from raftline.testing.world import World

TOPIC = "orders"
PER_CALL = 1000
DELAY_MS = 60_000


class Turns:
    """Times everything that runs on a loop."""

    def __init__(self) -> None:
        self.took_s: list[float] = []
        at = World.at

        def timed(world: World, due_ms: float, call: Callable[[], None], *rest: Any) -> Any:
            if getattr(call, "__name__", "") == "_run_next":
                return at(world, due_ms, call, *rest)  # a job of a helper thread

            def run() -> None:
                began = time.thread_time()
                call()
                self.took_s.append(time.thread_time() - began)

            return at(world, due_ms, run, *rest)

        World.at = timed  # type: ignore[method-assign,assignment]

    def line(self) -> str:
        """Return the longest turns in words."""
        longest = sorted(self.took_s)[-5:]
        self.took_s.clear()
        return ", ".join(f"{took * 1e3:.1f}" for took in reversed(longest)) + " ms"


def main(count: int) -> None:
    """Let ``count`` messages wait for one moment, and release them."""
    batch = seal_batch([(b"key", bytes(100), [], 1_000)])
    with cluster(nodes=3, seed=1, settings=Settings()) as sim:
        sim.create_topic(TOPIC, partitions=1)
        sim.world.events_max = 1 << 60
        sim.append(TOPIC, [b"first"])  # there is a leader
        numbers: list[int] = []
        turns = Turns()
        gc.collect()
        gc.freeze()  # as a node does
        due_ms = _now_ms(sim) + DELAY_MS
        for _ in range(count // PER_CALL):
            numbers += _schedule(sim, [NewWaiting(batch, due_ms)] * PER_CALL)
        print(f"scheduling {len(numbers):,}: longest turns {turns.line()}")
        sim.advance(f"{DELAY_MS // 2}ms")
        print(f"waiting: longest turns {turns.line()}")
        host = _host(sim)
        sim.run_until(lambda: host.machine.waiting.released_count > 0, "60s")
        began_ms = sim.now_ms
        late_ms = _now_ms(sim) - due_ms
        sim.run_until(lambda: host.log.log_end > count, "60s")
        print(
            f"released {count:,} within {sim.now_ms - began_ms:.0f} ms of simulated time, "
            f"the first {late_ms} ms late: longest turns {turns.line()}"
        )


def _host(sim: SimCluster) -> Any:
    node: Any = sim.host(sim.leader(TOPIC)).node
    return node.shards.get(node.catalog_machine.topics[TOPIC].shards[0]).host


def _now_ms(sim: SimCluster) -> int:
    return _host(sim).replica.time.stamp()


def _schedule(sim: SimCluster, items: list[NewWaiting]) -> list[int]:
    node: Any = sim.host(sim.leader(TOPIC)).node
    answers: list[Any] = []
    node.schedule(TOPIC, 0, items, 10_000, answers.append)
    sim.run_until(lambda: bool(answers))
    assert isinstance(answers[0], Scheduled), answers[0]
    return answers[0].numbers


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
