"""Assignors: which member of a group should read which partition.

Pure functions from subscriptions, sizes and present owners to the wanted owner of every partition.

Rules
    A1  Every partition of a topic that somebody reads has exactly one owner, who reads that topic.
    A2  ``sticky``: loads differ by at most one where all members read the same topics, else as
        little as subscriptions allow; of all such assignments one that moves the fewest.
    A3  ``round_robin``: all partitions in order, dealt to the members in order.
    A4  ``range``: of each topic every member has a run of neighbours.
    A5  The outcome depends on nothing but the arguments, never on their order.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

from raftline.machines.groups.balance import Flow

Readers = Mapping[str, Sequence[str]]  # member -> topics it reads
Sizes = Mapping[str, int]  # topic -> partitions
Owners = Mapping[str, Sequence[str]]  # topic -> owner by partition, "" for none
Wanted = dict[str, list[str]]

STICKY = "sticky"
NOBODY = ""


def assign(name: str, readers: Readers, sizes: Sizes, owners: Owners) -> Wanted:
    """Return the wanted owner of every partition of every topic in ``sizes``."""
    return ASSIGNORS[name](readers, sizes, owners)


def sticky(readers: Readers, sizes: Sizes, owners: Owners) -> Wanted:
    """Keep what is fair, move the rest. A2."""
    wanted: Wanted = {topic: [NOBODY] * sizes[topic] for topic in sorted(sizes)}
    members = sorted(readers)
    topics = [topic for topic in wanted if any(topic in readers[m] for m in members)]
    held = _held(readers, sizes, owners, topics)
    if all(topic in readers[member] for member in members for topic in topics):
        quotas = _even_quotas(members, held, sum(sizes[topic] for topic in topics))
        _deal_even(wanted, topics, members, held, quotas)
    else:
        _deal_uneven(wanted, topics, members, readers, held)
    return wanted


def round_robin(readers: Readers, sizes: Sizes, owners: Owners) -> Wanted:
    """Deal partitions like cards; who does not read a topic is passed over. A3."""
    wanted: Wanted = {}
    members = sorted(readers)
    at = 0  # who is next
    for topic in sorted(sizes):
        row = wanted[topic] = [NOBODY] * sizes[topic]
        places = [place for place, member in enumerate(members) if topic in readers[member]]
        if not places or not row:
            continue
        first = bisect_left(places, at)  # looked for once: a topic may have few readers of many
        for partition in range(len(row)):
            row[partition] = members[places[(first + partition) % len(places)]]
        at = (places[(first + len(row) - 1) % len(places)] + 1) % len(members)
    return wanted


def by_range(readers: Readers, sizes: Sizes, owners: Owners) -> Wanted:
    """Cut each topic into runs of neighbours. A4."""
    wanted: Wanted = {}
    for topic in sorted(sizes):
        row = wanted[topic] = [NOBODY] * sizes[topic]
        members = [member for member in sorted(readers) if topic in readers[member]]
        for partition in range(len(row)):
            if members:
                row[partition] = members[_run_of(partition, len(row), len(members))]
    return wanted


ASSIGNORS: dict[str, Callable[[Readers, Sizes, Owners], Wanted]] = {
    STICKY: sticky,
    "round_robin": round_robin,
    "range": by_range,
}


def _run_of(partition: int, size: int, members: int) -> int:
    """Return whose run a partition is in: the first ``size % members`` runs are one longer."""
    short, longer = divmod(size, members)
    if partition < longer * (short + 1):
        return partition // (short + 1)
    return longer + (partition - longer * (short + 1)) // short


Held = dict[str, dict[str, list[int]]]  # member -> topic -> partitions, ascending


def _held(readers: Readers, sizes: Sizes, owners: Owners, topics: list[str]) -> Held:
    """Return what members have and may keep."""
    held: Held = {member: {} for member in sorted(readers)}
    for topic in topics:
        for partition, owner in enumerate(owners.get(topic, ())[: sizes[topic]]):
            if owner in held and topic in readers[owner]:
                held[owner].setdefault(topic, []).append(partition)
    return held


def _even_quotas(members: list[str], held: Held, total: int) -> dict[str, int]:
    """Share ``total`` out; one more for those who have most already, so that fewest move."""
    short, longer = divmod(total, max(1, len(members)))
    having = {member: sum(map(len, held[member].values())) for member in members}
    order = sorted(members, key=lambda member: (-having[member], member))
    return {member: short + (rank < longer) for rank, member in enumerate(order)}


def _deal_even(
    wanted: Wanted, topics: list[str], members: list[str], held: Held, quotas: dict[str, int]
) -> None:
    left = dict(quotas)
    for member in members:
        for topic in topics:
            for partition in held[member].get(topic, ())[: left[member]]:
                wanted[topic][partition] = member
                left[member] -= 1
    takers = [member for member in members for _ in range(left[member])]
    takers.reverse()
    for topic in topics:
        row = wanted[topic]
        for partition, owner in enumerate(row):
            if owner == NOBODY:
                row[partition] = takers.pop()


def _deal_uneven(
    wanted: Wanted, topics: list[str], members: list[str], readers: Readers, held: Held
) -> None:
    number = {topic: at for at, topic in enumerate(topics)}
    had = {
        (number[topic], at): len(partitions)
        for at, member in enumerate(members)
        for topic, partitions in held[member].items()
    }
    reads = [[number[topic] for topic in topics if topic in readers[m]] for m in members]
    counts = Flow(reads, [len(wanted[topic]) for topic in topics], had).solve()
    for topic in topics:
        takers: list[str] = []
        for at, member in enumerate(members):
            count = counts.get((number[topic], at), 0)
            kept = held[member].get(topic, [])[:count]
            for partition in kept:
                wanted[topic][partition] = member
            takers += [member] * (count - len(kept))
        free = iter(takers)
        row = wanted[topic]
        for partition, owner in enumerate(row):
            if owner == NOBODY:
                row[partition] = next(free)
