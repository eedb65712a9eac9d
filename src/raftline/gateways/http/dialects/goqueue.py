"""GoQueue's dialect: its published routes, with and without /v1.

The native API has grown out of these routes, so most of them are the native ones under a shorter
path. What is here is what differs: publishing one message in base64, polls that lease (every
message with a receipt handle), and numbers over all topics.
"""

from typing import Any

import msgspec

from raftline import __version__
from raftline.config.moments import show_moment
from raftline.config.settings import Settings
from raftline.gateways.fan import Call, Fan
from raftline.gateways.http.answers import ProducerAnswer, SearchAnswer
from raftline.gateways.http.connection import Exchange
from raftline.gateways.http.deliveries import DeliveryRoutes
from raftline.gateways.http.dialects.leased_polls import LeasedPoll, PolledAnswer
from raftline.gateways.http.fields import Int
from raftline.gateways.http.items import NewItem
from raftline.gateways.http.messages import MessageRoutes
from raftline.gateways.http.routes import Request, Router
from raftline.gateways.http.topics import decode
from raftline.gateways.http.traces import TraceRoutes
from raftline.gateways.message_ids import message_id
from raftline.gateways.places import Place, Places
from raftline.gateways.ports import Calls
from raftline.gateways.publication import Result
from raftline.model.calls import Looked
from raftline.model.errors import Internal, InvalidArgument, RaftlineError
from raftline.model.limits import HOUR_MS
from raftline.model.settings import effective
from raftline.node.ports import Clock

TAG = "goqueue"
TRACES_DEFAULT, TRACES_MAX = 100, 1_000
MEMBERS_KNOWN_MAX = 10_000  # whose turn this node remembers
STATES = {  # a trace's status in GoQueue's words
    "completed": "settled",
    "pending": "fresh",
    "in_progress": "leased",
    "error": "dead",
    "failed": "dead",
}
SEARCH_NAMES = {"consumer_group": "group", "start": "from", "end": "to", "status": "state"}


class PublishBody(msgspec.Struct, forbid_unknown_fields=True):
    """One message; ``value`` is base64 unless ``encoding`` says text."""

    value: str
    key: str | None = None
    encoding: str = "base64"
    headers: dict[str, str] | None = None
    partition: Int | None = None
    priority: str | Int | None = None
    delay: str | Int | None = None
    deliverAt: str | Int | None = None  # noqa: N815
    dedup_key: str | None = None


class Published(Result):
    """Where the message is, or when it will be there."""

    topic: str = ""


class InitBody(msgspec.Struct, forbid_unknown_fields=True):
    """Who is going to send; transactions are not there yet."""

    transactional_id: str = ""
    transaction_timeout_ms: Int = 60_000


class Trace(msgspec.Struct):
    """One message, in short."""

    trace_id: str
    topic: str
    partition: int
    offset: int
    start_time: str
    key: str | None
    groups: dict[str, str]


class Traces(msgspec.Struct):
    """Messages of the last hour, newest first."""

    traces: list[Trace]
    total: int


class DelayStats(msgspec.Struct):
    """Delayed messages of all topics."""

    total_scheduled: int
    total_delivered: int
    total_canceled: int
    total_pending: int
    by_topic: dict[str, int]


class ReliabilityStats(msgspec.Struct):
    """What work groups hold at the moment."""

    ack_manager: dict[str, int]
    visibility_tracker: dict[str, int]
    dlq: dict[str, Any]


class Alive(msgspec.Struct):
    """A sign of life."""

    status: str
    timestamp: str
    uptime_ms: int


class GoqueueRoutes:
    """What GoQueue has and the native API has not, then everything native without /v1."""

    __slots__ = (
        "_calls",
        "_clock",
        "_deliveries",
        "_messages",
        "_places",
        "_settings",
        "_traces",
        "_turns",
    )

    def __init__(
        self,
        clock: Clock,
        calls: Calls,
        messages: MessageRoutes,
        deliveries: DeliveryRoutes,
        settings: Settings,
    ) -> None:
        self._clock = clock
        self._calls = calls
        self._messages = messages
        self._deliveries = deliveries
        self._settings = settings
        self._traces = TraceRoutes(calls)
        self._places = Places(calls)
        self._turns: dict[str, int] = {}  # polls of a member: each begins with another partition

    def add_to(self, router: Router) -> None:
        """Add the routes; the last to be added, because it looks at those that are there."""
        add = router.add
        told: dict[str, Any] = {"body": PublishBody, "answer": Published, "tag": TAG}
        add("POST", "/v1/topics/{topic}/publish", self.publish, **told)
        query = "member_id generation timeout limit"
        polls: dict[str, Any] = {"query": query, "answer": PolledAnswer, "is_taking": True}
        add("GET", "/groups/{group}/poll", self.poll, **polls, tag=TAG)
        add("GET", "/v1/traces", self.traces, query="limit topic", answer=Traces, tag=TAG)
        add("GET", "/v1/traces/stats", self.trace_stats, answer=dict[str, Any], tag=TAG)
        query = "topic partition key member limit after group from to state "
        add(
            "GET",
            "/traces/search",
            self.search,
            query=query + " ".join(SEARCH_NAMES),
            answer=SearchAnswer,
            tag=TAG,
        )
        add("GET", "/v1/delay/stats", self.delay_stats, answer=DelayStats, tag=TAG)
        add("GET", "/v1/reliability/stats", self.reliability, answer=ReliabilityStats, tag=TAG)
        add("GET", "/v1/admin/config", self.config, answer=dict[str, Any], tag=TAG)
        init: dict[str, Any] = {"body": InitBody, "answer": ProducerAnswer, "tag": TAG}
        add("POST", "/v1/producers/init", self.init_producer, **init, body_optional=True)
        for path in ("/healthz", "/livez"):
            add("GET", path, self.alive, answer=Alive, tag=TAG)
        add("GET", "/readyz", self.ready, answer=Alive, tag=TAG)
        add("GET", "/version", self.version, answer=dict[str, str], tag=TAG)
        self._add_aliases(router)

    def _add_aliases(self, router: Router) -> None:
        for route in list(router.routes):
            if route.pattern.startswith("/v1/"):
                router.add_alias(route, route.pattern.removeprefix("/v1"), TAG)
        for route in list(router.routes):  # all groups here rebalance cooperatively
            for verb in ("join", "heartbeat", "leave"):
                if route.pattern.endswith(f"/groups/{{group}}/{verb}"):
                    router.add_alias(route, f"{route.pattern}/cooperative", TAG)

    # ------------------------------------------------------------------ publish

    def publish(self, exchange: Exchange, request: Request) -> None:
        """Publish one message whose value is base64."""
        example = '{"key": "order-123", "value": "eyJvcmRlcl9pZCI6MTIzfQ==", "delay": "5m"}'
        body: PublishBody = decode(request.body, PublishBody, example)
        if body.encoding not in ("base64", "text"):
            raise InvalidArgument(f"no encoding {body.encoding[:40]!r}", "use base64 or text")
        item = NewItem(
            value=body.value,
            encoding="base64" if body.encoding == "base64" else "text",
            key=body.key,
            headers=dict(body.headers or {}),
            partition=body.partition,
            priority=body.priority,
            delay=body.delay,
            deliverAt=body.deliverAt,
            dedup_key=body.dedup_key,
        )

        def stored(results: list[Result], error: RaftlineError | None) -> None:
            result = results[0]
            if error is not None or result.id is None:
                exchange.fail(error or Internal("a message without an id"))
                return
            exchange.json(Published(**msgspec.structs.asdict(result), topic=request.topic))

        self._messages.publish_items(
            exchange, request.topic, [item], request.timeout_ms, finish=stored
        )

    # ------------------------------------------------------------------ groups

    def poll(self, exchange: Exchange, request: Request) -> None:
        """Lease messages of the member's partitions; each is settled by its receipt handle."""
        member = request.query.get("member_id", "")
        turn = self._turns[member] = self._turns.pop(member, 0) + 1
        if len(self._turns) > MEMBERS_KNOWN_MAX:
            del self._turns[next(iter(self._turns))]  # the longest silent
        calls, deliveries = self._calls, self._deliveries
        LeasedPoll(self._clock, calls, deliveries, exchange, request, turn).start()

    # ------------------------------------------------------------------ traces

    def traces(self, exchange: Exchange, request: Request) -> None:
        """List messages of the last hour, newest first."""
        limit = request.number("limit", TRACES_DEFAULT, 1, TRACES_MAX)
        places = self._places.of(request.query.get("topic", ""))
        since_ms = self._clock.wall_ms() - HOUR_MS

        def found(chosen: list[Place], answers: list[Any]) -> None:
            rows = [
                _trace(place, row)
                for place, answer in _answered(chosen, answers)
                for row in answer["messages"]
            ]
            rows.sort(key=lambda row: (row.start_time, row.offset), reverse=True)
            exchange.json(Traces(rows[:limit], len(rows[:limit])))

        def looked(answers: list[Any]) -> None:
            """Look at the latest messages of each partition only."""
            chosen: list[Place] = []
            calls: list[Call] = []
            for place, answer in zip(places, answers, strict=True):
                if not isinstance(answer, Looked) or answer.offset < 0:
                    continue
                after = max(answer.offset, answer.commit_end - limit) - 1
                asked: dict[str, object] = {"limit": limit, "after": after}
                chosen.append(place)
                calls.append(self._places.asking(place, "trace.search", asked, request.timeout_ms))
            Fan(calls, lambda told: exchange.guard(found, chosen, told)).start()

        calls = [self._places.looking(place, since_ms, request.timeout_ms) for place in places]
        Fan(calls, lambda answers: exchange.guard(looked, answers)).start()

    def search(self, exchange: Exchange, request: Request) -> None:
        """Find messages; GoQueue's names of parameters are known too."""
        query = {SEARCH_NAMES.get(name, name): text for name, text in request.query.items()}
        if "state" in query:
            query["state"] = STATES.get(query["state"], query["state"])
        translated = Request(request.path, request.params, query, request.fields)
        translated.timeout_ms = request.timeout_ms
        self._traces.search(exchange, translated)

    def trace_stats(self, exchange: Exchange, request: Request) -> None:
        """Say which share of the messages of each topic is traced."""
        rows = self._calls.known_topics()
        shares = {row.name: effective(row.settings)["trace_percent"] for row in rows}
        exchange.json({"enabled": any(shares.values()), "percent_by_topic": shares})

    # ------------------------------------------------------------------ numbers

    def delay_stats(self, exchange: Exchange, request: Request) -> None:
        """Count delayed messages over all topics."""
        places = self._places.of("")

        def found(answers: list[Any]) -> None:
            told = _answered(places, answers)
            by_topic: dict[str, int] = {}
            for (topic, _), row in told:
                if row["waiting"]:
                    by_topic[topic] = by_topic.get(topic, 0) + row["waiting"]
            exchange.json(
                DelayStats(
                    sum(row["scheduled"] for _, row in told),
                    sum(row["released"] for _, row in told),
                    sum(row["cancelled"] for _, row in told),
                    sum(by_topic.values()),
                    by_topic,
                )
            )

        self._ask_all(exchange, request, places, "waiting.stats", {}, found)

    def reliability(self, exchange: Exchange, request: Request) -> None:
        """Count what work groups hold: leased, waiting for a retry, dead."""
        places = self._places.of("")

        def found(answers: list[Any]) -> None:
            queued = leased = routed = 0
            by_topic: dict[str, int] = {}
            for (topic, _), row in _answered(places, answers):
                for group in row["groups"]:
                    queued += group["resting"] + group["ready"]
                    leased += group["leased"]
                    dead = group["dead"] + group["dying"]
                    routed += dead
                    if dead:
                        by_topic[topic] = by_topic.get(topic, 0) + dead
            exchange.json(
                ReliabilityStats(
                    {"current_queued": queued},
                    {"current_in_flight": leased},
                    {
                        "total_routed": routed,
                        "routes_by_topic": {
                            name: count for name, count in by_topic.items() if count
                        },
                    },
                )
            )

        self._ask_all(exchange, request, places, "group.list", {}, found)

    def _ask_all(
        self,
        exchange: Exchange,
        request: Request,
        places: list[Place],
        name: str,
        asked: dict[str, object],
        then: Any,
    ) -> None:
        calls: list[Call] = [
            self._places.asking(place, name, asked, request.timeout_ms) for place in places
        ]
        Fan(calls, lambda answers: exchange.guard(then, answers)).start()

    # ------------------------------------------------------------------ the node

    def config(self, exchange: Exchange, request: Request) -> None:
        """Show this node's settings, and GoQueue's names for those it has."""
        settings = self._settings
        exchange.json(
            {
                "broker": {
                    "nodeId": settings.node.name,
                    "dataDir": settings.node.data_dir,
                    "listeners": {"http": settings.listen.http, "grpc": settings.listen.grpc},
                },
                "defaults": _defaults(settings),
                "settings": msgspec.to_builtins(settings),
            }
        )

    def init_producer(self, exchange: Exchange, request: Request) -> None:
        """Give out a producer id, for sends that may be repeated."""
        body: InitBody = decode(request.body, InitBody, "{}")
        if body.transactional_id:
            raise InvalidArgument(
                "transactions are not there yet", "leave transactional_id out for an id alone"
            )
        self._calls.command("producer.new", {}, request.timeout_ms, exchange.then(exchange.json))

    def alive(self, exchange: Exchange, request: Request) -> None:
        """Say that this process answers."""
        exchange.json(self._alive("pass"))

    def ready(self, exchange: Exchange, request: Request) -> None:
        """Say whether this node takes work (503 if not)."""
        if self._calls.status().ready:
            exchange.json(self._alive("pass"))
        else:
            exchange.json(self._alive("fail"), 503)

    def _alive(self, status: str) -> Alive:
        return Alive(status, show_moment(self._clock.wall_ms()), self._calls.status().uptime_ms)

    def version(self, exchange: Exchange, request: Request) -> None:
        """Say which version this is."""
        exchange.json({"name": "raftline", "version": __version__})


def _defaults(settings: Settings) -> dict[str, Any]:
    topics, delivery = settings.topics, settings.delivery
    return {
        "topic": {
            "partitions": topics.partitions,
            "replicationFactor": topics.replication_factor,
            "retention": {
                "hours": topics.retention_ms // HOUR_MS,
                "bytes": topics.retention_bytes,
            },
        },
        "delivery": {
            "visibilityTimeout": f"{delivery.lease_ms}ms",
            "maxRetries": delivery.retries_max,
            "dlqEnabled": delivery.dead_letters,
        },
        "delay": {"enabled": topics.delays, "maxDelay": f"{topics.delay_ms_max}ms"},
        "priority": {"lanes": topics.lanes},
    }


def _answered(places: list[Place], answers: list[Any]) -> list[tuple[Place, dict[str, Any]]]:
    """Return what was told, without the partitions that could not be asked."""
    return [
        (place, answer)
        for place, answer in zip(places, answers, strict=True)
        if not isinstance(answer, RaftlineError)
    ]


def _trace(place: Place, row: dict[str, Any]) -> Trace:
    topic, partition = place
    key = row["key"]
    return Trace(
        message_id(topic, partition, row["offset"]),
        topic,
        partition,
        row["offset"],
        show_moment(row["timestamp"]),
        None if key is None else key.decode("utf-8", "replace"),
        row["groups"],
    )
