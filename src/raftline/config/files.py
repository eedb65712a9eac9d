"""Settings files: TOML, YAML, JSON and .env, each read into one tree."""

import json
import tomllib
from pathlib import Path
from typing import Any, cast

from raftline.config import yaml_text

KINDS = {
    ".toml": "TOML",
    ".yaml": "YAML",
    ".yml": "YAML",
    ".json": "JSON",
    ".env": ".env",
}


def kind_of(file: Path) -> str:
    """Return what the name of a file says it is; TOML where it says nothing."""
    return KINDS.get(file.suffix.lower() or file.name.lower(), "TOML")


def read_text(file: Path, found: list[str]) -> str:
    """Return what is in the file, or say why not."""
    try:
        return file.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
    except FileNotFoundError:
        found.append(f"there is no settings file {file}")
    except (OSError, UnicodeDecodeError) as error:
        found.append(f"{file} cannot be read: {error}")
    return ""


def read_table(file: Path, found: list[str]) -> dict[str, Any]:
    """Return the tree of a TOML, YAML or JSON file; what is wrong with it is in ``found``."""
    kind = kind_of(file)
    text = read_text(file, found)
    if not text.strip():
        return {}
    try:
        tree = _parse(kind, text)
    except (ValueError, RecursionError) as error:  # of all three parsers
        found.append(f"{file} is not {kind}: {error}")
        return {}
    if not isinstance(tree, dict):
        found.append(f"{file} holds no sections: begin with a name, for example node")
        return {}
    return cast("dict[str, Any]", tree)


def read_variables(file: Path, found: list[str]) -> dict[str, str]:
    """Return the variables of a .env file: ``NAME=value`` lines, as a shell would set them."""
    variables: dict[str, str] = {}
    for number, line in enumerate(read_text(file, found).splitlines(), 1):
        text = line.strip().removeprefix("export ").strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            found.append(f"{file}: line {number} is no NAME=value: {text[:60]!r}")
            continue
        variables[name.strip()] = _unquoted(value.strip())
    return variables


def _parse(kind: str, text: str) -> object:
    if kind == "JSON":
        return json.loads(text)
    return yaml_text.loads(text) if kind == "YAML" else tomllib.loads(text)


def _unquoted(value: str) -> str:
    for quote in "\"'":
        if value.startswith(quote):
            inner, closed, _ = value[1:].partition(quote)
            return inner if closed else value
    return value.partition(" #")[0].rstrip()
