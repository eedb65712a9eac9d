"""Retries: what becomes of a message that was not acked.

From a lease that ends, or a nack or reject, a message goes to RESTING (backoff), to READY, or,
when its attempts are used up, to the outbox: DYING. Where a group keeps no dead letters it is
settled instead.

R1  ``max_retries = 3`` means four deliveries: the fourth that fails is the last.
R2  Backoff after delivery n is backoff_ms * 2^(n-1), at most backoff_ms_max. A leader that wants
    jitter stamps the delay into the nack.
R3  What ends by itself ends in the order of (time, offset), at most so many rows at a time.
"""

from raftline.machines.delivery.commands import BACKOFF, Policy
from raftline.machines.delivery.group import Piece, WorkGroup
from raftline.machines.delivery.outbox import EXPIRED, Dying, Outbox
from raftline.machines.delivery.rows import (
    DYING,
    FIRST,
    KEY,
    LEASED,
    READY,
    RESTING,
    attempt_of,
    error_of,
    generation_of,
    mark_of,
    member_of,
    state_of,
    who_of,
)
from raftline.model.limits import NACK_DELAY_MS_MAX

_DOUBLINGS_MAX = 40  # longer than any backoff_ms_max


class Delivery:
    """One failed delivery of a piece, wherever it is known from."""

    __slots__ = ("attempt", "error", "first_ms", "generation", "key", "member")

    def __init__(self, attempt: int, generation: int, first_ms: int, key: int) -> None:
        self.attempt = attempt
        self.generation = generation
        self.first_ms = first_ms
        self.key = key
        self.member = ""
        self.error = ""


def backoff_ms(policy: Policy, attempt: int) -> int:
    """Return how long a message rests after its delivery number ``attempt``. R2."""
    doubled = policy.backoff_ms << min(attempt - 1, _DOUBLINGS_MAX)
    return min(policy.backoff_ms_max, doubled)


def give_back(group: WorkGroup, piece: Piece, failed: Delivery, delay_ms: int, at_ms: int) -> None:
    """Let a piece rest, or be ready at once."""
    if delay_ms == BACKOFF:
        delay_ms = backoff_ms(group.policy, failed.attempt)
    delay_ms = min(max(delay_ms, 0), NACK_DELAY_MS_MAX)
    state, time_ms = (RESTING, at_ms + delay_ms) if delay_ms else (READY, 0)
    error = group.errors.number(failed.error)
    mark = mark_of(state, failed.attempt, failed.generation)
    group.change(piece, (mark, 0, time_ms, failed.first_ms, who_of(0, error), failed.key))


def release(group: WorkGroup, piece: Piece) -> None:
    """Make a leased piece ready again as if this delivery had not been."""
    row = piece[2]
    assert row is not None
    attempt = attempt_of(row) - 1
    mark = mark_of(READY, attempt, generation_of(row))
    first_ms = row[FIRST] if attempt else 0
    group.change(piece, (mark, 0, 0, first_ms, who_of(0, error_of(row)), row[KEY]))


def is_last(policy: Policy, attempt: int) -> bool:
    """Say whether a failed delivery number ``attempt`` was the last. R1."""
    return attempt > policy.max_retries


def give_up(
    group: WorkGroup, outbox: Outbox, piece: Piece, failed: Delivery, reason: str, at_ms: int
) -> None:
    """Put a piece into the outbox, or settle it where no dead letters are kept."""
    start, end = piece[:2]
    if not group.policy.dead_letters:
        group.change(piece, None)
        return
    outbox.add(
        Dying(
            outbox.next_number,
            group.name,
            start,
            end,
            failed.generation,
            reason,
            failed.attempt,
            failed.first_ms,
            at_ms,
            failed.member,
            failed.error,
        )
    )
    mark = mark_of(DYING, failed.attempt, failed.generation)
    group.change(piece, (mark, 0, 0, 0, 0, failed.key))


def expire(group: WorkGroup, outbox: Outbox, at_ms: int, rows_max: int) -> int:
    """End leases and backoffs that are due; return how many rows. R3."""
    timers, done = group.timers, 0
    while done < rows_max:
        note = timers.first()
        if note is None or note[0] > at_ms:
            break
        timers.pop()
        held = group.row_at(*note)
        if held is None:
            continue
        end, row = held
        piece = (note[1], end, row, end)
        failed = Delivery(attempt_of(row), generation_of(row), row[FIRST], row[KEY])
        failed.error = group.errors.text(error_of(row))
        done += 1
        is_lease = state_of(row) == LEASED
        if is_lease:
            group.expired += end - note[1]
        if is_lease and is_last(group.policy, failed.attempt):
            failed.member = group.members.text(member_of(row))
            give_up(group, outbox, piece, failed, EXPIRED, at_ms)
        else:
            give_back(group, piece, failed, 0, at_ms)
    return done
