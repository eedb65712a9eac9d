"""All curves as one page of Markdown with pictures beside it."""

from pathlib import Path

import msgspec

from bench.figures import number
from bench.scaling.curve import Curve
from bench.scaling.svg import draw

HEAD = """\
# Scaling

How cost grows along seven axes, from one to as many as a node is meant for. Made by
`python -m bench.scaling.run` (`make bench-scaling`); one axis again: `--only NAME`. Servers, load
and disk share one machine of 2 cores, so rates are what is left beside the load process; what
carries over to other machines is **CPU per operation, memory, and the shape of the curves**.
Latencies are of one caller that waits for each answer, unless a table says otherwise.

| axis | from | to | what grows | what does not |
|---|---|---|---|---|
"""
NAMES = ("sizes", "partitions", "groups", "leased", "waiting", "log", "connections")


class Found(msgspec.Struct):
    """What is kept beside the page: every curve by name."""

    curves: dict[str, Curve] = {}


def write(found: Found, page: Path) -> None:
    """Write page, pictures and the figures themselves."""
    images = page.parent / page.stem
    images.mkdir(parents=True, exist_ok=True)
    data = msgspec.json.format(msgspec.json.encode(found, order="sorted"), indent=1)
    page.with_suffix(".json").write_bytes(data + b"\n")
    page.write_text(to_markdown(found, page.stem))
    for curve in found.curves.values():
        for plot in curve.plots:
            (images / f"{curve.name}-{plot.name}.svg").write_text(draw(curve, plot))


def read(page: Path) -> Found:
    """Return what earlier runs found."""
    try:
        return msgspec.json.decode(page.with_suffix(".json").read_bytes(), type=Found)
    except FileNotFoundError:
        return Found()


def to_markdown(found: Found, images: str) -> str:
    """Return the page."""
    curves = [found.curves[name] for name in NAMES if name in found.curves]
    parts = [HEAD + "\n".join(_summary(curve) for curve in curves) + "\n"]
    for curve in curves:
        parts += [f"## {curve.title}\n", curve.how.strip() + "\n", table(curve)]
        parts += [
            f"![{plot.title}]({images}/{curve.name}-{plot.name}.svg)\n" for plot in curve.plots
        ]
        parts += [curve.reading.strip() + "\n", _made(curve)]
    return "\n".join(parts)


def table(curve: Curve) -> str:
    """Return the points as a table, a column for everything any point has."""
    names = list(dict.fromkeys(name for point in curve.points for name in point.values))
    rows = [f"| {curve.x_name} | {' | '.join(names)} |", "|" + "---|" * (len(names) + 1)]
    for point in curve.points:
        cells = (number(point.values[n]) if n in point.values else "" for n in names)
        rows.append(f"| {point.label} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _summary(curve: Curve) -> str:
    """Say what changed most and what stayed, from the first point to the last."""
    first, last = curve.points[0], curve.points[-1]
    ratios = {
        name: last.values[name] / value
        for name, value in first.values.items()
        if value > 0 and last.values.get(name, 0) > 0
    }
    grows = sorted((n for n, r in ratios.items() if r >= 2), key=lambda n: -ratios[n])[:3]
    stays = [n for n, r in ratios.items() if 0.5 < r < 2][:3]
    more = ", ".join(f"{n} x {number(ratios[n])}" for n in grows)
    link = f"[{curve.x_name}](#{curve.title.lower().replace(' ', '-').replace(',', '')})"
    return f"| {link} | {first.label} | {last.label} | {more} | {', '.join(stays)} |"


def _made(curve: Curve) -> str:
    machine = curve.machine
    about = ", ".join(
        machine[name]
        for name in ("processor", "memory", "file system", "kernel")
        if name in machine
    )
    form = "quick form" if curve.quick else "full form"
    return (
        f"<sub>{form}, {curve.seconds:.0f} s; {about}; fdatasync p50 {curve.sync_p50_ms:.2f} ms; "
        f"load before {machine.get('load before', '?')}</sub>\n"
    )
