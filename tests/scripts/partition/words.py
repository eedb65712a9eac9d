"""Words of a partition script.

append B [+ B ...]   one entry of batches; B is ``count=3 [p=7 e=0 s=0]``: producer, epoch, sequence
                     [keys=a,-,b] dedup keys of its messages, held for [window=1000] ms
                     [priority=10] of all its messages
at MS                log time for what follows
trim OFFSET          forget messages below
restart              restore a fresh machine from the snapshot
show                 the state
"""

from raftline.machines.machine import Refused
from raftline.machines.partition.commands import Trim, encode_append, encode_command
from raftline.machines.partition.machine import (
    AppendedEntry,
    Duplicate,
    Event,
    PartitionMachine,
    Trimmed,
)
from raftline.machines.partition.side_car import SideCar, encode_extension, hash_key
from raftline.model.batch import BatchInfo
from raftline.model.errors import DuplicateKey


class Words:
    def __init__(self) -> None:
        self.machine = PartitionMachine()
        self.index = 0
        self.at_ms = 0

    def run(self, line: str) -> list[str]:
        verb, _, rest = line.partition(" ")
        match verb:
            case "append":
                batches = [batch(text) for text in rest.split("+")]
                sides = [(at, row[2]) for at, row in enumerate(batches) if row[2] is not None]
                items = [row[:2] for row in batches]
                return self._apply(encode_append(self.at_ms, items, *encode_extension(sides)))
            case "at":
                self.at_ms = int(rest)
                return []
            case "trim":
                return self._apply(encode_command(Trim(int(rest), self.at_ms)))
            case "restart":
                fresh = PartitionMachine()
                fresh.restore(self.machine.snapshot())
                assert fresh.digest() == self.machine.digest()
                self.machine = fresh
                return []
            case "show":
                return show(self.machine)
            case _:
                return [f"unknown word {verb}"]

    def check(self) -> None:
        self.machine.check()

    def _apply(self, data: bytes) -> list[str]:
        self.index += 1
        return [text for event in self.machine.apply(self.index, 1, data) for text in told(event)]


def batch(text: str) -> tuple[bytes, BatchInfo, SideCar | None]:
    words = dict(pair.split("=") for pair in text.split())
    keys = words.pop("keys", "").split(",")
    arg = {key: int(value) for key, value in words.items()}
    count = arg["count"]
    runs = ((0, count, arg["priority"]),) if "priority" in arg else ()
    dedup = tuple((n, hash_key(key.encode())) for n, key in enumerate(keys) if key not in ("", "-"))
    side = SideCar(runs, dedup, arg.get("window", 1000)) if runs or dedup else None
    content = b"x" * count
    producer = (arg.get("p", -1), arg.get("e", -1), arg.get("s", -1))
    return content, BatchInfo(len(content), count, count - 1, 0, 0, *producer), side


def told(event: Event) -> list[str]:
    match event:
        case AppendedEntry():
            stored = {row.base_offset: row for row in event.stored}
            return [outcome(what, stored) for what in event.outcomes]
        case Trimmed():
            return [f"log starts at {event.log_start}"]
        case Refused():
            return [f"refused {event.code}: {event.message}"]
        case _:
            return [str(event)]


def outcome(what, stored) -> str:
    if isinstance(what, int):
        return f"stored [{what}, {what + stored[what].count})"
    if isinstance(what, Duplicate):
        return f"duplicate of {what.first_offset}"
    if isinstance(what, DuplicateKey):
        return "refused: " + ", ".join(f"message {n} is a duplicate of {f}" for n, f in what.firsts)
    return f"refused {what.code}: {what.message}"


def show(machine: PartitionMachine) -> list[str]:
    lines = [f"log [{machine.log_start}, {machine.next_offset}) at {machine.at_ms} ms"]
    for producer, epoch, last_ms, batches in machine.producers.state()[1]:
        sent = " ".join(f"{first}..{last}@{offset}" for first, last, offset in batches)
        lines.append(f"producer {producer} epoch {epoch} last at {last_ms} ms: {sent}")
    for priority in machine.lanes.lanes():
        if priority:
            ranges = machine.lanes.within(priority, 0, machine.next_offset)
            lines.append(f"priority {priority}: " + " ".join(f"[{s}, {e})" for s, e in ranges))
    if machine.dedup:
        lines.append(f"{len(machine.dedup)} dedup keys")
    return lines
