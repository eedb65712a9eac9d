"""Bad input: refused with the right words, nothing stored, nobody else disturbed, no stack trace.

Three tables: requests to a running cluster, commands, and starts of a node. Each row has what is
put in, the status or exit code, the error code, and words that must be in the text: the thing that
is wrong and what to do next.
"""

import hashlib
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from crc32c import crc32c

from raftline.chaos.rig import STACK_TRACE, Rig, command, free_port_base, wait_for
from raftline.chaos.traffic import BATCH, Caller
from raftline.cli.app import run
from raftline.gateways.lease_tokens import LeaseToken, encode_token
from raftline.testing.batches import seal
from raftline.wire.peer.frames import seal as seal_frame
from raftline.wire.peer.hello import WIRE_FORMAT, Hello

Done = subprocess.CompletedProcess[str]
NOW = 1_700_000_000_000
GOOD = seal([b"good"], [NOW])
ORDERS = "/v1/topics/orders/partitions/0/messages"


@pytest.fixture(scope="module")
def rig(module_path: Path) -> Iterator[Rig]:
    """Three nodes that create no topic unasked, with one topic and one message."""
    settings = ("topics.auto_create=false", "limits.batch_bytes_max=64KiB")
    made = Rig(module_path / "bad-input", settings=settings)
    try:
        made.start_all()
        assert made.command("topic", "create", "orders", "--partitions", "2").exit == 0
        with made.client() as client:
            client.send("orders", [b"the only one"], partition=0)
        yield made
    finally:
        made.close()


@pytest.fixture
def caller(rig: Rig) -> Iterator[Caller]:
    made = Caller(rig)
    yield made
    made.close()


def stored(rig: Rig) -> Any:
    """Return all there is: topics and what is in them."""
    with rig.client() as client:
        return [
            (row["name"], [client.look_up_time(row["name"], p, 1 << 50) for p in range(2)])
            for row in client.topics()
        ]


@pytest.fixture
def unchanged(rig: Rig) -> Iterator[None]:
    """See that a test stores nothing and that every node goes on."""
    before, running = stored(rig), rig.running()
    silent = [rig.log_text(name).count("peer.silent") for name in rig.names]
    yield
    assert stored(rig) == before
    assert rig.running() == running
    assert {row["state"] for row in rig.status()["nodes"]} == {"live"}
    assert [rig.log_text(name).count("peer.silent") for name in rig.names] == silent
    for name in rig.names:
        assert STACK_TRACE not in rig.log_text(name)


def corrupt(position: int) -> bytes:
    batch = bytearray(GOOD)
    batch[position] ^= 1
    return bytes(batch)


def magic(number: int) -> bytes:
    return GOOD[:16] + bytes((number,)) + GOOD[17:]


def lying_count() -> bytes:
    """Return a batch whose count is wrong and whose checksum is right."""
    batch = bytearray(GOOD)
    batch[57:61] = struct.pack(">i", 7)
    batch[17:21] = struct.pack(">I", crc32c(bytes(batch[21:])))
    return bytes(batch)


RECEIVE = "/v1/topics/orders/groups/workers/receive"
RANGES = "/v1/topics/orders/partitions/0/groups/workers/settle"
SEARCH = "/v1/traces/search?topic=orders"


def token(*, cut: int | None = None, **changes: Any) -> str:
    """Return a lease token that nobody gave, perhaps with something wrong or cut off."""
    given = LeaseToken("orders", 0, "workers", 1, 1, 0, 1, 0)
    return encode_token(msgspec.structs.replace(given, **changes))[:cut]


TOKEN = token()


def lease(*, cut: int | None = None, **changes: Any) -> bytes:
    """Return a settle of such a token; what is no part of it stands beside it."""
    inside = {name: changes.pop(name) for name in list(changes) if hasattr(LeaseToken, name)}
    return json.dumps({"lease_token": token(cut=cut, **inside), **changes}).encode()


def text(**row: Any) -> bytes:
    return json.dumps({"messages": [{"value": "x", **row}]}).encode()


# name, method, path, body, content type, status, code, words in message and hint
REQUESTS: list[tuple[str, str, str, bytes | None, str, int, str, str]] = [
    ("publish to no topic", "POST", "/v1/topics/nope/messages", text(), "json",
     404, "unknown_topic", "nope.*topic create nope"),
    ("batch to no topic", "POST", "/v1/topics/nope/partitions/0/messages", GOOD, "batch",
     404, "unknown_topic", "nope.*topic create nope"),
    ("read no topic", "GET", "/v1/topics/nope/partitions/0/messages", None, "",
     404, "unknown_topic", "nope.*topic create nope"),
    ("delete no topic", "DELETE", "/v1/topics/nope", None, "",
     404, "unknown_topic", "nope.*topic list"),
    ("no such partition", "POST", "/v1/topics/orders/partitions/9/messages", GOOD, "batch",
     404, "unknown_partition", "orders/9.*0..1.*topic show"),
    ("read no such partition", "GET", "/v1/topics/orders/partitions/9/messages", None, "",
     404, "unknown_partition", "orders/9.*0..1.*topic show"),
    ("a partition that is no number", "GET", "/v1/topics/orders/partitions/x/messages", None, "",
     400, "invalid_argument", "partition.*'x'"),
    ("beyond the end", "GET", ORDERS + "?offset=999", None, "",
     416, "offset_out_of_range", "999.*read from"),
    ("an offset that is no number", "GET", ORDERS + "?offset=abc", None, "",
     400, "invalid_argument", "offset.*abc"),
    ("a parameter nobody knows", "GET", ORDERS + "?ofset=1", None, "",
     400, "invalid_argument", "ofset.*offset"),
    ("a name with a slash", "POST", "/v1/topics", b'{"name": "a/b"}', "json",
     400, "invalid_topic", "a/b.*'/'.*letters"),
    ("an empty name", "POST", "/v1/topics", b'{"name": ""}', "json",
     400, "", "name"),
    ("a name too long", "POST", "/v1/topics", json.dumps({"name": "x" * 300}).encode(), "json",
     400, "invalid_topic", "xxx.*300.*letters"),
    ("a directory as a name", "POST", "/v1/topics", b'{"name": ".."}', "json",
     400, "invalid_topic", r"'\.\.'.*directory"),
    ("a topic that exists", "POST", "/v1/topics", b'{"name": "orders"}', "json",
     409, "topic_exists", "orders"),
    ("more replicas than nodes", "POST", "/v1/topics",
     b'{"name": "wide", "replication_factor": 5}', "json",
     400, "not_enough_nodes", "wide.*5.*3"),
    ("no partitions", "POST", "/v1/topics", b'{"name": "thin", "num_partitions": -1}', "json",
     400, "", "partitions"),
    ("partitions without end", "POST", "/v1/topics",
     b'{"name": "wide", "num_partitions": 1000000}', "json",
     400, "", "partitions"),
    ("a setting nobody knows", "POST", "/v1/topics",
     b'{"name": "odd", "settings": {"colour": "red"}}', "json",
     400, "invalid_argument", "colour.*retention_ms"),
    ("a setting out of bounds", "PATCH", "/v1/topics/orders",
     b'{"settings": {"retention_ms": "never"}}', "json",
     400, "invalid_argument", "never.*duration"),
    ("a body that is no JSON", "POST", "/v1/topics", b"{name: orders", "json",
     400, "invalid_argument", "JSON|json"),
    ("a field nobody knows", "POST", "/v1/topics", b'{"nmae": "x"}', "json",
     400, "invalid_argument", "nmae"),
    ("no messages", "POST", "/v1/topics/orders/messages", b'{"messages": []}', "json",
     400, "invalid_argument", "messages"),
    ("bad base64", "POST", "/v1/topics/orders/messages", text(value_base64="?"), "json",
     400, "invalid_argument", "value"),
    ("an oversized batch", "POST", ORDERS, seal([b"x" * 70_000], [NOW]), "batch",
     413, "batch_too_large", "70.*65536"),
    ("an oversized message", "POST", "/v1/topics/orders/messages", text(value="x" * 70_000),
     "json", 413, "batch_too_large", "65536"),
    ("a corrupt checksum", "POST", ORDERS, corrupt(-1), "batch",
     400, "corrupt_batch", "CRC|checksum|crc"),
    ("a damaged head", "POST", ORDERS, corrupt(22), "batch",
     400, "corrupt_batch", "CRC|checksum|crc"),
    ("old magic", "POST", ORDERS, magic(1), "batch", 400, "corrupt_batch", "magic"),
    ("new magic", "POST", ORDERS, magic(3), "batch", 400, "corrupt_batch", "magic"),
    ("a truncated batch", "POST", ORDERS, GOOD[:-5], "batch",
     400, "corrupt_batch", "cut|short|bytes"),
    ("half a head", "POST", ORDERS, GOOD[:30], "batch", 400, "corrupt_batch", "cut|short|bytes"),
    ("an empty batch", "POST", ORDERS, b"", "batch", 400, "", "batch"),
    ("a good batch and half of one", "POST", ORDERS, GOOD + GOOD[:40], "batch",
     400, "corrupt_batch", "cut|short|bytes"),
    ("a good batch and a corrupt one", "POST", ORDERS, GOOD + corrupt(-1), "batch",
     400, "corrupt_batch", "CRC|checksum|crc"),
    ("a count that lies", "POST", ORDERS, lying_count(), "batch", 400, "corrupt_batch", "count"),
    ("bytes that are no batch", "POST", ORDERS, b"GET / HTTP/1.1\r\n" * 8, "batch",
     400, "corrupt_batch", "batch"),
    ("move from nobody", "POST", "/v1/cluster/move",
     b'{"topic": "orders", "partition": 0, "from_node": 9, "to_node": 1}', "json",
     404, "unknown_node", "9.*cluster status"),
    ("remove nobody", "POST", "/v1/cluster/remove", b'{"node": "node-9"}', "json",
     404, "unknown_node", "node-9.*cluster status"),
    ("transfer to nobody", "POST", "/v1/cluster/transfer",
     b'{"topic": "orders", "partition": 0, "to_node": 9}', "json",
     404, "unknown_node", "9.*cluster status"),
    ("replace by itself", "POST", "/v1/cluster/replace", b'{"node": 1, "by": 1}', "json",
     400, "invalid_argument", "node 1.*member"),
    ("remove without room", "POST", "/v1/cluster/remove", b'{"node": 1}', "json",
     400, "not_enough_nodes", "orders"),
    ("recover by accident", "POST", "/v1/cluster/recover", b"{}", "json",
     400, "invalid_argument", "loses.*--accept-loss"),
    ("no such route", "GET", "/v2/topics", None, "", 404, "unknown_route", "/v2/topics"),
    ("no such method", "DELETE", "/v1/cluster", None, "", 405, "unknown_method", "DELETE"),
    ("a timeout of nothing", "GET", "/v1/topics?timeout_ms=0", None, "",
     400, "invalid_argument", "timeout_ms"),
    # work groups: receive
    ("receive of no topic", "POST", "/v1/topics/nope/groups/g/receive", b"{}", "json",
     404, "unknown_topic", "nope.*topic create nope"),
    ("receive of no partition", "POST", RECEIVE, b'{"partition": 9}', "json",
     404, "unknown_partition", "orders/9.*0..1.*topic show"),
    ("receive of a strange partition", "POST", RECEIVE, b'{"partition": -7}', "json",
     400, "invalid_argument", "partition=-7.*-1 for any"),
    ("a receive that is no JSON", "POST", RECEIVE, b"count=1", "json",
     400, "invalid_argument", 'JSON.*"count": 10'),
    ("a receive that is a list", "POST", RECEIVE, b"[1]", "json",
     400, "invalid_argument", '`object`.*"count": 10'),
    ("a receive with a field nobody knows", "POST", RECEIVE, b'{"cuont": 1}', "json",
     400, "invalid_argument", 'cuont.*"count": 10'),
    ("a count that is text", "POST", RECEIVE, b'{"count": "ten"}', "json",
     400, "invalid_argument", 'count.*"count": 10'),
    ("a count of nothing", "POST", RECEIVE, b'{"count": 0}', "json",
     400, "invalid_argument", "count=0.*1 to"),
    ("a count without end", "POST", RECEIVE, b'{"count": 1%s}' % (b"0" * 40), "json",
     400, "invalid_argument", "count=1000.*1 to"),
    ("a wait that is no time", "POST", RECEIVE, b'{"wait": "teatime"}', "json",
     400, "invalid_argument", "teatime.*30s"),
    ("a wait without end", "POST", RECEIVE, b'{"wait": "7d"}', "json",
     400, "invalid_argument", "wait=.*60000"),
    ("a lease of nothing", "POST", RECEIVE, b'{"lease": 1}', "json",
     400, "invalid_argument", "lease of 1 ms.*100"),
    ("a lease without end", "POST", RECEIVE, b'{"lease": 1%s}' % (b"0" * 30), "json",
     400, "invalid_argument", "lease=1000.*allowed"),
    ("a start nobody knows", "POST", RECEIVE, b'{"start": "middle"}', "json",
     400, "invalid_argument", "middle.*first or next"),
    ("a member's name too long", "POST", RECEIVE, json.dumps({"member": "m" * 300}).encode(),
     "json", 413, "too_large", "member.*300.*249"),
    ("a group's name too long", "POST", f"/v1/topics/orders/groups/{'g' * 300}/receive", b"{}",
     "json", 400, "invalid_argument", "300.*249"),
    # settles
    ("an ack of nothing", "POST", "/v1/messages/ack", b"{}", "json",
     400, "invalid_argument", "nothing to settle.*lease_token"),
    ("an ack that is no JSON", "POST", "/v1/messages/ack", b"token", "json",
     400, "invalid_argument", "JSON.*lease_token"),
    ("a token that is a number", "POST", "/v1/messages/ack", b'{"lease_token": 7}', "json",
     400, "invalid_argument", "lease_token.*lease_token"),
    ("a token that is garbage", "POST", "/v1/messages/ack", b'{"lease_token": "!!"}', "json",
     400, "invalid_argument", "'!!'.*lease_token of a received message"),
    ("a token cut short", "POST", "/v1/messages/ack", lease(cut=-5), "json",
     400, "invalid_argument", "not a lease token.*received message"),
    ("a token of no topic", "POST", "/v1/messages/ack", lease(topic="nope"), "json",
     404, "unknown_topic", "nope"),
    ("a token of another topic", "POST", "/v1/messages/nack", lease(topic="orders2"), "json",
     404, "unknown_topic", "orders2"),
    ("a token of no partition", "POST", "/v1/messages/reject", lease(partition=9), "json",
     404, "unknown_partition", "orders/9"),
    ("a token of no group", "POST", "/v1/messages/ack", lease(group="nobody"), "json",
     404, "unknown_group", "nobody"),
    ("a token with numbers out of bounds", "POST", "/v1/messages/ack", lease(offset=1 << 63),
     "json", 400, "invalid_argument", "not a lease token"),
    ("two ways to name a token", "POST", "/v1/messages/ack",
     b'{"lease_token": "a", "receipt_handle": "b"}', "json",
     400, "invalid_argument", "one of them"),
    ("a delay of an ack", "POST", "/v1/messages/ack", lease(delay="5s"), "json",
     400, "invalid_argument", "no delay.*nack"),
    ("a delay without end", "POST", "/v1/messages/nack", lease(delay="9999d"), "json",
     400, "invalid_argument", "delay=.*allowed"),
    ("a delay of no time", "POST", "/v1/messages/nack", lease(delay="soon"), "json",
     400, "invalid_argument", "soon.*30s"),
    ("an extend without a time", "POST", "/v1/messages/extend", lease(), "json",
     400, "invalid_argument", 'how long.*"lease": "30s"'),
    ("an extend without end", "POST", "/v1/messages/visibility",
     lease(extension_seconds=10**30), "json", 400, "invalid_argument", "lease=.*allowed"),
    ("a settle nobody knows", "POST", "/v1/messages/settle",
     b'{"settles": [{"lease_token": "x", "verb": "eat"}]}', "json",
     400, "invalid_argument", "eat.*ack, nack, reject, extend"),
    ("settles of nothing", "POST", "/v1/messages/settle", b'{"settles": []}', "json",
     400, "invalid_argument", "nothing to settle"),
    ("too many settles", "POST", "/v1/messages/ack",
     json.dumps({"lease_tokens": [TOKEN] * 10_001}).encode(), "json",
     413, "too_large", "settles.*10001.*10000"),
    ("ranges of nothing", "POST", RANGES, b'{"settles": []}', "json",
     400, "invalid_argument", "nothing to settle"),
    ("half a range", "POST", RANGES, b'{"settles": [["ack", 1, 1, 1, 0, [5]]]}', "json",
     400, "invalid_argument", r"\[5\].*start and end"),
    ("a range backwards", "POST", RANGES, b'{"settles": [["ack", 1, 1, 1, 0, [5, 2]]]}', "json",
     400, "invalid_argument", r"\[5, 2\].*start and end"),
    ("a range beyond all numbers", "POST", RANGES,
     b'{"settles": [["ack", 1, 1, 1, 0, [0, 1%s]]]}' % (b"0" * 40), "json",
     400, "invalid_argument", "int.*settles"),
    ("a range of a term beyond all numbers", "POST", RANGES,
     b'{"settles": [["ack", 1%s, 1, 1, 0, [0, 1]]]}' % (b"0" * 40), "json",
     400, "invalid_argument", "int.*settles"),
    ("ranges without end", "POST", RANGES,
     json.dumps({"settles": [["ack", 1, 1, 1, 0, [0, 1] * 30_000]]}).encode(), "json",
     413, "too_large", "ranges.*30000.*20000"),
    ("ranges of no group", "POST", RANGES.replace("workers", "nobody"),
     b'{"settles": [["ack", 1, 1, 1, 0, [0, 1]]]}', "json", 404, "unknown_group", "nobody"),
    # what a work group is asked
    ("a group nobody has", "GET", "/v1/groups/nobody?topic=orders", None, "",
     404, "unknown_group", "nobody"),
    ("a group of no topic", "GET", "/v1/groups/workers?topic=nope", None, "",
     404, "unknown_topic", "nope"),
    ("the end of a group nobody has", "DELETE", "/v1/groups/nobody?topic=orders", None, "",
     404, "unknown_group", "nobody"),
    ("a reset of a group nobody has", "POST", "/v1/groups/nobody/reset",
     b'{"topic": "orders", "kind": "work", "to": "earliest"}', "json",
     404, "unknown_group", "nobody"),
    ("a reset on no topic", "POST", "/v1/groups/nobody/reset",
     b'{"topic": "nope", "kind": "work", "to": "earliest"}', "json",
     404, "unknown_topic", "nope"),
    ("a reset to nowhere", "POST", "/v1/groups/nobody/reset",
     b'{"topic": "orders", "kind": "work"}', "json", 400, "invalid_argument", "one place.*offset"),
    ("a reset to two places", "POST", "/v1/groups/nobody/reset",
     b'{"topic": "orders", "kind": "work", "offset": 1, "to": "latest"}', "json",
     400, "invalid_argument", "one place.*offset"),
    ("a reset beyond all numbers", "POST", "/v1/groups/nobody/reset",
     b'{"topic": "orders", "kind": "work", "offset": 1%s}' % (b"0" * 40), "json",
     400, "invalid_argument", "offset 1000.*out of bounds"),
    ("a reset of another kind", "POST", "/v1/groups/nobody/reset",
     b'{"topic": "orders", "kind": "play", "offset": 1}', "json",
     400, "invalid_argument", "play.*stream or work"),
    # traces
    ("the trace of no id", "GET", "/v1/traces/orders", None, "",
     400, "invalid_argument", "'orders'.*an id that a send returned"),
    ("the trace of no message", "GET", "/v1/traces/orders.0.99", None, "",
     416, "offset_out_of_range", "99"),
    ("the trace of an offset beyond all", "GET", "/v1/traces/orders.0.9999999999999999999", None,
     "", 416, "offset_out_of_range", "9999999999999999999"),
    ("the trace of no topic", "GET", "/v1/traces/nope.0.1", None, "",
     404, "unknown_topic", "nope"),
    ("the trace of nothing that waited", "GET", "/v1/traces/orders.0.w99", None, "",
     404, "unknown_message", "w99.*raftline scheduled list"),
    ("a search without a topic", "GET", "/v1/traces/search", None, "",
     400, "invalid_argument", "topic.*topic="),
    ("a search of no topic", "GET", "/v1/traces/search?topic=nope", None, "",
     404, "unknown_topic", "nope"),
    ("a search for no state", "GET", SEARCH + "&state=happy", None, "",
     400, "invalid_argument", "happy.*fresh, leased"),
    ("a search at no time", "GET", SEARCH + "&from=teatime", None, "",
     400, "invalid_argument", "teatime.*2026"),
    ("a search without end", "GET", SEARCH + "&limit=1000000", None, "",
     400, "invalid_argument", "limit"),
    ("a search from no place", "GET", SEARCH + "&after=nowhere", None, "",
     400, "invalid_argument", "nowhere.*next"),
    ("a search by a colour", "GET", SEARCH + "&colour=red", None, "",
     400, "invalid_argument", "colour.*topic"),
]  # fmt: skip
TYPES = {"json": "application/json", "batch": BATCH}


@pytest.mark.parametrize("row", REQUESTS, ids=[row[0] for row in REQUESTS])
def test_a_bad_request(rig: Rig, caller: Caller, row: Any) -> None:
    _, method, path, body, kind, status, code, words = row
    before = stored(rig)
    fields = {"Content-Type": TYPES[kind]} if kind else {}
    for name in rig.names[:2]:  # a leader or not: the answer is the same
        answer = caller.call(name, method, path, body, fields=fields)
        error = answer.json()["error"]
        assert answer.status == status, error
        assert not code or error["code"] == code, error
        assert re.search(words, f"{error['message']} {error['hint']}"), error
        assert error["hint"] or "such as" in error["message"], error
    assert stored(rig) == before


# words of the command, exit code, words in what it says
COMMANDS: list[tuple[tuple[str, ...], int, str]] = [
    (("topic", "show", "nope"), 4, "nope.*topic create nope"),
    (("topic", "delete", "nope"), 4, "nope.*topic list"),
    (("topic", "create", "a/b"), 2, "a/b.*letters"),
    (("topic", "create", "orders"), 5, "orders"),
    (("topic", "create", "wide", "--replication-factor", "5"), 6, "wide.*5.*3"),
    (("topic", "create", "odd", "--set", "colour=red"), 2, "colour.*retention_ms"),
    (("topic", "create", "odd", "--retention", "soon"), 2, "soon"),
    (("produce", "nope", "-m", "x"), 4, "nope.*topic create nope"),
    (("produce", "orders", "-f", "/no/such/file"), 2, "/no/such/file"),
    (("consume", "nope"), 4, "nope.*topic create nope"),
    (("consume", "orders", "--from-time", "teatime"), 2, "teatime"),
    (("cluster", "remove", "node-9"), 4, "node-9.*cluster status"),
    (("cluster", "remove", "node-1"), 6, "orders"),
    (("cluster", "move", "orders/0", "--from", "node-1", "--to", "node-9"), 4, "node-9"),
    (("cluster", "move", "orders", "--from", "node-1", "--to", "node-2"), 2, "orders/2"),
    (("cluster", "transfer", "nope/0", "--to", "node-1"), 4, "nope"),
    (("cluster", "recover"), 2, "--accept-loss"),
    (("--server", "http://127.0.0.1:1", "topic", "list"), 7, "127.0.0.1:1.*raftline up"),
    (("--server", "ftp://x", "topic", "list"), 2, "ftp://x.*http://"),
    (("--timeout", "later", "topic", "list"), 2, "later"),
    (("topics",), 2, "topics.*--help"),
    (("topic", "create"), 2, "--help"),
]


@pytest.mark.parametrize("row", COMMANDS, ids=[" ".join(row[0]) for row in COMMANDS])
def test_a_bad_command(
    rig: Rig,
    row: tuple[tuple[str, ...], int, str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    words, code, said_words = row
    monkeypatch.setenv("RAFTLINE_SERVER", rig.node("node-1").http)
    before = stored(rig)
    exit_code = run(list(words))  # what the process does, without starting one for each row
    said = capfd.readouterr()
    assert exit_code == code, said
    assert re.search(said_words, said.err.replace("\n", " ")), said
    assert said.err.startswith("error: "), said
    assert "hint:  " in said.err, said
    assert STACK_TRACE not in said.err + said.out
    assert stored(rig) == before


def noise(seed: int, size: int) -> bytes:
    return hashlib.shake_128(bytes((seed,))).digest(size)


def hello(**changes: Any) -> bytes:
    said = Hello(WIRE_FORMAT, "", 0, "stranger", "d" * 32, "p" * 32, "127.0.0.1:1")
    body = msgspec.msgpack.encode(msgspec.structs.replace(said, **changes))
    return seal_frame((body,)) + body


def frame(body: bytes) -> bytes:
    return seal_frame((body,)) + body


PEER_BYTES: dict[str, Callable[[Rig], bytes]] = {
    "noise": lambda _: noise(1, 5000),
    "zeros": lambda _: bytes(5000),
    "http": lambda _: b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a frame without end": lambda _: struct.pack(">II", 0x7FFFFFFF, 0) + bytes(100),
    "half a frame": lambda _: hello()[:20],
    "a frame with a wrong checksum": lambda _: hello()[:-1] + b"?",
    "a frame that is no hello": lambda _: frame(noise(2, 100)),
    "a newer format": lambda _: hello(format=99),
    "another cluster": lambda _: hello(cluster="f" * 32),
    "an impostor": lambda rig: hello(cluster=rig.status()["cluster"], node=2, name="node-2"),
    "a hello, then noise": lambda _: hello() + noise(3, 5000),
    "a hello, then bad frames": lambda _: hello() + frame(noise(4, 64)) + frame(b"\x01" * 50),
    "a hello, then every kind of frame": lambda _: (
        hello() + b"".join(frame(bytes((kind,)) + noise(kind, 40)) for kind in range(12))
    ),
    "a hello, then empty frames of every kind": lambda _: (
        hello() + b"".join(frame(bytes((kind,))) for kind in range(12))
    ),
}


@pytest.mark.parametrize("what", PEER_BYTES)
def test_garbage_on_the_peer_port(rig: Rig, unchanged: None, what: str) -> None:
    sent = PEER_BYTES[what](rig)
    for name in rig.names:
        host, port = rig.node(name).peer.split(":")
        with socket.create_connection((host, int(port)), timeout=5) as link:
            link.sendall(sent)
            link.settimeout(0.2)
            try:
                while link.recv(65536):
                    pass
            except OSError:
                pass
    with rig.client() as client:
        assert client.health()


HTTP_BYTES = {
    "noise": noise(5, 3000) + b"\r\n\r\n",
    "zeros": bytes(3000) + b"\r\n\r\n",
    "a hello of peers": hello() + b"\r\n\r\n",
    "bare newlines": b"GET /health HTTP/1.1\nHost: x\n\r\n\r\n",
    "no version": b"GET /health\r\n\r\n",
    "two lengths": b"POST /v1/topics HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n"
    b"Content-Length: 2\r\n\r\nab",
    "a length that is no number": b"POST /v1/topics HTTP/1.1\r\nHost: x\r\n"
    b"Content-Length: many\r\n\r\n",
    "a length without end": b"POST /v1/topics HTTP/1.1\r\nHost: x\r\n"
    b"Content-Length: 99999999999\r\n\r\n",
    "a head without end": b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 70_000,
    "half a body": b"POST " + ORDERS.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Type: "
    + BATCH.encode() + b"\r\nContent-Length: 500\r\n\r\n" + GOOD,
    "a bad chunk": b"POST /v1/topics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"zz\r\n{}\r\n",
}  # fmt: skip
HALF = ("half a body",)  # the rest may still come: no answer yet


@pytest.mark.parametrize("what", HTTP_BYTES)
def test_garbage_on_the_http_port(rig: Rig, unchanged: None, what: str) -> None:
    address = rig.node("node-1").http.removeprefix("http://")
    host, port = address.split(":")
    said = b""
    with socket.create_connection((host, int(port)), timeout=5) as link:
        link.sendall(HTTP_BYTES[what])
        link.settimeout(0.3 if what in HALF else 3)
        try:
            while more := link.recv(65536):
                said += more
        except TimeoutError:
            assert what in HALF, "no answer, and the connection stays open"
        except ConnectionError:
            pass
    if what not in HALF:
        assert said.startswith(b"HTTP/1.1 4"), said
        assert b'"error"' in said
    with rig.client("node-1") as client:
        assert client.health()


def test_a_stranger_at_a_nodes_address_is_asked_again_and_again(rig: Rig) -> None:
    """A node refuses to talk to the wrong process where a peer was, and takes the peer back."""
    rig.stop("node-3")
    host, port = rig.node("node-3").peer.split(":")
    cluster = rig.status()["cluster"]
    calls = 0
    with socket.create_server((host, int(port))) as listener:
        listener.settimeout(0.2)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            try:
                link, _ = listener.accept()
            except TimeoutError:
                continue
            with link:
                calls += 1
                link.sendall(hello(cluster=cluster, node=3, name="node-3", directory="e" * 32))
                link.settimeout(0.1)
                try:
                    while link.recv(65536):
                        pass
                except OSError:
                    pass
    assert calls >= 4, f"{calls} calls from two nodes: a refused peer is never called again"
    rig.restart("node-3")
    for name in rig.names:
        wait_for(
            lambda name=name: {row["state"] for row in rig.status(name)["nodes"]} == {"live"},
            10,
            lambda name=name: str(rig.status(name)["nodes"]),
        )


# ---------------------------------------------------------------------- starts of a node


def serve(home: Path, base: int, *more: str, name: str = "node-1") -> Done:
    """Start a node that must refuse; it ends by itself."""
    words = [
        "--id", name, "--data-dir", str(home), "--http-addr", f"127.0.0.1:{base}",
        "--peer-addr", f"127.0.0.1:{base + 3000}", "--grpc-addr", f"127.0.0.1:{base + 1000}",
        "--kafka-addr", f"127.0.0.1:{base + 2000}", *more,
    ]  # fmt: skip
    return subprocess.run(
        [sys.executable, "-m", "raftline", "serve", *words],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=20,
    )  # fmt: skip


def digest(home: Path) -> dict[str, str]:
    """Return every file with its bytes' digest, but the lock."""
    return {
        str(file.relative_to(home)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(home.rglob("*"))
        if file.is_file() and file.name != "lock"
    }


def assert_refused(done: Done, code: int, words: str) -> None:
    said = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert done.returncode == code, done.stderr
    assert STACK_TRACE not in done.stderr
    assert said[0].startswith("error: "), done.stderr
    assert said[1].startswith("hint:  "), done.stderr
    assert re.search(words, " ".join(said)), said


@pytest.fixture(scope="module")
def used(module_path: Path) -> Path:
    """A directory that a single node has used."""
    directory = module_path / "used"
    made = Rig(directory, nodes=1)
    try:
        made.start_all()
        assert made.command("produce", "orders", "-m", "one").exit == 0
        made.stop("node-1")
    finally:
        made.close()
    return directory / "node-1"


@pytest.fixture
def copy(used: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(used, tmp_path / "copy"))


def test_a_second_bootstrap(copy: Path) -> None:
    before = digest(copy)
    done = serve(copy, free_port_base(1), "--bootstrap")
    assert_refused(done, 6, "cluster.*--bootstrap")
    assert digest(copy) == before


def test_the_directory_of_another_node(copy: Path) -> None:
    before = digest(copy)
    done = serve(copy, free_port_base(1), name="node-7")
    assert_refused(done, 6, "node-1.*node-7.*--id node-1")
    assert digest(copy) == before


@pytest.mark.parametrize("file", ["identity.json", "wal", "checkpoint", "segment"])
def test_a_newer_format(copy: Path, file: str) -> None:
    _age(copy, file)
    before = digest(copy)
    done = serve(copy, free_port_base(1))
    assert_refused(done, 6, "format 9.*newer build")
    after = digest(copy)
    if file == "segment":  # found only after the WAL was copied to fresh files, as at every start
        before, after = ({k: v for k, v in d.items() if "wal" not in k} for d in (before, after))
    assert after == before


def _age(home: Path, what: str) -> None:
    """Let a file look as if a later build had written it."""
    if what == "identity.json":
        file = home / "identity.json"
        identity = json.loads(file.read_bytes())
        file.write_text(json.dumps({**identity, "format": 9, "colour": "blue"}))
        return
    # Where the format is, how it is written, which bytes its checksum covers.
    pattern, place, covered = {
        "checkpoint": ("shards/1*/checkpoint", "<8xI", 28),
        "segment": ("shards/1*/log/*.sum", "<8xH", 252),
        "wal": ("wal/*", "<8xH", 508),
    }[what]
    for file in home.glob(pattern):
        data = bytearray(file.read_bytes())
        (version,) = struct.unpack_from(place, data)
        assert version == 1
        struct.pack_into(place[0] + place[-1], data, 8, 9)
        struct.pack_into("<I", data, covered, crc32c(bytes(data[:covered])))
        file.write_bytes(data)


@pytest.mark.parametrize("way", ["--join", "--peers"])
def test_the_directory_of_another_cluster(rig: Rig, copy: Path, unchanged: None, way: str) -> None:
    before = digest(copy)
    base = free_port_base(1)
    if way == "--join":
        value = rig.node("node-1").peer
    else:
        others = [f"{name}={rig.node(name).peer}" for name in rig.names[1:]]
        value = ",".join([f"node-1=127.0.0.1:{base + 3000}", *others])
    done = serve(copy, base, way, value)
    assert_refused(done, 6, "cluster.*--data-dir")
    after = digest(copy)
    assert after["identity.json"] == before["identity.json"]


def test_a_directory_in_use(rig: Rig, unchanged: None) -> None:
    done = serve(rig.home("node-1"), free_port_base(1))
    assert_refused(done, 6, "node-1.*--data-dir")


def test_a_directory_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    done = serve(tmp_path / "file" / "data", free_port_base(1))
    assert_refused(done, 6, "--data-dir.*file.*another --data-dir")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    homes: list[Path] = []

    def mount(options: str) -> Path:
        home = tmp_path / f"mount-{len(homes)}"
        home.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "raftline-test", str(home)],
            capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode:
            pytest.skip("this user may not mount a small file system to fill it")
        homes.append(home)
        return home

    yield mount
    for home in homes:
        subprocess.run(["umount", "-l", str(home)], check=False)


def test_a_read_only_directory(mounted: Callable[[str], Path]) -> None:
    home = mounted("ro,size=1m")
    done = serve(home / "data", free_port_base(1))
    assert_refused(done, 6, "--data-dir.*[Rr]ead-only.*another --data-dir")


def test_a_directory_without_room(mounted: Callable[[str], Path]) -> None:
    home = mounted("size=1m")
    (home / "ballast").write_bytes(bytes(1 << 20 - 1))
    try:
        with (home / "ballast").open("ab") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
    except OSError:
        pass
    done = serve(home / "data", free_port_base(1))
    assert_refused(done, 6, "--data-dir.*space.*free some space")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_of_somebody_else(tmp_path: Path) -> None:
    home = tmp_path / "closed"
    home.mkdir(mode=0o500)
    done = serve(home / "data", free_port_base(1))
    assert_refused(done, 6, "--data-dir.*right to write")


@pytest.mark.parametrize("which", ["http", "peer"])
def test_a_busy_port(tmp_path: Path, which: str) -> None:
    base = free_port_base(1)
    port = base if which == "http" else base + 3000
    with socket.create_server(("127.0.0.1", port)):
        done = serve(tmp_path / "data", base)
    assert_refused(done, 6, f"--{which}-addr 127.0.0.1:{port}.*taken.*--port-base")
    assert not (tmp_path / "data").exists() or not digest(tmp_path / "data")


def test_a_busy_port_of_a_local_cluster(tmp_path: Path) -> None:
    base = free_port_base(3)
    with socket.create_server(("127.0.0.1", base + 1)):
        said = command(
            "up", "--nodes", "3", "--data-dir", str(tmp_path / "c"), "--port-base", str(base),
            "--detach",
        )  # fmt: skip
    assert said.exit == 6, said
    assert re.search(rf"{base + 1}.*node-2.*--port-base", said.err.replace("\n", " ")), said
    assert not (tmp_path / "c" / "node-1").exists()


# flags of serve, words
FLAGS: list[tuple[tuple[str, ...], str]] = [
    (("--colour", "red"), "--colour.*--help"),
    (("--id", "a b"), "node.name.*a b|a b.*node.name"),
    (("--peer-addr", "nowhere"), "nowhere"),
    (("--set", "raft.tick_ms=0"), "raft.tick_ms"),
    (("--set", "raft.tickms=5"), "raft.tickms"),
    (("--config", "/no/such/file"), "/no/such/file"),
    (("--peers", "node-1"), "peers"),
    (("--http-addr", "0.0.0.0:18080"), "insecure"),
]


@pytest.mark.parametrize(("flags", "words"), FLAGS, ids=[" ".join(row[0]) for row in FLAGS])
def test_a_bad_flag(tmp_path: Path, flags: tuple[str, ...], words: str) -> None:
    said = command("serve", "--data-dir", str(tmp_path / "data"), *flags)
    assert said.exit == 2, said
    assert said.err.startswith("error: "), said
    assert re.search(words, said.err.replace("\n", " ")), said
    assert STACK_TRACE not in said.err
    assert not (tmp_path / "data").exists()
