"""Channels to nodes: the network of the client's core over gRPC.

The library's own threads do the I/O; answers come back on the client's loop.

Rules
    H1  Batches for one partition of a node go one after the other: calls of one channel may
        overtake each other, and sequences must not.
    H2  Every call ends by its deadline: the library ends it there.
    H3  What failed before there was a connection was not sent; of anything else nobody knows.
    H4  Nothing is retried here, and no proxy of the environment is asked: the core decides.
"""

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc
import msgspec

from raftline.client import clock
from raftline.client.core.ports import Answer, Ask, Done, Lost, Reply
from raftline.client.grpc.remotes import Remote
from raftline.client.grpc.routes import remote_of
from raftline.model.errors import Internal, InvalidArgument, OverLimit, RaftlineError, TooLarge
from raftline.wire.proto.raftline.v1.errors_pb2 import Error

ERROR_KEY = "raftline-error-bin"
TIMEOUT_KEY = "raftline-timeout-ms"
OPTIONS = [
    ("grpc.enable_retries", 0),  # H4
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a client's connections are its own
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),  # how long one may take to connect
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
]
REFUSED_STATUS = 500  # of a reply that is a refusal: its code says what it is

_Place = tuple[str, str, int]  # host, topic, partition
_Waiting = tuple[Ask, int, float, Done]


class Channels:
    """All channels of a client (ports.Network)."""

    __slots__ = ("_busy", "_calls", "_channels", "_is_closed", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._channels: dict[str, Any] = {}
        self._calls: dict[int, tuple[str, Any, Done]] = {}  # under way: way, call, who hears
        self._busy: set[_Place] = set()
        self._waiting: dict[_Place, deque[_Waiting]] = {}  # H1
        self._is_closed = False

    def request(self, host: str, ask: Ask, timeout_ms: int, deadline_ms: float, done: Done) -> None:
        """Make a call (ports.Network)."""
        if self._is_closed:
            self._loop.call_soon(done, Lost("the client is closed", is_sent=False))
            return
        if not ask.is_batch:
            self._start(host, ask, timeout_ms, deadline_ms, done)
            return
        place = (host, ask.topic, ask.partition)
        if place in self._busy:
            self._waiting.setdefault(place, deque()).append((ask, timeout_ms, deadline_ms, done))
        else:
            self._busy.add(place)
            self._start(host, ask, timeout_ms, deadline_ms, self._then_next(place, done))

    def hang_up(self, way: str) -> None:
        """End the calls of a way (ports.Network)."""
        for name, call, _ in list(self._calls.values()):
            if name == way:
                call.cancel()

    def close(self) -> None:
        """Hang up on everybody, and tell who waits."""
        self._is_closed = True
        calls, self._calls = self._calls, {}
        waiting, self._waiting = self._waiting, {}
        for _, call, done in calls.values():
            call.cancel()
            done(Lost("the client is closed", is_sent=True))
        for rows in waiting.values():
            for *_, done in rows:
                done(Lost("the client is closed", is_sent=False))
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.close()

    # ------------------------------------------------------------------ batches in order

    def _then_next(self, place: _Place, done: Done) -> Done:
        """Tell of one batch and let the next one go. H1."""

        def told(answer: Answer) -> None:
            self._next(place)
            done(answer)

        return told

    def _next(self, place: _Place) -> None:
        waiting = self._waiting.get(place)
        if not waiting:
            self._waiting.pop(place, None)
            self._busy.discard(place)
            return
        ask, timeout_ms, deadline_ms, done = waiting.popleft()
        then = self._then_next(place, done)
        if clock.mono_ms() >= deadline_ms:
            self._loop.call_soon(then, Lost("others took all of its time", is_sent=False))
        else:
            self._start(place[0], ask, timeout_ms, deadline_ms, then)

    # ------------------------------------------------------------------ calls

    def _start(self, host: str, ask: Ask, timeout_ms: int, deadline_ms: float, done: Done) -> None:
        try:
            remote = remote_of(ask)
        except RaftlineError as error:
            self._loop.call_soon(done, refusal(error))
            return
        except (ValueError, TypeError) as error:  # a number that its field does not hold
            self._loop.call_soon(done, refusal(InvalidArgument(f"{ask.path}: {error}")))
            return
        left_s = max(0.001, (deadline_ms - clock.mono_ms()) / 1000)  # H2
        call = self._channel(host).unary_unary(
            remote.method,
            request_serializer=_encode,
            response_deserializer=remote.reply.FromString,
        )
        limit_ms = timeout_ms + ask.wait_ms
        under_way = call.future(
            remote.request, timeout=left_s, metadata=((TIMEOUT_KEY, str(limit_ms)),)
        )
        self._calls[id(under_way)] = (ask.way, under_way, done)
        under_way.add_done_callback(self._on_loop(lambda ended: self._ended(ended, remote)))

    def _on_loop(self, tell: Callable[[Any], None]) -> Callable[[Any], None]:
        """Have a thread of the library pass its news on to the loop."""

        def passing(ended: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is gone: so is who waited
                self._loop.call_soon_threadsafe(tell, ended)

        return passing

    def _ended(self, ended: Any, remote: Remote) -> None:
        known = self._calls.pop(id(ended), None)
        if known is None:
            return  # closed meanwhile
        done = known[2]
        code = ended.code()
        if code is not grpc.StatusCode.OK:
            done(_failure(ended, code))
            return
        try:
            answer = remote.answer(ended.result())
        except (ValueError, KeyError, TypeError) as error:
            answer = refusal(Internal(f"a reply of {remote.method} that makes no sense: {error}"))
        done(answer)

    def _channel(self, host: str) -> Any:
        channel = self._channels.get(host)
        if channel is None:
            channel = self._channels[host] = grpc.insecure_channel(host, options=OPTIONS)
        return channel


def refusal(error: RaftlineError) -> Reply:
    """Return an error as a reply that carries it."""
    told = {"code": error.code, "message": error.message, "hint": error.hint}
    return Reply(REFUSED_STATUS, b"", msgspec.json.encode({"error": told}))


def _failure(ended: Any, code: Any) -> Answer:
    """Return what a call that failed means to the core. H3."""
    for name, value in ended.trailing_metadata() or ():
        if name == ERROR_KEY:
            told = Error.FromString(value)
            return refusal(RaftlineError.from_wire((told.code, told.message, told.hint, {})))
    details = ended.details() or code.name.lower()
    status = grpc.StatusCode
    if code is status.RESOURCE_EXHAUSTED:
        if "larger than max" in details:
            return refusal(TooLarge("bytes of a call", *_sizes(details)))
        return refusal(OverLimit("calls of a node", 0, 0))
    if code is status.UNIMPLEMENTED:
        return refusal(Internal(f"the node knows no such call: {details[:300]}"))
    is_unsent = code is status.UNAVAILABLE and "failed to connect" in details
    return Lost(details[:300], is_sent=not is_unsent)


def _sizes(details: str) -> tuple[int, int]:
    """Return what was asked and allowed, of the library's words "(5000000 vs. 4194304)"."""
    found = re.search(r"(\d+) vs\. (\d+)", details)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _encode(request: Any) -> bytes:
    return request.SerializeToString()
