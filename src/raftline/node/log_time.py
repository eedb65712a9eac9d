"""Log time: the monotone clock that is written into the log.

State
    ``ClusterTime``: the last known distance of every peer's wall clock from ours.
    ``LogTime``: one shard's last stamp, and when (monotonic) it was given.

Invariants
    T1  Stamps of one shard never decrease, whoever leads.
    T2  Log time never jumps and never stops: behind cluster time it runs at most 10 % fast,
        ahead of it at half speed, measured on the leader's monotonic clock.
    T3  Cluster time is the median of the nodes' wall clocks, so one wrong clock moves nothing.
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
        self._offsets: dict[int, int] = {}

    def heard(self, node: int, wall_ms: int) -> None:
        """Take note of a peer's wall clock, as read just now."""
        self._offsets[node] = wall_ms - self._clock.wall_ms()

    def forget(self, node: int) -> None:
        """Leave a silent peer's clock out."""
        self._offsets.pop(node, None)

    def offset_ms(self) -> int:
        """Return cluster time minus our own wall clock."""
        offsets = sorted([0, *self._offsets.values()])
        middle = len(offsets) // 2
        if len(offsets) % 2:
            return offsets[middle]
        return (offsets[middle - 1] + offsets[middle]) // 2

    def offset_of(self, node: int) -> int:
        """Return a peer's clock minus cluster time."""
        return self._offsets.get(node, 0) - self.offset_ms()

    def healthy(self) -> bool:
        """Say whether our own clock is near enough to the others' to lead."""
        return len(self._offsets) < 2 or abs(self.offset_ms()) <= CLOCK_OFFSET_MS_MAX

    def now_ms(self) -> int:
        """Return cluster time."""
        return self._clock.wall_ms() + self.offset_ms()


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
