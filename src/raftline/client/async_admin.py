"""Topics, groups, waiting messages and dead letters, for the async client."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from raftline.client import asks
from raftline.client.asks import Json, Moment, Query
from raftline.client.leased import Duration, duration_ms

T = TypeVar("T")
Rows = list[Json]


class Run(Protocol):
    """Makes a call."""

    async def __call__(self, query: Query[T]) -> T:
        """Make it. Raises RaftlineError."""
        ...


class AsyncTopics:
    """Topics of the cluster."""

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        self._run = run

    async def list(self) -> "Rows":
        """Return all topics, without their partitions."""
        return await self._run(asks.topics())

    async def show(self, name: str) -> Json:
        """Return one topic with its settings and partitions."""
        return await self._run(asks.topic(name))

    async def create(
        self, name: str, *, partitions: int = 0, replication_factor: int = 0, **settings: Any
    ) -> Json:
        """Create a topic; 0 means the cluster's default. Settings: ``max_retries=5`` and so on."""
        return await self._run(asks.create_topic(name, partitions, replication_factor, settings))

    async def set(self, name: str, **settings: Any) -> Json:
        """Change settings of a topic."""
        return await self._run(asks.set_topic(name, settings))

    async def delete(self, name: str) -> Json:
        """Delete a topic and everything in it."""
        return await self._run(asks.delete_topic(name))


class AsyncGroups:
    """Work groups and stream groups."""

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        self._run = run

    async def list(self, topic: str | None = None) -> "Rows":
        """Return all groups, of one topic if it is named."""
        return await self._run(asks.groups(topic))

    async def show(self, name: str, topic: str | None = None) -> Json:
        """Return one group: members, cursors, lag, leases."""
        return await self._run(asks.group(name, topic))

    async def reset(
        self,
        name: str,
        topic: str,
        *,
        to: str | None = None,
        offset: int | None = None,
        time: Moment | None = None,
        partitions: Sequence[int] | None = None,
        kind: str = "work",
        dry_run: bool = False,
        create: bool = False,
    ) -> Json:
        """Deliver again from another place: ``to="earliest"``, an offset, or a time.

        With ``create`` a work group that is not there yet begins at that place.
        """
        query = asks.reset_group(
            name,
            topic,
            to=to,
            offset=offset,
            time=time,
            partitions=partitions,
            kind=kind,
            dry_run=dry_run,
            create=create,
        )
        return await self._run(query)

    async def delete(self, name: str, topic: str | None = None) -> Json:
        """Forget a group, on one topic if it is named."""
        return await self._run(asks.delete_group(name, topic))


class AsyncScheduled:
    """Messages that wait for their time."""

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        self._run = run

    async def list(
        self,
        topic: str,
        *,
        partition: int | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Json:
        """Return a page of what waits, in the order it is due; ``next`` is the next ``after``."""
        return await self._run(asks.scheduled(topic, partition, limit, after))

    async def stats(self, topic: str) -> Json:
        """Return how many messages wait, and waited."""
        return await self._run(asks.scheduled_stats(topic))

    async def show(self, id: str) -> Json:  # noqa: A002
        """Return one message; where it is if it waits no more."""
        return await self._run(asks.scheduled_one(id))

    async def cancel(self, id: str) -> Json:  # noqa: A002
        """Cancel a message: once this returns it is never delivered. Raises NotWaiting."""
        return await self._run(asks.cancel(id))

    async def move(
        self,
        id: str,  # noqa: A002
        *,
        delay: Duration | None = None,
        deliver_at: Moment | None = None,
    ) -> Json:
        """Let a message be due at another time."""
        delay_ms = None if delay is None else duration_ms(delay)
        return await self._run(asks.move(id, delay_ms, deliver_at))


class AsyncLetters:
    """Dead letters: what work groups gave up on."""

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        self._run = run

    async def list(
        self, topic: str, *, limit: int | None = None, after: str | None = None, **wanted: Any
    ) -> Json:
        """Return a page; filter by ``group reason key from_time to_time state``."""
        return await self._run(asks.letters(topic, limit, after, **wanted))

    async def show(self, topic: str, id: str) -> Json:  # noqa: A002
        """Return one dead letter."""
        return await self._run(asks.letter(topic, id))

    async def redrive(
        self,
        topic: str,
        *,
        ids: Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        every: bool = False,
        rate_per_s: int | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> Json:
        """Deliver again: letters by ``ids``, by a filter, or ``every=True``."""
        query = asks.end_letters(
            "redrive",
            topic,
            ids=ids,
            every=every,
            where=where,
            rate_per_s=rate_per_s,
            limit=limit,
            dry_run=dry_run,
        )
        return await self._run(query)

    async def purge(
        self,
        topic: str,
        *,
        ids: Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        every: bool = False,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> Json:
        """Be done with letters for good."""
        query = asks.end_letters(
            "purge",
            topic,
            ids=ids,
            every=every,
            where=where,
            rate_per_s=None,
            limit=limit,
            dry_run=dry_run,
        )
        return await self._run(query)
