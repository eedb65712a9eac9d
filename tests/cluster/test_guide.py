"""Every example of the guide on Python runs as it stands, one after the other."""

import re
from pathlib import Path

import pytest

from tests.cluster.conftest import MakeRig

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "python.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_examples_of_the_guide_run(
    make_rig: MakeRig, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = make_rig(nodes=1)
    text = GUIDE.read_text()
    node = rig.node(rig.names[0])
    server = node.http
    space: dict[str, object] = {"__name__": "guide"}
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) >= 8
    for block in blocks:
        # Blank lines in front, so that an error names the line of the guide.
        lines = "\n" * text.count("\n", 0, block.start(1))
        code = block[1].replace("http://127.0.0.1:8080", server)
        code = code.replace("grpc://127.0.0.1:9000", f"grpc://{node.grpc}")
        exec(compile(lines + code, str(GUIDE), "exec"), space)
    said = capsys.readouterr().out
    for words in ("orders.", "one book", "dear reader", "dear user@example.com"):
        assert words in said, said
    assert "done 1" in said
