"""Addresses of nodes as people write them, and what carries calls there."""

from collections.abc import Sequence

from raftline.client.caller import parse_servers
from raftline.model.errors import InvalidArgument

GRPC = "grpc://"


def server_list(servers: str | Sequence[str]) -> tuple[list[str], bool]:
    """Return ``host:port`` of each server, and whether they are asked over gRPC.

    Raises:
        InvalidArgument: one is no address, or they are of both kinds.
    """
    given = servers.split(",") if isinstance(servers, str) else list(servers)
    texts = [text.strip() for text in given if text.strip()]
    is_grpc = [text.startswith(GRPC) for text in texts]
    if any(is_grpc) and not all(is_grpc):
        raise InvalidArgument(
            f"{', '.join(texts)} are of two kinds", "name all nodes with grpc://, or with http://"
        )
    found = parse_servers(",".join(text.removeprefix(GRPC) for text in texts))
    hosts = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in found]
    return hosts, any(is_grpc)
