"""Short ways to work with a work group of a simulated cluster: receive, settle, look."""

from collections.abc import Callable
from typing import Any

from raftline.machines.delivery.commands import ACK, START_FIRST, Settle
from raftline.model.calls import Received, Settled
from raftline.model.errors import RaftlineError
from raftline.model.records import open_batches
from raftline.testing import SimCluster
from tests.unit.node.whole import answer_of, node

TOPIC = "orders"
GROUP = "workers"
Answer = Received | RaftlineError


def ask(
    sim: SimCluster,
    done: Callable[[Answer], None],
    *,
    count: int = 100,
    wait_ms: int = 0,
    group: str = GROUP,
    partition: int = 0,
    bytes_max: int = 1 << 20,
    lease_ms: int = 5_000,
    member: str = "w1",
    via: str = "",
    timeout_ms: int = 5_000,
    start: int = START_FIRST,
    ordered: bool = False,
    topic: str = TOPIC,
) -> None:
    """Receive; ``done`` hears of it."""
    node(sim, via or sim.running[0]).receive(
        topic,
        group,
        partition,
        count,
        bytes_max,
        lease_ms,
        wait_ms,
        member,
        wait_ms + timeout_ms,
        done,
        start=start,
        ordered=ordered,
    )


def receive(sim: SimCluster, **how: Any) -> Received:
    """Receive and run the world until it is answered."""
    answer = answer_of(sim, lambda done: ask(sim, done, **how))
    assert isinstance(answer, Received), answer
    return answer


def offsets(received: object) -> list[int]:
    """Return the offsets that were delivered, in their order."""
    assert isinstance(received, Received), received
    spans = received.spans
    return [o for at in range(0, len(spans), 4) for o in range(spans[at], spans[at + 1])]


def attempts(received: Received) -> dict[int, int]:
    """Return the number of the delivery of each message."""
    spans = received.spans
    return {
        offset: spans[at + 2]
        for at in range(0, len(spans), 4)
        for offset in range(spans[at], spans[at + 1])
    }


def values(received: Received) -> list[bytes | None]:
    """Return the values of what was delivered, in its order."""
    found = {message.offset: message.value for message in open_batches(received.batches)}
    return [found[offset] for offset in offsets(received)]


def settles(received: Received, verb: int = ACK, delay_ms: int = 0, group: str = GROUP) -> Any:
    """Return settles of all that was delivered."""
    spans = received.spans
    return [
        Settle(
            group,
            verb,
            received.term,
            received.sequence,
            spans[at + 2],
            spans[at + 3],
            spans[at : at + 2],
            delay_ms,
        )
        for at in range(0, len(spans), 4)
    ]


def settle(
    sim: SimCluster,
    received: Received,
    verb: int = ACK,
    delay_ms: int = 0,
    *,
    group: str = GROUP,
    via: str = "",
) -> list[int]:
    """Settle all that was delivered; return the ranges that were refused."""
    asked = node(sim, via or sim.running[0])
    rows = settles(received, verb, delay_ms, group)
    answer = answer_of(sim, lambda done: asked.settle(TOPIC, received.partition, rows, 5_000, done))
    assert isinstance(answer, Settled), answer
    return [edge for lost in answer.lost for edge in lost]


def question(sim: SimCluster, name: str, partition: int = 0, **arguments: Any) -> Any:
    """Ask the leader of a partition."""
    asked = node(sim, sim.running[0])
    return answer_of(sim, lambda done: asked.ask(TOPIC, partition, name, arguments, 5_000, done))


def set_topic(sim: SimCluster, **settings: Any) -> None:
    """Change the topic's settings and wait until every node knows."""
    asked = node(sim, sim.running[0])
    arguments: dict[str, object] = {"name": TOPIC, "settings": settings}
    answer_of(sim, lambda done: asked.command("topic.set", arguments, 5_000, done))
    sim.advance("1s")
