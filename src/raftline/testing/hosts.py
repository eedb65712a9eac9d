"""Hosts of a simulated cluster: a disk, a clock, and the process that runs on them.

State
    A ``SimHost`` outlives its processes. Its disk keeps what was synced, its wall clock may be
    wrong, and at most one process runs on it.

Invariants
    H1  A process that ended never runs again; what comes next is a new one with a new number.
    H2  A kill leaves the disk as readers saw it (the page cache survives); a power loss leaves
        what was synced plus a random part of the rest.
    H3  An exception that nobody caught ends the process and is kept as a bug.
"""

import random
import traceback
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from raftline.config.settings import Settings
from raftline.model.errors import RaftlineError
from raftline.testing.sim_disk import PowerLoss, SimDisk
from raftline.testing.sim_net import SimNet, SimPort
from raftline.testing.world import LaneSettings, Process, SimClock, SimLane, WallClock, World

if TYPE_CHECKING:
    from raftline.gateways.ports import Calls
    from raftline.transport.ports import LinkEvents

SYNC_LANE = LaneSettings(latency_ms_min=0.1, latency_ms_mean=0.4)
SEGMENT_LANE = LaneSettings(latency_ms_min=0.05, latency_ms_mean=0.5)
LOG_LINES_MAX = 2_000


class Parts:
    """What a host gives to a program that starts on it."""

    __slots__ = (
        "clock", "disk", "log", "network", "rng", "segment_lane", "settings", "sync_lane",
    )  # fmt: skip

    def __init__(
        self,
        *,
        clock: SimClock,
        rng: random.Random,
        disk: SimDisk,
        sync_lane: SimLane,
        segment_lane: SimLane,
        network: SimPort,
        settings: Settings,
        log: Callable[..., None],
    ) -> None:
        self.clock = clock
        self.rng = rng
        self.disk = disk
        self.sync_lane = sync_lane
        self.segment_lane = segment_lane
        self.network = network
        self.settings = settings
        self.log = log


if TYPE_CHECKING:

    class Program(LinkEvents, Calls, Protocol):
        """What runs on a host: the production node, or a toy in the tests of the world."""

        on_fatal: Callable[[str], None]

        def start(self) -> None:
            """Recover from the disk and begin."""
            ...

        def stop(self, done: Callable[[], None]) -> None:
            """End in good order."""
            ...


Build = Callable[[Parts], "Program"]


class ProcessEnded(BaseException):
    """The program asked for its own end (a failed fsync, for example)."""


class SimHost:
    """One machine."""

    __slots__ = (
        "_build", "_lanes", "_net", "_world", "address", "bugs", "disk", "ends", "lines", "name",
        "node", "on_end", "paused_ms", "port", "process", "refusal", "rng", "settings",
        "starts", "wall",
    )  # fmt: skip

    def __init__(
        self,
        world: World,
        net: SimNet,
        name: str,
        address: str,
        settings: Settings,
        build: Build,
        on_end: "list[Callable[[SimHost, Process, str], None]]",
    ) -> None:
        self._world = world
        self._net = net
        self._build = build
        self._lanes: tuple[SimLane, SimLane] | None = None
        self.name = name
        self.address = address
        self.settings = settings
        self.rng = world.fork_rng()
        self.disk = SimDisk(world.fork_rng())
        self.wall = WallClock(world)
        self.process: Process | None = None
        self.node: Program | None = None
        self.port: SimPort | None = None
        self.refusal = ""  # why the last start was refused
        self.bugs: list[str] = []
        self.ends: list[str] = []  # how its processes ended
        self.starts = 0
        self.paused_ms = -1.0  # when it was last stopped or let go on
        self.lines: deque[str] = deque(maxlen=LOG_LINES_MAX)
        self.on_end = on_end  # told of each process that ends, and how; shared by all hosts

    @property
    def running(self) -> bool:
        """Say whether a process runs here (it may be paused)."""
        return self.process is not None

    @property
    def paused(self) -> bool:
        """Say whether the process is stopped."""
        return self.process is not None and self.process.paused

    def start(self) -> bool:
        """Start a process; False if it refused or died while it recovered (see ``refusal``)."""
        assert self.process is None, f"{self.name} runs already"
        world = self._world
        process = world.new_process(self.name)
        process.on_error = self._on_error
        parts = self._parts(process)
        self.starts += 1
        self.process = process
        self.refusal = ""
        try:
            node = self._build(parts)
            node.on_fatal = self._on_fatal
            self.node = node
            parts.network.attach(node)
            node.start()
        except RaftlineError as error:
            self.refusal = f"{error.code}: {error.message}"
            self._over(f"refused to start: {self.refusal}", power_lost=False)
            return False
        except OSError as error:  # as the real process: it says why and ends
            self._over(f"could not start: {error}", power_lost=False)
            return False
        except BaseException as error:
            self._on_error(error)
            if isinstance(error, KeyboardInterrupt):
                raise
            return False
        if self.process is not process:
            return False
        parts.network.listen(node)
        return True

    def kill(self) -> None:
        """End the process as kill -9 does (H2)."""
        if self.process is not None:
            self._over("killed", power_lost=False)

    def power_off(self) -> None:
        """Take the power away: what was not synced is lost or torn (H2)."""
        self._over("power lost", power_lost=True)

    def wipe(self) -> None:
        """Replace the disk by an empty one."""
        self.kill()
        self.disk.wipe()

    def pause(self) -> None:
        """Stop the process as SIGSTOP does."""
        if self.process is not None:
            self.paused_ms = self._world.now_ms
            self._world.pause(self.process)

    def resume(self) -> None:
        """Let a stopped process go on."""
        if self.process is not None and self.process.paused:
            self.paused_ms = self._world.now_ms
            self._world.resume(self.process)

    def stall(self, for_ms: float) -> None:
        """Let the disk do nothing for a while."""
        if self._lanes is not None:
            until_ms = self._world.now_ms + for_ms
            for lane in self._lanes:
                lane.stalled_until_ms = max(lane.stalled_until_ms, until_ms)

    def log(self, *words: object, **fields: object) -> None:
        """Keep a log line of the program."""
        text = " ".join(str(word) for word in words)
        for name, value in fields.items():
            text += f" {name}={value}"
        self.lines.append(f"{self._world.now_ms:10.2f} {self.name} {text}")

    def _parts(self, process: Process) -> Parts:
        world = self._world
        self.port = self._net.new_port(process, self.name, self.address)
        sync_lane = SimLane(world, process, world.fork_rng(), SYNC_LANE)
        segment_lane = SimLane(world, process, world.fork_rng(), SEGMENT_LANE)
        self._lanes = (sync_lane, segment_lane)
        return Parts(
            clock=SimClock(world, process, self.wall, float(self.rng.randrange(0, 10_000_000))),
            rng=world.fork_rng(),
            disk=self.disk,
            sync_lane=sync_lane,
            segment_lane=segment_lane,
            network=self.port,
            settings=self.settings,
            log=self.log,
        )

    def _on_fatal(self, reason: str) -> None:
        self.log("fatal", reason)
        raise ProcessEnded(reason)

    def _on_error(self, error: BaseException) -> None:
        """Decide what an exception means that nobody in the program caught (H3)."""
        if isinstance(error, PowerLoss):
            self._over("power lost inside a disk operation", power_lost=True)
        elif isinstance(error, ProcessEnded):
            self._over(f"ended itself: {error}", power_lost=False)
        elif isinstance(error, KeyboardInterrupt):
            raise error
        else:
            text = "".join(traceback.format_exception(error))
            self.bugs.append(f"{self.name} at {self._world.now_ms:.1f}: {text}")
            self._over(f"bug: {error!r}", power_lost=False)

    def _over(self, how: str, *, power_lost: bool) -> None:
        process, self.process = self.process, None
        self.node = None
        self._lanes = None
        if power_lost:
            self.disk.crash()
        if process is None:
            return
        self._world.kill(process)
        self.ends.append(how)
        self.log("process ended:", how)
        assert self.port is not None
        self._net.process_ended(self.port, power_lost=power_lost)
        for told in self.on_end:
            told(self, process, how)
