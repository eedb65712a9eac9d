"""A damaged range of a log is refilled from other replicas, also if that cannot be done at once."""

import msgspec
import pytest

import raftline.testing
from raftline.config.settings import Settings
from raftline.model.errors import Damaged
from raftline.node import repairs
from raftline.testing import sim_net
from raftline.testing.cluster import SimCluster, sim_settings
from tests.unit.node.whole import host

VALUES = [b"%04d" % i * 20 for i in range(50)]
LARGE = [b"%04d" % i * 5_000 for i in range(40)]  # 800 KB, not compressed


def flip(c: SimCluster, name: str, via: str = "") -> None:
    """Turn a bit of what is written out of t/0 on a node."""
    disk = c.host(name).disk
    shard = c.partitions("t", via=via or name)[0].shard
    folder = f"shards/{shard}/log"
    (path,) = [f"{folder}/{file}" for file in disk.listdir(folder) if file.endswith(".log")]
    disk.flip_bit(path, 100)


def events(c: SimCluster, name: str, event: str) -> list[str]:
    return [line for line in c.log_lines(1_000) if f"{name} " in line and f" {event} " in line]


def filled(c: SimCluster) -> None:
    c.create_topic("t", partitions=1)
    c.append("t", VALUES)
    c.advance("10s")  # written out, and checkpointed


def test_damage_found_while_nobody_can_be_asked_is_repaired_once_somebody_can() -> None:
    settings = sim_settings()
    log = msgspec.structs.replace(settings.log, scrub_bytes_per_second=0)
    settings = msgspec.structs.replace(settings, log=log)
    with raftline.testing.cluster(nodes=3, seed=31, settings=settings) as c:
        filled(c)
        c.kill("node-1")
        flip(c, "node-1", via="node-2")
        c.restart("node-1")
        c.wait_ready()
        c.isolate("node-1")
        c.advance("3s")
        with pytest.raises(Damaged):
            c.read("t", 0, 0, via="node-1", any_replica=True)
        c.advance("10s")
        assert len(events(c, "node-1", "log.no_source")) == 1  # said once, not at every try
        c.heal()
        c.run_until(lambda: bool(events(c, "node-1", "log.repaired")), "31s")
        assert len(events(c, "node-1", "log.damaged")) == 1  # nobody had to find it again
        assert c.verify().identical


def test_a_node_that_is_down_costs_no_replica_its_place() -> None:
    with raftline.testing.cluster(nodes=3, seed=32) as c:
        filled(c)
        c.kill("node-3")
        c.advance("2s")
        flip(c, "node-1")
        flip(c, "node-2")  # node-3 alone has those bytes
        for name in ("node-1", "node-2"):
            c.run_until(lambda name=name: bool(events(c, name, "log.damaged")), "60s")
        c.advance("60s")
        assert c.append("t", [b"more"]).count == 1  # both are still in service
        c.restart("node-3")
        c.advance("70s")
        assert [m.value for m in c.read_all("t")] == [*VALUES, b"more"]
        assert c.verify().identical
        for name in ("node-1", "node-2"):
            assert events(c, name, "log.repaired")
            assert events(c, name, "replica.quarantined") == []


def lose_segment(c: SimCluster, name: str) -> None:
    """Take all that a node wrote of t/0: the bytes, the sums and the indexes."""
    shard = c.partitions("t", via="node-2")[0].shard
    c.kill(name)
    disk, folder = c.host(name).disk, f"shards/{shard}/log"
    for file in disk.listdir(folder):
        disk.remove(f"{folder}/{file}")
    disk.sync_dir(folder)
    c.restart(name)
    c.wait_ready()


def large_segments() -> Settings:
    """Return settings with which all of LARGE is one segment."""
    settings = sim_settings()
    log = msgspec.structs.replace(settings.log, segment_bytes=8 << 20)
    return msgspec.structs.replace(settings, log=log)


def fill_large(c: SimCluster) -> None:
    for value in LARGE:
        c.append("t", [value])
    c.advance("10s")


def is_mended(c: SimCluster) -> None:
    c.run_until(lambda: bool(events(c, "node-1", "log.repaired")), "60s")
    assert events(c, "node-1", "replica.quarantined") == []
    assert c.verify().identical


def test_a_range_larger_than_a_frame_is_repaired_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment of 128 MiB, lost with its indexes, is one range: it ended who was asked for it."""
    with raftline.testing.cluster(nodes=3, seed=33, settings=large_segments()) as c:
        c.create_topic("t", partitions=1)
        fill_large(c)
        lose_segment(c, "node-1")
        monkeypatch.setattr(sim_net, "FRAME_BYTES_MAX", 200_000)
        monkeypatch.setattr(repairs, "PIECE_BYTES", 100_000)
        is_mended(c)


def test_a_range_is_repaired_by_those_whose_segments_begin_elsewhere() -> None:
    with raftline.testing.cluster(nodes=3, seed=34, settings=large_segments()) as c:
        c.create_topic("t", partitions=1)
        c.advance("2s")
        for name in ("node-2", "node-3"):
            host(c, name, "t").log.limit_segments(100_000)
        fill_large(c)
        lose_segment(c, "node-1")
        is_mended(c)
