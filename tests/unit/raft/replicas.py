"""Replicas for tests: a snapshot at index 2 of term 1, then whatever a test does."""

import random

from raftline.raft.core import Config, Raft
from raftline.raft.rpc import ConfState, Entry, HardState, Rpc, Snapshot
from raftline.raft.storage import MemoryLog


def replica(
    number: int = 1,
    voters: tuple[int, ...] = (1, 2, 3),
    learners: tuple[int, ...] = (),
    hard_state: HardState | None = None,
    entries: list[Entry] | None = None,
    **options: object,
) -> Raft:
    """Return a replica that has just started."""
    log = MemoryLog()
    log.apply_snapshot(Snapshot(2, 1, ConfState(voters, learners)))
    log.append(entries or [])
    if hard_state is not None:
        log.set_hard_state(hard_state)
    settings = {"applied": 2, "election_ticks": 5, "async_storage_writes": True, **options}
    return Raft(Config(id=number, rng=random.Random(number), **settings), log)  # type: ignore[arg-type]


def disk_of(raft: Raft) -> MemoryLog:
    log = raft.log.storage
    assert isinstance(log, MemoryLog)
    return log


def work(raft: Raft) -> list[Rpc]:
    """Do all local work at once; return the rpcs for others."""
    sent: list[Rpc] = []
    while raft.has_ready():
        ready = raft.ready()
        sent += ready.rpcs
        for rpc in (ready.append, ready.apply):
            if rpc is None:
                continue
            if rpc is ready.append:
                if rpc.snapshot is not None:
                    disk_of(raft).apply_snapshot(rpc.snapshot)
                disk_of(raft).append(rpc.entries)
            for response in rpc.responses:
                if response.to == raft.id:
                    raft.step(response)
                else:
                    sent.append(response)
    return sent


def settle(*rafts: Raft) -> None:
    """Exchange rpcs until nobody has anything to say; those to others are lost."""
    by_number = {raft.id: raft for raft in rafts}
    busy = True
    while busy:
        rpcs = [rpc for raft in rafts for rpc in work(raft)]
        busy = bool(rpcs)
        for rpc in rpcs:
            if rpc.to in by_number:
                by_number[rpc.to].step(rpc)


def leader(*others: Raft, **options: object) -> Raft:
    """Return replica 1 as the leader of ``others``, everything level."""
    raft = replica(1, **options)  # type: ignore[arg-type]
    raft.campaign()
    settle(raft, *others)
    return raft
