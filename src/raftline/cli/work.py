"""Receiving as a worker of a group: lease, print, ack; release what was not printed."""

import contextlib
import os
import signal
import socket
import sys
from types import FrameType
from typing import Any
from urllib.parse import quote

import msgspec

from raftline.cli import exits
from raftline.cli.session import Session
from raftline.client import clock
from raftline.client.messages import from_json
from raftline.model.errors import LeaseLost, OverLimit, RaftlineError, TimedOut, Unavailable
from raftline.model.intervals import IntervalSet

RECEIVE_MAX = 100  # messages leased at a time
LAST_LOOK_MS = 250  # wait of a receive before nothing counts as left
FOLLOW_WAIT_MS = 5_000
PAUSE_MS = 500
PASSING = (Unavailable, TimedOut, OverLimit)

Row = dict[str, Any]


class Window(msgspec.Struct, frozen=True):
    """A half-open window of time; the timestamps are the senders' and need not be in order."""

    from_ms: int | None = None
    to_ms: int | None = None

    def holds(self, timestamp_ms: int) -> bool:
        """Say whether a message of this time is meant."""
        if self.from_ms is not None and timestamp_ms < self.from_ms:
            return False
        return self.to_ms is None or timestamp_ms < self.to_ms


class Work:
    """One run of ``consume --group``."""

    __slots__ = (
        "_group",
        "_held",
        "_is_lost",
        "_lease_ms",
        "_left",
        "_member",
        "_partition",
        "_session",
        "_topic",
        "_wanted",
    )

    def __init__(
        self,
        session: Session,
        topic: str,
        group: str,
        partition: int | None,
        member: str,
        lease_ms: int | None,
    ) -> None:
        self._session = session
        self._topic = topic
        self._group = group
        self._partition = -1 if partition is None else partition
        self._member = member or f"{socket.gethostname()}-{os.getpid()}"
        self._lease_ms = lease_ms
        self._held: list[str] = []  # leased, not meant: released at the end
        self._is_lost = False
        self._wanted: dict[int, IntervalSet] | None = None  # None: whatever comes
        self._left = -1  # of the wanted; -1: no end known

    def run(self, window: Window, start: str | int | None, count: int, *, follow: bool) -> int:
        """Print and ack until nothing is left, ``count`` are printed, or for ever."""
        if start is not None or window.from_ms is not None:
            self._reset(window, start)
        if window.to_ms is not None:
            self._find(window)
        printed = 0
        before = signal.signal(signal.SIGTERM, _interrupt)  # as Ctrl-C: what is held is given back
        try:
            while (not count or printed < count) and self._left != 0:
                wanted = min(count - printed if count else RECEIVE_MAX, RECEIVE_MAX)
                rows = self._receive(min(wanted, self._left) if self._left > 0 else wanted, follow)
                if rows is None:
                    continue
                if not rows:
                    break
                printed += self._take(rows, window, follow=follow)
        finally:
            with contextlib.suppress(RaftlineError):
                self._settle("release", self._held)
            signal.signal(signal.SIGTERM, before)
        return exits.REFUSED if self._is_lost else exits.DONE

    def _take(self, rows: list[Row], window: Window, *, follow: bool) -> int:
        """Print what is meant and ack it; what was leased and not printed is released."""
        from raftline.cli.consume import print_message

        printed: list[str] = []
        waiting = [row["lease_token"] for row in rows]
        try:
            for row in rows:
                if self._is_meant(row, window):
                    message = from_json(self._topic, row["partition"], row)
                    priority = row.get("priority", 0)
                    print_message(self._session, message, attempt=row["attempt"], priority=priority)
                    printed.append(row["lease_token"])
                else:
                    self._held.append(row["lease_token"])
                waiting.remove(row["lease_token"])
        finally:
            self._held += waiting
            self._ack(printed, follow=follow)
        return len(printed)

    def _is_meant(self, row: Row, window: Window) -> bool:
        if self._wanted is None:
            return window.holds(row["timestamp"])
        ranges = self._wanted.get(row["partition"])
        if ranges is None or row["offset"] not in ranges:
            return False
        ranges.remove(row["offset"], row["offset"] + 1)
        self._left -= 1
        return True

    def _receive(self, count: int, follow: bool) -> list[Row] | None:
        """Lease messages. With ``follow`` None means: nothing yet, ask again."""
        wait_ms = FOLLOW_WAIT_MS if follow else LAST_LOOK_MS
        body: Row = {"count": count, "wait": wait_ms, "partition": self._partition}
        body["member"] = self._member
        if self._lease_ms is not None:
            body["lease"] = self._lease_ms
        path = f"/v1/topics/{_quoted(self._topic)}/groups/{_quoted(self._group)}/receive"
        try:
            rows = self._session.call("POST", path, body, wait_ms=wait_ms)["messages"]
        except PASSING as error:
            if not follow:
                raise
            self._session.note(f"{error.message}; trying again")
            clock.pause(PAUSE_MS)
            return None
        return None if follow and not rows else rows

    def _ack(self, tokens: list[str], *, follow: bool) -> None:
        """Ack what is printed; again while nobody answers, else it is printed twice."""
        until_ms = clock.mono_ms() + self._session.timeout_ms
        lost, left = self._try_to_ack(tokens)
        if lost:
            self._is_lost = True
            self._session.note(
                f"{lost} acks came too late and were refused: these messages come again"
            )
        while left and clock.mono_ms() < until_ms:
            clock.pause(PAUSE_MS)
            _, left = self._try_to_ack(left)  # "too late" now: the first may have counted
        if left and not follow:
            raise TimedOut(f"acking {len(left)} messages", self._session.timeout_ms)
        if left:
            self._session.note(f"{len(left)} acks were not answered: these messages may come again")

    def _try_to_ack(self, tokens: list[str]) -> tuple[int, list[str]]:
        """Return how many acks were refused, and those that nobody answered."""
        try:
            results = self._settle("ack", tokens)
        except LeaseLost:
            return len(tokens), []  # as a node says it of all
        except PASSING:
            return 0, tokens
        errors = [(row["lease_token"], _error(row["error"])) for row in results if row["error"]]
        left = [token for token, error in errors if isinstance(error, PASSING)]
        return len(errors) - len(left), left

    def _settle(self, verb: str, tokens: list[str]) -> list[Row]:
        if not tokens:
            return []
        body: Row = {"lease_tokens": tokens}
        return self._session.call("POST", f"/v1/messages/{verb}", body).get("results", [])

    def _reset(self, window: Window, start: str | int | None) -> None:
        body: Row = {"topic": self._topic, "kind": "work", "create": True}
        if window.from_ms is not None:
            body["time"] = window.from_ms
        elif isinstance(start, int):
            body["offset"] = start
        else:
            body["to"] = start
        if self._partition >= 0:
            body["partitions"] = [self._partition]
        self._session.call("POST", f"/v1/groups/{_quoted(self._group)}/reset", body)

    def _find(self, window: Window) -> None:
        """Note which messages are in a window that ends: deliveries come in another order."""
        from raftline.cli.consume import drain, first_since, partitions_of

        client = self._session.client
        starts: dict[int, int] = {}
        chosen = None if self._partition < 0 else self._partition
        for partition in partitions_of(client, self._topic, chosen):
            starts[partition] = first_since(client, self._topic, partition, window.from_ms)
        self._wanted, self._left = {}, 0
        for message in drain(client, self._topic, starts):
            if window.holds(message.timestamp_ms):
                ranges = self._wanted.setdefault(message.partition, IntervalSet())
                ranges.add(message.offset, message.offset + 1)
                self._left += 1
        if not self._left:
            sys.stdout.flush()


def _error(told: Row) -> RaftlineError:
    return RaftlineError.from_wire((told["code"], told["message"], told["hint"], {}))


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt


def _quoted(name: str) -> str:
    return quote(name, safe="")
