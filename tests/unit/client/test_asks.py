"""What a call's answer means, whoever gave it."""

import pytest

from raftline.client import asks
from raftline.client.core.ports import Reply
from raftline.model.errors import Internal


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b"\xff"])
def test_an_answer_of_something_else_is_told_as_such(body: bytes) -> None:
    """A proxy, or another server at that port: it was an error of the JSON reader."""
    with pytest.raises(Internal, match="makes no sense"):
        asks.topics().answer(Reply(200, b"", body))


def test_an_answer_is_what_the_node_says() -> None:
    assert asks.topics().answer(Reply(200, b"", b'{"topics": [1]}')) == [1]
    assert asks.cluster().answer(Reply(204, b"", b"")) == {}
