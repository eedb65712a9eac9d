"""``raftline pipeline report``: figures that can be counted by hand, and the page in a browser."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raftline
from raftline.cli import main
from raftline.model.errors import Conflict, InvalidArgument, UnknownTopic
from raftline.pipeline import report
from raftline.pipeline.job import Job
from raftline.pipeline.report import bucket_of
from raftline.pipeline.report_page import page_of
from tests.cluster.browser import Page, find_chromium, open_page
from tests.spark.pipeline_traffic import GROUP, fill

pytestmark = pytest.mark.spark
TOPIC = "report-orders"
NASTY = "</script><script>document.title='hurt'</script>"


@pytest.fixture(scope="module")
def made(spark: Any, node: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One report of one topic, in all its forms."""
    servers = node.node(node.names[0]).http
    home = tmp_path_factory.mktemp("report")
    with raftline.connect(servers) as line:
        line.topics.create(TOPIC, partitions=2)
        fill(line, servers, TOPIC, 60)
        line.send_now(TOPIC, b"late", key=NASTY, delay="50ms")
        (message,) = line.receive_many(TOPIC, group=GROUP, wait="10s")
        message.ack(wait=True)
    with Job("report", servers) as job:
        return report.run(
            job, topics=[TOPIC], html=str(home / "report.html"), parquet=str(home / "tables")
        )


def test_counts_are_those_of_what_happened(made: dict[str, Any]) -> None:
    total = next(row for row in made["totals"] if row["group"] == GROUP)
    figures = ("messages", "deliveries", "retries", "acked", "dead", "attempts_max")
    assert [total[name] for name in figures] == [61, 73, 12, 55, 6, 2]
    everything = next(row for row in made["totals"] if row["topic"] is None)
    assert everything["messages"] == 61
    (hour,) = made["hours"][:1]
    assert (hour["topic"], hour["group"]) == (TOPIC, GROUP)
    assert sum(row["messages"] for row in made["hours"]) == 61
    for field in ("to_delivery_ms", "to_ack_ms"):
        assert total[field] == sorted(total[field])
        assert 0 <= total[field][0] <= total[field][-1] <= 120_000
    assert total["to_delivery_ms"][0] <= total["to_ack_ms"][0]


def test_what_went_through_and_what_went_wrong(made: dict[str, Any]) -> None:
    flow: dict[str, int] = {}
    for row in made["flow"]:
        flow[row["kind"]] = flow.get(row["kind"], 0) + row["count"]
    assert flow == {"published": 61, "delivered": 73, "acked": 55}
    troubles: dict[tuple[str, str, str | None], int] = {}
    for row in made["troubles"]:
        name = (row["kind"], row["reason"], row["error"])
        troubles[name] = troubles.get(name, 0) + row["count"]
    assert troubles == {
        ("retry", "card declined", None): 12,
        ("dead", "REJECTED", "no such customer"): 6,
    }


def test_slowest_messages_and_hot_keys(made: dict[str, Any]) -> None:
    slowest = made["slowest"]
    assert len(slowest) == 15
    took = [row["took_ms"] for row in slowest]
    assert took == sorted(took, reverse=True)
    assert {row["outcome"] for row in slowest} <= {"acked", "dead"}
    keys = {row["key"]: (row["count"], row["dead"]) for row in made["hot_keys"]}
    assert keys == {"c0": (15, 3), "c1": (15, 0), "c2": (15, 3), "c3": (15, 0), NASTY: (1, 0)}


def test_tables_are_written_as_parquet(made: dict[str, Any], spark: Any) -> None:
    hours = spark.read.parquet(f"{made['parquet']}/hours.parquet").collect()
    assert sum(row["messages"] for row in hours) == 61
    assert {row["group"] for row in hours} == {GROUP}
    keys = spark.read.parquet(f"{made['parquet']}/hot_keys.parquet")
    assert keys.count() == 5


def test_the_command_shows_tables_and_json(
    made: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["pipeline", "report", TOPIC, "--servers", made["servers"]]
    capfd.readouterr()
    assert main(words) == 0
    out, err = capfd.readouterr()
    assert "card declined" in out
    assert "no such customer" in out
    assert "Traceback" not in err
    assert main([*words, "--to-time", "2001-01-01", "--json"]) == 0
    nothing = json.loads(capfd.readouterr().out)
    assert nothing["hours"] == nothing["slowest"] == []
    assert nothing["first_ms"] is None


def test_bad_requests_are_told_early(servers: str, spark: Any, tmp_path: Path) -> None:
    with Job("report", servers) as job, pytest.raises(UnknownTopic):
        report.run(job, topics=["no-such-topic"])
    job = Job("report", "http://127.0.0.1:1")
    with pytest.raises(InvalidArgument, match="no such directory"):
        report.run(job, html=str(tmp_path / "none" / "x.html"))
    with pytest.raises(Conflict):
        report.run(job, parquet=str(tmp_path))


def test_points_over_time_are_neither_few_nor_many() -> None:
    assert bucket_of(0, 30_000) == 1
    assert bucket_of(0, 3_600_000) == 60
    assert bucket_of(0, 72 * 3_600_000) == 3 * 3600
    assert bucket_of(None, None) == 3600


# ---------------------------------------------------------------------- the page


@pytest.fixture(scope="module")
def chromium() -> str:
    found = find_chromium()
    if not found:
        pytest.skip("no Chromium is here and none can be fetched")
    return found


@pytest.fixture
def page(chromium: str) -> Iterator[Page]:
    with open_page(chromium) as opened:
        yield opened


def rows(page: Page, table: str) -> list[list[str]]:
    return page.run(
        f"[...document.querySelectorAll('#{table} tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.innerText.trim()))"
    )


def test_people_see_it_in_a_browser(made: dict[str, Any], page: Page) -> None:
    page.go(f"file://{made['html']}")
    page.until(lambda: page.run("document.body && document.body.dataset.drawn"), "drawn")
    tiles = page.text("#tiles")
    assert "61" in tiles
    assert "dead letters\n6" in tiles.replace("\n\n", "\n")
    for chart in ("deliver", "ack", "flow", "retries-time", "dead-time"):
        assert page.run(f"document.querySelectorAll('#{chart} svg').length") == 1, chart
    assert page.run("document.querySelectorAll('#deliver path').length") == 3
    assert "card declined" in page.text("#retries")
    assert "REJECTED: no such customer" in page.text("#dead")
    assert len(rows(page, "slowest")) == 15
    assert rows(page, "slowest")[0][0].startswith(f"{TOPIC}/")
    assert len(rows(page, "keys")) == 5
    assert rows(page, "hours")[0][1:3] == [TOPIC, GROUP]

    # A key full of HTML is text, and nothing is loaded from anywhere.
    assert page.run("document.title") == "Raftline report"
    assert NASTY in page.text("#keys")
    assert page.run("performance.getEntriesByType('resource').length") == 0

    # One group alone, by the list.
    before = page.run("document.body.dataset.drawn")
    page.run("scope.length; document.getElementById('scope').value = 2")
    page.run("document.getElementById('scope').dispatchEvent(new Event('change'))")
    assert page.run("document.body.dataset.drawn") != before
    _is_accessible(page)
    _has_two_themes(page)
    assert page.errors == []


def test_a_report_of_nothing_is_a_page_too(page: Page, tmp_path: Path) -> None:
    lists = ("totals", "series", "hours", "flow", "troubles", "slowest", "hot_keys", "topics")
    data: dict[str, Any] = {name: [] for name in lists}
    data |= {"first_ms": None, "last_ms": None, "bucket_s": 3600, "made_ms": 0}
    file = tmp_path / "empty.html"
    file.write_text(page_of(data))
    page.go(f"file://{file}")
    page.until(lambda: page.run("document.body && document.body.dataset.drawn"), "drawn")
    assert "No traces" in page.text("#window")
    assert page.errors == []


def _is_accessible(page: Page) -> None:
    assert page.run("document.documentElement.lang") == "en"
    for script in (
        "document.querySelectorAll('h1').length === 1",
        "[...document.querySelectorAll('table')].every(t => t.caption && t.caption.innerText)",
        "[...document.querySelectorAll('th')].every(th => th.scope)",
        "[...document.querySelectorAll('svg')].every(s => s.getAttribute('aria-label'))",
        "[...document.querySelectorAll('select')].every(s => s.labels.length)",
        "[...document.querySelectorAll('section')].every(e => e.ariaLabelledByElements.length)",
        "document.documentElement.scrollWidth <= window.innerWidth",
    ):
        assert page.run(script), script


def _has_two_themes(page: Page) -> None:
    from tests.cluster.test_status_page import CONTRAST

    grounds = set()
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.call("Emulation.setEmulatedMedia", features=features)
        grounds.add(page.run("getComputedStyle(document.body).backgroundColor"))
        assert page.run(CONTRAST) >= 4.5, scheme
    assert len(grounds) == 2
    page.run("document.getElementById('theme').click()")
    assert page.run("document.documentElement.dataset.theme") == "light"
