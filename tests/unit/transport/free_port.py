"""Listening sockets for tests, below the range that outgoing connections take theirs from."""

import itertools
import os
import socket

_PORTS = itertools.cycle(range(18_000, 32_000))
_SKIPPED = list(itertools.islice(_PORTS, os.getpid() * 37 % 14_000))


def bind_free() -> socket.socket:
    """Return a listening socket on a loopback port that nobody uses."""
    for port in _PORTS:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            listener.close()
            continue
        listener.listen(128)
        listener.setblocking(False)
        return listener
    raise AssertionError("no free port")
