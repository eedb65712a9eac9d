"""Listening sockets."""

import socket

import pytest

from raftline.transport.addresses import bind, hold, listen
from tests.unit.transport.free_port import bind_free


def test_a_busy_port_raises_and_a_free_one_listens() -> None:
    first = bind_free()
    address = f"127.0.0.1:{first.getsockname()[1]}"
    with pytest.raises(OSError, match="in use"):
        bind(address)
    first.close()
    again = bind(address)
    assert again.getsockname()[1] == int(address.split(":")[1])
    again.close()


def test_a_port_that_is_held_is_nobody_elses_until_it_is_let_go() -> None:
    """Two nodes that begin at one port: the second is refused while it has changed nothing."""
    with bind_free() as free:
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"
    with hold(address) as held:
        with pytest.raises(OSError, match="in use"):
            hold(address)
        with socket.socket() as caller:
            assert caller.connect_ex(("127.0.0.1", port)), "nobody is there yet"
        listen(held)
        with socket.create_connection(("127.0.0.1", port)):
            held.setblocking(True)
            held.accept()[0].close()  # ours is closed first: it is remembered for a minute
    with hold(address) as again:
        listen(again)


@pytest.mark.parametrize("text", ["host", "host:x", "::1:80"])
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="host"):
        bind(text)
