"""What a replica acknowledged and lost: the one damage of the WAL that looks like a torn end."""

import raftline.testing
from raftline.testing.cluster import SimCluster
from raftline.testing.faults import files_of, is_wal, written_bytes
from tests.unit.node.whole import lead, replica


def spoil_the_last_group(c: SimCluster, name: str) -> None:
    """Turn a bit in the last frame that the WAL of a node holds."""
    host = c.host(name)
    path = [path for path in files_of(host, is_wal) if written_bytes(host, path) > 512][-1]
    host.disk.flip_bit(path, written_bytes(host, path) - 5)


def events(c: SimCluster, name: str, event: str) -> list[str]:
    return [line for line in c.log_lines(2_000) if f"{name} " in line and f" {event} " in line]


def test_a_replica_that_lost_an_entry_its_leader_counts_on_comes_back_under_a_new_number() -> None:
    """The last group was synced, acknowledged, and damaged before anything was written after it.

    Recovery takes it for torn and cuts it. The leader goes on from the entry that it was told is
    there, and the replica can never take what comes after. It must neither stay behind for ever
    nor have the link closed, on which all the other shards depend, at every heartbeat.
    """
    with raftline.testing.cluster(nodes=3, seed=51) as c:
        c.create_topic("t", partitions=1)
        c.append("t", [b"one"])
        c.advance("2s")
        leader, (follower, _) = lead(c, "t")
        number = replica(c, follower, "t").id
        c.append("t", [b"two" * 50])
        known = replica(c, leader, "t").raft
        c.run_until(lambda: known.progress[number].match == known.last_index)
        c.kill(follower)
        spoil_the_last_group(c, follower)
        c.append("t", [b"three"], via=leader)
        c.restart(follower)
        c.run_until(lambda: bool(events(c, follower, "replica.quarantined")), "2s")
        assert known.progress[number].match > 0  # it led all the time
        c.append("t", [b"four"], via=leader)
        c.advance("15s")
        assert not events(c, follower, "link.bad_frame")
        assert replica(c, follower, "t").id > number
        assert c.verify().identical
