"""Sockets to listen on, made before anything else is started: a busy port is found at once."""

import socket

from raftline.config.addresses import parse_address

BACKLOG = 1024


def hold(address: str) -> socket.socket:
    """Return a socket that keeps a port from others without listening. Raises OSError.

    Who connects meanwhile is refused, and goes elsewhere: nobody waits for a node that starts. Two
    sockets that share their addresses may hold one port until one of them listens, so ours shares
    it only to be bound where connections of an earlier process are left, and for ``listen``.
    """
    host, port = parse_address(address)
    infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, where = infos[0]
    holder = socket.socket(family, kind, protocol)
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.setblocking(False)
        holder.bind(where)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except OSError:
        holder.close()
        raise
    return holder


def listen(holder: socket.socket) -> None:
    """Take connections at a port that is held. Raises OSError."""
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.listen(BACKLOG)


def bind(address: str) -> socket.socket:
    """Return a listening socket. Raises OSError (address in use, not permitted, no such host)."""
    listener = hold(address)
    try:
        listen(listener)
    except OSError:
        listener.close()
        raise
    return listener
