"""The tape holds the committed log of every partition, whoever applied it."""

from raftline.machines.partition.commands import APPEND_TAG, decode_append
from raftline.testing.cluster import SimCluster, production_node
from raftline.testing.tape import Tape


def test_the_tape_has_every_append_once_through_a_failover() -> None:
    tape = Tape()
    cluster = SimCluster(3, 7, build=tape.record(production_node))
    for name in cluster.nodes:
        cluster.start(name)
    cluster.wait_ready()
    cluster.create_topic("orders", 1)
    for i in range(3):
        cluster.append("orders", [b"a%d" % i, b"b%d" % i])
    gone = cluster.kill_leader("orders")
    cluster.advance("2s")
    cluster.append("orders", [b"last"])
    cluster.restart(gone)
    cluster.advance("5s")
    (row,) = next(t for t in cluster.catalog().topics if t.name == "orders").partitions
    entries = tape.entries(row.shard)
    assert [index for index, _, _ in entries] == sorted(index for index, _, _ in entries)
    appends = [decode_append(data) for _, _, data in entries if data[:1] == bytes([APPEND_TAG])]
    assert sum(count for view in appends for _, count, *_ in view.rows) == row.commit_end == 7
    assert tape.conflicts == []


def test_replicas_that_apply_different_entries_are_a_conflict() -> None:
    tape = Tape()
    tape.note(2, 5, 1, b"one")
    tape.note(2, 5, 1, b"one")
    assert tape.conflicts == []
    tape.note(2, 5, 1, b"other")
    assert len(tape.conflicts) == 1
    assert tape.entries(2) == [(5, 1, b"one")]
