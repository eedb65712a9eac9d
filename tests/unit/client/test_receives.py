"""Receivers and settles: how much is leased, how long it is kept, what is said of it."""

from random import Random

import pytest

from raftline.client.core.caller import Caller
from raftline.client.core.ports import Lost
from raftline.client.core.receives import HANG_UP_MS, Pace, Receiver, Wish
from raftline.client.core.settles import ACK, EXTEND, NACK, RELEASE, Lease, Settles, ranges_of
from raftline.client.core.topology import TopicMap, Topology
from raftline.model.errors import LeaseLost, NoLeader, RaftlineError, TimedOut
from raftline.model.records import seal_batch
from tests.unit.client.world import FakeClock, Script, refusal, reply

LEASE_MS = 10_000
SETTLED = reply({"lost": [[]]})


def leased(start: int, count: int, *, attempt: int = 1, sequence: int = 1):
    """A reply with ``count`` messages from ``start`` on."""
    batch = bytearray(seal_batch([(None, b"v%d" % i, (), 5) for i in range(count)]))
    batch[:8] = start.to_bytes(8, "big")
    return reply(
        bytes(batch),
        Raftline_Partition=2,
        Raftline_Lease=f"3.{sequence}",
        Raftline_Lease_Expires_Ms=0,
        Raftline_Spans=f"{start},{start + count},{attempt},0",
    )


NOTHING = reply(b"", Raftline_Partition=-1, Raftline_Lease="0.0", Raftline_Spans="")


class Desk:
    def __init__(self, *answers, **wish) -> None:
        self.clock = FakeClock()
        self.network = Script(self.clock, *answers)
        caller = Caller(self.clock, self.network, Topology(["node:1"]), Random(1))
        self.settles = Settles(caller, timeout_ms=5000)
        wished = Wish(topic="t", group="g", lease_ms=LEASE_MS, **wish)
        self.receiver = Receiver(caller, self.settles, self._find, wished, 1)
        self.changes = 0
        self.receiver.on_change = self._changed

    def _find(self, name, timeout_ms, done) -> None:
        done(TopicMap(name, 1, "murmur2", 5))

    def _changed(self) -> None:
        self.changes += 1

    def polls(self):
        return [r.json() for r in self.network.seen if r.path.endswith("/receive")]

    def settled(self):
        return [r.json() for r in self.network.seen if r.path.endswith("/settle")]


def test_messages_come_with_their_lease() -> None:
    desk = Desk(leased(40, 1))
    desk.receiver.start()
    desk.clock.advance(2)
    ((lease, message),) = desk.receiver.ready
    assert (lease.partition, lease.term, lease.sequence, lease.attempt) == (2, 3, 1, 1)
    assert (message.offset, message.value) == (40, b"v0")
    (poll,) = desk.polls()
    assert (poll["count"], poll["wait"], poll["lease"]) == (1, 20_000, LEASE_MS)


def test_what_is_asked_for_is_leased_for_as_long_as_is_counted_on() -> None:
    """The topic's setting may be another one by now: then leases ran out that were counted on."""
    desk = Desk(leased(40, 1))
    desk.receiver = Receiver(
        desk.receiver._caller, desk.settles, desk._find, Wish(topic="t", group="g"), 1
    )
    desk.receiver.start()
    desk.clock.advance(2)
    ((lease, _),) = desk.receiver.ready
    (poll,) = desk.polls()
    assert poll["lease"] == lease.lease_ms == TopicMap("t", 1, "murmur2", 5).lease_ms


def test_nothing_is_asked_for_before_it_is_known_for_how_long() -> None:
    """Workers look for messages while the topic is looked up: what came first counted as lapsed."""
    desk = Desk(leased(40, 1))
    told = []
    desk.receiver = Receiver(
        desk.receiver._caller,
        desk.settles,
        lambda name, timeout_ms, done: told.append(done),
        Wish(topic="t", group="g"),
        1,
    )
    desk.receiver.start()
    desk.receiver.poll()  # a worker wants something
    desk.clock.advance(2)
    assert not desk.polls()
    assert not desk.receiver.wants_more
    told[0](TopicMap("t", 1, "murmur2", 5))
    desk.clock.advance(2)
    ((lease, _),) = desk.receiver.ready
    (poll,) = desk.polls()
    assert poll["lease"] == lease.lease_ms == 30_000
    assert not desk.receiver.is_lapsed(lease)


def test_nothing_is_asked_for_behind_what_is_there() -> None:
    """A worker's thread asks when it sees that nothing is there; the answer may come before that.

    What came then lay behind a task that took hours, and its lease was extended all the time.
    """
    desk = Desk(leased(0, 1), leased(1, 1), extend=True, count=1)
    desk.receiver.start()
    desk.clock.advance(2)
    assert len(desk.receiver.ready) == 1
    desk.receiver.poll()  # decided upon before
    desk.clock.advance(2)
    assert [message.offset for _, message in desk.receiver.ready] == [0]
    assert len(desk.polls()) == 1


def test_more_is_asked_for_as_the_worker_is_fast() -> None:
    desk = Desk(leased(0, 1), leased(1, 4), leased(5, 16), None)
    desk.receiver.start()
    for _ in range(3):
        desk.clock.advance(2)
        while desk.receiver.ready:
            desk.receiver.ready.popleft()
        assert desk.receiver.wants_more
        desk.receiver.poll()
    assert [poll["count"] for poll in desk.polls()] == [1, 4, 16, 64]


def test_a_slow_worker_is_given_one_at_a_time() -> None:
    pace = Pace(1, 500)
    for at in range(5):
        pace.asked(at * 2000.0)
        pace.worked(1, at * 2000.0 + 2000.0, LEASE_MS)
    assert pace.count == 1


def test_a_worker_that_gets_slow_is_given_less() -> None:
    pace = Pace(1, 500)
    for _ in range(6):
        pace.asked(0.0)
        pace.worked(pace.count, 1.0, LEASE_MS)
    assert pace.count == 500
    pace.asked(0.0)
    pace.worked(10, 1000.0, LEASE_MS)
    assert pace.count == 10


def test_the_next_poll_waits_until_half_is_left() -> None:
    desk = Desk(leased(0, 8))
    desk.receiver.start()
    desk.clock.advance(2)
    taken = [desk.receiver.ready.popleft() for _ in range(3)]
    assert len(taken) == 3
    assert not desk.receiver.wants_more
    desk.receiver.ready.popleft()
    assert desk.receiver.wants_more


def test_a_lease_that_ran_out_here_is_known() -> None:
    desk = Desk(leased(0, 1))
    desk.receiver.start()
    desk.clock.advance(2)
    ((lease, _),) = desk.receiver.ready
    assert not desk.receiver.is_lapsed(lease)
    desk.clock.advance(LEASE_MS)
    assert desk.receiver.is_lapsed(lease)


def test_it_ends_after_a_while_without_messages() -> None:
    desk = Desk(NOTHING, wait_ms=0)
    desk.receiver.start()
    desk.clock.advance(5)
    assert desk.receiver.is_over
    assert desk.receiver.error is None


def test_the_time_without_messages_is_that_in_which_a_node_was_asked() -> None:
    """A worker that drains ended with the first empty answer after a task of a second.

    The same where it took a while to find a node, or one that answers: tasks were left over.
    """
    desk = Desk(leased(0, 1), NOTHING, leased(1, 1), wait_ms=300, count=1)
    desk.clock.advance(1000)  # to find out where the topic is
    desk.receiver.start()
    desk.clock.advance(2)
    desk.receiver.ready.popleft()
    desk.clock.advance(1000)  # at work
    desk.receiver.poll()
    desk.clock.advance(2)
    assert not desk.receiver.is_over
    assert [message.offset for _, message in desk.receiver.ready] == [1]
    assert [poll["wait"] for poll in desk.polls()] == [300, 300, 299]


def test_a_worker_that_was_busy_for_long_waits_for_a_node_as_long_as_others() -> None:
    """It ended with the first failed call, for nobody had answered while it asked nobody."""
    desk = Desk(leased(0, 1), *[Lost("refused", is_sent=False)] * 100, timeout_ms=20_000.0)
    desk.receiver.start()
    desk.clock.advance(2)
    desk.receiver.ready.popleft()
    desk.clock.advance(60_000)
    desk.receiver.poll()
    desk.clock.advance(15_000)
    assert not desk.receiver.is_over
    desk.network.answers = [leased(1, 1)]
    desk.clock.advance(3_000)
    assert len(desk.receiver.ready) == 1


def test_it_goes_on_without_an_end() -> None:
    desk = Desk(NOTHING, NOTHING, leased(0, 1))
    desk.receiver.start()
    desk.clock.advance(10)
    assert len(desk.receiver.ready) == 1


def test_it_ends_with_an_error_if_nobody_answers() -> None:
    desk = Desk(*[refusal("no_leader")] * 200, timeout_ms=3000.0)
    desk.receiver.start()
    assert desk.clock.run_until(lambda: desk.receiver.is_over, 30_000)
    assert isinstance(desk.receiver.error, NoLeader)


def test_a_failover_is_survived() -> None:
    desk = Desk(Lost("broken", is_sent=True), refusal("no_leader"), leased(0, 1))
    desk.receiver.start()
    desk.clock.advance(1000)
    assert len(desk.receiver.ready) == 1


def test_what_waits_and_what_is_in_work_is_extended() -> None:
    desk = Desk(leased(0, 3), *[SETTLED] * 10, extend=True)
    desk.receiver.start()
    desk.clock.advance(2)
    in_work = desk.receiver.ready.popleft()
    desk.receiver.hold(in_work)
    desk.clock.advance(LEASE_MS * 3)
    assert not desk.receiver.is_lapsed(in_work[0])
    first = desk.settled()[0]
    assert first["lease"] == LEASE_MS
    assert first["settles"] == [[EXTEND, 3, 1, 1, 0, [0, 3]]]
    desk.receiver.let_go(in_work[1])
    before = len(desk.settled())
    desk.clock.advance(LEASE_MS * 0.8)
    assert {tuple(s["settles"][0][5]) for s in desk.settled()[before:]} == {(1, 3)}


def test_without_extending_nothing_is_said() -> None:
    desk = Desk(leased(0, 3))
    desk.receiver.start()
    desk.clock.advance(LEASE_MS * 2)
    assert not desk.settled()


def test_closing_gives_back_what_nobody_took() -> None:
    desk = Desk(leased(0, 3), SETTLED)
    desk.receiver.start()
    desk.clock.advance(2)
    desk.receiver.ready.popleft()
    desk.receiver.close()
    assert desk.settled() == [{"settles": [[RELEASE, 3, 1, 1, 0, [1, 3]]]}]


def test_what_is_in_work_is_extended_after_closing() -> None:
    desk = Desk(leased(0, 2), *[SETTLED] * 10, extend=True)
    desk.receiver.start()
    desk.clock.advance(2)
    in_work = desk.receiver.ready.popleft()
    desk.receiver.hold(in_work)
    desk.receiver.close()
    desk.clock.advance(LEASE_MS * 2)
    assert not desk.receiver.is_lapsed(in_work[0])
    desk.receiver.let_go(in_work[1])
    said = len(desk.settled())
    desk.clock.advance(LEASE_MS * 2)
    assert len(desk.settled()) == said


def test_closing_hangs_up_on_a_node_that_waits() -> None:
    desk = Desk(None)
    desk.receiver.start()
    desk.receiver.close()
    quiet: list[int] = []
    desk.receiver.when_quiet(lambda: quiet.append(1))
    desk.clock.advance(HANG_UP_MS - 1)
    assert not quiet
    desk.clock.advance(2)
    assert quiet == [1]
    desk.clock.advance(100_000)
    assert len(desk.network.seen) == 1
    assert desk.receiver.error is None


def test_a_poll_that_is_about_to_be_repeated_is_not_after_closing() -> None:
    """The node would wait for messages, with nobody to hang up on it."""
    desk = Desk(*[refusal("no_leader")] * 7, None)
    desk.receiver.start()
    assert desk.clock.run_until(lambda: len(desk.network.seen) == 7, 10_000)
    desk.clock.advance(2)
    desk.receiver.close()
    quiet: list[int] = []
    desk.receiver.when_quiet(lambda: quiet.append(1))
    desk.clock.advance(1_000)
    assert quiet == [1]
    assert len(desk.network.seen) == 7


def test_what_is_given_back_is_not_handed_out_meanwhile() -> None:
    """The worker's thread takes messages while the other one closes the receiver."""
    desk = Desk(leased(0, 3), SETTLED)
    desk.receiver.start()
    desk.clock.advance(2)
    taken: list[int] = []
    request = desk.network.request

    def meanwhile(*call) -> None:
        if desk.receiver.ready:
            taken.append(desk.receiver.ready.popleft()[1].offset)
        request(*call)

    desk.network.request = meanwhile
    desk.receiver.close()
    assert desk.settled() == [{"settles": [[RELEASE, 3, 1, 1, 0, [0, 3]]]}]
    assert not taken


def test_an_answer_that_is_near_is_given_back() -> None:
    desk = Desk(leased(7, 2), SETTLED)
    desk.receiver.start()
    desk.receiver.close()
    quiet: list[int] = []
    desk.receiver.when_quiet(lambda: quiet.append(1))
    desk.clock.advance(5)
    assert quiet == [1]
    assert desk.settled()[0]["settles"] == [[RELEASE, 3, 1, 1, 0, [7, 9]]]


@pytest.mark.parametrize(
    "bad",
    [
        reply(b"", Raftline_Partition="x", Raftline_Lease="1.1", Raftline_Spans="0,1,1,0"),
        reply(b"", Raftline_Partition=1, Raftline_Lease="1.1", Raftline_Spans="0,1,1,0"),
        reply(b"junk", Raftline_Partition=1, Raftline_Lease="1.1", Raftline_Spans="0,1,1,0"),
    ],
)
def test_a_reply_that_makes_no_sense_ends_the_receiver(bad) -> None:
    desk = Desk(bad)
    desk.receiver.start()
    desk.clock.advance(5)
    assert desk.receiver.error is not None


# ---------------------------------------------------------------------- settles


def lease(sequence: int = 1, attempt: int = 1) -> Lease:
    return Lease("t", 2, "g", 3, sequence, attempt, 0, LEASE_MS, 1e9)


def test_what_is_said_meanwhile_goes_together() -> None:
    desk = Desk(SETTLED, SETTLED, reply({"lost": [[], []]}))
    one, other = lease(1), lease(2)
    desk.settles.take([(one, 0, ACK, 0, "", None)])
    desk.settles.take([(one, 1, ACK, 0, "", None)])
    for offset in (5, 2, 3):
        desk.settles.take([(one, offset, ACK, 0, "", None)])
    desk.settles.take([(other, 9, ACK, 0, "", None)])
    assert len(desk.settled()) == 2
    done: list[int] = []
    desk.settles.flush(lambda: done.append(1))
    desk.clock.advance(5)
    assert done == [1]
    assert desk.settled()[2]["settles"] == [
        [ACK, 3, 1, 1, 0, [2, 4, 5, 6]],
        [ACK, 3, 2, 1, 0, [9, 10]],
    ]


def test_a_flush_waits_for_what_was_said_before_it_alone() -> None:
    """Other workers never stop acking: a flush that waited for all of it never ended."""
    desk = Desk(SETTLED, None, None, None)
    one = lease()
    desk.settles.take([(one, 0, ACK, 0, "", None)])
    done: list[int] = []
    desk.settles.flush(lambda: done.append(1))
    for offset in (1, 2):
        desk.settles.take([(one, offset, ACK, 0, "", None)])
    desk.clock.advance(2)
    assert done == [1]
    assert desk.settles.under_way == 2


def test_a_flush_waits_for_what_is_not_sent_yet() -> None:
    desk = Desk(SETTLED, None, SETTLED, SETTLED)
    one = lease()
    for offset in range(4):
        desk.settles.take([(one, offset, ACK, 0, "", None)])
    done: list[int] = []
    desk.settles.flush(lambda: done.append(1))
    desk.settles.take([(one, 4, ACK, 0, "", None)])
    desk.clock.advance(10)
    assert not done
    assert [s["settles"][0][5] for s in desk.settled()] == [[0, 1], [1, 2], [2, 4], [4, 5]]
    desk.network.seen[1].answer(SETTLED)
    assert done == [1]


def test_a_long_reason_is_cut_not_refused() -> None:
    desk = Desk(SETTLED)
    desk.settles.take([(lease(), 1, NACK, -1, "ä" * 5_000, None)])
    assert desk.settled()[0]["reason"] == "ä" * 1_000


def test_each_kind_has_its_request() -> None:
    desk = Desk(SETTLED, SETTLED, SETTLED)
    one = lease()
    desk.settles.take(
        [
            (one, 0, ACK, 0, "", None),
            (one, 1, NACK, -1, "boom", None),
            (one, 2, NACK, 500, "", None),
        ]
    )
    desk.clock.advance(5)
    said = desk.settled()
    assert [s["settles"][0][0] for s in said] == [ACK, NACK, NACK]
    assert said[1]["reason"] == "boom"
    assert "delay" not in said[1]
    assert said[2]["delay"] == 500


def test_a_lost_lease_is_told_to_who_waits() -> None:
    desk = Desk(reply({"lost": [[1, 2]]}))
    one = lease()
    heard: list[RaftlineError | None] = []
    desk.settles.take([(one, offset, ACK, 0, "", heard.append) for offset in (0, 1)])
    desk.clock.advance(5)
    assert heard[0] is None
    assert isinstance(heard[1], LeaseLost)
    assert desk.settles.lost_count == 1


def test_lost_after_a_repeat_is_unknown() -> None:
    desk = Desk(Lost("broken", is_sent=True), reply({"lost": [[0, 1]]}))
    heard: list[RaftlineError | None] = []
    desk.settles.take([(lease(), 0, ACK, 0, "", heard.append)])
    desk.clock.advance(3000)
    assert isinstance(heard[0], TimedOut)


def test_a_settle_ends_by_its_deadline() -> None:
    desk = Desk(*[refusal("no_leader")] * 100)
    heard: list[RaftlineError | None] = []
    desk.settles.take([(lease(), 0, ACK, 0, "", heard.append)])
    assert desk.clock.run_until(lambda: bool(heard), 5200)
    assert isinstance(heard[0], NoLeader)
    assert desk.settles.under_way == 0


@pytest.mark.parametrize(
    ("offsets", "ranges"), [([], []), ([4], [4, 5]), ([3, 1, 2, 2, 9], [1, 4, 9, 10])]
)
def test_ranges(offsets: list[int], ranges: list[int]) -> None:
    assert ranges_of(offsets) == ranges
