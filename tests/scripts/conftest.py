"""Collects ``*.script`` files: words, a line of dashes, the output they lead to.

The words of a folder are the class ``Words`` in its ``words.py``: ``run(line)`` returns lines of
output. A script ends with the state checked (``Words.check``). ``--rewrite`` accepts the output.
"""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Protocol

import pytest

STEP = re.compile(r"(?P<input>(?:(?!----\n).*\n)+)----\n(?P<output>(?:.+\n)*)", re.MULTILINE)


class Words(Protocol):
    def run(self, line: str) -> list[str]: ...

    def check(self) -> None: ...


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    if file_path.suffix == ".script" and file_path.with_name("words.py").exists():
        return ScriptFile.from_parent(parent, path=file_path)
    return None


class ScriptFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        yield ScriptItem.from_parent(self, name=self.path.stem)


class ScriptItem(pytest.Item):
    def runtest(self) -> None:
        words: Words = load_words(self.path).Words()
        want = self.path.read_text()
        got = STEP.sub(lambda m: f"{m['input']}----\n{run_step(words, m['input'])}", want)
        words.check()
        if self.config.getoption("--rewrite"):
            self.path.write_text(got)
        else:
            assert got == want, "run with --rewrite to accept the new output"

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"script: {self.path.parent.name}/{self.name}"


def run_step(words: Words, text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    output: list[str] = []
    for line in lines:
        output += words.run(line)
        words.check()
    return "\n".join(output or ["ok"]) + "\n"


def load_words(script: Path) -> ModuleType:
    path = script.with_name("words.py")
    spec = importlib.util.spec_from_file_location(f"words_of_{path.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
