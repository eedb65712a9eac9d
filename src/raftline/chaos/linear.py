"""Linearizability of what clients saw: single partitions, and the catalog.

A partition's offsets are the order of its appends, so nothing has to be searched: every append and
every linearizable read must agree with that order and with real time.

    L1  an append that began after another was acknowledged has the greater offset
    L2  a linearizable read that began after an append was acknowledged sees it
    L3  a linearizable read that began after another ended sees at least as much

The catalog is a register per topic name (there or not). Whether some order of its calls explains
all answers is searched, as Wing and Gong do it, with what was tried remembered.
"""

from collections.abc import Iterator, Sequence

import msgspec

from raftline.testing.checker import Violation
from raftline.testing.history import History, Op

FOREVER_MS = float("inf")
_State = tuple[frozenset[int], int, int, bool]  # calls left; unheard ones used; there or not


def check_partitions(history: History) -> Iterator[Violation]:
    """Hold every partition's appends and linearizable reads to L1, L2 and L3."""
    places = sorted({(op.topic, op.partition) for op in history.ops})
    for topic, partition in places:
        ops = [op for op in history.ops if (op.topic, op.partition) == (topic, partition)]
        done = [op for op in ops if op.outcome == "ok"]
        appends = [op for op in done if op.kind == "append" and not op.duplicate]
        reads = [op for op in done if op.kind == "read" and op.linearizable]
        name = f"{topic}/{partition}"
        yield from _grows(name, "L1 a later append has a smaller offset", appends, appends)
        yield from _grows(name, "L2 a read misses what was acknowledged", appends, reads)
        yield from _grows(name, "L3 a read sees less than an earlier one", reads, reads)


def _grows(name: str, text: str, before: Sequence[Op], after: Sequence[Op]) -> Iterator[Violation]:
    """Find ops that began after others had ended and yet know less."""
    ended = sorted(before, key=lambda op: op.ended_ms)
    known, witness, at = -1, None, 0
    for op in sorted(after, key=lambda op: op.invoked_ms):
        while at < len(ended) and ended[at].ended_ms < op.invoked_ms:
            if _reach(ended[at]) > known:
                known, witness = _reach(ended[at]), ended[at]
            at += 1
        if witness is not None and _reach(op) < known:
            yield Violation("P2", text, f"{name}: op {op.id} after op {witness.id} (@{known - 1})")


def _reach(op: Op) -> int:
    """Return the end of the log that an op proves."""
    return op.offset + op.count if op.kind == "append" else op.commit_end


class Change(msgspec.Struct, frozen=True):
    """One call on a topic's name, with what was answered."""

    what: str  # "create" or "delete"
    invoked_ms: float
    ended_ms: float  # FOREVER_MS: nobody knows whether it happened
    told: bool | None = None  # it was done; None: nobody knows
    name: str = ""
    node: str = ""  # who was asked


def is_linearizable(changes: Sequence[Change]) -> bool:
    """Say whether some order of the calls, true to real time, explains every answer.

    Calls that nobody heard of may have happened at any time since, so those of one kind stand for
    each other: it counts how many of them are used up, not which. That keeps the search small.
    """
    known = [change for change in changes if change.told is not None]
    unheard = {
        what: sorted(c.invoked_ms for c in changes if c.told is None and c.what == what)
        for what in ("create", "delete")
    }
    tried: set[_State] = set()
    stack: list[_State] = [(frozenset(range(len(known))), 0, 0, False)]
    while stack:
        state = stack.pop()
        if state in tried:
            continue
        tried.add(state)
        left, creates, deletes, there = state
        if not left:
            return True
        first_end = min(known[i].ended_ms for i in left)
        for i in left:
            if known[i].invoked_ms <= first_end:
                stack += [
                    (left - {i}, creates, deletes, after)
                    for after in _outcomes(known[i], there=there)
                ]
        used = deletes if there else creates  # one more of them changes something
        waiting = unheard["delete" if there else "create"][used:]
        if waiting and waiting[0] <= first_end:
            stack.append((left, creates + (not there), deletes + there, not there))
    return False


def _outcomes(change: Change, *, there: bool) -> list[bool]:
    """Return the state a call leaves, given its answer; none: it cannot stand here."""
    goal = change.what == "create"
    could = there != goal
    return [goal if could else there] if could == change.told else []
