"""The examples of the guide to testing run as they stand."""

import re
from pathlib import Path

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
