"""Sockets to listen on, made before anything else is started: a busy port is found at once."""

import socket

from raftline.config.addresses import parse_address


def bind(address: str) -> socket.socket:
    """Return a listening socket. Raises OSError (address in use, not permitted, no such host)."""
    host, port = parse_address(address)
    infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, where = infos[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind(where)
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener
