"""What a choice of the leader costs: ``python -m bench.selection``. It only prints."""

import time
from collections.abc import Callable

from raftline.machines.delivery.ages import Ages
from raftline.machines.delivery.commands import Policy
from raftline.machines.delivery.group import WorkGroup
from raftline.machines.delivery.lanes import Lanes
from raftline.machines.delivery.ordered import Ordered
from raftline.machines.delivery.selection import Chooser
from raftline.model.intervals import IntervalSet

MESSAGES = 1_000_000
EARLY_MS, LATE_MS = 2_000, 200_000  # before and after the bound
RUNS = 500


def main() -> None:
    ages = Ages()
    ages.note(MESSAGES, 1_000)
    for priorities in ([], [10], [20, 10, -10, -20]):
        lanes = alternating(priorities)
        name = f"{len(lanes.lanes())} lanes" if priorities else "no priorities"
        show_choices(f"{name}, aged", lanes, ages, "aged", EARLY_MS)
        show_choices(f"{name}, aged, all overdue", lanes, ages, "aged", LATE_MS)
        show_choices(f"{name}, weighted", lanes, ages, "weighted", EARLY_MS)
    show_ordered()
    show_lanes()


def show_choices(name: str, lanes: Lanes, ages: Ages, mode: str, at_ms: int) -> None:
    chooser = Chooser(mode, 30_000)
    view = (WorkGroup("g", Policy(), 0, 0), lanes, ages, IntervalSet(), MESSAGES)
    show(f"{name}: choose 100", lambda: chooser.choose(*view, 100, at_ms))
    show(f"{name}: waiting_lane", lambda: chooser.waiting_lane(*view, at_ms))


def alternating(priorities: list[int]) -> Lanes:
    """Every second message has a priority."""
    lanes = Lanes()
    for at in range(0, MESSAGES if priorities else 0, 2):
        lanes.add(at, at + 1, priorities[at // 2 % len(priorities)])
    return lanes


def show_ordered() -> None:
    group, none = WorkGroup("g", Policy(ordered=True), 0, 0), IntervalSet()
    ordered = Ordered()
    fed = iter(range(0, MESSAGES, 100))

    def feed() -> None:
        start = next(fed)
        ordered.feed(group, start, range(start + 1, start + 101))

    show("ordered: feed 100", feed)
    show("ordered: choose 100", lambda: ordered.choose(group, none, MESSAGES, 100), RUNS // 3)


def show_lanes() -> None:
    lanes = alternating([10])
    started = time.process_time()
    join = lanes.freeze()
    frozen = time.process_time()
    data = join()
    print(
        f"lanes: {MESSAGES // 2} ranges freeze in {(frozen - started) * 1e6:.0f} us on the loop,"
        f" join to {len(data) / 1e6:.1f} MB in {(time.process_time() - frozen) * 1e3:.1f} ms"
    )


def show(what: str, call: Callable[[], object], runs: int = RUNS) -> None:
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        for _ in range(runs):
            call()
        best = min(best, (time.process_time() - started) / runs)
    print(f"{best * 1e6:8.1f} us  {what}")


if __name__ == "__main__":
    main()
