"""Reading leased ranges: many small ones with little between are read in one go and cut out."""

# pyright: basic
# Arrow and numpy say too little of their types for more.

from collections.abc import Iterator, Sequence
from typing import Any

from raftline.spark.batch_reader import read_or_skip
from raftline.spark.options import Options
from raftline.spark.ranges import LogRange

GAP_MAX = 2_000  # offsets between two ranges that are read through rather than asked around


def read_leased(options: Options, ranges: Sequence[LogRange]) -> Iterator[Any]:
    """Yield the messages of ranges of one partition, in order, as Arrow batches."""
    import numpy as np
    import pyarrow as pa

    starts = np.array([one.start for one in ranges], np.int64)
    ends = np.array([one.end for one in ranges], np.int64)
    for batch in read_or_skip(options, spans(ranges)):
        offsets = batch.column("offset").to_numpy()
        at = np.searchsorted(starts, offsets, side="right") - 1
        keep = (at >= 0) & (offsets < ends[at])
        if keep.all():
            yield batch
        elif keep.any():
            yield batch.filter(pa.array(keep))


def spans(ranges: Sequence[LogRange]) -> list[LogRange]:
    """Return ranges that cover these, with small gaps between them closed."""
    found: list[LogRange] = []
    for one in ranges:
        last = found[-1] if found else None
        if last is not None and last.partition == one.partition and one.start - last.end <= GAP_MAX:
            found[-1] = LogRange(one.partition, last.start, one.end)
        else:
            found.append(one)
    return found
