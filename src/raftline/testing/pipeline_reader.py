"""A job that reads a work group in a simulated run: it leases, crashes, comes back and goes on.

What a driver keeps through a crash is what Spark keeps: the number it leased last (the offset log)
and the number it committed last. Beside it plain workers take messages of the same group.

The promise, ``LEASE``
    A number has the same ranges whenever it is asked for. What a query committed is never served
    again, to it or to a worker, and everything is settled by exactly one of them; a number that is
    behind is refused.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from raftline.machines.delivery.commands import ACK, Settle
from raftline.model.calls import Received, Settled
from raftline.testing.checker import Violation
from raftline.testing.pipeline_asks import Answer, JobAsks

if TYPE_CHECKING:
    import random

    from raftline.testing.history import Op

GROUP, QUERY = "spark", "reader"
COUNT_MAX = 12
WORKER_LEASE_MS = 2_000
DICE_COMMIT = 9


class Reader:
    """The driver."""

    def __init__(self, asks: JobAsks, rng: "random.Random") -> None:
        self._asks = asks
        self._rng = rng
        self.n = 0
        self.known: dict[int, list[int]] = {}  # flat ranges, by number
        self.committed: dict[int, int] = {}  # offset -> number
        self.worked: dict[int, bool] = {}  # offset -> whether its ack was answered as done
        self.found: list[Violation] = []
        self.is_ending = False  # workers rest, and the driver crashes no more

    def begin(self) -> None:
        """Lease the number that is next."""
        if self._asks.is_over:
            return
        n, rng = self.n, self._rng
        arguments = {**self._named(n), "count": rng.randrange(1, COUNT_MAX), "wait_ms": 0}

        def leased(answer: Answer | None, code: str) -> None:
            if answer is None:
                self._blame(f"number {n} was refused: {code}")
                return
            if answer["lost"]:
                self._blame(f"number {n} lost {answer['lost']}")
            self._serve(n, answer["ranges"])

        self._asks.ask("query.lease", arguments, leased)

    def _serve(self, n: int, ranges: list[int]) -> None:
        """Work on a number, die, or commit it."""
        rng, world = self._rng, self._asks.clients.world
        if not ranges:
            world.after(300.0, self.begin)
            return
        if self.known.setdefault(n, ranges) != ranges:
            self._blame(f"number {n} was {self.known[n]} and is {ranges}")
        for offset in _offsets(ranges):
            if self.committed.get(offset, n) != n:
                self._blame(f"{offset} was committed as {self.committed[offset]}, served as {n}")
        work_ms = rng.random() * 1_500.0
        dice = rng.randrange(10)
        if self.is_ending:  # at the end it does not crash, and is quick: what is left is bounded
            work_ms, dice = work_ms / 10, DICE_COMMIT
        if dice == 0:
            world.after(work_ms, self.begin)  # it crashed before the offset log, and plans again
        elif dice < 3:
            world.after(work_ms, lambda: self._replay(n))
        else:
            if dice == 4:
                world.after(work_ms / 2, lambda: self._reject(n, ranges))
            world.after(work_ms, lambda: self._commit(n, ranges))

    def _replay(self, n: int) -> None:
        """Come back after a crash with n in the offset log: ask what it holds."""

        def told(answer: Answer | None, code: str) -> None:
            if answer is None or answer["n"] != n or answer["acked"] or answer["lost"]:
                self._blame(f"number {n} is not held any more: {answer} {code}")
                return
            self._serve(n, answer["ranges"])

        self._asks.ask("query.held", self._named(n), told)

    def _commit(self, n: int, ranges: list[int]) -> None:
        """Note that n is done; the next lease acks it, or we do."""
        for offset in _offsets(ranges):
            self.committed[offset] = n
            if self.worked.get(offset):
                self._blame(f"{offset} was acked by a worker, and is committed as {n}")
        self.n = n + 1
        dice = self._rng.randrange(8)
        if dice == 0:
            self._asks.ask("query.ack", self._named(n), lambda _a, _c: self.begin())
            return
        if dice == 1 and n:
            self._asks.ask("query.lease", {**self._named(n - 1), "count": 5}, self._stale(n - 1), 2)
        self.begin()

    def _stale(self, n: int) -> "_Stale":
        return _Stale(self, n)

    def _reject(self, n: int, ranges: list[int]) -> None:
        arguments = {**self._named(n), "ranges": [ranges[0], ranges[0] + 1], "reason": "bad"}
        self._asks.ask("query.reject", arguments, lambda _a, _c: None, 3)

    def _named(self, n: int) -> Answer:
        return {"group": GROUP, "query": QUERY, "n": n}

    def _blame(self, text: str) -> None:
        self.found.append(Violation("LEASE", text, f"at {self._asks.clients.world.now_ms:.0f}"))

    # ------------------------------------------------------------------ workers

    def work(self) -> None:
        """Receive as a plain worker of the group, and ack."""
        if self.is_ending or self._asks.is_over:
            return
        clients, world = self._asks.clients, self._asks.clients.world
        host, got = clients.some_host(), list[Received]()
        op = clients.invoke("receive", host, self._asks.topic, 0)

        def taken(op: "Op", answer: Received) -> None:
            del op
            got.append(answer)

        def ended(op: "Op") -> None:
            del op
            if got and got[0].spans:
                world.after(self._rng.random() * WORKER_LEASE_MS, lambda: self._ack(got[0]))
            world.after(500.0 + self._rng.random() * 2_000.0, self.work)

        clients.call(
            host,
            op,
            lambda node, answer: node.receive(
                self._asks.topic, GROUP, 0, 3, 1 << 16, WORKER_LEASE_MS, 0, "w",
                int(op.timeout_ms), answer,
            ),
            taken,
            ended,
        )  # fmt: skip

    def _ack(self, received: Received) -> None:
        clients, host = self._asks.clients, self._asks.clients.some_host()
        spans, settles = received.spans, list[Settle]()
        for at in range(0, len(spans), 4):
            start, end, attempt, generation = spans[at : at + 4]
            named = (received.term, received.sequence, attempt, generation)
            settles.append(Settle(GROUP, ACK, *named, [start, end]))
        op = clients.invoke("settle", host, self._asks.topic, 0)
        lost: list[Any] = []

        def taken(op: "Op", answer: Settled) -> None:
            del op
            lost.append(answer.lost)

        def ended(op: "Op") -> None:
            if op.outcome == "refused":
                return
            refused = {o for ranges in (lost[0] if lost else ()) for o in _offsets(ranges)}
            for settle in settles:
                for offset in _offsets(settle.ranges):
                    if offset not in refused:
                        self._acked(offset, is_sure=bool(lost))

        clients.call(
            host,
            op,
            lambda node, answer: node.settle(
                self._asks.topic, 0, settles, int(op.timeout_ms), answer
            ),
            taken,
            ended,
        )

    def _acked(self, offset: int, *, is_sure: bool) -> None:
        if is_sure and offset in self.committed:
            self._blame(f"{offset} was committed as {self.committed[offset]}, a worker acked it")
        self.worked[offset] = is_sure or self.worked.get(offset, False)

    # ------------------------------------------------------------------ the verdict

    def is_done(self, end: int) -> bool:
        """Say whether everything below ``end`` was settled by somebody."""
        return all(o in self.committed or o in self.worked for o in range(end))

    def check(self, offsets: Iterable[int]) -> Iterator[Violation]:
        """Judge the run: ``offsets`` are those in the log."""
        yield from self.found
        left = [o for o in offsets if o not in self.committed and o not in self.worked]
        if left:
            text = f"{len(left)} messages were never settled, the first is {left[0]}"
            yield Violation("LEASE", text, f"the query stands at {self.n}")


class _Stale:
    """Hears of a lease that must be refused: its number is acked."""

    def __init__(self, reader: Reader, n: int) -> None:
        self._reader = reader
        self._n = n

    def __call__(self, answer: Answer | None, code: str) -> None:
        if answer is not None:
            text = f"number {self._n} was given again, after it was acked: {answer['ranges']}"
            self._reader.found.append(Violation("LEASE", text, code))


def _offsets(ranges: list[int]) -> list[int]:
    return [o for at in range(0, len(ranges), 2) for o in range(ranges[at], ranges[at + 1])]
