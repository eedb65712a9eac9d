"""What messages of the Kafka protocol look like: tables of our own, one line a field.

A line is ``name kind versions`` and marks; what is indented below ``[]`` or ``{}`` is inside it::

    topics     []      0+  ?1+       an array of structs, which may be null from version 1 on
      name     string  0+
      replicas []i32   5-7 =...      only in versions 5 to 7; with a default
    leader     {}      10+ #0        a struct that travels as tag 0 (flexible versions only)

Kinds: bool i8 i16 u16 i32 u32 i64 f64 uuid string bytes, ``[]`` of one of them, ``[]`` and ``{}``
of what is below. A field that a version does not have is decoded as its default, and left out when
encoded. ``codec.py`` makes encoders and decoders of this, on first use.

Produce and Fetch are here for tests and for tools; the node reads and writes them by hand.
"""

import re
from functools import cache

import msgspec

VERSION_LAST = 1 << 15
_LINE = re.compile(r"(?P<indent> *)(?P<name>\w+) +(?P<kind>[\w\[\]{}]+) +(?P<rest>.*)")
_VERSIONS = re.compile(r"(?P<first>\d+)(?P<open>\+|-(?P<last>\d+))?")


class Field(msgspec.Struct, frozen=True):
    """One field of a message."""

    name: str
    kind: str  # of an array: of its items
    versions: tuple[int, int]  # first and last
    fields: tuple["Field", ...] = ()
    is_array: bool = False
    null_from: int = VERSION_LAST  # the first version in which it may be null
    default: int | bool | str | None = None
    has_default: bool = False
    tag: int = -1

    def is_in(self, version: int) -> bool:
        """Say whether a version has the field."""
        return self.versions[0] <= version <= self.versions[1]


class Api(msgspec.Struct, frozen=True):
    """One request and its response."""

    key: int
    name: str
    flexible_from: int  # the first version with compact lengths and tags
    request: str
    response: str
    plain_header: bool = False  # the head of a response never has tags (ApiVersions only)

    def request_header(self, version: int) -> int:
        """Return the version of the head of a request."""
        return 2 if version >= self.flexible_from else 1

    def has_response_tags(self, version: int) -> bool:
        """Say whether the head of a response has tags."""
        return version >= self.flexible_from and not self.plain_header


@cache
def parse(table: str) -> tuple[Field, ...]:
    """Return the fields of a table."""
    lines = [line for line in table.split("\n") if line.strip()]
    found, end = _level(lines, 0, 0)
    assert end == len(lines), f"a line that belongs to nothing: {lines[end]}"
    return found


def _level(lines: list[str], at: int, indent: int) -> tuple[tuple[Field, ...], int]:
    fields: list[Field] = []
    while at < len(lines):
        match = _LINE.fullmatch(lines[at].rstrip())
        assert match is not None, lines[at]
        if len(match["indent"]) < indent:
            break
        assert len(match["indent"]) == indent, lines[at]
        kind, below = match["kind"], ()
        at += 1
        if kind in ("[]", "{}"):
            below, at = _level(lines, at, indent + 2)
            assert below, f"nothing is in {match['name']}"
        fields.append(_field(match["name"], kind, match["rest"].split(), below))
    return tuple(fields), at


def _field(name: str, kind: str, marks: list[str], below: tuple[Field, ...]) -> Field:
    values: dict[str, int | bool | str | None] = {}
    for mark in marks[1:]:
        text = mark[1:]
        if mark[0] == "?":
            values["null_from"] = int(text.rstrip("+"))
        elif mark[0] == "#":
            values["tag"] = int(text)
        else:
            assert mark[0] == "=", mark
            values["default"], values["has_default"] = _value(text), True
    is_array = kind.startswith("[]")
    return Field(
        name,
        kind[2:] if is_array else kind,
        _span(marks[0]),
        below,
        is_array=is_array,
        **values,  # type: ignore[arg-type]
    )


def _span(text: str) -> tuple[int, int]:
    match = _VERSIONS.fullmatch(text)
    assert match is not None, text
    first = int(match["first"])
    if match["last"]:
        return first, int(match["last"])
    return first, VERSION_LAST if match["open"] else first


def _value(text: str) -> int | bool | str | None:
    known: dict[str, bool | str | None] = {"null": None, "true": True, "false": False, "''": ""}
    return known[text] if text in known else int(text)


API_VERSIONS = Api(
    18,
    "ApiVersions",
    3,
    """
client_software_name     string  3+
client_software_version  string  3+
""",
    """
error_code               i16     0+
api_keys                 []      0+
  api_key                i16     0+
  min_version            i16     0+
  max_version            i16     0+
throttle_ms              i32     1+
supported_features       []      3+ #0
  name                   string  3+
  min_version            i16     3+
  max_version            i16     3+
finalized_features_epoch i64     3+ #1 =-1
finalized_features       []      3+ #2
  name                   string  3+
  max_version_level      i16     3+
  min_version_level      i16     3+
zk_migration_ready       bool    3+ #3
""",
    plain_header=True,
)

METADATA = Api(
    3,
    "Metadata",
    9,
    """
topics                                []      0+ ?1+
  topic_id                            uuid    10+
  name                                string  0+ ?10+
allow_auto_topic_creation             bool    4+ =true
include_cluster_authorized_operations bool    8-10
include_topic_authorized_operations   bool    8+
""",
    """
throttle_ms                   i32     3+
brokers                       []      0+
  node_id                     i32     0+
  host                        string  0+
  port                        i32     0+
  rack                        string  1+ ?1+ =null
cluster_id                    string  2+ ?2+ =null
controller_id                 i32     1+ =-1
topics                        []      0+
  error_code                  i16     0+
  name                        string  0+ ?12+
  topic_id                    uuid    10+
  is_internal                 bool    1+
  partitions                  []      0+
    error_code                i16     0+
    partition                 i32     0+
    leader_id                 i32     0+
    leader_epoch              i32     7+ =-1
    replicas                  []i32   0+
    isr                       []i32   0+
    offline_replicas          []i32   5+
  topic_authorized_operations i32     8+ =-2147483648
cluster_authorized_operations i32     8-10 =-2147483648
error_code                    i16     13+
""",
)

PRODUCE = Api(
    0,
    "Produce",
    9,
    """
transactional_id  string  3+ ?3+ =null
acks              i16     0+
timeout_ms        i32     0+
topics            []      0+
  name            string  0+
  partitions      []      0+
    partition     i32     0+
    records       bytes   0+ ?0+
""",
    """
topics                   []      0+
  name                   string  0+
  partitions             []      0+
    partition            i32     0+
    error_code           i16     0+
    base_offset          i64     0+
    log_append_time_ms   i64     2+ =-1
    log_start_offset     i64     5+ =-1
    record_errors        []      8+
      batch_index        i32     8+
      message            string  8+ ?8+ =null
    error_message        string  8+ ?8+ =null
    current_leader       {}      10+ #0
      leader_id          i32     10+ =-1
      leader_epoch       i32     10+ =-1
throttle_ms              i32     1+
node_endpoints           []      10+ #0
  node_id                i32     10+
  host                   string  10+
  port                   i32     10+
  rack                   string  10+ ?10+ =null
""",
)

FETCH = Api(
    1,
    "Fetch",
    12,
    """
cluster_id               string  12+ ?12+ #0 =null
replica_id               i32     0-14 =-1
replica_state            {}      15+ #1
  replica_id             i32     15+ =-1
  replica_epoch          i64     15+ =-1
max_wait_ms              i32     0+
min_bytes                i32     0+
max_bytes                i32     3+ =2147483647
isolation_level          i8      4+
session_id               i32     7+
session_epoch            i32     7+ =-1
topics                   []      0+
  topic                  string  0-12
  topic_id               uuid    13+
  partitions             []      0+
    partition            i32     0+
    current_leader_epoch i32     9+ =-1
    fetch_offset         i64     0+
    last_fetched_epoch   i32     12+ =-1
    log_start_offset     i64     5+ =-1
    partition_max_bytes  i32     0+
    replica_directory_id uuid    17+ #0
forgotten_topics         []      7+
  topic                  string  7-12
  topic_id               uuid    13+
  partitions             []i32   7+
rack_id                  string  11+ =''
""",
    """
throttle_ms                 i32     1+
error_code                  i16     7+
session_id                  i32     7+
topics                      []      0+
  topic                     string  0-12
  topic_id                  uuid    13+
  partitions                []      0+
    partition               i32     0+
    error_code              i16     0+
    high_watermark          i64     0+
    last_stable_offset      i64     4+ =-1
    log_start_offset        i64     5+ =-1
    diverging_epoch         {}      12+ #0
      epoch                 i32     12+ =-1
      end_offset            i64     12+ =-1
    current_leader          {}      12+ #1
      leader_id             i32     12+ =-1
      leader_epoch          i32     12+ =-1
    snapshot_id             {}      12+ #2
      end_offset            i64     12+ =-1
      epoch                 i32     12+ =-1
    aborted_transactions    []      4+ ?4+
      producer_id           i64     4+
      first_offset          i64     4+
    preferred_read_replica  i32     11+ =-1
    records                 bytes   0+ ?0+
node_endpoints              []      16+ #0
  node_id                   i32     16+
  host                      string  16+
  port                      i32     16+
  rack                      string  16+ ?16+ =null
""",
)

LIST_OFFSETS = Api(
    2,
    "ListOffsets",
    6,
    """
replica_id               i32     0+
isolation_level          i8      2+
topics                   []      0+
  name                   string  0+
  partitions             []      0+
    partition            i32     0+
    current_leader_epoch i32     4+ =-1
    timestamp            i64     0+
timeout_ms               i32     10+
""",
    """
throttle_ms       i32     2+
topics            []      0+
  name            string  0+
  partitions      []      0+
    partition     i32     0+
    error_code    i16     0+
    timestamp     i64     1+ =-1
    offset        i64     1+ =-1
    leader_epoch  i32     4+ =-1
""",
)

INIT_PRODUCER_ID = Api(
    22,
    "InitProducerId",
    2,
    """
transactional_id        string  0+ ?0+
transaction_timeout_ms  i32     0+
producer_id             i64     3+ =-1
producer_epoch          i16     3+ =-1
""",
    """
throttle_ms     i32  0+
error_code      i16  0+
producer_id     i64  0+ =-1
producer_epoch  i16  0+
""",
)

OFFSET_FOR_LEADER_EPOCH = Api(
    23,
    "OffsetForLeaderEpoch",
    4,
    """
replica_id               i32     3+ =-2
topics                   []      0+
  topic                  string  0+
  partitions             []      0+
    partition            i32     0+
    current_leader_epoch i32     2+ =-1
    leader_epoch         i32     0+
""",
    """
throttle_ms       i32     2+
topics            []      0+
  topic           string  0+
  partitions      []      0+
    error_code    i16     0+
    partition     i32     0+
    leader_epoch  i32     1+ =-1
    end_offset    i64     0+ =-1
""",
)
