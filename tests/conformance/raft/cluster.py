"""A handful of replicas, their disks and the rpcs between them, moved by hand."""

import random
from collections.abc import Callable

import msgspec

from raftline.raft.conf_change import decode_conf_change
from raftline.raft.core import Config, Raft
from raftline.raft.errors import LocalOnly, ProposalDropped, Refused, UnknownSender
from raftline.raft.rpc import (
    LOCAL_APPLY,
    Entry,
    EntryKind,
    HardState,
    Rpc,
    Snapshot,
)
from raftline.raft.storage import Compacted, MemoryLog, SnapshotOutdated
from tests.conformance.raft.printer import show_ready, show_rpc

LEVELS = ("DEBUG", "INFO", "WARN", "ERROR", "FATAL", "NONE")
QUIET = len(LEVELS) - 1

# What the dialogues call our refusals.
SPOKEN: dict[type[Exception], str] = {
    ProposalDropped: "raft proposal dropped",
    UnknownSender: "raft: cannot step as peer not found",
    LocalOnly: "raft: cannot step raft local message",
    SnapshotOutdated: "requested index is older than the existing snapshot",
    Compacted: "requested index is unavailable due to compaction",
}


class Complaint(Exception):
    """A command of the dialogue failed in a way that it may expect."""


EXPECTED = (Complaint, Refused, Compacted, SnapshotOutdated)


class HistoryLog(MemoryLog):
    """A log that offers the newest state of its machine as a snapshot."""

    __slots__ = ("history",)

    def __init__(self) -> None:
        super().__init__()
        self.history: list[Snapshot] = []

    def snapshot(self) -> Snapshot:
        return self.history[-1]


class Seat:
    """One replica with its disk and the work that waits for its two helpers."""

    __slots__ = ("append_work", "apply_work", "config", "disk", "raft")

    def __init__(self, config: Config, disk: HistoryLog) -> None:
        self.config = config
        self.disk = disk
        self.raft = Raft(config, disk)
        self.append_work: list[Rpc] = []
        self.apply_work: list[Rpc] = []

    def write(self, hard_state: HardState | None, entries: list[Entry], snapshot: Snapshot | None):
        if hard_state is not None and hard_state != HardState():
            self.disk.set_hard_state(hard_state)
        if snapshot is None:
            self.disk.append(entries)
            return
        if entries:
            raise Complaint("can't apply snapshot and entries at the same time")
        self.disk.apply_snapshot(snapshot)

    def apply(self, entries: list[Entry]) -> None:
        """Apply to a machine whose state is everything it was given, in a row."""
        for entry in entries:
            last = self.disk.history[-1]
            update, conf = entry.data, last.conf
            if entry.kind != EntryKind.NORMAL:
                change = decode_conf_change(entry)
                update = change.context
                conf = self.raft.apply_conf_change(change)
            self.disk.history.append(Snapshot(entry.index, entry.term, conf, last.data + update))


class Cluster:
    """Everything a dialogue can move. Output gathers in ``out``."""

    __slots__ = ("flight", "level", "out", "seats")

    def __init__(self) -> None:
        self.seats: list[Seat] = []
        self.flight: list[Rpc] = []
        self.out: list[str] = []
        self.level = 0

    # --- speaking

    def print(self, *lines: str) -> None:
        if self.level != QUIET:
            self.out += lines

    def log(self, level: str, text: str) -> None:
        if self.level <= LEVELS.index(level):
            self.out.append(f"{level} {text}")

    def indented(self, work: Callable[[], object]) -> None:
        outer, self.out = self.out, []
        try:
            work()
        finally:
            self.out = outer + [f"  {line}" for line in self.out]

    # --- moving

    def add(self, count: int, template: dict[str, object], snapshot: Snapshot) -> None:
        for _ in range(count):
            replica = len(self.seats) + 1
            disk = HistoryLog()
            if snapshot != Snapshot():
                if snapshot.index <= 1:
                    raise Complaint("index must be specified as > 1 due to bootstrap")
                snapshot = msgspec.structs.replace(snapshot, term=1)
                disk.apply_snapshot(snapshot)
            disk.history.append(snapshot)
            config = Config(
                id=replica,
                rng=random.Random(replica),
                election_ticks=3,
                heartbeat_ticks=1,
                logger=self.log,
                **{"inflight_max": (1 << 31) - 1, **template},  # type: ignore[arg-type]
            )
            self.seats.append(Seat(config, disk))

    def process_ready(self, seat: Seat) -> None:
        ready = seat.raft.ready()
        self.print(*show_ready(ready))
        if seat.config.async_storage_writes:
            seat.append_work += [ready.append] if ready.append else []
            seat.apply_work += [ready.apply] if ready.apply else []
        else:
            seat.write(ready.hard_state, ready.entries, ready.snapshot)
            seat.apply(ready.committed)
        self.flight += ready.rpcs
        if not seat.config.async_storage_writes:
            seat.raft.advance()

    def process_append(self, seat: Seat) -> None:
        if not seat.append_work:
            self.print("no append work to perform")
            return
        rpc = seat.append_work.pop(0)
        self.print("Processing:", *show_rpc(msgspec.structs.replace(rpc, responses=[])))
        seat.write(HardState(rpc.term, rpc.vote, rpc.commit), rpc.entries, rpc.snapshot)
        self._respond(rpc)

    def process_apply(self, seat: Seat) -> None:
        if not seat.apply_work:
            self.print("no apply work to perform")
            return
        rpc = seat.apply_work.pop(0)
        self.print("Processing:", *show_rpc(msgspec.structs.replace(rpc, responses=[])))
        seat.apply(rpc.entries)
        self._respond(rpc)

    def _respond(self, rpc: Rpc) -> None:
        self.print("Responses:")
        for response in rpc.responses:
            self.print(*show_rpc(response))
        self.flight += rpc.responses

    def addressed(self, replica: int, kind: int = -1, *, drop: bool = False) -> list[Rpc]:
        """Return the rpcs in flight to ``replica``; what is local cannot be dropped."""
        return [
            rpc
            for rpc in self.flight
            if rpc.to == replica and kind in (-1, rpc.kind) and not (drop and is_local(rpc))
        ]

    def deliver(self, replica: int, kind: int = -1, *, drop: bool = False) -> int:
        rpcs = self.addressed(replica, kind, drop=drop)
        taken = set(map(id, rpcs))
        self.flight = [rpc for rpc in self.flight if id(rpc) not in taken]
        for rpc in rpcs:
            lines = show_rpc(rpc)
            if drop:
                self.print(f"dropped: {lines[0]}", *lines[1:])
                continue
            self.print(*lines)
            try:
                self.seats[replica - 1].raft.step(rpc)
            except Refused as refusal:
                self.print(spoken(refusal))
        return len(rpcs)

    def stabilize(self, seats: list[Seat]) -> None:
        """Let ``seats`` work and talk until nothing is left to do."""
        busy = True
        while busy:
            busy = False
            for seat in seats:
                if seat.raft.has_ready():
                    busy = True
                    self.print(f"> {seat.raft.id} handling Ready")
                    self.indented(lambda seat=seat: self.process_ready(seat))
            for seat in seats:
                if self.addressed(seat.raft.id):
                    busy = True
                    self.print(f"> {seat.raft.id} receiving messages")
                    self.indented(lambda seat=seat: self.deliver(seat.raft.id))
            for seat in seats:
                if seat.append_work:
                    busy = True
                    self.print(f"> {seat.raft.id} processing append thread")
                    while seat.append_work:
                        self.indented(lambda seat=seat: self.process_append(seat))
            for seat in seats:
                if seat.apply_work:
                    busy = True
                    self.print(f"> {seat.raft.id} processing apply thread")
                    while seat.apply_work:
                        self.indented(lambda seat=seat: self.process_apply(seat))


def is_local(rpc: Rpc) -> bool:
    return rpc.sender == rpc.to or rpc.sender >= LOCAL_APPLY or rpc.to >= LOCAL_APPLY


def spoken(error: Exception) -> str:
    """Return what a dialogue says to ``error``."""
    return SPOKEN.get(type(error)) or str(error)
