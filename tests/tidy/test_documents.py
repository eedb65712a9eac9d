"""House rules for the documents: short where promised, links that lead somewhere, one glossary."""

import re
import subprocess
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


BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(\$ )?(raftline|make|kcat|grpcurl|curl|pip|docker|helm|kubectl) ", re.M)
STANDALONE = "spark://"  # run by tests/spark/test_standalone.py


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_people_are_told_to_type_is_run_by_a_test(page: Path) -> None:
    """Commands and code stand in blocks that say what they are; a test names their page."""
    name, is_run = str(page.relative_to(ROOT)), False
    for kind, text in BLOCK.findall(page.read_text()):
        if not kind and STANDALONE not in text and page.parent.name != "chaos":
            assert not COMMAND.search(text), f"say console: {text}"
        is_run = is_run or kind in ("console", "sh", "python")
    if is_run:
        tests = [file.read_text() for file in (ROOT / "tests").rglob("test_*.py")]
        parts = (f'"{name}"', f'"{page.parent.name}" / "{page.name}"')
        assert any(part in text for text in tests for part in parts), f"no test names {name}"


def test_contributors_are_told_of_targets_that_there_are() -> None:
    for line in re.findall(
        r"^\$ (make .+?)(?:\s+#.*)?$", (ROOT / "CONTRIBUTING.md").read_text(), re.M
    ):
        told = [*line.split(), "-n"]
        done = subprocess.run(told, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


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
