"""The client of the fenced calls (stage, publish, lease, ack), as the options say."""

import importlib
from typing import Any

from raftline.spark.options import TIMEOUT_MS


def open_fenced(servers: str, timeout_ms: int = TIMEOUT_MS) -> Any:
    """Return a ``raftline.client.fenced.Fenced``, to be used with ``with`` and by one thread."""
    return importlib.import_module("raftline.client.fenced").Fenced(servers, timeout_ms / 1000)
