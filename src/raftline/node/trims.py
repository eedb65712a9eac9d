"""Trims: a partition lets go of what lies before an offset, a bounded turn at a time.

What work groups know of messages that go has to go with them, on every replica at once: a million
messages, each leased or dead by itself, are a million rows. So a far trim is proposed in pieces.

Invariants
    M1  A piece is proposed when the one before it was applied: others come in between.
    M2  Whoever waits is answered once, when the last piece is applied or one could not be. What was
        let go by then is gone; to ask again is safe.

Costs: a round of the log for each ``PIECE_ROWS`` rows, or ``PIECE_RANGES`` settled ranges.
"""

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from raftline.machines.partition.commands import Trim
from raftline.model.errors import RaftlineError
from raftline.node.command_proposal import Applied, CommandProposal

if TYPE_CHECKING:
    from raftline.machines.delivery.machine import DeliveryMachine
    from raftline.node.partition import PartitionHost

PIECE_ROWS = 500  # of all groups together: about 4 ms on the loop of any replica
PIECE_RANGES = 10_000
SHARE_LEAST = 10  # of one group, where there are very many


def trim(host: "PartitionHost", offset: int, proposal: CommandProposal) -> None:
    """Propose to let go of what is below ``offset``. M1, M2."""
    assert host.replica is not None
    piece = piece_end(host.machine.delivery, offset)
    command = Trim(piece, host.replica.time.stamp())
    if piece == offset:
        host.command(command, proposal)
        return

    def applied(answer: Applied | RaftlineError) -> None:
        if isinstance(answer, RaftlineError) or host.machine.log_start < piece:
            proposal.answer(answer)  # refused, or held back by what may not go yet
        else:
            trim(host, offset, proposal)

    host.command(command, proposal.ahead(applied))


def piece_end(delivery: "DeliveryMachine", offset: int) -> int:
    """Return up to where one turn may let go, ``offset`` at most."""
    groups = delivery.groups.values()
    share = max(1, len(groups))
    rows_max = max(SHARE_LEAST, PIECE_ROWS // share)
    ranges_max = max(SHARE_LEAST, PIECE_RANGES // share)
    end = offset
    for group in groups:
        rows = (start for start, _, _ in group.rows.overlapping(0, end))
        end = _start_of(rows, rows_max, end)
        ranges = (start for start, _ in group.settled.within(group.floor, end))
        end = _start_of(ranges, ranges_max, end)
    return end


def _start_of(starts: Iterable[int], number: int, default: int) -> int:
    return next(islice(starts, number, None), default)
