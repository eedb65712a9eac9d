"""Random rpcs: a replica may refuse them or fault, and never loses its own invariants."""

import random

from raftline.raft.core import Raft
from raftline.raft.errors import RaftFault, Refused
from raftline.raft.rpc import LOCAL_APPEND, ConfState, Entry, Rpc, Snapshot
from tests.unit.raft.replicas import leader, replica, work


def random_rpc(rng: random.Random) -> Rpc:
    def small() -> int:
        return rng.choice([0, 1, 2, 3, 4, 5, 6, 9, 1 << 40])

    ids = tuple(rng.sample(range(1, 6), rng.randrange(0, 4)))
    start = small()
    entries = [
        Entry(start + at if rng.random() < 0.9 else small(), small(), rng.randrange(0, 4), b"x")
        for at in range(rng.randrange(0, 3))
    ]
    snapshot = Snapshot(small(), small(), ConfState(ids, ids[:1] if rng.random() < 0.2 else ()))
    return Rpc(
        rng.randrange(0, 26),
        1,
        rng.choice([1, 2, 3, 4, 9, LOCAL_APPEND]),
        small(),
        small(),
        start - 1 if start and rng.random() < 0.7 else small(),
        entries,
        small(),
        snapshot=snapshot if rng.random() < 0.3 else None,
        reject=rng.random() < 0.3,
        reject_hint=small(),
        context=rng.randbytes(rng.choice([0, 1, 8])) if rng.random() < 0.3 else b"",
    )


def check(raft: Raft) -> None:
    log = raft.log
    assert log.applied <= log.applying <= log.commit <= log.last_index
    assert log.last_index == log.offset + len(log.unstable) - 1
    assert log.offset <= log.writing_end <= log.last_index + 1
    assert [entry.index for entry in log.unstable] == list(range(log.offset, log.last_index + 1))
    terms = [entry.term for entry in log.unstable]
    assert terms == sorted(terms)
    for progress in raft.progress.values():
        assert progress.match < progress.next
        assert progress.match <= log.last_index


def test_garbage_breaks_nothing() -> None:
    taken = 0
    for seed in range(150):
        rng = random.Random(seed)
        raft = replica(1) if seed % 2 else leader(replica(2), replica(3))
        for _ in range(60):
            commit, term = raft.commit, raft.term
            try:
                raft.step(random_rpc(rng))
                taken += 1
            except (Refused, RaftFault):
                pass
            assert raft.commit >= commit
            assert raft.term >= term
            check(raft)
            if rng.random() < 0.2:
                work(raft)
                check(raft)
    assert taken > 1000
