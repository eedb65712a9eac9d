"""The sync client: ``raftline.connect(...)``.

Calls come from any thread; one thread of its own does the I/O (client/background.py). A send puts
its message into a deque and goes on; that thread takes what is there, batches it and sends it.

Rules
    N1  What is buffered stays below ``buffer_bytes``: then a send waits, and after its timeout it
        raises ``OverLimit``.
    N2  Every wait ends: by the core's deadline, and a little later by itself.
    N3  What was on its way when the client was closed may have been stored: ``TimedOut``.
    N4  A client belongs to the process that connected it; in a fork of that it is closed.
"""

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from raftline.client import asks
from raftline.client.admin import Groups, Letters, Scheduled, Topics
from raftline.client.asks import Json, Moment, Query, split_id
from raftline.client.background import GRACE_S, Background
from raftline.client.clock import mono_ms, wall_ms
from raftline.client.core.batches import MESSAGE_BYTES, Handle, Sent
from raftline.client.core.engine import Options
from raftline.client.core.ports import Ask, Reply
from raftline.client.core.receives import Wish
from raftline.client.core.sends import NOW, Row
from raftline.client.core.settles import Settle, noted_in
from raftline.client.drafts import CHECKED, Bytes, Headers, check_topic, full_row
from raftline.client.leased import Duration, duration_ms
from raftline.client.messages import Message as ReadMessage
from raftline.client.reads import Page, page_of, read_ask
from raftline.client.received import Message, Receiving
from raftline.client.servers import server_list
from raftline.client.wishes import wish_of
from raftline.model.errors import (
    OverLimit,
    RaftlineError,
    TimedOut,
    Unavailable,
    UnknownMessage,
)
from raftline.model.limits import READ_BYTES_DEFAULT

T = TypeVar("T")


class Sending(Handle, gc=False, eq=False, kw_only=True):
    """A message on its way: ``.result()`` waits until it is stored, ``.id()`` is its id then."""

    line: "Line"

    def result(self, timeout: Duration | None = None) -> Sent:
        """Wait until the message is stored, and say where. Raises RaftlineError."""
        if not self.is_done:
            self.line.await_sending(self, timeout)
        return self.outcome()

    def id(self, timeout: Duration | None = None) -> str:
        """Wait until the message is stored, and return its id. Raises RaftlineError."""
        return self.result(timeout).id


class Line:
    """A connection to a cluster. Use it from as many threads as you like."""

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        timeout: Duration = "15s",
        linger: Duration = "5ms",
        batch_bytes: int = 256 << 10,
        buffer_bytes: int = 64 << 20,
        discover: bool = True,
    ) -> None:
        seeds, is_grpc = server_list(servers)
        self._options = Options(
            is_grpc=is_grpc,
            timeout_ms=duration_ms(timeout),
            linger_ms=duration_ms(linger),
            batch_bytes=batch_bytes,
            buffer_bytes=buffer_bytes,
            discover=discover,
        )
        self._timeout_ms: float = self._options.timeout_ms
        self.background = Background(seeds, self._options)
        self._sends = self.background.engine.sends
        self._settles = self.background.engine.settles
        self._rows: deque[Row] = deque()
        self._said: deque[Settle] = deque()
        self._is_awake = False
        self._put_bytes = 0
        self._lock = threading.Lock()
        self._room = threading.Condition()
        self._waiting_for_room = 0
        self._sends.on_done = self._made_room
        self.topics = Topics(self.run)
        self.groups = Groups(self.run)
        self.scheduled = Scheduled(self.run)
        self.dlq = Letters(self.run)
        atexit.register(self.close)
        _LINES.add(self)

    def renew_lock(self) -> None:
        """Have a lock that nobody holds: in a fork, who held it stayed in the other process."""
        self._lock = threading.Lock()

    @property
    def is_grpc(self) -> bool:
        """Say whether calls are carried by gRPC."""
        return self._options.is_grpc

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ send

    def send(
        self,
        topic: str,
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        headers: Headers | None = None,
        priority: int | str = 0,
        delay: Duration | None = None,
        deliver_at: Moment | None = None,
        dedup_key: str | None = None,
        partition: int | None = None,
        timeout: Duration | None = None,
        wait: bool = False,
    ) -> Sending:
        """Send a message: it is batched with others and sent in the background.

        The answer's ``result()`` waits until it is stored; ``wait=True`` does so right here. Sent
        again as often as need be within the timeout, and stored once all the same.

        Raises:
            InvalidArgument: it cannot be sent like that.
            OverLimit: the buffer was full for the whole timeout.
            RaftlineError: with ``wait``, what became of it.
        """
        timeout_ms = self._timeout_ms if timeout is None else duration_ms(timeout)
        deadline_ms = mono_ms() + timeout_ms
        sending = Sending(line=self)
        if type(key) is str:
            key = key.encode()
        if (
            type(value) is bytes
            and (key is None or type(key) is bytes)
            and headers is None
            and priority == 0
            and delay is None
            and deliver_at is None
            and dedup_key is None
            and partition is None
        ):
            if topic not in CHECKED:
                check_topic(topic)
            size = MESSAGE_BYTES + len(value) + (0 if key is None else len(key))
            row = (sending, topic, key, value, (), 0, -1, size, deadline_ms, NOW, None)
        else:
            row = full_row(
                sending,
                topic,
                value,
                key=key,
                headers=headers,
                priority=priority,
                delay=delay,
                deliver_at=deliver_at,
                dedup_key=dedup_key,
                partition=partition,
                deadline_ms=deadline_ms,
                wall_ms=wall_ms(),
            )
        self._put(row)
        if wait:
            sending.result(timeout)
        return sending

    def send_now(self, topic: str, value: Bytes | None, **wishes: Any) -> Sent:
        """Send a message and wait until it is stored. Raises RaftlineError."""
        return self.send(topic, value, **wishes).result(wishes.get("timeout"))

    def send_many(self, topic: str, values: Iterable[Bytes | None], **wishes: Any) -> list[Sending]:
        """Send messages that all wish the same; wait for them with ``flush`` or one by one."""
        return [self.send(topic, value, **wishes) for value in values]

    def flush(self, timeout: Duration | None = None) -> None:
        """Wait until every send and settle so far has its outcome.

        Raises:
            TimedOut: not in time. What a send's ``result()`` would raise is not raised here.
        """
        timeout_ms = self._timeout_ms if timeout is None else duration_ms(timeout)

        def begin(done: Callable[[Any], None]) -> None:
            self._drain()
            self.background.engine.flush(lambda: done(True))

        if self.background.wait(begin, timeout_ms / 1000 + GRACE_S) is None:
            raise TimedOut("flush", int(timeout_ms))

    def await_sending(self, sending: Sending, timeout: Duration | None) -> None:
        """Wait until it is known what became of a message. Raises TimedOut."""
        timeout_ms = self._timeout_ms if timeout is None else duration_ms(timeout)
        grace = GRACE_S if timeout is None else 0.0

        def begin(done: Callable[[Any], None]) -> None:
            self._drain()
            self._sends.watch(sending, lambda: done(True))

        try:
            found = self.background.wait(begin, timeout_ms / 1000 + grace)
        except Unavailable:
            if sending.is_done:
                return
            if sending.load is None:
                raise
            found = None  # N3
        if found is None:
            raise TimedOut("sending a message", int(timeout_ms))

    def _put(self, row: Row) -> None:
        if self._put_bytes - self._sends.done_bytes > self._options.buffer_bytes:
            self._wait_for_room(row)
        with self._lock:
            self._put_bytes += row[7]
            self._rows.append(row)
        if not self._is_awake:
            self._wake()

    def _wake(self) -> None:
        self._is_awake = True
        try:
            self.background.call(self._drain)
        except Unavailable:
            self._is_awake = False  # the next one hears it, too
            raise

    def _drain(self) -> None:
        """Take what was sent and said since the last time. On the I/O thread."""
        self._is_awake = False
        for inbox, take in ((self._rows, self._sends.take), (self._said, self._settles.take)):
            taken: list[Any] = []
            while inbox:
                taken.append(inbox.popleft())
            if taken:
                take(taken)

    def _wait_for_room(self, row: Row) -> None:
        """Hold a sender back while too much is buffered. N1."""
        self._wake()

        def has_room() -> bool:
            buffered = self._put_bytes - self._sends.done_bytes
            return buffered <= self._options.buffer_bytes or self.background.is_closed

        with self._room:
            self._waiting_for_room += 1
            left_s = (row[8] - mono_ms()) / 1000
            is_there = self._room.wait_for(has_room, max(0.0, left_s))
            self._waiting_for_room -= 1
        if is_there:
            return
        buffered = self._put_bytes - self._sends.done_bytes
        raise OverLimit("bytes on their way", buffered, self._options.buffer_bytes)

    def _made_room(self) -> None:
        if self._waiting_for_room:
            with self._room:
                self._room.notify_all()

    # ------------------------------------------------------------------ receive

    def receive(
        self,
        topic: str,
        *,
        group: str,
        lease: Duration | None = None,
        count: int = 500,
        wait: Duration | None = None,
        partition: int | None = None,
        member: str = "",
        ordered: bool = False,
        start: str = "first",
        extend: bool = False,
        timeout: Duration | None = None,
    ) -> Receiving:
        """Iterate over messages leased to this worker.

        Args:
            topic: where from.
            group: the work group; each message goes to one of its workers.
            lease: time to settle a message; default what the topic said when it was looked up.
            count: how many may be leased at a time. The client begins with one and asks for as
                many as are worked off in a tenth of the lease.
            wait: end after so long without a message (0: take what is there); default never.
            partition: only this one.
            member: this worker's name, shown in traces.
            ordered: messages of a key one after the other.
            start: where a new group begins, "first" or "next".
            extend: extend the lease of the message in work, and of those that wait for it, until
                the next one is asked for.
            timeout: raise if no node answered for so long.
        """
        return Receiving(
            self,
            self._wish(
                topic,
                group=group,
                lease=lease,
                count=count,
                wait=wait,
                partition=partition,
                member=member,
                ordered=ordered,
                start=start,
                extend=extend,
                timeout=timeout,
            ),
        )

    def receive_many(
        self,
        topic: str,
        *,
        group: str,
        count: int = 10,
        wait: Duration = 0,
        lease: Duration | None = None,
        partition: int | None = None,
        member: str = "",
        ordered: bool = False,
        start: str = "first",
        timeout: Duration | None = None,
    ) -> list[Message]:
        """Lease up to ``count`` messages at once; wait up to ``wait`` for the first of them."""
        wish = self._wish(
            topic,
            group=group,
            lease=lease,
            count=count,
            wait=wait,
            partition=partition,
            member=member,
            ordered=ordered,
            start=start,
            extend=False,
            timeout=timeout,
            is_single=True,
        )
        with Receiving(self, wish) as receiving:
            return list(receiving)

    def ack_many(self, messages: Iterable[Message], *, wait: bool = False) -> None:
        """Ack messages; with ``wait`` return when all of it is stored.

        Raises:
            RaftlineError: with ``wait``, what became of the first that is not (LeaseLost).
        """
        lost: list[RaftlineError] = []
        told = noted_in(lost)
        for message in messages:
            self.settle(message.acked(told), wait=False)
        if wait:
            self.flush()
            if lost:
                raise lost[0]

    def settle(self, settle: Settle, *, wait: bool) -> None:
        """Pass on what a worker says of a message. Raises RaftlineError where it waits."""
        if not wait:
            self._said.append(settle)
            if not self._is_awake:
                self._wake()
            return

        def begin(done: Callable[[Any], None]) -> None:
            self._drain()

            def told(error: RaftlineError | None) -> None:
                done((error,))

            self._settles.take([(*settle[:5], told)])

        found = self.background.wait(begin, self._timeout_ms / 1000 + GRACE_S)
        if found is None:
            raise TimedOut(settle[2], int(self._timeout_ms))
        if found[0] is not None:
            raise found[0]

    @property
    def settles_lost(self) -> int:
        """Return how many settles were refused because their lease had moved on, or unheard."""
        return self._settles.lost_count

    def _wish(
        self,
        topic: str,
        *,
        group: str,
        lease: Duration | None,
        count: int,
        wait: Duration | None,
        partition: int | None,
        timeout: Duration | None,
        **rest: Any,
    ) -> Wish:
        return wish_of(topic, group, lease, count, wait, partition, timeout, self._timeout_ms, rest)

    # ------------------------------------------------------------------ read and ask

    def read(
        self,
        topic: str,
        partition: int = 0,
        offset: int = 0,
        *,
        count: int = 1000,
        wait: Duration = 0,
        bytes_max: int = READ_BYTES_DEFAULT,
    ) -> Page:
        """Read the log from ``offset`` on; at its end wait for more. Nothing is leased."""
        wait_ms = duration_ms(wait)
        ask = read_ask(topic, partition, offset, wait_ms=wait_ms, bytes_max=bytes_max)
        return page_of(self._reply(ask), topic, partition, offset, count)

    def offsets(self, topic: str, partition: int = 0, time_ms: int | None = None) -> Json:
        """Return the bounds of a partition's log, or the first message at or after a time."""
        return self.run(asks.offsets(topic, partition, time_ms))

    def message(self, id: str) -> ReadMessage:  # noqa: A002
        """Return one stored message by its id. Raises UnknownMessage."""
        topic, partition, place = split_id(id)
        if place.startswith("w"):
            found = self.run(asks.scheduled_one(id))
            if "offset" not in found:
                raise UnknownMessage(id, f"it is {found.get('state', 'gone')}")
            place = str(found["offset"])
        page = self.read(topic, partition, int(place), count=1, bytes_max=1)
        if not page.messages or page.messages[0].offset != int(place):
            raise UnknownMessage(id)
        return page.messages[0]

    def trace(self, id: str) -> Json:  # noqa: A002
        """Return the timeline of a message."""
        return self.run(asks.trace(id))

    def search(self, topic: str, **wanted: Any) -> Json:
        """Find messages by ``key from_time to_time member group state partition limit after``."""
        return self.run(asks.search(topic, **wanted))

    def cluster(self) -> Json:
        """Return nodes, topics and health as one node sees them."""
        return self.run(asks.cluster())

    def run(self, query: Query[T]) -> T:
        """Make a call. Raises RaftlineError."""
        return query.answer(self._reply(query.ask))

    def _reply(self, ask: Ask) -> Reply:
        limit_s = (self._timeout_ms + ask.wait_ms) / 1000 + GRACE_S
        engine = self.background.engine
        answer = self.background.wait(
            lambda done: engine.call(ask, self._timeout_ms, done), limit_s
        )
        if answer is None:
            raise TimedOut(f"{ask.method} {ask.path}", int(self._timeout_ms))
        if isinstance(answer, RaftlineError):
            raise answer
        assert isinstance(answer, Reply)
        return answer

    def close(self, timeout: Duration | None = None) -> None:
        """Send what is buffered, give back what is leased and not worked on, hang up."""
        if self.background.is_closed:
            return
        atexit.unregister(self.close)
        try:
            engine = self.background.engine
            self.background.wait(lambda done: engine.close_receivers(lambda: done(True)), GRACE_S)
            self.flush(timeout)
        except (TimedOut, Unavailable):
            pass  # sends know by themselves what became of them
        finally:
            self.background.stop()


_LINES: "weakref.WeakSet[Line]" = weakref.WeakSet()


def _renew_locks() -> None:
    for line in list(_LINES):
        line.renew_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)  # N4


def connect(
    servers: str | Sequence[str] = "http://127.0.0.1:8080",
    *,
    timeout: Duration = "15s",
    linger: Duration = "5ms",
    batch_bytes: int = 256 << 10,
    buffer_bytes: int = 64 << 20,
    discover: bool = True,
) -> Line:
    """Connect to a cluster through any of its nodes; the others are found.

    Args:
        servers: ``"http://a:8080,http://b:8080"`` or a list of such; ``grpc://a:9000`` to be
            served over gRPC.
        timeout: of every call that says nothing else.
        linger: how long a batch that is not full waits for more.
        batch_bytes: when it is full.
        buffer_bytes: how much may be on its way; then ``send`` waits.
        discover: False: ask only the servers given, through a proxy for instance.
    """
    return Line(
        servers,
        timeout=timeout,
        linger=linger,
        batch_bytes=batch_bytes,
        buffer_bytes=buffer_bytes,
        discover=discover,
    )
