"""Durations and sizes as people write them: ``30s``, ``1h30m``, ``10GB``, ``64MiB``.

A bare number is already in the unit of its setting (milliseconds, bytes); where no name says a
unit, the value has to (``parse_span_ms``). ``kB MB GB TB`` are powers of ten, ``KiB MiB GiB TiB``
powers of two.
"""

import math
import re

DURATION_MS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
SIZE_BYTES = {
    "b": 1,
    "k": 10**3,
    "kb": 10**3,
    "m": 10**6,
    "mb": 10**6,
    "g": 10**9,
    "gb": 10**9,
    "t": 10**12,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}

_NUMBER = re.compile(r"-?\d+(_\d+)*")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]+)")


def parse_duration_ms(text: str) -> int:
    """Return milliseconds for ``30s``, ``1h30m``, ``7d`` or a bare number of milliseconds.

    Raises:
        ValueError: the text is no duration.
    """
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return int(text)
    parts = _DURATION_PART.findall(text)
    duration_ms = sum(float(number) * DURATION_MS[unit] for number, unit in parts)
    if not parts or _DURATION_PART.sub("", text).strip() or duration_ms == math.inf:
        raise ValueError(f"{text[:60]!r} is no duration; write for example 500ms, 30s, 1h30m, 7d")
    return round(duration_ms)


def parse_span_ms(text: str) -> int:
    """Return milliseconds of a duration that names its unit, as a flag like ``--retention`` needs.

    Who writes 7 means days, or seconds, not the milliseconds that it would be taken for.
    Zero and -1 (never) need no unit.

    Raises:
        ValueError: the text is no duration, or has no unit.
    """
    span_ms = parse_duration_ms(text)
    if span_ms > 0 and not has_unit(text):
        raise ValueError(f"{text[:60]!r} has no unit; write for example 500ms, 30s, 1h30m, 7d")
    return span_ms


def has_unit(text: str) -> bool:
    """Return whether the text is more than a number."""
    return _NUMBER.fullmatch(text.strip()) is None


def parse_bytes(text: str) -> int:
    """Return bytes for ``10GB``, ``64MiB`` or a bare number of bytes.

    Raises:
        ValueError: the text is no size.
    """
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return int(text)
    match = _SIZE.fullmatch(text)
    unit_bytes = SIZE_BYTES.get(match[2].lower(), 0) if match is not None else 0
    size_bytes = float(match[1]) * unit_bytes if match is not None and unit_bytes else math.inf
    if size_bytes == math.inf:
        raise ValueError(f"{text[:60]!r} is no size; write for example 512KiB, 64MiB, 10GB")
    return round(size_bytes)


def show_duration(duration_ms: int) -> str:
    """Return the shortest exact form: 5000 is ``5s``."""
    for unit in ("d", "h", "m", "s"):
        if duration_ms > 0 and duration_ms % DURATION_MS[unit] == 0:
            return f"{duration_ms // DURATION_MS[unit]}{unit}"
    return f"{duration_ms}ms" if duration_ms >= 0 else "never"


def show_bytes(size_bytes: int) -> str:
    """Return a size people can read; exact only for round numbers."""
    if size_bytes < 0:
        return "no bound"
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
