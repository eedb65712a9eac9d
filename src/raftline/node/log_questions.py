"""Questions about a partition's log: its bounds, what is archived, trims.

Questions and answers (questions.py); each may be repeated.
    log.bounds    {time} -> {log_start, commit_end, archived, offset, timestamp}
                  ``offset``: the first message at or after a time, the end if there is none; -1
                  where no time (or -1) was asked for
    log.archived  {offset} -> {archived}
    log.trim      {offset} -> {log_start}; NotArchived where the topic must be archived first

V1  Where a topic's ``archive`` is ``required``, nothing is trimmed that is not archived. The mark
    is compared before a Trim is proposed: it only ever rises.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from raftline.machines.partition.commands import MarkArchived
from raftline.machines.partition.machine import ArchiveMarked, Trimmed
from raftline.model.errors import InvalidArgument, NotArchived, RaftlineError, StorageFault
from raftline.model.limits import OFFSET_MAX
from raftline.model.settings import SETTINGS, Value
from raftline.node.command_proposal import Applied, CommandProposal
from raftline.node.partition import PartitionHost
from raftline.node.questions import Arguments, Done
from raftline.node.readers import find_message
from raftline.node.trims import trim
from raftline.storage.log_words import DamagedRange

if TYPE_CHECKING:
    from raftline.node.node import Node
    from raftline.node.replica import Replica

REQUIRED = "required"

Answered = Callable[[Applied | RaftlineError], None]


class LogQuestions:
    """Adds the questions to a node."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        node.questions.add("log.bounds", self._bounds)
        node.questions.add("log.archived", self._archived)
        node.questions.add("log.trim", self._trim)

    def check_trim(self, replica: "Replica", host: PartitionHost, offset: int) -> None:
        """Refuse a trim past what is archived, where that is required. V1."""
        archived = host.machine.archive.archived
        if offset > max(archived, host.log.log_start) and self.is_required(replica):
            raise NotArchived(host.name, offset, archived)

    def is_required(self, replica: "Replica") -> bool:
        """Say whether a partition's topic must be archived before it is trimmed."""
        machine = self._node.catalog_machine
        row = machine.shards.get(replica.shard)
        topic = machine.topics.get(row.topic) if row is not None else None
        settings: dict[str, Value] = {} if topic is None else topic.settings
        return settings.get("archive", SETTINGS["archive"].default) == REQUIRED

    def _bounds(self, host: PartitionHost, asked: Arguments, _ms: int, done: Done) -> None:
        time_ms = asked.get("time", -1)
        if not isinstance(time_ms, int):
            raise InvalidArgument(f"time is {time_ms!r}", "Unix milliseconds")
        end = host.log.log_end
        answer = {
            "log_start": host.log.log_start,
            "commit_end": end,
            "archived": host.machine.archive.archived,
            "offset": -1,
            "timestamp": -1,
        }
        if time_ms < 0:
            done(answer)
            return
        find, log_start = host.log.find_time(time_ms), host.log.log_start

        def job() -> tuple[int, int]:
            return find_message(find, time_ms, log_start) or (end, -1)

        def found(place: tuple[int, int] | None, error: BaseException | None) -> None:
            if place is not None:
                done({**answer, "offset": place[0], "timestamp": place[1]})
            elif isinstance(error, DamagedRange):
                done(self._node.segments.damaged(host, error))
            else:
                done(StorageFault(host.name, f"looking up a time: {error}"))

        self._node.segments.run(job, found)

    def _archived(self, host: PartitionHost, asked: Arguments, ms: int, done: Done) -> None:
        offset = _offset_of(asked)
        if offset > host.machine.next_offset:
            text = f"{host.name} ends at {host.machine.next_offset}, {offset} cannot be archived"
            raise InvalidArgument(text, "is it another topic, or was the partition recovered?")

        def applied(answer: Applied | RaftlineError) -> None:
            if isinstance(answer, RaftlineError):
                done(answer)
                return
            event = answer.events[0]
            assert isinstance(event, ArchiveMarked)
            done({"archived": event.archived})

        assert host.replica is not None
        command = MarkArchived(offset, host.replica.time.stamp())
        host.command(command, self._proposal(host, ms, applied))

    def _trim(self, host: PartitionHost, asked: Arguments, ms: int, done: Done) -> None:
        offset = _offset_of(asked)
        assert host.replica is not None
        self.check_trim(host.replica, host, offset)

        def applied(answer: Applied | RaftlineError) -> None:
            if isinstance(answer, RaftlineError):
                done(answer)
                return
            event = answer.events[0]
            assert isinstance(event, Trimmed)
            done({"log_start": event.log_start})

        trim(host, offset, self._proposal(host, ms, applied))

    def _proposal(self, host: PartitionHost, ms: int, applied: Answered) -> CommandProposal:
        return CommandProposal(host.name, self._node.clock.mono_ms() + ms, ms, applied)


def _offset_of(asked: Arguments) -> int:
    offset = asked.get("offset")
    if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= OFFSET_MAX:
        raise InvalidArgument(f"offset is {offset!r}", f"a whole number from 0 to {OFFSET_MAX}")
    return offset
