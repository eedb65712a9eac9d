"""Bars with whiskers, as SVG written by hand: no library, and the same bytes every time."""

from xml.sax.saxutils import escape

import msgspec

from bench.figures import number

WIDTH = 760
LEFT = 180
RIGHT = 90
ROW = 26
TOP = 40
BAR = 16
OURS = "#2f6f4f"
OTHERS = "#8fa3b0"
INK = "#24292f"
STYLE = "font-family:system-ui,sans-serif;font-size:12px"


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One bar: the median, and the lowest and highest round."""

    label: str
    value: float
    low: float
    high: float
    ours: bool = False


def bars(title: str, rows: list[Bar]) -> str:
    """Return a plot of horizontal bars on a linear scale from 0."""
    height = TOP + ROW * len(rows) + 10
    most = max((row.high for row in rows), default=1.0) or 1.0
    scale = (WIDTH - LEFT - RIGHT) / most
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" style="{STYLE}">'
    )
    parts = [
        head,
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="8" y="22" fill="{INK}" font-weight="600">{escape(title)}</text>',
    ]
    for at, row in enumerate(rows):
        parts += _bar(row, TOP + ROW * at, scale)
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _bar(row: Bar, top: int, scale: float) -> list[str]:
    middle = top + BAR / 2
    length, low, high = (max(1.0, x * scale) for x in (row.value, row.low, row.high))
    weight = ' font-weight="600"' if row.ours else ""
    fill = OURS if row.ours else OTHERS
    base, tip = LEFT + low, LEFT + high
    return [
        _text(LEFT - 8, middle, row.label, f'text-anchor="end"{weight}'),
        f'<rect x="{LEFT}" y="{top}" width="{length:.1f}" height="{BAR}" fill="{fill}"/>',
        _line(base, middle, tip, middle),
        _line(base, middle - 3, base, middle + 3),
        _line(tip, middle - 3, tip, middle + 3),
        _text(tip + 6, middle, number(row.value), weight),
    ]


def _text(x: float, middle: float, text: str, more: str) -> str:
    place = f'x="{x:.1f}" y="{middle + 4:.1f}"'
    return f'<text {place} fill="{INK}" {more}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{INK}" stroke-width="1"/>'
