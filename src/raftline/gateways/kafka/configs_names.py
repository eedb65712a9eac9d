"""Settings of a topic under Kafka's names.

Three sorts of names are taken: those that mean a setting of ours (``KNOWN``); those whose promise
always holds here in one way, and that may be set to nothing else (``FIXED``); and those that tune
files or threads we do not have (``IDLE``: without effect, but kept in a setting, so that a client
which compares what it wrote with what it reads finds it). Our own names are taken as they are, so
that a Kafka client can write ``headers=true``. Everything else is refused by name.
"""

import re
from collections.abc import Mapping

import msgspec

from raftline.model.errors import InvalidArgument
from raftline.model.limits import SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN
from raftline.model.settings import FOREVER, SETTINGS, Value, check_settings

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7  # types as DescribeConfigs tells them

KNOWN = {
    "retention.ms": "retention_ms",
    "retention.bytes": "retention_bytes",
    "segment.bytes": "segment_bytes",
    "max.message.bytes": "batch_bytes_max",
}


class Fixed(msgspec.Struct, frozen=True):
    """What always holds, and why nothing else can be asked for."""

    value: str
    why: str
    type: int = STRING


FIXED = {
    "cleanup.policy": Fixed("delete", "compaction is not there yet", LIST),
    "compression.type": Fixed("producer", "batches are kept as producers seal them"),
    "message.timestamp.type": Fixed("CreateTime", "a batch keeps its producer's timestamps"),
    "unclean.leader.election.enable": Fixed("false", "only who has everything can lead", BOOLEAN),
    "remote.storage.enable": Fixed("false", "archives are made by the pipeline", BOOLEAN),
}

IDLE = {
    "delete.retention.ms": LONG,
    "file.delete.delay.ms": LONG,
    "flush.messages": LONG,
    "flush.ms": LONG,
    "index.interval.bytes": INT,
    "max.compaction.lag.ms": LONG,
    "min.cleanable.dirty.ratio": DOUBLE,
    "min.compaction.lag.ms": LONG,
    "preallocate": BOOLEAN,
    "segment.index.bytes": INT,
    "segment.jitter.ms": LONG,
    "segment.ms": LONG,
}
IDLE_TEXT = "kept for clients, without effect"
KEPT = "kafka_configs"  # the setting
MIN_INSYNC = "min.insync.replicas"
_FORMS = {
    LONG: (re.compile(r"-?[0-9]{1,19}"), "a whole number"),
    INT: (re.compile(r"-?[0-9]{1,10}"), "a whole number"),
    DOUBLE: (re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?"), "a number such as 0.5"),
    BOOLEAN: (re.compile("true|false"), "true or false"),
}
_NUMBER = re.compile(r"-?[0-9]{1,100}")  # longer ones Python may refuse to read

NODE_TEXTS = {
    "advertised.listeners": "where clients reach this node",
    "auto.create.topics.enable": "create a topic at its first publish",
    "broker.id": "the number of this node",
    "default.replication.factor": "replicas of each partition of a new topic, at most one a node",
    "delete.topic.enable": "topics can be deleted",
    "listeners": "where this node listens",
    "log.cleanup.policy": "messages go by age and size",
    "log.retention.bytes": "size of a partition above which the oldest messages go; -1: no bound",
    "log.retention.ms": "age at which messages are removed; -1: never",
    "message.max.bytes": "the largest batch",
    "node.id": "the number of this node",
    "num.partitions": "partitions of a new topic",
}


def to_settings(
    configs: Mapping[str, str | None],
    replication_factor: int,
    kept: Mapping[str, str] | None = None,
) -> dict[str, Value]:
    """Return what configs mean in our words; ``kept`` are idle ones that the topic has already.

    Raises:
        InvalidArgument: a name that means nothing here, or a value that cannot be.
    """
    found: dict[str, object] = {}
    idle: dict[str, str] = {}
    for name, value in configs.items():
        if value is None:
            raise InvalidArgument(f"{name[:100]} has no value", "leave it out to have the default")
        setting = setting_of(name)
        if name in IDLE:
            idle[name] = _formed(name, value)
        elif setting:
            found[setting] = _bounded(setting, value)
        else:
            check_other(name, value, replication_factor)
    if idle:
        found[KEPT] = write_kept({**(kept or {}), **idle})
    return check_settings(found)


def read_kept(text: Value) -> dict[str, str]:
    """Return the idle configs that a topic keeps; what is none of them is passed over."""
    pairs = (pair.partition("=") for pair in str(text).split(","))
    return {name: value for name, _, value in pairs if name in IDLE}


def write_kept(idle: Mapping[str, str]) -> str:
    """Write idle configs down for ``read_kept``."""
    return ",".join(f"{name}={value}" for name, value in sorted(idle.items()))


def setting_of(name: str) -> str:
    """Return the setting a name means; "" if none. Raises InvalidArgument for unknown names."""
    if name in KNOWN:
        return KNOWN[name]
    if name in SETTINGS:
        return name
    if name in IDLE:
        return KEPT
    if name in FIXED or name == MIN_INSYNC:
        return ""
    known = ", ".join([*KNOWN, *FIXED, MIN_INSYNC])
    raise InvalidArgument(
        f"{name[:100]!r} is not known here", f"known are {known}, and raftline topic settings"
    )


def check_other(name: str, value: str, replication_factor: int) -> None:
    """Refuse values that would promise something else than what holds. Raises InvalidArgument."""
    if name in FIXED:
        fixed = FIXED[name]
        if value.strip().lower() != fixed.value.lower():
            raise InvalidArgument(
                f"{name} cannot be {value[:100]!r}: {fixed.why}", f"use {fixed.value}"
            )
    elif name == MIN_INSYNC:
        majority = replication_factor // 2 + 1
        text = value.strip()
        if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= max(1, majority):
            raise InvalidArgument(
                f"{name} cannot be {value[:100]!r}",
                f"a message is acknowledged by a majority of its replicas: use 1 to {majority}",
            )


def _formed(name: str, value: str) -> str:
    """Return the value of an idle config, if it is one. Raises InvalidArgument."""
    text = value.strip().lower()
    form, wanted = _FORMS[IDLE[name]]
    if not form.fullmatch(text):
        raise InvalidArgument(f"{name} cannot be {value[:100]!r}", f"it is {wanted}")
    return text


def _bounded(setting: str, value: str) -> str:
    """Let Kafka's way to say "for ever", and sizes of segments, pass."""
    text = value.strip()
    if not _NUMBER.fullmatch(text):
        return text  # maybe with a unit; else refused by its name
    number = int(text)
    if setting in ("retention_ms", "retention_bytes"):
        return str(FOREVER) if number < 0 or number > SETTINGS[setting].high else text
    if setting == "segment_bytes":
        return str(min(max(number, SEGMENT_BYTES_MIN), SEGMENT_BYTES_MAX))
    return text


def type_of(setting: str) -> int:
    """Return the type of one of our settings, as DescribeConfigs tells it."""
    default = SETTINGS[setting].default
    if isinstance(default, bool):
        return BOOLEAN
    return STRING if isinstance(default, str) else LONG


def written(value: Value) -> str:
    """Write a value as Kafka does."""
    return str(value).lower() if isinstance(value, bool) else str(value)
