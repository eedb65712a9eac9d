"""Opened batches: a batch that several receives share is opened once."""

from collections import OrderedDict

from raftline.model.batch import split_batches
from raftline.model.errors import CorruptBatch
from raftline.model.message import Message
from raftline.model.records import open_batch

MESSAGES_MAX = 50_000
BYTES_MAX = 32 << 20
MESSAGE_BYTES = 200  # what a message weighs besides its value


class OpenedBatches:
    """The messages of the batches that were delivered last.

    Only batches of more than one message are kept: a single one is never asked for again.
    """

    __slots__ = ("_batches", "_bytes", "_count")

    def __init__(self) -> None:
        self._batches: OrderedDict[tuple[str, int, int, int], list[Message]] = OrderedDict()
        self._count = self._bytes = 0

    def pick(self, topic: str, partition: int, batches: bytes, spans: list[int]) -> list[Message]:
        """Return the messages of ``spans`` (flat: start, end, attempt, generation), in order.

        Raises:
            CorruptBatch: what is inside a batch is not what its head says.
        """
        found: dict[int, Message] = {}
        view = memoryview(batches)
        for start, length in split_batches(batches):
            for message in self._open(topic, partition, view[start : start + length]):
                found[message.offset] = message
        try:
            return [
                found[offset]
                for at in range(0, len(spans), 4)
                for offset in range(spans[at], spans[at + 1])
            ]
        except KeyError as error:  # it counts its messages in a way of its own
            raise CorruptBatch(f"no message in it has the offset {error}") from error

    def _open(self, topic: str, partition: int, batch: memoryview) -> list[Message]:
        base = int.from_bytes(batch[:8], "big")
        key = (topic, partition, base, int.from_bytes(batch[17:21], "big"))  # and its checksum
        opened = self._batches.get(key)
        if opened is not None:
            self._batches.move_to_end(key)
            return opened
        opened = open_batch(batch)
        if len(opened) > 1:
            self._batches[key] = opened
            self._count += len(opened)
            self._bytes += _size(opened)
            while self._count > MESSAGES_MAX or self._bytes > BYTES_MAX:
                _, dropped = self._batches.popitem(last=False)
                self._count -= len(dropped)
                self._bytes -= _size(dropped)
        return opened


def _size(opened: list[Message]) -> int:
    return sum(MESSAGE_BYTES + len(message.value or b"") for message in opened)
