"""Raftline: a durable, replicated log that is also a work queue.

``connect`` and ``connect_async`` are the clients, ``App`` runs tasks. They load on first use: a
node needs none of them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raftline.client.async_line import AsyncLine, AsyncSending, connect_async
    from raftline.client.async_received import AsyncMessage
    from raftline.client.line import Line, Sending, connect
    from raftline.client.received import Message
    from raftline.model.errors import RaftlineError
    from raftline.tasks.app import App

__version__ = "0.1.0"

__all__ = [
    "App",
    "AsyncLine",
    "AsyncMessage",
    "AsyncSending",
    "Line",
    "Message",
    "RaftlineError",
    "Sending",
    "__version__",
    "connect",
    "connect_async",
]

_PLACES = {
    "App": "raftline.tasks.app",
    "AsyncLine": "raftline.client.async_line",
    "AsyncMessage": "raftline.client.async_received",
    "AsyncSending": "raftline.client.async_line",
    "connect_async": "raftline.client.async_line",
    "Line": "raftline.client.line",
    "Message": "raftline.client.received",
    "Sending": "raftline.client.line",
    "connect": "raftline.client.line",
    "RaftlineError": "raftline.model.errors",
}


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'raftline' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(place), name)
