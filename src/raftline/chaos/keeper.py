"""Ends the nodes of a run that was killed: they have no other way to hear of it.

A ``Servant`` of the run. It is told of every node that is started; when the run has hung up,
whatever still runs of them is killed, paused or not. A pid is trusted only while that process
still is the node.
"""

import contextlib
import os
import select
import signal
from pathlib import Path
from typing import Any

from raftline.chaos.servant import Orders, Servant
from raftline.server.local_cluster import command_of


class Keeper:
    """The run's side."""

    def __init__(self, log: Path) -> None:
        """Start it. Raises OSError if it does not come up."""
        self._servant = Servant("raftline.chaos.keeper", log=log)

    def mind(self, name: str, pid: int, data_dir: str) -> None:
        """Let it end this node with the run; one at a time has a name."""
        self._servant.order(name=name, pid=pid, data_dir=data_dir)

    def close(self) -> None:
        """Hang up: it ends what is left, and itself."""
        self._servant.close()


def serve() -> None:
    """Remember nodes until the run hangs up, then end them."""
    minded: dict[str, tuple[int, str]] = {}

    def obey(order: dict[str, Any]) -> dict[str, Any]:
        minded[order["name"]] = (order["pid"], order["data_dir"])
        return {}

    orders = Orders(obey)
    poll = select.poll()
    poll.register(orders.fd, select.POLLIN)
    orders.ready()
    with contextlib.suppress(BrokenPipeError):  # killed before it could read the answer
        while poll.poll() and orders.take():
            pass
    for pid, data_dir in minded.values():
        if data_dir in command_of(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    serve()
