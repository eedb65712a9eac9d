"""The guide to the jobs is true: its commands and its Python are run as they stand.

What is told of a cluster is run by ``test_standalone.py``.
"""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raftline
from raftline.chaos.rig import Rig
from raftline.cli import app
from tests.spark.conftest import servers_of
from tests.spark.pipeline_traffic import GROUP, fill

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "pipeline.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
PROMPT = "$ raftline "


def test_the_guide_does_what_it_says(
    spark: Any,
    make_rig: Callable[..., Rig],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    servers = servers_of(make_rig(nodes=1))
    with raftline.connect(servers) as line:
        line.topics.create("orders", partitions=3)
        fill(line, servers, "orders", 60)  # 0, 10 … 50 are dead
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAFTLINE_SERVER", servers)
    said: dict[str, str] = {}
    for kind, text in BLOCK.findall(GUIDE.read_text()):
        if kind == "python":
            names: dict[str, Any] = {}
            exec(text.replace("http://127.0.0.1:8080", servers), names)
            assert {row["topic"] for row in names["data"]["totals"] if row["group"]} == {"orders"}
        elif kind == "console":
            for command in commands(text):
                assert app.run(shlex.split(command)) == 0, (command, capfd.readouterr().err)
                said[command] = capfd.readouterr().out
        else:
            assert "spark://" in text, "a block that no test runs"
    assert len(said) == 9
    check(said, tmp_path)


@pytest.mark.full
def test_what_those_who_come_from_spark_are_shown_runs(
    make_rig: Callable[..., Rig],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """As written, but that the archive is filled once (its endless form: test_archive_kills.py)."""
    servers = servers_of(make_rig(nodes=1))
    with raftline.connect(servers) as line:
        line.topics.create("orders", partitions=3)
        fill(line, servers, "orders", 60)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAFTLINE_SERVER", servers)
    ((_, text),) = BLOCK.findall((GUIDE.parents[2] / "docs/coming-from/spark.md").read_text())
    told = commands(text)
    assert len(told) == 4
    for command in told:
        once = command.replace(" --continuous 10s", "")
        assert app.run(shlex.split(once)) == 0, (command, capfd.readouterr().err)
    assert list((tmp_path / "archive").rglob("*.parquet"))
    assert "orders" in (tmp_path / "report.html").read_text()


def commands(text: str) -> list[str]:
    """Return the commands of a block without their prompts; a backslash joins lines."""
    found = text.replace("\\\n", " ").splitlines()
    assert all(line.startswith(PROMPT) for line in found), found
    return [line.removeprefix(PROMPT) for line in found]


def check(said: dict[str, str], folder: Path) -> None:
    def of(*words: str) -> str:
        (found,) = (text for line, text in said.items() if all(word in line for word in words))
        return found

    assert "no such customer" in of("orders.dlq")
    assert "'web'" not in of("headers['source']")
    assert list((folder / "orders.parquet").glob("*.parquet"))
    assert "EUR" in of("--dry-run")
    report = json.loads(of("--parquet"))
    (total,) = (row for row in report["totals"] if row["group"] == GROUP)
    assert total["messages"] == 60
    assert "orders" in (folder / "report.html").read_text()
    assert {path.name for path in (folder / "report").iterdir()} >= {"hours.parquet"}
