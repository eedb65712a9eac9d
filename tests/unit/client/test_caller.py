"""Calls: which are made again, where, and when they end."""

import zlib
from random import Random

import msgspec
import pytest

from raftline.client.core.caller import ATTEMPT_MS, PATIENCE_MS, Caller
from raftline.client.core.ports import Ask, Lost, Reply
from raftline.client.core.topology import ShardsInfo, TopicInfo, Topology
from raftline.client.core.wire import BadReply, ReplyReader, request_of
from raftline.model.errors import Internal, NoLeader, RaftlineError, TimedOut, Unavailable
from tests.unit.client.world import FakeClock, Script, refusal, reply

GET = Ask(method="GET", path="/v1/topics", is_repeatable=True)
POST = Ask(method="POST", path="/v1/topics", body=b"{}")


class Calling:
    def __init__(self, *answers, seeds: tuple[str, ...] = ("node:1", "node:2", "node:3")) -> None:
        self.clock = FakeClock()
        self.network = Script(self.clock, *answers)
        self.caller = Caller(self.clock, self.network, Topology(list(seeds)), Random(1))
        self.answers: list[Reply | RaftlineError] = []
        self.took_ms = 0.0

    def call(self, ask: Ask, timeout_ms: float = 10_000) -> Reply | RaftlineError:
        began = self.clock.now
        self.caller.call(ask, timeout_ms, self.answers.append)
        assert self.clock.run_until(lambda: bool(self.answers), timeout_ms + ask.wait_ms + 200)
        self.took_ms = self.clock.now - began
        self.clock.advance(20_000)
        (answer,) = self.answers
        return answer

    @property
    def hosts(self) -> list[str]:
        return [one.host for one in self.network.seen]


def test_an_answer_is_passed_on() -> None:
    calling = Calling(reply({"a": 1}))
    answer = calling.call(GET)
    assert isinstance(answer, Reply)
    assert answer.body == b'{"a": 1}'


def test_a_node_that_is_not_there_is_left_alone() -> None:
    calling = Calling(Lost("refused", is_sent=False), reply())
    assert isinstance(calling.call(POST), Reply)
    assert calling.hosts == ["node:1", "node:2"]


def test_what_may_have_happened_is_not_made_again() -> None:
    calling = Calling(Lost("broken", is_sent=True))
    assert isinstance(calling.call(POST), TimedOut)
    assert len(calling.hosts) == 1


def test_what_can_be_repeated_is() -> None:
    calling = Calling(Lost("broken", is_sent=True), refusal("timed_out", 504), reply())
    repeated: list[int] = []
    calling.caller.call(GET, 10_000, calling.answers.append, lambda: repeated.append(1))
    calling.clock.advance(5000)
    assert isinstance(calling.answers[0], Reply)
    assert repeated == [1, 1]


@pytest.mark.parametrize("code", ["not_leader", "no_leader", "not_ready", "shutting_down"])
def test_what_was_not_proposed_is_tried_again(code: str) -> None:
    calling = Calling(refusal(code), refusal(code), reply())
    assert isinstance(calling.call(POST), Reply)


def test_a_refusal_is_final() -> None:
    calling = Calling(refusal("topic_exists", 409))
    answer = calling.call(POST)
    assert isinstance(answer, RaftlineError)
    assert answer.code == "topic_exists"


def test_at_the_deadline_the_last_refusal_is_the_answer() -> None:
    calling = Calling(*[refusal("no_leader")] * 100)
    assert isinstance(calling.call(POST, 3000), NoLeader)
    assert calling.took_ms <= 3100


def test_a_node_that_hangs_costs_one_attempt() -> None:
    calling = Calling(None, reply())
    assert isinstance(calling.call(GET), Reply)
    assert calling.took_ms < ATTEMPT_MS + 1500
    assert calling.hosts == ["node:1", "node:2"]


def test_a_long_poll_is_given_its_time() -> None:
    ask = Ask(method="GET", path="/x", is_repeatable=True, wait_ms=20_000)
    calling = Calling(None, reply())
    calling.caller.call(ask, 5000, calling.answers.append)
    calling.clock.advance(20_000)
    assert len(calling.hosts) == 1
    calling.clock.advance(6000)
    assert len(calling.answers) == 1


def test_where_nobody_listens_the_caller_hears_it_soon() -> None:
    calling = Calling(*[Lost("refused", is_sent=False)] * 100)
    assert isinstance(calling.call(GET, 60_000), Unavailable)
    assert calling.took_ms < PATIENCE_MS + 1000


def test_where_nobody_listens_any_more_what_was_sent_stays_in_doubt() -> None:
    """C4: all nodes were killed after the first one took it in."""
    gone = [Lost("refused", is_sent=False)] * 400
    calling = Calling(Lost("broken", is_sent=True), *gone)
    ask = Ask(method="POST", path="/v1/topics/t/messages", body=b"{}", is_repeatable=True)
    assert isinstance(calling.call(ask), TimedOut)


@pytest.mark.parametrize("code", ["no_leader", "unknown_topic", "topic_exists", "disk_full"])
def test_no_later_refusal_ends_the_doubt_about_an_earlier_attempt(code: str) -> None:
    """C3."""
    for doubt in (Lost("broken", is_sent=True), refusal("timed_out", 504)):
        calling = Calling(doubt, *[refusal(code)] * 400)
        ask = Ask(method="DELETE", path="/v1/topics/t", is_repeatable=True)
        assert isinstance(calling.call(ask), TimedOut)
        calling = Calling(doubt, *[refusal(code)] * 400)
        answer = calling.call(GET)
        assert isinstance(answer, RaftlineError)
        assert answer.code == code, "a question changes nothing: nothing is in doubt"


def test_an_answer_that_makes_no_sense_is_a_bug() -> None:
    assert isinstance(Calling(reply(b"<html>", 500)).call(GET), Internal)


# ---------------------------------------------------------------------- topology


def topology() -> Topology:
    found = Topology(["seed:1"])
    found.take_topic(TopicInfo("t", 2, [], {"partitioner": "crc32", "lanes": 3, "lease_ms": 5000}))
    found.take_shards(
        info(
            {
                "shards": [
                    {"topic": "t", "partition": 1, "leader": 2},
                    {"topic": "x", "partition": 9, "leader": 1},
                ],
                "nodes": [{"id": 1, "http": "a:1"}, {"id": 2, "http": "b:2"}],
            }
        )
    )
    return found


def info(body: dict) -> ShardsInfo:
    return msgspec.convert(body, ShardsInfo)


def test_the_leader_is_asked_first() -> None:
    assert topology().host_of("t", 1, 0.0) == "b:2"


def test_a_leader_that_did_not_answer_is_left_alone_for_a_moment() -> None:
    found = topology()
    found.failed("b:2", 0.0)
    assert found.host_of("t", 1, 500.0) == "a:1"
    assert found.host_of("t", 1, 1500.0) == "b:2"
    found.failed("b:2", 2000.0)
    found.answered("b:2")
    assert found.host_of("t", 1, 2001.0) == "b:2"


def test_where_all_are_left_alone_each_has_its_turn() -> None:
    found = topology()
    for host in ("a:1", "b:2", "seed:1"):
        found.failed(host, 0.0)
    assert len({found.any_host(1.0) for _ in range(6)}) == 3


def test_a_topic_is_as_its_settings_say() -> None:
    topic = topology().topics["t"]
    assert (topic.count, topic.lanes, topic.lease_ms) == (2, 3, 5000)
    assert [topic.partition_of(b"%d" % i) for i in range(20)] == [
        zlib.crc32(b"%d" % i) % 2 for i in range(20)
    ]


def test_without_discovery_only_the_servers_given_are_asked() -> None:
    found = Topology(["seed:1"], discover=False)
    found.take_shards(info({"shards": [], "nodes": [{"id": 1, "http": "a:1"}]}))
    assert {found.any_host(0.0) for _ in range(5)} == {"seed:1"}


# ---------------------------------------------------------------------- bytes

REPLIES = (
    b"HTTP/1.1 200 OK\r\nContent-Type: x\r\nContent-Length: 5\r\n\r\nhello"
    b"HTTP/1.1 100 Continue\r\n\r\n"
    b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nConnection: close\r\n\r\n"
)


@pytest.mark.parametrize("step", [1, 2, 7, 50, 1000])
def test_replies_come_out_of_pieces_of_any_size(step: int) -> None:
    reader = ReplyReader()
    found: list[Reply] = []
    for at in range(0, len(REPLIES), step):
        found += reader.feed(REPLIES[at : at + step])
    assert [(one.status, one.body) for one in found] == [(200, b"hello"), (404, b"")]
    assert found[0].field(b"Content-Type") == "x"
    assert reader.is_last


@pytest.mark.parametrize(
    "data",
    [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"x" * 300_000],
)
def test_what_is_no_reply_is_refused(data: bytes) -> None:
    with pytest.raises(BadReply):
        ReplyReader().feed(data)


def test_content_length_comes_last() -> None:
    ask = Ask(method="POST", path="/x", content_type="a/b", body=b"body", priority=-3)
    data = request_of("h:1", ask, 7)
    assert data.endswith(b"Raftline-Priority: -3\r\nContent-Length: 4\r\n\r\nbody")
    assert data.startswith(b"POST /x HTTP/1.1\r\nHost: h:1\r\nContent-Type: a/b\r\n")
