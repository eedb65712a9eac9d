"""A simulated cluster: production nodes in this process, a clock you move, faults you ask for.

::

    import raftline.testing

    with raftline.testing.cluster(nodes=3, seed=7) as c:
        c.append("orders", [b"one", b"two"])
        c.kill_leader("orders", 0)
        c.append("orders", [b"three"])
        c.advance("30s")
        assert [m.value for m in c.read_all("orders")] == [b"one", b"two", b"three"]

Nothing here takes real time: a call runs the world until its answer is there. The same seed and
the same calls give the same run, to the last byte.
"""

import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import msgspec

from raftline.config.settings import KIB, MIB, Settings
from raftline.model.batch import PLACE, check_batch, split_batches
from raftline.model.calls import (
    Appended,
    CatalogView,
    ClusterStatus,
    Looked,
    PartitionRow,
    ReadReply,
    Verified,
)
from raftline.model.errors import RaftlineError
from raftline.model.groups import Answer, Request
from raftline.testing.batches import SimMessage, open_batches, seal
from raftline.testing.hosts import Build, Parts, SimHost
from raftline.testing.sim_net import QUIET, NetSettings, Noise, SimNet
from raftline.testing.world import Process, World

if TYPE_CHECKING:
    import random

    from raftline.testing.hosts import Program

A = TypeVar("A")

CALL_TIMEOUT = "5s"
READY_WITHIN = "10s"
GRACE_MS = 1_000.0  # a call that is not answered this long after its timeout never will be
_READ_BYTES = 1 * MIB
_COUNT = struct.Struct(">i")
_COUNT_FROM = 57  # of a batch's head
_UNITS_MS = {"ms": 1.0, "s": 1_000.0, "m": 60_000.0, "h": 3_600_000.0, "d": 86_400_000.0}


class SimError(Exception):
    """The simulated cluster cannot do what was asked; the text says why and what to do."""


def duration_ms(text: str | float) -> float:
    """Return milliseconds: "30s", "500ms", "5m", "1h", "2d", or a number of seconds."""
    if isinstance(text, int | float):
        return float(text) * 1_000.0
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        return float(number) * _UNITS_MS[text[len(number) :]]
    except (KeyError, ValueError):
        raise SimError(f"{text!r} is not a duration: write 500ms, 30s, 5m, 1h or 2d") from None


def production_node(parts: Parts) -> "Program":
    """Build the production node on simulated parts."""
    from raftline.node.node import Node  # noqa: PLC0415 - the world does not need it

    return Node(
        parts.clock,
        parts.rng,
        parts.disk,
        parts.sync_lane,
        parts.segment_lane,
        parts.network,
        parts.settings,
        parts.log,
    )


def sim_settings(base: Settings | None = None) -> Settings:
    """Return settings with small files, so that a short run rolls, recycles and checkpoints."""
    base = base or Settings()
    replace = msgspec.structs.replace
    return replace(
        base,
        wal=replace(base.wal, file_bytes=1 * MIB, bytes_max=8 * MIB),
        log=replace(
            base.log,
            segment_bytes=64 * KIB,
            checkpoint_bytes=64 * KIB,
            checkpoint_ms=5_000,
            flush_bytes=16 * KIB,
            tail_bytes=64 * KIB,
            scrub_bytes_per_second=256 * KIB,
        ),
        topics=replace(base.topics, partitions=3),
    )


class SimCluster:
    """Hosts, the network between them, and the world they live in. See the module."""

    def __init__(
        self,
        nodes: int = 3,
        seed: int = 7,
        *,
        settings: Settings | None = None,
        build: Build = production_node,
        net: NetSettings | None = None,
    ) -> None:
        if nodes < 1:
            raise SimError(f"a cluster has at least one node, {nodes} were asked for")
        self.world = World(seed)
        self.net = SimNet(self.world, self.world.fork_rng(), net)
        self.rng: random.Random = self.world.fork_rng()
        self.hosts: dict[str, SimHost] = {}
        self._retired: list[SimHost] = []  # of nodes that left
        self.on_end: list[Callable[[SimHost, Process, str], None]] = []  # told of ended processes
        self._settings = settings or sim_settings()
        self._build = build
        peers = {_name(i): _address(i) for i in range(1, nodes + 1)}
        for i in range(1, nodes + 1):
            self._add_host(i, peers=peers, join="")

    # Time

    @property
    def now_ms(self) -> float:
        """Return the instant of the world, in milliseconds since it began."""
        return self.world.now_ms

    def advance(self, duration: str | float) -> None:
        """Let time pass."""
        self.world.run_to(self.world.now_ms + duration_ms(duration))

    def run_until(self, done: Callable[[], bool], within: str | float = "10s") -> None:
        """Let time pass until ``done()``; raises SimError if that takes longer than ``within``."""
        limit_ms = self.world.now_ms + duration_ms(within)
        if not self.world.run_until(done, limit_ms):
            raise SimError(f"not so within {within}; {self._describe()}")

    # Nodes

    @property
    def nodes(self) -> list[str]:
        """Return the names of all hosts."""
        return list(self.hosts)

    @property
    def running(self) -> list[str]:
        """Return the names of the hosts whose process runs and is not paused."""
        return [h.name for h in self.hosts.values() if h.running and not h.paused]

    def host(self, name: str) -> SimHost:
        """Return a host by its name."""
        host = self.hosts.get(name)
        if host is None:
            raise SimError(f"there is no node {name!r}; there are {', '.join(self.hosts)}")
        return host

    def start(self, name: str) -> None:
        """Start (or restart) the process of a node. Raises SimError if it refuses."""
        host = self.host(name)
        if host.running:
            raise SimError(f"{name} runs already")
        if not host.start():
            raise SimError(f"{name} did not start: {host.refusal or host.ends[-1]}")

    restart = start

    def stop(self, name: str, within: str | float = "10s") -> None:
        """Let a node end in good order."""
        host = self.host(name)
        if host.node is None:
            return
        ended: list[bool] = []
        host.node.stop(lambda: ended.append(True))
        self.run_until(lambda: bool(ended) or not host.running, within)
        host.kill()

    def kill(self, name: str) -> None:
        """End a process as kill -9 does; what it had written stays readable."""
        self.host(name).kill()

    def power_off(self, name: str) -> None:
        """Take a host's power: unsynced bytes are lost or torn."""
        self.host(name).power_off()

    def power_off_all(self) -> None:
        """Take the power of every host at the same instant."""
        for host in self.hosts.values():
            host.power_off()

    def wipe(self, name: str) -> None:
        """End a node and replace its disk by an empty one."""
        self.host(name).wipe()

    def pause(self, name: str) -> None:
        """Stop a process as SIGSTOP does, until ``resume``."""
        self.host(name).pause()

    def resume(self, name: str) -> None:
        """Let a stopped process go on."""
        self.host(name).resume()

    def kill_leader(self, topic: str, partition: int = 0) -> str:
        """Kill the node that leads a partition; return its name."""
        name = self.leader(topic, partition)
        self.kill(name)
        return name

    def add_node(self) -> str:
        """Start one more node, which joins the cluster; return its name."""
        join = next((h.address for h in self.hosts.values() if h.running), "")
        if not join:
            raise SimError("no node runs that a new one could join: start one")
        made = len(self.hosts) + len(self._retired)
        host = self._add_host(made + 1, peers={}, join=join)
        self.start(host.name)
        return host.name

    def retire(self, name: str) -> None:
        """Take a host away for good: its node has left the cluster."""
        host = self.host(name)
        del self.hosts[name]
        self._retired.append(host)
        host.kill()

    # Faults of the network

    def cut(self, one: str, other: str, *, both_ways: bool = True) -> None:
        """Let nothing through from ``one`` to ``other`` (and back)."""
        self.net.cut(self.host(one).name, self.host(other).name)
        if both_ways:
            self.net.cut(other, one)

    def uncut(self, one: str, other: str, *, both_ways: bool = True) -> None:
        """Take away what ``cut`` did."""
        self.net.uncut(self.host(one).name, self.host(other).name)
        if both_ways:
            self.net.uncut(other, one)

    def isolate(self, name: str) -> None:
        """Cut a node off from all others."""
        for other in self.hosts:
            if other != name:
                self.cut(name, other)

    def disturb(self, *, drop: float = 0.0, duplicate: float = 0.0, reorder: float = 0.0) -> None:
        """Drop, double or let overtake Raft frames everywhere, with these chances."""
        noise = Noise(drop=drop, duplicate=duplicate, reorder=reorder)
        for one in self.hosts:
            for other in self.hosts:
                if one != other:
                    self.net.disturb(one, other, noise if drop + duplicate + reorder else QUIET)

    def heal(self) -> None:
        """End every fault: the network is whole, processes run, clocks are right, disks work."""
        self.net.heal()
        for host in self.hosts.values():
            host.resume()
            host.wall.true_up()

    # Calls (any node takes any call)

    def append(
        self,
        topic: str,
        values: Sequence[bytes],
        partition: int = 0,
        *,
        via: str = "",
        timestamps_ms: Sequence[int] | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        timeout: str | float = CALL_TIMEOUT,
    ) -> Appended:
        """Store ``values`` as one batch. Raises the node's RaftlineError."""
        host = self._via(via)
        batch = seal(
            values,
            timestamps_ms or [host.wall.now_ms()] * len(values),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
        timeout_ms = int(duration_ms(timeout))
        return self._wait(
            host,
            timeout_ms,
            lambda node, done: node.append(
                topic, partition, batch, check_batch(batch), timeout_ms, done
            ),
        )

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        via: str = "",
        any_replica: bool = False,
        linearizable: bool = False,
        timeout: str | float = CALL_TIMEOUT,
    ) -> ReadReply:
        """Read whole batches from the one that holds ``offset`` on."""
        timeout_ms = int(duration_ms(timeout))
        return self._wait(
            self._via(via),
            timeout_ms,
            lambda node, done: node.read(
                topic,
                partition,
                offset,
                _READ_BYTES,
                0,
                timeout_ms,
                done,
                linearizable=linearizable,
                any_replica=any_replica,
            ),
        )

    def read_all(
        self,
        topic: str,
        partition: int | None = None,
        *,
        via: str = "",
        any_replica: bool = False,
    ) -> list[SimMessage]:
        """Return every message of a topic or of one of its partitions, in offset order."""
        partitions = (
            [row.partition for row in self.partitions(topic, via)]
            if partition is None
            else [partition]
        )
        found: list[SimMessage] = []
        for number in partitions:
            for reply in self.replies(topic, number, via=via, any_replica=any_replica):
                found += [
                    m for m in open_batches(reply.batches, number) if m.offset >= reply.log_start
                ]
        return found

    def replies(
        self, topic: str, partition: int, *, via: str = "", any_replica: bool = False
    ) -> Iterator[ReadReply]:
        """Read a partition from its start to its end, reply by reply."""
        offset = -1
        while True:
            at = max(offset, 0)
            try:
                reply = self.read(topic, partition, at, via=via, any_replica=any_replica)
            except RaftlineError as error:
                start = error.extras.get("log_start")
                if error.code != "offset_out_of_range" or not isinstance(start, int) or offset >= 0:
                    raise
                offset = start
                continue
            yield reply
            if not reply.batches:
                return
            offset = _end_of(reply.batches)
            if offset >= reply.commit_end:
                return

    def look_up_time(
        self,
        topic: str,
        partition: int,
        time_ms: int,
        *,
        via: str = "",
        timeout: str | float = CALL_TIMEOUT,
    ) -> Looked:
        """Find the first message at or after a moment."""
        timeout_ms = int(duration_ms(timeout))
        return self._wait(
            self._via(via),
            timeout_ms,
            lambda node, done: node.look_up_time(topic, partition, time_ms, timeout_ms, done),
        )

    def command(
        self, name: str, *, via: str = "", timeout: str | float = "10s", **arguments: object
    ) -> dict[str, object]:
        """Run an administrative command, such as ``cluster.transfer``."""
        timeout_ms = int(duration_ms(timeout))
        return self._wait(
            self._via(via),
            timeout_ms,
            lambda node, done: node.command(name, arguments, timeout_ms, done),
        )

    def group(self, request: Request, *, via: str = "", timeout: str | float = "10s") -> Answer:
        """Ask the coordinator of a stream group."""
        timeout_ms = int(duration_ms(timeout))

        def ask(node: "Program", done: Callable[[Answer | RaftlineError], None]) -> None:
            node.group(request, timeout_ms, done)

        return self._wait(self._via(via), timeout_ms, ask)

    def create_topic(
        self,
        name: str,
        partitions: int = 0,
        replication_factor: int = 0,
        *,
        settings: Mapping[str, str | int | bool] | None = None,
        via: str = "",
    ) -> dict[str, object]:
        """Create a topic; 0 leaves a number to the settings."""
        arguments: dict[str, object] = {"name": name, "settings": dict(settings or {})}
        if partitions:
            arguments["partitions"] = partitions
        if replication_factor:
            arguments["replication_factor"] = replication_factor
        timeout_ms = int(duration_ms("10s"))
        return self._wait(
            self._via(via),
            timeout_ms,
            lambda node, done: node.command("topic.create", arguments, timeout_ms, done),
        )

    def trim(self, topic: str, partition: int, offset: int, *, via: str = "") -> dict[str, object]:
        """Remove the messages before ``offset``."""
        arguments: dict[str, object] = {"name": topic, "partition": partition, "offset": offset}
        timeout_ms = int(duration_ms("10s"))
        return self._wait(
            self._via(via),
            timeout_ms,
            lambda node, done: node.command("topic.trim", arguments, timeout_ms, done),
        )

    def verify(self, *, via: str = "", timeout: str | float = "10s") -> Verified:
        """Compare the digests of all replicas."""
        timeout_ms = int(duration_ms(timeout))
        return self._wait(
            self._via(via), timeout_ms, lambda node, done: node.verify(timeout_ms, done)
        )

    def status(self, via: str = "") -> ClusterStatus:
        """Return what a node sees of the cluster."""
        return self._node(self._via(via)).status()

    def catalog(self, via: str = "") -> CatalogView:
        """Return a node's view of topics and nodes."""
        return self._node(self._via(via)).catalog()

    def leader(self, topic: str, partition: int = 0, *, via: str = "") -> str:
        """Return the name of the node that leads a partition, as a running node sees it."""
        for row in self.partitions(topic, via):
            if row.partition == partition and row.leader:
                return self.name_of(row.leader)
        raise SimError(f"{topic}/{partition} has no known leader; {self._describe()}")

    def name_of(self, node: int) -> str:
        """Return the name of the node with this number in the catalog."""
        for host in self.hosts.values():
            if host.node is not None:
                for row in host.node.catalog().nodes:
                    if row.id == node:
                        return row.name
        raise SimError(f"no running node knows node {node}")

    def number_of(self, name: str) -> int:
        """Return the catalog's number of a node; 0 if it has none yet."""
        for host in self.hosts.values():
            if host.node is not None:
                for row in host.node.catalog().nodes:
                    if row.name == name:
                        return row.id
        return 0

    def wait_ready(self, names: Iterable[str] = (), within: str | float = READY_WITHIN) -> None:
        """Let time pass until these nodes (all that run, if none is named) are ready."""
        wanted = list(names) or self.running
        self.run_until(lambda: all(self.is_ready(name) for name in wanted), within)

    def is_ready(self, name: str) -> bool:
        """Say whether a node runs and is ready."""
        host = self.host(name)
        return host.node is not None and not host.paused and host.node.status().ready

    @property
    def bugs(self) -> list[str]:
        """Return the exceptions that nobody caught, on any node."""
        return [bug for host in (*self._retired, *self.hosts.values()) for bug in host.bugs]

    def log_lines(self, last: int = 50) -> list[str]:
        """Return the latest log lines of all nodes, in order of time."""
        lines = [line for host in (*self._retired, *self.hosts.values()) for line in host.lines]
        return sorted(lines, key=lambda line: float(line.split(maxsplit=1)[0]))[-last:]

    # Within

    def _add_host(self, i: int, *, peers: dict[str, str], join: str) -> SimHost:
        replace = msgspec.structs.replace
        base = self._settings
        settings = replace(
            base,
            node=replace(base.node, name=_name(i), peers=peers, join=join, data_dir=_name(i)),
            listen=replace(base.listen, peer=_address(i), http=f"10.0.0.{i}:8080"),
        )
        host = SimHost(
            self.world, self.net, _name(i), _address(i), settings, self._build, self.on_end
        )
        self.hosts[host.name] = host
        return host

    def _via(self, name: str) -> SimHost:
        if name:
            host = self.host(name)
            if not host.running:
                raise SimError(f"{name} does not run: start it, or call via another node")
            return host
        for host in self.hosts.values():
            if host.running and not host.paused:
                return host
        raise SimError("no node runs: start one")

    def _node(self, host: SimHost) -> "Program":
        assert host.node is not None
        return host.node

    def _wait(
        self,
        host: SimHost,
        timeout_ms: int,
        call: "Callable[[Program, Callable[[A | RaftlineError], None]], None]",
    ) -> A:
        """Make a call and run the world until it is answered."""
        answers: list[A | RaftlineError] = []
        process = host.process
        call(self._node(host), answers.append)
        limit_ms = self.world.now_ms + timeout_ms + GRACE_MS
        self.world.run_until(lambda: bool(answers) or host.process is not process, limit_ms)
        if not answers:
            why = "it died" if host.process is not process else "its timeout is long over"
            raise SimError(f"{host.name} gave no answer: {why}")
        answer = answers[0]
        if isinstance(answer, RaftlineError):
            raise answer
        return answer

    def partitions(self, topic: str, via: str = "") -> tuple[PartitionRow, ...]:
        """Return the partitions of a topic. Raises SimError if there is no such topic."""
        for row in self.catalog(via).topics:
            if row.name == topic:
                return row.partitions
        raise SimError(f"there is no topic {topic!r}")

    def _describe(self) -> str:
        states: list[str] = []
        for host in self.hosts.values():
            if host.node is None:
                how = host.ends[-1] if host.ends else "never started"
                states.append(f"{host.name} is down ({how})")
            elif host.paused:
                states.append(f"{host.name} is paused")
            else:
                status = host.node.status()
                states.append(
                    f"{host.name} is ready" if status.ready else f"{host.name}: {status.reason}"
                )
        return "; ".join(states)


@contextmanager
def cluster(
    nodes: int = 3,
    seed: int = 7,
    *,
    settings: Settings | None = None,
    build: Build = production_node,
) -> Generator[SimCluster]:
    """Start a simulated cluster and wait until every node is ready.

    Raises SimError on leaving if a node had an exception that nobody caught.
    """
    simulated = SimCluster(nodes, seed, settings=settings, build=build)
    for name in simulated.nodes:
        simulated.start(name)
    simulated.wait_ready()
    yield simulated
    if simulated.bugs:
        raise SimError("a node has a bug:\n" + "\n".join(simulated.bugs))


def _name(i: int) -> str:
    return f"node-{i}"


def _address(i: int) -> str:
    return f"10.0.0.{i}:7000"


def _end_of(batches: bytes) -> int:
    """Return the offset after the last batch of a reply."""
    start, _ = split_batches(batches)[-1]
    base, *_ = PLACE.unpack_from(batches, start)
    (count,) = _COUNT.unpack_from(batches, start + _COUNT_FROM)
    return base + count
