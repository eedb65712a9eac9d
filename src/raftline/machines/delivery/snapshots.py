"""The snapshot of a partition's work groups: a head, then the tables as they are in memory.

::

    I bytes of the head    msgpack DeliveryState    tables: rows and settled of each group in order,
                                                    then the outbox's

Groups are in the order in which they were opened: it is the order in which their leases end.
The loop's half takes the heads and shares the tables; the bytes are put together in a lane.
"""

import struct
from collections.abc import Callable

import msgspec

from raftline.machines.delivery.commands import Policy
from raftline.machines.delivery.group import WorkGroup
from raftline.machines.delivery.outbox import Outbox, OutboxState
from raftline.machines.delivery.queries import QueryLeaseState, query_state, restored
from raftline.machines.delivery.rows import COLUMNS
from raftline.machines.delivery.texts import TextState
from raftline.model.errors import NewerFormat
from raftline.model.range_table import RangeTable

SNAPSHOT_FORMAT = 1
_LENGTH = struct.Struct("<I")


class GroupState(msgspec.Struct, array_like=True):
    """A group in a snapshot, besides its tables."""

    name: str
    policy: Policy
    floor: int
    base_generation: int
    generation_max: int
    members: TextState
    errors: TextState
    rows: int  # in its tables
    settled: int
    queries: list[QueryLeaseState] = []


class DeliveryState(msgspec.Struct, array_like=True):
    """The head of a snapshot."""

    format: int
    at_ms: int
    generation_next: int
    groups: list[GroupState]
    outbox: OutboxState


def freeze_delivery(
    at_ms: int, generation_next: int, groups: dict[str, WorkGroup], outbox: Outbox
) -> Callable[[], bytes]:
    """Return what writes the state as it is now."""
    tables: list[Callable[[], list[bytes]]] = []
    heads: list[GroupState] = []
    for group in groups.values():
        heads.append(_head(group))
        tables += (group.rows.freeze(), group.settled.freeze())
    outbox_head, outbox_table = outbox.freeze()
    tables.append(outbox_table)
    state = DeliveryState(SNAPSHOT_FORMAT, at_ms, generation_next, heads, outbox_head)

    def joined() -> bytes:
        head = _encoder.encode(state)
        pieces = [_LENGTH.pack(len(head)), head]
        for table in tables:
            pieces += table()
        return b"".join(pieces)

    return joined


def restore_delivery(
    data: bytes | memoryview, outbox: Outbox
) -> tuple[int, int, dict[str, WorkGroup]]:
    """Fill ``outbox``; return log time, the next group's generation, the groups.

    Raises:
        NewerFormat: the snapshot is of a newer build.
    """
    view = memoryview(data)
    (length,) = _LENGTH.unpack_from(view)
    at = _LENGTH.size + length
    state = _decoder.decode(view[_LENGTH.size : at])
    if state.format > SNAPSHOT_FORMAT:
        raise NewerFormat("the work groups of a snapshot", state.format, SNAPSHOT_FORMAT)
    groups: dict[str, WorkGroup] = {}
    for head in state.groups:
        middle = at + RangeTable.frozen_bytes(COLUMNS, head.rows)
        end = middle + RangeTable.frozen_bytes(0, head.settled)
        groups[head.name] = _group(head, view[at:middle], view[middle:end])
        at = end
    outbox.restore(state.outbox, view[at:])
    return state.at_ms, state.generation_next, groups


def _head(group: WorkGroup) -> GroupState:
    return GroupState(
        group.name,
        group.policy,
        group.floor,
        group.base_generation,
        group.generation_max,
        group.members.state(),
        group.errors.state(),
        len(group.rows),
        len(group.settled),
        [query_state(name, query) for name, query in group.queries.items()],
    )


def _group(head: GroupState, rows: memoryview, settled: memoryview) -> WorkGroup:
    group = WorkGroup(head.name, head.policy, head.floor, head.base_generation)
    group.generation_max = head.generation_max
    group.members.restore(head.members)
    group.errors.restore(head.errors)
    group.rows.restore(rows)
    group.settled.restore(settled)
    group.queries = {state.query: restored(state) for state in head.queries}
    group.index()
    return group


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[DeliveryState] = msgspec.msgpack.Decoder(DeliveryState)
