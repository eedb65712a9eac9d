"""One call, tried on one node after another until it is answered or its time is up.

Rules
    C1  What may have reached a node is sent again only if that does no harm (``is_repeatable``).
    C2  An error that says "nothing was proposed" is tried again after a pause, within the timeout.
    C3  Every call ends by its deadline: with the last refusal where nothing can have happened,
        with ``TimedOut`` where something may have. Once an attempt may have been carried out, no
        refusal of a later one says otherwise.
    C4  Where no node listens at all and nothing was sent, the caller hears it after
        ``PATIENCE_MS``.
    C5  An attempt that can be repeated has ``ATTEMPT_MS``, so that a node that hangs costs no more.
    C6  Once the client is closed no attempt is made: who waits for an answer hears it at once.
"""

from collections.abc import Callable
from random import Random

from raftline.client.core.ports import Answer, Ask, Clock, Lost, Network, Reply
from raftline.client.core.topology import Topology
from raftline.client.core.wire import error_of
from raftline.model.errors import (
    NotReady,
    OverLimit,
    RaftlineError,
    ShuttingDown,
    TimedOut,
    Unavailable,
    UnknownTopic,
)
from raftline.model.limits import WAIT_MS_MAX

ATTEMPT_MS = 4_000
PATIENCE_MS = 3_000
PAUSE_MS_MIN, PAUSE_MS_MAX = 20.0, 500.0
SLACK_MS = 1_000  # a node ends a call in time itself; this is for its answer to arrive
LATE_MS = 100  # the same at the very end of a call
UNKNOWN_TOPIC_TRIES = 3  # a node may not have heard of a new topic yet


AskDone = Callable[[Reply | RaftlineError], None]


class Caller:
    """Makes calls to whichever node answers."""

    __slots__ = ("clock", "is_closed", "network", "on_trouble", "resting", "rng", "topology")

    def __init__(self, clock: Clock, network: Network, topology: Topology, rng: Random) -> None:
        self.clock = clock
        self.network = network
        self.topology = topology
        self.rng = rng
        self.on_trouble: Callable[[], None] = lambda: None  # leaders may have changed
        self.is_closed = False
        self.resting: set[_Call] = set()  # until their next attempt

    def call(
        self,
        ask: Ask,
        timeout_ms: float,
        done: AskDone,
        repeated: Callable[[], None] | None = None,
        is_wanted: Callable[[], bool] | None = None,
    ) -> None:
        """Make a call; ``done`` hears of it once, by the deadline. C3.

        ``repeated`` is called before a call that may have happened is made again; it is not made
        again once ``is_wanted`` says so.
        """
        _Call(self, ask, timeout_ms, done, repeated, is_wanted).attempt()

    def close(self) -> None:
        """End the calls that wait for their next attempt; others end with this one. C6."""
        self.is_closed = True
        for call in list(self.resting):
            call.rested()

    def pause_ms(self, tries: int) -> float:
        """Return how long to wait before the next attempt."""
        pause = min(PAUSE_MS_MAX, PAUSE_MS_MIN * 2 ** min(tries, 10))
        return pause * (0.5 + self.rng.random() / 2)


class _Call:
    __slots__ = (
        "_ask",
        "_began_ms",
        "_caller",
        "_deadline_ms",
        "_done",
        "_host",
        "_is_wanted",
        "_may_have_happened",
        "_problem",
        "_repeated",
        "_timeout_ms",
        "_tries",
        "_was_heard",
    )

    def __init__(
        self,
        caller: Caller,
        ask: Ask,
        timeout_ms: float,
        done: AskDone,
        repeated: Callable[[], None] | None,
        is_wanted: Callable[[], bool] | None,
    ) -> None:
        self._caller = caller
        self._repeated = repeated
        self._is_wanted = is_wanted
        self._ask = ask
        self._done = done
        self._timeout_ms = timeout_ms
        self._began_ms = caller.clock.mono_ms()
        self._deadline_ms = self._began_ms + timeout_ms + ask.wait_ms
        self._tries = 0
        self._host = ""
        self._problem: RaftlineError | None = None
        self._may_have_happened = False
        self._was_heard = False  # some node answered something

    def attempt(self) -> None:
        """Ask a node, unless the time is up or nobody wants the answer any more."""
        if self._problem is not None and self._is_wanted is not None and not self._is_wanted():
            self._fail(self._problem)
            return
        caller, ask = self._caller, self._ask
        if caller.is_closed:
            self._fail(Unavailable("the client is closed", "connect again"))
            return
        now = caller.clock.mono_ms()
        left = self._deadline_ms - now
        if left <= 0:
            self._give_up()
            return
        if self._may_have_happened and self._repeated is not None:
            self._repeated()
        self._host = host = caller.topology.host_of(ask.topic, ask.partition, now)
        limit = left - ask.wait_ms
        if ask.is_repeatable:
            limit = min(limit, ATTEMPT_MS)  # C5
        timeout = max(1, min(int(limit), WAIT_MS_MAX))
        until = min(now + ask.wait_ms + timeout + SLACK_MS, self._deadline_ms + LATE_MS)
        caller.network.request(host, ask, timeout, until, self._answered)

    def _answered(self, answer: Answer) -> None:
        caller = self._caller
        if isinstance(answer, Lost):
            self._lost(answer)
            return
        self._was_heard = True
        caller.topology.answered(self._host)
        if answer.status < 400:
            self._done(answer)
            return
        error = error_of(answer, self._host)
        if isinstance(error, TimedOut):
            self._may_have_happened = True
            if not self._ask.is_repeatable:  # C1
                self._done(error)
                return
        elif isinstance(error, UnknownTopic) and self._tries < UNKNOWN_TOPIC_TRIES:
            if self._ask.method != "POST":
                self._fail(error)
                return
        elif not isinstance(error, Unavailable | OverLimit):
            self._fail(error)
            return
        if isinstance(error, NotReady | ShuttingDown):
            caller.topology.failed(self._host, caller.clock.mono_ms())
        self._again(error)

    def _lost(self, lost: Lost) -> None:
        caller = self._caller
        now = caller.clock.mono_ms()
        caller.topology.failed(self._host, now)
        if lost.is_sent:
            self._may_have_happened = True
            if not self._ask.is_repeatable:  # C1
                self._done(self._timed_out())
                return
        problem = Unavailable(
            f"no node answers at {', '.join(caller.topology.seeds)}: {lost.reason}",
            "start one (raftline up, raftline serve), or connect to another address",
        )
        is_silent = not self._was_heard and not self._may_have_happened
        if is_silent and now - self._began_ms > PATIENCE_MS:  # C4
            self._done(problem)
            return
        self._again(problem)

    def _again(self, problem: RaftlineError) -> None:
        if self._is_wanted is not None and not self._is_wanted():
            self._fail(problem)
            return
        self._problem = problem
        self._tries += 1
        caller = self._caller
        caller.on_trouble()
        left = self._deadline_ms - caller.clock.mono_ms()
        pause = caller.pause_ms(self._tries)
        caller.resting.add(self)
        if caller.is_closed:
            self.rested()
        else:
            caller.clock.call_later(max(0.0, min(pause, left)), self.rested)

    def rested(self) -> None:
        """Make the next attempt, once."""
        if self in self._caller.resting:
            self._caller.resting.discard(self)
            self.attempt()

    def _give_up(self) -> None:
        self._fail(self._problem or self._timed_out())

    def _fail(self, error: RaftlineError) -> None:
        """End with an error. C3."""
        is_doubtful = self._may_have_happened and self._ask.method != "GET"
        self._done(self._timed_out() if is_doubtful else error)

    def _timed_out(self) -> RaftlineError:
        return TimedOut(f"{self._ask.method} {self._ask.path}", int(self._timeout_ms))
