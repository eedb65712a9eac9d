"""A million single-message leases in flight in one work group: memory, time, checkpoint.

    python -m bench.leases [leases]

Prints and asserts nothing: the numbers are this machine's, in CPU time.
"""

import gc
import random
import resource
import sys
import time
from pathlib import Path

from raftline.machines.delivery.commands import (
    ACK,
    EXTEND,
    NACK,
    START_FIRST,
    Deliver,
    Grant,
    OpenGroup,
    Policy,
    Settle,
)
from raftline.machines.delivery.machine import DeliveryMachine

GROUP = "workers"
START_MS = 1_700_000_000_000
LEASE_MS = 30_000


def memory_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


class Stopwatch:
    def __init__(self, what: str, count: int = 1) -> None:
        self._what, self._count = what, count

    def __enter__(self) -> None:
        self._begin = time.process_time()

    def __exit__(self, *_: object) -> None:
        took_us = (time.process_time() - self._begin) * 1e6
        each = f"{took_us / self._count:8.1f} us each" if self._count > 1 else ""
        print(f"{self._what:52} {took_us / 1e3:10.2f} ms {each}")


def main(leases: int) -> None:
    machine = DeliveryMachine()

    def apply(at_ms: int, *commands: object) -> list:
        return machine.apply(1, 1, Deliver(START_MS + at_ms, list(commands)), 0, leases)

    apply(0, OpenGroup(GROUP, Policy(), START_FIRST))
    group = machine.groups[GROUP]
    gc.collect()
    before_mb = memory_mb()
    per_ms = 40  # 40,000 leases a second
    grants = [
        Grant(GROUP, at + 1, f"w-{at % 8}", START_MS + at // per_ms + LEASE_MS, [at, at + 1, 1, 0])
        for at in range(leases)
    ]
    commands_mb = memory_mb() - before_mb
    with Stopwatch(f"grant {leases:,} messages one by one", leases):
        for at in range(0, leases, per_ms):
            apply(at // per_ms, *grants[at : at + per_ms])
    del grants
    gc.collect()
    used_mb = memory_mb() - before_mb
    print(
        f"{'memory of all leases (commands took ' + f'{commands_mb:.0f} MB)':52} {used_mb:10.1f} MB"
    )
    print(
        f"{'  of which the table':52} {group.rows.bytes / 1e6:10.1f} MB, {len(group.rows):,} rows"
    )

    now_ms = leases // per_ms
    pick = random.Random(1).sample(range(leases), min(leases, 40_000))
    quarter = len(pick) // 4
    for verb, name in ((ACK, "ack"), (EXTEND, "extend"), (NACK, "nack")):
        some, pick = pick[:quarter], pick[quarter:]
        settles = [Settle(GROUP, verb, 1, at + 1, 1, 0, [at, at + 1], 20_000, "no") for at in some]
        with Stopwatch(f"{name} {quarter:,} anywhere", quarter):
            outcomes = apply(now_ms, *settles)
        assert not any(outcome.lost for outcome in outcomes)

    with Stopwatch("freeze: the loop's half of a checkpoint"):
        joined = machine.freeze()
    with Stopwatch("join: the lane's half"):
        data = joined()
    print(f"{'snapshot':52} {len(data) / 1e6:10.1f} MB")
    settles = [Settle(GROUP, ACK, 1, at + 1, 1, 0, [at, at + 1]) for at in pick]
    with Stopwatch(f"ack {len(pick):,} anywhere, chunks shared with a checkpoint", len(pick)):
        apply(now_ms, *settles)
    with Stopwatch("restore"):
        DeliveryMachine().restore(data)
    del data, joined
    with Stopwatch("an entry that ends as many leases as one may"):
        apply(10 * LEASE_MS)
    rounds = 1
    with Stopwatch("the entries that end the rest"):
        while (due_ms := machine.next_due_ms()) is not None and due_ms <= machine.at_ms:
            apply(10 * LEASE_MS)
            rounds += 1
    print(f"{'entries that ended leases':52} {rounds:10}")
    print(f"{'rows now (equal neighbours are one)':52} {len(group.rows):10,}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
