"""Links between nodes over TCP.

State
    One listener, the dials under way, and one ``TcpLink`` per connection.

A connection's life
    The caller says its hello. The called one answers with its own, or with a refusal that says why;
    then both have a link. Whoever says nothing for ``HELLO_MS_MAX`` is hung up on. After that every
    frame goes to ``events.link_frame``.

Invariants
    T1  ``link_down`` comes exactly once for a link whose ``link_up`` returned "", and for no other.
    T2  A dial ends in exactly one of ``link_up`` and ``dial_failed``. Also one whose time is over
        just when it was answered: uvloop then closes the connection and tells the link nothing,
        so a dial that is given up ends its links itself.
    T3  What a peer sends never raises here: what is no frame closes the link, with a reason in the
        log. What the node raises in ``link_frame`` is a bug and goes to the loop's handler.
    T4  A link holds at most its bound plus one frame of unsent bytes; then ``send`` refuses.
    T5  A link ends whose bytes nobody acknowledges for ``UNHEARD_MS_MAX``. Left alone, TCP waits
        twice as long before each try: after a cut of half a minute it took as long again.
    T6  A link ends whose other end is gone without a word, also one that we only listen on: each
        cut left some of those behind, until there were too many links.

Costs
    One ``writelines`` per frame; uvloop joins those of one pass into one system call per link.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import cast

import msgspec

from raftline.config.addresses import parse_address
from raftline.model.limits import FRAME_BYTES_MAX, LINK_QUEUE_BYTES_MAX
from raftline.telemetry.log import LogEvent
from raftline.transport.addresses import bind
from raftline.transport.frames import BufferPool, FrameReader
from raftline.transport.ports import LinkEvents
from raftline.wire.peer.frames import Buffer, seal
from raftline.wire.peer.hello import WIRE_FORMAT, Hello

DIAL_MS_MAX = 1_000
HELLO_MS_MAX = 5_000
UNHEARD_MS_MAX = 5_000  # by the other end's machine, where this one's can tell (Linux)
IDLE_S_MAX = 15  # then the other end's machine is asked whether it is there; again every second
LINGER_MS_MAX = 1_000  # for what is queued when a link is closed
UNSENT_BYTES_MAX = {"control": LINK_QUEUE_BYTES_MAX - FRAME_BYTES_MAX, "bulk": 16 << 20}  # T4
LINKS_MAX = 4_096
JOIN_BYTES_MAX = 4_096  # a body that is copied behind its head rather than sent by reference
NOBODY = Hello(format=0, cluster="", node=0, name="", directory="", process="", address="")


class Refusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the called node says instead of its hello."""

    refused: str


class TcpLink(asyncio.BufferedProtocol):
    """One connection, from the first byte on. A ``Link`` for the node once both hellos passed."""

    __slots__ = (
        "_closed",
        "_ended",
        "_network",
        "_reader",
        "_reason",
        "_said",
        "_starved",
        "_timer",
        "_transport",
        "_unsent_bytes_max",
        "_up",
        "_waiting",
        "address",
        "connected",
        "dialed",
        "lane",
        "on_end",
        "on_writable",
        "peer",
    )

    def __init__(self, network: "TcpNetwork", address: str, lane: str) -> None:
        self._network = network
        self._transport: asyncio.Transport | None = None
        self._closed = False
        self._ended = False  # ``on_end`` was called, or there is nothing to call it for
        self._up = False  # frames go to the node
        self._said = False  # our hello is on its way
        self._reason = ""
        self._starved = False  # a send was refused
        self._waiting: list[Buffer] = []  # frames sent from inside link_up, before our hello
        self._timer: asyncio.TimerHandle | None = None
        self._unsent_bytes_max = UNSENT_BYTES_MAX["control"]
        self.address = address  # what was dialed, or where the caller is
        self.dialed = bool(address)
        self.connected = False
        self.lane = lane
        self.peer = NOBODY
        self.on_end = network.dial_failed if self.dialed else network.ignore
        self.on_writable: Callable[[], None] | None = None  # after a refused send

    # -- what the node calls

    def send(self, buffers: Sequence[Buffer]) -> bool:
        """Queue one frame (the joined buffers, which must not change until they are sent).

        False: over the limit or closed, nothing sent. T4.
        """
        transport = self._transport
        if transport is None or self._closed:
            return False
        if transport.get_write_buffer_size() > self._unsent_bytes_max:
            self._starved = True
            return False
        head = seal(buffers)
        if not self._said:
            self._waiting += (head, *buffers)
        elif len(buffers) == 1 and len(buffers[0]) <= JOIN_BYTES_MAX:
            transport.write(head + buffers[0])
        else:
            transport.writelines((head, *buffers))
        return True

    def close(self) -> None:
        """Hang up: what is queued may still go out for a moment. ``link_down`` follows."""
        self._hang_up("closed by this node")

    def give_up(self, reason: str) -> None:
        """End now, whether the loop tells us that the connection is closed or not. T2."""
        transport = self._transport
        if self.connected:
            self._end(reason)
        self._ended = True
        if transport is not None:
            transport.abort()

    @property
    def unsent_bytes(self) -> int:
        """Return how many bytes wait for the socket."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # -- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say hello if we called; give the other end its time to."""
        self._transport = cast("asyncio.Transport", transport)
        if self._ended:  # it was given up before it was there
            self._transport.abort()
            return
        self.connected = True
        self._reader = FrameReader(self._network.pool)
        _set_options(transport)
        if not self.dialed:
            self.address = _peer_name(transport)
        if not self._network.adopt(self):
            self._hang_up("too many links")
            return
        self._start_timer(HELLO_MS_MAX, self._greeting_is_over)
        if self.dialed:
            self._say_hello()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Lend the receive buffer."""
        return self._reader.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Deliver the frames that are whole. T3."""
        if self._closed:
            return
        wrong = self._reader.filled(nbytes, self._on_frame)
        if wrong:
            self._refuse(wrong)

    def eof_received(self) -> bool:
        """Close when the other end does."""
        self._reason = self._reason or "the peer hung up"
        return False

    def resume_writing(self) -> None:
        """Tell whoever was refused that there is room."""
        if self._starved and not self._closed:
            self._starved = False
            if self.on_writable is not None:
                self.on_writable()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the node once. T1, T2."""
        lost = "the peer hung up" if exc is None else f"{type(exc).__name__}: {exc}"
        self._end(self._reason or lost)

    # -- the greeting

    def _say_hello(self) -> None:
        hello = msgspec.structs.replace(self._network.events.hello(), lane=self.lane)
        self._write_alone(msgspec.msgpack.encode(hello))
        self._said = True

    def _on_frame(self, frame: memoryview) -> bool:
        if self._up:
            self._network.events.link_frame(self, frame)
        else:
            self._on_hello(frame)
        return not self._closed

    def _on_hello(self, frame: memoryview) -> None:
        wrong = self._read_hello(frame)
        if not wrong:
            self._cancel_timer()
            self._reader.trust()
            self._set_lane()
            wrong = self._offer()
        if wrong:
            self._refuse(wrong)

    def _read_hello(self, frame: memoryview) -> str:
        """Take the peer's hello; return what is wrong with it, or ""."""
        try:
            hello = msgspec.msgpack.decode(frame, type=Hello)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return _read_refusal(frame) or f"the first frame is no hello ({error})"
        if hello.format != WIRE_FORMAT:
            return f"the peer speaks format {hello.format}, this node {WIRE_FORMAT}"
        if hello.lane not in UNSENT_BYTES_MAX:
            return f"the peer asks for an unknown lane {hello.lane[:40]!r}"
        self.peer = hello
        return ""

    def _set_lane(self) -> None:
        if not self.dialed:
            self.lane = self.peer.lane
        bound = self._unsent_bytes_max = UNSENT_BYTES_MAX[self.lane]
        assert self._transport is not None
        self._transport.set_write_buffer_limits(high=bound // 2, low=bound // 4)

    def _offer(self) -> str:
        """Ask the node whether it wants this link; return why not."""
        wrong = self._network.events.link_up(self)
        if wrong:
            self.on_end = self._network.ignore  # the node said no itself: it hears nothing more
            return wrong
        self.on_end = self._network.link_down
        self._up = True
        if not self._said:
            self._say_hello()
            if self._waiting and self._transport is not None:
                self._transport.writelines(self._waiting)
                self._waiting = []
        return ""

    def _refuse(self, wrong: str) -> None:
        """Hang up on a peer that does not behave; a caller is told why if we did not greet yet."""
        if not self._closed:
            self._network.log(
                "warning", "link.refused", address=self.address, node=self.peer.name, reason=wrong
            )
        if not self.dialed and not self._said:
            self._write_alone(msgspec.msgpack.encode(Refusal(wrong)))
        self._hang_up(wrong)

    def _greeting_is_over(self) -> None:
        self._refuse(f"no hello within {HELLO_MS_MAX} ms")

    # -- small things

    def _write_alone(self, body: bytes) -> None:
        if self._transport is not None:
            self._transport.writelines((seal((body,)), body))

    def _start_timer(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._cancel_timer()
        self._timer = self._network.loop.call_later(delay_ms / 1000, call)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self, reason: str) -> None:
        if self._ended:
            return
        self._ended = self._closed = True
        self._cancel_timer()
        self._reader.close()
        self._transport = None
        self._network.forget(self)
        self.on_end(self, reason)

    def _hang_up(self, reason: str) -> None:
        if self._closed or self._transport is None:
            return
        self._closed = True
        self._reason = self._reason or reason
        self._start_timer(LINGER_MS_MAX, self._transport.abort)
        self._transport.close()


class TcpNetwork:
    """The listener of this node and its calls to others. Set ``events`` before ``start``."""

    __slots__ = ("_dials", "_links", "_listen_address", "_server", "events", "log", "loop", "pool")

    events: LinkEvents

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listen_address: str,
        log: LogEvent,
        events: LinkEvents | None = None,
    ) -> None:
        self.loop = loop
        self.log = log
        self.pool = BufferPool()
        if events is not None:
            self.events = events
        self._listen_address = listen_address
        self._links: dict[TcpLink, None] = {}
        self._dials: dict[asyncio.Task[None], None] = {}
        self._server: asyncio.Server | None = None

    async def start(self, listener: socket.socket | None = None) -> None:
        """Listen, on ``listener`` where the caller has bound it already. Raises OSError."""
        listener = listener or bind(self._listen_address)
        self._server = await self.loop.create_server(
            lambda: TcpLink(self, "", "control"), sock=listener
        )

    def dial(self, address: str, lane: str = "control") -> None:
        """Try once to make a link; ``link_up`` or ``dial_failed`` follows. The node redials."""
        task = self.loop.create_task(self._dial(address, lane))
        self._dials[task] = None
        task.add_done_callback(self._dials.pop)

    def close(self) -> None:
        """Stop listening, give up dials, hang up all links."""
        if self._server is not None:
            self._server.close()
        for task in list(self._dials):
            task.cancel()
        for link in list(self._links):
            link.close()

    @property
    def link_count(self) -> int:
        """Return how many connections are open, greeted or not."""
        return len(self._links)

    # -- what links call

    def adopt(self, link: TcpLink) -> bool:
        """Count ``link`` in; False if there are too many."""
        if len(self._links) >= LINKS_MAX:
            return False
        self._links[link] = None
        return True

    def forget(self, link: TcpLink) -> None:
        """Count ``link`` out."""
        self._links.pop(link, None)

    def link_down(self, link: TcpLink, reason: str) -> None:
        """Pass the end of an accepted link on."""
        self.log("info", "link.closed", address=link.address, node=link.peer.name, reason=reason)
        self.events.link_down(link)

    def dial_failed(self, link: TcpLink, reason: str) -> None:
        """Pass on that a call was answered and led to nothing."""
        self.events.dial_failed(link.address, refused=False, reason=reason)

    def ignore(self, link: TcpLink, reason: str) -> None:
        """Tell nobody: the node never had this link."""

    # -- calling

    async def _dial(self, address: str, lane: str) -> None:
        links: list[TcpLink] = []
        refused = False
        try:
            async with asyncio.timeout(DIAL_MS_MAX / 1000):
                await self._connect(address, lane, links)
        except TimeoutError:
            reason = f"no answer within {DIAL_MS_MAX} ms"
        except ConnectionRefusedError:
            refused, reason = True, "connection refused"
        except (OSError, ValueError) as error:
            reason = str(error)
        else:
            return
        is_answered = any(link.connected for link in links)
        for link in links:
            link.give_up(reason)
        if not is_answered:  # else the link reported how it ended. T2
            self.events.dial_failed(address, refused=refused, reason=reason)

    async def _connect(self, address: str, lane: str, links: list[TcpLink]) -> None:
        """Connect to the first address of the host that answers."""

        def make() -> TcpLink:
            links.append(TcpLink(self, address, lane))
            return links[-1]

        host, port = parse_address(address)
        infos = await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for more, info in enumerate(infos, 1 - len(infos)):
            try:
                await self.loop.create_connection(make, str(info[4][0]), port)
            except OSError:
                if not more:
                    raise
            else:
                return


def _read_refusal(frame: memoryview) -> str:
    try:
        refused = msgspec.msgpack.decode(frame, type=Refusal).refused
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return f"the peer refuses: {refused[:500]}"


def _set_options(transport: asyncio.BaseTransport) -> None:
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # T6
        if hasattr(socket, "TCP_KEEPIDLE"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_S_MAX)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # T5
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNHEARD_MS_MAX)


def _peer_name(transport: asyncio.BaseTransport) -> str:
    name = transport.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if name else "?"
