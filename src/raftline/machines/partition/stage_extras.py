"""Extras of a staged chunk: what the batch does not say of its messages.

They are stored beside the chunk in the stage log, as a sealed batch of one message whose value is
the msgpack of ``Extras``. Nobody but the leader that publishes the chunk reads them.
"""

import msgspec

from raftline.machines.partition.side_car import DedupKey, PriorityRun, SideCar, problem
from raftline.model.batch import Buffer
from raftline.model.errors import InvalidArgument
from raftline.model.limits import STAGE_DUE_MESSAGES_MAX
from raftline.model.records import open_batch, seal_batch

TIME_MS_MAX = 1 << 50


class Extras(msgspec.Struct, frozen=True, array_like=True):
    """Priorities and dedup keys as in a side car; due times, one a message, or none at all."""

    priorities: tuple[PriorityRun, ...] = ()
    dedup: tuple[DedupKey, ...] = ()
    dues_ms: tuple[int, ...] = ()

    @property
    def side(self) -> SideCar:
        """Return what a side car knows of it."""
        return SideCar(self.priorities, self.dedup)


NO_EXTRAS = Extras()


def check_extras(extras: Extras, count: int) -> None:
    """Refuse extras that do not fit a batch of ``count`` messages. Raises InvalidArgument."""
    wrong = problem(extras.side, count)
    dues = extras.dues_ms
    if dues and len(dues) != count:
        wrong = f"{len(dues)} due times for {count} messages"
    elif len(dues) > STAGE_DUE_MESSAGES_MAX:
        wrong = f"{len(dues)} messages that wait, at most {STAGE_DUE_MESSAGES_MAX} go in a chunk"
    elif any(not 0 <= due_ms <= TIME_MS_MAX for due_ms in dues):
        wrong = "a due time out of bounds: Unix milliseconds"
    if wrong:
        raise InvalidArgument(f"extras of a staged chunk: {wrong}")


def seal_extras(extras: Extras, at_ms: int) -> bytes:
    """Return extras as they are staged; nothing where there are none."""
    if extras == NO_EXTRAS:
        return b""
    return seal_batch([(None, msgspec.msgpack.encode(extras), (), at_ms)])


def open_extras(sealed: Buffer) -> Extras:
    """Read what ``seal_extras`` wrote."""
    (message,) = open_batch(sealed)
    return _decode(message.value or b"")


_decode = msgspec.msgpack.Decoder(Extras).decode
