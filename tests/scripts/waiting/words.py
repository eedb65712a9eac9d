"""Words of a script about waiting messages.

at MS                               log time from here on
schedule NAME due=MS [priority=P] [limit=MS]   let a message wait
cancel NAME                         cancel it
move NAME due=MS                    give it another due time
due                                 what a leader would release now, lane by lane
prepare TAG [priority=P]            a leader reads what is due and makes a Release, not yet applied
commit TAG                          ... which is applied now
release NAME ... [priority=P]       a Release of just these, applied at once
failover                            another replica goes on from the snapshot
trim OFFSET                         forget messages of the log below
find NAME                           where a message is
show                                what waits, in the order of due times
"""

from raftline.machines.machine import Refused
from raftline.machines.partition.commands import Trim, encode_command
from raftline.machines.partition.machine import AppendedEntry, Event, PartitionMachine, Trimmed
from raftline.machines.partition.waiting import Cancelled, Moved, Released, Scheduled
from raftline.machines.partition.waiting_commands import (
    encode_cancel,
    encode_move,
    encode_release,
    encode_schedule,
)

LIMIT_MS = 604_800_000


class Words:
    def __init__(self) -> None:
        self.machine = PartitionMachine()
        self.index = 0
        self.at_ms = 0
        self.numbers: dict[str, int] = {}
        self.prepared: dict[str, bytes] = {}

    def run(self, line: str) -> list[str]:
        verb, *rest = line.split()
        names = [word for word in rest if "=" not in word]
        arg = {k: int(v) for k, v in (word.split("=") for word in rest if "=" in word)}
        return getattr(self, f"do_{verb}")(names, arg)

    def check(self) -> None:
        self.machine.check()

    def do_at(self, names, _) -> list[str]:
        self.at_ms = int(names[0])
        return []

    def do_schedule(self, names, arg) -> list[str]:
        name = names[0]
        item = (name.encode(), arg.get("priority", 0), arg["due"], self.at_ms)
        data = encode_schedule(self.at_ms, arg.get("limit", LIMIT_MS), [item])
        number = self.machine.waiting.next_number
        told = self._apply(data)
        if self.machine.waiting.next_number > number:
            self.numbers[name] = number
        return told

    def do_cancel(self, names, _) -> list[str]:
        return self._apply(encode_cancel(self.at_ms, [self.numbers[name] for name in names]))

    def do_move(self, names, arg) -> list[str]:
        return self._apply(encode_move(self.at_ms, self.numbers[names[0]], arg["due"], LIMIT_MS))

    def do_due(self, _names, _arg) -> list[str]:
        waiting = self.machine.waiting
        return [
            f"priority {lane}: {self._names(waiting.next_due(lane, self.at_ms, 0, 500))}"
            for lane in waiting.due_lanes(self.at_ms)
        ] or ["nothing is due"]

    def do_prepare(self, names, arg) -> list[str]:
        lane = arg.get("priority", 0)
        numbers = self.machine.waiting.next_due(lane, self.at_ms, 0, 500)
        self.prepared[names[0]] = encode_release(self.at_ms, lane, numbers, 0, b"batch")
        return [f"a Release of {self._names(numbers)}"]

    def do_commit(self, names, _) -> list[str]:
        return self._apply(self.prepared.pop(names[0]))

    def do_release(self, names, arg) -> list[str]:
        numbers = [self.numbers[name] for name in names]
        lane = arg.get("priority", 0)
        return self._apply(encode_release(self.at_ms, lane, numbers, 0, b"batch"))

    def do_failover(self, _names, _arg) -> list[str]:
        fresh = PartitionMachine()
        fresh.restore(self.machine.snapshot())
        assert fresh.digest() == self.machine.digest()
        self.machine = fresh
        return []

    def do_trim(self, names, _) -> list[str]:
        return self._apply(encode_command(Trim(int(names[0]), self.at_ms)))

    def do_find(self, names, _) -> list[str]:
        found = self.machine.waiting.find(self.numbers[names[0]])
        match found.state:
            case "waiting":
                return [f"waits until {found.due_ms}"]
            case "released":
                return [f"released to {found.offset}" if found.offset >= 0 else "released, trimmed"]
            case state:
                return [state]

    def do_show(self, _names, _arg) -> list[str]:
        waiting = self.machine.waiting
        lines = [f"log [{self.machine.log_start}, {self.machine.next_offset})"]
        lines += [
            f"{self._names([number])} due {due_ms} priority {lane}"
            for due_ms, number, lane in waiting.page((-1, -1), 100)
        ]
        return [*lines, f"the waiting log starts at {waiting.log_start}"]

    def _names(self, numbers) -> str:
        by_number = {number: name for name, number in self.numbers.items()}
        return " ".join(by_number[number] for number in numbers)

    def _apply(self, data: bytes) -> list[str]:
        self.index += 1
        events = self.machine.apply(self.index, 1, data)
        return [text for event in events for text in self._told(event)]

    def _told(self, event: Event) -> list[str]:
        match event:
            case Scheduled():
                return [
                    f"waits as number {outcome}" if isinstance(outcome, int) else outcome.message
                    for outcome in event.outcomes
                ]
            case Cancelled():
                return [
                    *[f"cancelled {self._names([n])}" for n in event.cancelled],
                    *[f"too late for {self._names([n])}: released" for n in event.released],
                ]
            case Moved():
                return [f"waits until {event.due_ms}"]
            case Released():
                count = len(event.numbers)
                end = event.base_offset + count
                return [f"released {self._names(event.numbers)} to [{event.base_offset}, {end})"]
            case AppendedEntry():
                return []
            case Trimmed():
                return [f"log starts at {event.log_start}"]
            case Refused():
                return [f"refused {event.code}: {event.message}"]
            case _:
                return [str(event)]
