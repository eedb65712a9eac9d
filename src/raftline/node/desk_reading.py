"""The bytes of one receive: its spans may lie in several places of the log, in any order.

Whole batches are read, from memory where they are still there, else in the lane; as many as the
receiver's bytes allow, one at least. What was chosen and not read is free again.
"""

from typing import TYPE_CHECKING

from raftline.model.batch import split_batches
from raftline.model.calls import ReadReply
from raftline.model.errors import RaftlineError
from raftline.model.intervals import IntervalSet

if TYPE_CHECKING:
    from raftline.node.counter import Counter, Receiver
    from raftline.node.desk import Desk

COLD_BYTES_MIN = 4 << 10
READ_AGAIN_MS = 1_000  # after a read failed: others wait, too
READ_PIECES_MAX = 64  # reads of one receive: spans far apart are left for the next


class Reading:
    """One receive on its way from the choice to its Grant."""

    __slots__ = (
        "_again",
        "_counter",
        "_covered",
        "_desk",
        "_keys",
        "_left",
        "_pieces",
        "_receiver",
        "_row",
        "_spans",
    )

    def __init__(
        self,
        desk: "Desk",
        counter: "Counter",
        receiver: "Receiver",
        spans: list[int],
        keys: list[int] | None,
        *,
        is_again: bool,
    ) -> None:
        self._desk = desk
        self._counter = counter
        self._receiver = receiver
        self._spans = spans
        self._keys = keys
        self._again = is_again
        self._pieces: list[bytes] = []
        self._left = receiver.bytes_max
        self._row = 0  # the span being read
        self._covered = IntervalSet()

    def next(self) -> None:
        """Read on until the spans, or the bytes, are used up."""
        spans, host = self._spans, self._desk.host
        while self._row < len(spans):
            start = self._covered.first_gap(spans[self._row])
            if start >= spans[self._row + 1]:
                self._row += 4
                continue
            if self._pieces and (self._left <= 0 or len(self._pieces) >= READ_PIECES_MAX):
                break
            found = host.log.read_tail(start, max(1, self._left), spans[self._row + 1])
            if found is None:
                end = spans[self._row + 1]
                host.readers.read_cold(start, self._likely(end - start), end, self._took)
                return
            # The last batch may reach past the span: then it is read by itself.
            piece = b"".join(found) or b"".join(host.log.read_tail(start, 1) or ())
            if not self._take(piece):
                break
        self._finish()

    def _likely(self, count: int) -> int:
        """Return how many bytes so many messages probably have: what is read cold is checked."""
        log = self._desk.host.log
        average = log.bytes // max(1, log.log_end - log.log_start)
        return max(1, min(self._left, 2 * average * count + COLD_BYTES_MIN))

    def _took(self, reply: ReadReply | RaftlineError) -> None:
        if isinstance(reply, RaftlineError):
            self._counter.release(self._spans)
            self._receiver.done(reply)
            self._desk.come_back(READ_AGAIN_MS)
            return
        if reply.batches:
            if self._take(reply.batches):
                self.next()
            else:
                self._finish()
        else:  # the batch reaches past the span: read it by itself
            start = self._covered.first_gap(self._spans[self._row])
            self._desk.host.readers.read_cold(start, 1, self._desk.host.log.log_end, self._took)

    def _take(self, piece: bytes) -> bool:
        """Add a piece; False: it is one too many."""
        if self._pieces and len(piece) > self._left:
            return False
        start, _ = split_batches(piece)[-1]
        base = int.from_bytes(piece[start : start + 8], "big")
        end = base + int.from_bytes(piece[start + 23 : start + 27], "big") + 1
        self._covered.add(int.from_bytes(piece[:8], "big"), end)
        self._left -= len(piece)
        self._pieces.append(piece)
        return True

    def _finish(self) -> None:
        got, rest, keys = _cut(self._spans, self._covered, self._keys)
        if rest:
            self._counter.release(rest)
        batches = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._desk.grant(self._counter, self._receiver, got, keys, batches, is_again=self._again)


def _cut(
    spans: list[int], covered: IntervalSet, keys: list[int] | None
) -> tuple[list[int], list[int], list[int] | None]:
    """Split spans: what was read, and all after the first that was not; the keys of the former."""
    got: list[int] = []
    rest: list[int] = []
    count = 0
    for at in range(0, len(spans), 4):
        start, stop, attempt, generation = spans[at : at + 4]
        cut = start if rest else min(covered.first_gap(start), stop)
        if start < cut:
            got += (start, cut, attempt, generation)
            count += cut - start
        if cut < stop:
            rest += (cut, stop, attempt, generation)
    return got, rest, None if keys is None else keys[:count]
