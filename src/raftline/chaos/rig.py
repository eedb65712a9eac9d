"""A cluster of real processes that may be hurt: start, kill, stop, pause, wipe, damage, restart.

Every process is started here, remembered by its pid, and ended by ``close`` whatever happened.
Ports are free ones below 32768 on loopback; data lives in the rig's own directory. What goes
wrong with the rig itself, or does not come true in time, is a ``ChaosProblem``.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from raftline.chaos.keeper import Keeper
from raftline.chaos.lossy_disk import CAPACITY_BYTES, LossyDisk
from raftline.chaos.switch import Switch, number_of
from raftline.chaos.wires import Wires
from raftline.client.client import Client
from raftline.model.errors import RaftlineError
from raftline.node.shifted_clock import shift
from raftline.server.local_cluster import LocalCluster, LocalNode

READY_S_MAX = 90.0  # a start through the lossy disk, on a machine with much else to do
WHOLE_LOOKS, WHOLE_LOOK_S = 2, 0.3
COMMAND_S_MAX = 40.0
PORTS = (10_000, 28_000)  # of HTTP; the others listen up to 4,000 above
PORT_STEPS = (0, 1000, 2000, 3000, 4000)  # HTTP, gRPC, Kafka, peers, wires
STACK_TRACE = "Traceback (most recent call last)"


class ChaosProblem(Exception):
    """The rig could not do what was asked, or waited in vain."""


class Said:
    """What a command answered."""

    def __init__(self, done: "subprocess.CompletedProcess[str]") -> None:
        self.exit = done.returncode
        self.out = done.stdout
        self.err = done.stderr

    def __repr__(self) -> str:
        return f"exit {self.exit}\n{self.out}{self.err}"

    def json(self) -> Any:
        """Return what it printed, as JSON."""
        return json.loads(self.out)


class Rig:
    """A cluster of real processes."""

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 3,
        settings: Sequence[str] = (),
        wired: bool = False,
        switched: bool = False,
        clocks: bool = False,
        clock_library: str = "",
        kept: bool = False,
        environment: Mapping[str, str] = {},
    ) -> None:
        """Lay out a cluster.

        ``wired``: peers meet through ``wires``, which can be cut. ``switched``: each node lives in
        a network namespace, and every packet goes through a ``switch`` instead. ``clocks``:
        ``set_clock`` shifts a node's time of day, through libfaketime if ``clock_library`` names
        it. ``kept``: nodes end with this process, whatever ends it. ``environment``: more variables
        for all nodes. Raises OSError: no switch here.
        """
        self.directory = directory
        self.disks: dict[str, LossyDisk] = {}
        self._clocks = clocks
        self._extra_environment = dict(environment)
        self._clock_library = clock_library
        self.settings = tuple(settings)
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._unmounts: list[Path] = []
        self.at_close: list[Callable[[], None]] = []
        self._disturbed_to: dict[str, float] = {}  # until when it was down or paused
        self._down_since: dict[str, float] = {}
        self.plan = LocalCluster(directory)
        self._base = free_port_base(nodes + 2)
        self._kept = kept
        self._keeper: Keeper | None = None
        self.wires: Wires | Switch | None = Wires(self._pids) if wired and not switched else None
        if switched:
            directory.mkdir(parents=True, exist_ok=True)
            self.wires = Switch(nodes + 1, 1, directory / "switch.log")
        self.plan.plan(nodes, self._base, self.settings)
        self.founders = tuple(self.names)  # those that never leave
        self._wire(self.plan.nodes)

    def _pids(self) -> dict[int, str]:
        return {child.pid: name for name, child in self._children.items()}

    def _wire(self, fresh: list[LocalNode]) -> None:
        """Let peers of new nodes dial a wire instead of the node."""
        if isinstance(self.wires, Switch):
            self._move_in(fresh, self.wires)
            return
        if self.wires is None:
            return
        ends = {node.peer: _wire_end(node.peer) for node in self.plan.nodes}
        for node in fresh:
            words = list(node.arguments)
            for flag in ("--peers", "--join"):
                if flag in words:
                    at = words.index(flag) + 1
                    for own, end in ends.items():
                        words[at] = words[at].replace(own, end)
            words += ["--set", f"listen.advertise_peer={ends[node.peer]}"]
            self._replace(msgspec.structs.replace(node, arguments=tuple(words)))
            self.wires.open(node.name, _port_of(ends[node.peer]), _port_of(node.peer))

    def _move_in(self, fresh: list[LocalNode], switch: Switch) -> None:
        """Give new nodes the addresses of their namespaces."""
        swaps = {
            f"127.0.0.1:{_port_of(address)}": f"{switch.address_of(at)}:{_port_of(address)}"
            for at, node in enumerate(self.plan.nodes, 1)
            for address in (node.http, node.grpc, node.kafka, node.peer)
        }

        def moved(word: str) -> str:
            for old, new in swaps.items():
                word = word.replace(old, new)
            return word

        for node in fresh:
            arguments = tuple(moved(word) for word in node.arguments)
            self._replace(
                msgspec.structs.replace(
                    node,
                    http=moved(node.http),
                    grpc=moved(node.grpc),
                    kafka=moved(node.kafka),
                    peer=moved(node.peer),
                    arguments=(*arguments, "--set", "node.insecure=true"),
                )
            )

    def _inside(self, name: str) -> tuple[str, ...]:
        return self.wires.inside(number_of(name)) if isinstance(self.wires, Switch) else ()

    def set_clock(self, name: str, ahead_s: float) -> None:
        """Let a node see a time of day that is so far ahead."""
        file = self.directory / f"{name}.clock"
        if not self._clock_library:
            shift(file, round(ahead_s * 1000))
            return
        part = file.with_suffix(".part")
        part.write_text(f"{ahead_s:+g}\n")
        part.replace(file)

    def _environment(self, name: str) -> dict[str, str]:
        if not self._clock_library:
            return {**os.environ, **self._extra_environment}
        return {
            **os.environ,
            **self._extra_environment,
            "LD_PRELOAD": self._clock_library,
            "FAKETIME_TIMESTAMP_FILE": str(self.directory / f"{name}.clock"),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_CACHE_DURATION": "1",
        }

    # ------------------------------------------------------------------ who

    @property
    def names(self) -> list[str]:
        """Return the names of all nodes."""
        return [node.name for node in self.plan.nodes]

    def node(self, name: str) -> LocalNode:
        """Return a node by name."""
        return next(node for node in self.plan.nodes if node.name == name)

    def number(self, name: str) -> int:
        """Return the number the catalog gave a node."""
        for row in self.status()["nodes"]:
            if row["name"] == name:
                return row["id"]
        raise ChaosProblem(f"{name} is not in the catalog")

    def name_of(self, number: int) -> str:
        """Return the name of the node that has a number."""
        return next(row["name"] for row in self.status()["nodes"] if row["id"] == number)

    def home(self, name: str) -> Path:
        """Return a node's data directory."""
        return Path(self.node(name).data_dir)

    def log_text(self, name: str) -> str:
        """Return all a node has logged."""
        return Path(self.node(name).log).read_text(errors="replace")

    def events(self, name: str, event: str) -> list[dict[str, Any]]:
        """Return the log events of one kind that a node has written."""
        found: list[dict[str, Any]] = []
        for line in self.log_text(name).splitlines():
            if f'"{event}"' in line:
                with contextlib.suppress(ValueError):
                    found.append(json.loads(line))
        return found

    def client(self, *names: str, timeout_ms: int = 10_000) -> Client:
        """Return a client of the named nodes (all that run)."""
        chosen = names or self.running()
        servers = ",".join(self.node(name).http for name in chosen)
        return Client(servers, timeout_ms=timeout_ms)

    def running(self) -> list[str]:
        """Return the nodes whose process lives (paused ones too)."""
        return [name for name, child in self._children.items() if child.poll() is None]

    # ------------------------------------------------------------------ life

    def start_all(self) -> None:
        """Start every node and wait until all are ready."""
        for name in self.names:
            self.spawn(name)
        self.wait_ready(*self.names)

    def spawn(self, name: str, *extra: str) -> None:
        """Start a node with its own arguments; returns at once."""
        node = self.node(name)
        Path(node.data_dir).mkdir(parents=True, exist_ok=True)
        if self._clocks:
            self.set_clock(name, 0)
            if not self._clock_library:
                file = self.directory / f"{name}.clock"
                extra = (*extra, "--set", f"node.test_clock_file={file}")
        program = (*self._inside(name), sys.executable, "-m", "raftline", "serve")
        command = [*program, *node.arguments, *extra]
        # The log stays out of the data directory: that one may be wiped or full.
        log = self.directory / f"{name}.log"
        self._replace(msgspec.structs.replace(node, log=str(log)))
        if self._kept:
            self._keeper = self._keeper or Keeper(self.directory / "keeper.log")
        with log.open("ab") as output:
            self._children[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=self._environment(name),
            )
        if self._keeper is not None:
            self._keeper.mind(name, self._children[name].pid, node.data_dir)
        self._back(name)

    def move_ports(self, name: str) -> None:
        """Give a stopped node other addresses."""
        base = free_port_base(1)
        node = self.node(name)
        swaps = {
            node.http.removeprefix("http://"): f"127.0.0.1:{base}",
            node.grpc: f"127.0.0.1:{base + 1000}",
            node.kafka: f"127.0.0.1:{base + 2000}",
            node.peer: f"127.0.0.1:{base + 3000}",
        }
        moved = msgspec.structs.replace(
            node,
            http=f"http://127.0.0.1:{base}",
            peer=f"127.0.0.1:{base + 3000}",
            arguments=tuple(swaps.get(word, word) for word in node.arguments),
        )
        self._replace(moved)

    def _replace(self, changed: LocalNode) -> None:
        self.plan.nodes = [changed if n.name == changed.name else n for n in self.plan.nodes]

    def join(self, *extra: str) -> str:
        """Start one more node that joins the cluster; return its name."""
        self.plan.plan(len(self.plan.nodes) + 1, self._base, self.settings)
        self._wire(self.plan.nodes[-1:])
        name = self.names[-1]
        self.spawn(name, *extra)
        self.wait_ready(name)
        return name

    def restart(self, name: str) -> None:
        """Start a node again and wait until it is ready."""
        self.spawn(name)
        self.wait_ready(name)

    def wait_ready(self, *names: str, seconds: float = READY_S_MAX) -> None:
        """Return once these nodes say that they take work."""
        for name in names:
            wait_for(
                lambda name=name: self._is_ready(name),
                seconds,
                lambda name=name: f"{name} is not ready: {self.why(name)}",
            )

    def _is_ready(self, name: str) -> bool:
        child = self._children[name]
        if child.poll() is not None:
            raise ChaosProblem(
                f"{name} ended with {child.returncode}:\n{self.log_text(name)[-3000:]}"
            )
        with self.client(name, timeout_ms=500) as client:
            try:
                return bool(client.health())
            except RaftlineError:
                return False

    def wait_whole(self, seconds: float = 30.0) -> None:
        """Return once every node runs, and no replica is out of service, moving or leaderless.

        All must be so in two looks at all of them, one soon after the other: a replica that is
        about to be made anew is for a moment neither out of service nor moving, and by then those
        asked before it are not as they said.
        """
        self.wait_ready(*self.running())
        looks = 0
        hurt = ""

        def is_whole() -> bool:
            nonlocal looks, hurt
            hurt = next((name for name in self.running() if not self._is_whole(name)), "")
            looks = 0 if hurt else looks + 1
            return looks == WHOLE_LOOKS

        def problem() -> str:
            name = hurt or self.running()[0]
            return f"{self.why(name)}\n{self.log_text(name)[-3000:]}"

        wait_for(is_whole, seconds, problem, WHOLE_LOOK_S)

    def _is_whole(self, name: str) -> bool:
        try:
            status = self.status(name)
        except RaftlineError:  # of a cluster that others hurt: it went away again
            return False
        if status["quarantined"] or status["leaderless"]:
            return False
        rows = [row for topic in status["topics"] for row in topic["partitions"]]
        held = [row for row in rows if row["state"] != "ok" and status["node"] in row["replicas"]]
        return not held

    def why(self, name: str) -> str:
        """Return what a node says of itself, or its last log lines."""
        try:
            with self.client(name, timeout_ms=1000) as client:
                return str(client.cluster())
        except RaftlineError as error:
            return f"{error.message}\n{self.log_text(name)[-1500:]}"

    def kill(self, *names: str) -> None:
        """Kill -9, all at the same moment."""
        for name in names:
            self._gone(name)
        for name in names:
            self._children[name].kill()
        for name in names:
            self._children[name].wait(10)

    def stop(self, *names: str) -> None:
        """Ask nodes to end and see that they do so with exit code 0."""
        for name in names:
            self._gone(name)
            self._children[name].terminate()
        for name in names:
            if self._children[name].wait(15):
                raise ChaosProblem(f"{name} did not end well:\n{self.log_text(name)[-3000:]}")

    def ended(self, name: str, seconds: float = 15.0) -> int:
        """Wait until a node ends by itself; return its exit code."""
        return self._children[name].wait(seconds)

    def pause(self, name: str) -> None:
        """Stop a process where it is (SIGSTOP)."""
        self._gone(name)
        self._children[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let a paused process go on."""
        self._children[name].send_signal(signal.SIGCONT)
        self._back(name)

    def _gone(self, name: str) -> None:
        self._down_since[name] = mono_ms()

    def _back(self, name: str) -> None:
        if self._down_since.pop(name, None) is not None:
            self._disturbed_to[name] = mono_ms()

    def is_down(self, name: str) -> bool:
        """Say whether a node was killed, stopped or paused by the test."""
        return name in self._down_since

    def was_disturbed(self, name: str, since_ms: float) -> bool:
        """Say whether a node was down or paused at some time since a moment.

        One that starts is not excused: until it serves it refuses connections.
        """
        if name in self._down_since:
            return True
        return self._disturbed_to.get(name, -1.0) >= since_ms

    # ------------------------------------------------------------------ disks

    def wipe(self, name: str) -> None:
        """Lose a stopped node's disk."""
        if name in self.running():
            raise ChaosProblem(f"{name} runs: a disk is wiped only under a stopped node")
        home = self.home(name)
        for entry in home.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        self.sync_disk(name)

    def give_disks(self, seed: int, small: str = "", small_bytes: int = 0) -> str:
        """Give nodes that never ran disks that forget what was not synced; return why not.

        ``small``: the node whose disk has a size.
        """
        for number, name in enumerate(self.names):
            home = self.home(name)
            home.mkdir(parents=True, exist_ok=True)
            room = small_bytes if name == small else CAPACITY_BYTES
            backing = self.directory / "disks" / name
            try:
                disk = LossyDisk(home, backing, seed=seed * 100 + number, capacity_bytes=room)
            except OSError as error:
                return str(error)
            self.disks[name] = disk
        return ""

    def sync_disk(self, name: str) -> None:
        """Make a disk durable as it is, after it was changed from outside."""
        if name in self.disks:
            self.disks[name].sync()

    def cut_power(self, *names: str) -> dict[str, int]:
        """Kill nodes at the same moment; what they had not synced is lost, in whole or in part."""
        self.kill(*names)
        told: dict[str, int] = {}
        for name in names:
            for what, count in self.disks[name].cut().items():
                told[what] = told.get(what, 0) + count
        return told

    def mount_small(self, name: str, megabytes: int) -> str:
        """Give a node that never ran a small disk of its own; return why it cannot be done."""
        home = self.home(name)
        home.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "raftline-test", str(home)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return done.stderr.strip() or f"mount ended with {done.returncode}"
        self._unmounts.append(home)
        return ""

    # ------------------------------------------------------------------ asking

    def status(self, *names: str) -> dict[str, Any]:
        """Return the cluster as one of these nodes sees it."""
        with self.client(*names) as client:
            return client.cluster()

    def leader_of(self, topic: str, partition: int = 0, seconds: float = 10.0) -> str:
        """Return the name of the node that leads a partition, once there is one."""
        found: list[str] = []

        def look() -> bool:
            for name in self.running():
                if name in self._down_since:
                    continue
                with self.client(name, timeout_ms=1000) as client:
                    try:
                        row = client.topic(topic)["partitions"][partition]
                        rows = client.cluster()["nodes"]
                    except RaftlineError:
                        continue
                if row["leader"]:
                    leader = next(r["name"] for r in rows if r["id"] == row["leader"])
                    if leader in self.running() and leader not in self._down_since:
                        found.append(leader)
                        return True
            return False

        wait_for(look, seconds, lambda: f"{topic}/{partition} has no leader")
        return found[0]

    def followers_of(self, topic: str, partition: int = 0) -> list[str]:
        """Return the running nodes that do not lead a partition."""
        leader = self.leader_of(topic, partition)
        return [name for name in self.running() if name != leader]

    def shard_home(self, name: str, topic: str, partition: int = 0) -> Path:
        """Return the directory of a partition's replica on a node."""
        with self.client() as client:
            shard = client.topic(topic)["partitions"][partition]["shard"]
        return self.home(name) / "shards" / str(shard)

    def command(self, *words: str, server: str = "", env: dict[str, str] | None = None) -> Said:
        """Run the command line against the nodes that run."""
        servers = server or ",".join(self.node(name).http for name in self.running())
        return command(*words, env={"RAFTLINE_SERVER": servers, **(env or {})})

    def verify(self, seconds: float = 20.0) -> Said:
        """Run ``raftline cluster verify`` until all replicas are level, or time is up."""
        end = time.monotonic() + seconds
        while True:
            said = self.command("cluster", "verify", "--json")
            if said.exit == 0 or time.monotonic() > end:
                return said
            time.sleep(0.5)

    def close(self) -> None:
        """End everything that was started."""
        for child in self._children.values():
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signal.SIGCONT)
            child.kill()
        for child in self._children.values():
            child.wait(10)
        if self._keeper is not None:
            self._keeper.close()
        for disk in self.disks.values():
            with contextlib.suppress(OSError):
                disk.close()
        for home in self._unmounts:
            subprocess.run(["umount", "-l", str(home)], check=False)
        for call in self.at_close:
            call()
        if self.wires is not None:
            self.wires.close()


def command(*words: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> Said:
    """Run the command line; never longer than COMMAND_S_MAX."""
    return Said(
        subprocess.run(
            [sys.executable, "-m", "raftline", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_S_MAX,
            env={**os.environ, **(env or {})},
            cwd=cwd,
        )
    )


def free_port_base(nodes: int) -> int:
    """Return a port from which on all ports of ``nodes`` nodes are free."""
    rng = random.Random(os.urandom(8))
    for _ in range(200):
        base = rng.randrange(*PORTS)
        if all(_is_free(base + step + i) for step in PORT_STEPS for i in range(nodes)):
            return base
    raise ChaosProblem("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def wait_for(
    condition: Callable[[], bool],
    seconds: float,
    problem: Callable[[], str] = lambda: "it did not come true",
    pause_s: float = 0.05,
) -> float:
    """Wait until something holds; return the seconds it took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise ChaosProblem(f"after {seconds} s: {problem()}")
        time.sleep(pause_s)
    return time.monotonic() - began


def _port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def _wire_end(peer: str) -> str:
    return f"127.0.0.1:{_port_of(peer) + 1000}"


def flip_bit(file: Path, position: int) -> None:
    """Turn one bit of a file over."""
    with file.open("r+b") as opened:
        opened.seek(position)
        byte = opened.read(1)
        if not byte:
            raise ChaosProblem(f"{file} has no byte {position}")
        opened.seek(position)
        opened.write(bytes((byte[0] ^ 0x10,)))


def mono_ms() -> float:
    """Return the monotonic time."""
    return time.monotonic() * 1000
