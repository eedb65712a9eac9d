"""Addresses of nodes as people write them."""

from collections.abc import Sequence

from raftline.client.caller import parse_servers


def server_list(servers: str | Sequence[str]) -> list[str]:
    """Return ``host:port`` of each server. Raises InvalidArgument."""
    text = servers if isinstance(servers, str) else ",".join(servers)
    found = parse_servers(text)
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in found]
