"""Calls between nodes: a numbered question on a link, its answer back on the same link.

State
    Calls we wait for, by number; handlers by verb.

Invariants
    C1  Every call is answered once: by its reply, by ``NotReady`` (it never left: definitely not
        done) or by ``TimedOut`` (it may have been done; ``lost`` in its extras: the link broke, or
        the answer made no sense).
    C2  A question that does not parse is refused; it harms nobody else on its link.
    C3  What no frame can carry is refused, question or answer: the link would take it for a bug.
"""

import struct
from collections.abc import Callable, Sequence

import msgspec

from raftline.model.errors import InvalidArgument, NotReady, RaftlineError, TimedOut, TooLarge
from raftline.model.limits import FRAME_BYTES_MAX
from raftline.node.peers import Peers
from raftline.node.ports import Clock
from raftline.transport.ports import Link
from raftline.transport.rpcs import decode_call, decode_reply, encode_call, encode_reply

VERB_APPEND = 1
VERB_READ = 2
VERB_TIME = 3
VERB_COMMAND = 4
VERB_DIGEST = 5
VERB_FETCH = 6
VERB_FETCH_STATE = 7
VERB_SNAPSHOT_FAILED = 8
VERB_MEMBER = 9
VERB_ADMIT = 10
VERB_RANGE = 11
VERB_STATE = 12
VERB_POSITION = 13
VERB_FORCE = 14
VERB_FRESH = 15
VERB_GROUP = 20
VERB_SCHEDULE = 21
VERB_APPEND_SIDE = 22
VERB_STREAM = 23
VERB_ASK = 24
VERB_RECEIVE = 25
VERB_SETTLE = 26
VERB_READY = 27
VERB_GLANCE = 28
VERB_REACHED = 29

BODY_BYTES_MAX = FRAME_BYTES_MAX - 64  # beside it there is a head

Answer = bytes | RaftlineError
Reply = Callable[[Answer], None]
Handler = Callable[[memoryview, int, Reply], None]  # body, timeout_ms, reply


class Remote:
    """Questions to and from other nodes."""

    def __init__(self, clock: Clock, peers: Peers) -> None:
        self._clock = clock
        self._peers = peers
        self._next = 0
        self._calls: dict[int, tuple[Link, float, str, int, Callable[[Answer], None]]] = {}
        self._handlers: dict[int, Handler] = {}

    def handle(self, verb: int, handler: Handler) -> None:
        """Let ``handler`` answer questions of this kind."""
        self._handlers[verb] = handler

    def call(
        self,
        node: int,
        verb: int,
        body: Sequence[bytes],
        timeout_ms: int,
        done: Callable[[Answer], None],
        *,
        bulk: bool = False,
    ) -> None:
        """Ask ``node``; ``done`` hears the answer. C1."""
        peer = self._peers.get(node)
        link = self._peers.bulk_link(node) if bulk else None
        if link is None and peer is not None:
            link = peer.control
        if link is None:
            done(NotReady(f"node {node} is not connected"))
            return
        self.call_link(link, verb, body, timeout_ms, done)

    def call_link(
        self,
        link: Link,
        verb: int,
        body: Sequence[bytes],
        timeout_ms: int,
        done: Callable[[Answer], None],
    ) -> None:
        """Ask whoever is at the other end of ``link``. C1."""
        size = sum([len(part) for part in body])
        if size > BODY_BYTES_MAX:
            done(TooLarge("bytes of a call between nodes", size, BODY_BYTES_MAX))  # C3
            return
        self._next += 1
        number = self._next
        if not link.send(encode_call(number, verb, timeout_ms, body)):
            done(NotReady(f"the link to {link.peer.name} is full or closed"))
            return
        deadline = self._clock.mono_ms() + timeout_ms
        self._calls[number] = (link, deadline, link.peer.name, timeout_ms, done)

    def on_call(self, link: Link, frame: memoryview) -> None:
        """Answer a question."""
        number, verb, timeout_ms, body = decode_call(frame)
        handler = self._handlers.get(verb)

        def reply(answer: Answer) -> None:
            if isinstance(answer, bytes) and len(answer) > BODY_BYTES_MAX:  # C3
                answer = TooLarge("bytes of an answer between nodes", len(answer), BODY_BYTES_MAX)
            link.send(encode_reply(number, answer))

        if handler is None:
            reply(NotReady(f"this node does not answer verb {verb}"))
            return
        try:
            handler(body, timeout_ms, reply)
        except (msgspec.DecodeError, struct.error) as error:  # C2
            reply(InvalidArgument(f"a call of kind {verb} does not parse: {error}"))

    def on_reply(self, frame: memoryview) -> None:
        """Hand an answer to who asked; a late one is dropped."""
        number, answer = decode_reply(frame)
        call = self._calls.pop(number, None)
        if call is None:
            return
        _, _, name, timeout_ms, done = call
        try:
            done(answer)
        except msgspec.DecodeError:
            done(_lost(name, timeout_ms))  # C1: whoever asked hears something
            raise

    def on_link_down(self, link: Link) -> None:
        """Tell everybody who waits for answers by this link. C1."""
        self._lose([number for number, call in self._calls.items() if call[0] is link])

    def on_silent(self, node: int) -> None:
        """A node has not been heard from: its answers are not to be waited for. C1.

        Its links count, too, that it greeted on when it had no number yet (a founder's have none).
        """
        peer = self._peers.get(node)
        links = (None, None) if peer is None else (peer.control, peer.bulk)
        self._lose(
            [
                number
                for number, (link, *_) in self._calls.items()
                if link in links or link.peer.node == node
            ]
        )

    def _lose(self, numbers: list[int]) -> None:
        for number in numbers:
            _, _, name, timeout_ms, done = self._calls.pop(number)
            done(_lost(name, timeout_ms))

    @property
    def is_waiting(self) -> bool:
        """Say whether any call has no answer yet."""
        return bool(self._calls)

    def expire(self, now_ms: float) -> None:
        """Answer the overdue. C1."""
        late = [number for number, call in self._calls.items() if call[1] <= now_ms]
        for number in late:
            _, _, name, timeout_ms, done = self._calls.pop(number)
            done(TimedOut(f"a call to {name}", timeout_ms))


def _lost(name: str, timeout_ms: int) -> TimedOut:
    error = TimedOut(f"a call to {name}", timeout_ms)
    error.extras["lost"] = 1
    return error
