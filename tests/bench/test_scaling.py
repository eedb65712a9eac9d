"""The walks along the axes of scale work, and their page says what was measured."""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from bench.scaling.curve import Curve, Plot, Point, size_text
from bench.scaling.page import NAMES, Found, read, to_markdown, write
from bench.scaling.run import PAGE
from bench.scaling.svg import draw, tick_text

ROOT = Path(__file__).parents[2]


def curve() -> Curve:
    return Curve(
        name="sizes",
        title="Message size",
        x_name="bytes",
        how="So.",
        points=[
            Point(x=10, label="10 B", values={"p50 ms": 0.5, "CPU us": 20}),
            Point(x=10_000, label="10 KB", values={"p50 ms": 50, "CPU us": 21, "late ms": 0}),
        ],
        plots=[Plot("latency", "Latency <of one>", "ms", ("p50 ms", "late ms"))],
        reading="It is.",
    )


def test_a_plot_has_its_points_where_the_numbers_are():
    """Both axes are logarithmic: one decade and three decades end at the corners."""
    tree = ElementTree.fromstring(draw(curve(), curve().plots[0]))
    dots = [e for e in tree.iter() if e.tag.endswith("circle")]
    places = [(float(d.attrib["cx"]), float(d.attrib["cy"])) for d in dots]
    assert places[0][0] == 70
    assert places[1][0] == 620
    assert places[0][1] > places[1][1]
    assert len(dots) == 2  # nothing has no place on a logarithmic axis
    assert "Latency <of one>" in {e.text for e in tree.iter()}


def test_numbers_of_axes_and_sizes_are_short():
    assert [tick_text(v) for v in (0.1, 10, 1e3, 2e6)] == ["0.1", "10", "1k", "2M"]
    sizes = [size_text(v) for v in (10, 10 << 10, 4 << 20, 10**10)]
    assert sizes == ["10 B", "10 KiB", "4 MiB", "10 GB"]


def test_the_page_keeps_curves_of_earlier_runs(tmp_path: Path):
    page = tmp_path / "scaling.md"
    write(Found(curves={"sizes": curve()}), page)
    assert read(page).curves["sizes"] == curve()
    text = page.read_text()
    assert "| 10 KB | 50.0 | 21.0 | 0.00 |" in text
    assert "p50 ms x 100" in text
    assert (tmp_path / "scaling" / "sizes-latency.svg").exists()


def test_the_page_that_is_checked_in_says_what_was_measured():
    found = read(PAGE)
    assert tuple(sorted(found.curves)) == tuple(sorted(NAMES))
    assert PAGE.read_text() == to_markdown(found, PAGE.stem), "run: … --write-only"
    for one in found.curves.values():
        assert not one.quick
        assert one.reading.strip(), f"{one.name}: nobody has read it"
        for plot in one.plots:
            image = PAGE.parent / PAGE.stem / f"{one.name}-{plot.name}.svg"
            assert image.read_text() == draw(one, plot)


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    "axis", [pytest.param(n, marks=[] if n == "leased" else [pytest.mark.full]) for n in NAMES]
)
def test_an_axis_can_be_walked(tmp_path: Path, axis: str):
    """Counts are checked by the walk itself; here that it ends, and leaves nothing behind."""
    words = ["--quick", "--only", axis, "--work", str(tmp_path), "--page", str(tmp_path / "p.md")]
    done = subprocess.run(
        [sys.executable, "-m", "bench.scaling.run", *words],
        cwd=ROOT, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    points = read(tmp_path / "p.md").curves[axis].points
    assert len(points) == 2
    assert all(value >= 0 for point in points for value in point.values.values())
    assert not (tmp_path / axis).exists()
