"""Topics over HTTP: create, list, show, change, delete; ids for producers."""

from typing import Any

import msgspec

from raftline.gateways.http.answers import (
    PartitionsAnswer,
    ProducerAnswer,
    TopicAnswer,
    TopicCreated,
    TopicDeleted,
    TopicsAnswer,
)
from raftline.gateways.http.connection import Exchange
from raftline.gateways.http.fields import Int
from raftline.gateways.http.routes import Request, Router
from raftline.gateways.ports import Calls
from raftline.gateways.topic_finder import TopicFinder
from raftline.gateways.trace_topics import topic_named
from raftline.model.calls import TopicRow
from raftline.model.errors import InvalidArgument
from raftline.model.settings import check_settings, effective

Setting = str | Int | bool


class NewTopic(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a create. What is left out has the cluster's default.

    The same things in other queues' spelling are ``numberOfPartitions``, ``replicationFactor`` (who
    writes so expects keys to be hashed by crc32) and ``retention_hours``.
    """

    name: str
    num_partitions: Int | None = None
    replication_factor: Int | None = None
    settings: dict[str, Setting] = {}
    numberOfPartitions: Int | None = None  # noqa: N815
    replicationFactor: Int | None = None  # noqa: N815
    retention_hours: Int | None = None

    def arguments(self) -> dict[str, object]:
        """Return what the node is asked for. Raises InvalidArgument."""
        settings = dict(self.settings)
        if self.numberOfPartitions is not None or self.replicationFactor is not None:
            settings.setdefault("partitioner", "crc32")
        if self.retention_hours is not None:
            settings.setdefault("retention_ms", f"{self.retention_hours}h")
        found: dict[str, object] = {"name": self.name, "settings": settings}
        names = ("num_partitions", "numberOfPartitions")
        partitions = _one_of(names, self.num_partitions, self.numberOfPartitions)
        if partitions is not None:
            found["partitions"] = partitions
        names = ("replication_factor", "replicationFactor")
        replicas = _one_of(names, self.replication_factor, self.replicationFactor)
        if replicas is not None:
            found["replication_factor"] = replicas
        return found


class ChangedTopic(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a change: only the settings named are changed; partitions are only added."""

    settings: dict[str, Setting] = {}
    num_partitions: Int | None = None


class TopicRoutes:
    """The routes of ``/v1/topics`` that carry no messages."""

    __slots__ = ("_calls", "_finder")

    def __init__(self, calls: Calls, finder: TopicFinder) -> None:
        self._calls = calls
        self._finder = finder

    def add_to(self, router: Router) -> None:
        """Add the routes."""
        router.add("GET", "/v1/topics", self.list, answer=TopicsAnswer)
        told: dict[str, Any] = {"body": NewTopic, "answer": TopicCreated, "status": 201}
        router.add("POST", "/v1/topics", self.create, **told)
        router.add("GET", "/v1/topics/{topic}", self.show, answer=TopicAnswer)
        router.add("PUT", "/v1/topics/{topic}", self.ensure, answer=TopicAnswer)
        told = {"body": ChangedTopic, "answer": dict[str, Any]}
        router.add("PATCH", "/v1/topics/{topic}", self.change, **told)
        router.add("DELETE", "/v1/topics/{topic}", self.delete, answer=TopicDeleted)
        router.add("GET", "/v1/topics/{topic}/partitions", self.partitions, answer=PartitionsAnswer)
        router.add("POST", "/v1/producers", self.new_producer, answer=ProducerAnswer)

    def list(self, exchange: Exchange, request: Request) -> None:
        """List all topics, without their partitions."""
        topics = [_summary(row) for row in self._calls.known_topics()]
        exchange.json({"topics": topics})

    def create(self, exchange: Exchange, request: Request) -> None:
        """Create a topic."""
        wanted = decode(request.body, NewTopic, '{"name": "orders", "num_partitions": 6}')

        def answer(reply: dict[str, object]) -> None:
            # It may be deleted already: what is told is what was done.
            told = {"name": wanted.name, "created": True, **reply}
            named = {"Name": wanted.name, "NumberOfPartitions": told.get("partitions", 0)}
            exchange.json({**told, **named}, 201)

        self._calls.command(
            "topic.create", wanted.arguments(), request.timeout_ms, exchange.then(answer)
        )

    def show(self, exchange: Exchange, request: Request) -> None:
        """Show one topic with its settings and partitions."""
        row = topic_named(self._calls, request.topic)
        exchange.json({**_summary(row), "partitions": row.partitions})

    def ensure(self, exchange: Exchange, request: Request) -> None:
        """Show a topic; create it first, as a first publish does, where that is allowed."""

        def there(_chosen: "list[int]") -> None:
            self.show(exchange, request)

        self._finder.choose(request.topic, [None], request.timeout_ms, exchange.then(there))

    def change(self, exchange: Exchange, request: Request) -> None:
        """Change settings of a topic, or give it more partitions."""
        wanted = decode(request.body, ChangedTopic, '{"settings": {"retention_ms": 3600000}}')
        if not wanted.settings and wanted.num_partitions is None:
            hint = '{"settings": {"retention_ms": 3600000}} or {"num_partitions": 12}'
            raise InvalidArgument("the body changes nothing", f"the body looks like {hint}")

        def change(reply: dict[str, object]) -> None:
            if not wanted.settings:
                exchange.json(reply)
                return
            arguments: dict[str, object] = {"name": request.topic, "settings": wanted.settings}
            self._calls.command(
                "topic.set", arguments, request.timeout_ms, exchange.then(exchange.json)
            )

        if wanted.num_partitions is None:
            change({})
            return
        check_settings(wanted.settings)  # so that not half of it is done
        grown: dict[str, object] = {"name": request.topic, "partitions": wanted.num_partitions}
        self._calls.command("topic.grow", grown, request.timeout_ms, exchange.then(change))

    def delete(self, exchange: Exchange, request: Request) -> None:
        """Delete a topic and all it holds."""

        def answer(reply: dict[str, object]) -> None:
            exchange.json({"name": request.topic, "deleted": True, **reply})

        self._calls.command(
            "topic.delete", {"name": request.topic}, request.timeout_ms, exchange.then(answer)
        )

    def partitions(self, exchange: Exchange, request: Request) -> None:
        """Show where the partitions of a topic live and who leads them."""
        row = topic_named(self._calls, request.topic)
        exchange.json(
            {
                "topic": row.name,
                "partitions": row.partitions,
                "configuredPartitions": len(row.partitions),
                "partitionKeyStrategy": effective(row.settings)["partitioner"],
                "activePartitions": [{"id": p.partition} for p in row.partitions if p.leader],
            }
        )

    def new_producer(self, exchange: Exchange, request: Request) -> None:
        """Give out a producer id, for sends that may be repeated."""
        self._calls.command("producer.new", {}, request.timeout_ms, exchange.then(exchange.json))


def _one_of(names: tuple[str, str], first: int | None, second: int | None) -> int | None:
    """Return a number that may be spelled in two ways. Raises InvalidArgument."""
    if first is not None and second is not None and first != second:
        raise InvalidArgument(f"{names[0]} {first} and {names[1]} {second}", "send one of them")
    number = second if first is None else first
    if number is not None and number < 1:
        text = f"{names[0]} {number} is below 1"
        raise InvalidArgument(text, "leave it out to have the cluster's default")
    return number


def decode(body: bytes, kind: type[Any], example: str) -> Any:
    """Return the body as a struct. Raises InvalidArgument that shows what it looks like."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(str(error), f"the body looks like {example}") from error


def _summary(row: TopicRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "uuid": row.uuid,
        "num_partitions": len(row.partitions),
        "replication_factor": row.replication_factor,
        "created_ms": row.created_ms,
        "settings": row.settings,
    }
