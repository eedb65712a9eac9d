"""A cluster that is there: whom a chaos run takes."""

from typing import Any

import pytest

from raftline.chaos import taken
from raftline.chaos.rig import ChaosProblem


class Looked:
    """A client whose cluster is told of bit by bit."""

    def __init__(self, *looks: list[dict[str, Any]]) -> None:
        self.looks = list(looks)

    def cluster(self) -> dict[str, Any]:
        return {"nodes": self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]}


def row(name: str, http: str, state: str = "live") -> dict[str, Any]:
    return {"name": name, "http": http, "state": state}


def test_a_node_that_was_just_linked_is_waited_for() -> None:
    gone = row("node-3", "", "silent")
    whole = [row("node-1", "127.0.0.1:1"), row("node-2", "127.0.0.1:2"), gone]
    client: Any = Looked([whole[0], row("node-2", ""), gone], whole)
    assert taken._live_rows(client) == whole[:2]


def test_a_node_that_tells_no_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taken, "ADDRESS_S", 0.1)
    client: Any = Looked([row("node-1", "127.0.0.1:1"), row("node-2", "")])
    with pytest.raises(ChaosProblem, match="node-2"):
        taken._live_rows(client)
