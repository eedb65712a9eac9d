"""Commands run in this process, as a shell would see them."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from raftline.cli import main


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def raftline(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ran]:
    """Run ``raftline WORDS…`` and return exit code, output, errors."""
    monkeypatch.delenv("RAFTLINE_SERVER", raising=False)

    def run(*words: str) -> Ran:
        capfd.readouterr()
        code = main([str(word) for word in words])
        return Ran(code, *capfd.readouterr())

    return run
