"""Dedup keys against a naive twin: a dictionary that never forgets early."""

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from raftline.machines.partition import dedup as module
from raftline.machines.partition.dedup import Dedup
from raftline.machines.partition.side_car import hash_key
from raftline.model.errors import DuplicateKey, OverLimit

HASHES = [hash_key(b"%d" % number) for number in range(12)]
KEYS_MAX = 40

step = st.tuples(
    st.integers(0, 30),  # time passes
    st.integers(0, 60),  # window
    st.lists(st.integers(0, len(HASHES) - 1), min_size=1, max_size=5, unique=True),
    st.sampled_from(["", "", "", "restart", "freeze"]),
)


class Naive:
    def __init__(self) -> None:
        self.rows: dict[bytes, tuple[int, int]] = {}  # hash -> first, until

    def duplicates(self, keys: list[tuple[int, bytes]], at_ms: int) -> list[tuple[int, int]]:
        held = {h: first for h, (first, until_ms) in self.rows.items() if until_ms > at_ms}
        return [(delta, held[h]) for delta, h in keys if h in held]


@given(st.lists(step, max_size=40))
def test_the_same_as_the_naive_twin(steps):
    with patch.object(module, "CHUNK_ROWS", 4):  # many chunks from few rows
        dedup, naive = Dedup(KEYS_MAX), Naive()
        at_ms = offset = 0
        frozen = []
        for passed, window_ms, numbers, act in steps:
            at_ms += passed
            keys = [(delta, HASHES[number]) for delta, number in enumerate(numbers)]
            expected = naive.duplicates(keys, at_ms)
            verdict = dedup.admit(keys, at_ms)
            if expected:
                assert isinstance(verdict, DuplicateKey)
                assert verdict.firsts == expected
            elif verdict is not None:
                assert isinstance(verdict, OverLimit)
                assert len(dedup) + len(keys) > KEYS_MAX
            else:
                dedup.stored(keys, offset, at_ms + window_ms)
                for delta, key_hash in keys:
                    naive.rows[key_hash] = (offset + delta, at_ms + window_ms)
                offset += len(keys)
            if act == "restart":
                again = Dedup(KEYS_MAX)
                again.restore(dedup.freeze()())
                assert again.freeze()() == dedup.freeze()()
                dedup = again
            elif act == "freeze":
                frozen.append((dedup.freeze(), dedup.freeze()()))
            dedup.check()
            for key_hash in HASHES:
                held = naive.rows.get(key_hash, (0, 0))
                assert dedup.find(key_hash, at_ms) == (held[0] if held[1] > at_ms else None)
        for later, then in frozen:
            assert later() == then
        dedup.expire(1 << 50, 1000)
        assert dedup.freeze()() == b""


def test_rows_go_as_fast_as_they_come():
    dedup = Dedup()
    for at_ms in range(200):
        keys = [(0, hash_key(b"%d" % at_ms))]
        assert dedup.admit(keys, at_ms) is None
        dedup.stored(keys, at_ms, at_ms + 50)
    assert len(dedup) == 50
