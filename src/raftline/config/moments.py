"""Moments as clients write and read them: RFC 3339. One without a zone is UTC."""

from datetime import UTC, datetime

from raftline.model.errors import InvalidArgument

MOMENT_MS_MIN = -62_135_596_800_000  # the first of year 1
MOMENT_MS_MAX = 253_402_300_799_999  # the last of year 9999


def parse_moment_ms(name: str, value: str | int) -> int:
    """Return Unix milliseconds of an RFC 3339 text, or of a number that is already such.

    Raises:
        InvalidArgument: it is no moment.
    """
    hint = "write it as 2026-01-31T12:00:00Z, or as Unix milliseconds"
    if isinstance(value, int):
        time_ms = value
    else:
        try:
            moment = datetime.fromisoformat(value.strip())
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC)
            time_ms = round(moment.timestamp() * 1000)
        except (ValueError, OverflowError) as error:
            raise InvalidArgument(f"{name} {value[:40]!r} is no moment", hint) from error
    if not 0 <= time_ms <= MOMENT_MS_MAX:
        raise InvalidArgument(f"{name} {str(value)[:40]!r} is out of bounds", hint)
    return time_ms


def show_moment(time_ms: int) -> str:
    """Return RFC 3339 in UTC with milliseconds; senders write any number, a calendar ends."""
    time_ms = max(MOMENT_MS_MIN, min(time_ms, MOMENT_MS_MAX))
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
