"""Staged writes and query leases with real processes: leaders die in the middle, nothing twice."""

import threading

import pytest

from raftline.chaos.rig import Rig, wait_for
from raftline.client.fenced import Fenced
from raftline.model.errors import (
    FencedQuery,
    InvalidArgument,
    NotArchived,
    OffsetOutOfRange,
    StageMissing,
    Unavailable,
    UnknownTopic,
)
from raftline.model.records import open_batches, seal_batch
from tests.cluster.conftest import MakeRig

TOPIC, GROUP, QUERY = "orders", "spark", "q1"


def sealed(*values: str) -> bytes:
    return seal_batch([(None, value.encode(), (), 1_000 + at) for at, value in enumerate(values)])


def fenced(rig: Rig, timeout_s: float = 20.0) -> Fenced:
    found = Fenced([rig.node(name).http for name in rig.names], timeout_s)
    rig.at_close.append(found.close)
    return found


def create(rig: Rig, *settings: str) -> None:
    sets = [word for setting in settings for word in ("--set", setting)]
    said = rig.command("topic", "create", TOPIC, "--partitions", "1", *sets)
    assert said.exit == 0, said


def values(job: Fenced, start: int = 0) -> list[str]:
    end = job.bounds(TOPIC)[0].commit_end
    read = b"".join(job.read(TOPIC, 0, start, end))
    return [(m.value or b"").decode() for m in open_batches(read) if start <= m.offset < end]


def publish(job: Fenced, batch: int, *texts: str) -> None:
    job.stage(TOPIC, 0, "feed", batch, 0, 0, 0, sealed(*texts))
    job.publish(TOPIC, 0, "feed", batch, [(0, 0, 1)])


def test_one_node_serves_jobs(make_rig: MakeRig) -> None:
    rig = make_rig(nodes=1)
    create(rig)
    job = fenced(rig)
    assert job.fence(TOPIC, 0, QUERY) == -1
    for task in (1, 0):
        for attempt in (0, 1):
            for chunk in (0, 1):
                text = f"t{task}a{attempt}c{chunk}"
                assert not job.stage(TOPIC, 0, QUERY, 0, task, attempt, chunk, sealed(text)).already
    assert job.bounds(TOPIC)[0].commit_end == 0
    with pytest.raises(StageMissing):
        job.publish(TOPIC, 0, QUERY, 0, [(0, 1, 3)])
    done = job.publish(TOPIC, 0, QUERY, 0, [(1, 0, 2), (0, 1, 2)])
    assert (done.offset, done.count, done.already) == (0, 4, False)
    again = job.publish(TOPIC, 0, QUERY, 0, [(1, 1, 2), (0, 0, 2)])
    assert (again.offset, again.count, again.already) == (0, 4, True)
    assert job.stage(TOPIC, 0, QUERY, 0, 7, 0, 0, sealed("zombie")).already
    assert values(job) == ["t0a1c0", "t0a1c1", "t1a0c0", "t1a0c1"]
    assert job.fence(TOPIC, 0, QUERY) == 0

    assert job.lease(TOPIC, 0, GROUP, QUERY, 0, 3) == [(0, 3)]
    assert job.lease(TOPIC, 0, GROUP, QUERY, 0, 3) == [(0, 3)]
    assert job.reject(TOPIC, 0, GROUP, QUERY, 0, [(1, 2)], "bad total") == 1
    assert job.lease(TOPIC, 0, GROUP, QUERY, 1, 3) == [(3, 4)]
    held = job.held(TOPIC, 0, GROUP, QUERY)
    assert held is not None
    assert (held.n, held.ranges, held.acked) == (1, [(3, 4)], False)
    with pytest.raises(FencedQuery, match="it stands at 1"):
        job.lease(TOPIC, 0, GROUP, QUERY, 0, 3)
    shown = rig.command("group", "show", GROUP, "--json").json()
    (row,) = shown["work"][TOPIC]
    assert row["queries"][0]["query"] == QUERY
    assert job.ack(TOPIC, 0, GROUP, QUERY, 1) == 1
    wait_for(lambda: job.bounds(f"{TOPIC}.dlq")[0].commit_end == 1, 10)

    assert job.archived(TOPIC, 0, 2) == 2
    assert job.archived(TOPIC, 0, 1) == 2
    assert rig.command("topic", "set", TOPIC, "archive=required").exit == 0
    with pytest.raises(NotArchived, match="up to offset 2"):
        job.trim(TOPIC, 0, 3)
    assert job.trim(TOPIC, 0, 2) == 2
    with pytest.raises(OffsetOutOfRange):
        list(job.read(TOPIC, 0, 0, 4))
    (bounds,) = job.bounds(TOPIC, time_ms=10**12)
    assert (bounds.log_start, bounds.commit_end, bounds.archived) == (2, 4, 2)
    assert bounds.offset == 4
    with pytest.raises(UnknownTopic):
        job.bounds("nothing")
    with pytest.raises(InvalidArgument):
        job.stage(TOPIC, 0, QUERY, 1, 0, 0, 0, sealed("a"), dues_ms=[1, 2])
    with pytest.raises(Unavailable):
        Fenced("http://127.0.0.1:1", 6.0).fence(TOPIC, 0, QUERY)


def test_leaders_die_between_stage_and_publish(make_rig: MakeRig) -> None:
    rig = make_rig()
    create(rig)
    job = fenced(rig, 60.0)
    wanted: list[str] = []
    for batch in range(3):
        texts = [f"b{batch}t{task}c{chunk}" for task in range(2) for chunk in range(3)]
        for at, text in enumerate(texts):
            task, chunk = divmod(at, 3)
            job.stage(TOPIC, 0, QUERY, batch, task, 0, chunk, sealed(text))
        victim = rig.leader_of(TOPIC)
        rig.kill(victim)
        done = job.publish(TOPIC, 0, QUERY, batch, [(0, 0, 3), (1, 0, 3)])
        assert done.count == 6
        wanted += texts
        rig.restart(victim)
        rig.wait_whole()
        again = job.publish(TOPIC, 0, QUERY, batch, [(0, 0, 3), (1, 0, 3)])
        assert (again.offset, again.count, again.already) == (done.offset, 6, True)
    assert values(job) == wanted
    assert rig.verify().exit == 0


def test_a_leader_dies_while_a_large_batch_is_published(make_rig: MakeRig) -> None:
    """The batch is larger than an entry: whoever leads goes on with the next piece."""
    rig = make_rig()
    create(rig)
    job, chunks = fenced(rig, 60.0), 24
    for chunk in range(chunks):
        rows = [(None, f"{chunk:03}-{at:03}-".encode() * 90, (), 1_000) for at in range(1_000)]
        job.stage(TOPIC, 0, QUERY, 0, 0, 0, chunk, seal_batch(rows))
    killer = threading.Timer(0.05, lambda: rig.kill(rig.leader_of(TOPIC)))
    killer.start()
    done = job.publish(TOPIC, 0, QUERY, 0, [(0, 0, chunks)])
    killer.join()
    assert done.count == chunks * 1_000
    found = [text[:7] for text in values(job)]
    assert found == [f"{chunk:03}-{at:03}" for chunk in range(chunks) for at in range(1_000)]


def test_leaders_die_during_a_lease(make_rig: MakeRig) -> None:
    rig = make_rig()
    create(rig)
    job = fenced(rig, 60.0)
    publish(job, 0, *[f"m{at}" for at in range(60)])
    seen: list[int] = []
    for n in range(3):
        ranges = job.lease(TOPIC, 0, GROUP, QUERY, n, 20)
        victim = rig.leader_of(TOPIC)
        rig.kill(victim)
        assert job.lease(TOPIC, 0, GROUP, QUERY, n, 20) == ranges
        held = job.held(TOPIC, 0, GROUP, QUERY)
        assert held is not None
        assert (held.n, held.ranges) == (n, ranges)
        seen += [offset for start, end in ranges for offset in range(start, end)]
        rig.restart(victim)
        rig.wait_whole()
    assert sorted(seen) == list(range(60))
    assert job.lease(TOPIC, 0, GROUP, QUERY, 3, 20) == []
    assert job.release(TOPIC, 0, GROUP, QUERY) == 0
    assert rig.verify().exit == 0
