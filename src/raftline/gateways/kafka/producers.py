"""InitProducerId: an id for a producer whose batches are numbered, so that repeats are known.

Invariants
    I1  No two answers have the same id. What a client names as its id and epoch is not looked at:
        some name 0 and 0 before they have any, and two producers under one id would have the
        messages of the second taken for repeats of the first's, acknowledged and not stored.
"""

from typing import Any

from raftline.gateways.kafka import schema
from raftline.gateways.kafka.dispatch import Context, Reply, Table
from raftline.gateways.kafka.errors import INVALID_REQUEST, code_of
from raftline.gateways.kafka.groups_errors import COORDINATOR_LOAD_IN_PROGRESS
from raftline.gateways.kafka.ports import KafkaCalls
from raftline.model.errors import OverLimit, RaftlineError, TimedOut, Unavailable

TIMEOUT_MS = 10_000
NONE_YET = -1  # an id, or an epoch, that the client does not have


class ProducerApi:
    """Gives ids to producers, also to those that have one and begin anew (I1)."""

    __slots__ = ("_calls",)

    def __init__(self, calls: KafkaCalls) -> None:
        self._calls = calls

    def add_to(self, table: Table) -> None:
        """Serve it."""
        table.add(schema.INIT_PRODUCER_ID, 0, 5, self.init)

    def init(self, request: dict[str, Any], version: int, context: Context, reply: Reply) -> None:
        """Give an id that nobody has."""
        is_half = (request["producer_id"] == NONE_YET) != (request["producer_epoch"] == NONE_YET)
        if request["transactional_id"] is not None or is_half:  # transactions are not served
            reply({"error_code": INVALID_REQUEST, "producer_id": -1, "producer_epoch": -1})
            return

        def given(answer: dict[str, object] | RaftlineError) -> None:
            if isinstance(answer, RaftlineError):
                code = _code(answer)
                reply({"error_code": code, "producer_id": -1, "producer_epoch": -1})
            else:
                reply({"producer_id": answer["producer_id"], "producer_epoch": answer["epoch"]})

        self._calls.command("producer.new", {}, TIMEOUT_MS, context.guarded(given))


def _code(error: RaftlineError) -> int:
    """Return the code of a refusal; what passes has the only one on which all clients ask again.

    Told anything else, aiokafka and older Java clients end the producer.
    """
    is_passing = isinstance(error, Unavailable | TimedOut | OverLimit)
    return COORDINATOR_LOAD_IN_PROGRESS if is_passing else code_of(error)
