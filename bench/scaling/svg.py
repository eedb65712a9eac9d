"""Line plots as SVG, written by hand: logarithmic or linear axes, one line per column."""

import math
from html import escape

from bench.figures import number
from bench.scaling.curve import Curve, Plot, Point

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 44, 52
COLOURS = ("#1f6feb", "#d1495b", "#2e8b57", "#b8860b", "#7a4fbf", "#444444")
FONT = 'font-family="system-ui, sans-serif"'


class Scale:
    """From values to places on the page."""

    def __init__(self, values: list[float], first: float, last: float, *, log: bool) -> None:
        self.log = log
        low, high = (min(values), max(values)) if values else (1.0, 1.0)
        if log:
            low, high = math.floor(math.log10(low)), math.ceil(math.log10(high))
        else:
            low = 0.0
        self.low, self.high = low, high if high > low else low + 1
        self._first, self._last = first, last

    def at(self, value: float) -> float:
        """Return where ``value`` is."""
        part = math.log10(value) if self.log else value
        share = (part - self.low) / (self.high - self.low)
        return self._first + share * (self._last - self._first)

    def ticks(self) -> list[float]:
        """Return the values that get a line and a number."""
        if self.log:
            steps = range(round(self.low), round(self.high) + 1)
            return [10.0**step for step in steps]
        raw = (self.high - self.low) / 4
        size = 10.0 ** math.floor(math.log10(raw))
        step = next(size * many for many in (1, 2, 5, 10) if size * many >= raw)
        return [step * n for n in range(int(self.high / step) + 1)]


def draw(curve: Curve, plot: Plot) -> str:
    """Return the picture of one plot."""
    points = [p for p in curve.points if not plot.x_log or p.x > 0]
    values = [
        p.values[c]
        for p in points
        for c in plot.columns
        if c in p.values and (p.values[c] > 0 or not plot.y_log)
    ]
    x = Scale([p.x for p in points], LEFT, WIDTH - RIGHT, log=plot.x_log)
    y = Scale(values, HEIGHT - BOTTOM, TOP, log=plot.y_log)
    size = f'width="{WIDTH}" height="{HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {HEIGHT}" {FONT}',
        ' font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(WIDTH / 2, 18, plot.title, 'text-anchor="middle" font-weight="bold"'),
        _text(WIDTH / 2, HEIGHT - 10, curve.x_name, 'text-anchor="middle"'),
        _text(8, TOP - 8, plot.unit, ""),
        *_grid(x, y),
    ]
    for place, column in enumerate(plot.columns):
        parts += _line(points, column, x, y, COLOURS[place % len(COLOURS)], log=plot.y_log)
        parts += _legend(place, column)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _grid(x: Scale, y: Scale) -> list[str]:
    parts: list[str] = []
    bottom = HEIGHT - BOTTOM
    for value in x.ticks():
        at = x.at(value)
        parts.append(_rule(at, TOP, at, bottom))
        parts.append(_text(at, bottom + 16, tick_text(value), 'text-anchor="middle"'))
    for value in y.ticks():
        at = y.at(value)
        parts.append(_rule(LEFT, at, WIDTH - RIGHT, at))
        parts.append(_text(LEFT - 6, at + 4, tick_text(value), 'text-anchor="end"'))
    return parts


def _line(
    points: list[Point], column: str, x: Scale, y: Scale, colour: str, *, log: bool
) -> list[str]:
    places = [
        (x.at(p.x), y.at(p.values[column]), p.values[column])
        for p in points
        if column in p.values and (p.values[column] > 0 or not log)
    ]
    path = " ".join(f"{left:.1f},{top:.1f}" for left, top, _ in places)
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *(
            f'<circle cx="{left:.1f}" cy="{top:.1f}" r="3.5" fill="{colour}">'
            f"<title>{escape(column)}: {number(value)}</title></circle>"
            for left, top, value in places
        ),
    ]


def _legend(place: int, column: str) -> list[str]:
    top = TOP + 14 + 16 * place
    colour = COLOURS[place % len(COLOURS)]
    return [
        f'<rect x="{LEFT + 10}" y="{top - 9}" width="10" height="10" fill="{colour}"/>',
        _text(LEFT + 26, top, column, ""),
    ]


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        'stroke="#dddddd" stroke-width="1"/>'
    )


def _text(x: float, y: float, text: str, more: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="#222222" {more}>{escape(text)}</text>'


def tick_text(value: float) -> str:
    """Return a number of an axis, short."""
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:g}{unit}"
    return f"{value:g}"
