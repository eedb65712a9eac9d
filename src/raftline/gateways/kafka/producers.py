"""InitProducerId: an id for a producer whose batches are numbered, so that repeats are known."""

from typing import Any

from raftline.gateways.kafka import schema
from raftline.gateways.kafka.dispatch import Context, Reply, Table
from raftline.gateways.kafka.errors import INVALID_REQUEST, code_of
from raftline.gateways.kafka.ports import KafkaCalls
from raftline.model.errors import RaftlineError

TIMEOUT_MS = 10_000
EPOCH_LAST = 0x7FFE  # then a new id is given


class ProducerApi:
    """Gives ids to producers. A producer that has one and failed goes on with the next epoch."""

    __slots__ = ("_calls",)

    def __init__(self, calls: KafkaCalls) -> None:
        self._calls = calls

    def add_to(self, table: Table) -> None:
        """Serve it."""
        table.add(schema.INIT_PRODUCER_ID, 0, 5, self.init)

    def init(self, request: dict[str, Any], version: int, context: Context, reply: Reply) -> None:
        """Give an id, or raise the epoch of the one that the producer has."""
        if request["transactional_id"] is not None:  # transactions are not served
            reply({"error_code": INVALID_REQUEST, "producer_id": -1, "producer_epoch": -1})
            return
        known, epoch = request["producer_id"], request["producer_epoch"]
        if known >= 0 and 0 <= epoch < EPOCH_LAST:
            reply({"producer_id": known, "producer_epoch": epoch + 1})
            return

        def given(answer: dict[str, object] | RaftlineError) -> None:
            if isinstance(answer, RaftlineError):
                code = code_of(answer)
                reply({"error_code": code, "producer_id": -1, "producer_epoch": -1})
            else:
                reply({"producer_id": answer["producer_id"], "producer_epoch": answer["epoch"]})

        self._calls.command("producer.new", {}, TIMEOUT_MS, context.guarded(given))
