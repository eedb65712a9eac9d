"""Addresses as people write them."""

import pytest
from tests.unit.transport.free_port import bind_free

from raftline.transport.addresses import bind, is_loopback, parse


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:7000", "127.0.0.1", 7000),
        (":8080", "", 8080),
        ("[::1]:1", "::1", 1),
        ("node-2.example:65535", "node-2.example", 65535),
    ],
)
def test_parse(text: str, host: str, port: int) -> None:
    assert parse(text) == (host, port)


@pytest.mark.parametrize("text", ["", "host", "host:", "host:x", "host:65536", "::1:80", "h:-1"])
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="host"):
        parse(text)


def test_loopback() -> None:
    for inside in ("127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1"):
        assert is_loopback(inside)
    for outside in (":1", "0.0.0.0:1", "10.0.0.1:1", "[::]:1", "example.com:1"):
        assert not is_loopback(outside)


def test_a_busy_port_raises() -> None:
    first = bind_free()
    try:
        with pytest.raises(OSError, match="in use"):
            bind(f"127.0.0.1:{first.getsockname()[1]}")
    finally:
        first.close()
