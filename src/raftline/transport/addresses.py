"""Where to listen and whom to call: ``host:port`` and ``[v6]:port``."""

import ipaddress
import socket


def parse(address: str) -> tuple[str, int]:
    """Return host and port. ``:8080`` means every interface, as people write it.

    Raises ValueError with a sentence that names the address.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not an address: write host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{address!r}: write an IPv6 address in brackets, [host]:port")
    return host, int(port)


def is_loopback(address: str) -> bool:
    """Say whether only this machine can reach ``address``. A name other than localhost cannot."""
    host, _ = parse(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind(address: str) -> socket.socket:
    """Return a listening socket. Raises OSError (address in use, not permitted, no such host)."""
    host, port = parse(address)
    infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, where = infos[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)  # noqa: FBT003
        listener.bind(where)
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener
