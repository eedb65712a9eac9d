"""Keys of ordered groups: large batches are opened in the lane and fed a little a turn."""

from collections.abc import Sequence

import pytest

from raftline.machines.delivery.lanes import Lanes
from raftline.model.batch import check_batch
from raftline.model.key_hash import NO_KEY, key_hash
from raftline.model.records import seal_batch
from raftline.node import desk, key_pages
from raftline.node.counter import Counter
from raftline.node.key_pages import is_little, read_page
from raftline.testing import SimCluster, cluster
from tests.unit.node.whole import answer_of, host, lead, node, stall_segments
from tests.unit.node.work import GROUP, TOPIC, Answer, ask, offsets, question, receive, settle

HOT, FREE = 7_000, 5  # messages of one key, and behind them some of others


@pytest.fixture
def sim():
    with cluster(nodes=3, seed=11) as made:
        made.create_topic(TOPIC, partitions=1)
        yield made


def store(sim: SimCluster, keys: Sequence[bytes | None]) -> None:
    """Append one batch."""
    batch = seal_batch([(key, b"", (), 1_000) for key in keys])
    leader, _ = lead(sim, TOPIC)
    info = check_batch(batch)
    answer_of(sim, lambda done: node(sim, leader).append(TOPIC, 0, batch, info, 5_000, done))


def store_hot(sim: SimCluster) -> None:
    store(sim, [b"hot"] * HOT + [b"free-%d" % at for at in range(FREE)])


def counter_of(sim: SimCluster) -> Counter | None:
    found = host(sim, lead(sim, TOPIC)[0], TOPIC).desk
    return None if found is None else found._counters.get(GROUP)


class Turns:
    """Counts what was fed in each turn of the loop."""

    def __init__(self, sim: SimCluster) -> None:
        self.sim = sim
        self.before = 0
        self.steps: list[int] = []

    def look(self) -> None:
        counter = counter_of(self.sim)
        fed = 0 if counter is None else counter._ordered._fed
        if fed > self.before:
            self.steps.append(fed - self.before)
        self.before = fed


def test_a_large_batch_is_opened_in_the_lane_and_fed_a_little_a_turn(sim: SimCluster) -> None:
    leader, _ = lead(sim, TOPIC)
    store_hot(sim)
    turns, heard = Turns(sim), list[Answer]()
    stall_segments(sim, leader, 1_000)
    for _ in range(20):  # in one turn of the loop
        ask(sim, heard.append, via=leader, count=1, ordered=True, wait_ms=5_000, lease_ms=60_000)

    def is_over() -> bool:
        turns.look()
        return len(heard) == 1 + FREE

    stalled_ms = sim.now_ms + 900
    sim.run_until(lambda: is_over() or sim.now_ms >= stalled_ms)
    assert turns.steps == [], "the loop opened it"
    sim.run_until(is_over)
    assert sorted(offset for answer in heard for offset in offsets(answer)) == [
        0,
        *range(HOT, HOT + FREE),
    ]
    assert max(turns.steps) <= desk.FEED_MESSAGES
    assert len(turns.steps) >= HOT // desk.FEED_MESSAGES


def test_many_little_batches_are_not_opened_in_one_turn(sim: SimCluster) -> None:
    leader, _ = lead(sim, TOPIC)
    most = desk.OPEN_MESSAGES
    for _ in range(2 * most + 1):
        store(sim, [b"hot"])
    turns, heard = Turns(sim), list[Answer]()
    stall_segments(sim, leader, 1_000)
    ask(sim, heard.append, via=leader, count=2, ordered=True, wait_ms=5_000)
    stalled_ms = sim.now_ms + 900
    sim.run_until(lambda: turns.look() or sim.now_ms >= stalled_ms)
    assert sum(turns.steps) <= most
    sim.run_until(lambda: bool(heard))
    assert offsets(heard[0]) == [0]


def test_as_many_as_are_enough_are_fed(sim: SimCluster) -> None:
    store(sim, [None] * HOT)
    assert offsets(receive(sim, count=3, ordered=True, wait_ms=1_000)) == [0, 1, 2]
    counter = counter_of(sim)
    assert counter is not None
    assert counter._ordered._fed <= desk.FEED_MESSAGES
    assert counter.page is not None
    settle(sim, receive(sim, count=500))
    seen = 503
    while got := offsets(receive(sim, count=500)):
        assert got == list(range(seen, seen + len(got)))
        seen = got[-1] + 1
    assert seen == HOT
    assert counter.page is None


@pytest.mark.parametrize("change", ["group.drop", "group.reset", "log.trim", "leader"])
@pytest.mark.parametrize("after_ms", [100, 1_050])
def test_keys_keep_their_order_whatever_happens_meanwhile(
    sim: SimCluster, change: str, after_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While they are opened, or while they are fed."""
    monkeypatch.setattr(desk, "FEED_MESSAGES", 7)
    leader, others = lead(sim, TOPIC)
    store(sim, [b"k%d" % (at % 3) for at in range(600)])
    asked = list[Answer]()
    receive(sim, via=leader, count=1, ordered=True)
    stall_segments(sim, leader, 1_000)
    ask(sim, asked.append, via=leader, count=5, ordered=True, wait_ms=5_000, lease_ms=100)
    sim.advance(after_ms / 1_000)
    start = 0
    if change == "leader":
        number = sim.number_of(others[0])
        sim.command("cluster.transfer", topic=TOPIC, partition=0, to_node=number)
    elif change == "log.trim":
        start = 301
        question(sim, change, offset=start)
    else:
        question(sim, change, group=GROUP, **({"offset": 0} if change == "group.reset" else {}))
    sim.run_until(lambda: bool(asked), "10s")
    sim.advance("6s")  # what was leased came back
    seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
    while True:
        got = receive(sim, count=5, ordered=True, wait_ms=1_500, lease_ms=60_000)
        if not offsets(got):
            break
        assert len({offset % 3 for offset in offsets(got)}) == len(offsets(got))
        for offset in offsets(got):
            seen[offset % 3].append(offset)
        assert settle(sim, got) == []
    assert seen == {key: [at for at in range(start, 600) if at % 3 == key] for key in range(3)}


# ---------------------------------------------------------------------- pages


def placed(keys: Sequence[bytes | None], offset: int, compression: str = "none") -> bytes:
    batch = seal_batch([(key, b"", (), 0) for key in keys], compression=compression)
    return offset.to_bytes(8, "big") + batch[8:]


def test_a_page_has_the_lanes_of_when_it_was_asked_for() -> None:
    lanes = Lanes()
    lanes.add(11, 12, 5)
    held = lanes.hold()
    lanes.add(12, 13, 9)  # what is appended or trimmed meanwhile changes nothing
    lanes.trim(12)
    held.check()
    page = read_page(placed([b"a", b"a"], 10) + placed([None], 12), held)
    assert (page.start, list(page.hashes)) == (10, [key_hash(b"a"), key_hash(b"a", 5), NO_KEY])


def test_small_batches_that_hold_many_messages_are_not_opened_all_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_pages, "PAGE_MESSAGES", 100)
    batches = b"".join(placed([None] * 60, at, "gzip") for at in range(0, 600, 60))
    page = read_page(batches, Lanes())
    assert (page.start, len(page.hashes)) == (0, 120)


def test_what_is_little() -> None:
    assert is_little(placed([None] * 10, 0) * 10, 100)
    assert not is_little(placed([None] * 10, 0) * 10, 99)
    assert not is_little(placed([b"k"], 0, "gzip"), 1)  # nobody knows what it unpacks to
    assert not is_little(placed([b"k" * 60_000] * 20, 0), 100)


def test_a_query_is_given_two_choices_of_an_ordered_group(sim: SimCluster) -> None:
    store(sim, [None] * HOT)
    told = question(sim, "query.lease", group=GROUP, query="q", n=0, count=HOT, ordered=True)
    assert told["count"] == 1_000
