"""Before anything is denied the catalog's leader is asked, one question at a time. Q1-Q3."""

import itertools

import pytest

from raftline.model.errors import NotReady, RaftlineError, UnknownGroup, UnknownTopic
from raftline.model.groups import JoinGroup, MemberView, ShowGroup
from raftline.model.ids import CATALOG_SHARD
from raftline.node import catalog_check
from raftline.node.remote import VERB_FRESH
from raftline.testing import SimCluster, cluster
from tests.unit.node.whole import answer_of, node


def catalog_leader(sim: SimCluster) -> str:
    return next(n for n in sim.nodes if not isinstance(node(sim, n).led(CATALOG_SHARD), Exception))


def follower(sim: SimCluster) -> str:
    return next(n for n in sim.nodes if n != catalog_leader(sim))


def isolate(sim: SimCluster, name: str) -> None:
    for other in sim.nodes:
        if other != name:
            sim.cut(name, other)


def restarted_alone(sim: SimCluster) -> str:
    """Return a node that was down while "later" was made, and hears nobody since."""
    name = follower(sim)
    sim.kill(name)
    sim.create_topic("later", partitions=2)
    isolate(sim, name)
    sim.start(name)
    sim.run_until(lambda: node(sim, name).is_ready, "20s")
    return name


def check(sim: SimCluster, name: str, timeout_ms: int = 5_000) -> RaftlineError | None:
    return answer_of(sim, lambda done: node(sim, name).check_catalog(timeout_ms, done))


def create(sim: SimCluster, leader: str, name: str, uuid: str) -> None:
    """Create a topic; answered when it is committed, whoever knows it by then."""
    ask = node(sim, leader).admin.ask_catalog
    answer_of(sim, lambda done: ask("topic.create", {"name": name, "uuid": uuid}, 5_000, done))


def count_questions(sim: SimCluster, name: str) -> list[float]:
    """Return a list that grows with every question that arrives at a node."""
    asked: list[float] = []
    remote = node(sim, name).remote
    serve = remote._handlers[VERB_FRESH]

    def counted(*arguments: object) -> None:
        asked.append(sim.world.now_ms)
        serve(*arguments)  # type: ignore[arg-type]

    remote._handlers[VERB_FRESH] = counted
    return asked


def test_after_a_start_alone_nothing_is_denied_and_nothing_is_listed() -> None:
    with cluster(nodes=3, seed=301) as sim:
        sim.advance("1s")
        found = node(sim, restarted_alone(sim))
        assert not found.is_sure
        assert isinstance(found.unknown("later"), NotReady)
        with pytest.raises(NotReady):
            found.known_topic("later")
        with pytest.raises(NotReady):
            found.known_topics()
        assert isinstance(check(sim, found.identity.name, 300), NotReady)  # Q2
        sim.heal()
        assert check(sim, found.identity.name) is None
        assert found.known_topic("later").name == "later"
        assert [row.name for row in found.known_topics()] == ["later"]
        assert isinstance(found.unknown("never"), UnknownTopic)


def test_a_check_brings_what_was_committed_before_it() -> None:
    """The commit index rides on the next rpc: right after a change others do not know it yet."""
    with cluster(nodes=3, seed=302) as sim:
        sim.advance("1s")
        leader, other = catalog_leader(sim), follower(sim)
        behind = 0
        for number in range(10):
            name = f"t{number}"
            create(sim, leader, name, f"{number:032x}")
            behind += name not in node(sim, other).catalog_machine.topics
            assert check(sim, other) is None
            assert node(sim, other).known_topic(name).name == name
        assert behind, "the other node was never behind: this shows nothing"


def test_callers_share_checks_and_a_flood_of_names_does_not_load_the_leader() -> None:
    """Q1."""
    with cluster(nodes=3, seed=303) as sim:
        sim.advance("1s")
        leader, other = catalog_leader(sim), follower(sim)
        asked = count_questions(sim, leader)
        heard: list[object] = []
        began = sim.world.now_ms
        for _ in range(50):
            for _ in range(20):
                node(sim, other).check_catalog(5_000, heard.append)
            sim.advance("1ms")
        sim.run_until(lambda: len(heard) == 1_000, "5s")
        took_ms = sim.world.now_ms - began
        assert heard == [None] * 1_000
        assert 2 <= len(asked) <= took_ms / catalog_check.EVERY_MS + 2
        assert all(b - a >= 5 for a, b in itertools.pairwise(asked))


def test_a_check_under_way_does_not_answer_a_later_question() -> None:
    with cluster(nodes=3, seed=304) as sim:
        sim.advance("1s")
        leader, other = catalog_leader(sim), follower(sim)
        asked = count_questions(sim, leader)
        heard: list[int] = []
        node(sim, other).check_catalog(5_000, lambda _: heard.append(1))
        node(sim, other).check_catalog(5_000, lambda _: heard.append(2))
        sim.run_until(lambda: len(heard) == 2, "5s")
        assert heard == [1, 2]
        assert len(asked) == 2


def test_everybody_is_answered_in_its_time_and_too_many_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Q2, Q3."""
    monkeypatch.setattr(catalog_check, "CALLERS_MAX", 3)
    with cluster(nodes=3, seed=305) as sim:
        sim.advance("1s")
        name = follower(sim)
        isolate(sim, name)
        sim.advance("3s")
        began = sim.world.now_ms
        heard: list[tuple[int, float]] = []

        def noted(number: int) -> object:
            return lambda error: heard.append((number, sim.world.now_ms - began)) or error

        for number, timeout_ms in enumerate((900, 300, 100, 500, 700)):
            node(sim, name).check_catalog(timeout_ms, noted(number))  # type: ignore[arg-type]
        assert heard == [(4, 0)], "the first is asked, three wait, the fifth is one too many"
        sim.run_until(lambda: len(heard) == 5, "5s")
        late = {number: ms for number, ms in heard if number != 4}
        assert [n for n, _ in heard[1:]] == [2, 1, 3, 0]
        assert all(0 <= late[n] - t <= 60 for n, t in ((0, 900), (1, 300), (2, 100), (3, 500)))


def test_a_group_that_was_begun_elsewhere_is_not_denied() -> None:
    with cluster(nodes=3, seed=306) as sim:
        sim.create_topic("orders", partitions=1)
        sim.advance("1s")
        name = follower(sim)
        leader = catalog_leader(sim)
        sim.kill(name)
        joined = answer_of(
            sim,
            lambda done: node(sim, leader).group(JoinGroup("crew", ("orders",), "m1"), 5_000, done),
        )
        assert isinstance(joined, MemberView), joined
        isolate(sim, name)
        sim.start(name)
        sim.run_until(lambda: node(sim, name).is_ready, "20s")
        ask = lambda done: node(sim, name).group(ShowGroup("crew"), 500, done)  # noqa: E731
        assert isinstance(answer_of(sim, ask), NotReady)
        assert isinstance(
            answer_of(sim, lambda done: node(sim, name).stream_groups(500, done)), NotReady
        )
        sim.heal()
        sim.run_until(lambda: not isinstance(answer_of(sim, ask), NotReady), "20s")
        assert not isinstance(answer_of(sim, ask), RaftlineError)
        listed = answer_of(sim, lambda done: node(sim, name).stream_groups(5_000, done))
        assert [row.group for row in listed.groups] == ["crew"]
        never = lambda done: node(sim, name).group(ShowGroup("never"), 5_000, done)  # noqa: E731
        assert isinstance(answer_of(sim, never), UnknownGroup)


def test_who_waits_at_a_catalog_replica_that_is_replaced_is_told() -> None:
    """Seed 2040: the check that waited there never ended, and no other one began after it."""
    with cluster(nodes=3, seed=309) as sim:
        sim.advance("1s")
        ours = node(sim, follower(sim))
        replica = ours.shards.get(CATALOG_SHARD)
        assert replica is not None
        told: list[bool] = []
        ours.shards.stop_replica(replica, "a test")
        ours.wait_catalog(replica.applied_index + 1_000, sim.world.now_ms + 1e9, told.append)
        sim.run_until(lambda: (ours.shards.get(CATALOG_SHARD) or replica) is not replica, "30s")
        assert told == [False]
        sim.advance("2s")
        assert check(sim, ours.identity.name) is None
