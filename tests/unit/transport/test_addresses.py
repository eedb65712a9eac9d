"""Listening sockets."""

import pytest

from raftline.transport.addresses import bind
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


@pytest.mark.parametrize("text", ["host", "host:x", "::1:80"])
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="host"):
        bind(text)
