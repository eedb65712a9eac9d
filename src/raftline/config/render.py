"""Settings as text: the effective tree as TOML, and the reference in docs/CONFIG.md."""

import json
from collections.abc import Iterator
from typing import Any, cast, get_args

import msgspec

from raftline.config.loader import environment_name, sections
from raftline.config.settings import Settings


def to_toml(settings: Settings) -> str:
    """Return the tree in the form the settings file has."""
    lines: list[str] = []
    for section in sections():
        fields = getattr(settings, section)
        lines.append(f"[{section}]")
        lines += [f"{name} = {_value(getattr(fields, name))}" for name in fields.__struct_fields__]
        lines.append("")
    return "\n".join(lines)


def to_markdown() -> str:
    """Return the reference of all settings. docs/CONFIG.md is this text."""
    lines = [
        "# Settings",
        "",
        "Generated from `src/raftline/config/settings.py` by `make docs`; do not edit.",
        "Order of sources: defaults, the file (`--config`, TOML), the environment, flags.",
        "A duration may be written `30s`, a size `10GB` or `64MiB`; a bare number is in the unit",
        "of the name.",
    ]
    for section, kind in sections().items():
        lines += ["", f"## {section}", "", kind.__doc__ or "", ""]
        lines += ["| setting | default | bounds | what | environment |", "|---|---|---|---|---|"]
        lines += _rows(section, kind)
    return "\n".join(lines) + "\n"


def _rows(section: str, kind: type[msgspec.Struct]) -> Iterator[str]:
    defaults = kind()
    for field in msgspec.structs.fields(kind):
        meta: msgspec.Meta = get_args(field.type)[1]
        yield (
            f"| `{section}.{field.name}` | `{_value(getattr(defaults, field.name))}` "
            f"| {_bounds(meta)} | {meta.description} | `{environment_name(section, field.name)}` |"
        )


def _bounds(meta: msgspec.Meta) -> str:
    shown = [
        f"{sign} {bound}" for sign, bound in (("≥", meta.ge), ("≤", meta.le)) if bound is not None
    ]
    return ", ".join(shown)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        pairs = cast("dict[str, str]", value)
        return "{" + ", ".join(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in pairs.items()) + "}"
    return json.dumps(value, ensure_ascii=False)
