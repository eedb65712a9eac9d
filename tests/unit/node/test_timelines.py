"""Finding messages by what happened to them, on whole nodes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from raftline.model.batch import check_batch
from raftline.model.dead_letter import Story, dead_letter
from raftline.model.limits import FRAME_BYTES_MAX, KEY_BYTES_MAX
from raftline.model.message import Message
from raftline.model.records import seal_batch
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


KEY = bytes(KEY_BYTES_MAX)  # packs well: a page of them is short in the log, and long in an answer
NOTE = ("note", bytes(KEY_BYTES_MAX // 2))


def store(sim: SimCluster, messages: list[Any]) -> tuple[str, str]:
    """Store messages packed; return the leader and another node."""
    sim.create_topic(TOPIC, partitions=1)
    leader, others = lead(sim, TOPIC)
    append = node(sim, leader).append
    for at in range(0, len(messages), 100):
        batch = seal_batch(messages[at : at + 100], compression="gzip")
        answer_of(sim, partial(append, TOPIC, 0, batch, check_batch(batch, TOPIC), 8_000))
    return leader, others[0]


def told(sim: SimCluster, name: str, question: str, **asked: Any) -> Any:
    """Ask a node about the partition."""
    return answer_of(sim, partial(node(sim, name).ask, TOPIC, 0, question, asked, 8_000))


def page_through(next_page: Callable[[int], Any], rows: str, go_on: str) -> list[int]:
    """Return the offsets that all pages tell."""
    offsets: list[int] = []
    after = -1
    while True:
        page = next_page(after)
        offsets += [row["offset"] for row in page[rows]]
        after = page[go_on]
        if after < 0:
            return offsets


def test_a_search_that_finds_more_than_a_frame_can_carry_goes_page_by_page() -> None:
    """The node that leads ended, and the next leader, for the question was repeated there."""
    with cluster(nodes=3, seed=7) as sim:
        leader, other = store(sim, [(KEY, b"v", (), 1_000)] * 1_000)
        for number in range(8):
            told(sim, leader, "group.head", group=f"g{number}".ljust(249, "x"))
        assert 1_000 * (len(KEY) + 8 * 249) > FRAME_BYTES_MAX

        def search_on(after: int) -> Any:
            return told(sim, other, "trace.search", limit=1_000, after=after)

        assert page_through(search_on, "messages", "after") == list(range(1_000))


def test_a_list_of_letters_with_large_keys_goes_page_by_page() -> None:
    story = Story(
        topic="source", partition=0, offset=1, topic_uuid="u", group="g", generation=0,
        reason="REJECTED", attempts=1, first_ms=1, last_ms=2, dead_ms=3, member="m", error="e",
    )  # fmt: skip
    letter = dead_letter(Message(0, 1_000, KEY, b"v", (NOTE,)), story)
    with cluster(nodes=3, seed=7) as sim:
        _, other = store(sim, [letter] * 1_000)

        def list_on(after: int) -> Any:
            return told(sim, other, "letters.list", wanted={"limit": 1_000, "after": after})

        assert page_through(list_on, "letters", "next") == list(range(1_000))
