"""House rules for the documents: short where promised, links that lead somewhere, one glossary."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
DECISION_PARTS = (
    "Status",
    "Context",
    "Options",
    "Decision",
    "Consequences",
    "How we would notice it was wrong",
)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
WORDS = """
    cluster node shard replica catalog topic partition message batch entry rpc index offset
    position term log_start commit_end log_end segment checkpoint producer gateway forward command
    event turn lane link
"""


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = [t.partition("#")[0] for t in LINK.findall(page.read_text()) if "://" not in t]
    lost = [t for t in targets if t and not (page.parent / t).exists()]
    assert not lost


def test_the_glossary_has_every_word_once() -> None:
    text = (ROOT / "docs" / "GLOSSARY.md").read_text().split("## Words we avoid")[0]
    rows = re.findall(r"^\| (.+?) \|", text, re.MULTILINE)
    defined = [word for row in rows for word in re.findall(r"\*\*([\w ]+)\*\*", row)]
    assert sorted(defined) == sorted(set(defined))
    assert not set(WORDS.split()) - set(defined)


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_is_one_page_with_its_parts(page: Path) -> None:
    text = page.read_text()
    assert re.fullmatch(r"\d{4}-[a-z0-9-]+", page.stem)
    assert len(text.splitlines()) <= 60
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == list(DECISION_PARTS)


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [int(page.stem[:4]) for page in DECISIONS]
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_settings_page_is_what_the_code_says(rewrite: bool) -> None:
    from raftline.config.render import to_markdown

    page = ROOT / "docs" / "CONFIG.md"
    if rewrite:
        page.write_text(to_markdown())
    assert page.read_text() == to_markdown(), "run: make docs"


def test_the_example_of_settings_is_what_the_code_says(rewrite: bool) -> None:
    from raftline.config.render import to_example

    page = ROOT / "config.example.yaml"
    if rewrite:
        page.write_text(to_example())
    assert page.read_text() == to_example(), "run: make docs"


def test_the_page_of_errors_is_what_the_code_says(rewrite: bool) -> None:
    from raftline.gateways.error_table import to_markdown

    page = ROOT / "docs" / "ERRORS.md"
    if rewrite:
        page.write_text(to_markdown())
    assert page.read_text() == to_markdown(), "run: make docs"


def test_the_page_of_metrics_is_what_the_code_says(rewrite: bool) -> None:
    from raftline.telemetry.metrics import to_markdown

    page = ROOT / "docs" / "METRICS.md"
    if rewrite:
        page.write_text(to_markdown())
    assert page.read_text() == to_markdown(), "run: make docs"
