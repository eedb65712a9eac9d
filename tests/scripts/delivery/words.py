"""Words of a delivery script. All but ``log``, ``elect``, ``show`` and ``outbox`` are log entries.

log END                        the partition holds the messages [0, END)
open GROUP [retries=3] [backoff=1000] [start=first|next|N] [ordered] [gone]
                               begin a group, or let it adopt the policy; later words are about it.
                               ``gone``: what is given up on is settled, not a dead letter
lease WHO RANGES [for=30000] [keys=a,b,-]
                               the leader hands messages to a worker; the lease is named term.number
lost WHO RANGES                handed out too, but the leader dies before the Grant is committed
ack LEASE RANGES               what the worker says of its lease; ``attempt=N`` to say another
nack LEASE RANGES [delay=MS] [reason=WORD]       without a delay: after the group's backoff
reject LEASE RANGES [reason=WORD]
release LEASE RANGES           not begun: ready at once, and the delivery is not counted
extend LEASE RANGES for=MS
query NAME N [RANGES] [for=MS] a query leases number N; the leader chose these messages for it
query-ack NAME N | query-reject NAME N RANGES [reason=WORD] | query-release NAME
                               what a query says of its number
wait MS                        log time passes
elect                          another leader, the next term
buried NUMBER                  the dead-letter topic has everything up to this number
revive RANGES | forget RANGES | reset OFFSET | drop | trim OFFSET
restart                        restore a fresh machine from the snapshot
show | outbox                  the group; what is owed to the dead-letter topic

RANGES are like ``3`` or ``0..5`` (the end is not in it).
"""

from raftline.machines.delivery.commands import (
    BACKOFF,
    START_FIRST,
    START_NEXT,
    VERBS,
    AckQuery,
    Buried,
    Command,
    DropGroup,
    Forget,
    Grant,
    LeaseQuery,
    OpenGroup,
    Policy,
    RejectQuery,
    ReleaseQuery,
    Reset,
    Revive,
    Settle,
    decode_deliver,
    encode_deliver,
)
from raftline.machines.delivery.group import WorkGroup
from raftline.machines.delivery.machine import DeliveryMachine
from raftline.machines.delivery.outcomes import (
    Done,
    Granted,
    Leased,
    Opened,
    Outcome,
    QuerySettled,
    SettledRanges,
)
from raftline.machines.delivery.rows import (
    KEY,
    LEASE,
    LEASED,
    RESTING,
    STATES,
    TIME,
    attempt_of,
    error_of,
    generation_of,
    member_of,
    state_of,
)
from raftline.machines.machine import Refused
from raftline.model.range_table import Row

KEYS = {"-": 0} | {letter: at for at, letter in enumerate("abcdefgh", 1)}
EPOCH_MS = 1_000_000  # what a script calls 0: no real log time is
STARTS = {"first": START_FIRST, "next": START_NEXT}


class Words:
    def __init__(self) -> None:
        self.machine = DeliveryMachine()
        self.log_start = self.log_end = 0
        self.term, self.sequence, self.at_ms = 1, 0, EPOCH_MS
        self.group = ""
        self.leases: dict[str, dict[int, tuple[int, int]]] = {}  # offset -> attempt, generation

    def run(self, line: str) -> list[str]:
        verb, *words = line.split()
        options = dict(word.partition("=")[::2] for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        if verb in VERBS:
            return self._apply(self._settle(verb, plain[0], plain[1:], options))
        return getattr(self, f"_{verb.replace('-', '_')}", self._unknown)(plain, options)

    def check(self) -> None:
        self.machine.check(self.log_start, self.log_end)

    def _unknown(self, *_) -> list[str]:
        return ["unknown word"]

    def _log(self, plain, _) -> list[str]:
        self.log_end = int(plain[0])
        return []

    def _open(self, plain, options) -> list[str]:
        self.group, *flags = plain
        policy = Policy(
            max_retries=int(options.get("retries", 3)),
            backoff_ms=int(options.get("backoff", 1000)),
            dead_letters="gone" not in flags,
            ordered="ordered" in flags,
        )
        start = options.get("start", "first")
        start = STARTS[start] if start in STARTS else int(start)
        return self._apply(OpenGroup(self.group, policy, start))

    def _lease(self, plain, options) -> list[str]:
        return self._apply(self._grant(plain, options))

    def _lost(self, plain, options) -> list[str]:
        command = self._grant(plain, options)
        return [f"{self.term}.{command.sequence} is out and in no log"]

    def _grant(self, plain, options) -> Grant:
        who, *texts = plain
        self.sequence += 1
        spans: list[int] = []
        held: dict[int, tuple[int, int]] = {}
        group = self.machine.groups[self.group]
        for start, end in pairs(texts):
            for offset in range(start, end):
                held[offset] = next_delivery(group, offset)
                spans += (offset, offset + 1, *held[offset])
        self.leases[f"{self.term}.{self.sequence}"] = held
        keys = options.get("keys")
        keys = keys and [KEYS[key] for key in keys.split(",")]
        until_ms = self.at_ms + int(options.get("for", 30_000))
        return Grant(self.group, self.sequence, who, until_ms, spans, keys)

    def _settle(self, verb: str, lease: str, texts: list[str], options) -> Settle:
        term, sequence = map(int, lease.split("."))
        ranges = [edge for pair in pairs(texts) for edge in pair]
        attempt, generation = self.leases[lease].get(ranges[0], (1, 0))
        attempt = int(options.get("attempt", attempt))
        said = (VERBS.index(verb), term, sequence, attempt, generation, ranges)
        delay = int(options.get("for", options.get("delay", BACKOFF)))
        return Settle(self.group, *said, delay, options.get("reason", ""))

    def _query(self, plain, options) -> list[str]:
        name, n, *texts = plain
        grant = self._grant([name, *texts], {"for": options.get("for", 86_400_000)})
        held = (grant.sequence, grant.deadline_ms, grant.spans)
        return self._apply(LeaseQuery(self.group, name, int(n), *held))

    def _query_ack(self, plain, _) -> list[str]:
        return self._apply(AckQuery(self.group, plain[0], int(plain[1])))

    def _query_reject(self, plain, options) -> list[str]:
        name, n, *texts = plain
        ranges = [edge for pair in pairs(texts) for edge in pair]
        reason = options.get("reason", "")
        return self._apply(RejectQuery(self.group, name, int(n), ranges, reason))

    def _query_release(self, plain, _) -> list[str]:
        return self._apply(ReleaseQuery(self.group, plain[0]))

    def _wait(self, plain, _) -> list[str]:
        self.at_ms += int(plain[0])
        return self._apply()

    def _elect(self, *_) -> list[str]:
        self.term, self.sequence = self.term + 1, 0
        return []

    def _buried(self, plain, _) -> list[str]:
        return self._apply(Buried(int(plain[0])))

    def _revive(self, plain, _) -> list[str]:
        return self._apply(Revive(self.group, [edge for pair in pairs(plain) for edge in pair]))

    def _forget(self, plain, _) -> list[str]:
        return self._apply(Forget(self.group, [edge for pair in pairs(plain) for edge in pair]))

    def _reset(self, plain, _) -> list[str]:
        return self._apply(Reset(self.group, int(plain[0])))

    def _drop(self, *_) -> list[str]:
        return self._apply(DropGroup(self.group))

    def _trim(self, plain, _) -> list[str]:
        self.log_start = int(plain[0])
        self.machine.trim(self.log_start)
        return []

    def _restart(self, *_) -> list[str]:
        fresh = DeliveryMachine()
        fresh.restore(self.machine.snapshot())
        assert fresh.snapshot() == self.machine.snapshot()
        self.machine = fresh
        return []

    def _show(self, *_) -> list[str]:
        return show(self.machine, self.machine.groups[self.group], self.log_end)

    def _outbox(self, *_) -> list[str]:
        lines = [
            f"{d.number}: {d.group} [{d.start}, {d.end}) {d.reason} after {d.attempts},"
            f" first {ms(d.first_ms)}, last {ms(d.last_ms)},"
            f" by {d.member or 'nobody'}: {d.error or '-'}"
            for d in self.machine.outbox.after(0)
        ]
        pin = self.machine.pin()
        return [*lines, "empty" if pin is None else f"retention keeps {pin} and what follows"]

    def _apply(self, *commands: Command) -> list[str]:
        entry = decode_deliver(encode_deliver(self.at_ms, list(commands)))
        outcomes = self.machine.apply(self.term, 1, entry, self.log_start, self.log_end)
        lines = [line for outcome in outcomes for line in self._told(outcome)]
        again = [f"[{start}, {end})" for _, start, end in self.machine.take_returned()]
        return [*lines, f"ready again: {' '.join(again)}"] if again else lines

    def _told(self, outcome: Outcome) -> list[str]:
        match outcome:
            case Opened():
                return [f"{outcome.group} begins at {outcome.floor}"]
            case Granted():
                lines = [f"{self.term}.{outcome.sequence} holds {told_spans(outcome.spans)}"]
                return lines + ([f"not free: {told(outcome.lost)}"] if outcome.lost else [])
            case SettledRanges():
                return [f"lease_lost: {told(outcome.lost)}"] if outcome.lost else []
            case Leased():
                acked = f", acked {told_spans(outcome.acked)}" if outcome.acked else ""
                lost = f", lost {told(outcome.lost)}" if outcome.lost else ""
                return [f"number {outcome.n} holds {told(outcome.ranges)}{lost}{acked}"]
            case Done() | QuerySettled():
                return [f"{outcome.count} message{'' if outcome.count == 1 else 's'}"]
            case Refused():
                return [f"refused {outcome.code}: {outcome.message}"]


def pairs(texts: list[str]) -> list[tuple[int, int]]:
    found = [text.partition("..")[::2] for text in texts]
    return [(int(start), int(end) if end else int(start) + 1) for start, end in found]


def next_delivery(group: WorkGroup, offset: int) -> tuple[int, int]:
    """Return attempt and generation that a leader would deliver a message with."""
    held = group.rows.find(offset)
    return (attempt_of(held[2]) + 1, generation_of(held[2])) if held else (1, group.base_generation)


def told(ranges: list[int]) -> str:
    found = zip(ranges[::2], ranges[1::2], strict=True)
    return " ".join(f"[{start}, {end})" for start, end in found) or "nothing"


def told_spans(spans: list[int]) -> str:
    found = [spans[at : at + 4] for at in range(0, len(spans), 4)]
    return (
        ", ".join(f"[{start}, {end}) delivery {n}{of(g)}" for start, end, n, g in found)
        or "nothing"
    )


def ms(time_ms: int) -> int:
    return time_ms - EPOCH_MS


def of(generation: int) -> str:
    return f" of generation {generation}" if generation else ""


def show(machine: DeliveryMachine, group: WorkGroup, log_end: int) -> list[str]:
    settled = "".join(f", [{start}, {end})" for start, end in group.settled)
    due_ms = machine.next_due_ms()
    due = "" if due_ms is None else f", next due {ms(due_ms)}"
    where = f"at {ms(machine.at_ms)}: settled below {group.floor}{settled}"
    lines = [f"{where}; {group.fresh(log_end)} fresh, lag {group.lag(log_end)}{due}"]
    for start, end, row in group.rows:
        lines.append(f"[{start}, {end}) {told_row(group, row)}{of(generation_of(row))}")
    for name, query in group.queries.items():
        lines.append(f"query {name} stands at {query.n}{', acked' if query.is_acked else ''}")
    return lines


def told_row(group: WorkGroup, row: Row) -> str:
    state, lease = state_of(row), row[LEASE]
    words = [STATES[state]]
    if state == LEASED:
        words.append(f"{lease >> 40}.{lease & ((1 << 40) - 1)}")
        words.append(f"by {group.members.text(member_of(row))} until {ms(row[TIME])},")
    if state == RESTING:
        words.append(f"until {ms(row[TIME])},")
    if attempt_of(row):
        words.append(f"delivered {attempt_of(row)}x")
    if error_of(row):
        words.append(f"({group.errors.text(error_of(row))})")
    if row[KEY]:
        words.append(f"key {next(name for name, key in KEYS.items() if key == row[KEY])}")
    return " ".join(words)
