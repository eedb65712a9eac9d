"""Random requests, heads and bodies: every answer is a sound one, and the node lives.

Sound requests to every route are taken apart and put together wrongly: bytes turned over, cut and
doubled, fields repeated, lengths that lie, chunks that do not end, JSON of the wrong shape. A seed
tells what was sent; a failure prints it.
"""

import json
import random
import re
import socket
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from raftline.chaos.rig import STACK_TRACE, Rig

ANSWER = re.compile(rb"HTTP/1\.1 (\d{3}) ")
QUIET_S = 0.15  # a server that says nothing more for so long has said it all
WORDS = ["orders", "tasks", "0", "-1", "1e9", "null", "..", "%2e%2e", "x" * 300, "é", "a b", "{id}"]
VALUES: list[Any] = [
    None, True, 0, -1, 2**31, 2**62, 2**63, 10**30, 1.5, 1e308, "", "x", "30s", "-5m", "9" * 40,
    "\x00", "\ud7ff", "é" * 50, [], {}, [[]], {"": {}}, ["a"] * 50, {"a": 1}, "orders",
    "orders.0.0", "orders-0", "2026-01-01T00:00:00Z", "AAAA", "high",
]  # fmt: skip
FIELDS = [
    "Content-Type: application/json", "Content-Type: application/vnd.raftline.batch",
    "Accept: application/vnd.raftline.batch", "Transfer-Encoding: chunked", "Expect: 100-continue",
    "Connection: close", "Connection: keep-alive", "Raftline-Timeout-Ms: 50", "Content-Length: 5",
    "Raftline-Timeout-Ms: x", "Host: y", "Origin: http://elsewhere", "Raftline-Priority: high",
    "Raftline-Dedup-Key: k", "Upgrade: websocket", "X: " + "y" * 2000, "X:", ": x", "X : y",
    "Cookie: a=b", "Range: bytes=0-1", "Accept-Encoding: gzip",
]  # fmt: skip
ENDLESS = ("wait", "wait_ms", "timeout", "timeout_ms")  # parameters that make a request take long


@pytest.fixture(scope="module")
def rig(module_path: Path) -> Iterator[Rig]:
    made = Rig(module_path / "fuzz", nodes=1, settings=("limits.timeout_ms=2000",))
    try:
        made.start_all()
        assert made.command("topic", "create", "orders", "--partitions", "2").exit == 0
        yield made
    finally:
        made.close()


class Fuzz:
    """Makes requests, sound at first."""

    def __init__(self, document: dict[str, Any], seed: int) -> None:
        self.rng = random.Random(seed)
        self.routes = [
            (method.upper(), path, operation)
            for path, methods in sorted(document["paths"].items())
            for method, operation in sorted(methods.items())
            if "/cluster/" not in path  # what changes the cluster is no fuzz's business
        ]
        self.schemas = document["components"]["schemas"]

    def request(self) -> bytes:
        rng = self.rng
        method, path, operation = rng.choice(self.routes)
        if rng.random() < 0.1:
            method = rng.choice(["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS", "X"])
        path = re.sub(r"\{\w+\}", lambda _: rng.choice(WORDS).replace(" ", "%20"), path)
        query = "&".join(self._parameters(operation))
        body = self._body(operation) if method != "GET" or rng.random() < 0.1 else b""
        fields = rng.sample(FIELDS, rng.randrange(4))
        head = f"{method} {path}{'?' + query if query else ''} HTTP/1.1\r\nHost: x\r\n"
        head += "".join(f"{field}\r\n" for field in fields)
        if not any(field.startswith(("Content-Length", "Transfer")) for field in fields):
            head += f"Content-Length: {len(body)}\r\n"
        raw = head.encode("utf-8", "surrogatepass") + b"\r\n" + body
        return self._spoil(raw) if rng.random() < 0.5 else raw

    def _parameters(self, operation: dict[str, Any]) -> list[str]:
        names = [p["name"] for p in operation["parameters"] if p["in"] == "query"]
        names = [name for name in names if name not in ENDLESS]
        chosen = self.rng.sample(names, self.rng.randrange(len(names) + 1)) if names else []
        if self.rng.random() < 0.05:
            chosen.append("".join(self.rng.choices(string.printable[:62], k=5)))
        return [f"{name}={self.rng.choice(WORDS).replace(' ', '+')}" for name in chosen]

    def _body(self, operation: dict[str, Any]) -> bytes:
        rng = self.rng
        if rng.random() < 0.1:
            return rng.randbytes(rng.randrange(200))
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
        properties = self.schemas.get(name, {}).get("properties", {})
        made = {
            key: rng.choice(VALUES) if rng.random() < 0.7 else self._nested()
            for key in properties
            if key not in ENDLESS and rng.random() < 0.7
        }
        return json.dumps(made).encode()

    def _nested(self, depth: int = 3) -> Any:
        rng = self.rng
        if not depth or rng.random() < 0.4:
            return rng.choice(VALUES)
        if rng.random() < 0.5:
            return [self._nested(depth - 1) for _ in range(rng.randrange(4))]
        return {rng.choice(WORDS): self._nested(depth - 1) for _ in range(rng.randrange(4))}

    def _spoil(self, raw: bytes) -> bytes:
        rng = self.rng
        data = bytearray(raw)
        for _ in range(rng.randrange(1, 4)):
            if not data:
                break
            at, kind = rng.randrange(len(data)), rng.randrange(6)
            if kind == 0:
                data[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                del data[at : at + rng.randrange(1, 20)]
            elif kind == 2:
                data[at:at] = rng.randbytes(rng.randrange(1, 20))
            elif kind == 3:
                data[at:at] = data[at : at + rng.randrange(1, 60)]
            elif kind == 4:
                data[at:at] = rng.choice([b"\r\n", b"\n", b"\r\n\r\n", b"\x00", b"0\r\n\r\n", b"%"])
            else:
                del data[at:]
        return bytes(data)


def exchange(address: tuple[str, int], raw: bytes) -> bytes:
    """Send bytes; return everything that comes back until there is silence or the end."""
    found = b""
    with socket.create_connection(address, timeout=5) as link:
        link.sendall(raw)
        link.settimeout(QUIET_S)
        try:
            while chunk := link.recv(1 << 16):
                found += chunk
                if len(chunk) < 1 << 16 and b"\r\n\r\n" in found and is_whole(found):
                    break
        except OSError:
            pass
    return found


def is_whole(reply: bytes) -> bool:
    """Say whether a reply is all there (of the first of several)."""
    head, _, body = reply.partition(b"\r\n\r\n")
    length = re.search(rb"Content-Length: (\d+)", head)
    return length is None or len(body) >= int(length[1])


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [600, pytest.param(12_000, marks=pytest.mark.full)])
def test_nothing_kills_a_node(rig: Rig, count: int) -> None:
    node = rig.node("node-1")
    host, port = node.http.removeprefix("http://").split(":")
    seed = random.randrange(1 << 32)
    fuzz = Fuzz(requests.get(f"{node.http}/openapi.json", timeout=10).json(), seed)
    statuses: dict[int, int] = {}
    for number in range(count):
        raw = fuzz.request()
        try:
            reply = exchange((host, int(port)), raw)
        except OSError as error:
            raise AssertionError(f"seed {seed}, request {number}: {raw!r}: {error}") from error
        for status in map(int, ANSWER.findall(reply)):
            statuses[status] = statuses.get(status, 0) + 1
            # 503 and 504: it was asked for a very short time
            assert status < 500 or status in (501, 503, 504, 505), (seed, number, raw, reply)
        assert not reply or ANSWER.match(reply), (seed, number, raw, reply)
        assert STACK_TRACE.encode() not in reply, (seed, number, raw)
        assert rig.running() == ["node-1"], (seed, number, raw, rig.log_text("node-1")[-3000:])
    assert requests.get(f"{node.http}/health", timeout=10).status_code == 200
    assert STACK_TRACE not in rig.log_text("node-1"), seed
    print(f"seed {seed}: {count} requests, answers {dict(sorted(statuses.items()))}")
    assert statuses.get(400, 0) > count // 20
