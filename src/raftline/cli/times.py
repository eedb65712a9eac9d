"""Moments as people write them: RFC 3339, a date, ``now``, a time ago (``-1h``) or ahead (``+1h``).

A moment without a zone is UTC.
"""

from datetime import UTC, datetime

from raftline.config.moments import show_moment
from raftline.config.quantities import parse_span_ms


def parse_time_ms(text: str, *, now_ms: int) -> int:
    """Return Unix milliseconds.

    Raises:
        ValueError: it is no moment.
    """
    text = text.strip()
    if text == "now":
        return now_ms
    if text.startswith("-") and not text[1:].isdigit():
        return now_ms - parse_span_ms(text[1:])
    if text.startswith("+"):
        return now_ms + parse_span_ms(text[1:])
    if text.isdigit() and len(text) > 8:
        return int(text)  # already Unix milliseconds
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no time; write 2026-01-31T12:00:00Z, 2026-01-31 or -1h"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def show_time(time_ms: int) -> str:
    """Return RFC 3339 in UTC with milliseconds."""
    return show_moment(time_ms)


def show_span(duration_ms: int) -> str:
    """Return a duration in its two largest units: ``59m40s``; for people, not exact."""
    left_s = max(0, duration_ms) // 1000
    parts: list[str] = []
    for unit, unit_s in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left_s = divmod(left_s, unit_s)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2]) or f"{max(0, duration_ms)}ms"
