"""The simulated network: links between nodes, and everything that goes wrong with them.

A link behaves as TCP does: frames arrive whole and in order, or the link goes down. Only Raft
frames may be dropped, doubled or overtaken (``Noise``): the protocol above must bear that, the
other frames may rely on the link.

State
    One ``SimPort`` per running process, the links between them, and the faults in force by
    direction (source host, destination host).

Invariants
    T1  Frames that are not Raft's arrive in order, each once, or the link goes down.
    T2  A host without power answers nothing: no reset, no refusal. A host whose process died
        resets its links and refuses dials.
    T3  A cut holds frames back. When it ends the link either goes on with all of them (as TCP
        retransmits) or is down; it never goes on with a hole.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from raftline.model.limits import FRAME_BYTES_MAX
from raftline.testing.world import SOCKET, Process, World
from raftline.transport.rpcs import FRAME_RPCS

if TYPE_CHECKING:
    from raftline.transport.ports import LinkEvents
    from raftline.wire.peer.hello import Hello

Buffer = bytes | bytearray | memoryview

DIAL_TIMEOUT_MS = 1_000.0
LINK_QUEUE_BYTES_MAX = {"control": 64 << 20, "bulk": 16 << 20}
_GRAIN_MS = 0.0625  # arrivals are rounded up to this, so that some share an instant


class NetSettings(msgspec.Struct, frozen=True):
    """How good the network is while nothing is wrong."""

    latency_ms_min: float = 0.1
    latency_ms_mean: float = 0.3
    bytes_per_ms: float = 500_000.0


class Noise(msgspec.Struct, frozen=True):
    """What happens to Raft frames of one direction: chances between 0 and 1."""

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0


QUIET = Noise()


def is_raft_frame(frame: bytes) -> bool:
    """Say whether the frame carries Raft rpcs: its first byte is its kind."""
    return frame[0] == FRAME_RPCS


class SimLink:
    """One end of a link."""

    __slots__ = (
        "_closed",
        "_held",
        "_last_ms",
        "_net",
        "_port",
        "_queued_bytes",
        "_starved",
        "_told_down",
        "_up",
        "address",
        "dialed",
        "lane",
        "on_writable",
        "other",
        "peer",
    )

    def __init__(self, net: "SimNet", port: "SimPort", peer: "Hello", address: str) -> None:
        self._net = net
        self._port = port
        self.peer = peer
        self.address = address  # what was dialed; "" on a link they dialed
        self.dialed = bool(address)
        self.lane = peer.lane
        self.on_writable: Callable[[], None] | None = None  # after a refused send
        self._starved = False
        self.other: SimLink | None = None
        self._closed = False
        self._up = False  # the node accepted this end
        self._told_down = False
        self._last_ms = 0.0
        self._queued_bytes = 0
        self._held: deque[bytes | None] = deque()  # T3; None is the end of the stream

    @property
    def port(self) -> "SimPort":
        """Return the process this end belongs to."""
        return self._port

    def send(self, buffers: Sequence[Buffer]) -> bool:
        """Queue one frame. False: over the limit or closed, nothing sent."""
        if self._closed or self.other is None:
            return False
        frame = b"".join(buffers)
        assert 0 < len(frame) <= FRAME_BYTES_MAX, len(frame)
        if self._queued_bytes > LINK_QUEUE_BYTES_MAX[self.lane]:
            self._starved = True
            return False
        self._queued_bytes += len(frame)
        self._net.transmit(self, frame)
        return True

    def close(self) -> None:
        """Hang up. ``link_down`` follows."""
        if self._closed:
            return
        self._closed = True
        self._net.world.after(0.0, self._tell_down, self._port.process, SOCKET)
        if self.other is not None:
            self._net.transmit(self, None)

    def cut_off(self) -> None:
        """End this end because the other one went away."""
        if not self._closed:
            self._closed = True
            self._tell_down()

    def accept(self) -> None:
        """Note that the node took this end."""
        self._up = True

    def arrive(self, frame: bytes | None) -> None:
        """Hand a frame (or the end of the stream) to the node of this end."""
        if self.other is not None and frame is not None:
            self.other.release(len(frame))
        if self._closed:
            return
        if frame is None:
            self.cut_off()
            return
        self._net.world.note(frame)
        self._port.node.link_frame(self, memoryview(frame))

    def release(self, count: int) -> None:
        """Take ``count`` bytes off the send queue."""
        self._queued_bytes -= count
        if self._starved and self._queued_bytes < LINK_QUEUE_BYTES_MAX[self.lane] // 4:
            self._starved = False
            self._net.world.after(0.0, self._tell_writable, self._port.process, SOCKET)

    @property
    def unsent_bytes(self) -> int:
        """Return how many bytes are on their way."""
        return self._queued_bytes

    def hold(self, frame: bytes | None) -> None:
        """Keep back what a cut does not let through."""
        self._held.append(frame)

    def unhold(self) -> "list[bytes | None]":
        """Return and forget what was kept back."""
        held = list(self._held)
        self._held.clear()
        return held

    def arrival_ms(self, earliest_ms: float) -> float:
        """Return when the next frame arrives, never before the one sent earlier (T1)."""
        due_ms = max(earliest_ms, self._last_ms)
        self._last_ms = due_ms
        return due_ms

    @property
    def closed(self) -> bool:
        """Say whether this end is gone."""
        return self._closed

    @property
    def holding(self) -> bool:
        """Say whether a cut keeps frames back."""
        return bool(self._held)

    def _tell_writable(self) -> None:
        if self.on_writable is not None and not self._closed:
            self.on_writable()

    def _tell_down(self) -> None:
        if self._up and not self._told_down:
            self._told_down = True
            self._port.forget(self)
            self._port.node.link_down(self)
        else:
            self._port.forget(self)


class SimPort:
    """The ``Network`` of one process: where it dials from and where it listens."""

    __slots__ = ("_net", "_node", "address", "host", "links", "listening", "process")

    def __init__(self, net: "SimNet", process: Process, host: str, address: str) -> None:
        self._net = net
        self._node: LinkEvents | None = None
        self.process = process
        self.host = host
        self.address = address
        self.listening = False
        self.links: list[SimLink] = []

    @property
    def node(self) -> "LinkEvents":
        """Return the node that hears of links."""
        assert self._node is not None, "listen() first"
        return self._node

    def listen(self, node: "LinkEvents") -> None:
        """Tell ``node`` of links from now on."""
        self._node = node
        self.listening = True

    def attach(self, node: "LinkEvents") -> None:
        """Tell ``node`` of the links it dials, without taking calls yet."""
        self._node = node

    def dial(self, address: str, lane: str = "control") -> None:
        """Try once to make a link; ``link_up`` or ``dial_failed`` follows."""
        self._net.dial(self, address, lane)

    def forget(self, link: SimLink) -> None:
        """Drop a link that is down."""
        if link in self.links:
            self.links.remove(link)


class _Dial:
    """One attempt to make a link."""

    __slots__ = ("address", "given_up", "lane", "port", "timer")

    def __init__(self, port: SimPort, address: str, lane: str) -> None:
        self.port = port
        self.address = address
        self.lane = lane
        self.given_up = False
        self.timer: Callable[[], None] | None = None


class SimNet:
    """All hosts' ports, and the faults between them."""

    __slots__ = (
        "_cuts",
        "_extra_ms",
        "_is_raft",
        "_noise",
        "_ports",
        "_powerless",
        "_rng",
        "_settings",
        "frames",
        "world",
    )

    def __init__(
        self,
        world: World,
        rng: random.Random,
        settings: NetSettings | None = None,
        is_raft: Callable[[bytes], bool] = is_raft_frame,
    ) -> None:
        self.world = world
        self.frames = 0
        self._rng = rng
        self._settings = settings or NetSettings()
        self._is_raft = is_raft
        self._ports: dict[str, SimPort] = {}  # by address
        self._cuts: dict[tuple[str, str], int] = {}  # how many cuts lie on this direction
        self._extra_ms: dict[tuple[str, str], float] = {}
        self._noise: dict[tuple[str, str], Noise] = {}
        self._powerless: dict[str, bool] = {}

    # Hosts and processes

    def new_port(self, process: Process, host: str, address: str) -> SimPort:
        """Give a starting process its network."""
        port = SimPort(self, process, host, address)
        self._ports[address] = port
        self._powerless.pop(host, None)
        return port

    def process_ended(self, port: SimPort, *, power_lost: bool) -> None:
        """Deal with the links of a process that is gone (T2)."""
        port.listening = False
        if power_lost:
            self._powerless[port.host] = True
        if not power_lost:
            for link in port.links:
                self.transmit(link, None)
        port.links.clear()

    # Faults

    def cut(self, source: str, target: str) -> None:
        """Let nothing through from ``source`` to ``target``. Cuts add up."""
        key = (source, target)
        self._cuts[key] = self._cuts.get(key, 0) + 1

    def uncut(self, source: str, target: str) -> None:
        """Take one cut away; links that hold frames go on with all of them or go down (T3)."""
        key = (source, target)
        left = self._cuts.get(key, 0) - 1
        if left > 0:
            self._cuts[key] = left
            return
        self._cuts.pop(key, None)
        for link in self._links(source, target):
            self._end_hold(link)

    def slow(self, source: str, target: str, extra_ms: float) -> None:
        """Add ``extra_ms`` to each frame of a direction; 0 ends it."""
        if extra_ms:
            self._extra_ms[source, target] = extra_ms
        else:
            self._extra_ms.pop((source, target), None)

    def disturb(self, source: str, target: str, noise: Noise) -> None:
        """Drop, double or let overtake some Raft frames of a direction; ``QUIET`` ends it."""
        if noise == QUIET:
            self._noise.pop((source, target), None)
        else:
            self._noise[source, target] = noise

    def break_links(self, one: str, other: str) -> None:
        """Reset every link between two hosts."""
        for link in self._links(one, other):
            self.world.after(self._latency_ms(), link.cut_off, link.port.process, SOCKET)
            if link.other is not None:
                end = link.other
                self.world.after(self._latency_ms(), end.cut_off, end.port.process, SOCKET)

    def heal(self) -> None:
        """End every fault of the network."""
        self._extra_ms.clear()
        self._noise.clear()
        for source, target in list(self._cuts):
            self._cuts[source, target] = 1
            self.uncut(source, target)

    # Traffic

    def transmit(self, link: SimLink, frame: bytes | None) -> None:
        """Carry a frame (None: the end of the stream) to the other end."""
        other = link.other
        assert other is not None
        route = (link.port.host, other.port.host)
        if route in self._cuts or link.holding:
            link.hold(frame)
            return
        if frame is not None and self._noise and self._is_raft(frame):
            noise = self._noise.get(route)
            if noise is not None and self._make_noise(link, other, frame, noise):
                return
        self._carry(link, other, frame, self._travel_ms(route, frame))

    def dial(self, port: SimPort, address: str, lane: str) -> None:
        """Begin to make a link."""
        dial = _Dial(port, address, lane)
        world = self.world
        timer = world.after(
            DIAL_TIMEOUT_MS,
            lambda: self._fail_dial(dial, "timed out", refused=False),
            port.process,
            SOCKET,
        )
        dial.timer = timer.cancel
        target = self._ports.get(address)
        if target is None:
            world.after(
                self._latency_ms(),
                lambda: self._fail_dial(dial, "connection refused", refused=True),
                port.process,
                SOCKET,
            )
            return
        if self._lost(port.host, target.host):
            return  # the timer tells
        there_ms = self._travel_ms((port.host, target.host), None)
        world.after(there_ms, lambda: self._reach(dial, address))

    def _reach(self, dial: _Dial, address: str) -> None:
        """The call arrived at the host; its process may be gone, not ready, or stopped."""
        target = self._ports[address]
        world = self.world
        if target.host in self._powerless:
            return
        if not (target.process.alive and target.listening):
            if not self._lost(target.host, dial.port.host):
                back_ms = self._travel_ms((target.host, dial.port.host), None)
                world.after(
                    back_ms,
                    lambda: self._fail_dial(dial, "connection refused", refused=True),
                    dial.port.process,
                    SOCKET,
                )
            return
        world.after(0.0, lambda: self._greet(dial, target), target.process, SOCKET)

    def _greet(self, dial: _Dial, target: SimPort) -> None:
        """Run on the called process: hellos cross, and it accepts or refuses the link."""
        caller = dial.port
        if dial.given_up or not caller.process.alive or self._lost(target.host, caller.host):
            return
        theirs = msgspec.structs.replace(caller.node.hello(), lane=dial.lane)
        ours = msgspec.structs.replace(target.node.hello(), lane=dial.lane)
        far = SimLink(self, target, theirs, "")
        near = SimLink(self, caller, ours, dial.address)
        far.other, near.other = near, far
        back_ms = self._travel_ms((target.host, caller.host), None)
        # The first frames of the called side may not overtake its hello.
        far.arrival_ms(self.world.now_ms + back_ms + _GRAIN_MS)
        reason = target.node.link_up(far)
        if reason:
            self.world.after(
                back_ms,
                lambda: self._fail_dial(dial, reason, refused=False),
                caller.process,
                SOCKET,
            )
            return
        far.accept()
        target.links.append(far)
        self.world.after(back_ms, lambda: self._answer(dial, near, far), caller.process, SOCKET)

    def _answer(self, dial: _Dial, near: SimLink, far: SimLink) -> None:
        """Run on the calling process: the other end accepted."""
        if dial.given_up or far.closed or not far.port.process.alive:
            near.close()
            if not dial.given_up:
                self._fail_dial(dial, "hung up", refused=False)
            return
        self._end_dial(dial)
        reason = dial.port.node.link_up(near)
        if reason:  # the node said no itself: it hears nothing more
            near.close()
            return
        near.accept()
        dial.port.links.append(near)

    def _fail_dial(self, dial: _Dial, reason: str, *, refused: bool) -> None:
        if dial.given_up:
            return
        self._end_dial(dial)
        dial.port.node.dial_failed(dial.address, refused=refused, reason=reason)

    def _end_dial(self, dial: _Dial) -> None:
        dial.given_up = True
        if dial.timer is not None:
            dial.timer()

    # Time and chance

    def _carry(self, link: SimLink, other: SimLink, frame: bytes | None, travel_ms: float) -> None:
        self.frames += 1
        due_ms = link.arrival_ms(_grain(self.world.now_ms + travel_ms))
        self.world.at(due_ms, lambda: other.arrive(frame), other.port.process, SOCKET)
        self._reset_if_nobody_is_there(link, other, due_ms)

    def _reset_if_nobody_is_there(self, link: SimLink, other: SimLink, due_ms: float) -> None:
        """A host that came back knows nothing of its old links: it answers with a reset."""
        if other.port.process.alive or other.port.host in self._powerless:
            return
        if self._lost(other.port.host, link.port.host):
            return
        self.world.at(due_ms + self._latency_ms(), link.cut_off, link.port.process, SOCKET)

    def _make_noise(self, link: SimLink, other: SimLink, frame: bytes, noise: Noise) -> bool:
        """Disturb one Raft frame; say whether it is dealt with."""
        chance = self._rng.random()
        if chance < noise.drop:
            link.release(len(frame))
            return True
        route = (link.port.host, other.port.host)
        chance -= noise.drop
        if chance < noise.duplicate:
            again_ms = self._travel_ms(route, frame) + self._rng.random() * 50.0
            self.world.after(
                again_ms, lambda: self._arrive_again(other, frame), other.port.process, SOCKET
            )
            return False
        chance -= noise.duplicate
        if chance < noise.reorder:
            late_ms = self._travel_ms(route, frame) + self._rng.random() * 20.0
            self.world.after(late_ms, lambda: other.arrive(frame), other.port.process, SOCKET)
            return True
        return False

    def _arrive_again(self, end: SimLink, frame: bytes) -> None:
        if end.other is not None:
            end.other.release(-len(frame))  # arrive() takes it off once more
        end.arrive(frame)

    def _end_hold(self, link: SimLink) -> None:
        held = link.unhold()
        if not held or link.other is None:
            return
        if self._rng.random() < 0.5:
            for end in (link, link.other):
                self.world.after(self._latency_ms(), end.cut_off, end.port.process, SOCKET)
            return
        for frame in held:
            self.transmit(link, frame)

    def _links(self, source: str, target: str) -> list[SimLink]:
        """Return the ends at ``source`` of the links to ``target``, in a fixed order."""
        return [
            link
            for port in self._ports.values()
            if port.host == source
            for link in port.links
            if link.other is not None and link.other.port.host == target
        ]

    def _lost(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts or source in self._powerless

    def _latency_ms(self) -> float:
        chance = self._rng.random()
        settings = self._settings
        return settings.latency_ms_min + 3.0 * settings.latency_ms_mean * chance * chance

    def _travel_ms(self, route: tuple[str, str], frame: bytes | None) -> float:
        travel_ms = self._latency_ms()
        if self._extra_ms:
            travel_ms += self._extra_ms.get(route, 0.0)
        if frame is not None:
            travel_ms += len(frame) / self._settings.bytes_per_ms
        return travel_ms


def _grain(at_ms: float) -> float:
    """Round up to the grain of arrivals."""
    grains = int(at_ms / _GRAIN_MS)
    return (grains + 1) * _GRAIN_MS
