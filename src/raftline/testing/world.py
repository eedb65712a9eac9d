"""The simulated world: one thread, one heap of events, one seed.

Everything that happens is an event with a time; the world runs them in the order of (time,
sequence), so the same seed gives the same run under any PYTHONHASHSEED. Nothing here reads a real
clock or a global random source.

State
    The heap of events, the present instant, and the digest of everything that happened so far.
    A ``Process`` is one run of one program: a crash drops its events for ever, a pause parks them.

Invariants
    W1  Time never goes back, and events of one instant run in the order they were asked for.
    W2  No event of a process runs after the process died.
    W3  After a pause a process gets what its loop had ready, then its sockets, then its timers,
        as the real loop does after a late turn.

Costs
    About 1 us per event.
"""

import hashlib
import heapq
import random
import zlib
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

SOON, SOCKET, TIMER = 0, 1, 2  # kinds of event, in the order a woken process gets them (W3)
EPOCH_MS = 1_790_000_000_000  # the wall clock of the world at instant 0
_TRACE_FLUSH = 8192
_RUN_EVENTS = 4096  # of a long stretch, at a time


class Event:
    """One thing that will happen. Also the ``Timer`` a caller may cancel."""

    __slots__ = ("call", "due_ms", "kind", "process")

    def __init__(
        self, due_ms: float, call: "Callable[[], None] | None", process: "Process | None", kind: int
    ) -> None:
        self.due_ms = due_ms
        self.call = call
        self.process = process
        self.kind = kind

    def cancel(self) -> None:
        """Make sure it does not happen. Harmless afterwards."""
        self.call = None


class Runaway(Exception):
    """A run has more events than any sensible one: something goes round in circles."""


class Process:
    """One run of one program. What a crash ends and a pause stops."""

    __slots__ = ("alive", "name", "number", "on_error", "parked", "paused")

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.alive = True
        self.paused = False
        self.parked: list[Event] = []
        self.on_error: Callable[[BaseException], None] | None = None


class World:
    """The heap, the instant, the seed."""

    __slots__ = (
        "_digest", "_heap", "_processes", "_sequence", "_trace", "events", "events_max", "now_ms",
        "rng",
    )  # fmt: skip

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0.0
        self.events = 0
        self.events_max = 1 << 60
        self._heap: list[tuple[float, int, Event]] = []
        self._sequence = 0
        self._processes = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self._trace = array("d")

    def fork_rng(self) -> random.Random:
        """Return a new seeded source, so that one part's draws do not move another's."""
        return random.Random(self.rng.getrandbits(64))

    def new_process(self, name: str) -> Process:
        """Begin one run of a program."""
        self._processes += 1
        return Process(name, self._processes)

    def at(
        self,
        due_ms: float,
        call: Callable[[], None],
        process: Process | None = None,
        kind: int = TIMER,
    ) -> Event:
        """Run ``call`` at ``due_ms`` (or now, where that is past), on ``process`` if it lives."""
        if due_ms < self.now_ms:
            due_ms = self.now_ms
        event = Event(due_ms, call, process, kind)
        self._sequence += 1
        heapq.heappush(self._heap, (due_ms, self._sequence, event))
        return event

    def after(
        self,
        delay_ms: float,
        call: Callable[[], None],
        process: Process | None = None,
        kind: int = TIMER,
    ) -> Event:
        """Run ``call`` in ``delay_ms``."""
        return self.at(self.now_ms + delay_ms, call, process, kind)

    def note(self, data: bytes | memoryview) -> None:
        """Mix bytes that something depended on into the digest."""
        self._trace.append(zlib.crc32(data))

    def digest(self) -> str:
        """Return the hash over everything that happened so far."""
        self._flush()
        return self._digest.copy().hexdigest()

    def run_until(self, done: Callable[[], bool], limit_ms: float) -> bool:
        """Run events until ``done()`` or the instant ``limit_ms``; say whether it was done."""
        while not done():
            if not self._run(limit_ms, 1):
                self.now_ms = max(self.now_ms, limit_ms)
                return done()
        return True

    def run_to(self, limit_ms: float) -> None:
        """Run every event up to and including the instant ``limit_ms``."""
        while self._run(limit_ms, _RUN_EVENTS):
            pass
        self.now_ms = max(self.now_ms, limit_ms)

    def pause(self, process: Process) -> None:
        """Stop a process as SIGSTOP does: nothing of it runs until ``resume``."""
        process.paused = True

    def resume(self, process: Process) -> None:
        """Let a stopped process go on with a burst of what is late (W3)."""
        if not process.paused:
            return
        process.paused = False
        parked, process.parked = process.parked, []
        parked.sort(key=_wake_order)  # stable: equal kinds and times keep their order
        for event in parked:
            self._sequence += 1
            heapq.heappush(self._heap, (self.now_ms, self._sequence, event))

    def kill(self, process: Process) -> None:
        """End a process: none of its events happens (W2)."""
        process.alive = False
        process.parked = []

    def _run(self, limit_ms: float, events_max: int) -> bool:
        """Run up to ``events_max`` events that are due by ``limit_ms``; say whether any was."""
        heap, trace, pop = self._heap, self._trace, heapq.heappop
        left = events_max
        while left and heap and heap[0][0] <= limit_ms:
            due_ms, _, event = pop(heap)
            call = event.call
            if call is None:
                continue
            process = event.process
            if process is not None:
                if not process.alive:
                    continue
                if process.paused:
                    process.parked.append(event)
                    continue
                trace.append(process.number)
            left -= 1
            self.now_ms = due_ms
            self.events += 1
            event.call = None
            trace.append(due_ms)
            if len(trace) >= _TRACE_FLUSH:
                self._flush()
                if self.events > self.events_max:
                    raise Runaway(f"more than {self.events_max} events at {due_ms:.0f} ms")
            try:
                call()
            except BaseException as error:
                if process is None or process.on_error is None:
                    raise
                process.on_error(error)
        return left < events_max

    def _flush(self) -> None:
        self._digest.update(self._trace.tobytes())
        del self._trace[:]


def _wake_order(event: Event) -> tuple[int, float]:
    return (event.kind, event.due_ms)


class WallClock:
    """The wall clock of one host: it may be off, run fast or slow, and jump."""

    __slots__ = ("_anchor_mono_ms", "_anchor_wall_ms", "_rate", "_world")

    def __init__(self, world: World, offset_ms: float = 0.0) -> None:
        self._world = world
        self._anchor_mono_ms = world.now_ms
        self._anchor_wall_ms = EPOCH_MS + world.now_ms + offset_ms
        self._rate = 1.0

    def now_ms(self) -> int:
        """Return Unix milliseconds as this host believes them."""
        return int(self._anchor_wall_ms + (self._world.now_ms - self._anchor_mono_ms) * self._rate)

    def jump(self, by_ms: float) -> None:
        """Step the clock."""
        self._anchor(self.now_ms() + by_ms, self._rate)

    def drift(self, rate: float) -> None:
        """Run at ``rate`` seconds per second from now on."""
        self._anchor(self.now_ms(), rate)

    def true_up(self) -> None:
        """Set it right again."""
        self._anchor(EPOCH_MS + self._world.now_ms, 1.0)

    def _anchor(self, wall_ms: float, rate: float) -> None:
        self._anchor_mono_ms = self._world.now_ms
        self._anchor_wall_ms = wall_ms
        self._rate = rate


class SimClock:
    """The ``Clock`` of one process."""

    __slots__ = ("_mono_base_ms", "_process", "_wall", "_world")

    def __init__(
        self, world: World, process: Process, wall: WallClock, mono_base_ms: float = 0.0
    ) -> None:
        self._world = world
        self._process = process
        self._wall = wall
        self._mono_base_ms = mono_base_ms - world.now_ms

    def mono_ms(self) -> float:
        """Return monotonic milliseconds since some boot; never steps, runs on in a pause."""
        return self._world.now_ms + self._mono_base_ms

    def wall_ms(self) -> int:
        """Return Unix milliseconds; may step."""
        return self._wall.now_ms()

    def call_later(self, delay_ms: float, call: Callable[[], None]) -> Event:
        """Run ``call`` on the loop in ``delay_ms``."""
        world = self._world
        return world.at(world.now_ms + delay_ms, call, self._process, TIMER)

    def call_soon(self, call: Callable[[], None]) -> None:
        """Run ``call`` after what is ready now."""
        world = self._world
        world.at(world.now_ms, call, self._process, SOON)


class LaneSettings(msgspec.Struct, frozen=True):
    """How long a lane's jobs take."""

    latency_ms_min: float = 0.1
    latency_ms_mean: float = 0.4


class SimLane:
    """A helper thread: jobs at a later instant, strictly in order, then ``done`` on the loop."""

    __slots__ = ("_free_ms", "_jobs", "_process", "_rng", "_settings", "_world", "stalled_until_ms")

    def __init__(
        self,
        world: World,
        process: Process,
        rng: random.Random,
        settings: LaneSettings,
    ) -> None:
        self._world = world
        self._process = process
        self._rng = rng
        self._settings = settings
        self._jobs: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = (
            deque()
        )
        self._free_ms = 0.0
        self.stalled_until_ms = 0.0

    def submit(
        self, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Run ``job`` later, after the jobs before it."""
        world = self._world
        settings = self._settings
        chance = self._rng.random()
        took_ms = settings.latency_ms_min + 3.0 * settings.latency_ms_mean * chance * chance
        self._free_ms = max(world.now_ms, self._free_ms, self.stalled_until_ms) + took_ms
        self._jobs.append((job, done))
        world.at(self._free_ms, self._run_next, self._process, SOCKET)

    def _run_next(self) -> None:
        world = self._world
        if self.stalled_until_ms > world.now_ms:  # the stall began after the job was submitted
            world.at(self.stalled_until_ms, self._run_next, self._process, SOCKET)
            return
        job, done = self._jobs.popleft()
        result, failure = None, None
        try:
            result = job()
        except Exception as error:  # noqa: BLE001 - the port hands every failure to done
            failure = error
        world.at(world.now_ms, lambda: done(result, failure), self._process, SOCKET)
