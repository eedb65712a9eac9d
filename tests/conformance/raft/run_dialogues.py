"""Runs dialogues and says which come out differently.

    python tests/conformance/raft/run_dialogues.py [--rewrite] FOLDER...

In every folder the sub-folders ``interaction``, ``quorum`` and ``confchange`` are walked; each
``*.txt`` in them is one dialogue. Output must be the same, line by line, except for free-text log
lines. ``--rewrite`` writes the output into the dialogues instead of comparing.
"""

import difflib
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.conformance.raft import dialogue  # noqa: E402
from tests.conformance.raft.confchange_words import ConfChangeWords  # noqa: E402
from tests.conformance.raft.interaction_words import InteractionWords  # noqa: E402
from tests.conformance.raft.quorum_words import QuorumWords  # noqa: E402

DIFF_LINES_MAX = 12


class Words(Protocol):
    """The words of one kind of dialogue."""

    def run(self, step: dialogue.Step) -> list[str]: ...


WORDS: dict[str, type[Words]] = {
    "interaction": InteractionWords,
    "quorum": QuorumWords,
    "confchange": ConfChangeWords,
}


def find(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the dialogues under ``folder``, each with its kind."""
    for kind in WORDS:
        for path in sorted((folder / kind).rglob("*.txt")):
            yield kind, path


def check(kind: str, path: Path, *, rewrite: bool = False) -> list[str]:
    """Run one dialogue and return what is wrong with it, in a few lines."""
    steps, tail = dialogue.parse(path.read_text())
    words = WORDS[kind]()
    outputs: list[list[str]] = []
    for step in steps:
        try:
            outputs.append(words.run(step) or ["ok"])
        except Exception:  # noqa: BLE001 - whatever it is, it belongs into the report
            last = traceback.format_exc().splitlines()[-3:]
            return [f"line {step.line}, {step.verb}: fails with", *last]
        if rewrite:
            continue
        problem = compare(step, outputs[-1])
        if problem:
            return problem
    if rewrite:
        path.write_text(dialogue.render(steps, outputs, tail))
    return []


def compare(step: dialogue.Step, output: list[str]) -> list[str]:
    expected, got = dialogue.without_log(step.expected), dialogue.without_log(output)
    if expected == got:
        return []
    diff = list(difflib.unified_diff(expected, got, "expected", "got", lineterm="", n=1))[2:]
    return [f"line {step.line}, {step.verb}: differs", *diff[:DIFF_LINES_MAX]]


def main(arguments: list[str]) -> int:
    rewrite = "--rewrite" in arguments
    folders = [Path(word) for word in arguments if not word.startswith("--")]
    passed = failed = 0
    for folder in folders:
        if not folder.is_dir():
            print(f"{folder}: no such folder, its dialogues were not run")
            continue
        for kind, path in find(folder):
            problem = check(kind, path, rewrite=rewrite)
            passed += not problem
            failed += bool(problem)
            if problem:
                print(f"FAIL {path}: {problem[0]}")
                print("\n".join(f"    {line}" for line in problem[1:]))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
