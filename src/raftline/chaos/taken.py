"""A cluster that somebody else runs and hurts: load and verdict only.

Its processes and disks are not ours, so the only fault is the handing over of leaderships; the rest
is done by whoever runs it (Chaos Mesh, an administrator, a test). Nobody tells us when a node was
down, so calls that ended late are not held against it, and its logs are not read.
"""

from pathlib import Path
from typing import Any

from raftline.chaos.rig import ChaosProblem, Rig, wait_for
from raftline.client.client import Client
from raftline.model.errors import RaftlineError
from raftline.server.local_cluster import LocalCluster, LocalNode

NODES_MIN = 1
ADDRESS_S = 10.0  # until a node that came back has told where it is called


class Taken(Rig):
    """The nodes that some servers name."""

    def __init__(self, servers: str, directory: Path) -> None:
        """Look at the cluster. Raises RaftlineError if nobody answers."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.settings = ()
        self.wires = None
        self.disks = {}
        self.at_close = []
        self._down_since = {}
        self.plan = LocalCluster(directory)
        with Client(servers, timeout_ms=10_000) as client:
            rows = _live_rows(client)
        self.plan.nodes = [
            LocalNode(
                id=row["id"],
                name=row["name"],
                pid=0,
                http=f"http://{row['http']}",
                grpc=row["grpc"],
                kafka=row["kafka"],
                peer=row["peer"],
                data_dir="",
                log="",
            )
            for row in rows
        ]
        self.founders = tuple(self.names)
        if len(self.plan.nodes) < NODES_MIN:
            raise ChaosProblem(f"no live node at {servers}")

    def start_all(self) -> None:
        """See that everybody is there."""
        self.wait_ready(*self.names)

    def running(self) -> list[str]:
        """Return all nodes: who of them is down is not ours to know."""
        return self.names

    def wait_ready(self, *names: str, seconds: float = 60.0) -> None:
        """Return once these nodes say that they take work."""
        for name in names:
            wait_for(lambda name=name: self._answers(name), seconds, lambda name=name: name)

    def _answers(self, name: str) -> bool:
        with self.client(name, timeout_ms=1_000) as client:
            try:
                return bool(client.health())
            except RaftlineError:
                return False

    def log_text(self, name: str) -> str:
        """Return nothing: its log is elsewhere."""
        del name
        return ""

    def was_disturbed(self, name: str, since_ms: float) -> bool:
        """Say yes: nobody tells us."""
        del name, since_ms
        return True

    def close(self) -> None:
        """End the load; the cluster stays."""
        for call in self.at_close:
            call()


def _live_rows(client: Client) -> list[dict[str, Any]]:
    """Return who lives, with addresses: who was just linked has not told its own."""
    rows: list[dict[str, Any]] = []

    def is_told() -> bool:
        rows[:] = [row for row in client.cluster()["nodes"] if row["state"] == "live"]
        return all(row["http"] for row in rows)

    def problem() -> str:
        nameless = next(row["name"] for row in rows if not row["http"])
        return f"nobody says where {nameless} is called over HTTP"

    wait_for(is_told, ADDRESS_S, problem)
    return rows
