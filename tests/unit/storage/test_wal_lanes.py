"""The WAL as a node uses it: real files, a sync lane and a segment lane, several groups ahead."""

import asyncio

from raftline.node.lanes import ThreadLane
from raftline.raft.rpc import Entry
from raftline.storage.os_disk import OsDisk
from raftline.storage.wal import Group, Wal, WalIdentity, WalSettings

ME = WalIdentity("", "dir")
SMALL = WalSettings(file_bytes=16_384, bytes_max=1 << 20)
GROUPS = 400
AHEAD = 3


class Turns:
    """Keeps a few groups under way, checkpoints behind, recycles files."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wal: Wal) -> None:
        self.loop = loop
        self.wal = wal
        self.sync = ThreadLane(loop, "sync")
        self.segment = ThreadLane(loop, "segment")
        self.taken = self.written = 0
        self.files_max = 0
        self.errors: list[BaseException] = []
        self.is_tidying = False

    def run(self) -> None:
        self.turn()
        self.loop.run_forever()
        self.sync.close()
        self.segment.close()

    def turn(self) -> None:
        while self.taken < GROUPS and self.taken - self.written < AHEAD:
            self.taken += 1
            self.wal.add_hard_state(1, 1, 1, self.written)
            self.wal.add_entries(1, [Entry(self.taken, 1, 0, b"%d," % self.taken * 400)])
            group = self.wal.take_group()
            assert group is not None
            self.sync.submit(
                lambda group=group: self.wal.write_group(group),
                lambda _, error, group=group: self.done(group, error),
            )
        if self.written == GROUPS or self.errors:
            self.loop.stop()

    def done(self, group: Group, error: BaseException | None) -> None:
        if error is not None:
            self.errors.append(error)
        self.written += 1
        self.wal.group_written(group)
        self.wal.checkpointed(1, self.written - 10)
        self.files_max = max(self.files_max, self.wal.file_count)
        self.tidy()
        self.turn()

    def tidy(self) -> None:
        if self.is_tidying:
            return
        job = self.wal.release_job() or (self.wal.prepare_spare if self.wal.needs_spare else None)
        if job is not None:
            self.is_tidying = True
            self.segment.submit(job, self.tidied)

    def tidied(self, _: None, error: BaseException | None) -> None:
        self.is_tidying = False
        if error is not None:
            self.errors.append(error)


def test_groups_flow_through_two_lanes_and_files_are_used_again(tmp_path):
    disk = OsDisk(str(tmp_path))
    wal, _ = Wal.open(disk, "wal", ME, SMALL, {})
    loop = asyncio.new_event_loop()
    turns = Turns(loop, wal)
    turns.run()
    loop.close()
    assert turns.errors == []
    wal.check()
    wal.close()
    assert turns.files_max < 12  # 400 groups fill some 60 files
    floor = GROUPS - 10
    _, recovered = Wal.open(disk, "wal", ME, SMALL, {1: (floor, 1)})
    shard = recovered.shards[1]
    assert not shard.damage
    assert [e.index for e in shard.entries] == list(range(floor + 1, GROUPS + 1))
    assert all(e.data == b"%d," % e.index * 400 for e in shard.entries)
