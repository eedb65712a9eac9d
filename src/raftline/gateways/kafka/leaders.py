"""Where to go instead: the tags of Produce and Fetch replies that name a leader."""

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING

from raftline.gateways.kafka.codec import put_uvarint
from raftline.gateways.kafka.metadata import broker_rows
from raftline.gateways.kafka.ports import KafkaCalls

if TYPE_CHECKING:
    from raftline.model.calls import TopicRow

UNKNOWN = -1

_LEADER = struct.Struct(">ii")
_NODE = struct.Struct(">i")


class Terms:
    """Terms of partitions' leaders as far as we know, for one reply.

    A topic is looked up once: a row has all of its partitions, and a request may name them all.
    """

    __slots__ = ("_calls", "_found")

    def __init__(self, calls: KafkaCalls) -> None:
        self._calls = calls
        self._found: dict[str, TopicRow | None] = {}

    def of(self, topic: str, partition: int) -> int:
        """Return the term of a partition's leader; -1."""
        if topic not in self._found:
            self._found[topic] = self._calls.find_topic(topic)
        found = self._found[topic]
        if found is None or not 0 <= partition < len(found.partitions):
            return UNKNOWN
        return found.partitions[partition].term or UNKNOWN


def leader_tag(leader: int, term: int, tag: int = 0) -> bytes:
    """Return the tags of a partition, its leader alone."""
    return bytes([1, tag, _LEADER.size + 1]) + _LEADER.pack(leader, term) + b"\0"


def node_tag(calls: KafkaCalls, leaders: Iterable[int]) -> bytes:
    """Return the tags of a reply: where the nodes are that were named."""
    named = set(leaders)
    rows = broker_rows(row for row in calls.nodes_view().nodes if row.id in named)
    inside = bytearray()
    put_uvarint(inside, len(rows) + 1)
    for row in rows:
        inside += _NODE.pack(row["node_id"])
        _put_text(inside, row["host"])
        inside += _NODE.pack(row["port"])
        _put_text(inside, row["rack"])
        inside.append(0)
    out = bytearray([1, 0])
    put_uvarint(out, len(inside))
    return bytes(out + inside)


def _put_text(out: bytearray, text: str | None) -> None:
    if text is None:
        out.append(0)
        return
    data = text.encode()
    put_uvarint(out, len(data) + 1)
    out += data
