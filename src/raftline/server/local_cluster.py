"""A cluster of real processes on this machine: ``raftline up`` and ``raftline down``.

State
    ``DIR/nodes.json`` lists the nodes, where they listen, their pids (0: stopped) and the arguments
    each was started with. ``DIR/node-N`` is a node's data, ``DIR/node-N/log`` its log.

Rules
    A pid is trusted only while that process still is our node: pids are used again.
    So is what answers at a node's address: somebody else's node may have taken the port meanwhile.
    A node that died is started with the arguments it had; one that lives is left alone.
"""

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import msgspec

from raftline.client import clock
from raftline.client.client import Client
from raftline.config.addresses import parse_address
from raftline.model.errors import Conflict, InvalidArgument, NotFound, RaftlineError, Unavailable

NODES_FILE = "nodes.json"
READY_MS_MAX = 60_000
STOP_MS_MAX = 10_000
POLL_MS = 20
HEALTH_MS_MAX = 50
LOOK_MS_MAX = 2_000  # at a whole cluster
IDENTITY_FILE = "identity.json"
GRPC_MS_MAX = 5_000  # a node that cannot load gRPC serves without
LOG_LINES_SHOWN = 8
DEFAULT_PORTS = {"http": 8080, "grpc": 9000, "kafka": 9092, "peer": 7000}
PORT_STEPS = {"http": 0, "grpc": 1000, "kafka": 2000, "peer": 3000}


class LocalNode(msgspec.Struct, frozen=True, kw_only=True):
    """One row of nodes.json."""

    id: int
    name: str
    pid: int
    http: str
    grpc: str
    kafka: str
    peer: str
    data_dir: str
    log: str
    arguments: tuple[str, ...] = ()


class LocalCluster:
    """The nodes of one directory."""

    __slots__ = ("_children", "directory", "nodes")

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.nodes: list[LocalNode] = []
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def read(self) -> bool:
        """Read nodes.json; False where there is none.

        Raises:
            InvalidArgument: the file is not ours.
        """
        file = self.directory / NODES_FILE
        try:
            self.nodes = msgspec.json.decode(file.read_bytes(), type=list[LocalNode])
        except FileNotFoundError:
            return False
        except (msgspec.DecodeError, OSError) as error:
            raise InvalidArgument(
                f"{file} cannot be used: {error}", "remove it, or name another --data-dir"
            ) from error
        return True

    def plan(self, count: int, port_base: int | None, settings: tuple[str, ...]) -> None:
        """Lay out a new cluster, or more nodes for the one that is there."""
        known = len(self.nodes)
        ports = _first_ports(self.nodes[0] if known else None, port_base)
        fresh = [_lay_out(self.directory, number, ports) for number in range(known + 1, count + 1)]
        if known:
            way = ("--join", self.nodes[0].peer)
        elif count > 1:
            way = ("--peers", ",".join(f"{node.name}={node.peer}" for node in fresh))
        else:
            way = ()
        extra = tuple(word for setting in settings for word in ("--set", setting))
        for node in fresh:
            arguments = (*_addresses(node), *way, *extra)
            self.nodes.append(msgspec.structs.replace(node, arguments=arguments))

    def start(self) -> list[LocalNode]:
        """Start every node that does not run; return those.

        Raises:
            Conflict: a port is taken, or somebody else is starting this cluster.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._alone():
            dead = [node for node in self.nodes if not is_running(node)]
            for node in dead:
                _check_ports(node)
            for node in dead:
                self._spawn(node)
            self._write()
        return [node for node in self.nodes if node.name in self._children]

    def wait_ready(self, told: Callable[[str], None] = lambda _: None) -> None:
        """Return once every node serves; ``told`` hears of each.

        Raises:
            Unavailable: a node ended, or time ran out.
        """
        until_ms = clock.mono_ms() + READY_MS_MAX
        waiting = list(self.nodes)
        ready_ms: dict[str, float] = {}
        while waiting:
            for node in list(waiting):
                number = _serving(node)
                if number:
                    since_ms = ready_ms.setdefault(node.name, clock.mono_ms())
                    if not _listens(node) and clock.mono_ms() < since_ms + GRPC_MS_MAX:
                        continue  # gRPC is loaded after the node takes work
                    self._replace(msgspec.structs.replace(node, id=number))
                    waiting.remove(node)
                    told(node.name)
                elif not self._is_alive(node):
                    raise Unavailable(
                        f"{node.name} ended while it started:\n{_log_tail(node)}",
                        f"its whole log is {node.log}",
                    )
            if waiting and clock.mono_ms() > until_ms:
                names = ", ".join(node.name for node in waiting)
                raise Unavailable(
                    f"not ready after {READY_MS_MAX // 1000} s: {names}",
                    f"see {waiting[0].log}",
                )
            if waiting:
                clock.pause(POLL_MS)
        self._write()

    def dead(self) -> list[LocalNode]:
        """Return the nodes that do not run."""
        return [node for node in self.nodes if not self._is_alive(node)]

    def stop(self, nodes: list[LocalNode] | None = None) -> list[LocalNode]:
        """Ask nodes (all) to end, insist after a while, return those that ran."""
        if nodes is None:
            self.read()  # another `up` may have started some of them again
        asked = self.nodes if nodes is None else nodes
        running = [node for node in asked if self._is_alive(node)]
        for node in running:
            _send(node, signal.SIGTERM)
        until_ms = clock.mono_ms() + STOP_MS_MAX
        left = running
        while left and clock.mono_ms() < until_ms:
            clock.pause(POLL_MS)
            left = [node for node in left if self._is_alive(node)]
        for node in left:
            _send(node, signal.SIGKILL)
        names = {node.name for node in asked}
        self.nodes = [
            msgspec.structs.replace(node, pid=0) if node.name in names else node
            for node in self.nodes
        ]
        self._write()
        return running

    def servers(self) -> str:
        """Return all HTTP addresses as a client takes them."""
        return ",".join(node.http for node in self.nodes)

    def _spawn(self, node: LocalNode) -> None:
        Path(node.data_dir).mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "raftline", "serve", *node.arguments]
        with Path(node.log).open("ab") as log:
            # A session of its own: Ctrl-C in the terminal reaches us, and we stop the nodes.
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._children[node.name] = child
        self._replace(msgspec.structs.replace(node, pid=child.pid))

    def _replace(self, changed: LocalNode) -> None:
        self.nodes = [changed if node.name == changed.name else node for node in self.nodes]

    def _is_alive(self, node: LocalNode) -> bool:
        child = self._children.get(node.name)
        if child is not None and child.pid == node.pid:  # else another `up` started it
            return child.poll() is None
        return is_running(node)

    def _write(self) -> None:
        file = self.directory / NODES_FILE
        fresh = file.with_suffix(".new")
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(self.nodes), indent=2) + b"\n")
        fresh.replace(file)

    @contextlib.contextmanager
    def _alone(self) -> Generator[None]:
        """Keep a second ``up`` on the same directory out while nodes are started."""
        with (self.directory / ".starting").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Conflict(
                    f"another `raftline up` is starting nodes in {self.directory}",
                    "wait for it, or name another --data-dir",
                ) from None
            yield


def open_cluster(directory: Path) -> LocalCluster:
    """Return the cluster that was made in ``directory``.

    Raises:
        NotFound: there is none.
    """
    cluster = LocalCluster(directory)
    if not cluster.read():
        raise NotFound(
            f"there is no local cluster in {directory}",
            f"start one: raftline up --data-dir {directory}",
        )
    return cluster


def is_running(node: LocalNode) -> bool:
    """Say whether the recorded process exists and is this node."""
    if not node.pid:
        return False
    command = command_of(node.pid)
    return "serve" in command and node.data_dir in command


def command_of(pid: int) -> list[str]:
    """Return the words a process was started with; empty where there is none or a zombie."""
    status = Path(f"/proc/{pid}/cmdline")
    if Path("/proc/self/cmdline").exists():
        with contextlib.suppress(OSError):
            return status.read_bytes().decode(errors="replace").split("\0")
        return []
    shown = subprocess.run(
        ["ps", "-p", str(pid), "-o", "command="], capture_output=True, text=True, check=False
    )
    return shown.stdout.split()


def _first_ports(first: LocalNode | None, port_base: int | None) -> dict[str, int]:
    """Return the ports of node 1: as recorded, or from ``--port-base``, or the usual ones."""
    if first is not None:
        return {gateway: _port(first, gateway)[1] for gateway in DEFAULT_PORTS}
    if port_base is not None:
        return {gateway: port_base + step for gateway, step in PORT_STEPS.items()}
    return DEFAULT_PORTS


def _port(node: LocalNode, gateway: str) -> tuple[str, int]:
    return parse_address(getattr(node, gateway).removeprefix("http://"))


def _lay_out(directory: Path, number: int, first_ports: dict[str, int]) -> LocalNode:
    name = f"node-{number}"
    home = directory.resolve() / name
    ports = {gateway: port + number - 1 for gateway, port in first_ports.items()}
    if max(ports.values()) > 65_535:
        raise InvalidArgument(
            f"ports up to {max(ports.values())} do not exist", "choose a smaller --port-base"
        )
    return LocalNode(
        id=number,
        name=name,
        pid=0,
        http=f"http://127.0.0.1:{ports['http']}",
        grpc=f"127.0.0.1:{ports['grpc']}",
        kafka=f"127.0.0.1:{ports['kafka']}",
        peer=f"127.0.0.1:{ports['peer']}",
        data_dir=str(home),
        log=str(home / "log"),
    )


def _addresses(node: LocalNode) -> tuple[str, ...]:
    pairs = {
        "--id": node.name,
        "--data-dir": node.data_dir,
        "--http-addr": node.http.removeprefix("http://"),
        "--grpc-addr": node.grpc,
        "--kafka-addr": node.kafka,
        "--peer-addr": node.peer,
    }
    return tuple(word for pair in pairs.items() for word in pair)


def _check_ports(node: LocalNode) -> None:
    for gateway in DEFAULT_PORTS:
        host, port = _port(node, gateway)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                raise Conflict(
                    f"port {port} ({gateway} of {node.name}) is taken: {error.strerror}",
                    "choose others with --port-base N, or stop what runs there (raftline down)",
                ) from None


def _serving(node: LocalNode) -> int:
    """Return the number the catalog gave a node that is ready; 0 while it is not."""
    with Client(node.http, timeout_ms=HEALTH_MS_MAX) as client:
        try:
            number = int(client.health()["node"])
        except (RaftlineError, KeyError):
            return 0
    return number if _is_ours(node) else 0


def _is_ours(node: LocalNode) -> bool:
    """Say whether who answers for a node is of the cluster that its directory belongs to."""
    with Client(node.http, timeout_ms=LOOK_MS_MAX) as client:
        try:
            written = Path(node.data_dir, IDENTITY_FILE).read_bytes()
            return client.cluster()["cluster"] == msgspec.json.decode(written)["cluster"]
        except (RaftlineError, KeyError, OSError, msgspec.DecodeError):
            return False


def _listens(node: LocalNode) -> bool:
    """Say whether a node answers at its gRPC port."""
    with socket.socket() as probe:
        probe.settimeout(HEALTH_MS_MAX / 1000)
        return probe.connect_ex(_port(node, "grpc")) == 0


def _send(node: LocalNode, number: signal.Signals) -> None:
    try:
        os.kill(node.pid, number)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise Conflict(
            f"{node.name} (process {node.pid}) runs as another user", "stop it as that user"
        ) from error


def _log_tail(node: LocalNode) -> str:
    """Return what the node said last; its own words for people where there are some."""
    try:
        lines = Path(node.log).read_text(errors="replace").splitlines()
    except OSError:
        return "  (it wrote no log)"
    told = [line for line in lines[-LOG_LINES_SHOWN:] if line.startswith(("error:", "hint:"))]
    return "\n".join(f"  {line}" for line in told or lines[-LOG_LINES_SHOWN:])
