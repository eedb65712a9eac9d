"""The guide to the archive is true: its commands and its Python are run as they stand."""

import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from raftline.cli import app

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "archive.md"
BLOCK = re.compile(r"```(console|python)\n(.*?)```", re.DOTALL)


def test_the_guide_does_what_it_says(
    spark: Any,
    servers: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAFTLINE_SERVER", servers)
    monkeypatch.setenv("PWD", str(tmp_path))
    commands = 0
    said: dict[str, str] = {}
    for kind, text in BLOCK.findall(GUIDE.read_text()):
        if kind == "python":
            exec(text, {})
            said["python"] = capfd.readouterr().out
            continue
        for line in text.splitlines():
            words = shlex.split(os.path.expandvars(line.removeprefix("$ raftline ")))
            assert app.run(words) == 0, (line, capfd.readouterr().err)
            said[line] = capfd.readouterr().out
            commands += 1
    assert commands > 10
    read = next(text for line, text in said.items() if "--include-deleted" in line)
    assert sorted(read.split("\n")) == ["", "one book", "two books"]
    assert all(text in said["python"] for text in ("one book", "two books", "three books"))
    again = said["$ raftline consume orders-again"]
    assert sorted(again.split("\n")) == ["", "one book", "three books", "two books"]
