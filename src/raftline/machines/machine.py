"""What every replicated state machine is: committed entries in, events out.

Rules
    M1  ``apply`` is total, deterministic, synchronous and bounded: every entry has an answer in
        every state, a refusal is an event, and time and ids come stamped in the entry.
    M2  ``snapshot`` is canonical: equal states give equal bytes, so replicas compare digests.
    M3  ``restore(snapshot())`` gives a state that answers everything alike.
    M4  Empty entry data is a new leader's no-op: no events, no change.
    M5  The one way out of ``apply`` by exception is ``NewerFormat``: the cluster has moved to a
        feature level that this build does not know, so it cannot say what entries mean. The node
        stops the replica. A leader proposes a level only when every node's build knows it.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec
from crc32c import crc32c

from raftline.model.errors import ErrorWire, Extra, NewerFormat, RaftlineError

Event_co = TypeVar("Event_co", covariant=True)

FEATURE_LEVEL = 1  # the highest this build knows


class Machine(Protocol[Event_co]):
    """A state machine as the node drives it."""

    def apply(self, index: int, term: int, data: bytes) -> Sequence[Event_co]:
        """Apply the committed entry at ``index`` and say what happened. M1, M4."""
        ...

    def snapshot(self) -> bytes:
        """Return the whole state. M2."""
        ...

    def restore(self, snapshot: bytes) -> None:
        """Replace the state by that of ``snapshot``. M3."""
        ...

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken. For tests and simulation."""
        ...

    def digest(self) -> str:
        """Return a short text that is equal for equal states."""
        ...


class Refused(msgspec.Struct, frozen=True):
    """Nothing changed, and why. ``error()`` is what the caller hears."""

    code: str
    message: str
    hint: str = ""
    extras: dict[str, Extra] = {}

    def error(self) -> RaftlineError:
        """Return the refusal as the error class of its code."""
        wire: ErrorWire = (self.code, self.message, self.hint, self.extras)
        return RaftlineError.from_wire(wire)


def refused(error: RaftlineError) -> Refused:
    """Return ``error`` as an event."""
    return Refused(*error.to_wire())


def require_level(level: int) -> None:
    """Stop a build that does not know ``level``. M5."""
    if level > FEATURE_LEVEL:
        raise NewerFormat("the feature level of this log", level, FEATURE_LEVEL)


def digest_of(snapshot: bytes) -> str:
    """Return the digest of a canonical snapshot: its length and checksum."""
    return f"{len(snapshot):x}-{crc32c(snapshot):08x}"
