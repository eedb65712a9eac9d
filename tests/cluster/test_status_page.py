"""The status page in a real browser, on a real cluster."""

import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.browser import Page, find_chromium, open_page
from tests.cluster.conftest import MakeRig
from tests.cluster.watching import ask

TOPIC, GROUP = "orders", "workers"


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
    script = (
        f"[...document.querySelectorAll('#{table} tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.innerText.trim()))"
    )
    return page.run(script)


def publish(url: str, count: int, **fields: object) -> None:
    messages = [{"value": "x", "key": str(n), **fields} for n in range(count)]
    ask(url, "POST", f"/v1/topics/{TOPIC}/messages", {"messages": messages})


def test_people_see_the_cluster_and_what_goes_on_in_it(
    make_rig: MakeRig, page: Page, tmp_path: Path
) -> None:
    rig = make_rig(nodes=3)
    url = rig.node(rig.names[0]).http
    ask(url, "POST", "/v1/topics", {"name": TOPIC, "num_partitions": 3})
    publish(url, 30)
    publish(url, 2, delay="1h")
    receive = f"/v1/topics/{TOPIC}/groups/{GROUP}/receive"
    for partition in range(3):
        got = ask(url, "POST", receive, {"count": 1, "partition": partition})["messages"]
        tokens = [message["lease_token"] for message in got]
        ask(url, "POST", "/v1/messages/reject", {"lease_tokens": tokens})
    ask(url, "POST", "/v1/groups/readers/join", {"topics": [TOPIC]})

    page.go(f"{url}/")
    page.until(lambda: page.text("#health") == "all is well", "health")
    assert [row[:2] for row in rows(page, "nodes")] == [
        [row[0], "live"] for row in rows(page, "nodes")
    ]
    assert {row[0].removesuffix(" ★") for row in rows(page, "nodes")} == set(rig.names)
    topic = next(row for row in rows(page, "topics") if row[0] == TOPIC)
    assert (topic[1], topic[4], topic[6], topic[7]) == ("3 of 3 led", "30", "2", "3")
    groups = {(row[0], row[1], row[2]): row for row in rows(page, "groups")}
    work = groups[(GROUP, "work", TOPIC)]
    assert (work[3], work[7]) == ("27", "3")
    stream = groups[("readers", "stream", TOPIC)]
    assert (stream[3], stream[8]) == ("30", "1, stable")

    # It refreshes itself: what is sent now is seen without a reload, as a rate too.
    before = int(page.run("document.body.dataset.refreshes"))
    publish(url, 50)
    page.until(lambda: page.text("#topics tbody tr td:nth-child(5)") == "80", "new messages")
    assert int(page.run("document.body.dataset.refreshes")) > before
    publish(url, 100)
    page.until(
        lambda: page.text("#t-in").replace(",", "").isdigit() and page.text("#t-in") != "0",
        "a rate",
    )

    # Partitions and their leaders, by keyboard as well.
    page.run(f"document.querySelector('button[data-topic={TOPIC}]').focus()")
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r")
    page.until(lambda: page.text("tr.parts"), "partitions")
    parts = page.text("tr.parts").splitlines()
    leaders = [rig.leader_of(TOPIC, partition) for partition in range(3)]
    assert [part.split()[1] for part in parts] == leaders

    page.run("document.getElementById('filter').value = 'nothing-like-this'")
    page.run("document.getElementById('filter').dispatchEvent(new Event('input'))")
    assert rows(page, "topics") == [["no topic like that"]]
    page.run("document.getElementById('filter').value = ''")
    page.run("document.getElementById('filter').dispatchEvent(new Event('input'))")

    _is_accessible(page)
    _has_two_themes(page)
    shots = Path(os.environ.get("RAFTLINE_SHOTS", str(tmp_path)))
    page.screenshot(shots / "status-page.png")
    assert page.errors == []

    victim = next(name for name in rig.names if rig.node(name).http != url)
    rig.kill(victim)
    page.until(lambda: page.text("#t-nodes") == "2 of 3", "a dead node")
    page.until(lambda: page.text("#health") == "1 node is not there", "its health")
    rig.kill(rig.names[0])
    page.until(lambda: "does not answer" in page.text("#trouble"), "the node of the page")
    assert len(rows(page, "nodes")) == 3  # what was known last


def _is_accessible(page: Page) -> None:
    """Hold the page to what a screen reader and a keyboard need."""
    assert page.run("document.documentElement.lang") == "en"
    assert page.run("document.querySelectorAll('h1').length") == 1
    for script in (
        "[...document.querySelectorAll('table')].every(t => t.caption && t.caption.innerText)",
        "[...document.querySelectorAll('th')].every(th => th.scope)",
        "[...document.querySelectorAll('button')].every(b => b.innerText.trim())",
        "[...document.querySelectorAll('input')].every(i => i.labels.length)",
        "[...document.querySelectorAll('section')].every(e => e.ariaLabelledByElements.length)",
        "!!document.querySelector('[role=status]') && !!document.querySelector('main')",
    ):
        assert page.run(script), script


CONTRAST = """(() => {
  const channel = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = (c) => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = numbers(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  let worst = 21;
  for (const e of document.querySelectorAll('td, th, b, span, a, button, h1, h2')) {
    if (!e.innerText || !e.innerText.trim()) continue;
    const a = light(numbers(getComputedStyle(e).color)), b = light(ground(e));
    worst = Math.min(worst, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return worst;
})()"""


def _has_two_themes(page: Page) -> None:
    """Both are readable: WCAG asks for a contrast of 4.5."""
    grounds = set()
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.call("Emulation.setEmulatedMedia", features=features)
        grounds.add(page.run("getComputedStyle(document.body).backgroundColor"))
        assert page.run(CONTRAST) >= 4.5, scheme
    assert len(grounds) == 2
    page.run("document.getElementById('theme').click()")  # from dark to light, by hand
    assert page.run("document.documentElement.dataset.theme") == "light"
    assert page.run("getComputedStyle(document.body).backgroundColor") in grounds


def test_programs_get_a_line_of_text_and_pages_a_strict_policy(make_rig: MakeRig) -> None:
    rig = make_rig(nodes=1)
    url = rig.node(rig.names[0]).http
    with urllib.request.urlopen(f"{url}/", timeout=10) as reply:
        assert reply.headers["Content-Type"].startswith("text/plain")
    with urllib.request.urlopen(f"{url}/status", timeout=10) as reply:
        page = reply.read().decode()
        policy = reply.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http://" not in page.replace("http://www.w3.org", "")  # nothing from elsewhere
    assert "https://" not in page
