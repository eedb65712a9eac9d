"""Words of a script about staged writes. All but ``show`` and ``failover`` are log entries.

at MS                              log time from here on
stage QUERY BATCH TASK.ATTEMPT.CHUNK COUNT [keep=MS]    keep a chunk of so many messages
publish QUERY BATCH [TASK.ATTEMPT.CHUNKS ...] [after=B] decide which attempts count
move QUERY BATCH FIRST..END COUNT ... [dropped=N]       a leader moves chunks: messages of each
wait QUERY BATCH FIRST COUNT                            a chunk whose messages are to wait
append COUNT                       another producer's batch
abandon QUERY BATCH | forget QUERY
failover                           another replica goes on from the snapshot
show                               the log's end, and what queries have
"""

from raftline.machines.machine import Refused
from raftline.machines.partition.commands import encode_append
from raftline.machines.partition.machine import AppendedEntry, PartitionMachine
from raftline.machines.partition.staging_commands import (
    APPENDS,
    NOTHING,
    SCHEDULES,
    Abandon,
    ForgetQuery,
    Publish,
    PublishAfter,
    encode_piece,
    encode_stage,
    encode_staging,
)
from raftline.machines.partition.staging_words import Dropped, PublishBegun, Staged
from raftline.machines.partition.waiting import Scheduled
from raftline.machines.partition.waiting_commands import encode_schedule
from raftline.model.batch import BatchInfo

KEEP_MS = 86_400_000


class Words:
    def __init__(self) -> None:
        self.machine = PartitionMachine()
        self.index = 0
        self.at_ms = 1_000

    def run(self, line: str) -> list[str]:
        verb, *rest = line.split()
        plain = [word for word in rest if "=" not in word]
        options = {k: int(v) for k, v in (word.split("=") for word in rest if "=" in word)}
        return getattr(self, f"do_{verb}")(plain, options)

    def check(self) -> None:
        self.machine.check()

    def do_at(self, plain, _) -> list[str]:
        self.at_ms = int(plain[0])
        return []

    def do_stage(self, plain, options) -> list[str]:
        query, batch, names, count = plain
        key = (int(batch), *map(int, names.split(".")))
        keep_ms = options.get("keep", KEEP_MS)
        body = b"b" * int(count)
        return self._apply(
            encode_stage(self.at_ms, keep_ms, query, key, body, int(count), self.at_ms)
        )

    def do_publish(self, plain, options) -> list[str]:
        query, batch, *names = plain
        winners = [tuple(map(int, name.split("."))) for name in names]
        command = Publish(self.at_ms, query, int(batch), winners)
        if "after" in options:
            command = PublishAfter(self.at_ms, query, int(batch), winners, options["after"])
        return self._apply(encode_staging(command))

    def do_move(self, plain, options) -> list[str]:
        query, batch, span, *counts = plain
        first, end = map(int, span.split(".."))
        kind, data = NOTHING, b""
        if counts:
            kind, data = APPENDS, self._batches([int(count) for count in counts])
        dropped = options.get("dropped", 0)
        return self._apply(
            encode_piece(self.at_ms, query, int(batch), (first, end), kind, data, dropped)
        )

    def do_wait(self, plain, _) -> list[str]:
        query, batch, first, count = plain[0], *map(int, plain[1:])
        items = [(b"w", 0, self.at_ms + 500, self.at_ms)] * count
        data = encode_schedule(self.at_ms, KEEP_MS, items)
        span = (first, first + 1)
        return self._apply(encode_piece(self.at_ms, query, batch, span, SCHEDULES, data))

    def do_append(self, plain, _) -> list[str]:
        return self._apply(self._batches([int(plain[0])]))

    def do_abandon(self, plain, _) -> list[str]:
        return self._apply(encode_staging(Abandon(self.at_ms, plain[0], int(plain[1]))))

    def do_forget(self, plain, _) -> list[str]:
        return self._apply(encode_staging(ForgetQuery(self.at_ms, plain[0])))

    def do_failover(self, *_) -> list[str]:
        fresh = PartitionMachine()
        fresh.restore(self.machine.snapshot())
        assert fresh.digest() == self.machine.digest()
        self.machine = fresh
        return []

    def do_show(self, *_) -> list[str]:
        staging = self.machine.staging
        lines = [f"log [0, {self.machine.next_offset}), {self.machine.waiting.count} wait"]
        for name, query in staging.queries.items():
            chunks = ", ".join(f"{b}:{t}.{a}.{c}" for b, t, a, c in query.chunks) or "nothing"
            moving = query.publishing
            under_way = ""
            if moving is not None:
                under_way = f", publishing {moving.batch}: {moving.at} of {len(moving.chunks)}"
            lines.append(f"{name}: fence {query.fence}{under_way}, staged {chunks}")
        return [*lines, f"the stage log is [{staging.log_start}, {staging.next_number})"]

    def _batches(self, counts: list[int]) -> bytes:
        items = [(b"b" * n, BatchInfo(n, n, n - 1, self.at_ms, self.at_ms)) for n in counts]
        return encode_append(self.at_ms, items)

    def _apply(self, data: bytes) -> list[str]:
        self.index += 1
        return [line for event in self.machine.apply(self.index, 1, data) for line in told(event)]


def told(event: object) -> list[str]:
    match event:
        case Staged():
            words = {-1: "too late: nothing is kept", 0: "kept before"}
            return [words.get(event.number, f"kept as number {event.number}")]
        case PublishBegun():
            again = " (again)" if event.is_repeat else ""
            if event.result is None:
                return [f"batch {event.batch} is being published{again}"]
            r = event.result
            waits = f", {r.waiting} wait" if r.waiting else ""
            gone = f", {r.duplicates} known already" if r.duplicates else ""
            return [
                f"batch {event.batch} is published: {r.count} from {r.offset}{waits}{gone}{again}"
            ]
        case AppendedEntry():
            return [f"stored at {batch.base_offset}: {batch.count}" for batch in event.stored]
        case Scheduled():
            return [f"{len(event.stored)} wait"]
        case Dropped():
            return [f"dropped {event.count}"]
        case Refused():
            return [f"refused {event.code}: {event.message}"]
        case _:
            return [str(event)]
