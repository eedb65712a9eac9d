"""The command line run in this process against real nodes: a shell without its start-up time."""

import json
from typing import Any

import pytest

from raftline.chaos.rig import Rig
from raftline.cli import main


class Answer:
    """What a command answered."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.exit = code
        self.out = out
        self.err = err

    def __repr__(self) -> str:
        return f"exit {self.exit}\n{self.out}{self.err}"

    def json(self) -> Any:
        return json.loads(self.out)


class Shell:
    """Commands to the nodes of one rig."""

    def __init__(self, rig: Rig, capfd: pytest.CaptureFixture[str]) -> None:
        self.rig = rig
        self._capfd = capfd

    def command(self, *words: object, server: str = "") -> Answer:
        """Run a command, whatever comes of it."""
        names = self.rig.running()
        servers = server or ",".join(self.rig.node(name).http for name in names)
        self._capfd.readouterr()
        code = main([*map(str, words), "--server", servers])
        answer = Answer(code, *self._capfd.readouterr())
        assert "Traceback" not in answer.err, answer
        assert code != 1, answer
        return answer

    def run(self, *words: object) -> Answer:
        """Run a command that must succeed."""
        answer = self.command(*words)
        assert answer.exit == 0, answer
        return answer

    def lines(self, *words: object) -> list[str]:
        return self.run(*words).out.splitlines()

    def rows(self, *words: object) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines(*words, "--json")]

    def json(self, *words: object) -> Any:
        return self.run(*words, "--json").json()
