"""The desk of a partition: what its leader hands out to work groups, and what comes back.

Only the leader has one. Nothing here is replicated: after a change of leadership it is dropped,
and the next leader builds its own from the machine's state.

State
    Commands collected for the next turn; per group the chooser (what goes out next), the offsets
    reserved by Grants that are proposed and not applied, and the receivers parked until there is
    something; the timer that lets log time pass when a lease or a backoff ends.

Invariants
    D1  No offset is handed out twice: it is reserved from its choice until its Grant is applied
        or known to be lost.
    D2  A first delivery may go out before its Grant commits, but only while a majority is known
        to have confirmed this leader within the last election timeout. A redelivery waits.
    D3  Every receive and every settle is answered once, within its time.
    D4  Messages are handed out in the order of the chooser; receivers are served in turn.
    D5  Commands are proposed in the order they came, of about ``TURN_ROWS`` rows a turn; what is
        left goes with the next turn, or is answered when its time is up.
    D6  In one turn of the loop the keys of ``FEED_MESSAGES`` are fed and ``OPEN_MESSAGES`` are
        opened, however many ask; more are opened in the segment lane. Who finds nothing meanwhile
        is not told so: he is served once there is something.
    D7  A group begins only once all that was committed before this leader's term is applied: else
        it may be here already, and would adopt ``ordered`` of whoever comes first now.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from raftline.machines.delivery.commands import (
    START_NEXT,
    Command,
    Deliver,
    DropGroup,
    Grant,
    LeaseQuery,
    OpenGroup,
    Policy,
    Reset,
    Settle,
    encode_deliver,
)
from raftline.machines.delivery.group import WorkGroup
from raftline.machines.delivery.outcomes import Granted, Outcome
from raftline.machines.machine import Refused
from raftline.model.calls import ReadReply, Received
from raftline.model.errors import NoLeader, NotLeader, RaftlineError, TimedOut
from raftline.model.limits import DELIVER_COMMANDS_MAX
from raftline.node.counter import Counter, Receiver, Watcher
from raftline.node.deliver_proposal import NEVER, DeliverCall, DeliverDone, DeliverProposal
from raftline.node.desk_reading import READ_AGAIN_MS, Reading
from raftline.node.key_pages import KeyPage, is_little, read_page
from raftline.node.query_leases import QueryReceiver, serve_query

if TYPE_CHECKING:
    from raftline.node.partition import PartitionHost
    from raftline.node.ports import Clock, Timer
    from raftline.node.replica import Proposal, Replica

ENTRY_BYTES = 1 << 20  # commands of one turn share entries up to about this size
TURN_ROWS = 500  # rows that the commands of one turn may change: every replica applies them at once
FEED_BYTES = 128 << 10  # messages whose keys are read at once
FEED_MESSAGES = 2_000  # whose keys are fed in one turn of the loop
OPEN_MESSAGES = 100  # opened for it
TICK_AGAIN_MS = 100  # after log time could not pass: leadership was being handed over


class DeskSettings:
    """What a desk must know of its topic; renewed when the catalog changes."""

    __slots__ = ("bound_ms", "election_ms", "is_durable", "lease_ms", "policy", "priorities")

    def __init__(
        self,
        policy: Policy,
        lease_ms: int,
        priorities: str,
        bound_ms: int,
        election_ms: int,
        *,
        is_durable: bool = False,
    ) -> None:
        self.is_durable = is_durable  # first deliveries wait for their Grant too
        self.policy = policy
        self.lease_ms = lease_ms
        self.priorities = priorities
        self.bound_ms = bound_ms
        self.election_ms = election_ms


class Desk:
    """One partition's work groups, seen by its leader."""

    def __init__(self, host: "PartitionHost", replica: "Replica", clock: "Clock") -> None:
        self._host = host
        self._replica = replica
        self._clock = clock
        self.term = replica.raft.term  # in which we lead
        self._calls: list[DeliverCall] = []
        self._counters: dict[str, Counter] = {}
        self._parked: dict[str, Counter] = {}  # those at which somebody waits, and perhaps more
        self._sequence = 0
        self._confirmed_mono = -NEVER
        self._confirming = False
        self._beginning: dict[str, tuple[int, bool]] = {}  # groups to begin: where, and if ordered
        self._timer: Timer | None = None
        self._timer_due = 0
        self._closed = False
        self._feed_left = FEED_MESSAGES  # in this turn of the loop
        self._open_left = OPEN_MESSAGES
        self._awaits_turn = False
        self._is_cut = False  # somebody found nothing because it was used up
        self.settings: DeskSettings
        self._watchers: list[Watcher] = []  # some may have been told by another partition

    # ------------------------------------------------------------------ commands

    def collect(
        self, commands: Sequence[Command], deadline: float, timeout_ms: int, done: DeliverDone
    ) -> None:
        """Take commands for the next turn's entry."""
        self.take(DeliverCall(commands, deadline, timeout_ms, done))

    def take(self, call: DeliverCall) -> None:
        """Take a caller's commands for the next turn's entry."""
        self._calls.append(call)
        self._replica.collected(call.weight, is_patient=True)

    def proposals(self, at_ms: int) -> "list[tuple[bytes, Proposal]]":
        """Return what was collected, as entries of bounded size."""
        calls, self._calls = self._calls, []
        if len(calls) > 1 and sum([call.rows for call in calls]) > TURN_ROWS:
            calls = self._hold_back(calls)
        found: list[tuple[bytes, Proposal]] = []
        some: list[DeliverCall] = []
        count = weight = 0
        for call in calls:
            count, weight = count + len(call.commands), weight + call.weight
            if some and (count > DELIVER_COMMANDS_MAX or weight > ENTRY_BYTES):
                found.append(self._entry(at_ms, some))
                some, count, weight = [], len(call.commands), call.weight
            some.append(call)
        if some:
            found.append(self._entry(at_ms, some))
        return found

    def _hold_back(self, calls: list[DeliverCall]) -> list[DeliverCall]:
        """Return what is about ``TURN_ROWS`` rows; the rest waits for the next turn. D5."""
        rows = at = 0
        while at < len(calls) and (not at or rows + calls[at].rows <= TURN_ROWS):
            rows += calls[at].rows
            at += 1
        self._calls = calls[at:]
        if self._calls:
            self._replica.collected(sum([call.weight for call in self._calls]))
            self._host.watch()
        return calls[:at]

    def _entry(self, at_ms: int, calls: list[DeliverCall]) -> "tuple[bytes, Proposal]":
        commands = [command for call in calls for command in call.commands]
        return encode_deliver(at_ms, commands), DeliverProposal(self._host.name, calls)

    def applied(self, entry: Deliver, outcomes: Sequence[Outcome], term: int) -> None:
        """An entry of delivery commands was applied: let go of what it granted."""
        ours = term == self.term
        if ours:
            self._confirmed_mono = self._clock.mono_ms()
        for command, outcome in zip(entry.commands, outcomes, strict=True):
            if isinstance(command, Settle):  # nearly all are: nothing is reserved for them
                continue
            if isinstance(command, Grant):
                counter = self._counters.get(command.group)
                if counter is None or not ours:
                    pass
                elif not isinstance(outcome, Granted):
                    counter.release(command.spans)
                else:
                    counter.unreserve(command.spans)
                    if outcome.lost:
                        counter.returned(outcome.lost)
            elif isinstance(command, LeaseQuery):
                if ours and command.spans and command.group in self._counters:
                    self._counters[command.group].leased(command.spans, outcome)
            elif isinstance(command, Reset | DropGroup) and command.group in self._counters:
                self._counters[command.group].restart()
                self._forget(command.group)
        self.tell_freed()
        for name, start, end in self._host.machine.delivery.take_returned():
            counter = self._counters.get(name)
            if counter is not None:
                counter.returned([start, end])

    def tell_freed(self) -> None:
        """The last entry, also one that trims, let go of keys: what is parked behind them goes."""
        for group in self._host.machine.delivery.moved():
            if group.freed and (counter := self._counters.get(group.name)) is not None:
                counter.freed(group)

    def after_apply(self) -> None:
        """A run of entries was applied: serve who waits, look at the time."""
        for name, counter in list(self._parked.items()):
            self._serve_parked(counter)
            if not counter.parked:
                self._parked.pop(name, None)
        if self._watchers:
            self._tell_watchers()
        self.arm()

    # ------------------------------------------------------------------ receiving

    def receive(self, receiver: Receiver) -> None:
        """Hand messages to a receiver now, or when there are some, or none at its deadline."""
        if self._closed:  # what it had to wait for was applied after somebody else began to lead
            receiver.done(self._refusal())
            return
        counter = self._counter(receiver.group)
        counter.parked.append(receiver)
        self._serve_parked(counter)
        if counter.parked:
            self._parked[receiver.group] = counter
            self._host.watch()

    def parked(self, name: str) -> int:
        """Return how many receivers of a group wait here."""
        counter = self._counters.get(name)
        return 0 if counter is None else len(counter.parked)

    def adopt(self, settings: DeskSettings) -> None:
        """Go by other settings from now on."""
        self.settings = settings
        for counter in self._counters.values():
            counter.adopt(settings)

    @property
    def has_reserved(self) -> bool:
        """Say whether something is handed out whose Grant is on its way."""
        return any(counter.has_reserved for counter in self._counters.values())

    def is_reserved(self, name: str, offset: int) -> bool:
        """Say whether a Grant of a message to a group is on its way."""
        counter = self._counters.get(name)
        return counter is not None and counter.is_reserved(offset)

    def waiting_lane(self, name: str) -> int | None:
        """Return the highest lane with something for a group; None if there is nothing."""
        machine = self._host.machine
        group = machine.delivery.groups.get(name)
        if group is not None and Counter.is_idle(group, self._host):
            return None
        at_ms = self._replica.time.stamp()
        if group is None:  # as if it began here with the first message
            group = WorkGroup(name, self.settings.policy, machine.log_start, 0)
            return Counter(name, self.settings).waiting_lane(group, self._host, at_ms)
        return self._counter(name).waiting_lane(group, self._host, at_ms)

    def begins(self, name: str, start: int, *, ordered: bool) -> bool:
        """Begin a group that is not here, at what is next by now; say whether it is not yet."""
        if name in self._host.machine.delivery.groups:
            return False
        at = self._host.machine.next_offset if start == START_NEXT else start
        if not self._is_confirmed():  # D7
            self._beginning.setdefault(name, (at, ordered))
            return True
        counter = self._counter(name)
        if not counter.opening:
            self._propose_group(counter, at, ordered=ordered)
        return True

    def watch(self, watcher: Watcher) -> None:
        """Tell somebody once a group may have something here, or when his time is up."""
        self._watchers.append(watcher)
        self._host.watch()

    def _counter(self, name: str) -> Counter:
        counter = self._counters.get(name)
        if counter is None:
            counter = self._counters[name] = Counter(name, self.settings)
        return counter

    def _forget(self, name: str) -> None:
        """Let go of the counter of a group that is not there, if nothing hangs on it."""
        counter = self._counters.get(name)
        if counter is None or name in self._host.machine.delivery.groups:
            return
        if not (counter.parked or counter.is_looking or counter.has_reserved):
            del self._counters[name]

    def _serve_parked(self, counter: Counter) -> None:
        """Serve receivers in turn until there is nothing more for the first of them. D4."""
        while counter.parked and not counter.opening:
            receiver = counter.parked[0]
            if not receiver.is_wanted():
                counter.parked.popleft()
                receiver.done(self.empty())
                continue
            if not self._is_confirmed():  # D2, D7
                return
            group = self._host.machine.delivery.groups.get(counter.name)
            if group is None or counter.differs(group.policy):
                self._open(counter, receiver, group)
                return
            counter.parked.popleft()
            if not self._serve(counter, group, receiver):
                counter.parked.appendleft(receiver)
                self._answer_overdue(counter, self._clock.mono_ms())
                return

    def _is_confirmed(self) -> bool:
        """Say whether a majority confirmed us lately; if not, ask it and come back. D2.

        Nobody else can lead where there is one voter. Once, all the same: only then is everything
        applied here that was committed before a restart.
        """
        if len(self._replica.conf.voters) == 1 and self._confirmed_mono > -NEVER:
            return True
        if self._clock.mono_ms() - self._confirmed_mono < self.settings.election_ms:
            return True
        if not self._confirming:
            self._confirming = True
            self._replica.read_index(self._confirmed)
        return False

    def _confirmed(self, error: RaftlineError | None) -> None:
        self._confirming = False
        if error is None and not self._closed:
            self._confirmed_mono = self._clock.mono_ms()
            beginning, self._beginning = self._beginning, {}
            for name, (at, ordered) in beginning.items():
                self.begins(name, at, ordered=ordered)
            self.after_apply()

    def _open(self, counter: Counter, receiver: Receiver, group: WorkGroup | None) -> None:
        """Begin the group, or let it adopt the topic's settings."""
        ordered = receiver.ordered if group is None else group.policy.ordered
        self._propose_group(counter, receiver.start, ordered=ordered)

    def _propose_group(self, counter: Counter, start: int, *, ordered: bool) -> None:
        command = OpenGroup(counter.name, counter.policy_for(ordered=ordered), start)
        counter.opening = True

        def opened(outcomes: Sequence[Outcome] | RaftlineError) -> None:
            counter.opening = False
            refusal = _refusal(outcomes)
            if refusal is not None:
                for parked in counter.take_all():
                    parked.done(refusal)
                self._forget(counter.name)

        self.collect([command], NEVER, 0, opened)

    def _serve(self, counter: Counter, group: WorkGroup, receiver: Receiver) -> bool:
        """Choose for one receiver, read, grant; say whether there was something."""
        at_ms = self._replica.time.stamp()
        if not self._feed(counter, group, receiver.count_max):
            return False
        if isinstance(receiver, QueryReceiver):
            return self._is_served(counter, serve_query(self, counter, group, receiver))
        spans, is_again, keys = counter.choose(group, self._host, receiver.count_max, at_ms)
        if not spans:
            return self._is_served(counter, False)
        counter.reserve(spans)  # D1
        receiver.chosen_mono = self._clock.mono_ms()
        reading = Reading(self, counter, receiver, spans, keys, is_again=is_again)
        reading.next()
        return True

    def _is_served(self, counter: Counter, served: bool) -> bool:  # noqa: FBT001
        """Come back soon where nothing was found because the walk was cut short."""
        if not served and counter.is_more:
            self._is_cut = True
            self._await_turn()
        return served

    def _await_turn(self) -> None:
        if not self._awaits_turn:
            self._awaits_turn = True
            self._clock.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        """Others had their turn: go on feeding. D6."""
        self._awaits_turn = False
        self._feed_left, self._open_left = FEED_MESSAGES, OPEN_MESSAGES
        is_cut, self._is_cut = self._is_cut, False
        if is_cut:
            self._look_again()

    def _look_again(self) -> None:
        if not self._closed:
            self.after_apply()

    def come_back(self, wait_ms: int = TICK_AGAIN_MS) -> None:
        """Look in a while who waits: something is free again, and no entry will say so."""
        if not self._closed:
            self._clock.call_later(wait_ms, self._look_again)

    def _feed(self, counter: Counter, group: WorkGroup, count_max: int) -> bool:
        """Have an ordered group know the keys of what comes next; False: it waits for them. D6."""
        if counter.feeding:
            return False
        counter.is_more = False
        while (wanted := counter.wants(group, self._host, count_max)) is not None:
            if self._feed_left <= 0:
                counter.is_more = True
                return True
            fed = counter.feed(group, wanted[0], self._feed_left)
            self._feed_left -= fed
            self._await_turn()
            if not fed and not self._read_keys(counter, wanted[0]):
                return False
        return True

    def _read_keys(self, counter: Counter, start: int) -> bool:
        """Read the keys of what comes next; False: it takes its time."""
        log = self._host.log
        found = log.read_tail(start, FEED_BYTES)
        if found is not None:
            return self._open_keys(counter, b"".join(found))
        counter.feeding = True

        def read(reply: ReadReply | RaftlineError) -> None:
            """It may come at once, while who asked is being served: hear of it after."""
            self._clock.call_soon(lambda: self._read_cold(counter, reply))

        self._host.readers.read_cold(start, FEED_BYTES, log.log_end, read)
        return False

    def _read_cold(self, counter: Counter, reply: ReadReply | RaftlineError) -> None:
        counter.feeding = False
        if self._closed:
            return
        if isinstance(reply, RaftlineError):
            self.come_back(READ_AGAIN_MS)  # damage is being repaired
        elif self._open_keys(counter, reply.batches):
            self._look_again()

    def _open_keys(self, counter: Counter, batches: bytes) -> bool:
        """Open batches: a few messages at once, more of them in the lane (False)."""
        lanes = self._host.machine.lanes
        if is_little(batches, self._open_left):
            counter.page = page = read_page(batches, lanes)
            self._open_left -= len(page.hashes)
            self._await_turn()
            return True
        counter.feeding = True
        held = lanes.hold()

        def opened(page: KeyPage | None, error: BaseException | None) -> None:
            if error is not None:
                raise error  # nothing that a batch may hold: a bug
            counter.feeding, counter.page = False, page
            self._look_again()

        self._host.readers.run(lambda: read_page(batches, held), opened)
        return False

    def grant(
        self,
        counter: Counter,
        receiver: Receiver,
        spans: list[int],
        keys: list[int] | None,
        batches: bytes,
        *,
        is_again: bool,
    ) -> None:
        """Propose the Grant; answer now or when it is committed. D2.

        While leadership is handed over no Grant is taken: nothing goes out on the strength of one.
        """
        if self._closed:  # while it was read: somebody else leads, and may have given it away
            receiver.done(self._refusal())
            return
        is_again = is_again or self.settings.is_durable or not self._is_confirmed()
        is_again = is_again or bool(self._replica.raft.lead_transferee)
        sequence, term = self.next_sequence(), self.term
        at_ms = self._replica.time.stamp()
        deadline_ms = at_ms + (receiver.lease_ms or self.settings.lease_ms)
        command = Grant(counter.name, sequence, receiver.member, deadline_ms, spans, keys)
        partition = self._host.identity.partition

        def reply(granted: list[int]) -> None:
            if self._host.tally is not None:
                self._host.tally.handed_out(len(batches), receiver.chosen_mono)
            receiver.done(Received(partition, term, sequence, deadline_ms, granted, batches, at_ms))

        def granted(outcomes: Sequence[Outcome] | RaftlineError) -> None:
            if isinstance(outcomes, RaftlineError):
                if not outcomes.unknown:  # it was dropped and will never be applied
                    counter.release(spans)
                if isinstance(outcomes, NotLeader):  # and perhaps we lead on: it was handed over
                    self.come_back()
                if is_again:
                    receiver.done(outcomes)
            elif is_again:
                reply(outcomes[0].spans if isinstance(outcomes[0], Granted) else [])

        if is_again:
            self.collect([command], receiver.give_up, receiver.timeout_ms, granted)
        else:
            call = DeliverCall([command], NEVER, 0, granted)
            self._calls.append(call)
            self._replica.lingers(call.weight)
            reply(spans)

    # ------------------------------------------------------------------ time

    def arm(self) -> None:
        """Set the timer for the next lease or backoff that ends."""
        delivery = self._host.machine.delivery
        if self._timer is not None and not delivery.is_due_before(self._timer_due):
            return
        due = delivery.next_due_ms()
        if due is None or (self._timer is not None and due >= self._timer_due):
            return
        if self._timer is not None:
            self._timer.cancel()
        wait = due - self._replica.time.stamp()
        self._timer_due = due
        self._timer = self._clock.call_later(max(1, wait), self._tick)

    def _tick(self) -> None:
        """Let log time pass: leases that ended come back at apply."""
        self._timer = None
        if self._closed or not self._replica.is_leader:
            return
        due = self._host.machine.delivery.next_due_ms()
        if due is not None and due <= self._replica.time.stamp():
            self.collect((), NEVER, 0, self._ticked)
        else:
            self.arm()

    def _ticked(self, outcomes: Sequence[Outcome] | RaftlineError) -> None:
        """Time passed; where it was refused, by one who leads on after all, it is tried again."""
        if isinstance(outcomes, RaftlineError) and not self._closed and self._timer is None:
            self._timer_due = 0
            self._timer = self._clock.call_later(TICK_AGAIN_MS, self._tick)

    # ------------------------------------------------------------------ ends

    def _tell_watchers(self) -> None:
        """Tell who watches in turn, until nothing is left for its group."""
        watchers, self._watchers = self._watchers, []
        empty: dict[str, None] = {}
        for watcher in watchers:
            if watcher.is_told:
                continue
            if watcher.group not in empty and self.waiting_lane(watcher.group) is not None:
                watcher.tell()
            else:
                empty[watcher.group] = None
                self._watchers.append(watcher)

    def expire(self, now_ms: float) -> bool:
        """Answer overdue receivers (empty) and commands never proposed; say if anybody waits."""
        for name, counter in list(self._parked.items()):
            self._answer_overdue(counter, now_ms)
            if not counter.parked:
                self._parked.pop(name, None)
        late = [watcher for watcher in self._watchers if watcher.deadline <= now_ms]
        self._watchers = [w for w in self._watchers if w.deadline > now_ms and not w.is_told]
        for watcher in late:
            watcher.tell()
        self._expire_held(now_ms)
        return bool(self._watchers or self._parked or self._calls)

    def _expire_held(self, now_ms: float) -> None:
        """Answer commands that waited for a turn too long; what they reserved is free. D1, D5."""
        overdue = [call for call in self._calls if call.deadline <= now_ms]
        if overdue:
            self._calls = [call for call in self._calls if call.deadline > now_ms]
            for call in overdue:
                for command in call.commands:
                    if isinstance(command, Grant | LeaseQuery) and command.spans:
                        self._counter(command.group).release(command.spans)
                call.answer(TimedOut(f"a command to {self._host.name}", call.timeout_ms))
            self.come_back()

    def _answer_overdue(self, counter: Counter, now_ms: float) -> None:
        """Tell those whose time is up that there is nothing; or, if nobody could look, that. D3."""
        if self._confirming or counter.is_looking:
            for receiver in counter.take_given_up(now_ms):
                receiver.done(NoLeader(self._host.name))
            return
        for receiver in counter.take_overdue(now_ms):
            receiver.done(self.empty())

    def empty(self) -> Received:
        """Return the answer of a receive that found nothing."""
        return Received(self._host.identity.partition, 0, 0, 0, [], b"", self._host.machine.at_ms)

    def close(self, error: RaftlineError | None = None) -> None:
        """Leadership ended: answer everybody; nothing here is true any more. D3."""
        self._closed = True
        refusal = error or self._refusal()
        if self._timer is not None:
            self._timer.cancel()
        calls, self._calls = self._calls, []
        counters, self._counters, self._parked = self._counters, {}, {}
        watchers, self._watchers = self._watchers, []
        for call in calls:
            call.answer(refusal)
        for counter in counters.values():
            for receiver in counter.take_all():
                receiver.done(refusal)
        for watcher in watchers:
            watcher.tell()

    def _refusal(self) -> RaftlineError:
        return NotLeader(self._host.name, self._replica.leader_node)

    def now_ms(self) -> int:
        """Return log time, as the leader stamps it."""
        return self._replica.time.stamp()

    def next_sequence(self) -> int:
        """Return a number for a lease of this term."""
        self._sequence += 1
        return self._sequence

    @property
    def host(self) -> "PartitionHost":
        """Return the partition."""
        return self._host


def _refusal(outcomes: Sequence[Outcome] | RaftlineError) -> RaftlineError | None:
    """Return why the only command of a call was refused, if it was."""
    if isinstance(outcomes, RaftlineError):
        return outcomes
    return outcomes[0].error() if isinstance(outcomes[0], Refused) else None
