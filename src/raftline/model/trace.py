"""What a trace says: one record per applied entry that changed the way of messages.

A record holds ranges, as everything below the gateways: a lease of a hundred messages is one
event. The timeline of one message is what its offset meets in the records (node/timelines.py).
"""

import msgspec


class Given(msgspec.Struct, frozen=True, array_like=True, tag="g"):
    """Leased to a member until ``deadline_ms``; spans: start, end, attempt, generation."""

    group: str
    member: str
    sequence: int
    deadline_ms: int
    spans: list[int]


class Ended(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """Settled, or its lease extended (``verb`` of the delivery commands)."""

    group: str
    verb: int
    sequence: int
    attempt: int
    ranges: list[int]
    reason: str = ""
    delay_ms: int = 0


class Died(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """Given up on: on its way to the dead-letter topic."""

    group: str
    start: int
    end: int
    reason: str
    attempts: int


class Revived(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """Redriven: to be delivered again, attempts anew."""

    group: str
    ranges: list[int]


class Forgotten(msgspec.Struct, frozen=True, array_like=True, tag="f"):
    """Purged from the dead."""

    group: str
    ranges: list[int]


class Replayed(msgspec.Struct, frozen=True, array_like=True, tag="z"):
    """The group was reset: everything from ``offset`` on is delivered again."""

    group: str
    offset: int


class Waits(msgspec.Struct, frozen=True, array_like=True, tag="w"):
    """Messages wait from now on: flat pairs of number and due time."""

    waiting: list[int]


class WaitsUntil(msgspec.Struct, frozen=True, array_like=True, tag="m"):
    """A waiting message was moved."""

    number: int
    due_ms: int


class CalledOff(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """Waiting messages were cancelled."""

    numbers: list[int]


class LetGo(msgspec.Struct, frozen=True, array_like=True, tag="l"):
    """Waiting messages are in the log now, from ``base_offset`` on."""

    base_offset: int
    numbers: list[int]


Event = (
    Given | Ended | Died | Revived | Forgotten | Replayed | Waits | WaitsUntil | CalledOff | LetGo
)


class TraceRecord(msgspec.Struct, frozen=True, array_like=True):
    """What one entry did."""

    at_ms: int  # log time
    term: int
    events: list[Event]


encode_record = msgspec.msgpack.Encoder().encode
decode_record = msgspec.msgpack.Decoder(TraceRecord).decode
