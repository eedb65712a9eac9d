"""Words of a partition script.

append B [+ B ...]   one entry of batches; B is ``count=3 [p=7 e=0 s=0]``: producer, epoch, sequence
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
from raftline.model.batch import BatchInfo


class Words:
    def __init__(self) -> None:
        self.machine = PartitionMachine()
        self.index = 0
        self.at_ms = 0

    def run(self, line: str) -> list[str]:
        verb, _, rest = line.partition(" ")
        match verb:
            case "append":
                items = [batch(text) for text in rest.split("+")]
                return self._apply(encode_append(self.at_ms, items))
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


def batch(text: str) -> tuple[bytes, BatchInfo]:
    arg = {key: int(value) for key, value in (pair.split("=") for pair in text.split())}
    count = arg["count"]
    content = b"x" * count
    producer = (arg.get("p", -1), arg.get("e", -1), arg.get("s", -1))
    return content, BatchInfo(len(content), count, count - 1, 0, 0, *producer)


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
    return f"refused {what.code}: {what.message}"


def show(machine: PartitionMachine) -> list[str]:
    lines = [f"log [{machine.log_start}, {machine.next_offset}) at {machine.at_ms} ms"]
    for producer, epoch, last_ms, batches in machine.producers.state()[1]:
        sent = " ".join(f"{first}..{last}@{offset}" for first, last, offset in batches)
        lines.append(f"producer {producer} epoch {epoch} last at {last_ms} ms: {sent}")
    return lines
