"""What consumers tell each other through the coordinator: subscriptions and assignments.

The coordinator passes these bytes on and does not depend on them; they are read so that people see
who reads what. Bytes that are something else (other clients, other protocol types) read as nothing.
"""

from raftline.gateways.kafka.codec import Malformed, decoder, encoder
from raftline.model.groups import Places
from raftline.model.limits import GROUP_PARTITIONS_MAX, GROUP_TOPICS_MAX

CONSUMER = "consumer"
VERSION = 1  # of what we write

_SUBSCRIPTION = """
version     i16       0+
topics      []string  0+
user_data   bytes     0+ ?0+
owned       []        0+
  topic     string    0+
  partitions []i32    0+
"""
_TOPICS = """
version     i16       0+
topics      []string  0+
"""
_ASSIGNMENT = """
version      i16     0+
topics       []      0+
  topic      string  0+
  partitions []i32   0+
"""
_USER_DATA = """
user_data   bytes     0+ ?0+
"""


def topics_of(metadata: bytes) -> tuple[str, ...]:
    """Return the topics a consumer subscribes to, as far as they can be read."""
    try:
        topics = decoder(_TOPICS, 0, flexible=False)(metadata, 0)["topics"]
    except Malformed:
        return ()
    return tuple(sorted(set(topics))) if len(topics) <= GROUP_TOPICS_MAX else ()


def places_of(assignment: bytes) -> Places:
    """Return the partitions a consumer was assigned, as far as they can be read."""
    try:
        rows = decoder(_ASSIGNMENT, 0, flexible=False)(assignment, 0)["topics"]
    except Malformed:
        return {}
    places = {row["topic"]: sorted(set(row["partitions"])) for row in rows}
    count = sum(map(len, places.values()))
    return places if count <= GROUP_PARTITIONS_MAX else {}


def subscription(topics: tuple[str, ...]) -> bytes:
    """Write what a consumer of these topics would say."""
    out = bytearray()
    encoder(_SUBSCRIPTION, 0, flexible=False)(
        out, {"version": VERSION, "topics": list(topics), "user_data": None}
    )
    return bytes(out)


def assignment(places: Places) -> bytes:
    """Write what a consumer would be assigned."""
    rows = [{"topic": topic, "partitions": rows} for topic, rows in places.items()]
    out = bytearray()
    encoder(_ASSIGNMENT, 0, flexible=False)(out, {"version": VERSION, "topics": rows})
    encoder(_USER_DATA, 0, flexible=False)(out, {"user_data": None})
    return bytes(out)
