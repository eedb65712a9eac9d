"""A queue read: micro-batches of leased messages of a work group.

The n-th micro-batch holds the lease (query, n) on each partition, which the cluster keeps: the
same n gives the same ranges, after any crash. An offset of the stream is ``{"query": …, "n": …}``;
``n`` is the last lease that the micro-batch before it had.

Rules
    Q1  Leasing n + 1 acks n. Spark asks for the next batch only after it has committed the last
        one, so nothing is acked that Spark has not committed, and nothing committed comes again.
    Q2  A batch that Spark has in its log is planned from what is held; that changes nothing.
    Q3  Without a checkpoint the query goes on with the lease that its name holds, so that nothing
        is left behind by a crash before the first checkpoint, or by a deleted one. The n of a
        query that is taken over this way is refused from then on.
    Q4  The last batch of a query that ends (AvailableNow) is acked when Spark asks for more. One
        that was leased before a crash, and is not in Spark's log, is to be done before that.
    Q5  Where a group begins at ``latest``, that is for the partitions that are there then: in one
        that is added later it begins at the first message, as nobody waited for it to come.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from raftline.client import clock
from raftline.client.fenced import Fenced, Held
from raftline.model.errors import LeaseLost, UnknownGroup
from raftline.model.names import place
from raftline.spark.leased import read_leased
from raftline.spark.log import open_log
from raftline.spark.options import LATEST, Options
from raftline.spark.ranges import LogRange, pack
from raftline.spark.stream_reader import IDLE_PAUSE_MS, share

LEASE_MAX = 1_000_000  # messages of one partition in one micro-batch

QueueOffset = dict[str, Any]  # {"query": str, "n": int}


class RaftlineQueueReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One queue read; lives in a process beside the driver for as long as the query runs."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._fenced: Fenced | None = None
        self._initial: QueueOffset | None = None
        self._left: int | None = None  # messages that a query that ends may still lease
        self._there: set[int] | None = None  # partitions when this process looked first. Q5

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get the options only."""
        return {**self.__dict__, "_fenced": None}

    # ------------------------------------------------------------------ offsets

    def initialOffset(self) -> QueueOffset:  # noqa: N802
        """Return where a query without a checkpoint begins. Q3."""
        if self._initial is None:
            held = [self._held(number) for number in self._numbers()]
            last = max((one.n for one in held if one is not None), default=0)
            # One that holds the number before was not reached by the last: it has to be, Q1.
            is_open = any(one is not None and one.ranges and not one.acked for one in held)
            # Where it is acked on one, Spark has committed it: only the others were not told.
            is_done = any(one is not None and one.n == last and one.acked for one in held)
            self._initial = self._at(max(0, last - 1) if is_open and not is_done else last)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the most messages of one micro-batch."""
        most = self.options.offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember how much there is to do now: the query ends after so many messages."""
        self._left = sum(self._ready()[0].values())

    def latestOffset(self, start: QueueOffset, limit: ReadLimit) -> QueueOffset:  # noqa: N802
        """Lease the next micro-batch, and ack the last. Q1."""
        n = int(start["n"])
        if self._left is not None and self._left <= 0 and not self._holds(n + 1):
            self._ack(n)  # Q4
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else LEASE_MAX * 1000
        if self._left is not None:
            most = min(most, self._left)
        leased = self._lease(n + 1, most)
        if self._left is not None:
            self._left -= leased
        if not leased:
            clock.pause(IDLE_PAUSE_MS)
            return start
        return self._at(n + 1)

    def commit(self, end: QueueOffset) -> None:
        """Spark is done with the batch that ended there."""
        self._ack(int(end["n"]))

    def stop(self) -> None:
        """Hang up."""
        if self._fenced is not None:
            self._fenced.close()
            self._fenced = None

    # ------------------------------------------------------------------ reading

    def partitions(self, start: QueueOffset, end: QueueOffset) -> Sequence[InputPartition]:
        """Return what is leased for one micro-batch. Q2."""
        n = int(end["n"])
        if start.get("query") == end["query"] and int(start["n"]) == n:
            return []
        ranges: list[LogRange] = []
        for number in self._numbers():
            held = self._held(number)
            if held is None or held.n != n:
                continue
            if held.lost and self.options.fail_on_data_loss:
                raise self._lost(number, held.lost)
            ranges += [LogRange(number, first, last) for first, last in held.ranges]
        return pack(ranges, self.options.offsets_per_split)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read leased ranges, in a task."""
        return read_leased(self.options, partition.value or [])

    # ------------------------------------------------------------------ leases

    def _lease(self, n: int, most: int) -> int:
        """Lease on all partitions; return how many messages."""
        options, fenced = self.options, self._calls()
        ready, begun = self._ready()
        if self._there is None:
            self._there = set(ready)
        shared = share({}, {str(one): count for one, count in ready.items()}, most)
        leased = 0
        for number in ready:
            ranges = fenced.lease(
                options.topic,
                number,
                options.group,
                options.query,
                n,
                max(1, min(LEASE_MAX, shared[str(number)])),
                start="next" if self._is_from_now(number, n, begun) else "first",
                allow_lost=not options.fail_on_data_loss,
            )
            leased += sum(last - first for first, last in ranges)
        return leased

    def _is_from_now(self, number: int, n: int, begun: set[int]) -> bool:
        """Say where the group begins in a partition that it is not in yet. Q5."""
        if self.options.starting != LATEST:
            return False
        # The first lease takes in all partitions that are there, if need be in several goes.
        return not begun or (n == 1 and self._there is not None and number in self._there)

    def _ack(self, n: int) -> None:
        options, fenced = self.options, self._calls()
        for number in self._numbers():
            fenced.ack(options.topic, number, options.group, options.query, n)

    def _holds(self, n: int) -> bool:
        """Say whether messages are leased under n somewhere."""
        held = [self._held(number) for number in self._numbers()]
        return any(one is not None and one.n == n and one.ranges for one in held)

    def _held(self, number: int) -> Held | None:
        options = self.options
        return self._calls().held(options.topic, number, options.group, options.query)

    def _ready(self) -> tuple[dict[int, int], set[int]]:
        """Return about how many messages each partition has for the group, and where that is."""
        log, options = self._calls(), self.options
        try:
            told = log.group(options.group, options.topic)
            rows: list[Mapping[str, int]] = told.get("work", {}).get(options.topic, [])
        except UnknownGroup:
            rows = []
        known = {row["partition"]: row["fresh"] + row["ready"] for row in rows}
        found: dict[int, int] = {}
        for one in log.bounds(options.topic):
            is_from_now = options.starting == LATEST and not known
            all_of_it = 0 if is_from_now else one.commit_end - one.log_start
            found[one.partition] = known.get(one.partition, all_of_it)
        return found, set(known)

    def _lost(self, partition: int, lost: Sequence[tuple[int, int]]) -> LeaseLost:
        where = place(self.options.topic, partition, lost[0][0])
        count = sum(last - first for first, last in lost)
        error = LeaseLost.__new__(LeaseLost)
        super(LeaseLost, error).__init__(
            f"the lease of {count} messages from {where} on ran out or was reset, and they went to "
            "others: go on without them (failOnDataLoss=false)"
        )
        return error

    # ------------------------------------------------------------------ private

    def _at(self, n: int) -> QueueOffset:
        return {"query": self.options.query, "n": n}

    def _numbers(self) -> list[int]:
        return [
            int(row["partition"]) for row in self._calls().topic(self.options.topic)["partitions"]
        ]

    def _calls(self) -> Fenced:
        if self._fenced is None:
            self._fenced = open_log(self.options)
        return self._fenced
