"""Bytes that are no requests: an error of the protocol or a closed connection; the node goes on."""

import contextlib
import random
import struct
from collections.abc import Callable  # noqa: TC003

import pytest
from crc32c import crc32c

from raftline.chaos.rig import STACK_TRACE, Rig
from raftline.gateways.kafka import schema, schema_admin, schema_groups
from raftline.gateways.kafka.schema import Api
from raftline.model.errors import RaftlineError
from raftline.model.records import seal_batch
from tests.conformance.kafka.conftest import MakeTopic
from tests.conformance.kafka.wire import Hung, Wire, body_of, fetch, frame, produce

HEAD = struct.Struct(">hhih")
SOUND = seal_batch([(None, b"sound", [], 1)])
APIS: list[Api] = [
    api
    for module in (schema, schema_groups, schema_admin)
    for api in vars(module).values()
    if isinstance(api, Api)
]


def head(key: int, version: int) -> bytes:
    return HEAD.pack(key, version, 1, 2) + b"me"


CLOSING = {
    "no length": frame(b""),
    "a length below zero": struct.pack(">i", -5) + b"x" * 20,
    "a length of 2 GB": struct.pack(">i", 2**31 - 1) + b"x" * 20,
    "a length of 100 MB": struct.pack(">i", 100 << 20) + b"x" * 20,
    "an unknown key": frame(head(999, 0)),
    "a key below zero": frame(head(-1, 0)),
    "an unknown version": frame(head(3, 99)),
    "a version below zero": frame(head(3, -1)),
    "a version of before 2017": frame(head(0, 1) + b"\0" * 20),
    "a client's id beyond the end": frame(HEAD.pack(3, 1, 1, 3000) + b"me"),
    "an array beyond the end": frame(head(3, 1) + struct.pack(">i", 2**31 - 1)),
    "an endless number": frame(head(3, 9) + b"\0" + b"\xff" * 30),
    "text that is none": frame(head(3, 1) + b"\0\0\0\1\0\2\xff\xfe"),
    "a produce without an end": frame(head(0, 9) + b"\0\0\xff\xff"),
    "a produce with a topic beyond the end": frame(head(0, 9) + b"\0\0\xff\xff\0\0\0\1\x02\x7fab"),
    "a batch beyond the end": frame(
        head(0, 7) + b"\xff\xff\xff\xff\0\0\0\1\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\x7f\0\0\0"
    ),
    "a fetch without an end": frame(head(1, 11) + b"\0" * 8),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(64),
}


@pytest.fixture
def address(one: Rig) -> str:
    return one.node("node-1").kafka


def check_goes_on(one: Rig, topic: str) -> None:
    """The node serves others and has met no bug."""
    with Wire(one.node("node-1").kafka) as wire:
        assert wire.produce(9, topic, SOUND)["error_code"] == 0
    log = one.log_text("node-1")
    assert STACK_TRACE not in log
    bugs = one.events("node-1", "kafka.failed")
    assert not bugs, f"{bugs[0]['error']}\n{bugs[0]['where']}"
    assert not one.events("node-1", "loop.bug")


@pytest.mark.parametrize("name", CLOSING)
def test_what_cannot_be_answered_closes_the_connection(address: str, name: str) -> None:
    with Wire(address) as wire:
        wire.raw(CLOSING[name])
        assert wire.is_closed()


def test_others_notice_nothing(one: Rig, address: str, make_topic: MakeTopic) -> None:
    topic = make_topic(one)
    with Wire(address) as good:
        number = good.send(schema.FETCH, 11, fetch(topic, {0: 0}, wait_ms=10_000))
        for data in CLOSING.values():
            with Wire(address) as bad:
                bad.raw(data)
                assert bad.is_closed()
        with Wire(address) as other:
            assert other.produce(9, topic, SOUND)["error_code"] == 0
        assert good.reply(schema.FETCH, 11, number)["topics"][0]["partitions"][0]["records"]
    check_goes_on(one, topic)


def test_an_unknown_version_of_api_versions_is_told_the_known_ones(address: str) -> None:
    with Wire(address) as wire:
        wire.raw(frame(head(18, 99)))
        answer = wire.reply(schema.API_VERSIONS, 0, 1)
        assert answer["error_code"] == 35
        rows = {row["api_key"]: row for row in answer["api_keys"]}
        assert (rows[18]["min_version"], rows[18]["max_version"]) == (0, 4)
        assert wire.ask(schema.API_VERSIONS, 3, {})["error_code"] == 0, "and it goes on"


def test_produce_is_told_from_its_first_version_and_served_from_3(address: str) -> None:
    """Older librdkafka compresses only for who knows Produce 0; it asks for the newest it knows."""
    with Wire(address) as wire:
        rows = {row["api_key"]: row for row in wire.ask(schema.API_VERSIONS, 3, {})["api_keys"]}
        assert (rows[0]["min_version"], rows[0]["max_version"]) == (0, 12)
        assert rows[1]["min_version"] == 4, "or it would take us for one of before record batches"
        wire.raw(frame(head(0, 2)))
        assert wire.is_closed()


def test_a_request_that_never_ends_is_dropped_with_its_client(
    one: Rig, address: str, make_topic: MakeTopic
) -> None:
    whole = frame(body_of(schema.METADATA, 12, {"topics": None}, 1))
    for cut in range(len(whole)):
        with Wire(address) as wire:
            wire.raw(whole[:cut])
            wire.close_writing()
            assert wire.is_closed()
    check_goes_on(one, make_topic(one))


def test_changed_bytes_do_no_harm(one: Rig, address: str, make_topic: MakeTopic) -> None:
    """Sound requests of every API with a few bytes changed."""
    topic = make_topic(one)
    rng = random.Random(7)
    sound = [
        body_of(schema.PRODUCE, version, produce(topic, {0: SOUND, 1: SOUND}), 1)
        for version in (3, 7, 9, 12)
    ]
    sound += [
        body_of(schema.FETCH, version, fetch(b"\x01" * 16 if version > 12 else topic, {0: 0}), 1)
        for version in (4, 11, 12, 17)
    ]
    with Wire(address) as wire:
        served = {
            row["api_key"]: (row["min_version"], row["max_version"])
            for row in wire.ask(schema.API_VERSIONS, 0, {})["api_keys"]
        }
    for api in APIS:
        if api.key in served and api.key > 1:
            sound += [body_of(api, version, {}, 1) for version in served[api.key]]
    for _ in range(400):
        body = bytearray(rng.choice(sound))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(8, len(body))
            body[at] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
        if rng.random() < 0.2:
            del body[rng.randrange(10, len(body) + 1) :]
        with Wire(address) as wire:
            wire.raw(frame(bytes(body)))
            wire.close_writing()
            while not wire.is_closed():  # whatever it says
                pass
    check_goes_on(one, topic)


def test_noise_does_no_harm(one: Rig, address: str, make_topic: MakeTopic) -> None:
    rng = random.Random(11)
    for size in (1, 4, 10, 100, 5_000, 300_000):
        for _ in range(5):
            with Wire(address) as wire:
                try:
                    wire.raw(rng.randbytes(size))
                    wire.close_writing()
                except (Hung, OSError):
                    continue
                assert wire.is_closed()
    check_goes_on(one, make_topic(one))


def sealed(body: bytes, count: int, attributes: int) -> bytes:
    """Return a batch whose head and checksum are sound, whatever is inside."""
    tail = struct.pack(">hiqqqhii", attributes, count - 1, 5, 5, -1, -1, -1, count) + body
    return struct.pack(">qiibI", 0, 9 + len(tail), -1, 2, crc32c(tail)) + tail


def test_a_batch_with_noise_inside_harms_only_who_opens_it(
    one: Rig, address: str, make_topic: MakeTopic
) -> None:
    rng = random.Random(13)
    for attributes in range(5):
        topic = make_topic(one)
        with Wire(address) as wire:
            bad = sealed(rng.randbytes(400), 10, attributes)
            assert wire.produce(9, topic, bad)["error_code"] == 0
            assert wire.produce(9, topic, SOUND)["error_code"] == 0
            assert wire.fetch(11, topic, 0)["records"][61:461] == bad[61:]
            row = {"partition": 0, "timestamp": 2}
            for timestamp in (2, 0, -3):
                row["timestamp"] = timestamp
                asked = {"replica_id": -1, "topics": [{"name": topic, "partitions": [row]}]}
                wire.ask(schema.LIST_OFFSETS, 7, asked)
        with one.client() as client:
            paths = [f"/v1/topics/{topic}/groups/{name}/receive" for name in ("plain", "ordered")]
            asks: list[Callable[[], object]] = [
                lambda client=client, topic=topic: client.read(topic, 0, 0, limit=100),
                *(
                    lambda client=client, path=path: client._caller.call(
                        "POST", path, {"count": 20, "ordered": path.endswith("ordered/receive")}
                    )
                    for path in paths
                ),
            ]
            for ask in asks:
                with contextlib.suppress(RaftlineError):
                    ask()
        check_goes_on(one, topic)


def test_names_as_long_as_they_can_be_are_answered(
    one: Rig, address: str, make_topic: MakeTopic
) -> None:
    """A refusal that repeats them would be longer than a text of the protocol may be."""
    long = "n" * 32_767
    topic = {"resource_type": 2, "resource_name": long}
    null = {"name": long, "value": None, "operation": 2}
    new = {"num_partitions": 1, "replication_factor": 9}
    asked: list[tuple[Api, int, dict[str, object]]] = [
        (schema.METADATA, 1, {"topics": [{"name": long}]}),
        (schema_admin.CREATE_TOPICS, 2, {"topics": [{"name": long, **new}]}),
        (schema_admin.CREATE_TOPICS, 2, {"topics": [{"name": long, **new}] * 2}),
        (
            schema_admin.CREATE_TOPICS,
            2,
            {"topics": [{"name": "t", **new, "replication_factor": 1, "configs": [null]}]},
        ),
        (schema_admin.DELETE_TOPICS, 1, {"names": [long]}),
        (schema_admin.CREATE_PARTITIONS, 1, {"topics": [{"name": long, "count": 2}]}),
        (schema_admin.DESCRIBE_CONFIGS, 1, {"resources": [{**topic, "keys": None}]}),
        (
            schema_admin.DESCRIBE_CONFIGS,
            1,
            {"resources": [{**topic, "resource_type": 4, "keys": [long]}]},
        ),
        (schema_admin.ALTER_CONFIGS, 1, {"resources": [{**topic, "configs": [null]}]}),
        (schema_admin.INCREMENTAL_ALTER_CONFIGS, 0, {"resources": [{**topic, "configs": [null]}]}),
    ]
    with Wire(address) as wire:
        for api, version, request in asked:
            wire.ask(api, version, request)
        topic["resource_name"] = make_topic(one)
        for api in (schema_admin.ALTER_CONFIGS, schema_admin.INCREMENTAL_ALTER_CONFIGS):
            (row,) = wire.ask(api, 0, {"resources": [{**topic, "configs": [null]}]})["responses"]
            assert row["error_code"] == 40
    assert "kafka.failed" not in one.log_text("node-1")


def test_a_client_that_does_not_read_is_not_read_either(
    one: Rig, address: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(one)
    with Wire(address) as wire:
        big = seal_batch([(None, b"x" * 4_000_000, [], 1)])
        assert wire.produce(9, topic, big)["error_code"] == 0
    size = {"max_bytes": 8 << 20, "partition_bytes": 8 << 20}
    with Wire(address) as deaf:
        for _ in range(50):
            deaf.send(schema.FETCH, 11, fetch(topic, {0: 0}, **size))
        check_goes_on(one, topic)
    check_goes_on(one, topic)
