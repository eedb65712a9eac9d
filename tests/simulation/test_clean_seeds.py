"""A long run of seeds can be stopped and gone on with; a seed of other code does not count."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from raftline.testing import clean_seeds, sim
from raftline.testing.clean_seeds import CleanSeed, CleanSeeds

PLAN = sim.Plan()
CLEAN = CleanSeed(7, "d1", {"kill": 2}, 60_000.0, 90_000)


def test_clean_seeds_are_remembered(tmp_path: Path) -> None:
    CleanSeeds(tmp_path / "seeds", PLAN).note(CLEAN)
    assert CleanSeeds(tmp_path / "seeds", PLAN).done == {7: CLEAN}


def test_a_run_of_another_size_is_begun_anew(tmp_path: Path) -> None:
    CleanSeeds(tmp_path / "seeds", PLAN).note(CLEAN)
    assert CleanSeeds(tmp_path / "seeds", sim.Plan(seconds=10.0)).done == {}


def test_other_code_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CleanSeeds(tmp_path / "seeds", PLAN).note(CLEAN)
    monkeypatch.setattr(clean_seeds, "fingerprint", lambda plan: "other code")
    assert CleanSeeds(tmp_path / "seeds", PLAN).done == {}


def test_the_fingerprint_is_of_all_that_a_run_runs(tmp_path: Path) -> None:
    package = tmp_path / "raftline"
    module = package / "raft" / "core.py"
    module.parent.mkdir(parents=True)
    module.write_text("QUORUM = 2")
    before = clean_seeds.fingerprint(PLAN, package)
    module.write_text("QUORUM = 1")
    assert clean_seeds.fingerprint(PLAN, package) != before
    loaded = (
        "import sys; from raftline.testing import sim; sim.run_seed(4, sim.Plan(seconds=1.0)); "
        "print(*{n.split('.')[1] for n in sys.modules if n.startswith('raftline.')})"
    )
    rooms = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True, timeout=120
    )
    assert set(rooms.stdout.split()) <= set(clean_seeds.ROOMS)


def test_a_torn_line_is_a_seed_that_runs_again(tmp_path: Path) -> None:
    path = tmp_path / "seeds"
    CleanSeeds(path, PLAN).note(CLEAN)
    with path.open("a") as file:
        file.write('{"seed":8,"dig')
    book = CleanSeeds(path, PLAN)
    assert book.done == {7: CLEAN}
    book.note(CleanSeed(9, "d2", {}, 60_000.0, 1))
    assert sorted(CleanSeeds(path, PLAN).done) == [7, 9]


def test_a_file_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sim.main(["--seeds", "1", "--resume", str(tmp_path / "none" / "seeds")]) == 2
    assert "none/seeds: No such file or directory" in capsys.readouterr().out


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_run_can_be_stopped(tmp_path: Path, stop: signal.Signals) -> None:
    """By a terminal, which tells all its processes, or by pid: then the others must not stay."""
    words = ["--seeds", "100000", "--jobs", "2", "--seconds", "1", "--operations", "5"]
    words += ["--queue", "0", "--resume", str(tmp_path / "seeds")]
    with subprocess.Popen(
        [sys.executable, "-m", "raftline.testing.sim", *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    ) as run:  # fmt: skip
        assert run.stdout is not None
        assert run.stdout.readline().startswith("seed ")
        tell = os.killpg if stop == signal.SIGINT else os.kill
        tell(run.pid, stop)
        rest = run.stdout.read()  # until the last of them has ended
        assert run.wait(60) == 130
    assert re.search(r"stopped with \d+ of 100000 seeds left; the clean ones are in", rest)
    assert "Traceback" not in rest
    assert '"seed":' in (tmp_path / "seeds").read_text()


def test_what_was_clean_is_counted_and_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "seeds")
    words = ["--first", "7", "--jobs", "1", "--seconds", "1", "--operations", "5", "--queue", "0"]
    assert sim.main([*words, "--seeds", "1", "--resume", path]) == 0
    ran: list[int] = []
    run_seed = sim.run_seed

    def run_noted(seed: int, plan: sim.Plan | None = None) -> sim.Report:
        ran.append(seed)
        return run_seed(seed, plan)

    monkeypatch.setattr(sim, "run_seed", run_noted)
    assert sim.main([*words, "--seeds", "2", "--resume", path]) == 0
    assert ran == [8]
    assert "2 seeds clean, 0 failed" in capsys.readouterr().out
