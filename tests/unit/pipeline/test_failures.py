"""Spark's errors told in a sentence, and our code as a zip."""

import sys
import types
import zipfile
from pathlib import Path

import pytest

from raftline.cli import exits
from raftline.model.errors import Conflict, InvalidArgument, NotFound, Unavailable, UnknownTopic
from raftline.pipeline.errors import SparkFailed
from raftline.pipeline.failures import explain
from raftline.pipeline.shipping import package_zip


class PySparkException(Exception):
    """Stands for Spark's, which is not loaded here."""


@pytest.fixture(autouse=True)
def spark(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("pyspark.errors")
    module.PySparkException = PySparkException  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyspark.errors", module)
    monkeypatch.setitem(sys.modules, "py4j.protocol", None)  # type: ignore[arg-type]


def test_an_error_of_ours_comes_back_as_its_class() -> None:
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n"
        '  File "x.py", line 1, in read\n'
        "raftline.model.errors.UnknownTopic: there is no topic 'orders'\n\n\tat org.apache.spark"
    )
    told = explain(PySparkException(text))
    assert isinstance(told, UnknownTopic)
    assert told.message == "there is no topic 'orders'"


@pytest.mark.parametrize(
    ("cls", "code"),
    [
        (NotFound, exits.NOT_FOUND),
        (Conflict, exits.REFUSED),
        (Unavailable, exits.TRY_AGAIN),
    ],
)
def test_an_error_of_this_side_keeps_its_family_and_exit_code(cls: type, code: int) -> None:
    """They have no code between nodes, and came out as a wrong use of the command."""
    text = f"Traceback (most recent call last):\nraftline.model.errors.{cls.__name__}: not now\n"
    told = explain(PySparkException(text))
    assert type(told) is cls
    assert told is not None
    assert (told.message, exits.code_of(told)) == ("not now", code)


def test_an_error_of_a_task_is_its_last_line() -> None:
    text = 'Traceback (most recent call last):\n  File "x"\nValueError: bad thing\n\tat org.x(y)'
    told = explain(PySparkException(text))
    assert isinstance(told, SparkFailed)
    assert told.message == "a task failed: ValueError: bad thing"


def test_a_refused_query_is_told_without_plan_class_and_stack() -> None:
    text = (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `x` cannot be resolved. "
        "SQLSTATE: 42703; line 1 pos 7;\n'Project ['x]\n+- Range (0, 1)\n\n\tat org.apache(a:1)"
    )
    told = explain(PySparkException(text))
    assert told is not None
    assert told.message == "A column with name `x` cannot be resolved.; line 1 pos 7"
    assert "describe" in told.hint


def test_what_is_not_sparks_is_left_alone() -> None:
    assert explain(ValueError("ours")) is None
    assert explain(InvalidArgument("ours")) is None


def test_the_zip_is_the_package_and_made_once(tmp_path: Path) -> None:
    made = package_zip(tmp_path)
    with zipfile.ZipFile(made) as archive:
        names = archive.namelist()
    assert {"raftline/__init__.py", "raftline/spark/source.py"} <= set(names)
    assert "raftline/pipeline/report_page.html" in names
    assert not any("__pycache__" in name for name in names)
    stamp = made.stat().st_mtime_ns
    assert package_zip(tmp_path) == made
    assert made.stat().st_mtime_ns == stamp
