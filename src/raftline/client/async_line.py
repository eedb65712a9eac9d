"""The async client: ``raftline.connect_async(...)``, on the event loop that uses it.

The same core as the sync client (client/line.py), without a thread: what that one waits for, this
one awaits.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from random import Random
from typing import Any, TypeVar

from raftline.client import asks
from raftline.client.asks import Json, Moment, Query, split_id
from raftline.client.async_admin import AsyncGroups, AsyncLetters, AsyncScheduled, AsyncTopics
from raftline.client.async_received import AsyncMessage, AsyncReceiving, Turn
from raftline.client.background import GRACE_S
from raftline.client.clock import mono_ms, wall_ms
from raftline.client.core.batches import Handle, Sent
from raftline.client.core.engine import Engine, Options
from raftline.client.core.ports import Ask, Reply
from raftline.client.core.sends import Row
from raftline.client.core.settles import Settle, noted_in
from raftline.client.drafts import Bytes, Headers, full_row
from raftline.client.leased import Duration, duration_ms
from raftline.client.messages import Message as ReadMessage
from raftline.client.net import LoopClock, Way, new_network
from raftline.client.reads import Page, page_of, read_ask
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
TURN_SENDS = 500  # after so many sends others have a turn


class AsyncSending(Handle, gc=False, eq=False, kw_only=True):
    """A message on its way: ``await`` it, or its ``result()``, to know that it is stored."""

    line: "AsyncLine"

    async def result(self, timeout: Duration | None = None) -> Sent:  # noqa: ASYNC109
        """Wait until the message is stored, and say where. Raises RaftlineError."""
        if not self.is_done:
            await self.line.await_sending(self, timeout)
        return self.outcome()

    async def id(self, timeout: Duration | None = None) -> str:  # noqa: ASYNC109
        """Wait until the message is stored, and return its id. Raises RaftlineError."""
        return (await self.result(timeout)).id

    def __await__(self) -> Generator[Any, None, Sent]:
        return self.result().__await__()


class AsyncLine:
    """A connection to a cluster, for one event loop: ``async with``, or ``await`` it."""

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
        self._seeds, is_grpc = server_list(servers)
        self._options = Options(
            is_grpc=is_grpc,
            timeout_ms=duration_ms(timeout),
            linger_ms=duration_ms(linger),
            batch_bytes=batch_bytes,
            buffer_bytes=buffer_bytes,
            discover=discover,
        )
        self._timeout_ms: float = self._options.timeout_ms
        self._loop: asyncio.AbstractEventLoop | None = None
        self._engine: Engine | None = None
        self._wires: Way | None = None
        self._rows: deque[Row] = deque()
        self._said: list[Settle] = []
        self._is_awake = False
        self._is_closed = False  # nothing new is begun
        self._is_over = False  # nothing goes out any more
        self._put_bytes = 0
        self._room = asyncio.Event()
        self.topics = AsyncTopics(self.run)
        self.groups = AsyncGroups(self.run)
        self.scheduled = AsyncScheduled(self.run)
        self.dlq = AsyncLetters(self.run)

    @property
    def engine(self) -> Engine:
        """The core, begun on first use."""
        if self._engine is None:
            self._loop = asyncio.get_running_loop()
            self._wires = new_network(self._loop, is_grpc=self._options.is_grpc)
            clock = LoopClock(self._loop)
            self._engine = Engine(clock, self._wires, Random(), self._seeds, self._options)
            self._engine.sends.on_done = self._room.set
            self._engine.start()
        return self._engine

    def open_engine(self) -> Engine:
        """Return the core, for something new. Raises Unavailable after ``close``."""
        if self._is_closed:
            raise Unavailable("the client is closed", "connect again")
        return self.engine

    def __await__(self) -> Generator[Any, None, "AsyncLine"]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> "AsyncLine":
        _ = self.engine
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def call_soon(self, function: Callable[[], object]) -> None:
        """Run something on the loop, from anywhere, if it still runs."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    # ------------------------------------------------------------------ send

    async def send(
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
        timeout: Duration | None = None,  # noqa: ASYNC109
        wait: bool = False,
    ) -> AsyncSending:
        """Send a message; see ``Line.send``. Waits while the buffer is full. Raises OverLimit."""
        timeout_ms = self._timeout_ms if timeout is None else duration_ms(timeout)
        engine = self.open_engine()
        sending = AsyncSending(line=self)
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
            deadline_ms=mono_ms() + timeout_ms,
            wall_ms=wall_ms(),
        )
        if self._put_bytes - engine.sends.done_bytes > self._options.buffer_bytes:
            await self._wait_for_room(row)
        self._put_bytes += row[7]
        self._rows.append(row)
        self._wake()
        if len(self._rows) >= TURN_SENDS:
            await Turn()
        if wait:
            await sending.result(timeout)
        return sending

    async def send_now(self, topic: str, value: Bytes | None, **wishes: Any) -> Sent:
        """Send a message and wait until it is stored. Raises RaftlineError."""
        sending = await self.send(topic, value, **wishes)
        return await sending.result(wishes.get("timeout"))

    async def send_many(
        self, topic: str, values: Iterable[Bytes | None], **wishes: Any
    ) -> list[AsyncSending]:
        """Send messages that all wish the same; wait for them with ``flush`` or one by one."""
        return [await self.send(topic, value, **wishes) for value in values]

    async def flush(self, timeout: Duration | None = None) -> None:  # noqa: ASYNC109
        """Wait until every send and settle so far has its outcome. Raises TimedOut."""
        timeout_ms = self._timeout_ms if timeout is None else duration_ms(timeout)
        self._drain()
        await self._until(
            lambda done: self.engine.flush(lambda: done(True)), timeout_ms / 1000 + GRACE_S, "flush"
        )

    async def await_sending(self, sending: AsyncSending, timeout: Duration | None) -> None:  # noqa: ASYNC109
        """Wait until it is known what became of a message. Raises TimedOut."""
        timeout_ms = self._timeout_ms if timeout is None else duration_ms(timeout)
        grace = GRACE_S if timeout is None else 0.0
        # taken with all that is sent in this pass of the loop: who waits together travels together
        await self._until(
            lambda done: self.engine.sends.watch(sending, lambda: done(True)),
            timeout_ms / 1000 + grace,
            "sending a message",
        )

    def _wake(self) -> None:
        if not self._is_awake:
            self._is_awake = True
            asyncio.get_running_loop().call_soon(self._drain)

    def _drain(self) -> None:
        """Take what was sent and said since the last time."""
        self._is_awake = False
        if self._rows:
            rows, self._rows = self._rows, deque()
            self.engine.sends.take(rows)
            self.engine.sends.watch_again()
        if self._said:
            said, self._said = self._said, []
            self.engine.settles.take(said)

    async def _wait_for_room(self, row: Row) -> None:
        sends, most = self.engine.sends, self._options.buffer_bytes
        self._drain()
        while self._put_bytes - sends.done_bytes > most:
            left_s = (row[8] - mono_ms()) / 1000
            if left_s <= 0:
                raise OverLimit("bytes on their way", self._put_bytes - sends.done_bytes, most)
            self._room.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._room.wait()
            except TimeoutError:
                continue

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
    ) -> AsyncReceiving:
        """Iterate over messages leased to this worker; see ``Line.receive``."""
        rest = {"member": member, "ordered": ordered, "start": start, "extend": extend}
        return AsyncReceiving(
            self,
            wish_of(topic, group, lease, count, wait, partition, timeout, self._timeout_ms, rest),
        )

    async def receive_many(
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
        timeout: Duration | None = None,  # noqa: ASYNC109
    ) -> list[AsyncMessage]:
        """Lease up to ``count`` messages at once; wait up to ``wait`` for the first of them."""
        rest = {"member": member, "ordered": ordered, "start": start, "is_single": True}
        wish = wish_of(topic, group, lease, count, wait, partition, timeout, self._timeout_ms, rest)
        taken: list[AsyncMessage] = []
        async with AsyncReceiving(self, wish) as receiving:
            try:
                async for message in receiving:
                    taken.append(message)  # noqa: PERF401 - who is cancelled has some already
            except BaseException:
                for message in taken:
                    await message.release()  # nobody will ever see them
                raise
        return taken

    async def ack_many(self, messages: Iterable[AsyncMessage], *, wait: bool = False) -> None:
        """Ack messages; with ``wait`` return when all of it is stored. See ``Line.ack_many``."""
        lost: list[RaftlineError] = []
        told = noted_in(lost)
        for message in messages:
            await self.settle(message.acked(told), wait=False)
        if wait:
            await self.flush()
            if lost:
                raise lost[0]

    async def settle(self, settle: Settle, *, wait: bool) -> None:
        """Pass on what a worker says of a message. Raises RaftlineError where it waits."""
        if self._is_over:  # while it is being closed, workers still say what became of messages
            raise Unavailable("the client is closed", "connect again")
        settles = self.engine.settles
        if not wait:
            self._said.append(settle)
            self._wake()
            return

        def begin(done: Callable[[Any], None]) -> None:
            def told(error: RaftlineError | None) -> None:
                done((error,))

            settles.take([(*settle[:5], told)])

        found = await self._until(begin, self._timeout_ms / 1000 + GRACE_S, settle[2])
        if found[0] is not None:
            raise found[0]

    @property
    def settles_lost(self) -> int:
        """Return how many settles were refused because their lease had moved on, or unheard."""
        return self.engine.settles.lost_count

    # ------------------------------------------------------------------ read and ask

    async def read(
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
        return page_of(await self._reply(ask), topic, partition, offset, count)

    async def offsets(self, topic: str, partition: int = 0, time_ms: int | None = None) -> Json:
        """Return the bounds of a partition's log, or the first message at or after a time."""
        return await self.run(asks.offsets(topic, partition, time_ms))

    async def message(self, id: str) -> ReadMessage:  # noqa: A002
        """Return one stored message by its id. Raises UnknownMessage."""
        topic, partition, place = split_id(id)
        if place.startswith("w"):
            found = await self.run(asks.scheduled_one(id))
            if "offset" not in found:
                raise UnknownMessage(id, f"it is {found.get('state', 'gone')}")
            place = str(found["offset"])
        page = await self.read(topic, partition, int(place), count=1, bytes_max=1)
        if not page.messages or page.messages[0].offset != int(place):
            raise UnknownMessage(id)
        return page.messages[0]

    async def trace(self, id: str) -> Json:  # noqa: A002
        """Return the timeline of a message."""
        return await self.run(asks.trace(id))

    async def search(self, topic: str, **wanted: Any) -> Json:
        """Find messages by ``key from_time to_time member group state partition limit after``."""
        return await self.run(asks.search(topic, **wanted))

    async def cluster(self) -> Json:
        """Return nodes, topics and health as one node sees them."""
        return await self.run(asks.cluster())

    async def run(self, query: Query[T]) -> T:
        """Make a call. Raises RaftlineError."""
        return query.answer(await self._reply(query.ask))

    async def _reply(self, ask: Ask) -> Reply:
        limit_s = (self._timeout_ms + ask.wait_ms) / 1000 + GRACE_S
        engine = self.open_engine()
        answer = await self._until(
            lambda done: engine.call(ask, self._timeout_ms, done),
            limit_s,
            f"{ask.method} {ask.path}",
        )
        if isinstance(answer, RaftlineError):
            raise answer
        assert isinstance(answer, Reply)
        return answer

    async def _until(
        self, begin: Callable[[Callable[[Any], None]], None], limit_s: float, what: str
    ) -> Any:
        """Begin something and wait until it calls back. Raises TimedOut."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(answer: Any) -> None:
            if not future.done():
                future.set_result(answer)

        begin(done)
        try:
            async with asyncio.timeout(limit_s):
                return await future
        except TimeoutError as error:
            raise TimedOut(what, int(limit_s * 1000)) from error

    async def close(self, timeout: Duration | None = None) -> None:  # noqa: ASYNC109
        """Send what is buffered, give back what is leased and not worked on, hang up."""
        engine = self._engine
        if engine is None:
            self._is_closed = self._is_over = True
        if self._is_closed or engine is None:
            return  # it is over when the call that came first is done
        self._is_closed = True
        try:
            with contextlib.suppress(TimedOut):  # acks and sends are to go out all the same
                await self._until(
                    lambda done: engine.close_receivers(lambda: done(True)), GRACE_S, "close"
                )
            await self.flush(timeout)
        except TimedOut:
            pass  # sends know by themselves what became of them
        finally:
            self._is_over = True
            engine.close()
            assert self._wires is not None
            self._wires.close()


def connect_async(
    servers: str | Sequence[str] = "http://127.0.0.1:8080",
    *,
    timeout: Duration = "15s",
    linger: Duration = "5ms",
    batch_bytes: int = 256 << 10,
    buffer_bytes: int = 64 << 20,
    discover: bool = True,
) -> AsyncLine:
    """Connect to a cluster from an event loop; options as for ``connect``.

    ``async with raftline.connect_async(...) as line``, or ``line = await connect_async(...)``.
    """
    return AsyncLine(
        servers,
        timeout=timeout,
        linger=linger,
        batch_bytes=batch_bytes,
        buffer_bytes=buffer_bytes,
        discover=discover,
    )
