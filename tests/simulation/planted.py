"""Bugs planted into the production code, one context manager each.

Each breaks one promise in the way a plausible mistake would: the checker must name that promise.
``BUGS`` says for each which promises are the right answer, and which faults make it show.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from raftline.testing.sim_disk import SimDisk

Plant = Callable[[], Any]


@contextmanager
def skip_fsync() -> Generator[None]:
    """Every fdatasync returns at once and does nothing (P1)."""
    real = SimDisk.__init__

    def lying(self: SimDisk, *words: Any, **named: Any) -> None:
        real(self, *words, **named)
        self.lies = True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimDisk, "__init__", lying)
        yield


@contextmanager
def ack_before_majority() -> Generator[None]:
    """The leader counts itself as a majority (P1)."""
    from raftline.raft import state

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "majority_index", lambda indexes: max(indexes, default=1 << 62))
        yield


@contextmanager
def vote_twice_after_a_wipe() -> Generator[None]:
    """A node that lost votes and log takes up its replicas under their old numbers (P1)."""
    from raftline.storage.wal_recovery import _Recovery

    real = SimDisk.wipe

    def wipe(self: SimDisk) -> None:
        kept = {"identity.json": _content(self, "identity.json")}
        for shard in self.listdir("shards"):
            path = f"shards/{shard}/checkpoint"
            kept[path] = _content(self, path)
        real(self)
        for path, data in kept.items():
            directory = path.rpartition("/")[0]
            self.mkdir(directory)
            file = self.open(path, create=True)
            file.write_at(0, [data])
            file.fdatasync()
            file.close()
            self.sync_dir(directory)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimDisk, "wipe", wipe)
        patch.setattr(_Recovery, "doubt_all", lambda self, reason: None)
        yield


def _content(disk: SimDisk, path: str) -> bytes:
    file = disk.open(path)
    data = file.read_at(0, file.size())
    file.close()
    return data


@contextmanager
def reuse_an_offset() -> Generator[None]:
    """Now and then a caller is told the offset of the batch before (P3)."""
    from raftline.node.partition import PartitionHost

    real = PartitionHost._answer
    last: list[int] = [0, 0]

    def answer(self: Any, proposal: Any, result: Any) -> None:
        last[0] += 1
        if last[0] % 40 == 0:
            outcomes = [last[1] if type(o) is int else o for o in result.outcomes]
            result = msgspec.structs.replace(result, outcomes=outcomes)
        elif type(result.outcomes[-1]) is int:
            last[1] = result.outcomes[-1]
        real(self, proposal, result)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartitionHost, "_answer", answer)
        yield


@contextmanager
def store_a_repeat_again() -> Generator[None]:
    """A repeated sequence is not recognised (P3)."""
    from raftline.machines.partition.producers import Producers

    real = Producers.admit

    def admit(self: Producers, *words: Any) -> Any:
        verdict = real(self, *words)
        return -1 if isinstance(verdict, int) else verdict

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Producers, "admit", admit)
        yield


@contextmanager
def serve_a_bad_crc() -> Generator[None]:
    """Checksums of segments are not looked at (P11)."""
    from raftline.storage import log_files
    from raftline.storage.sums import SumTable

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SumTable, "check", lambda self, chunk, data: True)
        patch.setattr(log_files, "check_batches", lambda view, offset: None)
        yield


@contextmanager
def cut_acked_entries_as_a_torn_tail() -> Generator[None]:
    """Recovery takes any damage of the WAL for a torn tail (P1)."""
    from raftline.storage.wal_recovery import _Recovery

    real = _Recovery._take

    def take(self: Any, scan: Any, found: Any) -> bool:
        self._stated = 0
        return real(self, scan, found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Recovery, "_synced", lambda self: 0)
        patch.setattr(_Recovery, "_take", take)
        yield


@contextmanager
def recycle_a_pinned_wal_file() -> Generator[None]:
    """WAL files are recycled although shards still need them (P1)."""
    from raftline.storage.wal_pins import Pins

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pins, "count", lambda self, generation: 0)
        yield


@contextmanager
def skip_an_entry_on_one_replica() -> Generator[None]:
    """One node does not apply every entry (P2)."""
    from raftline.node.partition import PartitionHost

    real = PartitionHost.apply

    def apply(self: Any, entry: Any, proposal: Any) -> None:
        node = self.replica.id >> 24
        if node == 2 and proposal is None and entry.index % 30 == 7:
            return
        real(self, entry, proposal)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartitionHost, "apply", apply)
        yield


@contextmanager
def never_answer_the_overdue() -> Generator[None]:
    """An append that is not committed in time is never answered (P10)."""
    from raftline.node.appends import AppendProposal

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AppendProposal, "expire", lambda self, now_ms: False)
        yield


@contextmanager
def refuse_to_forward() -> Generator[None]:
    """A node that does not lead sends the caller away (P9)."""
    from raftline.model.errors import NotLeader
    from raftline.node.append_calls import AppendCalls

    def elsewhere(self: Any, topic: str, partition: int, *words: Any) -> None:
        done = words[-2]  # before the side car
        done(NotLeader(f"{topic}/{partition}"))

    real = AppendCalls._elsewhere

    def append_elsewhere(self: Any, topic: str, partition: int, *words: Any) -> None:
        if topic.startswith("orders") and self._node.catalog_machine.topics.get(topic):
            elsewhere(self, topic, partition, *words)
        else:
            real(self, topic, partition, *words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AppendCalls, "_elsewhere", append_elsewhere)
        yield
