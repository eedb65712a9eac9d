"""RangeTable against a dict with one entry per offset."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftline.model import range_table
from raftline.model.range_table import RangeTable

edge = st.integers(0, 40)
row = st.tuples(st.integers(0, 1), st.sampled_from([0, -(1 << 63), (1 << 63) - 1]))
step = st.tuples(st.sampled_from(["put", "replace", "remove", "cut", "freeze"]), edge, edge, row)


@pytest.fixture(
    autouse=True,
    params=[(3, 3), (512, 512), (3, 1), (512, 1)],
    ids=["tiny chunks", "chunks", "tiny chunks, short ways", "chunks, short ways"],
)
def chunk_rows(request, monkeypatch):
    monkeypatch.setattr(range_table, "CHUNK_ROWS", request.param[0])
    monkeypatch.setattr(range_table, "_SMALL_ROWS", request.param[1])


def do(fast: RangeTable, naive: dict, verb: str, low: int, high: int, row: tuple) -> None:
    asked = range(low, high)
    if verb == "remove":
        fast.remove(low, high)
        for offset in asked:
            naive.pop(offset, None)
    elif verb == "cut":
        held = fast.find(low)
        fits = held is not None and low < high <= held[1] and held[2][:1] == row[:1]
        assert fast.cut(low, high, row[:1]) == (held if fits else None)
        for offset in asked if fits else ():
            del naive[offset]
    elif asked and (verb == "replace" or not naive.keys() & set(asked)):
        getattr(fast, verb)(low, high, row)
        naive.update(dict.fromkeys(asked, row))


def spread(held) -> dict:
    return {offset: row for start, end, row in held for offset in range(start, end)}


@given(st.lists(step, max_size=40), edge, edge)
def test_the_same_as_a_dict(steps, start, end):
    fast, naive = RangeTable(2), {}
    frozen = []
    for verb, low, high, row in steps:
        if verb == "freeze":
            frozen.append((fast.freeze(), dict(naive)))
        else:
            do(fast, naive, verb, low, high, row)
        fast.check()
        assert spread(fast) == naive
    asked = range(start, end)
    held = {offset: row for offset, row in naive.items() if offset in asked}
    assert spread(fast.within(start, end)) == held
    assert [n for low, high in fast.gaps(start, end) for n in range(low, high)] == [
        n for n in asked if n not in naive
    ]
    assert fast.overlaps(start, end) == bool(held)
    assert fast.count(start, end) == len(list(fast.overlapping(start, end)))
    for offset in range(-1, 42):
        assert (offset in fast) == (offset in naive)
        found, after = fast.find(offset), fast.next_from(offset)
        assert (found and found[2]) == naive.get(offset)
        assert (after and max(offset, after[0])) == min(
            (n for n in naive if n >= offset), default=None
        )
    edges = [min(naive), max(naive) + 1] if naive else [None, None]
    assert [fast.first() and fast.first()[0], fast.last() and fast.last()[1]] == edges
    assert [n for piece in fast.column(-2) for n in piece] == [s for s, _, _ in fast]
    assert [n for piece in fast.column(-1) for n in piece] == [e for _, e, _ in fast]
    assert [n for piece in fast.column(1) for n in piece] == [r[1] for _, _, r in fast]
    # What was frozen is what was there then, whatever came after. T2: and says so in equal bytes.
    for pieces, then in [*frozen, (fast.freeze(), naive)]:
        again, plain = RangeTable(2), RangeTable(2)
        again.restore(b"".join(pieces()))
        again.check()
        assert spread(again) == then
        for offset in sorted(then):
            plain.put(offset, offset + 1, then[offset])
        assert b"".join(plain.freeze()()) == b"".join(pieces())


def test_what_is_taken_cannot_be_put():
    table = RangeTable(1)
    table.put(0, 5, (1,))
    with pytest.raises(AssertionError):
        table.put(4, 6, (1,))
    with pytest.raises(AssertionError):
        table.put(6, 6, (1,))
