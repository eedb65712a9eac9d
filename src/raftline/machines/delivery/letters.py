"""Dead letters, seen from the source: buried, revived, forgotten.

DYING becomes DEAD when the dead-letter topic has it. DEAD stays known until retention takes the
message: it keeps its generation, and in an ordered group its key, so that it can be revived in its
place. ``revive`` makes it ready again, one generation later and counted anew; ``forget`` settles
it for good.
"""

from collections.abc import Callable

from raftline.machines.delivery.commands import Forget, Revive
from raftline.machines.delivery.group import Piece, WorkGroup
from raftline.machines.delivery.outbox import Outbox
from raftline.machines.delivery.outcomes import Done
from raftline.machines.delivery.rows import (
    DEAD,
    DYING,
    GENERATION_MAX,
    KEY,
    READY,
    generation_of,
    mark_of,
    state_of,
)
from raftline.model.intervals import IntervalSet
from raftline.model.limits import SETTLE_ROWS_MAX


def bury(find: Callable[[str], WorkGroup | None], outbox: Outbox, number: int) -> int:
    """The dead-letter topic has everything up to ``number``; return how many messages died."""
    count = 0
    for dying in outbox.bury(number):
        group = find(dying.group)
        if group is None:
            continue
        for piece in list(group.pieces(dying.start, dying.end)):
            row = piece[2]
            if row is None or state_of(row) != DYING or generation_of(row) != dying.generation:
                continue  # reset or trimmed meanwhile
            mark = mark_of(DEAD, 0, dying.generation)
            group.change(piece, (mark, 0, 0, 0, 0, row[KEY]))
            count += piece[1] - piece[0]
    return count


def revive(group: WorkGroup, command: Revive) -> Done:
    """Make the dead of some ranges ready again, one generation later."""
    dead, stopped = _dead(group, command.ranges)
    for piece in dead:
        row = piece[2]
        assert row is not None
        generation = min(generation_of(row) + 1, GENERATION_MAX)
        group.generation_max = max(group.generation_max, generation)
        group.change(piece, (mark_of(READY, 0, generation), 0, 0, 0, 0, row[KEY]))
    return Done(_count(dead), stopped)


def forget(group: WorkGroup, command: Forget) -> Done:
    """Settle the dead of some ranges."""
    dead, stopped = _dead(group, command.ranges)
    for piece in dead:
        group.change(piece, None)
    return Done(_count(dead), stopped)


def _dead(group: WorkGroup, ranges: list[int]) -> tuple[list[Piece], int]:
    """Return the dead of some ranges, and where a bound was met (-1: nowhere)."""
    wanted = IntervalSet(zip(ranges[::2], ranges[1::2], strict=True))
    found: list[Piece] = []
    looks = 0
    for start, end in wanted:
        for low, high, row in group.rows.overlapping(start, end):
            if looks == SETTLE_ROWS_MAX:
                return found, max(low, start)
            looks += 1
            if state_of(row) == DEAD:
                found.append((max(low, start), min(high, end), row, high))
    return found, -1


def _count(pieces: list[Piece]) -> int:
    return sum(end - start for start, end, _, _ in pieces)
