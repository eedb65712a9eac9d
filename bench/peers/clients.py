"""What a load process asks of a system's client, and two ways to do it: coroutines and threads.

Workloads
    publish  closed loop: so many messages on their way, each acknowledged by itself
    bulk     as many messages as possible in the best form the client has, all acknowledged
    pace     so many messages a second, whatever the answers take
    consume  read what bulk stored
    work     take messages one by one and ack each, as one of several workers
    first    connect and store one message, as early as that is possible
    probe    publish one after the other while a leader dies
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

PACE_WINDOW = 16
ATTEMPT_S = 1.0
Take = Callable[[bytes | None], bool]  # a message, or None where none came; False: end


class Client(Protocol):
    """The client of one system."""

    def create(self, topic: str, *, work: bool) -> None:
        """Make a topic (a queue, a stream) for reading, or for workers, and wait for it."""

    def publish(self, topic: str, value: bytes, window: int, until: float) -> list[float]:
        """Keep ``window`` publishes on their way; return the seconds each one took."""
        ...

    def pace(self, topic: str, make: Callable[[], bytes], rate: float, until: float) -> int:
        """Publish at a rate; return how many were acknowledged."""
        ...

    def bulk(self, topic: str, value: bytes, until: float, count_max: int) -> int:
        """Publish in bulk; return how many were acknowledged."""
        ...

    def consume(self, topic: str, count: int, until: float) -> int:
        """Read messages from the first on; return how many."""
        ...

    def join(self, topic: str, member: str) -> None:
        """Get ready to work."""

    def work(self, topic: str, member: str, take: Take) -> None:
        """Take and ack messages until ``take`` says no."""

    def publish_one(self, topic: str, value: bytes) -> None:
        """Publish one message and wait until it is stored, for ATTEMPT_S or so; raises."""

    def leader(self, topic: str) -> int:
        """Return the number of the node that leads a topic, from 0."""
        ...

    def close(self) -> None:
        """Hang up."""


class AsyncClient:
    """Publishes with coroutines on one loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    async def publish_async(self, topic: str, value: bytes) -> None:
        """Publish one message and wait until it is stored."""
        raise NotImplementedError

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine to its end."""
        if self._loop is None:
            import uvloop

            self._loop = uvloop.new_event_loop()
        return self._loop.run_until_complete(coroutine)

    def publish_one(self, topic: str, value: bytes) -> None:
        self.run(asyncio.wait_for(self.publish_async(topic, value), ATTEMPT_S))

    def publish(self, topic: str, value: bytes, window: int, until: float) -> list[float]:
        took: list[float] = []
        clock, publish = time.perf_counter, self.publish_async

        async def one() -> None:
            while (begun := clock()) < until:
                await publish(topic, value)
                took.append(clock() - begun)

        async def all_of_them() -> None:
            async with asyncio.TaskGroup() as group:
                for _ in range(window):
                    group.create_task(one())

        self.run(all_of_them())
        return took

    def pace(self, topic: str, make: Callable[[], bytes], rate: float, until: float) -> int:
        begun, sent = time.perf_counter(), 0

        async def run() -> None:
            nonlocal sent
            async with asyncio.TaskGroup() as group:
                while (now := time.perf_counter()) < until:
                    while sent < (now - begun) * rate:
                        group.create_task(self.publish_async(topic, make()))
                        sent += 1
                    await asyncio.sleep(max(0.0, begun + (sent + 1) / rate - time.perf_counter()))

        self.run(run())
        return sent


class ThreadClient:
    """Publishes with threads that have a connection each."""

    def __init__(self) -> None:
        self._local = threading.local()

    def connect(self) -> Any:
        """Return a new connection."""
        raise NotImplementedError

    def publish_by(self, connection: Any, topic: str, value: bytes) -> None:
        """Publish one message and wait until it is stored."""
        raise NotImplementedError

    @property
    def connection(self) -> Any:
        """Return this thread's connection."""
        found = getattr(self._local, "connection", None)
        if found is None:
            found = self._local.connection = self.connect()
        return found

    def forget(self) -> None:
        """Connect anew next time."""
        self._local.connection = None

    def publish_one(self, topic: str, value: bytes) -> None:
        try:
            self.publish_by(self.connection, topic, value)
        except Exception:
            self.forget()
            raise

    def publish(self, topic: str, value: bytes, window: int, until: float) -> list[float]:
        took: list[float] = []
        clock = time.perf_counter

        def one() -> None:
            connection, publish = self.connection, self.publish_by
            while (begun := clock()) < until:
                publish(connection, topic, value)
                took.append(clock() - begun)

        in_threads(one, window)
        return took

    def pace(self, topic: str, make: Callable[[], bytes], rate: float, until: float) -> int:
        begun, numbers = time.perf_counter(), iter(range(1 << 60))
        done: list[int] = []

        def one() -> None:
            connection = self.connection
            while (due := begun + (number := next(numbers)) / rate) < until:
                time.sleep(max(0.0, due - time.perf_counter()))
                self.publish_by(connection, topic, make())
                done.append(number)

        in_threads(one, PACE_WINDOW)
        return len(done)

    def close(self) -> None:
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.close()


def in_threads(function: Callable[[], None], count: int) -> None:
    """Run a function in threads; raise what one of them raised. One thread: run it right here."""
    if count == 1:
        function()
        return
    failed: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
