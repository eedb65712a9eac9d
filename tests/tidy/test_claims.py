"""What documents name is there: tests, files, targets of make, commands with their flags."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from raftline.cli.app import app
from raftline.cli.flags import GLOBAL_VALUES
from raftline.cli.serve import SWITCHES, VALUE_FLAGS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PAGES = [page for page in PAGES if page.name != "CHANGELOG.md" and "decisions" not in page.parts]
CODE = re.compile(r"^```[a-z]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")
TEST_PATH = re.compile(r"tests/[A-Za-z0-9_/.-]+")
ANYWHERE = {"--help", "--json", *GLOBAL_VALUES}


def ids(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_every_promise_names_tests_that_are_there() -> None:
    text = (ROOT / "docs" / "GUARANTEES.md").read_text()
    rows = re.findall(r"^\| (P\d+|[A-Z]+) \| .+? \| (.+?) \|$", text, re.MULTILINE)
    assert {name for name, _ in rows} >= {f"P{number}" for number in range(1, 12)}
    for name, held in rows:
        named = TEST_PATH.findall(held)
        assert named, f"{name} names no test"
        assert [path for path in named if not (ROOT / path).exists()] == [], name
        assert all(count_tests(ROOT / path) for path in named), (
            f"{name} names a file without a test"
        )


def count_tests(path: Path) -> int:
    files = path.rglob("test_*.py") if path.is_dir() else [path]
    return sum(len(re.findall(r"^ *(?:async )?def test_", f.read_text(), re.M)) for f in files)


def test_planted_bugs_named_beside_promises_are_planted() -> None:
    """A row says what was planted; the suite must plant at least as many different bugs."""
    text = (ROOT / "docs" / "GUARANTEES.md").read_text()
    for path, listed in re.findall(r"`(tests/simulation/test_planted\w*\.py)` \(([^)]+)\)", text):
        source = (ROOT / path).read_text()
        assert len(listed.split(",")) <= source.count("planted."), path


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_named_tests_and_scripts_are_there(page: Path) -> None:
    text = page.read_text()
    paths = {path.rstrip(".") for path in TEST_PATH.findall(text)}
    paths |= {path.rstrip(".") for path in re.findall(r"scripts/[a-z_-]+\.(?:sh|py)", text)}
    lost = [path for path in paths if not any(ROOT.glob(path.rstrip("/") + "*"))]
    assert not lost
    held = {file.name for file in (ROOT / "tests").rglob("test_*.py")}
    assert not set(re.findall(r"\btest_\w+\.py\b", text)) - held


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_named_targets_of_make_are_there(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {word for text in snippets(page) for word in re.findall(r"\bmake ([a-z-]+)", text)}
    assert not named - targets


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_named_commands_and_flags_are_there(page: Path) -> None:
    wrong = [f"{line}: {what}" for line in commands(page) for what in complaints(line)]
    assert not wrong, "\n".join(wrong)


def snippets(page: Path) -> Iterator[str]:
    """Return blocks of code and what stands between backticks."""
    text = page.read_text()
    yield from CODE.findall(text)
    yield from INLINE.findall(CODE.sub("", text))


def commands(page: Path) -> Iterator[str]:
    """Return every line that begins with our program, its flags with it."""
    for text in snippets(page):
        whole = re.sub(r"\\\n\s*", " ", text)
        for line in whole.splitlines():
            plain = re.sub(r"\s#.*", "", line.strip())
            found = re.search(r"(?:^|[$|(;&] ?)raftline ([a-z].*)", plain)
            if found:
                yield re.split(r"[|;]| > |\)", found[1])[0].strip()


def complaints(line: str) -> Iterator[str]:
    """Say what of a command line there is not."""
    words = re.sub(r"'[^']*'|\"[^\"]*\"", "TEXT", line.replace("\\", "")).split()
    # Flags of more than one letter may also be written with one dash.
    named = (word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word))
    flags = {re.sub(r"^-(?=[a-z]{2})", "--", word) for word in named}
    if words[0] == "serve":
        known = {f"--{name}" for name in (*VALUE_FLAGS, *SWITCHES, "config", "set", "print-config")}
    else:
        command: Any = typer.main.get_command(app)
        for word in words:
            inner = getattr(command, "commands", None)
            if inner is None or word.startswith("-"):
                break
            if word == "…":
                return
            if word not in inner:
                if re.fullmatch(r"[a-z-]+", word):
                    yield f"there is no command {word}"
                return
            command = inner[word]
        known = {flag for option in command.params for flag in (*option.opts, *_off(option))}
    for flag in sorted(flags - known - ANYWHERE):
        yield f"there is no flag {flag}"


def _off(option: Any) -> list[str]:
    return list(getattr(option, "secondary_opts", ()))


@pytest.mark.parametrize(
    "line", ["produce orders --no-such", "nothing at all", "topic shew", "serve --insecur"]
)
def test_a_wrong_command_is_noticed(line: str) -> None:
    assert list(complaints(line))
