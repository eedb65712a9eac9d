"""Verify: digests of logs that are long, beside everything else the segment lane does."""

from collections.abc import Sequence

import pytest

from raftline.model.errors import NotReady
from raftline.node.remote import Reply
from raftline.node.verifier import Range, Verifier
from raftline.storage import log
from raftline.testing import SimCluster, cluster
from tests.unit.node.whole import answer_of, host, lead, node, shard_of
from tests.unit.storage.log_twin import digest_of

TOPIC = "orders"


def long_log(sim: SimCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the leader of a log of many steps."""
    monkeypatch.setattr(log, "DIGEST_STEP_BYTES", 10_000)
    sim.create_topic(TOPIC, partitions=1)
    for _ in range(30):
        sim.append(TOPIC, [bytes(4_000)])
    return lead(sim, TOPIC)[0]


def test_a_long_digest_leaves_the_lane_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It held the lane for all of the log: no cold read, no checkpoint until it was through."""
    with cluster(nodes=3, seed=31) as sim:
        leader = node(sim, long_log(sim, monkeypatch))
        done: list[str] = []
        ranges = [("", 0, 30)]
        deadline = leader.clock.mono_ms() + 10_000
        whole = digest_of(host(sim, lead(sim, TOPIC)[0], TOPIC).log, 0, 30)
        leader.verifier.digest(
            shard_of(sim, TOPIC),
            ranges,
            deadline,
            lambda answer: done.append(answer.decode() if isinstance(answer, bytes) else "?"),
        )
        leader.segments.run(lambda: None, lambda _, __: done.append("other"))
        sim.run_until(lambda: len(done) == 2)
        assert done == ["other", whole]
        assert sim.verify().identical


def test_a_digest_whose_time_is_up_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster(nodes=3, seed=32) as sim:
        leader = node(sim, long_log(sim, monkeypatch))
        shard, now = shard_of(sim, TOPIC), leader.clock.mono_ms()
        answer = answer_of(
            sim, lambda reply: leader.verifier.digest(shard, [("", 0, 30)], now, reply)
        )
        assert isinstance(answer, NotReady)


def test_a_trim_after_the_marks_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention, or a side log that is used up: the range of the marks is gone on all replicas."""
    with cluster(nodes=3, seed=33) as sim:
        long_log(sim, monkeypatch)
        sim.advance("3s")
        hosts = {name: host(sim, name, TOPIC) for name in sim.running}
        digest = Verifier.digest
        shard, trims = shard_of(sim, TOPIC), list[str]()

        def trim_first(
            verifier: Verifier,
            number: int,
            ranges: Sequence[Range],
            deadline: float,
            reply: Reply,
            before: str = "",
        ) -> None:
            if number == shard and not trims:
                for name, there in hosts.items():
                    trims.append(name)
                    there.log.trim(there.log.log_end)
                    node(sim, name).segments.trimmed(there)
            digest(verifier, number, ranges, deadline, reply, before)

        monkeypatch.setattr(Verifier, "digest", trim_first)
        assert sim.verify().identical
        assert len(trims) == 3
