"""The client's core put together: topology, calls, sends, receivers, settles."""

from collections.abc import Callable
from itertools import count
from random import Random
from urllib.parse import quote

import msgspec

from raftline.client.core.caller import Caller
from raftline.client.core.ports import Ask, Clock, Network, Reply, Timer
from raftline.client.core.receives import Receiver, Wish
from raftline.client.core.sends import Sends
from raftline.client.core.settles import Settles
from raftline.client.core.topology import ShardsInfo, TopicInfo, TopicMap, Topology
from raftline.client.core.wire import read_body
from raftline.model.errors import RaftlineError, UnknownTopic

REFRESH_MS = 30_000
REFRESH_MS_MIN = 100  # not more often when there is trouble
TOPICS_ASKED_MAX = 50  # by name; more are asked for all together

TopicDone = Callable[[TopicMap | RaftlineError], None]

_decode_shards = msgspec.json.Decoder(ShardsInfo).decode
_decode_topic = msgspec.json.Decoder(TopicInfo).decode


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a client behaves."""

    timeout_ms: float = 15_000.0
    linger_ms: float = 5.0
    batch_bytes: int = 256 << 10
    batch_messages: int = 5_000
    buffer_bytes: int = 64 << 20
    discover: bool = True
    is_grpc: bool = False  # what carries its calls


class Engine:
    """One client's state; all calls on one thread, but for ``receiver``."""

    __slots__ = (
        "_finding",
        "_is_refreshing",
        "_network",
        "_numbers",
        "_receivers",
        "_refresh_timer",
        "_refreshed_ms",
        "caller",
        "clock",
        "is_closed",
        "options",
        "sends",
        "settles",
        "topology",
    )

    def __init__(
        self, clock: Clock, network: Network, rng: Random, seeds: list[str], options: Options
    ) -> None:
        self.clock = clock
        self.options = options
        self.topology = Topology(
            seeds, rng.randrange(len(seeds)), discover=options.discover, is_grpc=options.is_grpc
        )
        self.caller = Caller(clock, network, self.topology, rng)
        self.caller.on_trouble = self.look_again
        self.sends = Sends(
            self.caller,
            self.find_or_create,
            linger_ms=options.linger_ms,
            batch_bytes=options.batch_bytes,
            batch_messages=options.batch_messages,
        )
        self.settles = Settles(self.caller, timeout_ms=options.timeout_ms)
        self.is_closed = False
        self._network = network
        self._numbers = count(1)  # of receivers
        self._receivers: dict[int, Receiver] = {}
        self._finding: dict[tuple[str, bool], list[TopicDone]] = {}
        self._is_refreshing = False
        self._refreshed_ms = -1e9
        self._refresh_timer: Timer | None = None

    # ------------------------------------------------------------------ topology

    def start(self) -> None:
        """Look at the cluster, and again from time to time."""
        self._refresh()

    def look_again(self) -> None:
        """Leaders may have changed."""
        if self.clock.mono_ms() - self._refreshed_ms >= REFRESH_MS_MIN:
            self._refresh()

    def _refresh(self) -> None:
        if self._is_refreshing or self.is_closed:
            return
        self._is_refreshing = True
        self._refreshed_ms = self.clock.mono_ms()
        names = list(self.topology.topics)
        path = "/shards-info"
        if len(names) <= TOPICS_ASKED_MAX:
            path += "?topics=" + ",".join(quote(name, safe="") for name in names)

        def answered(answer: Reply | RaftlineError) -> None:
            self._is_refreshing = False
            if isinstance(answer, Reply):
                found = read_body(_decode_shards, answer)
                if isinstance(found, ShardsInfo):
                    self.topology.take_shards(found, names)
            self._plan_refresh()

        self.caller.call(Ask(method="GET", path=path, is_repeatable=True), 5_000, answered)

    def _plan_refresh(self) -> None:
        if self._refresh_timer is not None:
            self._refresh_timer.cancel()
        if not self.is_closed:
            self._refresh_timer = self.clock.call_later(REFRESH_MS, self._refresh)

    def find_topic(self, name: str, timeout_ms: float, done: TopicDone) -> None:
        """Find a topic."""
        self._find(name, timeout_ms, done, create=False)

    def find_or_create(self, name: str, timeout_ms: float, done: TopicDone) -> None:
        """Find a topic; create it as a first publish does, where the cluster allows that."""
        self._find(name, timeout_ms, done, create=True)

    def _find(self, name: str, timeout_ms: float, done: TopicDone, *, create: bool) -> None:
        known = self.topology.topics.get(name)
        if known is not None:
            done(known)
            return
        waiting = self._finding.get((name, create))
        if waiting is not None:
            waiting.append(done)
            return
        self._finding[name, create] = [done]
        path = f"/v1/topics/{quote(name, safe='')}"

        def found(answer: Reply | RaftlineError) -> None:
            if isinstance(answer, UnknownTopic) and create:
                ask = Ask(method="PUT", path=path, is_repeatable=True)
                self.caller.call(ask, timeout_ms, finish)
            else:
                finish(answer)

        def finish(answer: Reply | RaftlineError) -> None:
            found = read_body(_decode_topic, answer) if isinstance(answer, Reply) else answer
            result: TopicMap | RaftlineError
            if isinstance(found, TopicInfo):
                result = self.topology.take_topic(found)
                if not self.topology.nodes:
                    self.look_again()
            else:
                result = found
            for tell in self._finding.pop((name, create)):
                tell(result)

        self.caller.call(Ask(method="GET", path=path, is_repeatable=True), timeout_ms, found)

    # ------------------------------------------------------------------ work

    def call(
        self, ask: Ask, timeout_ms: float, done: Callable[[Reply | RaftlineError], None]
    ) -> None:
        """Make one call."""
        self.caller.call(ask, timeout_ms, done)

    def receiver(self, wish: Wish) -> Receiver:
        """Begin to receive. On any thread: each step is one that no other can come between."""
        number = next(self._numbers)
        receiver = Receiver(self.caller, self.settles, self.find_topic, wish, number)
        for before in list(self._receivers):  # numbers alone: with rows it would be many steps
            one = self._receivers.get(before)
            if one is not None and one.is_closed:
                self._receivers.pop(before, None)
        self._receivers[number] = receiver
        return receiver

    def flush(self, done: Callable[[], None]) -> None:
        """Let everything go; ``done`` when every send and settle has its outcome."""
        left = 2

        def one_done() -> None:
            nonlocal left
            left -= 1
            if not left:
                done()

        self.sends.flush(one_done)
        self.settles.flush(one_done)

    def close_receivers(self, done: Callable[[], None]) -> None:
        """Give back what was leased and not worked on; ``done`` when no poll is on its way."""
        receivers = [self._receivers.pop(number) for number in list(self._receivers)]
        left = len(receivers)

        def one_done() -> None:
            nonlocal left
            left -= 1
            if not left:
                done()

        for receiver in receivers:
            receiver.close()
            receiver.when_quiet(one_done)
        if not receivers:
            done()

    def close(self) -> None:
        """End the upkeep, and the calls that somebody waits for still."""
        self.is_closed = True
        self.caller.close()
        if self._refresh_timer is not None:
            self._refresh_timer.cancel()
