"""Log time: the monotone clock that is written into the log.

State
    ``ClusterTime``: the distance of every peer's wall clock from our monotonic one, and what its
    last heartbeats told about the distance of the monotonic clocks.
    ``LogTime``: one shard's last stamp, and when (monotonic) it was given.

Invariants
    T1  Stamps of one shard never decrease, whoever leads.
    T2  Log time never jumps and never stops: behind cluster time it runs at most 10 % fast,
        ahead of it at half speed, measured on the leader's monotonic clock.
    T3  Cluster time is the median of the nodes' wall clocks, so one wrong clock moves nothing: not
        even our own, when it jumps between two heartbeats.
    T4  A heartbeat that is late does not look like a clock that is behind. Monotonic clocks do not
        jump, so of the distances that the last heartbeats showed between two of them the greatest
        is the truest: late is all a heartbeat can be. And nobody counts before he was heard for a
        while: what waited in a socket while both began says nothing.
    T5  No stamp of a leader is from before it leads: who is elected may be asked for one before
        the election is noted, and what it knew until then is as old as the last entry. A delay
        counted from that would be short by all the time that nobody led.
"""

from collections import deque

from raftline.node.ports import Clock

SLEW_FAST = 1.1
SLEW_AHEAD = 0.5
CLOCK_OFFSET_MS_MAX = 500
BEATS = 32
STEADY_MS = 50
UNKNOWN_MONO = -1.0


class _Beats:
    """What the last heartbeats of a peer's process told."""

    __slots__ = ("distances", "since_mono")

    def __init__(self, since_mono: float) -> None:
        self.since_mono = since_mono
        self.distances: deque[float] = deque(maxlen=BEATS)


class ClusterTime:
    """What the nodes' wall clocks agree on."""

    __slots__ = ("_beats", "_clock", "_offsets")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._beats: dict[int, _Beats] = {}
        self._offsets: dict[int, float] = {}

    def heard(self, node: int, wall_ms: int, mono_ms: float = UNKNOWN_MONO) -> None:
        """Take note of a peer's clocks, as it read them when it sent a heartbeat. T4."""
        now = self._clock.mono_ms()
        if mono_ms == UNKNOWN_MONO:  # an older node
            self._offsets[node] = wall_ms - now
            return
        beats = self._beats.get(node)
        if beats is None:
            beats = self._beats[node] = _Beats(now)
        beats.distances.append(mono_ms - now)
        if now - beats.since_mono >= STEADY_MS:
            self._offsets[node] = wall_ms - mono_ms + max(beats.distances)

    def forget(self, node: int) -> None:
        """Leave a peer's clock out: it is silent, or another process."""
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

    __slots__ = ("_at", "_clock", "_cluster", "_leads", "_mono")

    def __init__(self, clock: Clock, cluster: ClusterTime) -> None:
        self._clock = clock
        self._cluster = cluster
        self._leads = False  # as far as it was told
        self._at = 0.0
        self._mono = clock.mono_ms()

    def observe(self, at_ms: int) -> None:
        """Never stamp less than what the log already says. T1."""
        if at_ms > self._at:
            self._at = float(at_ms)
            self._mono = self._clock.mono_ms()

    def lead(self) -> None:
        """Start stamping: a new leader begins at cluster time unless the log is ahead."""
        self._leads = True
        self._catch_up()

    def follow(self) -> None:
        """Stop stamping: another may lead."""
        self._leads = False

    def _catch_up(self) -> None:
        self._at = max(self._at, float(self._cluster.now_ms()))
        self._mono = self._clock.mono_ms()

    def stamp(self) -> int:
        """Return the log time of an entry proposed now. T1, T2."""
        if not self._leads:
            self._catch_up()  # T5
        mono = self._clock.mono_ms()
        elapsed = mono - self._mono
        self._mono = mono
        behind = self._cluster.now_ms() - self._at
        if behind >= elapsed:
            self._at += min(behind, elapsed * SLEW_FAST)
        else:
            self._at += max(behind, elapsed * SLEW_AHEAD)
        return int(self._at)
