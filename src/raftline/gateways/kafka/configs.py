"""Configs over Kafka: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs.

Topics can be looked at and changed; nodes can be looked at.

Invariants
    U1  A setting that is taken back is as it would be of a topic made now: as this node's own
        configuration has it (retention, for one), where that says something else than we do.
"""

from typing import Any

from raftline.config.addresses import parse_address
from raftline.config.new_topics import new_topic_settings
from raftline.config.settings import Settings
from raftline.gateways.fan import Call, Fan
from raftline.gateways.kafka import configs_names as names
from raftline.gateways.kafka import schema_admin as schema
from raftline.gateways.kafka.dispatch import Context, Reply, Table
from raftline.gateways.kafka.errors import (
    INVALID_REQUEST,
    NONE,
    command_code,
    missing_code,
)
from raftline.gateways.kafka.metadata import broker_rows
from raftline.gateways.kafka.ports import KafkaCalls
from raftline.model.calls import TopicRow
from raftline.model.errors import InvalidArgument, RaftlineError
from raftline.model.limits import TIMEOUT_MS_DEFAULT
from raftline.model.settings import SETTINGS, Value

TOPIC, NODE = 2, 4  # types of resources
INVALID_CONFIG = 40
FROM_TOPIC, FROM_NODE, BY_DEFAULT = 1, 4, 5  # where a value comes from
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
TEXTS_FROM = 3  # the first version of DescribeConfigs with documentation

Fields = dict[str, Any]
Change = tuple[dict[str, Value], list[str]]  # to set; to take back


class ConfigsApi:
    """Shows and changes settings under Kafka's names."""

    __slots__ = ("_calls", "_settings")

    def __init__(self, calls: KafkaCalls, settings: Settings) -> None:
        self._calls = calls
        self._settings = settings

    def add_to(self, table: Table) -> None:
        """Serve them."""
        table.add(schema.DESCRIBE_CONFIGS, 1, 4, self.describe)
        table.add(schema.ALTER_CONFIGS, 0, 2, self.alter)
        table.add(schema.INCREMENTAL_ALTER_CONFIGS, 0, 1, self.alter_some)

    # -- looking

    def describe(self, request: Fields, version: int, context: Context, reply: Reply) -> None:
        """Show the settings of topics and nodes."""
        rows = [self._described(row, request) for row in request["resources"]]
        reply({"results": rows})

    def _described(self, asked: Fields, request: Fields) -> Fields:
        kind, name = asked["resource_type"], asked["resource_name"]
        row: Fields = {"resource_type": kind, "resource_name": name, "error_message": None}
        if kind == TOPIC:
            topic = self._calls.find_topic(name)
            if topic is None:
                denial = self._calls.unknown(name)
                code = missing_code(denial)
                return {**row, "error_code": code, "error_message": denial.message}
            configs = topic_configs(topic)
        elif kind == NODE:
            here = self._calls.nodes_view().node
            if name not in ("", str(here)):
                text = f"this is node {here}: ask node {name[:100]} itself"
                return {**row, "error_code": INVALID_REQUEST, "error_message": text}
            configs = self._node_configs() if name else []  # "": what all nodes were told
        else:
            text = "only topics (2) and nodes (4) have configs"
            return {**row, "error_code": INVALID_REQUEST, "error_message": text}
        keys: list[str] | None = asked["keys"]
        if keys:  # none and an empty list are both a wish for all
            configs = [config for config in configs if config["name"] in keys]
        for config in configs:
            config["synonyms"] = _synonyms(config) if request["include_synonyms"] else []
            if not request["include_documentation"]:
                config["documentation"] = None
        return {**row, "error_code": NONE, "configs": configs}

    def _node_configs(self) -> list[Fields]:
        topics = self._settings.topics
        view = self._calls.nodes_view()
        told = broker_rows(row for row in view.nodes if row.id == view.node)
        places = [_listener(row["host"], row["port"]) for row in told]
        rows: dict[str, tuple[Value, int]] = {
            "advertised.listeners": (",".join(places), names.LIST),
            "auto.create.topics.enable": (topics.auto_create, names.BOOLEAN),
            "broker.id": (view.node, names.INT),
            "default.replication.factor": (topics.replication_factor or 3, names.INT),
            "delete.topic.enable": (True, names.BOOLEAN),
            "listeners": (_listener(*parse_address(self._settings.listen.kafka)), names.LIST),
            "log.cleanup.policy": ("delete", names.LIST),
            "log.retention.bytes": (topics.retention_bytes, names.LONG),
            "log.retention.ms": (topics.retention_ms, names.LONG),
            "message.max.bytes": (self._settings.limits.batch_bytes_max, names.INT),
            "node.id": (view.node, names.INT),
            "num.partitions": (topics.partitions, names.INT),
        }
        return [
            _config(
                name, names.written(value), FROM_NODE, kind, names.NODE_TEXTS[name], read_only=True
            )
            for name, (value, kind) in rows.items()
        ]

    # -- changing

    def alter(self, request: Fields, version: int, context: Context, reply: Reply) -> None:
        """Set all of a topic's settings: those that are not named get their defaults."""

        def wanted(row: Fields, topic: TopicRow) -> Change:
            given = {config["name"]: config["value"] for config in row["configs"]}
            settings = names.to_settings(given, topic.replication_factor)
            return settings, [name for name in _changed(topic) if name not in settings]

        self._alter(request, wanted, context, reply)

    def alter_some(self, request: Fields, version: int, context: Context, reply: Reply) -> None:
        """Set or take back single settings."""

        def wanted(row: Fields, topic: TopicRow) -> Change:
            kept = names.read_kept(topic.settings[names.KEPT])
            given: dict[str, str | None] = {}
            unset: list[str] = []
            for config in row["configs"]:
                name, operation = config["name"], config["operation"]
                if operation == SET:
                    given[name] = config["value"]
                elif operation == DELETE:
                    setting = names.setting_of(name)
                    unset += [setting] if setting else []
                    kept.pop(name, None)
                else:
                    _check_list(name, operation, config["value"] or "")
            if names.KEPT in unset:
                given = {**kept, **given}  # the others stay
            settings = names.to_settings(given, topic.replication_factor, kept)
            return settings, [name for name in unset if name not in settings]

        self._alter(request, wanted, context, reply)

    def _alter(self, request: Fields, wanted: Any, context: Context, reply: Reply) -> None:
        rows: list[Fields] = request["resources"]
        is_dry = bool(request["validate_only"])

        def altered(answers: list[Any]) -> None:
            pairs = zip(rows, answers, strict=True)
            reply({"responses": [_altered(row, answer) for row, answer in pairs]})

        calls = [self._altering(row, wanted, is_dry=is_dry) for row in rows]
        Fan(calls, context.guarded(altered)).start()

    def _altering(self, row: Fields, wanted: Any, *, is_dry: bool) -> Call:
        try:
            if row["resource_type"] != TOPIC:
                hint = "nodes read theirs from their configuration file"
                raise InvalidArgument("only configs of topics can be changed", hint)
            topic = self._calls.find_topic(row["resource_name"])
            if topic is None:
                raise self._calls.unknown(row["resource_name"])
            settings, unset = self._filled(*wanted(row, topic))
        except RaftlineError as error:
            refusal = error
            return lambda take: take(refusal)
        arguments: dict[str, object] = {"name": topic.name, "settings": settings, "unset": unset}
        if is_dry or not (settings or unset):
            return lambda take: take(None)
        return lambda take: self._calls.command("topic.set", arguments, TIMEOUT_MS_DEFAULT, take)

    def _filled(self, settings: dict[str, Value], unset: list[str]) -> Change:
        """Set what is taken back and has another value for new topics here. U1."""
        new = new_topic_settings(self._settings)
        ours = {n: new[n] for n in unset if n in new and new[n] != SETTINGS[n].default}
        return {**settings, **ours}, [name for name in unset if name not in ours]


def topic_configs(topic: TopicRow) -> list[Fields]:
    """Return a topic's settings: Kafka's names first, then ours that have none there."""
    rows: list[Fields] = []
    ours = {**{v: k for k, v in names.KNOWN.items()}}
    for name, value in names.read_kept(topic.settings[names.KEPT]).items():
        rows.append(_config(name, value, FROM_TOPIC, names.IDLE[name], names.IDLE_TEXT))
    for setting, value in topic.settings.items():
        if setting == names.KEPT:
            continue
        default = SETTINGS[setting].default
        source = BY_DEFAULT if value == default else FROM_TOPIC
        name, text = ours.get(setting, setting), SETTINGS[setting].help
        rows.append(_config(name, names.written(value), source, names.type_of(setting), text))
    majority = topic.replication_factor // 2 + 1
    text = "a message is acknowledged by a majority of its replicas"
    rows.append(
        _config(names.MIN_INSYNC, str(majority), BY_DEFAULT, names.INT, text, read_only=True)
    )
    rows += [
        _config(name, fixed.value, BY_DEFAULT, fixed.type, fixed.why, read_only=True)
        for name, fixed in names.FIXED.items()
    ]
    return sorted(rows, key=lambda row: ("." not in row["name"], row["name"]))


def _listener(host: str, port: int) -> str:
    return f"PLAINTEXT://[{host}]:{port}" if ":" in host else f"PLAINTEXT://{host}:{port}"


def _config(
    name: str, value: str, source: int, kind: int, text: str, *, read_only: bool = False
) -> Fields:
    return {
        "name": name,
        "value": value,
        "read_only": read_only,
        "config_source": source,
        "is_default": source == BY_DEFAULT,
        "config_type": kind,
        "documentation": text,
    }


def _synonyms(config: Fields) -> list[Fields]:
    row = {key: config[key] for key in ("name", "value")}
    return [{**row, "source": config["config_source"]}]


def _changed(topic: TopicRow) -> list[str]:
    """Return the settings of a topic that are not the defaults."""
    return [name for name, value in topic.settings.items() if value != SETTINGS[name].default]


def _check_list(name: str, operation: int, value: str) -> None:
    """Refuse to change a list, unless nothing changes. Raises InvalidArgument."""
    fixed = names.FIXED.get(name)
    if fixed is None or fixed.type != names.LIST or operation not in (APPEND, SUBTRACT):
        raise InvalidArgument(f"{name[:100]} is no list", "set it, or take it back")
    has = value.strip().lower() == fixed.value
    if has != (operation == APPEND):
        raise InvalidArgument(f"{name} is always {fixed.value}: {fixed.why}")


def _altered(row: Fields, answer: object) -> Fields:
    told: Fields = {
        "resource_type": row["resource_type"],
        "resource_name": row["resource_name"],
        "error_code": NONE,
        "error_message": None,
    }
    if not isinstance(answer, RaftlineError):
        return told
    code = INVALID_CONFIG if isinstance(answer, InvalidArgument) else command_code(answer)
    if row["resource_type"] not in (TOPIC, NODE):
        code = INVALID_REQUEST  # it has no configs at all
    text = f"{answer.message}: {answer.hint}" if answer.hint else answer.message
    return {**told, "error_code": code, "error_message": text}
