"""The log against a plain list, under crashes, full disks, failed writes and flipped bits."""

import hashlib
import random

from crc32c import crc32c
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from raftline.storage.log_words import DamagedRange, LogSettings
from raftline.testing.sim_disk import PowerLoss, SimDisk
from tests.unit.storage.log_twin import Twin, digest_of

SIZES = st.lists(
    st.one_of(st.integers(70, 400), st.integers(70, 40_000), st.just(66_000)),
    min_size=1,
    max_size=6,
)


class LogMachine(RuleBasedStateMachine):
    """Random lives of one log."""

    @initialize(
        seed=st.integers(0, 1 << 32),
        segment_bytes=st.sampled_from([60_000, 140_000, 1 << 30]),
        index_bytes=st.sampled_from([1000, 4096, 16_384]),
        tail_bytes=st.sampled_from([0, 30_000, 1 << 30]),
    )
    def begin(self, seed: int, segment_bytes: int, index_bytes: int, tail_bytes: int) -> None:
        layout = LogSettings(
            segment_bytes=segment_bytes, index_bytes=index_bytes, tail_bytes=tail_bytes,
            flush_bytes=40_000, flush_bytes_max=90_000,
        )  # fmt: skip
        self.rng = random.Random(seed)
        self.twin = Twin(SimDisk(random.Random(seed + 1)), layout)
        self.trimmed = 0
        self.mark = self.twin.sync()
        self.durable_start = 0

    # ---- what may happen

    @rule(sizes=SIZES, count=st.integers(1, 5), skew=st.integers(-300, 300))
    def append(self, sizes: list[int], count: int, skew: int) -> None:
        twin = self.twin
        twin.append(*sizes, count=count, max_timestamp=twin.at_ms + skew)

    @rule()
    def flush(self) -> None:
        self.twin.flush()

    @rule(how=st.sampled_from(["space", "write"]))
    def flush_fails(self, how: str) -> None:
        twin, disk = self.twin, self.twin.disk
        if twin.log._files.written_end == twin.log.log_end:
            return  # another job carried everything along already
        flush = twin.log.take_flush()
        if flush.end <= twin.log._files.written_end:
            twin.log.flush_failed(flush)
            return
        if how == "space":
            disk.capacity_bytes = disk.used_bytes + self.rng.randrange(70)
        else:
            disk.fail_writes(twin.directory)
        try:
            twin.log.write_flush(flush)
        except OSError:
            twin.log.flush_failed(flush)
        else:
            raise AssertionError("the write was to fail")
        disk.capacity_bytes = 1 << 40

    @rule()
    def sync(self) -> None:
        self.twin.sync()
        self.durable_start = self.trimmed

    @rule()
    def crash(self) -> None:
        self._reopen()

    @rule(operations=st.integers(0, 14), what=st.sampled_from(["flush", "sync", "trim"]))
    def power_loss(self, operations: int, what: str) -> None:
        twin = self.twin
        twin.disk.power_off_after(operations)
        try:
            if what == "flush":
                twin.flush()
            elif what == "sync":
                self.sync()
            else:
                twin.log.trim_job()()
        except PowerLoss:
            pass
        self._reopen()

    @rule(part=st.floats(0, 1))
    def trim(self, part: float) -> None:
        log = self.twin.log
        offset = int(log.log_start + part * (log.log_end - log.log_start))
        log.trim(offset)
        self.trimmed = max(self.trimmed, offset)

    @rule()
    def remove_trimmed(self) -> None:
        self.twin.log.trim_job()()
        assert not self.twin.log.needs_trim() or self.twin.log.unflushed_bytes

    @rule(part=st.floats(0, 1))
    def cut(self, part: float) -> None:
        twin = self.twin
        floor = max(twin.mark.log_end, self.trimmed)
        bases = [r.base for r in twin.rows if r.base >= floor] + [twin.log.log_end]
        offset = bases[int(part * (len(bases) - 1))]
        if offset < floor:
            return
        twin.log.cut_to(offset, floor)()
        twin.rows = [r for r in twin.rows if r.base < offset]
        twin.at_ms = max([twin.at_ms, *(r.at_ms for r in twin.rows)])

    @rule(again=st.booleans())
    def flipped_bit(self, again: bool) -> None:
        twin = self.twin
        self.sync()
        start = twin.log.log_start  # what is wholly below it may be gone after a crash
        segments = [s for s in twin.log._files.segments if s.size and s.end_offset > start]
        if not segments:
            return
        segment = self.rng.choice(segments)
        position = self.rng.randrange(segment.size)
        twin.disk.flip_bit(segment.log_path, position, self.rng.randrange(8))
        if again:
            self._reopen()
        damaged = self._scrub()
        assert len(damaged) == 1
        (damage,) = damaged
        try:
            twin.digest(segment.base_offset, segment.end_offset)
        except DamagedRange:
            pass
        else:
            raise AssertionError("damaged bytes were digested")
        inside = [r for r in twin.rows if damage.start_offset <= r.base < damage.end_offset]
        good = b"".join(r.data for r in inside)
        assert twin.log.repair_job(damage.start_offset, damage.end_offset, good)() == ()
        assert not self._scrub()

    def _scrub(self) -> list:
        job = self.twin.log.scrub_job
        while not job(1 << 30)().wrapped:
            pass
        return list(job(1 << 30)().damaged)

    def _reopen(self) -> None:
        twin = self.twin
        twin.reopen()
        assert twin.log.damage == []
        assert self.durable_start <= twin.log.log_start <= self.trimmed
        twin.log.trim(self.trimmed)

    # ---- what must hold

    @invariant()
    def same_reads(self) -> None:
        if not hasattr(self, "twin"):
            return
        twin = self.twin
        log = twin.log
        kept = [r for r in twin.rows if r.end > log.log_start]
        assert log.log_end == (twin.rows[-1].end if twin.rows else 0)
        for row in self.rng.sample(kept, min(4, len(kept))):
            offset = max(log.log_start, self.rng.randrange(row.base, row.end))
            bytes_max = self.rng.choice([0, 500, 20_000, 1 << 20])
            got = twin.read(offset, bytes_max)
            want = twin.expected(offset, bytes_max)
            assert got
            assert want.startswith(got)

    @invariant()
    def same_answers(self) -> None:
        if not hasattr(self, "twin") or self.rng.randrange(4):
            return
        twin = self.twin
        log = twin.log
        kept = [r for r in twin.rows if r.end > log.log_start]
        if not kept:
            return
        time_ms = self.rng.choice(kept).max_timestamp + self.rng.randrange(-2, 2)
        want = next((r for r in kept if r.max_timestamp >= time_ms), None)
        hit = log.find_time(time_ms)()
        assert (hit and (hit.base_offset, hit.batch)) == (want and (want.base, want.data))
        row = self.rng.choice(kept)
        before = b"".join(r.data for r in twin.rows if r.base < row.base)
        after = b"".join(r.data for r in twin.rows if r.base >= row.base)
        assert log.chain_job(row.base)() == crc32c(before)
        digest = hashlib.blake2b(after, digest_size=16).hexdigest()
        assert digest_of(log, row.base, log.log_end) == digest
        offset = log.find_log_time(row.at_ms)()
        assert all(r.at_ms < row.at_ms for r in kept if r.end <= offset)


LogMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestLogModel = LogMachine.TestCase
