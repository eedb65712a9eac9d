"""Who reads a partition: now, when there is something, or by time.

State
    Readers parked at the end of the log, each with a deadline. Who only wants to hear that the log
    grew, and looks after its time itself.

Invariants
    A3  A reader never sees past what is applied, which is committed and locally synced.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from raftline.model.calls import Looked, ReadReply
from raftline.model.errors import OffsetOutOfRange, RaftlineError, ShuttingDown, StorageFault
from raftline.model.records import open_batch
from raftline.node.segments import Segments
from raftline.storage.log_words import DamagedRange, TimeHit

if TYPE_CHECKING:
    from raftline.node.led import Growth
    from raftline.node.partition import PartitionHost

T = TypeVar("T")
ReadDone = Callable[[ReadReply | RaftlineError], None]
Parked = tuple[int, int, float, ReadDone]  # offset, bytes_max, deadline, done


class Readers:
    """The readers of one partition."""

    __slots__ = ("_host", "_parked", "_segments", "_watching", "parked_max")

    def __init__(self, host: "PartitionHost", segments: Segments, parked_max: int) -> None:
        self._host = host
        self._segments = segments
        self._parked: deque[Parked] = deque()
        self._watching: dict[Growth, None] = {}
        self.parked_max = parked_max

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._parked) + len(self._watching)

    def watch(self, growth: "Growth") -> bool:
        """Tell ``growth`` when there is more, or that there will be nothing; False: too many."""
        if len(self) >= self.parked_max:
            return False
        self._watching[growth] = None
        return True

    def unwatch(self, growth: "Growth") -> None:
        """Tell it no more."""
        self._watching.pop(growth, None)

    def read(
        self,
        offset: int,
        bytes_max: int,
        deadline: float,
        now_ms: float,
        done: ReadDone,
        *,
        is_ours: bool = False,
    ) -> None:
        """Answer with whole batches, now or when there are some, or empty at ``deadline``. A3.

        ``is_ours``: the node reads for itself, and does not count it.
        """
        end = self._host.log.log_end
        if offset < self._host.log.log_start or offset > end:
            done(OffsetOutOfRange(self._host.name, offset, self._host.log.log_start, end))
        elif offset < end:
            self._read_now(offset, bytes_max, done, is_ours=is_ours)
        elif deadline <= now_ms or len(self._parked) >= self.parked_max:
            done(self._reply([]))
        else:
            self._parked.append((offset, bytes_max, deadline, done))
            self._host.watch()

    def _read_now(
        self, offset: int, bytes_max: int, done: ReadDone, *, is_ours: bool = False
    ) -> None:
        buffers = self._host.log.read_tail(offset, bytes_max)
        tally = None if is_ours else self._host.tally
        if buffers is not None:
            reply = self._reply(buffers)
            if tally is not None:
                tally.read(buffers, len(reply.batches))
            done(reply)
            return

        def counted(reply: ReadReply | RaftlineError) -> None:
            if tally is not None and isinstance(reply, ReadReply):
                tally.read([reply.batches], len(reply.batches))
            done(reply)

        self._segments.read(self._host, offset, bytes_max, counted)

    def read_cold(self, offset: int, bytes_max: int, end: int, done: ReadDone) -> None:
        """Read whole batches up to ``end`` that are not in memory any more."""
        self._segments.read(self._host, offset, bytes_max, done, end)

    def run(
        self, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Do in the lane what takes too long with what was read."""
        self._segments.run(job, done)

    def _reply(self, buffers: list[bytes | bytearray | memoryview]) -> ReadReply:
        term = self._host.replica.raft.term if self._host.replica is not None else 0
        return ReadReply(b"".join(buffers), self._host.log.log_start, self._host.log.log_end, term)

    def cold_read(
        self,
        buffers: list[bytes | bytearray | memoryview] | None,
        error: BaseException | None,
        done: ReadDone,
    ) -> None:
        """A read came back from the lane."""
        if buffers is not None:
            done(self._reply(buffers))
        elif isinstance(error, DamagedRange):
            done(self._segments.damaged(self._host, error))
        elif isinstance(error, RaftlineError):
            done(error)
        else:
            done(StorageFault(self._host.name, f"reading: {error}"))

    def look_up_time(self, time_ms: int, done: Callable[[Looked | RaftlineError], None]) -> None:
        """Find the first message at or after ``time_ms``: the batch by index, then inside it.

        A batch may hold a million messages: it is opened in the lane, too.
        """
        log = self._host.log
        end, log_start = log.log_end, log.log_start  # what the job sees
        find = log.find_time(time_ms)

        def job() -> Looked:
            offset, timestamp_ms = find_message(find, time_ms, log_start) or (-1, -1)
            return Looked(offset, timestamp_ms, end)

        def found(looked: Looked | None, error: BaseException | None) -> None:
            if looked is not None:
                done(looked)
            elif isinstance(error, DamagedRange):
                done(self._segments.damaged(self._host, error))
            else:
                done(StorageFault(self._host.name, f"looking up a time: {error}"))

        self._segments.run(job, found)

    def serve(self) -> None:
        """The log grew: answer who waited for it."""
        self._tell()
        end = self._host.log.log_end
        for _ in range(len(self._parked)):
            parked = self._parked.popleft()
            if parked[0] < end:
                self._read_now(parked[0], parked[1], parked[3])
            else:
                self._parked.append(parked)

    def expire(self, now_ms: float) -> None:
        """Answer the overdue: there was nothing."""
        late = [parked for parked in self._parked if parked[2] <= now_ms]
        if late:
            self._parked = deque(p for p in self._parked if p[2] > now_ms)
            for parked in late:
                parked[3](self._reply([]))

    def close(self) -> None:
        """Answer everybody who waits."""
        self._tell()
        parked, self._parked = self._parked, deque()
        for entry in parked:
            entry[3](ShuttingDown())

    def _tell(self) -> None:
        if self._watching:
            for growth in list(self._watching):
                growth.grown()


def find_message(
    find: Callable[..., TimeHit | None], time_ms: int, log_start: int
) -> tuple[int, int] | None:
    """Return offset and time of the first message at or after ``time_ms``. Lane.

    A trim may be inside a batch: where nothing late is left of it, the ones after it count.
    """
    hit = find()
    while hit is not None:
        try:
            messages = open_batch(hit.batch)
        except RaftlineError:  # sealed by somebody whose messages nobody can read
            messages = []
        for message in messages:
            if message.timestamp_ms >= time_ms and message.offset >= log_start:
                return message.offset, message.timestamp_ms
        if hit.base_offset >= log_start or not messages:
            return max(hit.base_offset, log_start), time_ms
        hit = find(messages[-1].offset + 1)
    return None
