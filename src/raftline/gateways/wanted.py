"""What a message asks for besides being stored: a priority, a later time, to be stored once."""

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from raftline.config.moments import parse_moment_ms
from raftline.machines.partition.side_car import hash_key
from raftline.model.errors import InvalidArgument, TooLarge
from raftline.model.limits import DEDUP_KEY_BYTES_MAX
from raftline.model.priorities import parse_priority
from raftline.model.settings import Value, parse_duration_ms

NOW = 0

Settings = Callable[[], Mapping[str, Value]]


class Wishes(Protocol):
    """A new message as its gateway reads it, in the fields that ask for something."""

    priority: int | str | None
    delay: int | str | None  # milliseconds, or text such as 5m
    deliverAt: str | int | None  # noqa: N815
    deliver_at: str | int | None
    dedup_key: str | None


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """The wishes of one message, checked."""

    priority: int = 0
    due_ms: int = NOW  # a moment, or if negative so many milliseconds after it is stored
    dedup_key: bytes | None = None
    key_hash: bytes | None = None  # None: not to be remembered


NOTHING = Wanted()


def wanted_of(item: Wishes, settings: Settings, now_ms: int) -> Wanted:
    """Return what ``item`` asks for; ``settings`` are its topic's.

    Raises:
        InvalidArgument: it cannot have that.
    """
    if (
        item.priority is None
        and item.delay is None
        and item.deliverAt is None
        and item.deliver_at is None
        and item.dedup_key is None
    ):
        return NOTHING
    topic = settings()
    priority = 0 if item.priority is None else parse_priority(item.priority, int(topic["lanes"]))
    due_ms = _due_ms(item, int(topic["delay_ms_max"]), now_ms)
    if item.dedup_key is None:
        return Wanted(priority, due_ms)
    dedup_key = check_dedup_key(item.dedup_key.encode())
    key_hash = hash_key(dedup_key) if topic["dedup_ms"] else None
    return Wanted(priority, due_ms, dedup_key, key_hash)


def check_dedup_key(dedup_key: bytes) -> bytes:
    """Return the key if it can be one. Raises InvalidArgument, TooLarge."""
    if not dedup_key:
        raise InvalidArgument("the dedup key is empty", "leave it out, or give it a text")
    if len(dedup_key) > DEDUP_KEY_BYTES_MAX:
        raise TooLarge("bytes of a dedup key", len(dedup_key), DEDUP_KEY_BYTES_MAX)
    return dedup_key


def _due_ms(item: Wishes, delay_ms_max: int, now_ms: int) -> int:
    """Return when the message is due (``Wanted.due_ms``)."""
    moment = item.deliverAt if item.deliver_at is None else item.deliver_at
    if item.deliverAt is not None and item.deliver_at is not None:
        raise InvalidArgument("deliverAt and deliver_at are both there", "send one of them")
    if item.delay is not None and moment is not None:
        raise InvalidArgument("delay and deliverAt are both there", "send one of them")
    if item.delay is not None:
        delay_ms = item.delay if isinstance(item.delay, int) else parse_duration_ms(item.delay)
        due_ms = -delay_ms
    elif moment is not None:
        due_ms = parse_moment_ms("deliverAt", moment)
        delay_ms = max(0, due_ms - now_ms)
    else:
        return NOW
    if not 0 <= delay_ms <= delay_ms_max:
        raise InvalidArgument(
            f"a delay of {delay_ms} ms is out of bounds",
            f"at most {delay_ms_max} ms here (topic setting delay_ms_max); nothing was stored",
        )
    return due_ms if delay_ms else NOW
