"""ApiVersions and Metadata: what is spoken here, and where everything is.

A topic that does not exist is created here, because clients ask before they send. The reply waits
until the partitions that were asked for have leaders, so that clients whose leader died need not
ask again and again: for ``LEADER_WAIT_MS`` at most, of a new topic ``CREATE_WAIT_MS``. Of
partitions that have no replica here it is asked who leads them (leader_looks.py).

Nodes that are not heard of stay on the list as long as they are members: librdkafka takes one that
is missing for gone, and then sends nothing for a second to what that one led. A node whose Kafka
address is not known yet (founders know each other's peer addresses only) is left out, and leads
nothing that a client could be sent to.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from raftline.config.addresses import parse_address
from raftline.gateways.kafka import schema
from raftline.gateways.kafka.codec import ZERO_UUID
from raftline.gateways.kafka.dispatch import Context, Reply, Table
from raftline.gateways.kafka.errors import (
    INVALID_TOPIC,
    LEADER_NOT_AVAILABLE,
    NONE,
    UNKNOWN_TOPIC_ID,
    UNSUPPORTED_VERSION,
    code_of,
    missing_code,
)
from raftline.gateways.kafka.leader_looks import LeaderLooks
from raftline.gateways.kafka.operations import ON_CLUSTER, ON_TOPIC, may
from raftline.gateways.kafka.ports import KafkaCalls
from raftline.model.calls import NodeRow, PartitionRow, TopicRow
from raftline.model.errors import (
    InvalidTopic,
    RaftlineError,
    TimedOut,
    TopicExists,
    Unavailable,
)
from raftline.model.names import check_topic_name
from raftline.node.ports import Clock

CREATE_WAIT_MS = 3_000
LEADER_WAIT_MS = 400
LOOK_AGAIN_MS = 10
WAITED_MAX = 100  # topics that are looked at again and again
SEEN_MAX = 1_000  # topics of which it is remembered whether they had leaders, for LOOK_AGAIN_MS
NULL_NAMES_FROM = 12  # the first version whose reply may leave the name of a topic out
NO_LEADER = -1
NO_EPOCH = -1
NODE_TIMEOUT_MS = 5_000
WILD_HOSTS = ("", "0.0.0.0", "::")

Fields = dict[str, Any]


class MetadataApi:
    """Answers where things are."""

    __slots__ = ("_auto_create", "_calls", "_clock", "_looks", "_seen", "_table")

    def __init__(self, clock: Clock, calls: KafkaCalls, *, auto_create: bool) -> None:
        self._clock = clock
        self._calls = calls
        self._auto_create = auto_create
        self._looks = LeaderLooks(clock, calls)
        self._seen: dict[str, tuple[float, bool]] = {}  # when looked at, whether all had leaders
        self._table: Table | None = None

    def add_to(self, table: Table) -> None:
        """Serve both."""
        self._table = table
        table.add(schema.API_VERSIONS, 0, 4, self.api_versions)
        table.add(schema.METADATA, 0, 13, self.metadata)

    def api_versions(self, request: Fields, version: int, context: Context, reply: Reply) -> None:
        """Say which APIs are served; a version we do not know is told so in the oldest form."""
        assert self._table is not None
        is_known = version <= self._table.handlers[schema.API_VERSIONS.key].max_version
        error = NONE if is_known else UNSUPPORTED_VERSION
        reply({"error_code": error, "api_keys": self._table.versions()})

    def metadata(self, request: Fields, version: int, context: Context, reply: Reply) -> None:
        """Describe the nodes and topics; create what is not there if that is allowed."""
        asked: list[Fields] | None = request["topics"]
        if asked is None or (version == 0 and not asked):
            self._all(request, context, reply)
            return
        names = [name for row in asked if (name := self._name(row))]
        missing: list[str] = []
        if self._auto_create and request["allow_auto_topic_creation"]:
            missing = [name for name in names if self._is_new(name)]
        if version < NULL_NAMES_FROM:  # ids are there, but a name is not left out
            asked = [{**row, "name": row["name"] or ""} for row in asked]
        told = partial(self._told, request, asked)
        if missing:
            self._create(missing, context, lambda refused: reply(told(refused)))
        else:
            deadline_ms = self._clock.mono_ms() + LEADER_WAIT_MS
            names = names[:WAITED_MAX]

            def looked() -> None:
                self._wait(names, deadline_ms, context, lambda: reply(told({})))

            self._looks.look(names, context, looked)

    def _all(self, request: Fields, context: Context, reply: Reply) -> None:
        """Describe every topic; wait a moment where partitions of theirs have no leader."""
        told = self._told(request, self._every(), {})
        places = self._looks.due(row["name"] for row in told["topics"] if _is_elsewhere(row))

        def looked() -> None:
            self._all_led(self._told(request, self._every(), {}), request, context, reply)

        if places:
            self._looks.ask(places, context, looked)
        else:
            self._all_led(told, request, context, reply)

    def _all_led(self, told: Fields, request: Fields, context: Context, reply: Reply) -> None:
        unled = [row["name"] for row in told["topics"] if not _is_led(row)][:WAITED_MAX]
        if unled:
            deadline_ms = self._clock.mono_ms() + LEADER_WAIT_MS
            self._wait(
                unled, deadline_ms, context, lambda: reply(self._told(request, self._every(), {}))
            )
        else:
            reply(told)

    def _every(self) -> list[Fields]:
        return [{"name": name, "topic_id": ZERO_UUID} for name in self._calls.topic_names()]

    def _name(self, asked: Fields) -> str | None:
        if asked["topic_id"] != ZERO_UUID:
            return self._calls.topic_of(asked["topic_id"].hex())
        return asked["name"]

    # -- creating

    def _is_new(self, name: str) -> bool:
        return is_topic_name(name) and self._calls.find_topic(name) is None

    def _create(
        self, names: list[str], context: Context, then: Callable[[dict[str, int]], None]
    ) -> None:
        """Create topics; ``then`` hears which were refused, with their codes.

        What may pass is told as "no leader yet": of a topic, clients try nothing else again.
        """
        refused: dict[str, int] = {}
        left = set(names)
        deadline_ms = self._clock.mono_ms() + CREATE_WAIT_MS

        def created(name: str, answer: dict[str, object] | RaftlineError) -> None:
            if isinstance(answer, RaftlineError) and not isinstance(answer, TopicExists):
                is_passing = isinstance(answer, Unavailable | TimedOut)
                refused[name] = LEADER_NOT_AVAILABLE if is_passing else code_of(answer)
            left.discard(name)
            if not left:
                self._looks.look(names, context, looked)

        def looked() -> None:
            self._wait(names, deadline_ms, context, lambda: then(refused))

        def taker(name: str) -> Callable[[dict[str, object] | RaftlineError], None]:
            return context.guarded(partial(created, name))

        for name in sorted(left):
            self._calls.command("topic.create", {"name": name}, NODE_TIMEOUT_MS, taker(name))

    def _wait(
        self, names: list[str], deadline_ms: float, context: Context, then: Callable[[], None]
    ) -> None:
        """Wait until every partition has a leader."""
        if self._clock.mono_ms() > deadline_ms or all(map(self._has_leaders, names)):
            then()
        else:
            again = context.guarded(lambda: self._wait(names, deadline_ms, context, then))
            self._clock.call_later(LOOK_AGAIN_MS, again)

    def _has_leaders(self, name: str) -> bool:
        """Say whether all partitions of a topic have leaders: one look for all who wait.

        When a node dies every client asks, and a look costs as much as the topic has partitions.
        """
        now_ms = self._clock.mono_ms()
        seen = self._seen.get(name)
        if seen is not None and now_ms - seen[0] < LOOK_AGAIN_MS:
            return seen[1]
        row = self._calls.find_topic(name)
        has_leaders = row is None or all(part.leader for part in row.partitions)
        if len(self._seen) >= SEEN_MAX:
            self._seen.clear()
        self._seen[name] = now_ms, has_leaders
        return has_leaders

    # -- answering

    def _told(self, request: Fields, asked: list[Fields], refused: dict[str, int]) -> Fields:
        view = self._calls.nodes_view()
        live = live_ids(view.nodes)
        on_topic = may(ON_TOPIC, request["include_topic_authorized_operations"])
        return {
            "brokers": broker_rows(view.nodes),  # silent ones too, see above
            "cluster_id": view.cluster,
            "controller_id": view.catalog_leader if view.catalog_leader in live else -1,
            "topics": [self._topic(row, refused, live, on_topic) for row in asked],
            "cluster_authorized_operations": may(
                ON_CLUSTER, request["include_cluster_authorized_operations"]
            ),
        }

    def _topic(
        self, asked: Fields, refused: dict[str, int], live: set[int], operations: int
    ) -> Fields:
        name = self._name(asked)
        if name is None and asked["topic_id"] != ZERO_UUID:
            code = UNKNOWN_TOPIC_ID if self._calls.is_sure else LEADER_NOT_AVAILABLE
            return {"error_code": code, "name": asked["name"], "topic_id": asked["topic_id"]}
        found = self._calls.find_topic(name) if name else None
        if found is None:
            code = refused.get(name or "") or missing_code(self._calls.unknown(name or ""))
            if not name or not is_topic_name(name):
                code = INVALID_TOPIC
            return {"error_code": code, "name": name or ""}
        return topic_row(found, live, operations)


def is_topic_name(name: str) -> bool:
    """Say whether a topic may have this name."""
    try:
        check_topic_name(name)
    except InvalidTopic:
        return False
    return True


def topic_row(topic: TopicRow, live: set[int], operations: int) -> Fields:
    """Describe one topic."""
    return {
        "error_code": NONE,
        "name": topic.name,
        "topic_id": bytes.fromhex(topic.uuid),
        "partitions": [partition_row(row, live) for row in topic.partitions],
        "topic_authorized_operations": operations,
    }


def partition_row(row: PartitionRow, live: set[int]) -> Fields:
    """Describe one partition: replicas on nodes that are heard of count as in sync."""
    is_led = row.leader in live
    return {
        "error_code": NONE if is_led else LEADER_NOT_AVAILABLE,
        "partition": row.partition,
        "leader_id": row.leader if is_led else NO_LEADER,
        "leader_epoch": row.term if row.term and is_led else NO_EPOCH,
        "replicas": list(row.replicas),
        "isr": [node for node in row.replicas if node in live],
        "offline_replicas": [node for node in row.replicas if node not in live],
    }


def live_ids(nodes: Iterable[NodeRow]) -> set[int]:
    """Return the nodes that clients may be sent to: heard of, and with a known address."""
    return {row.id for row in nodes if row.state != "silent" and row.kafka}


def broker_rows(nodes: Iterable[NodeRow]) -> list[Fields]:
    """Describe nodes: where their Kafka ports are. Those that have not told are left out."""
    return [_broker_row(row) for row in nodes if row.kafka]


def _is_led(topic: Fields) -> bool:
    return all(row["error_code"] == NONE for row in topic.get("partitions", ()))


def _is_elsewhere(topic: Fields) -> bool:
    """Say whether partitions of a topic have no replica here: nothing is known of their terms."""
    return any(row["leader_epoch"] == NO_EPOCH for row in topic.get("partitions", ()))


def _broker_row(row: NodeRow) -> Fields:
    host, port = parse_address(row.kafka)
    if host in WILD_HOSTS:  # it listens everywhere and did not say by which name it is reached
        host = parse_address(row.peer)[0]
    if host in WILD_HOSTS:
        host = "localhost"
    return {"node_id": row.id, "host": host, "port": port, "rack": row.rack or None}
