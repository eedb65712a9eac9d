"""A receiver: messages leased to a worker, some ahead of its work, kept while they wait.

State
    ``ready``: leased messages nobody took yet. At most one poll is on its way.

Rules
    R1  So much is asked for as the worker is through with in a tenth of its lease (``Pace``), at
        most ``count``: nothing lies here for long, others can have it.
    R2  The next poll goes out when the worker comes for a message and at most half of the last
        poll is left.
    R3  A message whose lease ran out while it waited here is dropped: somebody else has it.
    R4  With ``extend``, messages that wait here and the one in work are extended after half of
        their lease, as long as the worker lives; the one in work also after ``close``. The worker
        says itself, on its own thread, when it begins and ends: one must not overtake the other.
    R5  Without an answer for the whole timeout the receiver ends with an error; after ``wait_ms``
        without a message it ends. Only time counts in which a node was asked: not what the worker
        spent on its last message, not what passed until a node was found or answered.
    R6  When it is closed, an answer that is near is awaited and given back; after ``HANG_UP_MS``
        the node waits for messages, and is hung up on, so that it leases none to nobody.
"""

import contextlib
from collections import deque
from collections.abc import Callable
from urllib.parse import quote

import msgspec

from raftline.client.core.caller import Caller
from raftline.client.core.ports import BATCH, Ask, Reply, Timer
from raftline.client.core.settles import EXTEND, RELEASE, Lease, Settle, Settles
from raftline.client.core.topology import TopicMap
from raftline.model.errors import Internal, RaftlineError, TimedOut
from raftline.model.message import Message
from raftline.model.records import open_batches

POLL_MS = 20_000
FIRST_COUNT = 1  # who stops after the first message keeps no others from anybody
UNDER_WAY_MAX = 20_000  # settles that may wait for an answer before more is asked for
COUNT_MAX = 2_000  # of one reply with stored batches
LEASE_SHARE = 0.95  # of a lease that is counted on here: the rest was spent on the way
HOLD_SHARE = 0.1  # of a lease in which what is held should be worked off. R1
PAUSE_MS = 50
HANG_UP_MS = 200

Leased = tuple[Lease, Message]


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a receiver asks for."""

    topic: str
    group: str
    count: int = 500  # at most so many at a time
    lease_ms: int = 0  # 0: the topic's own
    wait_ms: int | None = None  # without a message for so long it ends; None: never
    partition: int = -1  # -1: any
    member: str = ""
    ordered: bool = False
    start: str = "first"
    extend: bool = False
    timeout_ms: float = 15_000.0
    bytes_max: int = 4 << 20
    is_single: bool = False  # one poll, then it ends


class Pace:
    """Learns how much to ask for. R1."""

    __slots__ = ("_at_ms", "_count", "_most")

    def __init__(self, first: int, most: int) -> None:
        self._most = max(1, min(most, COUNT_MAX))
        self._count = max(1, min(first, self._most))
        self._at_ms = 0.0

    @property
    def count(self) -> int:
        """Return how many to ask for."""
        return self._count

    def asked(self, now_ms: float) -> None:
        """Note the moment of a poll."""
        self._at_ms = now_ms

    def worked(self, done: int, now_ms: float, lease_ms: int) -> None:
        """``done`` messages were taken since the last poll."""
        if done <= 0:
            return
        took_ms = max(0.1, now_ms - self._at_ms)
        fits = int(done / took_ms * lease_ms * HOLD_SHARE)
        self._count = max(1, min(self._most, self._count * 4, fits))


class Receiver:
    """One worker's supply of messages."""

    __slots__ = (
        "_caller",
        "_extend_timer",
        "_find_topic",
        "_got",
        "_idle_since_ms",
        "_is_polling",
        "_lease_ms",
        "_pace",
        "_quiet",
        "_settles",
        "_silent_since_ms",
        "_was_taken",
        "_way",
        "error",
        "held",
        "is_closed",
        "is_over",
        "lapsed_count",
        "last_count",
        "on_change",
        "ready",
        "wish",
    )

    def __init__(
        self,
        caller: Caller,
        settles: Settles,
        find_topic: Callable[[str, float, Callable[[TopicMap | RaftlineError], None]], None],
        wish: Wish,
        number: int,
    ) -> None:
        self._caller = caller
        self._way = f"receive-{number}"  # a connection of its own: a poll holds it up
        self._settles = settles
        self._find_topic = find_topic
        self.wish = wish
        self.ready: deque[Leased] = deque()
        self.held: dict[int, Leased] = {}  # in work and to be extended: by id of the message
        self.error: RaftlineError | None = None
        self.is_over = False  # nothing more comes
        self.is_closed = False
        self.lapsed_count = 0
        self.on_change: Callable[[], None] = lambda: None
        self._pace = Pace(wish.count if wish.is_single else FIRST_COUNT, wish.count)
        self._lease_ms = wish.lease_ms
        self._is_polling = False
        self._quiet: list[Callable[[], None]] = []
        self.last_count = 0
        self._got = 0  # messages that ever came
        self._was_taken = 0  # of them, when the last poll went out
        self._silent_since_ms: float | None = None  # since when none answers. R5
        self._idle_since_ms: float | None = None  # since when nodes are asked in vain. R5
        self._extend_timer: Timer | None = None

    def start(self) -> None:
        """Find out how long a lease is, then ask for messages."""
        if self._lease_ms:
            self.poll()
            return

        def found(topic: TopicMap | RaftlineError) -> None:
            if isinstance(topic, RaftlineError):
                self._end(topic)
            else:
                self._lease_ms = topic.lease_ms
                self.poll()

        self._find_topic(self.wish.topic, self.wish.timeout_ms, found)

    @property
    def wants_more(self) -> bool:
        """Say whether the next poll is due. R2. None is until the length of a lease is known."""
        return (
            self._lease_ms != 0
            and not self._is_polling
            and not self.is_over
            and not self.is_closed
            and len(self.ready) * 2 <= self.last_count
        )

    def poll(self) -> None:
        """Ask for messages, unless there are enough: a thread may have looked before they came."""
        if not self.wants_more:
            return
        if self._settles.under_way > UNDER_WAY_MAX:
            self._caller.clock.call_later(PAUSE_MS, self.poll)
            return
        wish, caller = self.wish, self._caller
        now = caller.clock.mono_ms()
        taken = self._got - len(self.ready)
        self._pace.worked(taken - self._was_taken, now, self._lease_ms)
        self._was_taken = taken
        self._pace.asked(now)
        self._is_polling = True
        if self._silent_since_ms is None:
            self._silent_since_ms = now
        wait_ms = self._wait_ms(now)
        body: dict[str, object] = {
            "count": self._pace.count,
            "wait": wait_ms,
            "lease": self._lease_ms,  # what is counted on, also if the topic has another by now
            "member": wish.member,
            "partition": wish.partition,
            "bytes_max": wish.bytes_max,
            "ordered": wish.ordered,
            "start": wish.start,
        }
        ask = Ask(
            method="POST",
            path=f"/v1/topics/{quote(wish.topic, safe='')}/groups/{quote(wish.group, safe='')}"
            "/receive",
            body=msgspec.json.encode(body),
            accept=BATCH,
            topic=wish.topic,
            partition=wish.partition,
            is_repeatable=True,
            wait_ms=wait_ms,
            way=self._way,
        )
        caller.call(ask, wish.timeout_ms, self._polled, is_wanted=lambda: not self.is_closed)

    def close(self) -> None:
        """End it; what nobody took is given back, and a node that waits for messages stops."""
        if self.is_closed:
            return
        self.is_closed = self.is_over = True
        if self._is_polling:  # R6
            self._caller.clock.call_later(HANG_UP_MS, self._hang_up)
        else:
            self._hang_up()
        self._give_back(self._take_all())
        self.on_change()

    def is_lapsed(self, lease: Lease) -> bool:
        """Say whether a lease ran out by our clock. R3."""
        return self._caller.clock.mono_ms() >= lease.expires_ms

    # ------------------------------------------------------------------ answers

    def _wait_ms(self, now: float) -> int:
        wait_ms = self.wish.wait_ms
        if wait_ms is None:
            return POLL_MS
        if self._idle_since_ms is None:
            self._idle_since_ms = now
        left = self._idle_since_ms + wait_ms - now
        return int(max(0.0, min(POLL_MS, left)))

    def when_quiet(self, done: Callable[[], None]) -> None:
        """Call ``done`` when a closed receiver has no poll on its way."""
        if self._is_polling:
            self._quiet.append(done)
        else:
            done()

    def _hang_up(self) -> None:
        """Give our connection up: break off what is under way, or let others have it."""
        self._caller.network.hang_up(self._way)

    def _polled(self, answer: Reply | RaftlineError) -> None:
        self._is_polling = False
        self._take_reply(answer)
        quiet, self._quiet = self._quiet, []
        for tell in quiet:
            tell()

    def _take_reply(self, answer: Reply | RaftlineError) -> None:
        now = self._caller.clock.mono_ms()
        if isinstance(answer, RaftlineError):
            self._failed(answer, now)
            return
        self._silent_since_ms = None
        try:
            leased = self._open(answer, now)
        except RaftlineError as error:
            self._end(error)
            return
        except (ValueError, KeyError) as error:
            self._end(Internal(f"a reply to a receive that makes no sense: {error!r}"))
            return
        if self.is_closed:
            self._give_back(leased)
            return
        self._got += len(leased)
        self.last_count = len(leased)
        if leased:
            self._idle_since_ms = None
            self.ready.extend(leased)
            if self.wish.extend:
                self.watch()
        since, wait_ms = self._idle_since_ms, self.wish.wait_ms
        if self.wish.is_single:
            self.is_over = True
        elif since is not None and wait_ms is not None and now - since >= wait_ms:
            self.is_over = True  # R5
        self.on_change()
        if not leased:
            self.poll()

    def _failed(self, error: RaftlineError, now: float) -> None:
        since = now if self._silent_since_ms is None else self._silent_since_ms
        is_passing = error.retry and now - since < self.wish.timeout_ms
        if self.is_closed:
            return
        if not is_passing:
            self._end(error)  # R5
            return
        self._idle_since_ms = None
        self._caller.clock.call_later(PAUSE_MS, self.poll)

    def _end(self, error: RaftlineError) -> None:
        self.error = error
        self.is_over = True
        self.on_change()

    def _open(self, reply: Reply, now: float) -> list[Leased]:
        """Return the messages of a reply in the order of delivery."""
        spans = reply.field(b"Raftline-Spans")
        if not spans:
            return []
        wish = self.wish
        partition = int(reply.field(b"Raftline-Partition"))
        term, _, sequence = reply.field(b"Raftline-Lease").partition(".")
        expires_ms = now + self._lease_ms * LEASE_SHARE
        found = {message.offset: message for message in open_batches(reply.body)}
        numbers = [int(text) for text in spans.split(",")]
        leased: list[Leased] = []
        for at in range(0, len(numbers), 4):
            start, end, attempt, generation = numbers[at : at + 4]
            lease = Lease(
                wish.topic,
                partition,
                wish.group,
                int(term),
                int(sequence),
                attempt,
                generation,
                self._lease_ms,
                expires_ms,
            )
            leased += [(lease, found[offset]) for offset in range(start, end)]
        return leased

    def _take_all(self) -> list[Leased]:
        """Take what waits, one by one: what is given back here no worker takes meanwhile."""
        taken: list[Leased] = []
        with contextlib.suppress(IndexError):
            while True:
                taken.append(self.ready.popleft())
        return taken

    def _give_back(self, leased: list[Leased]) -> None:
        """Let others have what was leased and not worked on; it counts as no delivery."""
        self._settles.take(
            [(lease, message.offset, RELEASE, 0, "", None) for lease, message in leased]
        )

    # ------------------------------------------------------------------ extending

    def watch(self) -> None:
        """Look after what is held from now on."""
        if self._extend_timer is None:
            delay = self._lease_ms * LEASE_SHARE / 4
            self._extend_timer = self._caller.clock.call_later(delay, self._extend_due)

    def _extend_due(self) -> None:
        """Extend what waits here and what is in work, if its lease is half over. R4."""
        self._extend_timer = None
        now = self._caller.clock.mono_ms()
        half = self._lease_ms * LEASE_SHARE / 2
        kept = list(self.ready) + list(self.held.values())  # whole, whatever other threads do
        due = [one for one in kept if 0 < one[0].expires_ms - now <= half]
        settles: list[Settle] = []
        for lease, message in due:
            settles.append(
                (lease, message.offset, EXTEND, self._lease_ms, "", self._extended(lease, now))
            )
        self._settles.take(settles)
        if kept:
            self.watch()

    def _extended(self, lease: Lease, asked_ms: float) -> Callable[[RaftlineError | None], None]:
        def told(error: RaftlineError | None) -> None:
            if error is None or isinstance(error, TimedOut):
                lease.expires_ms = max(lease.expires_ms, asked_ms + self._lease_ms * LEASE_SHARE)

        return told

    def hold(self, one: Leased) -> None:
        """Extend a message that is in work, until it is settled or let go. On any thread. R4."""
        self.held[id(one[1])] = one

    def let_go(self, message: Message) -> None:
        """Extend a message no more. On any thread."""
        self.held.pop(id(message), None)
