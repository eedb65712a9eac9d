"""The checker: which promises of DESIGN.md section 1 a history breaks.

It reads a ``History`` and the ``Final`` reading, knows nothing of how they were made, and names
the promise each violation breaks. One function per promise; each finding carries its evidence.

Checked here: P1 (nothing acknowledged is lost), P2 (nothing uncommitted is readable, replicas are
identical), P3 (offsets dense, unique, stable, in order; a repeated sequence is stored once), P9
(any node takes any call, empty directories boot), P10 (every call ends in time, writes work again
after faults), P11 (damaged bytes are never served).
"""

from bisect import bisect_left
from collections.abc import Iterator

import msgspec

from raftline.testing.history import Final, History, Op, ReplicaLog

LATE_MS = 500.0  # a call may end this much after its timeout
RECOVERY_MS_MAX = 10_000.0
BOOT_MS_MAX = 10_000.0


class Violation(msgspec.Struct, frozen=True):
    """One broken promise."""

    promise: str
    text: str
    evidence: str = ""

    def __str__(self) -> str:
        return f"{self.promise} {self.text}" + (f" [{self.evidence}]" if self.evidence else "")


class Verdict(msgspec.Struct, frozen=True):
    """What the checker found."""

    violations: tuple[Violation, ...]
    counts: dict[str, int]

    @property
    def clean(self) -> bool:
        """Say whether every promise was kept."""
        return not self.violations

    @property
    def promises(self) -> tuple[str, ...]:
        """Return the broken promises, each once, in order."""
        return tuple(sorted({v.promise for v in self.violations}))

    def __str__(self) -> str:
        head = "clean" if self.clean else f"{len(self.violations)} violations"
        counts = " ".join(f"{name}={count}" for name, count in self.counts.items())
        return "\n".join([f"{head}: {counts}", *(f"  {v}" for v in self.violations[:20])])


def check(history: History, final: Final) -> Verdict:
    """Check every promise; the most telling violation comes first."""
    stamps = {op.ident: op.timestamps_ms for op in history.ops if op.kind == "append"}
    logs = {
        name: _Log(name, replicas, _trimmed_to(history, name), stamps)
        for name, replicas in final.replicas.items()
    }
    found: list[Violation] = []
    for rule in (_bugs, _p1, _p2, _p3, _p9, _p10, _p11):
        found.extend(rule(history, final, logs))
    return Verdict(tuple(found), _counts(history, final))


class _Log:
    """The partition as it is in the end: the longest replica, and where each ident lies."""

    __slots__ = (
        "_latest_ms", "_stamps", "end", "name", "places", "replicas", "runs", "start",
        "trimmed_to",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        replicas: tuple[ReplicaLog, ...],
        trimmed_to: int,
        stamps: dict[int, tuple[int, ...]],
    ) -> None:
        best = max(replicas, key=lambda r: (r.commit_end, -r.log_start))
        self.name = name
        self.replicas = replicas
        self.runs = best.runs
        self.start = best.log_start
        self.end = best.commit_end
        self.trimmed_to = trimmed_to
        self.places: dict[int, list[int]] = {}
        self._stamps = stamps
        self._latest_ms: list[int] = []  # of all messages up to and with each run
        latest_ms = -1
        for offset, _, ident in best.runs:
            self.places.setdefault(ident, []).append(offset)
            for delta, at_ms in enumerate(stamps.get(ident, ())):
                if offset + delta >= self.start:
                    latest_ms = max(latest_ms, at_ms)
            self._latest_ms.append(latest_ms)

    def first_since(self, time_ms: int) -> int:
        """Return the first offset with a timestamp at or after ``time_ms``; -1: none."""
        i = bisect_left(self._latest_ms, time_ms)
        if i == len(self._latest_ms):
            return -1
        offset, _, ident = self.runs[i]
        for delta, at_ms in enumerate(self._stamps[ident]):
            if at_ms >= time_ms and offset + delta >= self.start:
                return offset + delta
        raise AssertionError((self.name, time_ms))


def _where(op: Op) -> str:
    return f"{op.topic}/{op.partition}"


def _trimmed_to(history: History, name: str) -> int:
    """Return how far callers allowed the partition to be trimmed (asked for is allowed)."""
    return max(
        (
            op.offset
            for op in history.ops
            if op.kind == "trim" and op.outcome != "refused" and _where(op) == name
        ),
        default=0,
    )


def _evidence(op: Op) -> str:
    end = f"{op.ended_ms:.1f}" if op.outcome else "never"
    return (
        f"op {op.id} {op.kind} {_where(op)} via {op.node} at {op.invoked_ms:.1f} ended {end} "
        f"{op.outcome or 'open'} {op.error}".rstrip()
    )


def _bugs(history: History, final: Final, logs: dict[str, _Log]) -> Iterator[Violation]:
    del history, logs
    for text in final.bugs:
        yield Violation("BUG", "an exception nobody caught", text)


def _p1(history: History, final: Final, logs: dict[str, _Log]) -> Iterator[Violation]:
    """Acknowledged messages are there in the end, unless trimmed."""
    del final
    for log in logs.values():
        if log.start > log.trimmed_to:
            yield Violation(
                "P1",
                f"{log.name} begins at {log.start}, nobody trimmed beyond {log.trimmed_to}",
            )
    for op in history.ops:
        if op.kind != "append" or op.outcome != "ok":
            continue
        log = logs.get(_where(op))
        if log is None:
            yield Violation("P1", f"{_where(op)} is gone with an acknowledged batch", _evidence(op))
            continue
        if op.offset + op.count <= max(log.start, log.trimmed_to):
            continue
        if op.ident not in log.places:
            yield Violation(
                "P1",
                f"acknowledged batch {_where(op)}@{op.offset} (+{op.count}) is lost; the log is "
                f"[{log.start}, {log.end})",
                _evidence(op),
            )
    yield from _fresh_reads(history)


def _fresh_reads(history: History) -> Iterator[Violation]:
    """A linearizable read sees what was acknowledged before it began."""
    for name, ops in _by_partition(history).items():
        acked = sorted(
            (op.ended_ms, op.offset + op.count)
            for op in ops
            if op.kind == "append" and op.outcome == "ok"
        )
        ends: list[int] = []
        for _, end in acked:
            ends.append(max(end, ends[-1]) if ends else end)
        times = [ended_ms for ended_ms, _ in acked]
        for op in ops:
            if op.kind == "read" and op.outcome == "ok" and op.linearizable:
                i = bisect_left(times, op.invoked_ms)
                if i and op.commit_end < ends[i - 1]:
                    yield Violation(
                        "P1",
                        f"a linearizable read of {name} sees the end {op.commit_end}, "
                        f"acknowledged before was {ends[i - 1]}",
                        _evidence(op),
                    )


def _p2(history: History, final: Final, logs: dict[str, _Log]) -> Iterator[Violation]:
    """What was read is committed for good; replicas are identical."""
    if final.verify:
        yield Violation("P2", "verify finds replicas that differ", final.verify)
    for log in logs.values():
        yield from _differences(log)
    for op in history.ops:
        log = logs.get(_where(op))
        if op.kind != "read" or op.outcome != "ok" or log is None:
            continue
        if op.commit_end > log.end:
            yield Violation(
                "P2",
                f"{_where(op)} was readable up to {op.commit_end}, in the end it has {log.end}",
                _evidence(op),
            )
        for offset, count, ident in op.runs:
            if offset + count > log.start and ident > 0 and ident not in log.places:
                yield Violation(
                    "P2",
                    f"{_where(op)}@{offset} was read and is not committed in the end",
                    _evidence(op),
                )


def _differences(log: _Log) -> Iterator[Violation]:
    for replica in log.replicas:
        start = max(log.start, replica.log_start)
        ours = [run for run in log.runs if run[0] >= start and run[0] < replica.commit_end]
        theirs = [run for run in replica.runs if run[0] >= start]
        if ours != theirs:
            i = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), -1)
            here = ours[i] if ours else "nothing"
            there = theirs[i] if theirs else "nothing"
            yield Violation(
                "P2",
                f"{log.name} differs on {replica.node}: (offset, count, ident) is {there}, "
                f"elsewhere {here}",
            )
        if replica.commit_end != log.end:
            yield Violation(
                "P2",
                f"{log.name} ends at {replica.commit_end} on {replica.node}, "
                f"elsewhere at {log.end}, long after the last write",
            )


def _p3(history: History, final: Final, logs: dict[str, _Log]) -> Iterator[Violation]:
    """Offsets are dense, given once, in order, and never change meaning."""
    del final
    for log in logs.values():
        yield from _holes(log)
        yield from _twice(history, log)
    for op in history.ops:
        log = logs.get(_where(op))
        if op.outcome != "ok" or log is None:
            continue
        if op.kind == "append":
            yield from _moved(op, log)
        elif op.kind == "read":
            yield from _read_order(op, log)
        elif op.kind == "lookup":
            yield from _lookup(op, log)
    for op in history.ops:
        code = op.error.partition(":")[0]
        if op.producer is not None and code in ("out_of_order", "unknown_producer"):
            yield Violation(
                "P3", f"a producer that skipped nothing was refused: {op.error}", _evidence(op)
            )
    for ops in _by_partition(history).values():
        yield from _given_twice(ops)
        yield from _real_time_order(ops)


def _holes(log: _Log) -> Iterator[Violation]:
    for replica in log.replicas:
        expected = replica.runs[0][0] if replica.runs else replica.commit_end
        if expected > replica.log_start:
            yield Violation(
                "P3",
                f"{log.name} on {replica.node} begins at {expected}, log start is "
                f"{replica.log_start}",
            )
        for offset, count, _ in replica.runs:
            if offset != expected:
                yield Violation(
                    "P3", f"{log.name} on {replica.node}: {offset} follows, expected {expected}"
                )
            expected = offset + count
        if expected != replica.commit_end:
            yield Violation(
                "P3",
                f"{log.name} on {replica.node} gives out [.., {expected}), its end is "
                f"{replica.commit_end}",
            )


def _twice(history: History, log: _Log) -> Iterator[Violation]:
    doubled = {ident: at for ident, at in log.places.items() if len(at) > 1 and ident > 0}
    for ident, at in doubled.items():
        op = next(op for op in history.ops if op.ident == ident)
        what = "a repeated sequence" if op.producer else "a batch sent once"
        yield Violation("P3", f"{what} is stored {len(at)} times: {log.name}@{at}", _evidence(op))


def _moved(op: Op, log: _Log) -> Iterator[Violation]:
    at = log.places.get(op.ident)
    if at is not None and op.offset not in at:
        yield Violation(
            "P3",
            f"{_where(op)}@{op.offset} was acknowledged, in the end the batch is at {at}",
            _evidence(op),
        )


def _read_order(op: Op, log: _Log) -> Iterator[Violation]:
    expected = -1
    for offset, count, ident in op.runs:
        if ident < 0:
            return  # P11 tells
        if expected >= 0 and offset != expected:
            yield Violation(
                "P3", f"a read of {_where(op)} gives {offset} after {expected}", _evidence(op)
            )
        if expected < 0 and not offset <= op.offset < offset + count:
            yield Violation(
                "P3",
                f"a read of {_where(op)}@{op.offset} begins with [{offset}, {offset + count})",
                _evidence(op),
            )
        expected = offset + count
        at = log.places.get(ident)
        if at is not None and offset not in at and offset >= log.start:
            yield Violation(
                "P3",
                f"{_where(op)}@{offset} was read, in the end that batch is at {at}",
                _evidence(op),
            )


def _lookup(op: Op, log: _Log) -> Iterator[Violation]:
    """A lookup by time names the first message that is late enough."""
    if 0 <= op.offset < log.start:
        return  # trimmed since
    first = log.first_since(op.time_ms)
    if first >= op.commit_end:
        first = -1  # it came later
    if op.offset != first:
        yield Violation(
            "P3",
            f"the first message of {_where(op)} at or after {op.time_ms} is {first}, "
            f"the answer was {op.offset}",
            _evidence(op),
        )


def _given_twice(ops: list[Op]) -> Iterator[Violation]:
    """Two acknowledged batches never share an offset."""
    first: dict[int, Op] = {}
    for op in ops:
        if op.kind == "append" and op.outcome == "ok":
            before = first.setdefault(op.ident, op)
            if before.offset != op.offset:
                yield Violation(
                    "P3",
                    f"a repeat was answered with {_where(op)}@{op.offset}, first with "
                    f"@{before.offset}",
                    _evidence(op),
                )
    end, last = -1, None
    for op in sorted(first.values(), key=lambda op: op.offset):
        if op.offset < end and last is not None:
            yield Violation(
                "P3",
                f"{_where(op)}@{op.offset} was given twice",
                f"{_evidence(last)}; {_evidence(op)}",
            )
        end, last = max(end, op.offset + op.count), op


def _real_time_order(ops: list[Op]) -> Iterator[Violation]:
    """A batch acknowledged before another was sent lies before it."""
    began: dict[int, float] = {}
    ended: dict[int, Op] = {}
    for op in ops:
        if op.kind == "append":
            began.setdefault(op.ident, op.invoked_ms)
            if op.outcome == "ok":
                ended.setdefault(op.ident, op)
    done = sorted(ended.values(), key=lambda op: op.ended_ms)
    sent = sorted(ended.values(), key=lambda op: began[op.ident])
    i, highest, holder = 0, -1, None
    for op in sent:
        while i < len(done) and done[i].ended_ms < began[op.ident]:
            if done[i].offset > highest:
                highest, holder = done[i].offset, done[i]
            i += 1
        if op.offset < highest and holder is not None:
            yield Violation(
                "P3",
                f"{_where(op)}@{op.offset} was sent after @{highest} was acknowledged",
                f"{_evidence(holder)}; {_evidence(op)}",
            )


def _p9(history: History, final: Final, logs: dict[str, _Log]) -> Iterator[Violation]:
    """Any node takes any call; empty directories boot."""
    del logs
    if not 0 <= final.boot_ms <= BOOT_MS_MAX:
        yield Violation("P9", f"empty directories did not become a cluster in {BOOT_MS_MAX} ms")
    for op in history.ops:
        code = op.error.partition(":")[0]
        if op.outcome == "refused" and (code == "internal" or (code == "not_leader" and _soon(op))):
            yield Violation("P9", f"{op.node} did not take the call: {op.error}", _evidence(op))
        elif op.calm and op.outcome == "refused":
            yield Violation(
                "P9", f"with all well {op.node} refused a call: {op.error}", _evidence(op)
            )


def _soon(op: Op) -> bool:
    """Say whether a call was given up long before its timeout, so that forwarding was not tried."""
    return op.ended_ms - op.invoked_ms < op.timeout_ms / 2


def _p10(history: History, final: Final, logs: dict[str, _Log]) -> Iterator[Violation]:
    """Every call ends in time and truthfully; writes work again."""
    refused: dict[int, Op] = {}
    possible: dict[int, bool] = {}
    for op in history.ops:
        if not op.outcome:
            yield Violation("P10", "a call never ended", _evidence(op))
        elif op.ended_ms - op.invoked_ms > op.timeout_ms + LATE_MS and not op.excused:
            yield Violation(
                "P10",
                f"a call ended after {op.ended_ms - op.invoked_ms:.0f} ms, its timeout is "
                f"{op.timeout_ms:.0f}",
                _evidence(op),
            )
        if op.calm and op.outcome == "unknown":
            yield Violation("P10", "with all well a call timed out", _evidence(op))
        if op.kind == "append":
            if op.outcome == "refused":
                refused.setdefault(op.ident, op)
            else:
                possible[op.ident] = True
    for log in logs.values():
        for ident, at in log.places.items():
            if ident in refused and ident not in possible:
                yield Violation(
                    "P10", f"refused, yet stored at {log.name}@{at}", _evidence(refused[ident])
                )
    if not 0 <= final.recovery_ms <= RECOVERY_MS_MAX:
        took = "never" if final.recovery_ms < 0 else f"only after {final.recovery_ms:.0f} ms"
        yield Violation("P10", f"after the faults ended writes worked {took}")
    if final.misplaced:
        yield Violation("P10", "long after the faults ended a change is not done", final.misplaced)


def _p11(history: History, final: Final, logs: dict[str, _Log]) -> Iterator[Violation]:
    """Bytes that nobody sent are never served; what is damaged is out of service."""
    for op in history.ops:
        for offset, count, ident in op.runs:
            if ident < 0:
                yield Violation(
                    "P11",
                    f"a read of {_where(op)} served bytes that nobody sent at "
                    f"[{offset}, {offset + count})",
                    _evidence(op),
                )
    for log in logs.values():
        for replica in log.replicas:
            for offset, count, ident in replica.runs:
                if ident < 0:
                    yield Violation(
                        "P11",
                        f"{log.name} on {replica.node} serves bytes that nobody sent at "
                        f"[{offset}, {offset + count})",
                    )
    for text in final.unread:
        shard = text.partition(" ")[0]
        if not any(out.startswith(shard) for out in final.out_of_service):
            yield Violation("P11", f"a replica is neither readable nor out of service: {text}")


def _by_partition(history: History) -> dict[str, list[Op]]:
    found: dict[str, list[Op]] = {}
    for op in history.ops:
        found.setdefault(_where(op), []).append(op)
    return found


def _counts(history: History, final: Final) -> dict[str, int]:
    counts = {"ops": len(history.ops)}
    for op in history.ops:
        key = f"{op.kind}_{op.outcome or 'open'}"
        counts[key] = counts.get(key, 0) + 1
    counts["messages"] = sum(
        max((r.commit_end for r in replicas), default=0) for replicas in final.replicas.values()
    )
    return dict(sorted(counts.items()))
