"""The client of the fenced calls (stage, publish, lease, ack), as the options say."""

from raftline.client.fenced import Fenced
from raftline.spark.options import TIMEOUT_MS


def open_fenced(servers: str, timeout_ms: int = TIMEOUT_MS) -> Fenced:
    """Return the calls to a cluster, to be used with ``with`` and by one thread."""
    return Fenced(servers, timeout_ms / 1000)
