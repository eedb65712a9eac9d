"""Scripted runs: what a test tells happens, then the same checker judges."""

from raftline.testing.faults import files_of, written_bytes
from raftline.testing.history import Op
from raftline.testing.hosts import SimHost
from raftline.testing.sim import Plan, Report, Simulation
from raftline.testing.workload import WorkloadSettings

TOPIC = "orders"


class Story:
    """A booted cluster, clients whose calls are kept, and a verdict at the end."""

    def __init__(self, seed: int = 1, value_bytes_max: int = 160) -> None:
        workload = WorkloadSettings(value_bytes_max=value_bytes_max)
        plan = Plan(seconds=1.0, queue_operations=0, workload=workload)
        self.simulation = Simulation(seed, plan)
        self.cluster = self.simulation.cluster
        self.nemesis = self.simulation.nemesis
        assert self.simulation.boot()
        self.cluster.advance("1s")

    def append(self, count: int, partition: int = 0, via: str = "") -> list[Op]:
        """Send batches one after another; each ends before the next begins."""
        return [self._wait_append(partition, via) for _ in range(count)]

    def _wait_append(self, partition: int, via: str) -> Op:
        host = self.cluster.host(via) if via else self._some_host()
        op = self.simulation.workload.append(host, TOPIC, partition)
        self.cluster.run_until(lambda: bool(op.outcome), "20s")
        return op

    def read(self, via: str, offset: int, partition: int = 0) -> Op:
        """Read at the replica of one node."""
        host = self.cluster.host(via)
        op = self.simulation.workload.read(host, TOPIC, partition, offset, nearest=True)
        self.cluster.run_until(lambda: bool(op.outcome), "20s")
        return op

    def roles(self, partition: int = 0) -> tuple[str, str, str]:
        """Return the leader and the two followers of a partition."""
        leader = self.cluster.leader(TOPIC, partition)
        one, other = (name for name in self.cluster.nodes if name != leader)
        return leader, one, other

    def files(self, name: str, part: str) -> list[str]:
        """Return the paths of a host's files that contain ``part``, in order."""
        return files_of(self.cluster.host(name), lambda path: part in path)

    def fullest(self, name: str, part: str) -> str:
        """Return the file with the most bytes written (a spare one has none)."""
        host = self.cluster.host(name)
        return max(self.files(name, part), key=lambda path: written_bytes(host, path))

    def flip(self, name: str, path: str, at_ratio: float) -> None:
        """Turn one bit of a file, so far into what was written."""
        host = self.cluster.host(name)
        host.disk.flip_bit(path, int(written_bytes(host, path) * at_ratio), 3)

    def finish(self) -> Report:
        return self.simulation.finish()

    def _some_host(self) -> SimHost:
        return self.cluster.host(self.cluster.running[0])


def lose_a_bit_of_the_wal_and_the_leader(story: Story) -> Report:
    """A follower with a damaged WAL and one that was cut off are all that is left."""
    leader, kept, behind = story.roles()
    story.append(10)
    story.cluster.isolate(behind)
    acked = [op for op in story.append(30, via=leader) if op.outcome == "ok"]
    assert len(acked) == 30
    story.cluster.kill(leader)
    story.cluster.kill(kept)
    story.flip(kept, story.fullest(kept, "wal/"), 0.6)
    story.cluster.net.heal()
    story.cluster.start(kept)
    story.cluster.advance("5s")
    story.append(3, via=behind)
    return story.finish()


def read_a_damaged_segment(story: Story) -> Report:
    """One replica's segments are damaged and then read there."""
    _, damaged, _ = story.roles()
    ops = story.append(150)
    story.cluster.advance("15s")
    story.cluster.kill(damaged)
    for path in story.files(damaged, "/log/"):
        if path.endswith(".log"):
            for at in (0.15, 0.4, 0.8):
                story.flip(damaged, path, at)
    story.cluster.start(damaged)
    story.cluster.advance("200ms")
    for op in ops[::10]:
        story.read(damaged, op.offset)
    return story.finish()


def cut_off_a_leader_for_longer_than_a_call_waits(story: Story) -> Report:
    """Its appends reach nobody, and nobody tells it that another leads now."""
    leader, *_ = story.roles()
    story.append(3)
    workload, host = story.simulation.workload, story.cluster.host(leader)
    story.cluster.isolate(leader)
    for partition in range(3):
        workload.append(host, TOPIC, partition)
    story.cluster.advance("12s")
    story.cluster.net.heal()
    story.cluster.advance("2s")
    return story.finish()


def fill_the_wal_beside_a_still_shard(story: Story) -> Report:
    """A shard has entries in an old WAL file, another fills many; then the power goes."""
    story.append(1, partition=1)
    story.append(34, partition=0)  # several WAL files, too few to press for checkpoints
    story.cluster.advance("500ms")
    story.cluster.power_off_all()
    for name in story.cluster.nodes:
        story.cluster.start(name)
    story.cluster.advance("3s")
    return story.finish()


def wipe_a_follower_and_lose_the_leader(story: Story) -> Report:
    """The only copies beside the leader's are on a disk that is wiped and one that was cut off."""
    leader, wiped, behind = story.roles()
    story.append(10)
    story.cluster.isolate(behind)
    acked = [op for op in story.append(20, via=leader) if op.outcome == "ok"]
    assert len(acked) == 20
    story.cluster.kill(leader)
    story.cluster.wipe(wiped)
    story.cluster.net.heal()
    story.cluster.start(wiped)
    story.cluster.advance("5s")
    story.append(3, via=behind)
    return story.finish()


def ack_alone_and_lose_the_leader(story: Story) -> Report:
    """A leader that is cut off from both followers dies, and they go on without it."""
    leader, one, _ = story.roles()
    story.append(10)
    story.cluster.isolate(leader)
    lost = [op for op in story.append(2, via=leader) if op.outcome == "ok"]
    story.cluster.kill(leader)
    story.cluster.net.heal()
    story.cluster.advance("3s")
    story.append(5, via=one)
    if lost:  # where the bug acknowledged them, raft is broken: the old leader would storm
        del story.cluster.hosts[leader]
    return story.finish()
