"""Words of a selection script: what the leader of a partition hands out next.

topic aged|weighted|strict       how lanes are served; a message waits 30,000 ms at most if ``aged``
topic ordered [window=N]         an ordered group; so many messages that may go are read ahead
publish COUNT [LANE]             LANE: critical, high, normal, low, background, or a number
publish KEY [KEY ...]            one message per key (a letter; - for none)
receive COUNT                    a worker takes up to so many, in this order
ack|nack|reject OFFSET ...       what becomes of them. A nack is ready again at once
wait MS                          log time passes
busy SECONDS take=N publish=N:LANE[,N:LANE]
                                 each second messages come, then a worker takes and acks some
buried | forget OFFSET | revive OFFSET
elect                            another leader: what it knows it finds in the group's state
next                             the lane that is next, as seen by receives over all partitions
parked                           how many messages wait behind another of their key
"""

from collections.abc import Iterator
from itertools import groupby

from raftline.machines.delivery.commands import Policy
from raftline.machines.delivery.ordered import Ordered
from raftline.machines.delivery.selection import OVERDUE, Chooser
from raftline.model.intervals import IntervalSet
from tests.properties.machines.queue_board import Board

NAMES = {"critical": 20, "high": 10, "normal": 0, "low": -10, "background": -20}
LANES = {lane: name for name, lane in NAMES.items()}
BOUND_MS = 30_000
LEASE_MS = 1 << 30


class Leader(Board):
    """A board whose leader chooses by lane or by key."""

    def __init__(self, mode: str, window_max: int) -> None:
        self.mode, self.window_max = mode, window_max
        self.keys: list[int] = []
        self.lead()
        super().__init__(Policy(ordered=mode == "ordered"))

    def lead(self) -> None:
        self.chooser = Chooser("aged" if self.mode == "ordered" else self.mode, BOUND_MS)
        self.ordered = Ordered(window_max=self.window_max)
        self.reserved, self.out = IntervalSet(), []

    def after_apply(self) -> None:
        for _, start, end in self.machine.take_returned():
            self.chooser.returned(start, end)
        for _, key in self.machine.take_freed():
            self.ordered.freed(self.group, key)

    def receive(self, count_max: int) -> tuple[list[int], list[int]]:
        keys = None
        if self.mode == "ordered":
            while wanted := self.ordered.wants(self.group, self.end, count_max):
                start = wanted[0]
                self.ordered.feed(self.group, start, self.keys[start : start + 2])
            choice, keys = self.ordered.choose(self.group, self.reserved, self.end, count_max)
        else:
            choice = self.chooser.choose(*self._view(), count_max, self.at_ms)
        offsets = self.reserve(choice.first, choice.again, keys)
        if offsets:
            self.grant(0, lease_ms=LEASE_MS)
        return choice.first, choice.again

    def next(self) -> int | None:
        if self.mode == "ordered":
            return self.ordered.waiting_lane(self.group, self.reserved, self.end)
        return self.chooser.waiting_lane(*self._view(), self.at_ms)

    def _view(self):
        return self.group, self.lanes, self.ages, self.reserved, self.end


class Words:
    def __init__(self) -> None:
        self.board = Leader("aged", 10)

    def run(self, line: str) -> list[str]:
        verb, *words = line.split()
        return list(getattr(self, f"_{verb}")(*words))

    def check(self) -> None:
        self.board.machine.check(0, self.board.end)
        self.board.lanes.check()

    def _topic(self, mode: str, window: str = "window=10000") -> Iterator[str]:
        self.board = Leader(mode, int(window.partition("=")[2]))
        yield from ()

    def _publish(self, *words: str) -> Iterator[str]:
        start = self.board.end
        if words[0].isdigit():
            name = words[1] if len(words) > 1 else "normal"
            self.board.arrive(int(words[0]), NAMES[name] if name in NAMES else int(name))
        else:
            self.board.keys += [0 if key == "-" else ord(key) for key in words]
            self.board.arrive(len(words), 0)
        yield f"[{start}, {self.board.end})"

    def _receive(self, count: str) -> Iterator[str]:
        first, again = self.board.receive(int(count))
        yield from self._told(first, "")
        yield from self._told(again, " again")
        if not first and not again:
            yield "nothing"

    def _told(self, spans: list[int], again: str) -> Iterator[str]:
        for at in range(0, len(spans), 4):
            start, end, attempt, _ = spans[at : at + 4]
            tail = f"{again}, delivery {attempt}" if again else ""
            for lane, offsets in groupby(range(start, end), key=self.board.lane.__getitem__):
                first, *rest = offsets
                name = "" if self.board.mode == "ordered" else f" {LANES.get(lane, lane)}"
                yield f"[{first}, {first + 1 + len(rest)}){name}{tail}"

    def _busy(self, seconds: str, take: str, publish: str) -> Iterator[str]:
        wanted = [text.split(":") for text in publish.partition("=")[2].split(",")]
        taken: dict[int, int] = {}
        for _ in range(int(seconds)):
            self.board.wait(1000)
            for count, name in wanted:
                self.board.arrive(int(count), NAMES[name])
            self.board.receive(int(take.partition("=")[2]))
            while self.board.leases:
                lane = self.board.lane[self.board.leases[0][1]]
                taken[lane] = taken.get(lane, 0) + 1
                self.board.settle("ack", 0)
        for lane in sorted(taken, reverse=True):
            yield f"{taken[lane]} {LANES[lane]}"

    def _settle(self, verb: str, offsets: tuple[str, ...]) -> Iterator[str]:
        for offset in map(int, offsets):
            held = [lease[1] for lease in self.board.leases]
            if not self.board.settle(verb, held.index(offset)):
                yield f"lease_lost {offset}"

    def _ack(self, *offsets: str) -> Iterator[str]:
        return self._settle("ack", offsets)

    def _nack(self, *offsets: str) -> Iterator[str]:
        return self._settle("nack", offsets)

    def _reject(self, *offsets: str) -> Iterator[str]:
        return self._settle("reject", offsets)

    def _buried(self) -> Iterator[str]:
        self.board.bury()
        yield from ()

    def _forget(self, offset: str) -> Iterator[str]:
        self.board.forget(int(offset), int(offset) + 1)
        yield from ()

    def _revive(self, offset: str) -> Iterator[str]:
        self.board.revive(int(offset), int(offset) + 1)
        yield from ()

    def _wait(self, ms: str) -> Iterator[str]:
        self.board.wait(int(ms))
        yield from ()

    def _elect(self) -> Iterator[str]:
        self.board.lead()
        yield from ()

    def _next(self) -> Iterator[str]:
        lane = self.board.next()
        if lane is None:
            yield "nothing waits"
        elif lane >= OVERDUE:
            yield f"overdue by {lane - OVERDUE} ms"
        else:
            yield str(LANES.get(lane, lane))

    def _parked(self) -> Iterator[str]:
        yield str(self.board.ordered.parked)
