"""A message in the hands of a worker: what it holds, and what every kind of client shares."""

import json
from datetime import timedelta
from typing import Any

from raftline.client.core.batches import known_id
from raftline.client.core.receives import Leased, Receiver
from raftline.client.core.settles import ACK, EXTEND, NACK, REJECT, RELEASE, Settle, Told
from raftline.model.errors import InvalidArgument
from raftline.model.limits import LEASE_MS_MAX, LEASE_MS_MIN, NACK_DELAY_MS_MAX, OFFSET_MAX
from raftline.model.message import Header
from raftline.model.settings import parse_duration_ms

PRIORITY_HEADER = "raftline-priority"
ID_HEADER = "raftline-id"
BACKOFF = -1

Duration = str | int | float | timedelta
"""``"30s"``, ``"5m"``, a number of seconds, or a timedelta."""


class LeasedMessage:
    """A message leased to this worker. ``Message`` and ``AsyncMessage`` add how to settle it."""

    __slots__ = ("_is_settled", "_lease", "_receiver", "_stored")

    def __init__(self, receiver: Receiver, leased: Leased) -> None:
        self._receiver = receiver
        self._lease, self._stored = leased
        self._is_settled = False

    @property
    def topic(self) -> str:
        """Its topic."""
        return self._lease.topic

    @property
    def group(self) -> str:
        """The work group it was leased to."""
        return self._lease.group

    @property
    def partition(self) -> int:
        """Its partition."""
        return self._lease.partition

    @property
    def offset(self) -> int:
        """Its place in the partition."""
        return self._stored.offset

    @property
    def id(self) -> str:
        """The id its sender knows."""
        lease, waited = self._lease, None
        for name, content in self._stored.headers:
            if name == ID_HEADER:
                waited = content
        return known_id(lease.topic, lease.partition, self._stored.offset, waited)

    @property
    def key(self) -> bytes | None:
        """Its key."""
        return self._stored.key

    @property
    def value(self) -> bytes:
        """What was sent; empty where it has no value."""
        return self._stored.value or b""

    @property
    def text(self) -> str:
        """The value as UTF-8."""
        return self.value.decode()

    def json(self) -> Any:
        """Return the value as JSON says it."""
        return json.loads(self.value)

    @property
    def headers(self) -> dict[str, bytes]:
        """Its headers; the last value where one comes more than once."""
        return {name: content or b"" for name, content in self._stored.headers}

    @property
    def header_list(self) -> tuple[Header, ...]:
        """All its headers, in order."""
        return self._stored.headers

    @property
    def timestamp_ms(self) -> int:
        """When it was sent, in Unix milliseconds."""
        return self._stored.timestamp_ms

    @property
    def priority(self) -> int:
        """Its priority; 0 where somebody else wrote what is none."""
        for name, content in self._stored.headers:
            if name == PRIORITY_HEADER and content is not None:
                digits = content.removeprefix(b"-")
                return int(content) if digits.isdigit() and len(digits) < 4 else 0
        return 0

    @property
    def attempt(self) -> int:
        """How often it was delivered to this group, this time included."""
        return self._lease.attempt

    @property
    def is_settled(self) -> bool:
        """Say whether it was acked, nacked, rejected or released here."""
        return self._is_settled

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.topic}/{self.partition}@{self.offset} "
            f"attempt {self.attempt}>"
        )

    # What is said of it, as the core takes it. A final word is said once.

    def acked(self, told: Told | None = None) -> Settle:
        """Return the ack as the core takes it; ``told`` hears what became of it."""
        self._settle_once()
        return (self._lease, self._stored.offset, ACK, 0, "", told)

    def _nacked(self, reason: str, delay: "Duration | None") -> Settle:
        delay_ms = BACKOFF if delay is None else nack_delay_ms(delay)  # refused: not settled
        self._settle_once()
        return (self._lease, self._stored.offset, NACK, delay_ms, plain_text(reason), None)

    def _rejected(self, reason: str) -> Settle:
        self._settle_once()
        return (self._lease, self._stored.offset, REJECT, 0, plain_text(reason), None)

    def _released(self) -> Settle:
        self._settle_once()
        return (self._lease, self._stored.offset, RELEASE, 0, "", None)

    def _extended(self, lease: "Duration | None") -> Settle:
        lease_ms = self._lease.lease_ms
        if lease is not None:
            lease_ms = _within("lease", lease, LEASE_MS_MIN, LEASE_MS_MAX)
        return (self._lease, self._stored.offset, EXTEND, lease_ms, "", None)

    def _settle_once(self) -> None:
        if self._is_settled:
            raise InvalidArgument(
                f"{self.topic}/{self.partition}@{self.offset} is settled already",
                "ack, nack or reject a message once",
            )
        self._is_settled = True
        if self._receiver.held:
            self._receiver.let_go(self._stored)


def failure_text(error: BaseException) -> str:
    """Return an exception as the reason of a nack, also one that fails to say what it is."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"[:500]
    except Exception:  # noqa: BLE001 somebody else's __str__: the message is to be settled
        return name[:500]


def plain_text(reason: object) -> str:
    """Return a reason as it can travel: an error that names a file may hold halves of characters.

    Anything is taken: a reason that cannot be sent must not keep a message from being settled.
    """
    return str(reason).encode("utf-8", "replace").decode()


def nack_delay_ms(delay: Duration) -> int:
    """Return the delay of a nack. Raises InvalidArgument: a node takes it not, and nobody hears."""
    return _within("delay", delay, 0, NACK_DELAY_MS_MAX)


def _within(what: str, value: Duration, least_ms: int, most_ms: int) -> int:
    found = duration_ms(value)
    if not least_ms <= found <= most_ms:
        raise InvalidArgument(
            f"a {what} of {found} ms is out of bounds", f"{least_ms} to {most_ms} ms"
        )
    return found


def duration_ms(value: Duration) -> int:
    """Return milliseconds of ``"30s"`` or of a number of seconds. Raises InvalidArgument.

    A text without a unit is neither: ``"30"`` would be a thousandth of ``30``.
    """
    try:
        if isinstance(value, str):
            found = parse_duration_ms(value)
            found = None if found and value.strip().isdecimal() else found
        elif isinstance(value, timedelta):
            found = round(value.total_seconds() * 1000)
        else:
            found = round(value * 1000)
    except (TypeError, ValueError, OverflowError):  # not a number; or none that has an end
        found = None
    if found is None or abs(found) > OFFSET_MAX:  # more than a request can say
        raise InvalidArgument(
            f"{value!r} is not a duration"[:100], "write 30s, or a number of seconds"
        )
    return found
