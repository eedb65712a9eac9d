"""The codecs of Kafka's messages against an independent implementation (kio), and garbage."""

import dataclasses
import datetime
import io
import random
import typing
import uuid
from functools import cache
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_writer
from kio.static.constants import EntityType

from raftline.gateways.kafka import schema, schema_admin, schema_groups
from raftline.gateways.kafka.codec import ZERO_UUID, Malformed, decoder, default_of, encoder
from raftline.gateways.kafka.schema import Api, Field, parse

APIS: list[Api] = [
    api
    for module in (schema, schema_groups, schema_admin)
    for api in vars(module).values()
    if isinstance(api, Api)
]
CASES = [
    (api, version, side)
    for api in {api.key: api for api in APIS}.values()
    for version in range(19)
    for side in ("request", "response")
]
LAST = {"Produce": 12, "Fetch": 17, "InitProducerId": 5}  # what is served; tables end there
ROUNDS = 8
SIZES = {"i8": 8, "i16": 16, "u16": 16, "i32": 32, "u32": 32, "i64": 64}
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@cache
def foreign(key: int, version: int, side: str) -> type | None:
    """Return kio's class of a message, None where it knows no such version."""
    try:
        module = import_module(f"kio.schema.{api_key_map[key]}.v{version}.{side}")
    except ModuleNotFoundError:
        return None
    kind = EntityType.request if side == "request" else EntityType.response
    return next(
        found
        for found in vars(module).values()
        if dataclasses.is_dataclass(found) and found.__type__ is kind  # type: ignore[attr-defined]
    )


def values(fields: tuple[Field, ...], shape: type, version: int, rng: random.Random) -> Any:
    """Return a random message twice: ours and kio's."""
    hints = typing.get_type_hints(shape)
    theirs = list(dataclasses.fields(shape))
    ours = [field for field in fields if field.is_in(version)]
    assert len(theirs) == len(ours), (
        shape.__name__,
        version,
        [f.name for f in theirs],
        [f.name for f in ours],
    )
    mine: dict[str, Any] = {}
    kios: dict[str, Any] = {}
    for field, other in zip(ours, theirs, strict=True):
        assert (field.tag >= 0) == ("tag" in other.metadata), (field.name, other.name)
        mine[field.name], kios[other.name] = one(field, other, hints[other.name], version, rng)
    for field in fields:
        mine.setdefault(field.name, default_of(field))
    return mine, shape(**kios)


def one(field: Field, other: Any, hint: Any, version: int, rng: random.Random) -> tuple[Any, Any]:
    nullable = version >= field.null_from
    if nullable and rng.random() < 0.3:
        return None, None
    inner = [a for a in typing.get_args(hint) if a is not type(None)] if nullable else [hint]
    hint = inner[0] if inner else hint
    if field.is_array:
        item = typing.get_args(hint)[0]
        pairs = [scalar(field, other, item, version, rng) for _ in range(rng.randrange(4))]
        return [a for a, _ in pairs], tuple(b for _, b in pairs)
    return scalar(field, other, hint, version, rng)


def scalar(
    field: Field, other: Any, hint: Any, version: int, rng: random.Random
) -> tuple[Any, Any]:
    if field.fields:
        if not dataclasses.is_dataclass(hint):
            hint = next(a for a in typing.get_args(hint) if dataclasses.is_dataclass(a))
        return values(field.fields, hint, version, rng)  # type: ignore[arg-type]
    kind = field.kind
    if kind == "bool":
        value = rng.random() < 0.5
        return value, value
    if kind == "string":
        text = "".join(rng.choices("abz-._é漢😀", k=rng.randrange(200)))
        return text, text
    if kind == "bytes":
        data = rng.randbytes(rng.randrange(300))
        return data, data
    if kind == "uuid":
        data = rng.choice([ZERO_UUID, rng.randbytes(16)])
        return data, None if data == ZERO_UUID else uuid.UUID(bytes=data)
    if kind == "f64":
        number = rng.uniform(-1e9, 1e9)
        return number, number
    return integer(kind, other.metadata["kafka_type"], rng)


def integer(kind: str, foreign_kind: str, rng: random.Random) -> tuple[int, Any]:
    if foreign_kind == "error_code":
        code = rng.choice(list(ErrorCode))
        return int(code.value), code
    if foreign_kind.startswith("timedelta"):
        number = rng.randrange(0, 1 << 31)
        return number, datetime.timedelta(milliseconds=number)
    if foreign_kind == "datetime_i64":
        number = rng.randrange(0, 1 << 41)
        return number, EPOCH + datetime.timedelta(milliseconds=number)
    bits = SIZES[kind]
    low = 0 if kind.startswith("u") else -(1 << bits - 1)
    number = rng.choice([low, 0, low + (1 << bits) - 1, rng.randrange(low, low + (1 << bits))])
    return number, number


def test_the_tables_are_those_of_all_apis_we_have() -> None:
    assert len(APIS) >= 7
    assert len({api.key for api in APIS}) == len({api.name for api in APIS})


@pytest.mark.parametrize("api", {api.key: api for api in APIS}.values(), ids=lambda api: api.name)
def test_every_version_gives_the_same_bytes_as_kio(api: Api) -> None:
    checked = 0
    for version in range(19):
        for side in ("request", "response"):
            shape = foreign(api.key, version, side)
            if shape is None or version > LAST.get(api.name, version):
                continue
            table = api.request if side == "request" else api.response
            flexible = version >= api.flexible_from
            assert shape.__flexible__ == flexible  # type: ignore[attr-defined]
            rng = random.Random(f"{api.name} {version} {side}")
            for _ in range(ROUNDS):
                mine, theirs = values(parse(table), shape, version, rng)
                stream = io.BytesIO()
                entity_writer(shape)(stream, theirs)  # type: ignore[arg-type]
                wire = stream.getvalue()
                out = bytearray()
                encoder(table, version, flexible=flexible)(out, mine)
                assert bytes(out) == wire, (version, side, mine)
                assert decoder(table, version, flexible=flexible)(wire, 0) == mine
                checked += 1
    assert checked, f"kio knows no version of {api.name}"


@given(data=st.binary(max_size=300), case=st.sampled_from(CASES))
@settings(max_examples=400, deadline=None)
def test_garbage_is_refused_or_read_and_nothing_else(
    data: bytes, case: tuple[Api, int, str]
) -> None:
    api, version, side = case
    table = api.request if side == "request" else api.response
    try:
        message = decoder(table, version, flexible=version >= api.flexible_from)(data, 0)
    except Malformed:
        return
    assert set(message) == {field.name for field in parse(table)}


def test_a_count_beyond_the_bytes_makes_nothing() -> None:
    wire = (2**31 - 1).to_bytes(4, "big") + bytes(8)
    with pytest.raises(Malformed, match="items"):
        decoder(schema.METADATA.request, 1, flexible=False)(wire, 0)


def test_unknown_tags_are_skipped() -> None:
    decode = decoder(schema.API_VERSIONS.request, 3, flexible=True)
    wire = b"\x02a\x02b" + b"\x01" + b"\x07" + b"\x03xyz"
    assert decode(wire, 0) == {"client_software_name": "a", "client_software_version": "b"}
