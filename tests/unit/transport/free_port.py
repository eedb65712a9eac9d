"""Listening sockets for tests, below the range that outgoing connections take theirs from."""

import os
import socket

_next = 18_000 + os.getpid() * 37 % 12_000


def bind_free() -> socket.socket:
    """Return a listening socket on a loopback port that nobody uses."""
    global _next
    while True:
        _next = 18_000 + (_next - 18_000 + 1) % 14_000
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", _next))
        except OSError:
            listener.close()
            continue
        listener.listen(128)
        listener.setblocking(False)
        return listener
