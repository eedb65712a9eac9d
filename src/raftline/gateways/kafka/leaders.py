"""Where to go instead: the tags of Produce and Fetch replies that name a leader."""

import struct
from collections.abc import Iterable

from raftline.gateways.kafka.codec import put_uvarint
from raftline.gateways.kafka.metadata import broker_rows
from raftline.gateways.kafka.ports import KafkaCalls

_LEADER = struct.Struct(">ii")
_NODE = struct.Struct(">i")


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
