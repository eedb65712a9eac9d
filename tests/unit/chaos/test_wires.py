"""Wires between real sockets: whole, slow, cut, healed."""

import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from raftline.chaos.rig import free_port_base
from raftline.chaos.wires import Wires, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason="who dials is read from /proc (Linux)")


@pytest.fixture
def echo() -> Iterator[int]:
    """Run a server that sends back what it gets."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                line, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=pump, args=(line,), daemon=True).start()

    def pump(line: socket.socket) -> None:
        with line:
            while data := line.recv(4096):
                line.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()[1]
    server.close()


def test_a_wire_is_whole_slow_cut_and_whole_again(echo: int):
    wires = Wires(lambda: {os.getpid(): "a"})
    port = free_port_base(1)
    wires.open("b", port, echo)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
            assert asked(line) < 2.0
            wires.slow("a", "b", 0.3)
            assert asked(line) >= 0.3
            wires.heal()
            wires.cut("b", "a")  # the way back
            line.settimeout(0.4)
            line.sendall(b"x")
            with pytest.raises(TimeoutError):
                line.recv(1)
            line.settimeout(5)
            wires.heal()
            assert line.recv(1) == b"x"  # nothing was lost: it was late
    finally:
        wires.close()


def asked(line: socket.socket) -> float:
    began = time.monotonic()
    line.sendall(b"?")
    assert line.recv(1) == b"?"
    return time.monotonic() - began


def test_a_dead_node_refuses_through_its_wire():
    wires = Wires(dict)
    base = free_port_base(1)
    wires.open("b", base, base + 1000)
    try:
        with socket.create_connection(("127.0.0.1", base), timeout=5) as line:
            assert not read(line)
    finally:
        wires.close()


def read(line: socket.socket) -> bytes:
    try:
        return line.recv(1)
    except ConnectionResetError:
        return b""
