"""Settings of a topic: what there is, what is allowed, what holds where nothing is set.

A topic keeps only what was set; ``effective`` adds the defaults. A setting exists from a feature
level on, so that all nodes of a mixed cluster take or refuse it alike.

Values may be written as text: durations ``30s`` ``7d`` for ``*_ms``, sizes ``10GB`` ``64MiB`` for
``*_bytes``, ``true`` / ``false``.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

from raftline.model import limits
from raftline.model.errors import InvalidArgument
from raftline.model.partitioner import PARTITIONERS

Value = str | int | bool
FOREVER = -1  # retention without an end

_DAY_MS = 24 * limits.HOUR_MS
_DURATIONS = {
    "ms": 1,
    "s": limits.SECOND_MS,
    "m": 60 * limits.SECOND_MS,
    "h": limits.HOUR_MS,
    "d": _DAY_MS,
    "w": 7 * _DAY_MS,
}
_SIZES = {
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": limits.KIB,
    "mib": limits.MIB,
    "gib": limits.GIB,
    "tib": 1024 * limits.GIB,
}
_AMOUNT = re.compile(r"(?P<number>-?[0-9]{1,18})(?P<unit>[A-Za-z]*)", re.ASCII)
_DURATION_PART = re.compile(r"([0-9]{1,18})(ms|s|m|h|d|w)", re.ASCII)
_LONG_DURATION = re.compile(r"(?:[0-9]{1,18}(?:ms|s|m|h|d|w)){2,6}", re.ASCII)
_YEARS_MS = 100 * 366 * _DAY_MS


class Setting(msgspec.Struct, frozen=True):
    """One setting: its default, what it may be, and since which feature level it exists."""

    default: Value
    help: str
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()
    since: int = 1


SETTINGS: dict[str, Setting] = {
    "retention_ms": Setting(
        limits.RETENTION_MS_DEFAULT, "age at which messages go; -1: never", FOREVER, _YEARS_MS
    ),
    "retention_bytes": Setting(
        limits.RETENTION_BYTES_DEFAULT, "size of a partition; -1: any", FOREVER, 1 << 60
    ),
    "segment_bytes": Setting(
        limits.SEGMENT_BYTES_DEFAULT,
        "size at which a segment is closed",
        limits.SEGMENT_BYTES_MIN,
        limits.SEGMENT_BYTES_MAX,
    ),
    "batch_bytes_max": Setting(
        limits.BATCH_BYTES_MAX, "largest batch taken", 1024, limits.BATCH_BYTES_MAX
    ),
    "partitioner": Setting("murmur2", "from key to partition", choices=tuple(PARTITIONERS)),
    "headers": Setting(default=False, help="read raftline-* headers of messages"),
    "archive": Setting(
        "off",
        "required: retention and trims stop at what the pipeline has archived",
        choices=("off", "required"),
    ),
    "archive_dir": Setting("", "where the pipeline keeps this topic; empty: pipeline.archive_dir"),
    "kafka_configs": Setting(
        "", "what Kafka clients set that has no effect here, kept for them: name=value, by commas"
    ),
    "lanes": Setting(5, "named priorities: 3 or 5", 1, 256),
    "priorities": Setting("aged", "how lanes are served", choices=("aged", "weighted", "strict")),
    "lease_ms": Setting(30_000, "time to settle a message", 1000, 12 * limits.HOUR_MS),
    "max_retries": Setting(3, "deliveries after the first", 0, 1000),
    "backoff_ms": Setting(1000, "delay after the first nack, then doubled", 0, limits.HOUR_MS),
    "backoff_ms_max": Setting(60_000, "longest delay after a nack", 0, _DAY_MS),
    "backoff_jitter": Setting(0, "percent by which a delay after a nack varies", 0, 100),
    "grant": Setting(
        "early",
        "when a first delivery goes out: early (its lease commits meanwhile) or durable (after)",
        choices=("early", "durable"),
    ),
    "dead_letters": Setting(
        default=True, help="keep what is given up on in the topic's .dlq; false: it is settled"
    ),
    "dead_letter_retention_ms": Setting(
        14 * _DAY_MS,
        "retention of the .dlq topic, given when it is created",
        FOREVER,
        _YEARS_MS,
    ),
    "trace_percent": Setting(100, "share of messages whose way is traced; 0: none", 0, 100),
    "trace_retention_ms": Setting(
        72 * limits.HOUR_MS, "age at which traces go; -1: never", FOREVER, _YEARS_MS
    ),
    "delay_ms_max": Setting(168 * limits.HOUR_MS, "longest delay of a message", 0, 366 * _DAY_MS),
    "dedup_ms": Setting(24 * limits.HOUR_MS, "dedup window", 0, 30 * _DAY_MS),
    "stage_ms": Setting(
        24 * limits.HOUR_MS,
        "how long staged writes of a silent query are kept",
        60 * limits.SECOND_MS,
        limits.FENCE_EXPIRE_MS,
    ),
    "query_lease_ms": Setting(
        24 * limits.HOUR_MS,
        "how long a query (Spark) may hold messages without a word",
        60 * limits.SECOND_MS,
        limits.QUERY_LEASE_MS_MAX,
    ),
}


def check_settings(given: Mapping[str, object], feature_level: int = 1) -> dict[str, Value]:
    """Return the settings in their plain form, in the order of their names.

    Raises:
        InvalidArgument: a name that is not known (with those that are) or a value out of bounds.
    """
    check_setting_names(given, feature_level)
    return {name: _check_value(name, SETTINGS[name], given[name]) for name in sorted(given)}


def check_setting_names(given: Iterable[str], feature_level: int = 1) -> None:
    """Refuse names that are not known at this level, listing those that are."""
    known = [name for name, setting in SETTINGS.items() if setting.since <= feature_level]
    for name in given:
        if name not in known:
            raise InvalidArgument(
                f"{name[:100]!r} is not a setting of a topic", "known are: " + ", ".join(known)
            )


def effective(settings: Mapping[str, Value]) -> dict[str, Value]:
    """Return every setting with the value that holds."""
    return {name: settings.get(name, setting.default) for name, setting in SETTINGS.items()}


def parse_duration_ms(text: str) -> int:
    """Read ``30s``, ``1h30m``, ``7d``, ``1500`` (ms): durations of a call.

    Those among a topic's settings have one unit: they are read when an entry is applied, and all
    nodes must take or refuse them alike, whatever their build.
    """
    wanted = text.strip().lower()
    if _LONG_DURATION.fullmatch(wanted):
        parts = _DURATION_PART.findall(wanted)
        return sum(int(number) * _DURATIONS[unit] for number, unit in parts)
    return _amount(text, _DURATIONS, "a duration such as 500ms, 30s, 1h30m, 7d")


def parse_size_bytes(text: str) -> int:
    """Read ``10GB`` (1000-based), ``64MiB`` (1024-based), ``4096``."""
    return _amount(text, _SIZES, "a size such as 4096, 64KiB, 100MB, 10GB")


def _check_value(name: str, setting: Setting, value: object) -> Value:
    if isinstance(setting.default, bool):
        return _check_flag(name, value)
    if isinstance(setting.default, str):
        if not setting.choices:
            return _check_text(name, value)
        if value not in setting.choices:
            raise InvalidArgument(
                f"{name} cannot be {_short(value)}", "use one of: " + ", ".join(setting.choices)
            )
        return str(value)
    number = _number(name, value)
    if not setting.low <= number <= setting.high:
        raise InvalidArgument(
            f"{name} cannot be {number}", f"use {setting.low} to {setting.high} ({setting.help})"
        )
    return number


def _check_text(name: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > limits.SETTINGS_TEXT_CHARS_MAX:
        hint = f"a text of at most {limits.SETTINGS_TEXT_CHARS_MAX} characters"
        raise InvalidArgument(f"{name} cannot be {_short(value)}", hint)
    return value


def _check_flag(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise InvalidArgument(f"{name} cannot be {_short(value)}", "use true or false")


def _number(name: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        if name.endswith(("_ms", "_ms_max")):
            return _amount(value, _DURATIONS, "a duration such as 500ms, 30s, 5m, 12h, 7d")
        if "_bytes" in name:
            return parse_size_bytes(value)
        return _amount(value, {}, "a whole number")
    raise InvalidArgument(f"{name} cannot be {_short(value)}", "use a whole number")


def _amount(text: str, units: Mapping[str, int], wanted: str) -> int:
    found = _AMOUNT.fullmatch(text.strip())
    factor = 1 if found and not found["unit"] else found and units.get(found["unit"].lower())
    if not found or not factor:
        raise InvalidArgument(f"{_short(text)} is not {wanted}")
    return int(found["number"]) * factor


def _short(value: object) -> str:
    return repr(value)[:100]
