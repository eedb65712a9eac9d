"""Sends under a clock that is moved by hand and replies that are written down."""

from random import Random

import pytest

from raftline.client.core.batches import Handle, Sent
from raftline.client.core.caller import Caller
from raftline.client.core.lanes import FLYING_MAX
from raftline.client.core.ports import Lost
from raftline.client.core.sends import Row, Sends
from raftline.client.core.topology import TopicMap, Topology
from raftline.model.batch import check_batch
from raftline.model.errors import (
    Internal,
    InvalidArgument,
    NoLeader,
    RaftlineError,
    TimedOut,
    TooLarge,
    UnknownTopic,
)
from raftline.model.records import open_batch
from tests.unit.client.world import FakeClock, Nodes, Script, refusal, reply

PRODUCER = reply({"producer_id": 7, "epoch": 0})


def stored(base: int, *, duplicate: bool = False):
    return reply({"results": [{"base_offset": base, "count": 1, "duplicate": duplicate}]})


class Bench:
    """Sends to one topic of some partitions, on a script."""

    def __init__(self, *answers, partitions: int = 1, **options) -> None:
        self.clock = FakeClock()
        self.network = Script(self.clock, *answers)
        topology = Topology(["node:1"])
        self.topic = TopicMap("t", partitions, "murmur2", 5)
        topology.topics["t"] = self.topic
        self.caller = Caller(self.clock, self.network, topology, Random(1))
        settings = {"linger_ms": 5.0, "batch_bytes": 10_000, "batch_messages": 100, **options}
        self.sends = Sends(self.caller, self._find, **settings)
        self.found: TopicMap | RaftlineError = self.topic

    def _find(self, name, timeout_ms, done) -> None:
        self.clock.call_later(2, lambda: done(self.found))

    def send(self, *values: bytes, topic: str = "t", **wishes) -> list[Handle]:
        handles = [Handle() for _ in values]
        self.sends.take(
            [self.row(h, v, topic, **wishes) for h, v in zip(handles, values, strict=True)]
        )
        return handles

    def row(
        self,
        handle,
        value,
        topic="t",
        key=None,
        priority=0,
        partition=-1,
        timeout_ms=10_000.0,
        item=None,
    ) -> Row:
        deadline = self.clock.now + timeout_ms
        return (
            handle,
            topic,
            key,
            value,
            (),
            priority,
            partition,
            64 + len(value),
            deadline,
            5,
            item,
        )

    def posted(self):
        return [r for r in self.network.seen if r.path.endswith("/messages")]


def values_of(request) -> list[bytes]:
    return [message.value for message in open_batch(request.body)]


def test_messages_linger_and_leave_together() -> None:
    bench = Bench(PRODUCER, stored(40))
    first = bench.send(b"a")
    bench.clock.advance(3)
    second = bench.send(b"b")
    assert not bench.posted()
    bench.clock.advance(3)
    assert [values_of(r) for r in bench.posted()] == [[b"a", b"b"]]
    bench.clock.advance(2)
    assert first[0].outcome() == Sent("t.0.40", "t", 0, 40)
    assert second[0].outcome().id == "t.0.41"


def test_a_full_batch_does_not_linger() -> None:
    bench = Bench(PRODUCER, stored(0), stored(3), batch_messages=3)
    bench.send(b"a", b"b", b"c", b"d")
    bench.clock.advance(1.5)
    assert [values_of(r) for r in bench.posted()] == [[b"a", b"b", b"c"]]


def test_a_message_that_fills_a_batch_has_one_of_its_own() -> None:
    """One that no node takes had those before it refused."""
    bench = Bench(PRODUCER, stored(0), refusal("too_large", 400), linger_ms=500.0)
    small, giant = bench.send(b"a", b"b" * 10_000)
    bench.clock.advance(3)
    assert [values_of(r) for r in bench.posted()] == [[b"a"], [b"b" * 10_000]]
    assert small.outcome() == Sent("t.0.0", "t", 0, 0)
    with pytest.raises(TooLarge):
        giant.outcome()


def test_who_waits_does_not_linger() -> None:
    bench = Bench(PRODUCER, stored(0), linger_ms=500.0)
    (handle,) = bench.send(b"a")
    told: list[bool] = []
    bench.sends.watch(handle, lambda: told.append(True))
    bench.clock.advance(3)
    assert told == [True]


def test_many_who_wait_share_the_batches_that_may_be_on_their_way() -> None:
    """64 callers that each wait for their own message are a few batches, not 64."""
    answers = [stored(number) for number in range(FLYING_MAX)]
    bench = Bench(PRODUCER, *answers, *([stored(100)] * 20), linger_ms=500.0)
    bench.send(b"the producer is known")
    bench.sends.flush(lambda: None)
    bench.clock.advance(5)
    before, told = len(bench.posted()), []
    for number in range(64):
        (handle,) = bench.send(b"%d" % number)
        bench.sends.watch(handle, lambda: told.append(True))
    assert len(bench.posted()) - before == FLYING_MAX
    bench.clock.advance(10)
    assert len(told) == 64
    sizes = [len(values_of(request)) for request in bench.posted()[before:]]
    assert sizes == [1] * FLYING_MAX + [64 - FLYING_MAX]


def test_who_waits_before_messages_are_taken_travels_together() -> None:
    bench = Bench(PRODUCER, stored(0), stored(1), linger_ms=500.0)
    bench.send(b"the producer is known")
    bench.sends.flush(lambda: None)
    bench.clock.advance(5)
    handles, told = [Handle() for _ in range(9)], []
    for handle in handles:
        bench.sends.watch(handle, lambda: told.append(True))
    bench.sends.take([bench.row(handle, b"x") for handle in handles])
    bench.sends.watch_again()
    assert [len(values_of(request)) for request in bench.posted()] == [1, 9]
    bench.clock.advance(5)
    assert len(told) == 9


def test_who_waits_behind_others_without_an_answer_is_told_in_time() -> None:
    bench = Bench(PRODUCER, stored(0), *([None] * 20), linger_ms=500.0)
    bench.send(b"the producer is known")
    bench.sends.flush(lambda: None)
    bench.clock.advance(5)
    for number in range(FLYING_MAX):
        (handle,) = bench.send(b"%d" % number)
        bench.sends.watch(handle, lambda: None)
    (last,) = bench.send(b"last", timeout_ms=100.0)
    told: list[float] = []
    begun = bench.clock.now
    bench.sends.watch(last, lambda: told.append(bench.clock.now - begun))
    bench.clock.advance(150)
    assert told == [100.0]
    with pytest.raises(TimedOut):
        last.outcome()


def test_each_batch_has_its_sequence_and_priority() -> None:
    bench = Bench(PRODUCER, stored(0), stored(2), linger_ms=0.0)
    bench.send(b"a", b"b")
    bench.clock.advance(5)
    bench.send(b"c", priority=10)
    bench.clock.advance(5)
    first, second = bench.posted()
    infos = [check_batch(r.body) for r in (first, second)]
    assert [(i.producer_id, i.producer_epoch, i.base_sequence) for i in infos] == [
        (7, 0, 0),
        (7, 0, 2),
    ]
    assert "Raftline-Priority" not in first.fields
    assert second.fields["Raftline-Priority"] == "10"
    assert open_batch(second.body)[0].headers == (("raftline-priority", b"10"),)


@pytest.mark.parametrize(
    "trouble",
    [
        Lost("broken", is_sent=True),
        Lost("refused", is_sent=False),
        refusal("not_leader"),
        refusal("timed_out", 504),
        refusal("over_limit", 429),
        None,
    ],
    ids=str,
)
def test_a_batch_is_sent_again_as_it_was(trouble) -> None:
    bench = Bench(PRODUCER, trouble, stored(9, duplicate=True))
    (handle,) = bench.send(b"a")
    bench.clock.advance(8000)
    first, second = bench.posted()
    assert first.body == second.body
    assert handle.outcome() == Sent("t.0.9", "t", 0, 9, is_duplicate=True)


def test_after_a_failure_the_oldest_goes_alone() -> None:
    answers = (Lost("x", is_sent=True), Lost("x", is_sent=True), stored(0), stored(1))
    bench = Bench(PRODUCER, *answers, batch_messages=1)
    bench.send(b"a", b"b")
    bench.clock.advance(1.5)
    assert [values_of(r) for r in bench.posted()] == [[b"a"], [b"b"]]
    bench.clock.run_until(lambda: len(bench.posted()) == 3, 1000)
    bench.clock.advance(0.5)
    assert len(bench.posted()) == 3
    bench.clock.advance(50)
    assert [values_of(r) for r in bench.posted()[2:]] == [[b"a"], [b"b"]]


def test_what_follows_a_batch_that_is_missing_for_good_starts_an_epoch() -> None:
    bench = Bench(
        PRODUCER,
        refusal("batch_too_large", 413),
        refusal("out_of_order", 409),
        stored(0),
        batch_messages=1,
    )
    bad, good = bench.send(b"a", b"b")
    bench.clock.advance(1000)
    with pytest.raises(RaftlineError, match="batch_too_large"):
        bad.outcome()
    assert good.outcome().offset == 0
    last = check_batch(bench.posted()[-1].body)
    assert (last.producer_epoch, last.base_sequence) == (1, 0)


def test_out_of_time_and_maybe_stored_is_unknown() -> None:
    bench = Bench(PRODUCER, *[Lost("x", is_sent=True)] * 50)
    (handle,) = bench.send(b"a", timeout_ms=2000.0)
    assert bench.clock.run_until(lambda: handle.is_done, 2000)
    with pytest.raises(TimedOut):
        handle.outcome()


def test_out_of_time_and_never_proposed_says_why() -> None:
    bench = Bench(PRODUCER, *[refusal("no_leader")] * 50)
    (handle,) = bench.send(b"a", timeout_ms=2000.0)
    assert bench.clock.run_until(lambda: handle.is_done, 2000)
    with pytest.raises(NoLeader):
        handle.outcome()


def test_without_a_producer_id_a_send_ends_in_time() -> None:
    bench = Bench(*[refusal("no_leader")] * 200)
    (handle,) = bench.send(b"a", timeout_ms=2000.0)
    assert bench.clock.run_until(lambda: handle.is_done, 2010)
    with pytest.raises(TimedOut):
        handle.outcome()


def test_messages_wait_until_their_topic_is_known() -> None:
    bench = Bench(PRODUCER, stored(0))
    bench.found = TopicMap("new", 1, "murmur2", 5)
    bench.caller.topology.topics.clear()
    (handle,) = bench.send(b"a", topic="new")
    told: list[int] = []
    bench.sends.watch(handle, lambda: told.append(1))
    bench.caller.topology.topics["new"] = bench.found
    bench.clock.advance(10)
    assert told == [1]
    assert handle.outcome().topic == "new"


def test_a_topic_that_cannot_be_is_refused() -> None:
    bench = Bench()
    bench.found = UnknownTopic("new")
    bench.caller.topology.topics.clear()
    (handle,) = bench.send(b"a", topic="new")
    bench.clock.advance(10)
    with pytest.raises(UnknownTopic):
        handle.outcome()
    assert bench.sends.under_way == 0


def test_a_bad_priority_fails_alone() -> None:
    bench = Bench(PRODUCER, stored(0))
    (bad,) = bench.send(b"a", priority="urgent")
    (good,) = bench.send(b"b")
    bench.clock.advance(20)
    with pytest.raises(InvalidArgument):
        bad.outcome()
    assert good.outcome().offset == 0


def test_done_bytes_count_every_message_once() -> None:
    bench = Bench(PRODUCER, stored(0), refusal("batch_too_large", 413), batch_messages=2)
    bench.send(b"a" * 10, b"b" * 10, b"c" * 10, b"d" * 10)
    bench.clock.advance(50)
    assert bench.sends.done_bytes == 4 * 74
    assert bench.sends.under_way == 0


def test_messages_with_wishes_go_as_json_and_each_has_its_result() -> None:
    rows = [
        {"id": "t.0.w1", "partition": 0, "deliverAt": "2030-01-01T00:00:00Z", "delayed": True},
        {"error": {"code": "no_leader", "message": "m", "hint": ""}, "partition": 1},
        {"error": {"code": "invalid_argument", "message": "m", "hint": ""}},
    ]
    again = [{"id": "t.1.5", "partition": 1, "offset": 5, "duplicate": True}]
    bench = Bench(reply({"results": rows}), reply({"results": again}))
    items = [{"value": v, "dedup_key": v} for v in "abc"]
    handles = [Handle() for _ in items]
    bench.sends.take([bench.row(h, b"x", item=i) for h, i in zip(handles, items, strict=True)])
    bench.clock.advance(500)
    assert [r.json()["messages"] for r in bench.posted()] == [items, [items[1]]]
    assert handles[0].outcome().deliver_at == "2030-01-01T00:00:00Z"
    assert handles[1].outcome() == Sent("t.1.5", "t", 1, 5, is_duplicate=True)
    with pytest.raises(InvalidArgument):
        handles[2].outcome()


@pytest.mark.parametrize("code", ["no_leader", "invalid_argument"])
def test_no_later_refusal_ends_the_doubt_about_a_message_with_wishes(code: str) -> None:
    def told(code: str) -> object:
        return {"error": {"code": code, "message": "m", "hint": ""}, "partition": 0}

    both = reply({"results": [told("timed_out"), told("no_leader")]})
    bench = Bench(both, *[reply({"results": [told(code)] * 2})] * 50)
    handles = [Handle(), Handle()]
    rows = [bench.row(h, b"x", item={"value": "x"}, timeout_ms=2000.0) for h in handles]
    bench.sends.take(rows)
    assert bench.clock.run_until(lambda: handles[0].is_done, 2010)
    with pytest.raises(TimedOut):
        handles[0].outcome()
    with pytest.raises(RaftlineError) as refused:
        handles[1].outcome()
    assert refused.value.code == code


def test_a_batch_that_may_be_stored_is_in_doubt_whatever_a_later_attempt_is_told() -> None:
    bench = Bench(PRODUCER, Lost("x", is_sent=True), refusal("batch_too_large", 413))
    (handle,) = bench.send(b"a")
    bench.clock.advance(1000)
    with pytest.raises(TimedOut):
        handle.outcome()


def test_without_a_key_batches_take_turns() -> None:
    clock = FakeClock()
    nodes = Nodes(clock, Random(3))
    topology = Topology(["node:1"])
    topology.topics["t"] = TopicMap("t", 3, "murmur2", 5)
    caller = Caller(clock, nodes, topology, Random(3))
    sends = Sends(caller, lambda *_: None, linger_ms=1.0, batch_bytes=10_000, batch_messages=2)
    rows = [(Handle(), "t", None, b"%d" % i, (), 0, -1, 65, 1e9, 5, None) for i in range(12)]
    sends.take(rows)
    clock.advance(100)
    assert [len(partition.values) for partition in nodes.partitions] == [4, 4, 4]


@pytest.mark.parametrize("body", [b"<html>", b'{"results": []}', b'{"results": [{}, 7]}'])
def test_a_reply_that_makes_no_sense_ends_the_send(body: bytes) -> None:
    bench = Bench(PRODUCER, reply(body))
    (handle,) = bench.send(b"a")
    bench.clock.advance(50)
    with pytest.raises(Internal):
        handle.outcome()


def test_a_reply_to_json_that_makes_no_sense_ends_the_send() -> None:
    bench = Bench(reply({"results": []}))
    handle = Handle()
    bench.sends.take([bench.row(handle, b"x", item={"value": "x"})])
    bench.clock.advance(50)
    with pytest.raises(RaftlineError):
        handle.outcome()


# ---------------------------------------------------------------------- flushes and deadlines


def test_a_flush_waits_for_what_was_sent_before_it_alone() -> None:
    """Others never stop sending: a flush that waited for all of it never ended."""
    bench = Bench(PRODUCER, stored(0), None, linger_ms=0.0)
    (first,) = bench.send(b"a")
    done: list[bool] = []
    bench.sends.flush(lambda: done.append(first.is_done))
    bench.send(b"b")
    bench.clock.advance(10)
    assert done == [True]
    assert bench.sends.under_way == 1


def test_a_flush_waits_for_messages_whose_topic_is_looked_up() -> None:
    bench = Bench(PRODUCER, stored(0), None, linger_ms=500.0)
    bench.caller.topology.topics.clear()
    (first,) = bench.send(b"a")
    bench.caller.topology.topics["t"] = bench.topic
    done: list[bool] = []
    bench.sends.flush(lambda: done.append(first.is_done))
    bench.clock.advance(2.5)
    bench.send(b"b")
    assert not done
    bench.clock.advance(10)
    assert done == [True]


def test_a_flush_waits_for_messages_with_wishes() -> None:
    told = {"results": [{"id": "t.0.0", "partition": 0, "offset": 0}]}
    bench = Bench(reply(told), None)
    (first,) = bench.send(b"a", item={"value": "a", "delay": 5})
    done: list[bool] = []
    bench.sends.flush(lambda: done.append(first.is_done))
    bench.send(b"b", item={"value": "b", "delay": 5})
    bench.clock.advance(10)
    assert done == [True]
    assert bench.sends.under_way == 1


def once(number: int, **wishes: object) -> dict[str, object]:
    return {"value": str(number), "dedup_key": str(number), **wishes}


def test_messages_of_a_key_with_dedup_keys_do_not_overtake_each_other() -> None:
    """Requests that waited, were full or were waited for went out beside those before them."""
    told = {"results": [{"id": "t.0.0", "partition": 0, "offset": 0}]}
    bench = Bench(refusal("no_leader"), reply(told), *[None] * 10)
    bench.send(b"x", key=b"k", item=once(0))
    rows = [bench.row(Handle(), b"x", key=b"k", item=once(n)) for n in range(1, 2_500)]
    bench.sends.take(rows)
    (last,) = bench.send(b"x", key=b"k", item=once(2_500))
    bench.sends.watch(last, lambda: None)
    assert len(bench.posted()) == 1
    bench.clock.advance(500)
    posted = [[row["value"] for row in r.json()["messages"]] for r in bench.posted()]
    assert posted == [["0"], ["0"], [str(n) for n in range(1, 1_001)]]


def test_messages_of_other_keys_that_are_waited_for_go_beside_each_other() -> None:
    bench = Bench(*[None] * 10)
    for number in range(6):
        (sent,) = bench.send(b"x", key=b"k%d" % number, item=once(number))
        bench.sends.watch(sent, lambda: None)
    assert len(bench.posted()) == 4
    assert bench.sends.under_way == 6


def test_one_with_a_dedup_key_in_a_hurry_does_not_take_the_others_time() -> None:
    told = {"results": [{"id": "t.0.0", "partition": 0, "offset": 0}]}
    bench = Bench(reply(told), *[refusal("no_leader")] * 5, *[reply(told)] * 3)
    bench.send(b"x", item=once(0), timeout_ms=10_000.0)
    (calm,) = bench.send(b"x", item=once(1), timeout_ms=10_000.0)
    (hasty,) = bench.send(b"x", item=once(2), timeout_ms=50.0)
    bench.sends.flush(lambda: None)
    bench.clock.advance(160)
    assert hasty.is_done
    assert not calm.is_done
    bench.clock.advance(5_000)
    assert calm.outcome().offset == 0


def test_one_behind_others_of_its_key_ends_by_its_own_deadline() -> None:
    bench = Bench(None, None, None)
    bench.send(b"x", key=b"k", item=once(0), timeout_ms=10_000.0)
    bench.send(b"x", key=b"k", item=once(1), timeout_ms=9_000.0)
    (hasty,) = bench.send(b"x", key=b"k", item=once(2), timeout_ms=50.0)
    bench.sends.watch(hasty, lambda: None)
    bench.clock.advance(60)
    with pytest.raises(TimedOut):
        hasty.outcome()
    assert bench.sends.under_way == 2
    bench.clock.advance(9_000)
    assert bench.sends.under_way == 1


def test_requests_do_not_become_many_where_deadlines_differ() -> None:
    bench = Bench(*[None] * 100)
    for number in range(1_000):
        bench.send(b"x", item=once(number), timeout_ms=9_000.0 + 5_000.0 * (number % 2))
    assert len(bench.posted()) <= 4
    assert len(bench.sends._items["t"]) <= 32


def test_one_in_a_hurry_does_not_take_the_others_time() -> None:
    bench = Bench(PRODUCER, *[refusal("no_leader")] * 5, *[stored(0)] * 2)
    (calm,) = bench.send(b"calm", timeout_ms=10_000.0)
    (hasty,) = bench.send(b"hasty", timeout_ms=50.0)
    bench.sends.watch(hasty, lambda: None)
    bench.clock.advance(60)
    assert hasty.is_done
    assert not calm.is_done
    bench.clock.advance(5_000)
    assert calm.outcome().offset == 0


def test_one_that_comes_late_in_an_outage_has_its_own_time() -> None:
    answers = [refusal("no_leader")] * 40 + [stored(0)] * 5
    bench = Bench(PRODUCER, *answers)
    bench.send(b"on its way", timeout_ms=10_000.0)
    bench.clock.advance(20)
    bench.send(b"early", timeout_ms=10_000.0)
    bench.clock.advance(9_900)
    (late,) = bench.send(b"late", timeout_ms=10_000.0)
    bench.clock.advance(9_000)
    assert late.outcome().offset == 0


def test_one_behind_others_ends_by_its_own_deadline() -> None:
    bench = Bench(PRODUCER, *[refusal("no_leader")] * 100)
    bench.send(b"calm", timeout_ms=20_000.0)
    bench.clock.advance(20)
    (hasty,) = bench.send(b"hasty", timeout_ms=500.0)
    bench.sends.flush(lambda: None)
    bench.clock.advance(510)
    assert hasty.is_done


def test_batches_do_not_become_many_where_deadlines_differ() -> None:
    bench = Bench(PRODUCER, *[None] * 100)
    for number in range(1_000):
        bench.send(b"x", timeout_ms=9_000.0 + 5_000.0 * (number % 2))
    (lane,) = bench.sends._lanes.values()
    assert len(lane.batches()) < 100


def test_what_is_out_of_time_is_not_sent() -> None:
    bench = Bench(PRODUCER, None)
    (handle,) = bench.send(b"a", timeout_ms=2.0)
    bench.clock.advance(20)
    assert not bench.posted()
    with pytest.raises(TimedOut):
        handle.outcome()


def test_a_topic_that_one_in_a_hurry_did_not_find_is_looked_up_for_the_others() -> None:
    bench = Bench(PRODUCER, stored(0))
    bench.caller.topology.topics.clear()
    looked: list[float] = []

    def find(name, timeout_ms, done) -> None:
        looked.append(timeout_ms)
        late = len(looked) == 1
        answer = TimedOut("GET", 0) if late else bench.topic
        bench.clock.call_later(timeout_ms if late else 1, lambda: done(answer))

    bench.sends._find_topic = find
    (hasty,) = bench.send(b"hasty", timeout_ms=10.0)
    (calm,) = bench.send(b"calm", timeout_ms=5_000.0)
    bench.caller.topology.topics["t"] = bench.topic
    bench.clock.advance(100)
    with pytest.raises(TimedOut):
        hasty.outcome()
    assert calm.outcome().offset == 0
