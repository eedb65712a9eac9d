"""House rules for the source that no linter knows.

A rule is a function from one parsed file to complaints: add a function, name it in ``RULES``.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "raftline"
SOURCES = sorted(PACKAGE.rglob("*.py"))
CALLBACK_ONLY = ("model", "raft", "machines", "views", "wire", "storage", "node")
PROTOCOL_EDGE = ("gateways", "wire")  # they speak foreign words
READS_ENVIRONMENT = ("chaos", "cli", "pipeline", "testing")  # people start them
ONE_KIND_OF_RECORD = {"dataclasses", "pydantic", "attr", "attrs"}
IMPORTED_AS = {
    "grpcio": "grpc",
    "grpcio_health_checking": "grpc_health",
    "grpcio_reflection": "grpc_reflection",
    "protobuf": "google",
}
WITH_OTHERS = ["numpy", "py4j"]  # pandas and pyspark cannot be without them
NOTE_WITHOUT_ISSUE = re.compile(r"#.*\bTODO\b(?!.*#\d)|#.*\b(FIXME|XXX)\b")


def forbidden_words() -> dict[str, str]:
    """Read the table of words to avoid from the glossary: the one place they are kept."""
    text = (ROOT / "docs" / "GLOSSARY.md").read_text()
    table = text.split("## Words we avoid", 1)[1]
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|", table, re.MULTILINE)
    return dict(rows)


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def no_docstring(path: Path, tree: ast.Module, text: str) -> Iterator[str]:
    if not (ast.get_docstring(tree) or "").strip():
        yield "1: say what the module is for"


def coroutine_in_core(path: Path, tree: ast.Module, text: str) -> Iterator[str]:
    if part_of(path) not in CALLBACK_ONLY:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield f"{node.lineno}: {part_of(path)} is written with callbacks, not coroutines"


def foreign_word(path: Path, tree: ast.Module, text: str) -> Iterator[str]:
    if part_of(path) in PROTOCOL_EDGE:
        return
    words = forbidden_words()
    for node in ast.walk(tree):
        for field in ("id", "arg", "name", "attr"):
            name = getattr(node, field, None)
            if not isinstance(name, str):
                continue
            for word, instead in words.items():
                if word in name.lower():
                    yield f"{getattr(node, 'lineno', 1)}: {name}: say {instead}"


def second_kind_of_record(path: Path, tree: ast.Module, text: str) -> Iterator[str]:
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{a.name}" for a in node.names)]
        if ONE_KIND_OF_RECORD.intersection(names) or "typing.NamedTuple" in names:
            yield f"{node.lineno}: records are msgspec structs"


def environment_read(path: Path, tree: ast.Module, text: str) -> Iterator[str]:
    if part_of(path) in READS_ENVIRONMENT:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"):
            yield f"{node.lineno}: settings come in as arguments, not from the environment"


def loose_end(path: Path, tree: ast.Module, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if NOTE_WITHOUT_ISSUE.search(line):
            yield f"{number}: a note for later names its issue (TODO #12)"


RULES = [
    no_docstring,
    coroutine_in_core,
    foreign_word,
    second_kind_of_record,
    environment_read,
    loose_end,
]


def complaints(path: Path) -> list[str]:
    text = path.read_text()
    tree = ast.parse(text)
    return [f"{path.relative_to(ROOT)}:{c}" for rule in RULES for c in rule(path, tree, text)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_source_is_tidy(path: Path) -> None:
    found = complaints(path)
    assert not found, "\n".join(found)


BREACHES = {
    "no_docstring": ("model", "x = 1"),
    "coroutine_in_core": ("raft", "async def f(): ..."),
    "foreign_word": ("node", "def f(broker_id): ..."),
    "second_kind_of_record": ("machines", "from dataclasses import dataclass"),
    "environment_read": ("storage", "import os\nx = os.environ['A']"),
    "loose_end": ("views", "x = 1  # TODO later"),
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_rule_can_complain(rule) -> None:
    part, text = BREACHES[rule.__name__]
    assert list(rule(PACKAGE / part / "planted.py", ast.parse(text), text))


def third_party_imports() -> set[str]:
    found: set[str] = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"raftline"}


def test_every_import_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [row for rows in project["optional-dependencies"].values() for row in rows]
    rows = [*project["dependencies"], *extras]
    declared = [re.match(r"[\w-]+", row)[0].replace("-", "_") for row in rows] + WITH_OTHERS
    assert third_party_imports() <= {IMPORTED_AS.get(name, name) for name in declared}


def test_the_lock_names_no_host() -> None:
    assert "://" not in (ROOT / "requirements.lock").read_text()


def test_the_two_admins_of_the_client_say_the_same() -> None:
    """One is the other with ``await``: two classes so that both have types of their own."""
    told = (ROOT / "src/raftline/client/async_admin.py").read_text()
    for word, plain in (("async def", "def"), ("await ", ""), ("Async", ""), ("async_", "")):
        told = told.replace(word, plain)
    told = told.replace(", for the async client", "")
    assert told == (ROOT / "src/raftline/client/admin.py").read_text()
