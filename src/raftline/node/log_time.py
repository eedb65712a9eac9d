"""Log time: the monotone clock that is written into the log.

State
    ``ClusterTime``: the distance of every peer's wall clock from our monotonic one, as its last
    heartbeats told. ``LogTime``: one shard's last stamp, and when (monotonic) it was given or seen.

Invariants
    T1  Stamps of one shard never decrease, whoever leads.
    T2  Log time never jumps and never stops: behind cluster time it runs at most 10 % fast,
        ahead of it at half speed, measured on the leader's monotonic clock.
    T3  Cluster time is the median of the nodes' wall clocks, so one wrong clock moves nothing: not
        even our own, when it jumps between two heartbeats.
    T4  A heartbeat can be late and never early: the greatest distance of the last ones counts.
    T5  A new leader goes on with the time it saw pass, or what waits would be due early wherever
        its predecessor was behind. Only where it is behind by more than ``LEAP_MS``, or saw nothing
        since its process began, does it start at cluster time: nobody counted meanwhile.
"""

from collections import deque

from raftline.node.ports import Clock

SLEW_FAST = 1.1
SLEW_AHEAD = 0.5
CLOCK_OFFSET_MS_MAX = 500
LEAP_MS = 5_000
BEATS = 8


class ClusterTime:
    """What the nodes' wall clocks agree on."""

    __slots__ = ("_beats", "_clock", "_offsets")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offsets: dict[int, float] = {}
        self._beats: dict[int, deque[float]] = {}

    def heard(self, node: int, wall_ms: int) -> None:
        """Take note of a peer's wall clock, as a heartbeat tells it. T4."""
        beats = self._beats.get(node)
        if beats is None:
            beats = self._beats[node] = deque(maxlen=BEATS)
        beats.append(wall_ms - self._clock.mono_ms())
        self._offsets[node] = max(beats)

    def forget(self, node: int) -> None:
        """Leave a silent peer's clock out."""
        self._offsets.pop(node, None)
        self._beats.pop(node, None)

    def offset_ms(self) -> int:
        """Return cluster time minus our own wall clock."""
        return round(self._median() - self._own())

    def _own(self) -> float:
        return self._clock.wall_ms() - self._clock.mono_ms()

    def _median(self) -> float:
        offsets = sorted([self._own(), *self._offsets.values()])
        middle = len(offsets) // 2
        if len(offsets) % 2:
            return offsets[middle]
        return (offsets[middle - 1] + offsets[middle]) / 2

    def offset_of(self, node: int) -> int:
        """Return a peer's clock minus cluster time."""
        offset = self._offsets.get(node)
        return 0 if offset is None else round(offset - self._median())

    def healthy(self) -> bool:
        """Say whether our own clock is near enough to the others' to lead."""
        return len(self._offsets) < 2 or abs(self.offset_ms()) <= CLOCK_OFFSET_MS_MAX

    def now_ms(self) -> int:
        """Return cluster time."""
        return round(self._median() + self._clock.mono_ms())


class LogTime:
    """The stamp clock of one shard."""

    __slots__ = ("_at", "_clock", "_cluster", "_is_live", "_mono")

    def __init__(self, clock: Clock, cluster: ClusterTime) -> None:
        self._clock = clock
        self._cluster = cluster
        self._at = 0.0
        self._mono = clock.mono_ms()
        self._is_live = False  # the last stamp was given or seen while this process ran

    def recall(self, at_ms: int) -> None:
        """The log says so, from before this process began. T1."""
        self._at = max(self._at, float(at_ms))

    def observe(self, at_ms: int) -> None:
        """Never stamp less than what the log already says. T1."""
        if at_ms > self._at:
            self._at = float(at_ms)
            self._mono = self._clock.mono_ms()
            self._is_live = True

    def lead(self) -> None:
        """Start stamping. T5."""
        mono, now = self._clock.mono_ms(), float(self._cluster.now_ms())
        seen = self._at + mono - self._mono
        if self._is_live and seen < now <= seen + LEAP_MS:
            self._at = seen
        else:
            self._at = max(self._at, now)
        self._mono = mono
        self._is_live = True

    def stamp(self) -> int:
        """Return the log time of an entry proposed now. T1, T2."""
        if not self._at:
            self.lead()  # elected in this very turn, with nothing in the log to go by
        mono = self._clock.mono_ms()
        elapsed = mono - self._mono
        self._mono = mono
        behind = self._cluster.now_ms() - self._at
        if behind >= elapsed:
            self._at += min(behind, elapsed * SLEW_FAST)
        else:
            self._at += max(behind, elapsed * SLEW_AHEAD)
        return int(self._at)
