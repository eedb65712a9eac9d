"""A skipped test is a failure unless its reason is on the list."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
HELD_BACK = """
import pytest

@pytest.mark.skip(reason="not today")
def test_marked(): ...

def test_called():
    pytest.skip("not today either")

@pytest.mark.xfail(reason="known to fail")
def test_expected():
    assert False

def test_runs(): ...
"""


def run(folder: Path, allowed: str) -> str:
    """Run the planted tests under a copy of our conftest in ``folder``."""
    (folder / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (folder / "allowed_skips.txt").write_text(allowed)
    (folder / "test_planted.py").write_text(HELD_BACK)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    done = subprocess.run(
        [*command, "--rootdir", str(folder), "-c", os.devnull, str(folder)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        check=False,
    )
    return done.stdout


def test_an_unlisted_reason_fails(tmp_path: Path) -> None:
    # A marked test stops in its set-up, which pytest counts as an error.
    assert "2 failed, 1 passed, 1 error" in run(tmp_path, "# nothing is allowed\n")


@pytest.mark.parametrize(
    ("reason", "verdict"),
    [
        ("not today", "2 failed, 1 passed, 1 skipped"),
        ("not today either", "1 failed, 1 passed, 1 skipped, 1 error"),
        ("known to fail", "1 failed, 1 passed, 1 xfailed, 1 error"),
    ],
)
def test_a_listed_reason_is_a_skip(tmp_path: Path, reason: str, verdict: str) -> None:
    assert verdict in run(tmp_path, f"{reason}\n")
