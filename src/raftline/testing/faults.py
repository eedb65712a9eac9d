"""Faults by name, and the nemesis that lets them strike by the seed.

Each fault is one function: it strikes now, and may return how to end it. The nemesis chooses at
least five of different classes per run, where and when they strike and how long they last, and
counts them by class.

Limits, so that the promises are owed
    N1  Bytes are destroyed (wipes, flips, failed syncs) or cannot be read on one host per run
        only, the victim: a majority of every shard's disks keeps what it synced. Where a replica
        was moved away and back, and given up for its successor (B2 in node/seats.py), the victim
        keeps its disk until that one votes.
    N2  At the end everything is healed: the network whole, the clocks right, the disks working,
        every host running. A node that was told to leave has the time it takes.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from raftline.model.ids import NodeId, ReplicaId, node_of
from raftline.node.node import Node
from raftline.testing.sim_disk import CAPACITY_BYTES, DiskOdds
from raftline.testing.sim_net import QUIET, Noise

if TYPE_CHECKING:
    from raftline.node.replica import Replica
    from raftline.testing.cluster import SimCluster
    from raftline.testing.hosts import SimHost
    from raftline.testing.workload import Workload
    from raftline.testing.world import Process

Undo = Callable[[], None]
Strike = Callable[["Nemesis"], "Undo | None"]

LEAVE_ASK_MS = 500.0
SUPERVISOR_MS = 500.0  # after which a process that ended by itself is started again
FAULTS_MIN = 5
FAULTS_MAX = 10


class Nemesis:
    """Chooses, strikes, counts and heals."""

    def __init__(
        self,
        cluster: "SimCluster",
        workload: "Workload",
        rng: random.Random,
        classes: dict[str, Strike] | None = None,
    ) -> None:
        self.cluster = cluster
        self.workload = workload
        self.rng = rng
        self.counts: dict[str, int] = {}
        self.lines: list[str] = []  # what struck when, for the report of a failure
        self.over = False
        self.damaged = False
        self.leaving = ""  # the node that is to leave, until it is gone
        self._classes = classes or FAULTS
        # N1: the host whose disk may be hurt. Never one that joins later.
        hosts = list(cluster.hosts.values())
        self.victim = hosts[rng.randrange(len(hosts))]
        cluster.on_end.append(self._supervise)

    def schedule(self, start_ms: float, end_ms: float) -> None:
        """Plan the faults of a run."""
        rng = self.rng
        names = sorted(self._classes)
        rng.shuffle(names)
        count = min(len(names), rng.randrange(FAULTS_MIN, FAULTS_MAX + 1))
        for name in names[:count]:
            at_ms = start_ms + rng.random() * (end_ms - start_ms)
            self.cluster.world.at(at_ms, lambda name=name: self._try(name, end_ms))
        # Where too few could strike, those do that always can.
        self.cluster.world.at(end_ms, self._top_up)

    def crash_at_boot(self, at_ms: float) -> None:
        """Let one host lose its process or its power while the cluster is being founded."""
        host = self.some_host()
        strike = host.power_off if self.rng.randrange(2) else host.kill

        def crash() -> None:
            if host.running:
                self.lines.append(f"{self.cluster.now_ms:10.2f} fault: crash at boot")
                strike()
                self.cluster.world.after(300.0, lambda: self.start(host))

        self.cluster.world.at(at_ms, crash)

    def _try(self, name: str, end_ms: float) -> None:
        """Strike, or try again where the fault cannot happen now."""
        if not self.strike(name) and self.cluster.now_ms < end_ms:
            again_ms = 300.0 + self.rng.random() * 700.0
            self.cluster.world.after(again_ms, lambda: self._try(name, end_ms))

    def _top_up(self) -> None:
        for name in ("delay", "drop", "duplicate", "one-way cut", "clock jump"):
            if len(self.counts) < FAULTS_MIN and name in self._classes:
                self.strike(name)

    def strike(self, name: str) -> bool:
        """Let one fault happen now and end later; False if it cannot happen now."""
        if self.over:
            return False
        undo = self._classes[name](self)
        if undo is None:
            return False
        self.counts[name] = self.counts.get(name, 0) + 1
        self.lines.append(f"{self.cluster.now_ms:10.2f} fault: {name}")
        lasts_ms = 200.0 + self.rng.random() * self.rng.random() * 10_000.0
        self.cluster.world.after(lasts_ms, lambda: self._end(name, undo))
        return True

    def _end(self, name: str, undo: Undo) -> None:
        if not self.over:
            self.lines.append(f"{self.cluster.now_ms:10.2f} ended: {name}")
            undo()

    def heal(self) -> None:
        """End all faults and start what is down (N2)."""
        self.over = True
        self.cluster.heal()
        for host in self.cluster.hosts.values():
            host.disk.odds = DiskOdds()
            host.disk.capacity_bytes = CAPACITY_BYTES
            host.disk.power_off_after(-1)
            if not host.running:
                self.start(host)

    def start(self, host: "SimHost") -> None:
        """Start a host's process; if it does not come up, the supervisor tries again."""
        if not host.running and host.name in self.cluster.hosts:
            host.start()

    def let_leave(self, number: int = 0, version: int = 0) -> None:
        """Ask for the removal of the node that leaves until it goes, and wait until it is gone.

        It was node ``number`` in the catalog's ``version``: one that is older does not count.
        """
        cluster, name = self.cluster, self.leaving
        others = [h for h in cluster.hosts.values() if h.running and h.name != name]
        asked = others[self.rng.randrange(len(others))] if others else None
        if asked is not None and asked.node is not None:
            view = asked.node.catalog()
            row = next((row for row in view.nodes if row.name == name), None)
            if row is not None:
                number, version = row.id, max(version, view.version)
                if row.state != "leaving":
                    self.workload.command(asked, "cluster.remove", {"node": number})
            elif number and view.version > version:
                self.lines.append(f"{cluster.now_ms:10.2f} {name}: left")
                self.leaving = ""
                cluster.retire(name)
                return
        cluster.world.after(LEAVE_ASK_MS, lambda: self.let_leave(number, version))

    def _supervise(self, host: "SimHost", process: "Process", how: str) -> None:
        """Start again what ended by itself; a killed or dark host waits for its fault's end."""
        del process
        self.lines.append(f"{self.cluster.now_ms:10.2f} {host.name}: {how}")
        if host.name not in self.cluster.hosts:
            return  # it left
        if self.over or how not in ("killed", "power lost"):
            self.cluster.world.after(SUPERVISOR_MS, lambda: self.start(host))

    # Choices

    def some_host(self) -> "SimHost":
        """Return a host at random."""
        hosts = list(self.cluster.hosts.values())
        return hosts[self.rng.randrange(len(hosts))]

    def some_running(self) -> "SimHost | None":
        """Return a host that runs, often the leader of a partition."""
        hosts = [h for h in self.cluster.hosts.values() if h.running and not h.paused]
        if not hosts:
            return None
        host = hosts[self.rng.randrange(len(hosts))]
        if self.rng.randrange(2) and host.node is not None:
            rows = [row for t in host.node.catalog().topics for row in t.partitions if row.leader]
            if rows:
                number = rows[self.rng.randrange(len(rows))].leader
                for other in hosts:
                    if self.cluster.number_of(other.name) == number:
                        return other
        return host

    def other_than(self, host: "SimHost") -> "SimHost":
        """Return another host at random."""
        others = [h for h in self.cluster.hosts.values() if h is not host]
        return others[self.rng.randrange(len(others))]

    def few_down(self) -> bool:
        """Say whether another host may go down without taking a majority with it."""
        hosts = list(self.cluster.hosts.values())
        down = sum(1 for h in hosts if not h.running or h.paused)
        return down + 1 <= (len(hosts) - 1) // 2

    def leaves_majorities(self, host: "SimHost") -> bool:
        """Say whether without a host's disk each shard has a majority of its voters. N1."""
        running = [each.node for each in self.cluster.hosts.values()]
        nodes = {NodeId(node.id): node for node in running if isinstance(node, Node)}
        newest: dict[int, Replica] = {}
        for node in nodes.values():
            for replica in node.shards:
                known = newest.get(replica.shard)
                if known is None or replica.applied_index > known.applied_index:
                    newest[replica.shard] = replica
        for shard, replica in newest.items():
            for voters in (replica.conf.voters, replica.conf.voters_outgoing):
                homes = {voter: nodes.get(node_of(ReplicaId(voter))) for voter in voters}
                lost = [
                    voter
                    for voter, node in homes.items()
                    if node is not None and (node is host.node or node.shards.known(shard) != voter)
                ]
                if voters and len(lost) * 2 >= len(voters):
                    return False
        return True


# The network


def _noise(drop: float = 0.0, duplicate: float = 0.0, reorder: float = 0.0) -> Strike:
    def strike(nemesis: Nemesis) -> Undo:
        net = nemesis.cluster.net
        chance = nemesis.rng.random()
        noise = Noise(drop=drop * chance, duplicate=duplicate * chance, reorder=reorder * chance)
        names = list(nemesis.cluster.hosts)
        pairs = [(a, b) for a in names for b in names if a != b]
        if nemesis.rng.randrange(2):
            pairs = [pairs[nemesis.rng.randrange(len(pairs))]]
        for one, other in pairs:
            net.disturb(one, other, noise)

        def undo() -> None:
            for one, other in pairs:
                net.disturb(one, other, QUIET)

        return undo

    return strike


def _delay(nemesis: Nemesis) -> Undo:
    one = nemesis.some_host()
    other = nemesis.other_than(one)
    net = nemesis.cluster.net
    extra_ms = 1.0 + nemesis.rng.random() * nemesis.rng.random() * 300.0
    net.slow(one.name, other.name, extra_ms)
    net.slow(other.name, one.name, extra_ms)

    def undo() -> None:
        net.slow(one.name, other.name, 0.0)
        net.slow(other.name, one.name, 0.0)

    return undo


def _one_way_cut(nemesis: Nemesis) -> Undo:
    one = nemesis.some_host()
    other = nemesis.other_than(one)
    net = nemesis.cluster.net
    net.cut(one.name, other.name)
    return lambda: net.uncut(one.name, other.name)


def _partition(nemesis: Nemesis) -> Undo:
    """Cut one host (often a leader) off from all others, or only from one of them."""
    cluster = nemesis.cluster
    one = nemesis.some_running() or nemesis.some_host()
    others = [name for name in cluster.hosts if name != one.name]
    if nemesis.rng.randrange(3) == 0:
        others = others[:1]  # a bridge: the third host sees both
    for other in others:
        cluster.cut(one.name, other)

    def undo() -> None:
        for other in others:  # one that left meanwhile is no host any more
            cluster.net.uncut(one.name, other)
            cluster.net.uncut(other, one.name)

    return undo


def _broken_links(nemesis: Nemesis) -> Undo:
    """Reset the links of two hosts again and again."""
    one = nemesis.some_host()
    other = nemesis.other_than(one)
    cluster = nemesis.cluster
    on = [True]

    def again() -> None:
        if on[0] and not nemesis.over:
            cluster.net.break_links(one.name, other.name)
            cluster.world.after(100.0 + nemesis.rng.random() * 400.0, again)

    def undo() -> None:
        on[0] = False

    again()
    return undo


# Processes


def _pause(nemesis: Nemesis) -> Undo | None:
    host = nemesis.some_running()
    if host is None or not nemesis.few_down():
        return None
    host.pause()
    process = host.process

    def undo() -> None:
        if host.process is process:
            host.resume()

    return undo


def _kill(nemesis: Nemesis) -> Undo | None:
    host = nemesis.some_running()
    if host is None or not nemesis.few_down():
        return None
    host.kill()
    return lambda: nemesis.start(host)


def _power_loss(nemesis: Nemesis) -> Undo | None:
    host = nemesis.some_running()
    if host is None or not nemesis.few_down():
        return None
    host.power_off()
    return lambda: nemesis.start(host)


def _all_at_once(nemesis: Nemesis) -> Undo:
    """Every host loses its power at the same instant."""
    hosts = list(nemesis.cluster.hosts.values())
    for host in hosts:
        host.power_off()

    def undo() -> None:
        for host in hosts:
            nemesis.cluster.world.after(
                nemesis.rng.random() * 500.0, lambda host=host: nemesis.start(host)
            )

    return undo


def _torn_write(nemesis: Nemesis) -> Undo | None:
    """The power goes out inside a disk operation, perhaps during the recovery from that too."""
    host = nemesis.some_running()
    if host is None or not nemesis.few_down():
        return None
    host.disk.power_off_after(nemesis.rng.randrange(60))
    if nemesis.rng.randrange(2):
        host.power_off()
        host.disk.power_off_after(nemesis.rng.randrange(40))
        nemesis.start(host)
    return lambda: host.disk.power_off_after(-1)


# Disks


def files_of(host: "SimHost", wanted: Callable[[str], bool]) -> list[str]:
    """Return the paths of a host's files that are wanted, in order."""
    found: list[str] = []
    todo = [""]
    while todo:
        directory = todo.pop()
        for name in host.disk.listdir(directory):
            path = f"{directory}/{name}" if directory else name
            if wanted(path):
                found.append(path)
            todo.append(path)
    return sorted(found)


def _flip(wanted: Callable[[str], bool]) -> Strike:
    def strike(nemesis: Nemesis) -> Undo | None:
        """Turn one bit of a file; half of the time the process must read it at a start."""
        host = nemesis.victim
        written = [
            (path, size)
            for path in files_of(host, wanted)
            if (size := written_bytes(host, path)) > 0
        ]
        if not written or not nemesis.few_down():
            return None
        path, size = written[nemesis.rng.randrange(len(written))]
        nemesis.damaged = True
        host.disk.flip_bit(path, nemesis.rng.randrange(size), nemesis.rng.randrange(8))
        nemesis.lines.append(f"{nemesis.cluster.now_ms:10.2f} flipped a bit: {host.name}:{path}")
        if nemesis.rng.randrange(2):
            host.kill()
        return lambda: nemesis.start(host)

    return strike


def written_bytes(host: "SimHost", path: str) -> int:
    """Return the length of a file without the zeros at its end."""
    odds, host.disk.odds = host.disk.odds, DiskOdds()  # we are no client of a failing disk
    try:
        file = host.disk.open(path)
        data = file.read_at(0, file.size())
        file.close()
    finally:
        host.disk.odds = odds
    return len(data.rstrip(b"\0"))


def is_wal(path: str) -> bool:
    """Say whether a file belongs to the WAL."""
    return path.startswith("wal/")


def is_segment(path: str) -> bool:
    """Say whether a file is a segment or belongs to one."""
    return path.endswith((".log", ".sum", ".index", ".time"))


def is_checkpoint(path: str) -> bool:
    """Say whether a file is a checkpoint."""
    return "checkpoint" in path.rpartition("/")[2]


def _eio(nemesis: Nemesis) -> Undo | None:
    """Some reads fail for a while; sometimes writes do too."""
    host = nemesis.victim
    if not host.running or host.paused or not nemesis.few_down():
        return None
    write_eio = 2_000 if nemesis.rng.randrange(3) == 0 else 0
    host.disk.odds = DiskOdds(read_eio=100_000, write_eio=write_eio, cold_read=500_000)

    def undo() -> None:
        host.disk.odds = DiskOdds()

    return undo


def _failed_fsync(nemesis: Nemesis) -> Undo | None:
    host = nemesis.victim
    if not host.running or host.paused or not nemesis.few_down():
        return None
    host.disk.odds = DiskOdds(fdatasync_eio=20_000 + nemesis.rng.randrange(100_000))

    def undo() -> None:
        host.disk.odds = DiskOdds()

    return undo


def _disk_full(nemesis: Nemesis) -> Undo | None:
    host = nemesis.some_running()
    if host is None:
        return None
    host.disk.capacity_bytes = host.disk.used_bytes + nemesis.rng.randrange(100_000)

    def undo() -> None:
        host.disk.capacity_bytes = CAPACITY_BYTES

    return undo


def _slow_disk(nemesis: Nemesis) -> Undo | None:
    host = nemesis.some_running()
    if host is None:
        return None
    host.stall(100.0 + nemesis.rng.random() * 3_000.0)
    return lambda: None


# Clocks


def _clock_jump(nemesis: Nemesis) -> Undo:
    host = nemesis.some_host()
    by_ms = 10.0 ** (2.0 + nemesis.rng.random() * 4.6)  # 0.1 s to an hour
    host.wall.jump(by_ms if nemesis.rng.randrange(2) else -by_ms)
    return host.wall.true_up


def _clock_drift(nemesis: Nemesis) -> Undo:
    host = nemesis.some_host()
    host.wall.drift(0.5 + nemesis.rng.random())
    return host.wall.true_up


# Membership


def _add_node(nemesis: Nemesis) -> Undo | None:
    """A fourth node joins, and a replica moves to it."""
    cluster = nemesis.cluster
    if len(cluster.hosts) > 3 or not cluster.running:
        return None
    name = cluster.add_node()
    cluster.world.after(3_000.0, lambda: _move_to(nemesis, name))
    return lambda: None


def _move_to(nemesis: Nemesis, name: str) -> None:
    """Move a random replica to a node that has none of that shard."""
    cluster = nemesis.cluster
    asked = nemesis.some_running()
    if nemesis.over or asked is None or asked.node is None:
        return
    number = cluster.number_of(name)
    rows = [
        (topic.name, row)
        for topic in asked.node.catalog().topics
        for row in topic.partitions
        if number and number not in row.replicas and row.replicas
    ]
    if not rows:
        return
    topic, row = rows[nemesis.rng.randrange(len(rows))]
    arguments: dict[str, object] = {
        "topic": topic,
        "partition": row.partition,
        "from_node": row.replicas[nemesis.rng.randrange(len(row.replicas))],
        "to_node": number,
    }
    nemesis.workload.command(asked, "cluster.move", arguments)


def _move_replica(nemesis: Nemesis) -> Undo | None:
    cluster = nemesis.cluster
    if len(cluster.hosts) <= 3:
        return _add_node(nemesis)
    names = list(cluster.hosts)
    _move_to(nemesis, names[nemesis.rng.randrange(len(names))])
    return lambda: None


def _replace_wiped(nemesis: Nemesis) -> Undo | None:
    """One host loses its disk and comes back empty under its name."""
    host = nemesis.victim
    if nemesis.damaged or not nemesis.few_down() or not host.running:
        return None
    if not nemesis.leaves_majorities(host):
        return None
    nemesis.damaged = True
    host.wipe()
    return lambda: nemesis.start(host)


def _remove_node(nemesis: Nemesis) -> Undo | None:
    """A node joins, takes a replica, leads it perhaps, and leaves again."""
    cluster, rng = nemesis.cluster, nemesis.rng
    if nemesis.leaving or not cluster.running:
        return None
    names = list(cluster.hosts)
    if len(names) > 3:
        name = names[3]
    else:
        name = cluster.add_node()
        cluster.world.after(3_000.0, lambda: _move_to(nemesis, name))
    nemesis.leaving = name

    def lead() -> None:
        _let_lead(nemesis, name)

    if rng.randrange(2):
        cluster.world.after(3_500.0 + rng.random() * 5_000.0, lead)
    cluster.world.after(4_000.0 + rng.random() * 8_000.0, nemesis.let_leave)
    return lambda: None


def _transfer(nemesis: Nemesis) -> Undo | None:
    """Let any replica of a partition lead it."""
    return (lambda: None) if _let_lead(nemesis) else None


def _let_lead(nemesis: Nemesis, name: str = "") -> bool:
    """Ask for another leader of some partition, with a name for this one; say if there is any."""
    asked = nemesis.some_running()
    if asked is None or asked.node is None:
        return False
    number = nemesis.cluster.number_of(name) if name in nemesis.cluster.hosts else 0
    rows = [
        (topic.name, row)
        for topic in asked.node.catalog().topics
        for row in topic.partitions
        if not name or number in row.replicas
    ]
    if not rows:
        return False
    topic, row = rows[nemesis.rng.randrange(len(rows))]
    arguments: dict[str, object] = {
        "topic": topic,
        "partition": row.partition,
        "to_node": number or row.replicas[nemesis.rng.randrange(len(row.replicas))],
    }
    nemesis.workload.command(asked, "cluster.transfer", arguments)
    return True


FAULTS: dict[str, Strike] = {
    "add node": _add_node,
    "all at once": _all_at_once,
    "bit flip in a checkpoint": _flip(is_checkpoint),
    "bit flip in a segment": _flip(is_segment),
    "bit flip in the WAL": _flip(is_wal),
    "broken links": _broken_links,
    "clock drift": _clock_drift,
    "clock jump": _clock_jump,
    "delay": _delay,
    "disk full": _disk_full,
    "drop": _noise(drop=0.5),
    "duplicate": _noise(duplicate=0.5),
    "eio": _eio,
    "failed fsync": _failed_fsync,
    "kill": _kill,
    "move replica": _move_replica,
    "one-way cut": _one_way_cut,
    "partition": _partition,
    "pause": _pause,
    "power loss": _power_loss,
    "remove node": _remove_node,
    "reorder": _noise(reorder=0.5),
    "replace a wiped node": _replace_wiped,
    "slow disk": _slow_disk,
    "torn write": _torn_write,
    "transfer": _transfer,
}
"""Every class of fault by its name."""
