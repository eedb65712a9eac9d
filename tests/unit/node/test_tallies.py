"""What is counted where messages go through a partition."""

from raftline.machines.delivery.commands import ACK, AckQuery, Deliver, Settle
from raftline.machines.delivery.outcomes import QuerySettled, SettledRanges
from raftline.node.tallies import Tally
from raftline.telemetry.counters import Counters
from tests.unit.node.little_ports import HandClock


def test_what_a_query_acks_counts_for_its_group_and_what_follows_for_theirs() -> None:
    settle = Settle("workers", ACK, 1, 1, 1, 0, [0, 5])
    entry = Deliver(1_000, [settle, AckQuery("spark", "q", 0), settle])
    outcomes = [SettledRanges([]), QuerySettled(1, [10, 13, 1, 0]), SettledRanges([])]
    counters = Counters()
    Tally(HandClock(), counters, "orders").delivered(entry, outcomes)
    found = {name: counters.group("orders", name).settled[ACK] for name in ("workers", "spark")}
    assert found == {"workers": 10, "spark": 3}
