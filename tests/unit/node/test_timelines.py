"""Finding messages by what happened to them, on whole nodes."""

from collections.abc import Callable
from typing import Any

import pytest

from raftline.node import timelines
from raftline.testing import SimCluster, cluster
from tests.unit.node.whole import answer_of, host, lead, node, stall_segments

TOPIC = "orders"


def search(sim: SimCluster, **wanted: Any) -> Any:
    asked = node(sim, sim.running[0])
    return answer_of(sim, lambda done: asked.ask(TOPIC, 0, "trace.search", wanted, 8_000, done))


def test_batches_are_opened_in_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster(nodes=3, seed=7) as sim:
        sim.create_topic(TOPIC, partitions=1)
        sim.append(TOPIC, [b"x"] * 2_500)
        sim.append(TOPIC, [b"y"] * 10)
        leader, _ = lead(sim, TOPIC)
        segments, in_lane, opened = node(sim, leader).segments, [False], list[bool]()
        run, opens = segments.run, timelines.open_or_count

        def watched(job: Callable[[], Any], done: Callable[..., None]) -> None:
            def inside() -> Any:
                in_lane[0] = True
                try:
                    return job()
                finally:
                    in_lane[0] = False

            run(inside, done)

        def noted(buffer: Any) -> Any:
            opened.append(in_lane[0])
            return opens(buffer)

        monkeypatch.setattr(segments, "run", watched)
        monkeypatch.setattr(timelines, "open_or_count", noted)
        first = search(sim, limit=1_000)
        assert [row["offset"] for row in first["messages"]] == list(range(1_000))
        assert first["after"] == 999
        rest = search(sim, after=2_499)
        assert [row["offset"] for row in rest["messages"]] == list(range(2_500, 2_510))
        assert (rest["after"], rest["complete"]) == (-1, True)
        assert search(sim, key=b"none")["messages"] == []
        assert opened
        assert all(opened)


def test_what_is_trimmed_meanwhile_is_passed_over() -> None:
    with cluster(nodes=3, seed=7) as sim:
        sim.create_topic(TOPIC, partitions=1)
        for _ in range(60):
            sim.append(TOPIC, [bytes(64 << 10)])
        sim.advance("10s")
        leader, _ = lead(sim, TOPIC)
        log = host(sim, leader, TOPIC).log
        assert len(log._files.segments) > 1
        start = log._files.segments[-1].base_offset
        stall_segments(sim, leader, 2_000)
        answers: list[Any] = []
        wanted = {"key": b"none"}
        node(sim, leader).ask(TOPIC, 0, "trace.search", wanted, 8_000, answers.append)
        sim.trim(TOPIC, 0, start)
        sim.run_until(lambda: bool(answers))
        assert answers == [{"messages": [], "after": -1, "complete": True}]
