"""The examples of the guide run as they stand."""

import re
from pathlib import Path
from typing import Any

import pytest

from raftline.client.line import Line
from tests.spark import direct

pytestmark = pytest.mark.spark
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "spark.md"


@pytest.mark.timeout(600)
def test_the_examples_run(spark: Any, servers: str, line: Line):
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, Any] = {"spark": spark}
    for block in blocks:
        exec(block.replace("http://127.0.0.1:8080", servers), names)
    assert sorted(row["value"] for row in direct.read(servers, "copies")) == [b"hello", b"hi"]
    assert line.groups.show("copier")["stream"]["lag"] == 0
    assert sum(row["lag"] for row in line.groups.show("workers")["work"]["greetings"]) == 0
