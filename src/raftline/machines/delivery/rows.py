"""Rows: what is known of a range of messages in a work group, packed into six integers.

====== ============================================================================
mark   state | attempt << 3 | generation << 24. ``attempt``: deliveries so far
lease  term << 40 | sequence of the Grant that holds it; LEASED only, else 0
time   LEASED: deadline. RESTING: when it is ready again. Else 0
first  log time of the first delivery in this generation; 0 if there was none
who    member | error << 32, numbers of texts (texts.py): who has it, what was said last
key    hash of the key in an ordered group, else 0
====== ============================================================================

What a state has no use for is 0, so that neighbours in the same state are one range.
"""

from raftline.model.range_table import Row

LEASED, RESTING, READY, DYING, DEAD = 1, 2, 3, 4, 5
STATES = ("settled", "leased", "resting", "ready", "dying", "dead")
TIMED = (LEASED, RESTING)  # states that end by themselves

MARK, LEASE, TIME, FIRST, WHO, KEY = range(6)
COLUMNS = 6

ATTEMPT_MAX = (1 << 21) - 1
GENERATION_MAX = (1 << 39) - 1
TERM_MAX = (1 << 23) - 1
SEQUENCE_MAX = (1 << 40) - 1
TIME_MS_MAX = 1 << 52
TEXT_MASK = (1 << 32) - 1


def mark_of(state: int, attempt: int, generation: int) -> int:
    """Pack a mark."""
    assert 0 <= attempt <= ATTEMPT_MAX, attempt
    assert 0 <= generation <= GENERATION_MAX, generation
    return state | attempt << 3 | generation << 24


def state_of(row: Row) -> int:
    """Return the state of a row."""
    return row[MARK] & 7


def attempt_of(row: Row) -> int:
    """Return how often the messages of a row were delivered in their generation."""
    return row[MARK] >> 3 & ATTEMPT_MAX


def generation_of(row: Row) -> int:
    """Return the generation of a row."""
    return row[MARK] >> 24


def lease_of(term: int, sequence: int) -> int:
    """Pack the name of a lease; -1 if no lease can have it."""
    if 0 <= term <= TERM_MAX and 0 <= sequence <= SEQUENCE_MAX:
        return term << 40 | sequence
    return -1


def who_of(member: int, error: int) -> int:
    """Pack the numbers of two texts."""
    return member | error << 32


def member_of(row: Row) -> int:
    """Return the number of the member's name."""
    return row[WHO] & TEXT_MASK


def error_of(row: Row) -> int:
    """Return the number of what was said last."""
    return row[WHO] >> 32


def check_row(row: Row) -> None:
    """Raise if a row has what its state has no use for, or lacks what it needs."""
    state = state_of(row)
    assert LEASED <= state <= DEAD, row
    assert (state == LEASED) == (row[LEASE] > 0), row
    assert (state in TIMED) == (row[TIME] > 0), row
    assert state == LEASED or not member_of(row), row
    assert state in (LEASED, RESTING, READY) or not (row[WHO] or row[FIRST]), row
    assert (attempt_of(row) == 0) <= (state in (READY, DEAD)), row
