"""What a million waiting messages cost: memory, checkpoints, releases. Prints CPU times.

    .venv/bin/python -m bench.waiting_memory [messages]

The state of one partition and its waiting log on a real disk, as a replica holds them: scheduled
with due times at random, checkpointed, then released a piece at a time in the order they are due.
"""

import random
import resource
import sys
import tempfile
import time
from pathlib import Path

from raftline.machines.partition.machine import PartitionMachine
from raftline.machines.partition.waiting import Scheduled
from raftline.machines.partition.waiting_commands import encode_release, encode_schedule
from raftline.model.limits import RELEASE_MESSAGES_MAX
from raftline.model.records import seal_batch
from raftline.storage.file_pool import FilePool
from raftline.storage.log import PartitionLog
from raftline.storage.log_words import LogIdentity, LogSettings
from raftline.storage.os_disk import OsDisk

PER_ENTRY = 1000
VALUE = bytes(100)


def rss_mb() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def main(count: int) -> None:
    """Measure with ``count`` waiting messages."""
    chance = random.Random(1)
    batch = seal_batch([(b"key", VALUE, [], 1_000)])
    with tempfile.TemporaryDirectory() as folder:
        log = PartitionLog.fresh(
            FilePool(OsDisk(Path(folder))), "waiting", LogIdentity("c", "t", 0), LogSettings(), 1
        )
        machine = PartitionMachine()
        before_mb = rss_mb()
        began = time.thread_time()
        slowest = 0.0
        for start in range(0, count, PER_ENTRY):
            items = [
                (batch, 0, chance.randrange(10_000, 500_000_000), 1_000) for _ in range(PER_ENTRY)
            ]
            data = encode_schedule(1_000, 604_800_000, items)
            at = time.thread_time()
            (event,) = machine.apply(start, 1, data)
            assert isinstance(event, Scheduled)
            view = memoryview(data)
            rows = [(view[b.start : b.start + b.length], 1, b.timestamp) for b in event.stored]
            log.append(event.stored[0].number, 1, 1_000, rows)
            slowest = max(slowest, time.thread_time() - at)
            while (flush := log.take_flush()) is not None:
                log.write_flush(flush)
                log.flushed(flush)
        scheduled_s = time.thread_time() - began
        held_mb = rss_mb()
        at = time.thread_time()
        join = machine.freeze()
        freeze_s = time.thread_time() - at
        state = join()
        join_s = time.thread_time() - at - freeze_s
        with_state_mb = rss_mb()
        other = PartitionMachine()
        at = time.thread_time()
        other.restore(state)
        restore_s = time.thread_time() - at
        del other
        release(machine, log)
        print(f"{count:,} waiting messages of {len(VALUE)} B, {log.bytes / 1e6:.0f} MB on disk")
        print(f"  memory                    {held_mb - before_mb:8.1f} MB (limit 200)")
        print(f"  ... while a checkpoint is made {with_state_mb - before_mb:8.1f} MB")
        print(f"  scheduling                {scheduled_s / count * 1e6:8.1f} us each")
        print(f"  slowest entry of {PER_ENTRY}     {slowest * 1e3:8.1f} ms")
        print(f"  freezing, on the loop     {freeze_s * 1e3:8.1f} ms")
        print(f"  joining, in the lane      {join_s * 1e3:8.1f} ms, {len(state) / 1e6:.1f} MB")
        print(f"  restoring                 {restore_s * 1e3:8.1f} ms")


def release(machine: PartitionMachine, log: PartitionLog) -> None:
    """Release a hundred pieces and print what one costs."""
    loop_s: list[float] = []
    lane_s: list[float] = []
    for index in range(100):
        numbers = machine.waiting.next_due(0, 1 << 40, 0, RELEASE_MESSAGES_MAX)
        at = time.thread_time()
        job = log.pick_job(numbers, 1 << 20)
        picked = time.thread_time()
        found = job()
        lane_s.append(time.thread_time() - picked)
        assert len(found) == len(numbers)
        data = encode_release(1 << 40, 0, numbers, 0, b"batch")
        applied = time.thread_time()
        assert len(machine.apply(index, 1, data)) == 2
        log.trim(machine.waiting.log_start)
        loop_s.append(time.thread_time() - applied + picked - at)
    print(f"  a Release of {RELEASE_MESSAGES_MAX}, loop      {max(loop_s) * 1e3:8.1f} ms at most")
    print(f"  ... reading, lane         {sum(lane_s) / len(lane_s) * 1e3:8.1f} ms (random order)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
