"""Our own dialogues always; those of etcd-io/raft where this machine has them."""

from pathlib import Path

import pytest

from tests.conformance.raft.run_dialogues import ROOT, check, find, main

OWN = Path(__file__).parent / "dialogues"
SHARED = ROOT.parent / "shared" / "reference" / "raft-testdata"


@pytest.mark.parametrize(
    ("kind", "path"), list(find(OWN)), ids=lambda value: getattr(value, "stem", value)
)
def test_own(kind: str, path: Path) -> None:
    problem = check(kind, path)
    assert not problem, "\n".join(problem)


def test_shared() -> None:
    """Hold the core to the reference; a machine without it is told so and passes."""
    if not SHARED.is_dir():
        print(f"{SHARED} is not here: only our own dialogues were run")
    problems = [f"{path.name}: {'; '.join(check(kind, path))}" for kind, path in find(SHARED)]
    assert [problem for problem in problems if not problem.endswith(": ")] == []


def test_a_different_output_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "quorum"
    folder.mkdir()
    (folder / "wrong.txt").write_text("vote cfg=(1) votes=(y)\n----\nVoteLost\n")
    assert main([str(tmp_path), str(tmp_path / "nowhere")]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith(f"FAIL {folder / 'wrong.txt'}: line 1, vote: differs")
    assert shown[-2].endswith("no such folder, its dialogues were not run")
    assert shown[-1] == "0 passed, 1 failed"


def test_a_rewritten_dialogue_passes(tmp_path: Path) -> None:
    folder = tmp_path / "interaction"
    folder.mkdir()
    path = folder / "single.txt"
    path.write_text(
        "# Alone.\nadd-nodes 1 voters=(1) index=3\n----\nnonsense\n\ncampaign 1\n----\n\n"
        "stabilize\n----\n"
    )
    assert main(["--rewrite", str(tmp_path)]) == 0
    assert main([str(tmp_path)]) == 0
    assert path.read_text().startswith("# Alone.\nadd-nodes 1 voters=(1) index=3\n----\n")
    assert "CommittedEntries:\n  1/4 EntryNormal" in path.read_text()
