"""Where settings come from: defaults < file < environment < flags.

The file is TOML, YAML or JSON with one table per section, or a .env file of variables.
``[nodes.NAME.SECTION]`` tables hold what differs between the nodes of a cluster, so that one file
serves all of them; which node this is comes from ``--id`` (``node.name``), and ``node.peers`` is
filled from their ``listen.peer`` where it is not given. The environment variable of
``raft.tick_ms`` is ``RAFTLINE_RAFT_TICK_MS``. Files of other systems are understood where they map
(``foreign``).

Everything that is wrong is reported in one go, each problem with the place it came from.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from raftline.config.quantities import parse_bytes, parse_duration_ms
from raftline.config.relations import problems
from raftline.config.settings import Settings

ENVIRONMENT_PREFIX = "RAFTLINE_"
# What Kubernetes puts into every pod for a service that is called raftline-something.
_CHOICES = re.compile(r"\^\(([\w|]+)\)\$")  # a pattern that is a list of words
_FOREIGN = re.compile(r".*_(PORT|SERVICE_HOST|SERVICE_PORT)(_.*)?")
_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")

Tree = dict[str, dict[str, Any]]  # section -> field -> value as given


class SettingsError(Exception):
    """The settings cannot be used. ``problems`` has one sentence for each reason."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class _Given(msgspec.Struct, frozen=True):
    """One value as somebody gave it, and where."""

    section: str
    field: str
    value: Any
    source: str


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Put the sources together and check the result.

    ``flags`` maps dotted names (``node.name``) to values.

    Raises:
        SettingsError: with every problem found.
    """
    found: list[str] = []
    given = [
        *_from_environment(environment or {}, found),
        *(_from_flag(name, value) for name, value in (flags or {}).items()),
    ]
    if file is not None:
        given = [*_from_file(file, given, found), *given]
    settings, unread = _build(given, found)
    # What could not be read has its default here: relations with it say nothing.
    found += [p for p in problems(settings) if not any(name in p for name in unread)]
    if found:
        raise SettingsError(found)
    return settings


def environment_name(section: str, field: str) -> str:
    """Return the variable that sets ``section.field``."""
    return f"{ENVIRONMENT_PREFIX}{section}_{field}".upper()


def sections() -> dict[str, type[msgspec.Struct]]:
    """Return the type of each section, in order."""
    return {name: type(getattr(_DEFAULTS, name)) for name in Settings.__struct_fields__}


_DEFAULTS = Settings()


def _from_flag(name: str, value: Any) -> _Given:
    section, _, field = name.partition(".")
    return _Given(section, field, value, "flag")


def _from_environment(environment: Mapping[str, str], found: list[str]) -> Iterator[_Given]:
    known = {
        environment_name(section, field): (section, field)
        for section, kind in sections().items()
        for field in kind.__struct_fields__
    }
    starts = tuple(f"{ENVIRONMENT_PREFIX}{section.upper()}_" for section in sections())
    for variable in sorted(environment):
        if variable in known:
            yield _Given(*known[variable], environment[variable], variable)
        elif variable.startswith(starts) and not _FOREIGN.fullmatch(variable):
            found.append(f"{variable}: no setting has this name{_nearest(variable, known)}")


def _from_file(file: Path, later: list[_Given], found: list[str]) -> Iterator[_Given]:
    """Read a file; ``later`` is what wins over it, and may say which node this is."""
    from raftline.config import files  # most starts read no file

    source = str(file)
    if files.kind_of(file) == ".env":
        for one in _from_environment(files.read_variables(file, found), found):
            yield _Given(one.section, one.field, one.value, f"{source}: {one.source}")
        return
    table = files.read_table(file, found)
    yield from _from_tree(table, source, later, found)


def _from_tree(
    table: dict[str, Any], source: str, later: list[_Given], found: list[str]
) -> Iterator[_Given]:
    from raftline.config.foreign import take_foreign, tidy_nodes

    insecure = _is_true(_last(later, "node", "insecure") or _field(table, "node", "insecure"))
    wrong: list[str] = []
    foreign = take_foreign(table, wrong, insecure=insecure)
    found += [f"{source}: {problem}" for problem in wrong]
    for name, value, key in foreign:
        section, _, field = name.partition(".")
        yield _Given(section, field, value, f"{source}: {key}")
    nodes = table.pop("nodes", None)
    yield from _from_table(table, source, found)
    if nodes is None:
        return
    if not isinstance(nodes, dict) or not all(isinstance(n, dict) for n in nodes.values()):  # pyright: ignore[reportUnknownVariableType,reportUnknownMemberType]
        found.append(f"{source}: write one table per node, [nodes.NAME.SECTION]")
        return
    own = tidy_nodes(cast("dict[str, dict[str, Any]]", nodes), insecure=insecure)
    name = str(_last(later, "node", "name") or _field(table, "node", "name") or "")
    if name not in own:
        asked = f"has no node {name!r}" if name else "lists several nodes"
        found.append(f"{source} {asked}: pick one with --id, from {', '.join(own)}")
        return
    yield _Given("node", "name", name, source)
    if _field(table, "node", "peers") is None:
        yield _Given("node", "peers", _peers(own), source)
    yield from _from_table(own[name], f"{source} [nodes.{name}]", found)


def _last(given: list[_Given], section: str, field: str) -> Any:
    return next(
        (g.value for g in reversed(given) if (g.section, g.field) == (section, field)), None
    )


def _field(table: dict[str, Any], section: str, field: str) -> Any:
    fields = table.get(section)
    return cast("dict[str, Any]", fields).get(field) if isinstance(fields, dict) else None


def _is_true(value: Any) -> bool:
    return str(value).lower() in _TRUE


def _peers(nodes: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return who calls whom, from what each node of the file listens on."""
    peers: dict[str, str] = {}
    for name, node in nodes.items():
        listen = cast("dict[str, str]", node.get("listen", {}))
        if "peer" in listen:
            peers[name] = listen.get("advertise_peer") or listen["peer"]
    return peers


def _from_table(table: dict[str, Any], source: str, found: list[str]) -> Iterator[_Given]:
    for section, fields in table.items():
        if isinstance(fields, dict):
            for field, value in cast("dict[str, Any]", fields).items():
                yield _Given(section, field, value, source)
        else:
            found.append(f"{source}: {section} must be a table, [{section}]")


def _build(given: list[_Given], found: list[str]) -> tuple[Settings, list[str]]:
    """Convert value by value, so that one mistake does not hide the next.

    Returns the settings and the names of those that could not be read.
    """
    tree: Tree = {}
    unread: list[str] = []
    kinds = sections()
    for one in given:
        where = f"{one.source}: {one.section}.{one.field}"
        kind = kinds.get(one.section)
        if kind is None:
            found.append(
                f"{where}: there is no section {one.section}{_nearest(one.section, kinds)}"
            )
        elif one.field not in kind.__struct_fields__:
            near = _nearest(one.field, kind.__struct_fields__)
            found.append(f"{where}: {one.section} has no such setting{near}")
        else:
            try:
                value = _convert(kind, one.field, one.value)
            except ValueError as error:  # msgspec.ValidationError is one
                found.append(f"{where} = {one.value!r}: {str(error).removesuffix(' - at `$`')}")
                unread.append(f"{one.section}.{one.field}")
            else:
                tree.setdefault(one.section, {})[one.field] = value
    made = {section: kinds[section](**fields) for section, fields in tree.items()}
    return msgspec.structs.replace(_DEFAULTS, **made), unread


def _convert(kind: type[msgspec.Struct], field: str, value: Any) -> Any:
    if isinstance(value, str):
        default: object = getattr(kind(), field)
        value = _READ.get(default.__class__, _as_is)(field, value)
    (info,) = (info for info in msgspec.structs.fields(kind) if info.name == field)
    try:
        return msgspec.convert(value, info.type)
    except msgspec.ValidationError as error:
        raise ValueError(_in_words(info.type) or str(error)) from error


def _in_words(kind: Any) -> str:
    """Say what a choice, a name or an address may be; empty: the error says it well enough."""
    found = msgspec.inspect.type_info(kind)
    while isinstance(found, msgspec.inspect.Metadata):
        found = found.type
    match found:
        case msgspec.inspect.LiteralType(values=values):
            return f"use one of {', '.join(map(str, values))}"
        case msgspec.inspect.StrType(pattern=str(pattern)):
            choices = _CHOICES.fullmatch(pattern)
            if choices is not None:
                return f"use one of {choices[1].replace('|', ', ')}"
            is_name = pattern.startswith("^[A-Z")
            return (
                "use 1 to 64 letters, digits, '.', '_' or '-'"
                if is_name
                else "write http://host:port"
            )
        case _:
            return ""


def _as_is(field: str, text: str) -> Any:
    del field
    return text


def _read_int(field: str, text: str) -> int:
    if "bytes" in field:
        return parse_bytes(text)
    if field.endswith("_ms") or "_ms_" in field:
        return parse_duration_ms(text)
    try:
        return int(text)
    except ValueError:
        raise ValueError("a whole number is needed") from None


def _read_float(field: str, text: str) -> float:
    del field
    try:
        return float(text)
    except ValueError:
        raise ValueError("a number is needed") from None


def _read_bool(field: str, text: str) -> bool:
    del field
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError("say true or false")


def _read_pairs(field: str, text: str) -> dict[str, str]:
    """Read ``a=host:port,b=host:port``."""
    del field
    pairs: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name or not value:
            raise ValueError(f"{part!r} must be name=host:port")
        if name in pairs:
            raise ValueError(f"{name!r} is listed twice")
        pairs[name] = value
    return pairs


_READ: dict[type, Callable[[str, str], Any]] = {
    int: _read_int,
    float: _read_float,
    bool: _read_bool,
    dict: _read_pairs,
}


def _nearest(word: str, known: Any) -> str:
    import difflib  # only mistakes need it

    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""
