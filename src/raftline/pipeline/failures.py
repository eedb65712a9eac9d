"""Spark's errors in one sentence: what a person can act on, without Java's and Python's stacks."""

import re
import sys
from typing import Any

from raftline.model.errors import ERRORS, Conflict, Invalid, NotFound, RaftlineError, Unavailable
from raftline.pipeline.errors import SparkFailed

MESSAGE_CHARS_MAX = 600
_OURS = re.compile(r"^(?:raftline\.model\.errors\.)(\w+): (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt)\b.*$", re.MULTILINE)
_CLASS = re.compile(r"^\[([A-Z0-9_.]+)\] *")
_STATE = re.compile(r" *SQLSTATE: \w+")
_FAMILIES = (NotFound, Invalid, Conflict, Unavailable)  # raised as they are on this side
_CLASSES = {cls.__name__: cls for cls in (*ERRORS.values(), *_FAMILIES)}


def explain(error: Exception) -> RaftlineError | None:
    """Return what to tell of an error of Spark; None: it is not Spark's."""
    if isinstance(error, RaftlineError) or not _is_of_spark(error):
        return None
    text = _text_of(error)
    ours = _OURS.findall(text)
    if ours:
        name, message = ours[-1]
        cls = _CLASSES.get(name, SparkFailed)
        told = cls.__new__(cls)
        RaftlineError.__init__(told, message[:MESSAGE_CHARS_MAX])
        return told
    is_python = "Traceback (most recent call last)" in text
    found = _PYTHON.findall(text) if is_python else []
    if found:
        return SparkFailed(f"a task failed: {found[-1][:MESSAGE_CHARS_MAX]}")
    return SparkFailed(_first_sentence(text), _hint(text))


def _is_of_spark(error: Exception) -> bool:
    # Only if they are loaded can it be one of theirs.
    spark: Any = sys.modules.get("pyspark.errors")
    py4j: Any = sys.modules.get("py4j.protocol")
    kinds: list[type[Exception]] = []
    if spark is not None:
        kinds.append(spark.PySparkException)
    if py4j is not None:
        kinds += [py4j.Py4JError, py4j.Py4JNetworkError]
    return isinstance(error, tuple(kinds))


def _text_of(error: Exception) -> str:
    java: Any = getattr(error, "java_exception", None)
    return f"{error}\n{java.toString()}" if java is not None else str(error)


def _first_sentence(text: str) -> str:
    """Return the message without its class, its plan and its stack."""
    kept: list[str] = []
    for line in text.strip().splitlines():
        if re.match(r"\s+at |== SQL|'?[A-Z]\w+ \[|JVM stacktrace|\s*[+:]- ", line):
            break
        if not line.strip() and kept:
            break
        kept.append(line.strip())
    message = _STATE.sub("", _CLASS.sub("", " ".join(kept))).strip().rstrip(".;")
    return (message or text.strip()[:200] or "Spark gave up")[:MESSAGE_CHARS_MAX]


def _hint(text: str) -> str:
    match _CLASS.match(text.strip()):
        case None:
            return ""
        case found if found[1].startswith(("PARSE_SYNTAX_ERROR", "UNRESOLVED_COLUMN")):
            return 'columns of a table: raftline pipeline sql "describe orders"'
        case _:
            return ""
