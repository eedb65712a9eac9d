"""Every Python example of the documents runs as it stands, one after the other."""

import re
from pathlib import Path

import pytest

from tests.cluster.conftest import MakeRig

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("page", "blocks_min", "expected"),
    [
        (
            "docs/guides/python.md",
            8,
            ("orders.", "one book", "dear reader", "dear user@example.com", "done 1"),
        ),
        ("docs/coming-from/sqs.md", 1, ("sending a parcel",)),
        ("docs/coming-from/celery.md", 1, ("done after 2 tries",)),
        ("docs/coming-from/kafka.md", 2, ("kafka read b'a click'", "worked on a click")),
        ("docs/protocols/http.md", 1, ("received one book attempt 1", "{'settled': 1")),
        ("docs/protocols/grpc.md", 1, ("received b'one book' attempt 1", "acked 1")),
        ("README.md", 1, ("one book",)),
    ],
)
def test_the_examples_of_a_page_run(
    make_rig: MakeRig,
    capsys: pytest.CaptureFixture[str],
    page: str,
    blocks_min: int,
    expected: tuple[str, ...],
) -> None:
    rig = make_rig(nodes=1)
    text = (ROOT / page).read_text()
    node = rig.node(rig.names[0])
    space: dict[str, object] = {"__name__": "guide"}
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) >= blocks_min
    for block in blocks:
        # Blank lines in front, so that an error names the line of the page.
        lines = "\n" * text.count("\n", 0, block.start(1))
        code = block[1].replace("http://127.0.0.1:8080", node.http)
        code = code.replace("127.0.0.1:9000", node.grpc)
        code = code.replace("127.0.0.1:9092", node.kafka)
        exec(compile(lines + code, page, "exec"), space)
    said = capsys.readouterr().out
    for words in expected:
        assert words in said, said
