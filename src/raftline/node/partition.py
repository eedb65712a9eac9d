"""A partition on this node: its machine, its log, and everybody who waits for either.

State
    Appends collected and not proposed; readers parked at the end; offers made to replicas that
    are far behind.

Invariants
    A1  ``machine.next_offset == log.log_end`` after every entry.
    A2  Every append is answered once: by its outcome at apply, by a refusal before it was
        proposed, or by ``TimedOut``.
    A3  A reader never sees past what is applied, which is committed and locally synced.
    A4  ``machine.waiting.next_number == side["waiting"].log_end``, where there is such a log; and
        ``machine.staging.next_number == side["stage"].log_end``.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from raftline.machines.delivery.ages import Ages
from raftline.machines.delivery.commands import DELIVER_TAG, decode_deliver
from raftline.machines.delivery.commands import Command as DeliveryCommand
from raftline.machines.machine import Refused
from raftline.machines.partition.commands import (
    APPEND_TAG,
    Command,
    Malformed,
    decode_append,
    encode_append,
    encode_command,
)
from raftline.machines.partition.machine import (
    AppendedEntry,
    Duplicate,
    PartitionMachine,
    TraceSet,
    Trimmed,
)
from raftline.machines.partition.parcels import PARCEL_TAG
from raftline.machines.partition.side_car import SideCar, encode_extension
from raftline.machines.partition.staging_commands import STAGING_TAG, Stage, decode_staging
from raftline.machines.partition.staging_words import Staged
from raftline.machines.partition.trace import waiting_events
from raftline.machines.partition.waiting import Scheduled
from raftline.machines.partition.waiting_commands import WAITING_TAG
from raftline.model.batch import BatchInfo
from raftline.model.calls import Appended
from raftline.model.errors import (
    Internal,
    OverLimit,
    RaftlineError,
    TimedOut,
)
from raftline.model.limits import ENTRY_BATCHES_MAX
from raftline.model.records import seal_batch
from raftline.node.appends import (
    Append,
    AppendDone,
    AppendProposal,
    Pressure,
    Refuse,
    append_size,
    refuse_append,
)
from raftline.node.command_proposal import Applied, CommandProposal, Offer
from raftline.node.deliver_proposal import DeliverDone, DeliverProposal
from raftline.node.marks import Marks
from raftline.node.readers import Readers
from raftline.node.replica import Proposal, Replica
from raftline.node.schedules import ScheduleCall, ScheduleProposal, Schedules
from raftline.node.segments import Segments
from raftline.node.tallies import Tally
from raftline.raft.rpc import Entry
from raftline.storage.checkpoint import Checkpoint
from raftline.storage.log import PartitionLog
from raftline.storage.log_words import LogIdentity

if TYPE_CHECKING:
    from raftline.node.desk import Desk
    from raftline.node.publishing import Publisher
    from raftline.node.releases import Releaser

ENTRY_BYTES = 1 << 20  # appends of one turn share entries up to about this size
WAITING = "waiting"  # the side log of waiting messages
TRACE = "trace"  # the side log of what happened to messages
STAGE = "stage"  # the side log of staged writes
SIDE_TRIM_BYTES = 1 << 20  # below it the files of a side log are not worth removing
SIDE_START = 1  # the first offset of a side log: what waits is numbered from 1
OFFERS_MAX = 4  # the oldest may still be fetched while newer ones are made


class PartitionHost:
    """Machine and log of one partition, driven by its replica."""

    def __init__(
        self,
        name: str,
        directory: str,
        identity: LogIdentity,
        machine: PartitionMachine,
        log: PartitionLog,
        side: dict[str, PartitionLog],
        segments: Segments,
        pressure: Pressure,
        *,
        new_log: Callable[[str], PartitionLog],
        collected_bytes_max: int,
        parked_max: int,
    ) -> None:
        self.name = name
        self.directory = directory
        self.identity = identity
        self.machine = machine
        self.log = log
        self.side = side  # side logs by name: "waiting", "trace", "stage"
        self.replica: Replica | None = None
        self.marks = Marks()
        self.applied_bytes = 0  # since the last checkpoint
        self.scrub_turn = 0
        self._new_log = new_log
        self._segments = segments
        self._pressure = pressure
        self._collected: list[Append] = []
        self._collected_bytes = 0
        self._has_sides = False  # among the collected
        self._collected_bytes_max = collected_bytes_max
        self.readers = Readers(self, segments, parked_max)
        self._offers: dict[int, tuple[Offer, bytes]] = {}
        self.ages = Ages(machine.next_offset)
        self.open_desk: Callable[[], Desk]  # given by the node's desks
        self.desk: Desk | None = None  # while this replica leads, once a work group was here
        self.schedules: Schedules | None = None  # once a message was to wait
        self.releaser: Releaser | None = None  # while this replica leads
        self.publisher: Publisher | None = None  # while this replica leads
        self.tally: Tally | None = None  # once the topic is known

    # ------------------------------------------------------------------ appends

    def append(
        self,
        batch: bytes,
        info: BatchInfo,
        deadline: float,
        timeout_ms: int,
        done: AppendDone,
        refuse: Refuse | None = None,
        side: SideCar | None = None,
    ) -> None:
        """Collect one batch for the next turn."""
        replica = self.replica
        assert replica is not None
        size = info.length
        if side is not None:
            size += side.weight
            self._has_sides = True
        collected = self._collected_bytes + size
        if collected > self._collected_bytes_max and self._collected:
            what = f"bytes waiting to be proposed to {self.name}"
            done(OverLimit(what, collected, self._collected_bytes_max))
            return
        self._collected.append((batch, info, done, deadline, timeout_ms, refuse, side))
        self._collected_bytes = collected
        self._pressure.bytes += size
        replica.collected(size)

    def proposals(self, replica: Replica) -> list[tuple[bytes, Proposal]]:
        """Return the collected appends as entries of bounded size."""
        appends, self._collected = self._collected, []
        total, self._collected_bytes = self._collected_bytes, 0
        at_ms = replica.time.stamp()
        found = self._entries(at_ms, appends, total) if appends else []
        if self.schedules is not None:
            found += self.schedules.proposals(at_ms)
        if self.desk is not None:
            found += self.desk.proposals(at_ms)
        return found

    def _entries(
        self, at_ms: int, appends: list[Append], total: int
    ) -> list[tuple[bytes, Proposal]]:
        has_sides, self._has_sides = self._has_sides, False
        if total < ENTRY_BYTES and len(appends) <= ENTRY_BATCHES_MAX:
            return [self._entry(at_ms, appends, total, has_sides=has_sides)]
        found: list[tuple[bytes, Proposal]] = []
        start = size = 0
        for at, append in enumerate(appends):
            size += append_size(append)
            if size >= ENTRY_BYTES or at + 1 - start >= ENTRY_BATCHES_MAX:
                some = appends[start : at + 1]
                found.append(self._entry(at_ms, some, size, has_sides=has_sides))
                start, size = at + 1, 0
        if start < len(appends):
            found.append(self._entry(at_ms, appends[start:], size, has_sides=has_sides))
        return found

    def _entry(
        self, at_ms: int, appends: list[Append], size: int, *, has_sides: bool
    ) -> tuple[bytes, Proposal]:
        flags, extension = 0, b""
        if has_sides:
            sides = [(at, append[6]) for at, append in enumerate(appends)]
            flags, extension = encode_extension([(at, s) for at, s in sides if s is not None])
        data = encode_append(at_ms, [append[:2] for append in appends], flags, extension)
        return data, AppendProposal(self.name, appends, self._pressure, size)

    def command(self, command: Command, proposal: CommandProposal) -> None:
        """Propose anything but an append."""
        assert self.replica is not None
        self.replica.propose(encode_command(command), proposal)

    def refuse_collected(self, error: RaftlineError) -> None:
        """Answer what was collected and not proposed. A2."""
        appends, self._collected = self._collected, []
        self._pressure.bytes -= self._collected_bytes
        self._collected_bytes = 0
        for append in appends:
            refuse_append(append, error)
        if self.desk is not None:
            desk, self.desk = self.desk, None
            desk.close(error)
        if self.schedules is not None:
            self.schedules.refuse(error)
        if self.releaser is not None:
            self.releaser.close()
            self.releaser = None
        if self.publisher is not None:
            self.publisher.close(error)
            self.publisher = None

    # ------------------------------------------------------------------ applying

    def apply(self, entry: Entry, proposal: Proposal | None) -> None:
        """Apply one committed entry: offsets from the machine, bytes to the log, answers."""
        data = entry.data
        if not data:
            return
        self.applied_bytes += len(data)
        if data[0] != APPEND_TAG:
            if data[0] == DELIVER_TAG:
                self._apply_deliver(entry, proposal)
            elif data[0] in (WAITING_TAG, STAGING_TAG, PARCEL_TAG):
                self._apply_waiting(entry, proposal)
            else:
                self._apply_command(entry, proposal)
            return
        try:
            view = decode_append(data)
        except Malformed as error:
            if proposal is not None:
                proposal.refuse(Internal(str(error)))
            return
        result = self.machine.apply_append(entry.index, entry.term, view)
        self._store(entry, result)
        if isinstance(proposal, AppendProposal):
            self._answer(proposal, result)

    def _store(self, entry: Entry, result: AppendedEntry) -> None:
        """Put the batches that were given offsets into the log."""
        stored = result.stored
        if stored:
            view_of = memoryview(entry.data)
            self.log.append(
                stored[0].base_offset,
                entry.term,
                result.at_ms,
                [(view_of[b.start : b.start + b.length], b.count, b.max_timestamp) for b in stored],
            )
            self.ages.note(self.log.log_end, result.at_ms)  # many entries may be applied at once
            tally = self._tally_of(entry)
            if tally is not None:
                tally.stored(stored, self.log.log_end)
        assert self.machine.next_offset == self.log.log_end  # A1

    def _tally_of(self, entry: Entry) -> Tally | None:
        """Return where an entry is counted: with the leader of its term."""
        replica = self.replica
        if replica is None or entry.term != replica.raft.term or not replica.is_leader:
            return None
        return self.tally

    def _answer(self, proposal: AppendProposal, result: AppendedEntry) -> None:
        proposal.settle()
        if self.tally is not None:
            self.tally.appended(proposal)
        at_ms, log_start, term = result.at_ms, self.machine.log_start, result.term
        partition = self.identity.partition
        for append, outcome in zip(proposal.appends, result.outcomes, strict=True):
            if append is None:
                continue
            if type(outcome) is int:
                append[2](
                    Appended(outcome, append[1].count, partition, at_ms, False, log_start, term)
                )
            elif isinstance(outcome, Duplicate):
                append[2](
                    Appended(
                        outcome.first_offset,
                        append[1].count,
                        partition,
                        at_ms,
                        True,
                        log_start,
                        term,
                    )
                )
            else:
                assert isinstance(outcome, RaftlineError)
                append[2](outcome)

    def _apply_command(self, entry: Entry, proposal: Proposal | None) -> None:
        events = self.machine.apply(entry.index, entry.term, entry.data)
        if not events:  # a Noop: every replica marks its digest here
            side = {name: (log.log_start, log.log_end) for name, log in self.side.items()}
            state = self.machine.digest()
            self.marks.put(entry.index, state, self.log.log_start, self.log.log_end, side)
        for event in events:
            if isinstance(event, AppendedEntry):
                self._store(entry, event)
            elif isinstance(event, TraceSet):
                self._trim_trace(event.log_start)
            elif isinstance(event, Trimmed):
                self.log.trim(event.log_start)
                self._segments.trimmed(self)
                if self.desk is not None:
                    self.desk.tell_freed()
        if isinstance(proposal, CommandProposal):
            refusals = [event for event in events if isinstance(event, Refused)]
            proposal.answer(refusals[0].error() if refusals else Applied(entry.index, events))

    def _apply_waiting(self, entry: Entry, proposal: Proposal | None) -> None:
        """Apply what may let messages wait: also of staged writes, and parcels. A4."""
        events = self.machine.apply(entry.index, entry.term, entry.data)
        for event in events:
            if isinstance(event, AppendedEntry):
                self._store(entry, event)
            elif isinstance(event, Scheduled):
                self._store_waiting(entry, event)
            elif isinstance(event, Staged) and event.number > 0:
                self._store_staged(entry, event)
        trace, waiting = self.machine.trace, self.machine.waiting
        if trace.percent:
            told = waiting_events(events, lambda number: waiting.find(number).due_ms)
            self._trace(entry, trace.encode(self.machine.at_ms, entry.term, told))
        log = self.side.get(WAITING)
        if log is not None:
            assert self.machine.waiting.next_number == log.log_end  # A4
            log.trim(self.machine.waiting.log_start)
            if log.bytes >= SIDE_TRIM_BYTES:
                self._segments.trimmed(self)
        if isinstance(proposal, ScheduleProposal):
            event = events[0]
            if isinstance(event, Scheduled):
                proposal.answer(event)
            elif isinstance(event, Refused):
                proposal.refuse(event.error())
        elif isinstance(proposal, CommandProposal):
            refusals = [event for event in events if isinstance(event, Refused)]
            proposal.answer(refusals[0].error() if refusals else Applied(entry.index, events))

    def _store_waiting(self, entry: Entry, event: Scheduled) -> None:
        stored = event.stored
        if stored:
            view_of = memoryview(entry.data)
            self.side_log(WAITING).append(
                stored[0].number,
                entry.term,
                event.at_ms,
                [(view_of[b.start : b.start + b.length], 1, b.timestamp) for b in stored],
            )

    def _store_staged(self, entry: Entry, event: Staged) -> None:
        """Put a chunk into the stage log: its extras, if it has some, then its batch."""
        command = decode_staging(entry.data)
        assert isinstance(command, Stage)
        view_of, batches = memoryview(entry.data), list[tuple[memoryview, int, int]]()
        if command.body > command.extra:
            extras = view_of[command.extra : command.body]
            batches.append((extras, 1, command.max_timestamp))
        batches.append((view_of[command.body :], command.count, command.max_timestamp))
        log = self.side_log(STAGE)
        log.append(event.number, entry.term, self.machine.at_ms, batches)
        assert self.machine.staging.next_number == log.log_end  # A4

    def _trim_stage(self) -> None:
        """Let go of chunks that are published, dropped or expired."""
        log, start = self.side.get(STAGE), self.machine.staging.log_start
        if log is not None and start > log.log_start:
            log.trim(start)
            if log.bytes >= SIDE_TRIM_BYTES:
                self._segments.trimmed(self)

    def _apply_deliver(self, entry: Entry, proposal: Proposal | None) -> None:
        """Apply the delivery commands of one turn."""
        try:
            deliver = decode_deliver(entry.data)
        except Malformed as error:
            if proposal is not None:
                proposal.refuse(Internal(str(error)))
            return
        outbox = self.machine.delivery.outbox
        died_from = outbox.next_number
        outcomes = self.machine.apply_deliver(entry.index, entry.term, deliver)
        died = outbox.after(died_from - 1) if outbox.next_number > died_from else ()
        self._trace(entry, self.machine.trace.record(entry.term, deliver, outcomes, died))
        if self.desk is not None:
            self.desk.applied(deliver, outcomes, entry.term)
        tally = self._tally_of(entry)
        if tally is not None:
            tally.delivered(deliver, outcomes)
        if isinstance(proposal, DeliverProposal):
            if tally is not None:
                tally.settled(proposal)
            if self.replica is not None:
                self.replica.expect(proposal.callers)
            proposal.answer(outcomes)

    def _trace(self, entry: Entry, record: bytes | None) -> None:
        """Put what an entry did into the trace log: every replica the same bytes."""
        if record is None:
            return
        at_ms = self.machine.at_ms
        batch = seal_batch([(None, record, (), at_ms)])
        log = self.side_log(TRACE)
        log.append(log.log_end, entry.term, at_ms, [(batch, 1, at_ms)])

    def _trim_trace(self, log_start: int) -> None:
        log = self.side.get(TRACE)
        if log is not None:
            log.trim(min(log_start, log.log_end))
            if log.bytes >= SIDE_TRIM_BYTES:
                self._segments.trimmed(self)

    def applied(self) -> None:
        """Observe log time, wake readers, plan the write-out."""
        replica = self.replica
        if replica is not None:
            replica.time.observe(self.machine.at_ms)
        self._segments.appended(self)
        if self.desk is not None:
            self.desk.after_apply()
        if self.releaser is not None:
            self.releaser.look()
        if STAGE in self.side:
            self._trim_stage()
            if self.publisher is not None:
                self.publisher.look()
        if self.readers:
            self.readers.serve()

    # ------------------------------------------------------------------ reading

    def deliver(
        self,
        commands: Sequence[DeliveryCommand],
        deadline: float,
        timeout_ms: int,
        done: DeliverDone,
    ) -> None:
        """As the leader: propose delivery commands; ``done`` hears their outcomes at apply."""
        self.open_desk().collect(commands, deadline, timeout_ms, done)

    def schedule(self, call: ScheduleCall, delay_ms_max: int, dedup_ms: int) -> None:
        """As the leader: collect messages that are to wait for the next turn."""
        replica = self.replica
        assert replica is not None
        schedules = self.schedules
        if schedules is None:
            schedules = Schedules(self, self._pressure, self._collected_bytes_max)
            self.schedules = schedules
        schedules.delay_ms_max, schedules.dedup_ms = delay_ms_max, dedup_ms
        schedules.collect(replica, call)

    def watch(self) -> None:
        """Look here for callers whose time is up."""
        self._pressure.parked[self] = None

    # ------------------------------------------------------------------ snapshots

    def offer(self, index: int) -> bytes:
        """Freeze the state at ``index``; the log up to here stays readable by itself."""
        state = self.machine.snapshot()
        ends = {name: log.log_end for name, log in self.side.items()}
        offer = Offer(index, self.log.log_start, self.log.log_end, len(state), ends)
        self._offers[index] = (offer, state)
        while len(self._offers) > OFFERS_MAX:
            del self._offers[next(iter(self._offers))]
        return msgspec.msgpack.encode(offer)

    def offered_state(self, index: int) -> bytes | None:
        """Return the frozen machine state of an offer that still stands."""
        found = self._offers.get(index)
        return found[1] if found is not None else None

    def checkpoint(self) -> Callable[[], Checkpoint]:
        """Freeze state, index and log together (the loop's half); the lane syncs the log."""
        replica = self.replica
        assert replica is not None
        self.applied_bytes = 0
        state = self.machine.freeze()
        sync = self.log.sync_job()
        side = [(name, log.sync_job()) for name, log in self.side.items()]
        head = replica.checkpoint_head()
        identity = self.identity
        at_ms, level = self.machine.at_ms, self.machine.feature_level

        def build() -> Checkpoint:
            return msgspec.structs.replace(
                head,
                topic_uuid=identity.topic_uuid,
                partition=identity.partition,
                log=sync(),
                state=state(),
                at_ms=at_ms,
                feature_level=level,
                side={name: sync_side() for name, sync_side in side},
            )

        return build

    def checkpointed(self, made: Checkpoint) -> None:
        """A checkpoint with these marks is durable: older files and memory may go."""
        if made.log is not None:
            self.log.synced(made.log)
            self.log.checkpointed(made.log)
        for name, mark in made.side.items():
            self.side[name].synced(mark)
            self.side[name].checkpointed(mark)

    # ------------------------------------------------------------------ side logs

    def log_named(self, name: str) -> PartitionLog | None:
        """Return a side log that is there, or the main one ("")."""
        return self.side.get(name) if name else self.log

    def side_log(self, name: str) -> PartitionLog:
        """Return a side log; its first use begins it, empty."""
        log = self.side.get(name)
        if log is None:
            log = self.side[name] = self._new_log(name)
        return log

    # ------------------------------------------------------------------ the rest

    def expire(self, now_ms: float) -> None:
        """Answer overdue readers (empty) and appends that were never proposed."""
        if self.desk is None and self.schedules is None and not (self._collected or self.readers):
            self._pressure.parked.pop(self, None)
            return
        if self.readers:
            self.readers.expire(now_ms)
        is_watched = self.desk is not None and self.desk.expire(now_ms)
        if self.schedules is not None:
            is_watched = self.schedules.expire(now_ms) or is_watched
        if not is_watched and not self.readers:
            self._pressure.parked.pop(self, None)
        if self._collected and any(a[3] <= now_ms for a in self._collected):
            late_appends = [a for a in self._collected if a[3] <= now_ms]
            self._collected = [a for a in self._collected if a[3] > now_ms]
            size = sum(map(append_size, late_appends))
            self._collected_bytes -= size
            self._pressure.bytes -= size
            for append in late_appends:
                append[2](TimedOut(f"an append to {self.name}", append[4]))

    def close(self) -> None:
        """Answer everybody who waits."""
        self._pressure.parked.pop(self, None)
        self.readers.close()
