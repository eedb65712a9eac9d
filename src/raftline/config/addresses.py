"""Addresses: ``host:port``, ``[::1]:port``, ``:port`` (every interface)."""

PORT_MAX = 65_535


def parse_address(text: str) -> tuple[str, int]:
    """Split ``host:port``. An empty host means every interface.

    Raises:
        ValueError: it is not an address.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > PORT_MAX:
        raise ValueError(f"{text!r} is no address; write host:port, for example 127.0.0.1:8080")
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], int(port)
    if ":" in host:
        raise ValueError(f"{text!r}: put an IPv6 host in brackets, for example [::1]:8080")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach ``host``. A name that looks like 127.x is none."""
    if host in ("localhost", "::1"):
        return True
    parts = host.split(".")
    numbers = [part for part in parts if part.isascii() and part.isdigit() and int(part) < 256]
    return len(parts) == len(numbers) == 4 and parts[0] == "127"
