"""Commands of work groups in the log of a partition, and their bytes.

All commands that a turn collected for a partition share one entry::

    0x03  msgpack [at_ms, [command, ...]]      each command [tag, field, ...]

An entry without commands is a tick: it lets time pass, as every entry does before its commands.

Words
    *spans* are flat runs of four: start, end, attempt, generation. *ranges* are flat pairs.
    ``attempt`` counts deliveries from 1. ``generation`` grows when a message is revived or its
    group reset, so that a settle of an earlier life is told apart.
    A lease is named by (term, sequence): the term of the entry that holds its Grant, and a number
    the leader of that term gives once.

The layout and the tags are permanent: golden bytes in tests/unit/machines/golden.
"""

import msgspec

from raftline.machines.partition.commands import Malformed
from raftline.model.limits import ENTRY_BYTES_MAX

DELIVER_TAG = 0x03
_PREFIX = bytes([DELIVER_TAG])

ACK, NACK, REJECT, EXTEND, RELEASE = 0, 1, 2, 3, 4  # what a settle says
VERBS = ("ack", "nack", "reject", "extend", "release")
BACKOFF = -1  # nack after the policy's own backoff

START_FIRST, START_NEXT = -1, -2  # where a new group begins: all there is; what comes from now on


class Policy(msgspec.Struct, frozen=True, array_like=True):
    """How a group delivers. Adopted through the log, so that all replicas decide alike."""

    max_retries: int = 3
    backoff_ms: int = 1000
    backoff_ms_max: int = 60_000
    dead_letters: bool = True  # False: what is given up on is settled and gone
    ordered: bool = False
    jitter_percent: int = 0  # stamped by the leader into nacks; kept here for those who ask


class OpenGroup(msgspec.Struct, frozen=True, array_like=True, tag="o"):
    """Begin a group on this partition; one that exists adopts the policy and stays where it is."""

    group: str
    policy: Policy
    start: int  # an offset, START_FIRST or START_NEXT


class Grant(msgspec.Struct, frozen=True, array_like=True, tag="g"):
    """Lease spans to a member until ``deadline_ms``. What is not free is left out, not an error."""

    group: str
    sequence: int
    member: str
    deadline_ms: int
    spans: list[int]
    keys: list[int] | None = None  # ordered groups: one key hash per message, 0 for none


class Settle(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """Ack, nack, reject, extend or release ``ranges`` of one lease, all of the same attempt."""

    group: str
    verb: int
    term: int
    sequence: int
    attempt: int
    generation: int
    ranges: list[int]
    delay_ms: int = 0  # NACK: before it is ready again, or BACKOFF. EXTEND: lease from now on
    reason: str = ""
    member: str = ""  # who settles: named when a lost Grant is adopted


class Buried(msgspec.Struct, frozen=True, array_like=True, tag="b"):
    """The dead-letter topic has everything of the outbox below and with ``number``."""

    number: int


class Revive(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """Make the dead of ``ranges`` ready again: attempts anew, one generation later."""

    group: str
    ranges: list[int]


class Forget(msgspec.Struct, frozen=True, array_like=True, tag="f"):
    """Drop the dead of ``ranges`` for good: a parked key goes on."""

    group: str
    ranges: list[int]


class Reset(msgspec.Struct, frozen=True, array_like=True, tag="z"):
    """Deliver again from ``offset`` on; below it all is settled. Live leases end."""

    group: str
    offset: int


class DropGroup(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """Forget a group; what it owes the dead-letter topic is still sent."""

    group: str


class LeaseQuery(msgspec.Struct, frozen=True, array_like=True, tag="ql"):
    """Lease the messages of number n to a query, or those it has again (query_leases.py)."""

    group: str
    query: str
    n: int
    sequence: int
    deadline_ms: int
    spans: list[int]
    keys: list[int] | None = None


class AckQuery(msgspec.Struct, frozen=True, array_like=True, tag="qa"):
    """Ack what a query holds under number n, or a lower one."""

    group: str
    query: str
    n: int


class RejectQuery(msgspec.Struct, frozen=True, array_like=True, tag="qj"):
    """Give up on messages that a query holds under number n."""

    group: str
    query: str
    n: int
    ranges: list[int]
    reason: str = ""


class ReleaseQuery(msgspec.Struct, frozen=True, array_like=True, tag="qr"):
    """Give back what a query holds, and forget it."""

    group: str
    query: str


QueryCommand = LeaseQuery | AckQuery | RejectQuery | ReleaseQuery
Command = (
    Settle
    | Grant
    | OpenGroup
    | Buried
    | Revive
    | Forget
    | Reset
    | DropGroup
    | LeaseQuery
    | AckQuery
    | RejectQuery
    | ReleaseQuery
)


class Deliver(msgspec.Struct, frozen=True, array_like=True):
    """One entry: log time, then what was collected."""

    at_ms: int
    commands: list[Command]


def encode_deliver(at_ms: int, commands: list[Command]) -> bytes:
    """Return the entry data of ``commands``."""
    return _PREFIX + _encoder.encode(Deliver(at_ms, commands))


def decode_deliver(data: bytes) -> Deliver:
    """Read an entry of delivery commands.

    Raises:
        Malformed: it is none.
    """
    if data[:1] != _PREFIX or len(data) > ENTRY_BYTES_MAX:
        raise Malformed(f"no delivery starts with {data[:1].hex() or 'nothing'}")
    try:
        return _decoder.decode(memoryview(data)[1:])
    except msgspec.MsgspecError as error:
        raise Malformed(str(error)) from error


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Deliver] = msgspec.msgpack.Decoder(Deliver)
