"""What a partition's leader tells of single messages of a work group."""

import msgspec
import pytest

from raftline.machines.delivery.commands import ACK, NACK, Settle
from raftline.testing import SimCluster, cluster
from tests.unit.node.whole import answer_of, lead, node
from tests.unit.node.work import GROUP, TOPIC, question, receive, settle, settles


@pytest.fixture
def sim():
    with cluster(nodes=3, seed=21) as made:
        made.create_topic(TOPIC, partitions=1)
        for number in range(4):
            made.append(TOPIC, [b"%d" % number])
        yield made


def states(sim: SimCluster, *offsets: int) -> list[str]:
    rows = question(sim, "group.messages", group=GROUP, offsets=list(offsets))["rows"]
    return [row["state"] for row in rows]


def test_states_of_messages_with_and_without_a_group(sim: SimCluster) -> None:
    assert states(sim, 0, 3, 4, 99) == ["fresh", "fresh", "unknown", "unknown"]
    first = receive(sim, count=1)
    settle(sim, first, ACK)
    second = receive(sim, count=1)
    refusal = [
        msgspec.structs.replace(row, reason="too busy") for row in settles(second, NACK, 50_000)
    ]
    answer_of(sim, lambda done: node(sim, sim.running[0]).settle(TOPIC, 0, refusal, 5_000, done))
    receive(sim, count=1, member="m-1")
    rows = question(sim, "group.messages", group=GROUP, offsets=[0, 1, 2, 3])["rows"]
    assert [row["state"] for row in rows] == ["settled", "resting", "leased", "fresh"]
    assert (rows[1]["attempts"], rows[1]["error"]) == (1, "too busy")
    assert (rows[2]["member"], rows[2]["attempts"]) == ("m-1", 1)


def test_a_lease_is_told_even_while_its_grant_is_on_its_way(sim: SimCluster) -> None:
    """A first delivery goes out before its Grant commits; a question right behind it sees it."""
    leader, _ = lead(sim, TOPIC)
    receive(sim, via=leader, count=1)
    sim.advance("100ms")
    got = receive(sim, via=leader, count=1, member="quick")
    answers: list = []
    asked = {"group": GROUP, "offsets": [got.spans[0]]}
    node(sim, leader).ask(TOPIC, 0, "group.messages", asked, 5_000, answers.append)
    sim.run_until(lambda: bool(answers))
    row = answers[0]["rows"][0]
    assert (row["state"], row["member"]) == ("leased", "quick")
    assert (row["term"], row["sequence"]) == (got.term, got.sequence)


def test_the_head_opens_a_group_and_a_settle_without_a_lease_moves_it(sim: SimCluster) -> None:
    head = question(sim, "group.head", group="new")
    assert (head["offset"], head["row"]["state"]) == (0, "fresh")

    def ack(offset: int) -> None:
        row = question(sim, "group.messages", group="new", offsets=[offset])["rows"][0]
        command = Settle("new", ACK, 0, 0, row["attempts"] + 1, row["generation"],
                         [offset, offset + 1])  # fmt: skip
        name = sim.running[0]
        settled = answer_of(
            sim, lambda done: node(sim, name).settle(TOPIC, 0, [command], 5_000, done)
        )
        assert settled.lost == [[]]

    ack(1)
    assert question(sim, "group.head", group="new")["offset"] == 0
    ack(0)
    assert question(sim, "group.head", group="new")["offset"] == 2
    ack(2)
    ack(3)
    assert question(sim, "group.head", group="new")["offset"] == -1
