"""Releases: a leader puts waiting messages into the log when they are due.

Only the leader has a releaser. Nothing here is replicated: the next leader begins with what the
machine says still waits.

How a release is made
    The next due messages of one priority are read from the waiting log, opened and sealed into one
    batch in the segment lane, piece by piece, and proposed as one Release. The record timestamp
    stays that of the publish; a header ``raftline-id`` keeps the id the sender was given.

State
    The timer of the next due time; the piece being read; Releases proposed and not applied, by
    priority.

Invariants
    L1  At most ``RELEASES_INFLIGHT_MAX`` Releases are proposed and not applied, each of at most
        ``RELEASE_MESSAGES_MAX`` messages and about ``RELEASE_BYTES_MAX`` bytes.
    L2  The next piece of a priority begins behind what is in flight. Once a Release is refused (a
        message of it was cancelled or moved) its priority waits until all in flight have come
        back, and begins anew at the front.
    L3  Log time decides what is due; the timer only says when to look.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from raftline.machines.partition.waiting_commands import encode_release
from raftline.model.batch import Buffer, check_batch
from raftline.model.errors import NotWaiting, RaftlineError
from raftline.model.limits import (
    HEADER_BYTES_MAX,
    HEADERS_MAX,
    RELEASE_BYTES_MAX,
    RELEASE_MESSAGES_MAX,
    RELEASES_INFLIGHT_MAX,
)
from raftline.model.message import Message, NewMessage
from raftline.model.records import open_batch, seal_batch
from raftline.node.command_proposal import Applied, CommandProposal
from raftline.node.partition import WAITING, PartitionHost
from raftline.storage.log_words import DamagedRange

if TYPE_CHECKING:
    from raftline.node.node import Node
    from raftline.node.ports import Timer
    from raftline.node.replica import Replica

ID_HEADER = "raftline-id"
PROPOSE_MS = 10_000  # for a Release to be applied; after that it is looked at again
AGAIN_MS = 100  # after something went wrong
AHEAD = 0.9  # of a long wait: log time may run up to a tenth fast
NEAR_MS = 1_000


class Releaser:
    """Releases the waiting messages of one partition while its replica leads."""

    def __init__(self, node: "Node", host: PartitionHost, replica: "Replica") -> None:
        self._node = node
        self._host = host
        self._replica = replica
        self._timer: Timer | None = None
        self._timer_due = 0  # log time
        self._reading = False
        self._pausing = False  # something went wrong: until the timer
        self._inflight: dict[int, list[int]] = {}  # priority -> messages of each Release, in order
        self._broken: set[int] = set()  # priorities that begin anew. L2
        self._closed = False

    def close(self) -> None:
        """This replica leads no more."""
        self._closed = True
        self._stop_timer()

    def look(self) -> None:
        """Release what is due, or wait for it."""
        waiting = self._host.machine.waiting
        if not waiting.count or self._closed or self._reading or self._pausing:
            return
        due_ms = waiting.earliest_due_ms()
        assert due_ms is not None
        if self._timer is not None and self._timer_due <= due_ms and self._timer_due > self._at_ms:
            return
        now_ms = self._replica.time.stamp()
        if due_ms > now_ms:
            self._wait(due_ms, due_ms - now_ms)
        else:
            self._release(now_ms)

    @property
    def _at_ms(self) -> int:
        return self._host.machine.at_ms

    def _wait(self, due_ms: int, left_ms: float) -> None:
        """Look again at a due time, or somewhat before one that is far. L3."""
        self._stop_timer()
        self._timer_due = due_ms
        wait_ms = left_ms * AHEAD if left_ms > NEAR_MS else left_ms
        self._timer = self._node.clock.call_later(wait_ms, self._on_timer)

    def _pause(self) -> None:
        """Something went wrong: try again in a while."""
        self._pausing = True
        self._wait(self._at_ms + AGAIN_MS, AGAIN_MS)

    def _on_timer(self) -> None:
        self._timer = None
        self._pausing = False
        if not self._closed:
            self.look()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ------------------------------------------------------------------ one release

    def _release(self, now_ms: int) -> None:
        """Read the next piece, unless enough are in flight. L1."""
        self._stop_timer()
        if sum(len(sizes) for sizes in self._inflight.values()) >= RELEASES_INFLIGHT_MAX:
            return  # the next apply comes back here
        is_named = "/" in self._host.name  # else the catalog has not told us our topic yet
        if not is_named or self._node.upkeep.admission(self._replica) is not None:
            self._pause()
            return
        waiting = self._host.machine.waiting
        for priority in waiting.due_lanes(now_ms):
            if priority in self._broken:
                continue
            skip = sum(self._inflight.get(priority, ()))
            numbers = waiting.next_due(priority, now_ms, skip, RELEASE_MESSAGES_MAX)
            if numbers:
                self._read(priority, numbers)
                return

    def _read(self, priority: int, numbers: list[int]) -> None:
        log = self._host.log_named(WAITING)
        assert log is not None
        if min(numbers) < log.log_start:  # caught up by a leader that had let go of it already
            self._pause()
            return
        self._reading = True
        pick = log.pick_job(numbers, RELEASE_BYTES_MAX)
        prefix = f"{self._host.name.replace('/', '.')}.w"

        def job() -> tuple[int, bytes]:
            batches = fitting(pick())
            return len(batches), seal_release(prefix, numbers, batches)

        self._node.segments.run(
            job, lambda made, error: self._on_read(priority, numbers, made, error)
        )

    def _on_read(
        self,
        priority: int,
        numbers: list[int],
        made: tuple[int, bytes] | None,
        error: BaseException | None,
    ) -> None:
        self._reading = False
        if self._closed or self._replica.is_closed:
            return
        if made is None:
            if isinstance(error, DamagedRange):
                self._node.segments.damaged(self._host, error, WAITING)
            else:
                name, reason = self._host.name, str(error)
                self._node.log("warning", "release.failed", partition=name, reason=reason)
            self._pause()
            return
        if priority in self._broken:  # while it was read
            self.look()
            return
        count, batch = made
        self._propose(priority, numbers[:count], batch)
        self.look()

    def _propose(self, priority: int, numbers: list[int], batch: bytes) -> None:
        count = len(numbers)
        self._inflight.setdefault(priority, []).append(count)
        deadline = self._node.clock.mono_ms() + PROPOSE_MS
        proposal = CommandProposal(
            self._host.name,
            deadline,
            PROPOSE_MS,
            lambda answer: self._on_applied(priority, count, answer),
        )
        at_ms = self._replica.time.stamp()
        info = check_batch(batch, self._host.name)
        data = encode_release(at_ms, priority, numbers, info.max_timestamp, batch)
        self._replica.propose(data, proposal)

    def _on_applied(self, priority: int, count: int, answer: Applied | RaftlineError) -> None:
        """A Release came back; the apply that brought it looks for more."""
        if self._closed:
            return
        inflight = self._inflight[priority]
        inflight.remove(count)
        if isinstance(answer, RaftlineError):
            self._broken.add(priority)  # L2
            if not isinstance(answer, NotWaiting):
                self._pause()
        if not inflight:
            del self._inflight[priority]
            self._broken.discard(priority)


def fitting(batches: Sequence[Buffer]) -> Sequence[Buffer]:
    """Return the first of ``batches`` that make one of no more than about the bound; one at least.

    Sealed into one they are shorter: each has a head of its own now. L1
    """
    size = 0
    for at, batch in enumerate(batches):
        size += len(batch)
        if at and size > RELEASE_BYTES_MAX:
            return batches[:at]
    return batches


def seal_release(prefix: str, numbers: Sequence[int], batches: Sequence[Buffer]) -> bytes:
    """Return one batch of the messages in ``batches``, each with its id as a header. Lane."""
    messages: list[NewMessage] = []
    for number, batch in zip(numbers, batches, strict=False):
        (message,) = open_batch(batch)
        messages.append(_with_id(message, f"{prefix}{number}".encode()))
    return seal_batch(messages)


def _with_id(message: Message, text: bytes) -> NewMessage:
    """Return the message with its id; one that has no room for a header goes without."""
    headers = [header for header in message.headers if header[0] != ID_HEADER]
    size = sum([len(name) + len(value or b"") for name, value in headers])
    has_room = size + len(ID_HEADER) + len(text) <= HEADER_BYTES_MAX
    if has_room and len(headers) < HEADERS_MAX:
        headers.append((ID_HEADER, text))
    return message.key, message.value, headers, message.timestamp_ms
