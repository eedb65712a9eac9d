"""Calls of jobs over HTTP: repeated until answered, to the leader where it is known (fenced.py)."""

import http.client
from collections.abc import Sequence
from typing import Any

import msgspec

from raftline.client import clock
from raftline.client.core.topology import ShardsInfo, TopicInfo, Topology
from raftline.client.servers import server_list
from raftline.model.errors import (
    Internal,
    InvalidArgument,
    OverLimit,
    RaftlineError,
    TimedOut,
    Unavailable,
    UnknownTopic,
)
from raftline.model.limits import WAIT_MS_MAX

JSON = "application/json"
BATCH = "application/vnd.raftline.batch"
TIMEOUT_FIELD = "Raftline-Timeout-Ms"
ATTEMPT_MS = 10_000  # a node that hangs costs no more
PATIENCE_MS = 5_000  # where nobody listens at all
PAUSE_MS_MIN, PAUSE_MS_MAX = 20.0, 500.0
SLACK_MS = 1_000  # a node ends a call in time itself; this is for its answer to arrive
UNKNOWN_TRIES = 5  # a node may not have heard of a new topic yet
LOOK_MS = 5_000  # how often leaders are looked up at most, while all goes well

Place = tuple[str, int]  # topic, partition; -1: any


class Reply:
    """The answer of a node."""

    __slots__ = ("body", "status")

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.body = body

    def json(self) -> dict[str, Any]:
        """Return the body as JSON. Raises Internal."""
        try:
            return msgspec.json.decode(self.body, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Internal(f"a node answered {self.status} with no JSON object") from error

    def error(self) -> RaftlineError:
        """Return the refusal."""
        try:
            told = _decode_refusal(self.body).error
        except (msgspec.DecodeError, UnicodeDecodeError):
            return Internal(f"a node answered {self.status} without saying why")
        return RaftlineError.from_wire((told.code, told.message, told.hint, {}))


class _Told(msgspec.Struct):
    code: str = ""
    message: str = ""
    hint: str = ""


class _Refusal(msgspec.Struct):
    error: _Told


class FencedCalls:
    """Connections to the nodes of one cluster, one each."""

    __slots__ = ("_connections", "_looked_ms", "_topology", "timeout_ms")

    def __init__(self, servers: Sequence[str] | str, timeout_s: float, turn: int = 0) -> None:
        hosts, is_grpc = server_list(servers)
        if is_grpc or not hosts:
            raise InvalidArgument("jobs ask over HTTP", "name servers as http://host:port")
        if timeout_s <= 0:
            raise InvalidArgument(f"a timeout of {timeout_s} s", "use more than none")
        self.timeout_ms = timeout_s * 1000
        self._topology = Topology(hosts, turn)
        self._connections: dict[str, http.client.HTTPConnection] = {}
        self._looked_ms: dict[str, float] = {}

    def close(self) -> None:
        """Hang up."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()

    def call(
        self,
        method: str,
        path: str,
        place: Place,
        body: bytes | None = None,
        kind: str = "",
        *,
        accept: str = JSON,
        wait_ms: int = 0,
        is_any: bool = False,
    ) -> Reply:
        """Make a call until it is answered. Raises RaftlineError. F1, F2, F3."""
        began_ms = clock.mono_ms()
        until_ms = began_ms + self.timeout_ms + wait_ms
        problem: RaftlineError | None = None
        tries = unknown = 0
        is_met = False  # somebody answered, whatever it was
        while True:
            now_ms = clock.mono_ms()
            if now_ms >= until_ms:
                raise problem or TimedOut(f"{method} {path[:200]}", int(self.timeout_ms))
            host = self._host(place, is_any=is_any)
            left_ms = min(until_ms - now_ms, ATTEMPT_MS + wait_ms)
            headers = {TIMEOUT_FIELD: str(int(max(1, min(left_ms - wait_ms, WAIT_MS_MAX))))}
            headers["Accept"] = accept
            if kind:
                headers["Content-Type"] = kind
            try:
                reply = self._once(host, method, path, body, headers, left_ms)
            except (OSError, http.client.HTTPException) as error:
                self._drop(host)
                self._topology.failed(host, clock.mono_ms())
                reason = str(error) or type(error).__name__
                problem = Unavailable(
                    f"no node answers at {', '.join(self._topology.seeds)}: {host}: {reason}",
                    "start one (make up, raftline up, raftline serve), or name another server",
                )
                if not is_met and clock.mono_ms() - began_ms > PATIENCE_MS:
                    raise problem from error
            else:
                is_met = True
                self._topology.answered(host)
                if reply.status < 400:
                    return reply
                problem = reply.error()
                unknown += isinstance(problem, UnknownTopic)
                if not _is_passing(problem) or unknown >= UNKNOWN_TRIES:
                    raise problem
            self._looked_ms.pop(place[0], None)  # leaders may have changed
            pause_ms = min(PAUSE_MS_MAX, PAUSE_MS_MIN * 2 ** min(tries, 10))
            clock.pause(min(pause_ms, max(0.0, until_ms - clock.mono_ms())))
            tries += 1

    def _once(
        self,
        host: str,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        left_ms: float,
    ) -> Reply:
        connection = self._connections.get(host)
        is_kept = connection is not None
        if connection is None:
            name, _, port = host.rpartition(":")
            connection = http.client.HTTPConnection(name.strip("[]"), int(port))
            self._connections[host] = connection
        connection.timeout = left_ms / 1000 + SLACK_MS / 1000
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        try:
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
        except (ConnectionError, http.client.BadStatusLine):
            if not is_kept:
                raise
            self._drop(host)  # the node hung up on an idle connection: once more on a new one
            return self._once(host, method, path, body, headers, left_ms)
        return Reply(response.status, response.read())

    def _drop(self, host: str) -> None:
        connection = self._connections.pop(host, None)
        if connection is not None:
            connection.close()

    # ------------------------------------------------------------------ where

    def _host(self, place: Place, *, is_any: bool) -> str:
        """Return whom to ask. F1."""
        topic, partition = place
        now_ms = clock.mono_ms()
        if partition >= 0 and now_ms - self._looked_ms.get(topic, -LOOK_MS) >= LOOK_MS:
            self._looked_ms[topic] = now_ms
            self._look_up(topic)
        if is_any or partition < 0:
            return self._topology.any_host(now_ms)
        return self._topology.host_of(topic, partition, now_ms)

    def _look_up(self, topic: str) -> None:
        """Ask who leads what; where nobody says so, any node does and forwards."""
        host = self._topology.any_host(clock.mono_ms())
        headers = {TIMEOUT_FIELD: "2000"}
        try:
            if topic not in self._topology.topics:
                reply = self._once(host, "GET", f"/v1/topics/{topic}", None, headers, 2_000)
                if reply.status == 200:
                    self._topology.take_topic(_decode_topic(reply.body))
            reply = self._once(host, "GET", f"/shards-info?topics={topic}", None, headers, 2_000)
            if reply.status == 200:
                self._topology.take_shards(_decode_shards(reply.body), [topic])
        except (OSError, http.client.HTTPException, msgspec.DecodeError):
            self._drop(host)
            self._topology.failed(host, clock.mono_ms())


def _is_passing(error: RaftlineError) -> bool:
    """Say whether the same call may be taken later. All calls here may be repeated."""
    return isinstance(error, Unavailable | TimedOut | OverLimit | UnknownTopic)


_decode_refusal = msgspec.json.Decoder(_Refusal).decode
_decode_topic = msgspec.json.Decoder(TopicInfo).decode
_decode_shards = msgspec.json.Decoder(ShardsInfo).decode
