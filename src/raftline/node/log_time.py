"""Log time: the monotone clock that is written into the log.

State
    ``ClusterTime``: the last known distance of every peer's wall clock from our monotonic one.
    ``LogTime``: one shard's last stamp, and when (monotonic) it was given.

Invariants
    T1  Stamps of one shard never decrease, whoever leads.
    T2  Log time never jumps and never stops: behind cluster time it runs at most 10 % fast,
        ahead of it at half speed, measured on the leader's monotonic clock.
    T3  Cluster time is the median of the nodes' wall clocks, so one wrong clock moves nothing: not
        even our own, when it jumps between two heartbeats.
"""

from raftline.node.ports import Clock

SLEW_FAST = 1.1
SLEW_AHEAD = 0.5
CLOCK_OFFSET_MS_MAX = 500


class ClusterTime:
    """What the nodes' wall clocks agree on."""

    __slots__ = ("_clock", "_offsets")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offsets: dict[int, float] = {}

    def heard(self, node: int, wall_ms: int) -> None:
        """Take note of a peer's wall clock, as read just now."""
        self._offsets[node] = wall_ms - self._clock.mono_ms()

    def forget(self, node: int) -> None:
        """Leave a silent peer's clock out."""
        self._offsets.pop(node, None)

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

    __slots__ = ("_at", "_clock", "_cluster", "_mono")

    def __init__(self, clock: Clock, cluster: ClusterTime) -> None:
        self._clock = clock
        self._cluster = cluster
        self._at = 0.0
        self._mono = clock.mono_ms()

    def observe(self, at_ms: int) -> None:
        """Never stamp less than what the log already says. T1."""
        if at_ms > self._at:
            self._at = float(at_ms)
            self._mono = self._clock.mono_ms()

    def lead(self) -> None:
        """Start stamping: a new leader begins at cluster time unless the log is ahead."""
        self._at = max(self._at, float(self._cluster.now_ms()))
        self._mono = self._clock.mono_ms()

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
