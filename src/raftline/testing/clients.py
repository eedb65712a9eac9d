"""How clients of a simulated cluster call: what all workloads share.

Every call is noted in the ``History`` with its beginning and its end. A client is not part of any
node: when the process it asked dies the call ends as unknown, as a lost connection would.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from raftline.model.errors import RaftlineError
from raftline.testing.history import History, Op
from raftline.testing.world import SOCKET, Process

if TYPE_CHECKING:
    from raftline.testing.cluster import SimCluster
    from raftline.testing.hosts import Program, SimHost

A = TypeVar("A")

GIVE_UP_MS = 400.0  # after its timeout a client does not wait longer for a process that hangs


class Clients:
    """The calls of one workload that are on their way."""

    def __init__(
        self, cluster: "SimCluster", rng: random.Random, history: History, timeout_ms: int
    ) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.rng = rng
        self.history = history
        self._timeout_ms = timeout_ms
        self._open: dict[int, tuple[Process, Callable[[], None]]] = {}  # by op: who, how to end it
        cluster.on_end.append(self._process_ended)

    @property
    def open(self) -> int:
        """Return how many calls are on their way."""
        return len(self._open)

    def some_host(self) -> "SimHost":
        """Choose a host; mostly one that runs, as clients soon leave a dead one."""
        hosts = list(self.cluster.hosts.values())
        if self.rng.randrange(10):
            hosts = [h for h in hosts if h.running] or hosts
        return hosts[self.rng.randrange(len(hosts))]

    def invoke(self, kind: str, host: "SimHost", topic: str, partition: int) -> Op:
        """Note that a call begins."""
        return self.history.invoke(
            kind, self.world.now_ms, host.name, topic, partition, self._timeout_ms
        )

    def call(
        self,
        host: "SimHost",
        op: Op,
        call: "Callable[[Program, Callable[[A | RaftlineError], None]], None]",
        taken: Callable[[Op, A], None],
        ended: Callable[[Op], None] | None = None,
    ) -> None:
        """Make the call inside the asked process; end it ourselves if that dies or hangs."""
        world = self.world
        process = host.process
        if process is None or host.node is None:
            self.history.end(op, world.now_ms, "refused", "connection_refused: nobody listens")
            op.excused = True
            if ended is not None:
                world.after(1.0, lambda: ended(op))
            return

        def end(outcome: str, error: str) -> None:
            self.history.end(op, world.now_ms, outcome, error)
            del self._open[op.id]
            if ended is not None:
                ended(op)

        def answered(answer: "A | RaftlineError") -> None:
            if op.outcome:
                assert op.excused, f"op {op.id} was answered twice"
                return
            if not isinstance(answer, RaftlineError):
                taken(op, answer)
                end("ok", "")
            else:
                outcome = "unknown" if answer.unknown else "refused"
                end(outcome, f"{answer.code}: {answer.message}")

        def lose() -> None:
            if op.outcome:
                return
            op.excused = True
            end("unknown", "connection_lost: the process died or hangs")

        def give_up() -> None:
            if process.paused or host.paused_ms >= op.invoked_ms:
                lose()

        node = host.node
        self._open[op.id] = (process, lose)
        world.at(world.now_ms, lambda: call(node, answered), process, SOCKET)
        world.after(op.timeout_ms + GIVE_UP_MS, give_up)

    def _process_ended(self, host: "SimHost", process: Process, how: str) -> None:
        """End the calls of a process that died: the connection is reset."""
        del host, how
        for asked, lose in list(self._open.values()):
            if asked is process:
                self.world.after(1.0, lose)
