"""One decoded message. For the edges only: below the gateways nobody opens a batch."""

import msgspec

FIRST_MS, LAST_MS = -(1 << 63), 1 << 63  # all times, also of messages without one (-1)

Header = tuple[str, bytes | None]
NewMessage = tuple[bytes | None, bytes | None, "tuple[Header, ...] | list[Header]", int]
"""A message to be sealed: (key, value, headers, timestamp_ms)."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message as a reader gets it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
