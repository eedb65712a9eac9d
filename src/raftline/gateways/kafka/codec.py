"""Encoders and decoders of Kafka's messages, made from the tables of schema.py on first use.

For each (table, version) a function is written out as Python text and compiled: no look at the
table when it runs. A message is a ``dict`` by field name; structs inside are dicts, arrays lists.

    decoder(api.request, 9, flexible=True)(frame, start) -> message
    encoder(api.response, 9, flexible=True)(out, message)      appends to a bytearray

Rules
    C1  A decoded message has every field of the table; those that the version does not have, and
        tags that were not sent, have their defaults.
    C2  A decoder never reads past the end and never makes more items than there are bytes, nor more
        than ``ITEMS_MAX``: what does not fit raises ``Malformed``. Bytes after the message are not
        looked at.
    C3  An encoder takes defaults for fields that are not given and leaves out what the version
        does not have. A tagged field that is not given, or is its default, is not sent.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from raftline.gateways.kafka.schema import Field, parse
from raftline.model.limits import PARTITIONS_MAX, TOPICS_MAX

Fields = dict[str, Any]
Decode = Callable[[bytes, int], Fields]
Encode = Callable[[bytearray, Fields], None]

ZERO_UUID = bytes(16)
UVARINT_BYTES_MAX = 5
ITEMS_MAX = TOPICS_MAX + PARTITIONS_MAX  # in all arrays of a message: it may name all there can be
_FIXED = {"i8": "b", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "f64": "d"}


class Malformed(Exception):
    """Bytes that are no such message."""


@cache
def decoder(table: str, version: int, *, flexible: bool) -> Decode:
    """Return what reads a message of a version. Raises Malformed when it runs."""
    run = _compile(_Reader(version, flexible=flexible), parse(table))

    def decode(data: bytes, start: int) -> Fields:
        _room.items = ITEMS_MAX
        try:
            message, end = run(data, start)
        except (IndexError, struct.error, UnicodeDecodeError) as error:
            raise Malformed(f"it ends too early, or holds no text: {error}") from error
        if end > len(data):
            raise Malformed(f"it should have {end} bytes and has {len(data)}")
        return message

    return decode


@cache
def encoder(table: str, version: int, *, flexible: bool) -> Encode:
    """Return what writes a message of a version."""
    return _compile(_Writer(version, flexible=flexible), parse(table))


def _compile(maker: "_Reader | _Writer", fields: tuple[Field, ...]) -> Any:
    name = maker.struct(fields)
    scope: dict[str, Any] = dict(_SCOPE)
    exec("\n".join(maker.lines), scope)  # text that we wrote ourselves
    return scope[name]


def default_of(field: Field) -> Any:
    """Return what stands for a field that is not there."""
    if field.has_default:
        return field.default
    if field.is_array:
        return []
    if field.kind == "{}":
        return None if field.null_from != 1 << 15 else {f.name: default_of(f) for f in field.fields}
    known: dict[str, Any] = {"string": "", "bytes": b"", "uuid": ZERO_UUID, "bool": False}
    return known.get(field.kind, 0)


class _Maker:
    """Writes out functions, the innermost first."""

    def __init__(self, version: int, *, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self._count = 0

    def name(self) -> str:
        self._count += 1
        return f"f{self._count}"

    def here(self, fields: tuple[Field, ...]) -> list[Field]:
        return [f for f in fields if f.is_in(self.version) and f.tag < 0]

    def tagged(self, fields: tuple[Field, ...]) -> list[Field]:
        found = [f for f in fields if f.is_in(self.version) and f.tag >= 0]
        return sorted(found, key=lambda field: field.tag)

    def suffix(self, field: Field) -> str:
        nullable = "n" if self.version >= field.null_from else ""
        return ("c" if self.flexible else "") + nullable


class _Reader(_Maker):
    """Writes functions ``f(b, p) -> message, p``."""

    def struct(self, fields: tuple[Field, ...]) -> str:
        """Write the function of a struct; return its name."""
        body: list[str] = []
        for field in self.here(fields):
            body += self.value(field, f"v_{field.name}")
        tagged = self.tagged(fields)
        for field in fields:
            if field in tagged or not field.is_in(self.version):
                body.append(f"v_{field.name} = {default_of(field)!r}")
        if self.flexible:
            body += self._tags(tagged)
        items = ", ".join(f"{f.name!r}: v_{f.name}" for f in fields)
        name = self.name()
        self.lines += [f"def {name}(b, p):", *(f"    {line}" for line in body)]
        self.lines.append(f"    return {{{items}}}, p")
        return name

    def _tags(self, tagged: list[Field]) -> list[str]:
        lines = ["n, p = uvarint(b, p)", "for _ in range(n):", "    t, p = uvarint(b, p)"]
        lines += ["    z, p = uvarint(b, p)", "    q, p = p, p + z", "    at_most(p, b)"]
        for field in tagged:
            lines.append(f"    if t == {field.tag}:")
            lines += [f"        {line}" for line in self.value(field, f"v_{field.name}", "q")]
        return lines

    def value(self, field: Field, to: str, p: str = "p") -> list[str]:
        """Write how a field is read."""
        if not field.is_array:
            return self.one(field, to, p)
        nullable = self.version >= field.null_from
        item = f"i_{field.name}"
        lines = [f"{to}, {p} = count{'c' if self.flexible else ''}(b, {p}, {nullable})"]
        lines += [f"if {to} is not None:", f"    {to}, k = [], {to}", "    for _ in range(k):"]
        lines += [f"        {line}" for line in self.one(field, item, p, in_array=True)]
        return [*lines, f"        {to}.append({item})"]

    def one(self, field: Field, to: str, p: str, *, in_array: bool = False) -> list[str]:
        kind = field.kind
        if field.fields:
            name = self.struct(field.fields)
            call = f"{to}, {p} = {name}(b, {p})"
            if in_array or self.version < field.null_from:
                return [call]
            return [
                f"{p} += 1",
                f"if b[{p} - 1] > 127:",
                f"    {to} = None",
                "else:",
                f"    {call}",
            ]
        if kind == "bool":
            return [f"{to} = b[{p}] != 0", f"{p} += 1"]
        if kind == "uuid":
            return [f"{to} = b[{p}:{p} + 16]", f"{p} += 16"]
        if kind in _FIXED:
            size = struct.calcsize(_FIXED[kind])
            return [f"({to},) = read_{kind}(b, {p})", f"{p} += {size}"]
        suffix = ("c" if self.flexible else "") if in_array else self.suffix(field)
        return [f"{to}, {p} = {kind}{suffix}(b, {p})"]


class _Writer(_Maker):
    """Writes functions ``f(o, m)`` that append a message to a bytearray."""

    def struct(self, fields: tuple[Field, ...]) -> str:
        """Write the function of a struct; return its name."""
        body: list[str] = []
        for field in self.here(fields):
            body += self.value(field, f"m.get({field.name!r}, {default_of(field)!r})")
        if self.flexible:
            body += self._tags(self.tagged(fields))
        name = self.name()
        self.lines += [f"def {name}(o, m):", *(f"    {line}" for line in body or ["pass"])]
        return name

    def _tags(self, tagged: list[Field]) -> list[str]:
        if not tagged:
            return ["o.append(0)"]
        lines = ["t = []"]
        for field in tagged:
            default = repr(default_of(field))
            lines += [f"x = m.get({field.name!r}, {default})", f"if x != {default}:"]
            lines += ["    s, o = o, bytearray()"]
            lines += [f"    {line}" for line in self.value(field, "x")]
            lines += [f"    t.append(({field.tag}, o))", "    o = s"]
        return [*lines, "put_tags(o, t)"]

    def value(self, field: Field, value: str) -> list[str]:
        """Write how a field is written."""
        if not field.is_array:
            return self.one(field, value)
        lines = [f"a = {value}", f"put_count{self.suffix(field)}(o, a)", "for i in a or ():"]
        return [*lines, *(f"    {line}" for line in self.one(field, "i", in_array=True))]

    def one(self, field: Field, value: str, *, in_array: bool = False) -> list[str]:
        kind = field.kind
        if field.fields:
            call = f"{self.struct(field.fields)}(o, s)"
            if in_array or self.version < field.null_from:
                return [f"s_ = {value}", call.replace("(o, s)", "(o, s_)")]
            lines = [
                f"s_ = {value}",
                "if s_ is None:",
                "    o.append(255)",
                "else:",
                "    o.append(1)",
            ]
            return [*lines, "    " + call.replace("(o, s)", "(o, s_)")]
        if kind == "bool":
            return [f"o.append(1 if {value} else 0)"]
        if kind == "uuid":
            return [f"o += {value}"]
        if kind in _FIXED:
            return [f"o += pack_{kind}({value})"]
        suffix = ("c" if self.flexible else "") if in_array else self.suffix(field)
        return [f"put_{kind}{suffix}(o, {value})"]


# ---------------------------------------------------------------- what the written text calls

_i16 = struct.Struct(">h")
_i32 = struct.Struct(">i")


class _Room:
    """How many items the message that is being read may still have. C2."""

    __slots__ = ("items",)


_room = _Room()  # one for all: a message is read in one go


def get_uvarint(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """Read an unsigned varint; return it and where it ends. Raises Malformed, IndexError."""
    byte = data[at]
    if byte < 128:
        return byte, at + 1
    value, shift = byte & 127, 7
    for step in range(1, UVARINT_BYTES_MAX):
        byte = data[at + step]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at + step + 1
        shift += 7
    raise Malformed(f"byte {at}: a number of more than {UVARINT_BYTES_MAX} bytes")


def put_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _at_most(at: int, data: bytes) -> None:
    if at > len(data):
        raise Malformed(f"it should have {at} bytes and has {len(data)}")


def _count(data: bytes, at: int, nullable: bool) -> tuple[int | None, int]:  # noqa: FBT001
    (count,) = _i32.unpack_from(data, at)
    return _checked(data, at + 4, count, nullable=nullable)


def _count_compact(data: bytes, at: int, nullable: bool) -> tuple[int | None, int]:  # noqa: FBT001
    count, at = get_uvarint(data, at)
    return _checked(data, at, count - 1, nullable=nullable)


def _checked(data: bytes, at: int, count: int, *, nullable: bool) -> tuple[int | None, int]:
    """Say no to more items than there are bytes. C2."""
    if count < 0 and nullable:
        return None, at
    if not 0 <= count <= len(data) - at:
        raise Malformed(f"byte {at}: {count} items, {len(data) - at} bytes are left")
    _room.items -= count
    if _room.items < 0:
        raise Malformed(f"byte {at}: with these {count} it has more than {ITEMS_MAX} items")
    return count, at


def _piece(data: bytes, at: int, length: int) -> bytes:
    if not 0 <= length <= len(data) - at:
        raise Malformed(f"byte {at}: {length} bytes, {len(data) - at} are left")
    return data[at : at + length]


def _string(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _i16.unpack_from(data, at)
    return str(_piece(data, at + 2, length), "utf-8"), at + 2 + length


def _string_or_null(data: bytes, at: int) -> tuple[str | None, int]:
    (length,) = _i16.unpack_from(data, at)
    return (None, at + 2) if length < 0 else _string(data, at)


def _string_compact(data: bytes, at: int) -> tuple[str, int]:
    length, at = get_uvarint(data, at)
    return str(_piece(data, at, length - 1), "utf-8"), at + length - 1


def _string_compact_or_null(data: bytes, at: int) -> tuple[str | None, int]:
    return (None, at + 1) if data[at] == 0 else _string_compact(data, at)


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _i32.unpack_from(data, at)
    return _piece(data, at + 4, length), at + 4 + length


def _bytes_or_null(data: bytes, at: int) -> tuple[bytes | None, int]:
    (length,) = _i32.unpack_from(data, at)
    return (None, at + 4) if length < 0 else _bytes(data, at)


def _bytes_compact(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = get_uvarint(data, at)
    return _piece(data, at, length - 1), at + length - 1


def _bytes_compact_or_null(data: bytes, at: int) -> tuple[bytes | None, int]:
    return (None, at + 1) if data[at] == 0 else _bytes_compact(data, at)


def _put_count(out: bytearray, items: list[Any] | None) -> None:
    out += _i32.pack(-1 if items is None else len(items))


def _put_count_compact(out: bytearray, items: list[Any] | None) -> None:
    put_uvarint(out, 0 if items is None else len(items) + 1)


def _put_string(out: bytearray, text: str | None) -> None:
    if text is None:
        out += _i16.pack(-1)
        return
    data = text.encode()
    out += _i16.pack(len(data))
    out += data


def _put_string_compact(out: bytearray, text: str | None) -> None:
    _put_bytes_compact(out, None if text is None else text.encode())


def _put_bytes(out: bytearray, data: bytes | None) -> None:
    out += _i32.pack(-1 if data is None else len(data))
    out += data or b""


def _put_bytes_compact(out: bytearray, data: bytes | None) -> None:
    put_uvarint(out, 0 if data is None else len(data) + 1)
    out += data or b""


def _put_tags(out: bytearray, tags: list[tuple[int, bytearray]]) -> None:
    put_uvarint(out, len(tags))
    for tag, data in tags:
        put_uvarint(out, tag)
        put_uvarint(out, len(data))
        out += data


def _not_null(put: Callable[[bytearray, Any], None]) -> Callable[[bytearray, Any], None]:
    """Refuse to write null where a version has none: a bug of ours, not of a client."""

    def checked(out: bytearray, value: Any) -> None:
        assert value is not None, "null where the version has none"
        put(out, value)

    return checked


_SCOPE: dict[str, Any] = {
    "uvarint": get_uvarint,
    "at_most": _at_most,
    "count": _count,
    "countc": _count_compact,
    "string": _string,
    "stringn": _string_or_null,
    "stringc": _string_compact,
    "stringcn": _string_compact_or_null,
    "bytes": _bytes,
    "bytesn": _bytes_or_null,
    "bytesc": _bytes_compact,
    "bytescn": _bytes_compact_or_null,
    "put_tags": _put_tags,
}
for _name, _put in {"count": _put_count, "string": _put_string, "bytes": _put_bytes}.items():
    _SCOPE[f"put_{_name}"] = _not_null(_put)
    _SCOPE[f"put_{_name}n"] = _put
for _name, _put in {
    "count": _put_count_compact,
    "string": _put_string_compact,
    "bytes": _put_bytes_compact,
}.items():
    _SCOPE[f"put_{_name}c"] = _not_null(_put)
    _SCOPE[f"put_{_name}cn"] = _put
for _kind, _code in _FIXED.items():
    _SCOPE[f"read_{_kind}"] = struct.Struct(">" + _code).unpack_from
    _SCOPE[f"pack_{_kind}"] = struct.Struct(">" + _code).pack
