"""Topics over Kafka: CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from raftline.config.settings import Settings
from raftline.gateways.fan import Call, Fan
from raftline.gateways.kafka import schema_admin as schema
from raftline.gateways.kafka.admin_drafts import draft, told_configs
from raftline.gateways.kafka.codec import ZERO_UUID
from raftline.gateways.kafka.configs import INVALID_CONFIG
from raftline.gateways.kafka.configs_names import to_settings
from raftline.gateways.kafka.dispatch import Context, Reply, Table
from raftline.gateways.kafka.errors import (
    INVALID_REQUEST,
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_ID,
    code_of,
    command_code,
    missing_code,
    partition_code,
)
from raftline.gateways.kafka.ports import KafkaCalls
from raftline.model.calls import TopicRow
from raftline.model.errors import (
    InvalidArgument,
    NotEnoughNodes,
    RaftlineError,
    TopicExists,
    UnknownTopic,
)
from raftline.model.limits import PARTITIONS_PER_TOPIC_MAX, WAIT_MS_MAX
from raftline.model.names import check_topic_name
from raftline.node.led import LedPartition
from raftline.node.ports import Clock

INVALID_PARTITIONS = 37
INVALID_REPLICA_ASSIGNMENT = 39
DEFAULT = -1
TO_END = -1
TRIM_MS_MIN = 2_000  # Kafka's leader trims first and only then looks at the timeout
LEADERS_MS = 2_000  # a new topic's partitions are given so long to have leaders
LOOK_AGAIN_MS = 10
NAME_CHARS_SHOWN = 300  # of what may be no name at all
_NO_ID = "no topic has this id"

Fields = dict[str, Any]
Refusal = tuple[int, str]  # code, text


class AdminApi:
    """Makes, grows, trims and deletes topics."""

    __slots__ = ("_calls", "_clock", "_settings")

    def __init__(self, clock: Clock, calls: KafkaCalls, settings: Settings) -> None:
        self._clock = clock
        self._calls = calls
        self._settings = settings

    def add_to(self, table: Table) -> None:
        """Serve them."""
        table.add(schema.CREATE_TOPICS, 2, 7, self.create)
        table.add(schema.DELETE_TOPICS, 1, 6, self.delete)
        table.add(schema.CREATE_PARTITIONS, 0, 3, self.grow)
        table.add(schema.DELETE_RECORDS, 0, 2, self.trim)

    # -- create

    def create(self, request: Fields, version: int, context: Context, reply: Reply) -> None:
        """Create topics; the reply waits until their partitions have leaders."""
        rows: list[Fields] = request["topics"]
        names = [row["name"] for row in rows]
        named = Counter(names)
        is_dry, timeout_ms = request["validate_only"], _timeout_ms(request)

        def created(answers: list[Any]) -> None:
            made = [name for name, it in zip(names, answers, strict=True) if it is None]

            def told() -> None:
                pairs = zip(rows, answers, strict=True)
                reply({"topics": [self._created(row, answer) for row, answer in pairs]})

            if is_dry:
                told()
            else:
                self._await(made, self._clock.mono_ms() + LEADERS_MS, context, told)

        calls = [self._creating(row, named[row["name"]], timeout_ms, is_dry) for row in rows]
        Fan(calls, context.guarded(created)).start()

    def _creating(self, row: Fields, named: int, timeout_ms: int, is_dry: bool) -> Call:  # noqa: FBT001
        try:
            if named > 1:
                shown = row["name"][:NAME_CHARS_SHOWN]
                return _refuse(INVALID_REQUEST, f"topic {shown} is named {named} times")
            if row["assignments"]:
                refusal = self._misplaced(row)
                if refusal is not None:
                    return _refuse(*refusal)
                row = {**row, **self._everywhere(len(row["assignments"]))}
            check_topic_name(row["name"])
            if is_dry and self._calls.find_topic(row["name"]) is not None:
                raise TopicExists(row["name"])  # else the catalog says so: ours may be behind
            arguments = self._new(row)
        except InvalidArgument as error:
            return _refuse(INVALID_CONFIG, f"{error.message}: {error.hint}")
        except RaftlineError as error:
            return _refuse(code_of(error), error.message)
        count = row["num_partitions"]
        if count != DEFAULT and not 0 < count <= PARTITIONS_PER_TOPIC_MAX:
            return _refuse(INVALID_PARTITIONS, f"a topic has 1 to {PARTITIONS_PER_TOPIC_MAX}")
        if is_dry:
            told = draft(arguments, self._settings, len(self._members()))
            return lambda take: take(told)

        def ask(take: Callable[[Any], None]) -> None:
            def answered(answer: dict[str, object] | RaftlineError) -> None:
                take(_refusal(answer))

            self._calls.command("topic.create", arguments, timeout_ms, answered)

        return ask

    def _misplaced(self, row: Fields) -> Refusal | None:
        """Say why a new topic's replicas cannot be where they are wanted; None: they can."""
        if row["num_partitions"] != DEFAULT or row["replication_factor"] != DEFAULT:
            return INVALID_REQUEST, "assignments say how many partitions and replicas there are"
        wanted = sorted(row["assignments"], key=lambda one: one["partition"])
        if [one["partition"] for one in wanted] != list(range(len(wanted))):
            return INVALID_REPLICA_ASSIGNMENT, "partitions are numbered from 0, without gaps"
        return self._elsewhere(wanted, len(self._members()))

    def _elsewhere(self, wanted: list[Fields], replicas: int) -> Refusal | None:
        """Refuse replicas on some nodes: the cluster chooses. On all of them there is no choice."""
        members = self._members()
        if replicas == len(members) and all(sorted(one["nodes"]) == members for one in wanted):
            return None
        return INVALID_REPLICA_ASSIGNMENT, "the cluster places replicas itself"

    def _everywhere(self, count: int) -> Fields:
        """Return the size of a topic whose partitions are on all nodes."""
        return {"num_partitions": count, "replication_factor": len(self._members())}

    def _members(self) -> list[int]:
        return sorted(row.id for row in self._calls.nodes_view().nodes if row.state != "leaving")

    def _new(self, row: Fields) -> dict[str, object]:
        """Return what the node is asked for. Raises InvalidArgument, NotEnoughNodes."""
        factor: int = row["replication_factor"]
        members = len(self._members())
        if factor != DEFAULT and factor > members:
            raise NotEnoughNodes(f"topic {row['name']}", factor, members)
        if factor == 0 or factor < DEFAULT:
            raise NotEnoughNodes(f"topic {row['name']}", factor, members)
        given = {config["name"]: config["value"] for config in row["configs"]}
        settings = to_settings(given, factor if factor > 0 else min(3, members))
        arguments: dict[str, object] = {"name": row["name"], "settings": settings}
        if row["num_partitions"] > 0:
            arguments["partitions"] = row["num_partitions"]
        if factor > 0:
            arguments["replication_factor"] = factor
        return arguments

    def _created(self, row: Fields, answer: Refusal | Fields | None) -> Fields:
        """Say what became of a topic; ``answer`` is a draft if it was only asked for."""
        topic = self._calls.find_topic(row["name"])
        code, text = answer if isinstance(answer, tuple) else (NONE, None)
        told: Fields = {"name": row["name"], "error_code": code, "error_message": text}
        if isinstance(answer, dict):
            return {**told, **answer}
        if answer is not None or topic is None:
            return told
        return {
            **told,
            "topic_id": bytes.fromhex(topic.uuid),
            "num_partitions": len(topic.partitions),
            "replication_factor": topic.replication_factor,
            "configs": told_configs(topic),
        }

    def _await(
        self, names: list[str], until_ms: float, context: Context, then: Callable[[], None]
    ) -> None:
        rows = [self._calls.find_topic(name) for name in names]
        is_led = all(row is not None and all(p.leader for p in row.partitions) for row in rows)
        if is_led or self._clock.mono_ms() > until_ms:
            then()
        else:
            again = context.guarded(lambda: self._await(names, until_ms, context, then))
            self._clock.call_later(LOOK_AGAIN_MS, again)

    # -- delete

    def delete(self, request: Fields, version: int, context: Context, reply: Reply) -> None:
        """Delete topics with all their messages, by name or by id."""
        rows: list[Fields] = request["topics"]
        if version < 6:
            rows = [{"name": name, "topic_id": ZERO_UUID} for name in request["names"]]
        known = [self._known(row) for row in rows]

        def deleted(answers: list[Any]) -> None:
            told: list[Fields] = []
            for row, topic, refusal in zip(rows, known, answers, strict=True):
                code, text = refusal or (NONE, None)
                uuid = bytes.fromhex(topic.uuid) if topic is not None else row["topic_id"]
                name = topic.name if topic is not None else row["name"]
                told.append(
                    {"name": name, "topic_id": uuid, "error_code": code, "error_message": text}
                )
            reply({"responses": told})

        timeout_ms = _timeout_ms(request)
        pairs = zip(rows, known, strict=True)
        calls = [self._deleting(row, topic, timeout_ms) for row, topic in pairs]
        Fan(calls, context.guarded(deleted)).start()

    def _known(self, row: Fields) -> TopicRow | None:
        name = row["name"] or self._calls.topic_of(row["topic_id"].hex())
        return self._calls.find_topic(name) if name else None

    def _deleting(self, row: Fields, topic: TopicRow | None, timeout_ms: int) -> Call:
        if topic is None and not row["name"]:
            return _refuse(UNKNOWN_TOPIC_ID, _NO_ID)
        if topic is None:
            return self._denied(row["name"])
        arguments: dict[str, object] = {"name": topic.name}
        if row["name"]:
            return self._command("topic.delete", arguments, timeout_ms)
        arguments["uuid"] = topic.uuid  # ours may be behind: its name may be another's by now

        def ask(take: Callable[[Any], None]) -> None:
            def answered(answer: dict[str, object] | RaftlineError) -> None:
                unknown = isinstance(answer, UnknownTopic)
                take((UNKNOWN_TOPIC_ID, _NO_ID) if unknown else _refusal(answer))

            self._calls.command("topic.delete", arguments, timeout_ms, answered)

        return ask

    def _denied(self, name: str) -> Call:
        denial = self._calls.unknown(name)
        return _refuse(missing_code(denial), denial.message)

    # -- grow

    def grow(self, request: Fields, version: int, context: Context, reply: Reply) -> None:
        """Give topics more partitions."""
        rows: list[Fields] = request["topics"]

        def grown(answers: list[Any]) -> None:
            told: list[Fields] = []
            for row, refusal in zip(rows, answers, strict=True):
                code, text = refusal or (NONE, None)
                told.append({"name": row["name"], "error_code": code, "error_message": text})
            names = [row["name"] for row in told if row["error_code"] == NONE]
            until_ms = self._clock.mono_ms() + LEADERS_MS
            self._await(names, until_ms, context, lambda: reply({"results": told}))

        timeout_ms, is_dry = _timeout_ms(request), request["validate_only"]
        calls = [self._growing(row, timeout_ms, is_dry) for row in rows]
        Fan(calls, context.guarded(grown)).start()

    def _growing(self, row: Fields, timeout_ms: int, is_dry: bool) -> Call:  # noqa: FBT001
        topic = self._calls.find_topic(row["name"])
        if topic is None:
            return self._denied(row["name"])
        has = len(topic.partitions)
        if not has < row["count"] <= PARTITIONS_PER_TOPIC_MAX:
            text = (
                f"topic {topic.name} has {has} partitions, it can have more, and not {row['count']}"
            )
            return _refuse(INVALID_PARTITIONS, text)
        if row["assignments"]:
            if len(row["assignments"]) != row["count"] - has:
                text = f"{row['count'] - has} partitions are new, not {len(row['assignments'])}"
                return _refuse(INVALID_REPLICA_ASSIGNMENT, text)
            refusal = self._elsewhere(row["assignments"], topic.replication_factor)
            if refusal is not None:
                return _refuse(*refusal)
        if is_dry:
            return lambda take: take(None)
        arguments: dict[str, object] = {"name": topic.name, "partitions": row["count"]}
        return self._command("topic.grow", arguments, timeout_ms)

    def _command(self, name: str, arguments: dict[str, object], timeout_ms: int) -> Call:
        return lambda take: self._calls.command(
            name, arguments, timeout_ms, lambda answer: take(_refusal(answer))
        )

    # -- trim

    def trim(self, request: Fields, version: int, context: Context, reply: Reply) -> None:
        """Remove the oldest messages of partitions that are led here."""
        places = [
            (topic["name"], row["partition"], row["offset"])
            for topic in request["topics"]
            for row in topic["partitions"]
        ]

        def trimmed(answers: list[Any]) -> None:
            left = iter(answers)
            reply(
                {
                    "topics": [
                        {
                            "name": topic["name"],
                            "partitions": [
                                {"partition": row["partition"], **next(left)}
                                for row in topic["partitions"]
                            ],
                        }
                        for topic in request["topics"]
                    ]
                }
            )

        timeout_ms = max(_timeout_ms(request), TRIM_MS_MIN)
        calls = [self._trimming(*place, timeout_ms) for place in places]
        Fan(calls, context.guarded(trimmed)).start()

    def _trimming(self, topic: str, partition: int, offset: int, timeout_ms: int) -> Call:
        led = self._calls.led_partition(topic, partition)
        if isinstance(led, RaftlineError):
            refusal = {"low_watermark": -1, "error_code": partition_code(led)}
            return lambda take: take(refusal)

        def ask(take: Callable[[Any], None]) -> None:
            def confirmed(error: RaftlineError | None) -> None:
                wanted = led.commit_end if offset == TO_END else offset
                if error is not None:
                    take({"low_watermark": -1, "error_code": partition_code(error)})
                elif not 0 <= wanted <= led.commit_end:
                    take({"low_watermark": -1, "error_code": OFFSET_OUT_OF_RANGE})
                else:
                    self._trim_to(led, topic, partition, wanted, timeout_ms, take)

            led.confirm(confirmed)  # a new leader does not know yet where the log ends

        return ask

    def _trim_to(
        self,
        led: LedPartition,
        topic: str,
        partition: int,
        wanted: int,
        timeout_ms: int,
        take: Callable[[Any], None],
    ) -> None:
        """Trim, and tell where the log starts: what may not go yet (a dead letter) holds it."""
        arguments: dict[str, object] = {"topic": topic, "partition": partition, "offset": wanted}

        def answered(answer: dict[str, object] | RaftlineError) -> None:
            if isinstance(answer, RaftlineError):
                take({"low_watermark": -1, "error_code": partition_code(answer)})
                return
            start = led.log_start
            if not led.replica.is_leader:  # trimmed elsewhere, and not here yet
                start = max(start, wanted)
            take({"low_watermark": start, "error_code": NONE})

        self._calls.command("topic.trim", arguments, timeout_ms, answered)


def _timeout_ms(request: Fields) -> int:
    return min(max(request["timeout_ms"], 1), WAIT_MS_MAX)


def _refuse(code: int, text: str) -> Call:
    return lambda take: take((code, text))


def _refusal(answer: object) -> Refusal | None:
    if not isinstance(answer, RaftlineError):
        return None
    return command_code(
        answer
    ), f"{answer.message}: {answer.hint}" if answer.hint else answer.message
