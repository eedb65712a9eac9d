"""Options of ``format("raftline")``: what there is, what they mean, and clear words for bad ones.

Spark hands over texts and does not mind case. Every option is listed here with what may use it; an
unknown one is refused with the nearest name, one that does not fit the use with the reason.
"""

import difflib
import json
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from raftline.client import clock
from raftline.client.caller import parse_servers
from raftline.config.moments import parse_moment_ms
from raftline.config.quantities import parse_bytes, parse_duration_ms
from raftline.model.batch import COMPRESSIONS
from raftline.model.errors import InvalidArgument, RaftlineError
from raftline.model.limits import BATCH_BYTES_MAX, GROUP_NAME_CHARS_MAX, OFFSET_MAX
from raftline.model.names import check_topic_name

EARLIEST = -2  # instead of an offset, as Kafka's connector writes it
LATEST = -1
OFFSETS_PER_SPLIT = 500_000
FETCH_BYTES = 8 << 20
TIMEOUT_MS = 30_000
QUERY_CHARS_MAX = 200
QUERY_DEFAULT = "spark"  # of a queue read: the group's only one

BATCH_READ = "a batch read"
STREAM_READ = "a stream read"
QUEUE_READ = "a queue read"
BATCH_WRITE = "a batch write"
STREAM_WRITE = "a stream write"
READS = (BATCH_READ, STREAM_READ, QUEUE_READ)
WRITES = (BATCH_WRITE, STREAM_WRITE)

USES: dict[str, tuple[str, ...]] = {
    "servers": (*READS, *WRITES),
    "topic": (*READS, *WRITES),
    "timeout": (*READS, *WRITES),
    "includeValue": READS,
    "readFrom": READS,
    "fetchBytes": READS,
    "offsetsPerSplit": READS,
    "archive": (BATCH_READ,),
    "pushFilters": (BATCH_READ,),
    "startingOffsets": (BATCH_READ, STREAM_READ, QUEUE_READ),
    "startingTimestamp": (BATCH_READ, STREAM_READ),
    "endingOffsets": (BATCH_READ,),
    "endingTimestamp": (BATCH_READ,),
    "failOnDataLoss": READS,
    "maxOffsetsPerTrigger": (STREAM_READ, QUEUE_READ),
    "progressGroup": (STREAM_READ,),
    "group": (QUEUE_READ,),
    "query": (QUEUE_READ, *WRITES),
    "batch": (BATCH_WRITE,),
    "compression": WRITES,
    "chunkBytes": WRITES,
}
SPARKS_OWN = ("path", "checkpointlocation")  # Spark hands these on
_NAMES = {name.lower(): name for name in USES}

Offsets = dict[int, int]  # partition -> offset, EARLIEST or LATEST
_Value = Any


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one use, understood."""

    servers: str
    topic: str = ""
    timeout_ms: int = TIMEOUT_MS
    include_value: bool = True
    read_from: str = "leader"
    fetch_bytes: int = FETCH_BYTES
    offsets_per_split: int = OFFSETS_PER_SPLIT
    archive: str = ""  # a directory; "true": where the topic says
    push_filters: bool = False
    starting: Offsets | int = EARLIEST  # for all partitions, or for each
    starting_ms: int | None = None
    ending: Offsets | int = LATEST
    ending_ms: int | None = None
    fail_on_data_loss: bool = True
    offsets_per_trigger: int | None = None
    progress_group: str = ""
    group: str = ""
    query: str = ""
    batch: int = 0
    compression: str = "none"
    chunk_bytes: int = 1 << 20


def parse(given: Mapping[str, str], use: str) -> Options:
    """Understand the options of a use.

    Raises:
        InvalidArgument: which option is wrong, why, and what to write.
    """
    options = _known(given)
    if use == STREAM_READ and "group" in options:
        use = QUEUE_READ
    _check_uses(options, use)
    fields: dict[str, _Value] = {}
    for name, (field, read) in _READERS.items():
        if name in options:
            fields[field] = _read(name, options[name], read)
    if "servers" not in fields:
        raise bad("option servers is missing", 'write .option("servers", "http://host:8080")')
    if not fields.get("topic") and use not in WRITES:
        raise bad("option topic is missing", 'write .option("topic", "orders")')
    if use == QUEUE_READ:
        fields.setdefault("query", QUERY_DEFAULT)
    found = Options(**fields)
    _check_pairs(found, options, use)
    return found


def check_any_read(given: Mapping[str, str]) -> Options:
    """Check options before it is known whether the read is a batch or a stream."""
    options = _known(given)
    is_batch = any(uses == (BATCH_READ,) for uses in map(USES.__getitem__, options))
    return parse(given, BATCH_READ if is_batch else STREAM_READ)


def bad(message: str, hint: str) -> InvalidArgument:
    """Return an error whose text says the next step too: Spark shows the text alone."""
    return InvalidArgument(f"{message}: {hint}", hint)


def _known(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options by our spelling."""
    found: dict[str, str] = {}
    for key, value in given.items():
        if key.lower() in SPARKS_OWN:
            continue
        name = _NAMES.get(key.lower())
        if name is None:
            near = difflib.get_close_matches(key.lower(), _NAMES, n=1)
            hint = f"did you mean {_NAMES[near[0]]}?" if near else f"there are {', '.join(USES)}"
            raise bad(f"option {key!r} is not known", hint)
        found[name] = value
    return found


def _check_uses(options: Mapping[str, str], use: str) -> None:
    for name in options:
        if use not in USES[name]:
            raise bad(f"option {name} is not for {use}", f"it is for {' and '.join(USES[name])}")


def _check_pairs(found: Options, options: Mapping[str, str], use: str) -> None:
    for first, second in (
        ("startingOffsets", "startingTimestamp"),
        ("endingOffsets", "endingTimestamp"),
    ):
        if first in options and second in options:
            raise bad(f"options {first} and {second} contradict each other", "give one of them")
    if found.batch and not found.query:
        raise bad("option batch counts the batches of a query", "give the option query too")
    if use == QUEUE_READ and isinstance(found.starting, dict):
        raise bad(
            "option startingOffsets of a queue read is earliest or latest",
            "a work group keeps its place itself; move it with raftline group reset",
        )
    if use == BATCH_READ and found.starting == LATEST:
        raise bad("a batch read from latest on reads nothing", "give earliest, offsets or a time")
    if found.ending == EARLIEST:
        raise bad("endingOffsets cannot be earliest", "give latest, offsets or endingTimestamp")
    start, end = found.starting_ms, found.ending_ms
    if start is not None and end is not None and start > end:
        raise bad("startingTimestamp is after endingTimestamp", "exchange them")


def _read(name: str, text: str, read: Callable[[str, str], _Value]) -> _Value:
    try:
        return read(name, text)
    except InvalidArgument as error:
        if error.message.startswith(f"option {name}"):
            raise
        raise bad(f"option {name}: {error.message}", error.hint or "see the guide") from error
    except RaftlineError as error:
        raise bad(f"option {name}: {error.message}", error.hint or "see the guide") from error
    except ValueError as error:
        raise bad(f"option {name}", str(error)) from error


def _servers(_: str, text: str) -> str:
    return ",".join(
        f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        for host, port in parse_servers(text)
    )


def _topic(_: str, text: str) -> str:
    check_topic_name(text)
    return text


def _flag(name: str, text: str) -> bool:
    value = {"true": True, "false": False}.get(text.strip().lower())
    if value is None:
        raise bad(f"option {name} is {text!r}", "write true or false")
    return value


def _number(least: int, most: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        try:
            value = int(text.strip().replace("_", ""))
        except ValueError:
            raise bad(f"option {name} is {text!r}", "write a whole number") from None
        if not least <= value <= most:
            raise bad(f"option {name} is {value}", f"write {least} to {most}")
        return value

    return read


def _bytes(least: int, most: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        value = parse_bytes(text)
        if not least <= value <= most:
            raise bad(f"option {name} is {text}", f"write {least} to {most} bytes, or 1MiB")
        return value

    return read


def _duration(name: str, text: str) -> int:
    value = parse_duration_ms(text)
    if not 100 <= value <= 3_600_000:
        raise bad(f"option {name} is {text}", "write 100ms to 1h")
    return value


def _choice(*choices: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text.strip().lower() not in choices:
            raise bad(f"option {name} is {text!r}", f"write {' or '.join(choices)}")
        return text.strip().lower()

    return read


def _moment(name: str, text: str) -> int:
    text = text.strip()
    if text.startswith("-"):
        return clock.wall_ms() - parse_duration_ms(text[1:])
    if text == "now":
        return clock.wall_ms()
    return parse_moment_ms(name, int(text) if text.isdigit() else text)


def _offsets(name: str, text: str) -> Offsets | int:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return EARLIEST if word == "earliest" else LATEST
    hint = 'write earliest, latest, or {"0": 17, "1": "latest"}'
    try:
        found: object = json.loads(text)
    except ValueError:
        raise bad(f"option {name} is {text[:60]!r}", hint) from None
    if not isinstance(found, dict) or not found:
        raise bad(f"option {name} is {text[:60]!r}", hint)
    offsets: Offsets = {}
    words = {"earliest": EARLIEST, "latest": LATEST}
    for key, given in cast("dict[str, object]", found).items():
        value = words.get(given, given) if isinstance(given, str) else given
        if not key.isdigit() or not isinstance(value, int) or isinstance(value, bool):
            raise bad(f"option {name} has {key}: {value!r}", hint)
        if not EARLIEST <= value <= OFFSET_MAX:
            raise bad(f"option {name} has {key}: {value}", "an offset is 0 or more")
        offsets[int(key)] = value
    return offsets


def _name(chars_max: int) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if not text.strip() or len(text) > chars_max:
            raise bad(f"option {name} is {text[:60]!r}", f"write 1 to {chars_max} characters")
        return text

    return read


def _archive(name: str, text: str) -> str:
    word = text.strip()
    if not word:
        raise bad(f"option {name} is empty", "name a directory, or true: where the topic says")
    return "" if word.lower() == "false" else word


_READERS: dict[str, tuple[str, Callable[[str, str], _Value]]] = {
    "servers": ("servers", _servers),
    "topic": ("topic", _topic),
    "timeout": ("timeout_ms", _duration),
    "includeValue": ("include_value", _flag),
    "readFrom": ("read_from", _choice("leader", "any")),
    "fetchBytes": ("fetch_bytes", _bytes(1 << 16, FETCH_BYTES)),
    "offsetsPerSplit": ("offsets_per_split", _number(1, 1 << 40)),
    "archive": ("archive", _archive),
    "pushFilters": ("push_filters", _flag),
    "startingOffsets": ("starting", _offsets),
    "startingTimestamp": ("starting_ms", _moment),
    "endingOffsets": ("ending", _offsets),
    "endingTimestamp": ("ending_ms", _moment),
    "failOnDataLoss": ("fail_on_data_loss", _flag),
    "maxOffsetsPerTrigger": ("offsets_per_trigger", _number(1, 1 << 40)),
    "progressGroup": ("progress_group", _name(GROUP_NAME_CHARS_MAX)),
    "group": ("group", _name(GROUP_NAME_CHARS_MAX)),
    "query": ("query", _name(QUERY_CHARS_MAX)),
    "batch": ("batch", _number(0, OFFSET_MAX)),
    "compression": ("compression", _choice(*COMPRESSIONS)),
    "chunkBytes": ("chunk_bytes", _bytes(1 << 10, BATCH_BYTES_MAX // 2)),
}

assert _READERS.keys() == USES.keys()
