"""Calls between nodes: every one is answered, once. C1, C2."""

import struct

import msgspec
import pytest

from raftline.model.errors import NotLeader, RaftlineError
from raftline.model.limits import FRAME_BYTES_MAX
from raftline.node.log_time import ClusterTime
from raftline.node.peers import Peers
from raftline.node.remote import VERB_READ, Remote, Reply
from raftline.transport.rpcs import encode_call, encode_reply
from tests.unit.node.little_ports import HandClock, HandLink, HandNetwork


class Ends:
    """A remote with a link to node 2."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.peers = Peers(
            self.clock,
            HandNetwork(),
            ClusterTime(self.clock),
            heartbeat_ms=100,
            silent_ms=800,
            on_gone=lambda _: None,
            on_silent=lambda _: None,
            on_heard=lambda _node, _restarted: None,
        )
        self.remote = Remote(self.clock, self.peers)
        self.peers.know("b:1", 2)
        self.link = HandLink(2, "b:1")
        self.peers.up(self.link)
        self.heard: list[object] = []

    def done(self, answer: bytes | RaftlineError) -> None:
        self.heard.append(answer.code if isinstance(answer, RaftlineError) else answer)
        if isinstance(answer, RaftlineError) and answer.unknown:
            self.heard.append("lost" in answer.extras)

    def ask(self) -> int:
        self.remote.call(2, VERB_READ, [b"body"], 1_000, self.done)
        (number,) = struct.unpack_from("<Q", self.link.sent[-1], 1)
        return number

    def answer(self, number: int, answer: bytes | RaftlineError) -> None:
        self.remote.on_reply(memoryview(b"".join(encode_reply(number, answer))))


def test_a_call_is_answered_by_its_reply_once() -> None:
    ends = Ends()
    first, second = ends.ask(), ends.ask()
    ends.answer(second, b"two")
    ends.answer(first, b"one")
    ends.answer(first, b"again")
    ends.remote.expire(float("inf"))
    assert ends.heard == [b"two", b"one"]


def test_a_refusal_comes_back_as_its_class() -> None:
    ends = Ends()
    ends.answer(ends.ask(), NotLeader("orders/0", 3))
    assert ends.heard == ["not_leader"]


@pytest.mark.parametrize("why", ["unknown node", "no link", "full link"])
def test_a_call_that_never_left_was_definitely_not_done(why: str) -> None:
    ends = Ends()
    ends.link.is_full = why == "full link"
    if why == "no link":
        ends.peers.down(ends.link)
    node = 9 if why == "unknown node" else 2
    ends.remote.call(node, VERB_READ, [], 1_000, ends.done)
    assert ends.heard == ["not_ready"]


@pytest.mark.parametrize("how", ["link", "silence", "time"])
def test_a_call_without_an_answer_may_have_been_done(how: str) -> None:
    """Lost with its link, or late: only the first may be repeated by who may repeat."""
    ends = Ends()
    number = ends.ask()
    if how == "link":
        ends.remote.on_link_down(HandLink(2, "b:1"))
        assert ends.heard == [], "another link to the same node"
        ends.remote.on_link_down(ends.link)
    elif how == "silence":
        ends.remote.on_silent(3)
        assert ends.heard == []
        ends.remote.on_silent(2)
    else:
        ends.remote.expire(ends.clock.now + 999)
        assert ends.heard == []
        ends.remote.expire(ends.clock.now + 1_000)
    ends.answer(number, b"late")
    assert ends.heard == ["timed_out", how != "time"]


def test_silence_ends_calls_on_a_link_that_was_greeted_before_its_node_had_a_number() -> None:
    """So are all links of a founder to those it founded the cluster with."""
    ends = Ends()
    ends.link = HandLink(0, "b:1")
    ends.peers.up(ends.link)
    ends.ask()
    ends.remote.on_silent(3)
    assert ends.heard == []
    ends.remote.on_silent(2)
    assert ends.heard == ["timed_out", True]


def test_bulk_calls_take_the_second_link_once_there_is_one() -> None:
    ends = Ends()
    ends.remote.call(2, VERB_READ, [], 1_000, ends.done, bulk=True)
    assert len(ends.link.sent) == 1, "the first link serves until then"
    bulk = HandLink(2, "b:1", "bulk")
    ends.peers.up(bulk)
    ends.remote.call(2, VERB_READ, [], 1_000, ends.done, bulk=True)
    assert (len(ends.link.sent), len(bulk.sent)) == (1, 1)


def test_a_question_that_does_not_parse_or_is_unknown_is_refused() -> None:
    """C2."""
    ends = Ends()

    def handler(body: memoryview, _timeout_ms: int, reply: Reply) -> None:
        reply(msgspec.msgpack.decode(body, type=bytes))

    ends.remote.handle(VERB_READ, handler)
    for verb, body in ((VERB_READ, msgspec.msgpack.encode(b"x")), (VERB_READ, b"\xc1"), (99, b"")):
        frame = b"".join(encode_call(7, verb, 50, [body]))
        ends.remote.on_call(ends.link, memoryview(frame))
    oks = [struct.unpack_from("<BQB", frame)[2] for frame in ends.link.sent]
    assert oks == [1, 0, 0]


def test_what_no_frame_can_carry_is_refused() -> None:
    """C3: the link would end the process, and the next one that is asked."""
    ends = Ends()
    ends.remote.call(2, VERB_READ, [bytes(FRAME_BYTES_MAX)], 1_000, ends.done)
    assert ends.heard == ["too_large"]
    assert ends.link.sent == []
    ends.remote.handle(VERB_READ, lambda _body, _ms, reply: reply(bytes(FRAME_BYTES_MAX)))
    ends.remote.on_call(ends.link, memoryview(b"".join(encode_call(7, VERB_READ, 50, []))))
    (sent,) = ends.link.sent
    assert len(sent) < 1_000
    answer = sent[:1] + struct.pack("<Q", ends.ask()) + sent[9:]
    ends.remote.on_reply(memoryview(answer))
    assert ends.heard == ["too_large", "too_large"]
