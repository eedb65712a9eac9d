"""The examples of the guide to testing run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "testing.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_guide_to_testing_is_true() -> None:
    text = GUIDE.read_text()
    space: dict[str, object] = {"now_ms": 1_000, "later_ms": 1_010, "value": b"an order"}
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) == 2
    for block in blocks:
        lines = "\n" * text.count("\n", 0, block.start(1))
        exec(compile(lines + block[1], str(GUIDE), "exec"), space)
    tests = [made for name, made in space.items() if name.startswith("test_")]
    assert len(tests) == 1
    for test in tests:
        assert callable(test)
        test()


@pytest.mark.full
def test_seeds_are_run_as_the_guide_says() -> None:
    """In the short form: one seed where the guide has 200."""
    told = re.findall(r"^\$ (make sim .+?)\s+#(?: or: (.+))?", GUIDE.read_text(), re.MULTILINE)
    (many, by_module), (one, _) = told
    assert by_module.startswith("python -m raftline.testing.sim ")
    root = GUIDE.parents[2]
    for command in (many, by_module, one):
        words = command.replace("200", "1").split()
        words[:1] = [sys.executable] if words[0] == "python" else ["make", "-o", ".venv/.ready"]
        done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
