"""Which API is served by what, in which versions.

A module that serves APIs has a function ``add_to(table)`` with one line for each::

    table.add(schema.LIST_OFFSETS, 1, 10, handler.list_offsets)

``call(request, version, context, reply)`` gets the decoded request and answers once, now or later,
with ``reply(response)``: fields that are not given have their defaults. What it raises becomes an
error of the connection: the request cannot be answered, so the client is hung up on.
"""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from raftline.gateways.kafka.schema import Api

Reply = Callable[[dict[str, Any]], None]


class Context(Protocol):
    """Who asks."""

    @property
    def client_id(self) -> str:
        """Return what the client calls itself; empty if it does not."""
        ...

    @property
    def client_host(self) -> str:
        """Return where the client is."""
        ...

    def is_wanted(self) -> bool:
        """Say whether somebody still waits for the reply, as far as one can tell."""
        ...

    def guarded(self, step: Callable[..., None]) -> Callable[..., None]:
        """Return ``step`` as the ``done`` of a call: what it raises never reaches the node."""
        ...


Call = Callable[[dict[str, Any], int, Context, Reply], None]


class Handler(msgspec.Struct, frozen=True):
    """What serves one API."""

    api: Api
    min_version: int
    max_version: int
    call: Call | None  # None: the connection has a way of its own (Produce, Fetch)
    told_from: int  # the first version that ApiVersions tells


class Table:
    """The APIs of a node, by key."""

    __slots__ = ("handlers",)

    def __init__(self) -> None:
        self.handlers: dict[int, Handler] = {}

    def add(
        self,
        api: Api,
        min_version: int,
        max_version: int,
        call: Call | None,
        told_from: int | None = None,
    ) -> None:
        """Serve an API in these versions; tell of it from ``told_from`` on, if that is another."""
        assert api.key not in self.handlers, api.name
        told_from = min_version if told_from is None else told_from
        self.handlers[api.key] = Handler(api, min_version, max_version, call, told_from)

    def versions(self) -> list[dict[str, Any]]:
        """Return what ApiVersions says."""
        return [
            {"api_key": key, "min_version": row.told_from, "max_version": row.max_version}
            for key, row in sorted(self.handlers.items())
        ]
