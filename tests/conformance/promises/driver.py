"""What a promise needs of a way to talk to Raftline: the words all drivers share."""

from typing import Any, Protocol

import msgspec

LEASE_LOST = "lease_lost"


class Refused(Exception):
    """The cluster said no, and why."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message that was sent is."""

    id: str
    partition: int
    offset: int  # -1: it waits
    is_duplicate: bool


class Leased(msgspec.Struct, frozen=True, kw_only=True):
    """A message in the hands of a worker."""

    id: str
    partition: int
    offset: int
    key: str | None
    value: str
    headers: dict[str, str]  # those of the sender
    priority: int
    attempt: int
    handle: Any  # what the driver settles it by


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter."""

    id: str
    state: str
    origin: str
    group: str
    generation: int
    reason: str
    attempts: int
    member: str
    error: str
    key: str | None
    value: str


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """What a reset did to one partition."""

    partition: int
    start: int  # where the group was; -1: it was not there
    to: int


class Driver(Protocol):
    """One way to talk to a cluster. Whatever is refused raises Refused; times are milliseconds."""

    name: str

    def create(self, topic: str, *, partitions: int, **settings: Any) -> None:
        """Create a topic."""
        ...

    def send(
        self,
        topic: str,
        value: str,
        *,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        priority: int = 0,
        delay_ms: int | None = None,
        dedup_key: str | None = None,
    ) -> Placed:
        """Send a message; return when it is stored."""
        ...

    def receive(
        self,
        topic: str,
        group: str,
        *,
        count: int = 10,
        wait_ms: int = 0,
        lease_ms: int = 10_000,
        ordered: bool = False,
        member: str = "",
    ) -> list[Leased]:
        """Lease messages."""
        ...

    def settle(
        self,
        message: Leased,
        verb: str,
        *,
        delay_ms: int | None = None,
        reason: str = "",
        lease_ms: int = 0,
    ) -> None:
        """Ack, nack, reject, release or extend; return when it is stored."""
        ...

    def read(self, topic: str, partition: int = 0) -> list[str]:
        """Return the values of a partition's log, in order."""
        ...

    def offset_at(self, topic: str, time_ms: int) -> int:
        """Return the first offset of partition 0 at or after a time."""
        ...

    def cancel(self, message: str) -> None:
        """Cancel a waiting message."""
        ...

    def letters(self, topic: str) -> list[Letter]:
        """Return the dead letters of a topic."""
        ...

    def redrive(self, topic: str) -> int:
        """Redrive all letters; return how many were."""
        ...

    def reset(
        self,
        topic: str,
        group: str,
        *,
        offset: int | None = None,
        time_ms: int | None = None,
        create: bool = False,
        dry_run: bool = False,
    ) -> list[Moved]:
        """Let a work group go on elsewhere; with neither offset nor time at the beginning."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


def own_headers(pairs: Any) -> dict[str, str]:
    """Return the headers that the sender gave."""
    return {name: text for name, text in pairs if not name.startswith("raftline-")}
