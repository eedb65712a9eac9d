"""Stream groups on simulated clusters: only what moves pauses, and no failure costs a cursor."""

import pytest

import raftline.testing
from raftline.gateways.group_reports import GroupReports
from raftline.gateways.group_resets import GroupResets, ResetWish, Target
from raftline.gateways.polls import Poll, PolledMessages, PollWish
from raftline.model.errors import (
    FencedMember,
    GroupNotEmpty,
    RaftlineError,
    TimedOut,
    UnknownGroup,
    UnknownMember,
)
from raftline.model.groups import (
    AdvanceGroup,
    Beat,
    CommitCursors,
    DeleteGroup,
    JoinGroup,
    LeaveGroup,
    Offset,
    PollGroup,
    ResetGroup,
    ShowGroup,
)
from raftline.node.group_calls import shard_of

TOPIC, GROUP = "orders", "billing"


class Consumer:
    """A member that does as it is told, and remembers when it was told what."""

    def __init__(self, c, name: str, *, session_ms: int = 5_000) -> None:
        self.c = c
        self.name = name
        view = c.group(JoinGroup(GROUP, (TOPIC,), name, session_ms=session_ms))
        self.generation = view.generation
        self.reads: set[int] = set()
        self.revoke: dict[str, list[int]] = {}
        self.from_ms: dict[int, float] = {}
        self.until_ms: dict[int, float] = {}
        self._take(view)

    def beat(self, via: str = "") -> None:
        gone = self.revoke.get(TOPIC, [])
        for partition in gone:
            self.until_ms[partition] = self.c.now_ms
            self.reads.discard(partition)
        view = self.c.group(Beat(GROUP, self.name, self.generation, self.revoke), via=via)
        self._take(view)

    def _take(self, view) -> None:
        self.generation = view.generation
        self.revoke = view.revoke
        now = {*view.partitions.get(TOPIC, []), *view.revoke.get(TOPIC, [])}
        for partition in now - self.reads:
            self.from_ms[partition] = self.c.now_ms
        self.reads = now

    def commit(self, partition: int, offset: int, generation: int | None = None):
        told = self.generation if generation is None else generation
        return self.c.group(
            CommitCursors(GROUP, self.name, told, {TOPIC: {partition: Offset(offset)}})
        )


def beats(c, *consumers: Consumer, times: int = 4) -> None:
    for _ in range(times):
        for consumer in consumers:
            consumer.beat()
        c.advance("50ms")


def owners(c) -> dict[int, str]:
    view = c.group(ShowGroup(GROUP))
    return {row.partition: row.owner for row in view.partitions}


def coordinator(c) -> str:
    """Return the name of the node that leads the group's shard."""
    shard = shard_of(GROUP)
    for name in c.running:
        node = c.host(name).node
        replica = node.shards.get(shard)
        if replica is not None and replica.is_leader:
            return name
    raise AssertionError("nobody leads the group's shard")


def delete_topic(c) -> None:
    answers: list[object] = []
    node = c.host(c.running[0]).node
    node.command("topic.delete", {"name": TOPIC}, 5_000, answers.append)
    c.run_until(lambda: bool(answers))
    assert isinstance(answers[0], dict), answers
    c.advance("100ms")


def test_only_moved_partitions_pause() -> None:
    with raftline.testing.cluster(nodes=3, seed=21) as c:
        c.create_topic(TOPIC, partitions=6)
        a, b = Consumer(c, "a"), Consumer(c, "b")
        beats(c, a, b)
        assert {len(a.reads), len(b.reads)} == {3}
        before = {**dict.fromkeys(a.reads, "a"), **dict.fromkeys(b.reads, "b")}
        told_ms = c.now_ms
        joined = Consumer(c, "c")
        beats(c, a, b, joined)
        moved = joined.reads
        assert len(moved) == 2, "the fewest that make it even"
        for partition in moved:
            old = a if before[partition] == "a" else b
            pause_ms = joined.from_ms[partition] - old.until_ms[partition]
            assert 0 <= pause_ms < 200, f"{partition} paused {pause_ms} ms"
        for partition in set(range(6)) - moved:
            keeper = a if before[partition] == "a" else b
            assert keeper.from_ms[partition] <= told_ms, f"{partition} was taken away"
            assert partition not in keeper.until_ms or keeper.until_ms[partition] < told_ms
        view = c.group(ShowGroup(GROUP))
        paused = {row.partition for row in view.partitions if row.pause_ms >= 0}
        assert moved <= paused
        assert view.state == "stable"
        assert 0 <= view.pauses.max_ms < 200
        assert {row.owner for row in view.partitions} == {"a", "b", "c"}


def test_a_silent_member_is_expired_and_refused() -> None:
    with raftline.testing.cluster(nodes=3, seed=22) as c:
        c.create_topic(TOPIC, partitions=4)
        a, b = Consumer(c, "a"), Consumer(c, "b")
        beats(c, a, b)
        b.commit(min(b.reads), 7)
        mine = set(b.reads)
        for _ in range(14):  # b is silent for longer than its session
            c.advance("500ms")
            a.beat()
        assert set(owners(c).values()) == {"a"}
        with pytest.raises(UnknownMember):
            b.beat()
        with pytest.raises(UnknownMember):
            b.commit(min(mine), 9)
        cursors = {r.partition: r.offset for r in c.group(ShowGroup(GROUP)).partitions}
        assert cursors[min(mine)] == 7


def test_who_is_about_to_be_expired_is_not_told_that_all_is_well() -> None:
    """Its Expire is on the way: an answer from memory would let it read on for a session."""
    with raftline.testing.cluster(nodes=3, seed=22) as c:
        c.create_topic(TOPIC, partitions=4)
        a = Consumer(c, "a", session_ms=3_000)
        leader = coordinator(c)
        c.advance("2950ms")
        for name in c.running:
            c.host(name).stall(2_000)  # disks: the Expire is proposed and does not commit yet
        c.advance("450ms")
        assert coordinator(c) == leader
        with pytest.raises(UnknownMember):
            c.group(Beat(GROUP, a.name, a.generation), via=leader)


def test_a_member_that_gives_nothing_up_is_expired() -> None:
    with raftline.testing.cluster(nodes=1, seed=23) as c:
        c.create_topic(TOPIC, partitions=2)
        c.group(JoinGroup(GROUP, (TOPIC,), "a", revoke_ms=2_000))
        b = Consumer(c, "b")
        for _ in range(12):
            c.advance("250ms")
            b.beat()
            try:
                c.group(Beat(GROUP, "a", 1))
            except UnknownMember:
                break
        beats(c, b)
        assert b.reads == {0, 1}


def test_the_coordinator_dies_and_nothing_is_lost() -> None:
    with raftline.testing.cluster(nodes=3, seed=24) as c:
        c.create_topic(TOPIC, partitions=6)
        a, b = Consumer(c, "a"), Consumer(c, "b")
        beats(c, a, b)
        first = min(a.reads)
        a.commit(first, 11)
        before = owners(c)
        c.kill(coordinator(c))
        c.advance("3s")
        beats(c, a, b)
        assert owners(c) == before, "a new leader gives everybody a full session"
        assert b.reads.isdisjoint(a.reads)
        view = c.group(ShowGroup(GROUP))
        assert {row.offset for row in view.partitions if row.partition == first} == {11}


def test_a_power_cut_of_all_nodes_keeps_groups_and_replicas_agree() -> None:
    with raftline.testing.cluster(nodes=3, seed=25) as c:
        c.create_topic(TOPIC, partitions=3)
        a = Consumer(c, "a", session_ms=60_000)
        a.commit(2, 5)
        c.power_off_all()
        for name in c.nodes:
            c.restart(name)
        c.wait_ready()
        a.beat()
        assert a.reads == {0, 1, 2}
        assert c.group(ShowGroup(GROUP)).partitions[2].offset == 5
        assert c.verify().identical
        assert f"groups-{shard_of(GROUP) - 2}" in [row.name for row in c.verify().shards]


def test_shards_of_groups_grow_and_move_with_the_cluster() -> None:
    with raftline.testing.cluster(nodes=1, seed=26) as c:
        c.create_topic(TOPIC, partitions=2)
        a = Consumer(c, "a", session_ms=60_000)
        a.commit(0, 3)
        for _ in range(2):
            c.add_node()
            c.advance("5s")
        shard = shard_of(GROUP)

        def voters() -> list[int]:
            node = c.host(coordinator(c)).node
            return list(node.shards.get(shard).conf.voters)

        c.run_until(lambda: len(voters()) == 3, "30s")
        c.power_off("node-1")
        c.advance("5s")
        a.beat(via="node-2")
        assert a.reads == {0, 1}
        view = c.group(ShowGroup(GROUP), via="node-3")
        assert [row.offset for row in view.partitions] == [3, -1]


def test_a_topic_that_comes_grows_and_goes() -> None:
    with raftline.testing.cluster(nodes=3, seed=27) as c:
        a = Consumer(c, "a")
        assert a.reads == set(), "there is no such topic yet"
        c.create_topic(TOPIC, partitions=2)
        c.advance("100ms")
        a.beat()
        assert a.reads == {0, 1}
        a.commit(0, 4)
        delete_topic(c)
        a.beat()
        assert a.reads == set()
        c.create_topic(TOPIC, partitions=1)
        c.advance("100ms")
        a.beat()
        assert a.reads == {0}
        assert c.group(ShowGroup(GROUP)).partitions[0].offset == -1, "another topic, no cursor"


def test_fencing_leaving_resetting_deleting() -> None:
    with raftline.testing.cluster(nodes=3, seed=28) as c:
        c.create_topic(TOPIC, partitions=2)
        with pytest.raises(UnknownGroup):
            c.group(ShowGroup(GROUP))
        a = Consumer(c, "a")
        again = Consumer(c, "a")  # another instance under the same name
        with pytest.raises(FencedMember):
            a.beat()
        assert again.commit(0, 5).count == 1
        with pytest.raises(FencedMember):
            a.commit(0, 6)
        assert c.group(LeaveGroup(GROUP, "a", again.generation)).generation == 3
        assert c.group(ResetGroup(GROUP, {TOPIC: {0: Offset(1), 1: Offset(2)}})).count == 2
        rows = c.group(ShowGroup(GROUP)).partitions
        assert [row.offset for row in rows] == [1, 2]
        c.group(DeleteGroup(GROUP))
        with pytest.raises(UnknownGroup):
            c.group(ShowGroup(GROUP))


def test_polls_go_on_where_the_last_answer_ended() -> None:
    with raftline.testing.cluster(nodes=3, seed=29) as c:
        c.create_topic(TOPIC, partitions=1)
        a = Consumer(c, "a")
        polled = c.group(PollGroup(GROUP, "a", a.generation))
        assert polled.positions == {TOPIC: {0: -1}}
        moved = AdvanceGroup(GROUP, "a", a.generation, polled.number, {TOPIC: {0: 10}})
        assert c.group(moved).number == 1
        assert c.group(moved).number == -1, "two polls at once: the second reads again"
        assert c.group(PollGroup(GROUP, "a", a.generation)).positions == {TOPIC: {0: 10}}
        lost = c.group(PollGroup(GROUP, "a", a.generation, 0))
        assert lost.positions == {TOPIC: {0: -1}}, "the answer of poll 1 got lost"
        assert lost.number == 0


class PolledBy:
    """A member that reads by polls through one node."""

    def __init__(self, c, name: str, via: str) -> None:
        self.c, self.name, self.via = c, name, via
        self.generation = c.group(JoinGroup(GROUP, (TOPIC,), name)).generation
        self.number = -1
        self.seen: dict[int, list[int]] = {}

    def poll(self, wait_ms: int = 0, number: int | None = None) -> PolledMessages:
        host = self.c.host(self.via)
        answers: list[PolledMessages | RaftlineError] = []
        wish = PollWish(
            GROUP,
            self.name,
            self.generation,
            self.number if number is None else number,
            wait_ms=wait_ms,
        )
        Poll(host.node.clock, host.node, wish, 3_000, answers.append).start()
        self.c.run_until(lambda: bool(answers))
        answer = answers[0]
        if isinstance(answer, RaftlineError):
            raise answer
        self.generation, self.number = answer.view.generation, answer.number
        for _, partition, message in answer.messages:
            self.seen.setdefault(partition, []).append(message.offset)
        return answer


def test_a_poll_reads_all_partitions_through_any_node() -> None:
    with raftline.testing.cluster(nodes=3, seed=30) as c:
        c.create_topic(TOPIC, partitions=4)
        for partition in range(4):
            c.append(TOPIC, [b"x"] * 3, partition=partition)
        a = PolledBy(c, "a", "node-2")
        a.poll()
        assert a.seen == {partition: [0, 1, 2] for partition in range(4)}
        assert not a.poll().messages
        began_ms = c.now_ms
        assert not a.poll(wait_ms=1_000).messages
        assert 900 <= c.now_ms - began_ms < 1_500, "a poll waits as long as it is told"


def test_a_poll_answers_at_once_when_something_moves_or_comes() -> None:
    with raftline.testing.cluster(nodes=3, seed=31) as c:
        c.create_topic(TOPIC, partitions=2)
        a = PolledBy(c, "a", "node-1")
        b = PolledBy(c, "b", "node-2")
        told = a.poll(wait_ms=30_000)
        assert told.view.revoke == {TOPIC: [1]}, "it hears of b before anything else"
        a.poll()  # at the new generation: what was revoked is given up
        c.append(TOPIC, [b"x"], partition=1)
        c.append(TOPIC, [b"y"], partition=0)
        b.poll(wait_ms=5_000)
        a.poll(wait_ms=5_000)
        assert (a.seen, b.seen) == ({0: [0]}, {1: [0]})


def test_a_poll_goes_on_at_the_start_of_what_is_kept() -> None:
    with raftline.testing.cluster(nodes=3, seed=32) as c:
        c.create_topic(TOPIC, partitions=1)
        c.append(TOPIC, [b"x"] * 5)
        c.append(TOPIC, [b"y"] * 5)
        c.trim(TOPIC, 0, 7)
        a = PolledBy(c, "a", "node-3")
        first = a.poll()
        assert a.seen == {0: [7, 8, 9]}
        # The answer got lost: with the number of the one before, it comes again.
        assert len(a.poll(number=first.number - 1).messages) == 3
        assert not a.poll().messages


def test_a_group_that_nobody_uses_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftline.node.group_upkeep.GROUP_IDLE_MS", 20_000)
    monkeypatch.setattr("raftline.node.group_upkeep.SWEEP_MS", 1_000.0)
    with raftline.testing.cluster(nodes=3, seed=33) as c:
        c.create_topic(TOPIC, partitions=1)
        c.group(CommitCursors(GROUP, "", 0, {TOPIC: {0: Offset(4)}}))
        c.advance("15s")
        assert c.group(ShowGroup(GROUP)).state == "empty"
        c.group(CommitCursors(GROUP, "", 0, {TOPIC: {0: Offset(5)}}))
        c.advance("15s")
        assert c.group(ShowGroup(GROUP)).partitions[0].offset == 5, "it was used meanwhile"
        c.advance("20s")
        with pytest.raises(UnknownGroup):
            c.group(ShowGroup(GROUP))


def test_a_removed_node_takes_no_group_with_it() -> None:
    with raftline.testing.cluster(nodes=4, seed=34) as c:
        c.create_topic(TOPIC, partitions=2)
        a = Consumer(c, "a", session_ms=60_000)
        a.commit(1, 8)
        gone = coordinator(c)
        stays = next(name for name in c.nodes if name != gone)
        number = c.number_of(gone)
        c.command("cluster.remove", node=number, via=stays)
        machine = c.host(stays).node.catalog_machine
        c.run_until(lambda: machine.nodes[number].state == "removed", "60s")
        c.kill(gone)
        c.advance("2s")
        a.beat(via=stays)
        assert a.reads == {0, 1}
        assert c.group(ShowGroup(GROUP), via=stays).partitions[1].offset == 8
        assert number not in machine.shards[shard_of(GROUP)].nodes()
        assert c.verify(via=stays).identical


def test_a_group_made_anew_knows_nothing_of_the_one_before() -> None:
    with raftline.testing.cluster(nodes=1, seed=35) as c:
        c.create_topic(TOPIC, partitions=2)
        c.create_topic("bills", partitions=1)
        first = c.group(JoinGroup(GROUP, (TOPIC,), "a"))
        told = c.group(PollGroup(GROUP, "a", first.generation))
        moved = AdvanceGroup(GROUP, "a", first.generation, told.number, {TOPIC: {0: 10}})
        assert c.group(moved).number == 1
        c.group(LeaveGroup(GROUP, "a"))
        c.group(DeleteGroup(GROUP))
        again = c.group(JoinGroup(GROUP, ("bills",), "a"))
        assert c.group(Beat(GROUP, "a", again.generation)).partitions == {"bills": [0]}
        polled = c.group(PollGroup(GROUP, "a", again.generation))
        assert (polled.positions, polled.number) == ({"bills": {0: -1}}, 0)


def test_a_lost_answer_comes_again_from_the_next_coordinator_too() -> None:
    with raftline.testing.cluster(nodes=3, seed=37) as c:
        c.create_topic(TOPIC, partitions=1)
        a = PolledBy(c, "a", "")
        for _ in range(3):
            c.append(TOPIC, [b"x"])
            a.via = c.running[0]
            a.poll()
        c.group(CommitCursors(GROUP, "a", a.generation, {TOPIC: {0: Offset(3)}}))
        c.append(TOPIC, [b"x"] * 2)
        c.kill(coordinator(c))
        c.advance("3s")
        a.via, came = c.running[0], a.number
        assert [m.offset for _, _, m in a.poll().messages] == [3, 4]
        # That answer got lost: the client names the last that came, which the other one numbered.
        assert [m.offset for _, _, m in a.poll(number=came).messages] == [3, 4]


def test_a_poll_brings_again_what_went_to_one_that_was_given_up() -> None:
    """A client hangs up on a poll that waits, and polls again: the first is still there."""
    with raftline.testing.cluster(nodes=3, seed=37) as c:
        c.create_topic(TOPIC, partitions=1)
        c.append(TOPIC, [b"x"])
        a = PolledBy(c, "a", "node-1")
        number = a.poll().number
        near = coordinator(c)
        far = next(name for name in c.running if name != near)
        given_up, answers = list[object](), list[PolledMessages | RaftlineError]()
        for via, heard in ((near, given_up), (far, answers)):
            node = c.host(via).node
            wish = PollWish(GROUP, "a", a.generation, number, wait_ms=5_000)
            Poll(node.clock, node, wish, 3_000, heard.append).start()
            c.advance("50ms")
        c.append(TOPIC, [b"y"])
        c.run_until(lambda: bool(answers))
        answer = answers[0]
        assert isinstance(answer, PolledMessages)
        messages = answer.messages or a.poll(number=answer.number).messages
        assert [message.offset for _, _, message in messages] == [1]


def test_a_poll_that_nobody_waits_for_takes_nothing_and_keeps_nobody() -> None:
    with raftline.testing.cluster(nodes=3, seed=38) as c:
        c.create_topic(TOPIC, partitions=1)
        generation = c.group(JoinGroup(GROUP, (TOPIC,), "a", session_ms=2_000)).generation
        node = c.host("node-1").node
        is_there, gone = True, list[object]()
        wish = PollWish(GROUP, "a", generation, wait_ms=60_000)
        Poll(node.clock, node, wish, 3_000, gone.append, is_wanted=lambda: is_there).start()
        c.advance("1s")
        is_there = False  # its client hung up
        c.append(TOPIC, [b"x"])
        c.advance("500ms")
        polled = c.group(PollGroup(GROUP, "a", generation))
        assert polled.positions == {TOPIC: {0: -1}}, "it went to nobody"
        c.advance("4s")
        assert c.group(ShowGroup(GROUP)).state == "empty", "nothing was heard of it"


def test_a_member_hears_that_an_answer_got_lost_between_nodes() -> None:
    with raftline.testing.cluster(nodes=3, seed=39) as c:
        c.create_topic(TOPIC, partitions=1)
        c.append(TOPIC, [b"x"])
        a = PolledBy(c, "a", "")
        near = coordinator(c)
        a.via = next(name for name in c.running if name != near)
        remote = c.host(a.via).node.remote
        call, lost = remote.call, list[object]()

        def lossy(node, verb, body, timeout_ms, done, **more) -> None:
            def answered(answer: object) -> None:
                if b"advance" in b"".join(body) and not lost:
                    lost.append(answer)
                    error = TimedOut("a call", timeout_ms)
                    error.extras["lost"] = 1
                    done(error)
                else:
                    done(answer)

            call(node, verb, body, timeout_ms, answered, **more)

        remote.call = lossy
        with pytest.raises(TimedOut):
            a.poll()  # it did not say which answer came last: nothing can come again unasked
        assert lost
        assert [m.offset for _, _, m in a.poll(number=0).messages] == [0]


def test_a_member_nobody_heard_of_since_its_join_timed_out_is_expired() -> None:
    with raftline.testing.cluster(nodes=3, seed=40) as c:
        c.create_topic(TOPIC, partitions=1)
        c.group(CommitCursors(GROUP, "", 0, {TOPIC: {0: Offset(1)}}))
        near = coordinator(c)
        for name in c.running:
            if name != near:
                c.cut(name, near, both_ways=False)  # what the others answer comes late
        wish = JoinGroup(GROUP, (TOPIC,), "a", session_ms=1_000)
        with pytest.raises(TimedOut):
            c.group(wish, via=near, timeout="100ms")
        c.advance("150ms")
        c.heal()
        c.advance("500ms")
        assert c.group(ShowGroup(GROUP)).state == "stable", "it was let in all the same"
        c.advance("60s")
        assert c.group(ShowGroup(GROUP)).state == "empty"


def test_a_group_that_is_not_deleted_because_it_has_members_keeps_its_acks() -> None:
    with raftline.testing.cluster(nodes=3, seed=41) as c:
        c.create_topic(TOPIC, partitions=1)
        c.append(TOPIC, [b"x"] * 5)
        node = c.host("node-1").node

        def told(start) -> object:
            answers: list[object] = []
            start(answers.append)
            c.run_until(lambda: bool(answers))
            return answers[0]

        wish = ResetWish(GROUP, TOPIC, Target(offset=3), kind="work", is_new=True)
        told(lambda done: GroupResets(node).run(wish, 3_000, done))
        c.group(JoinGroup(GROUP, (TOPIC,), "a"))
        reports = GroupReports(node)
        refused = told(lambda done: reports.delete(GROUP, "", 3_000, done))
        assert isinstance(refused, GroupNotEmpty)
        shown = told(lambda done: reports.show(GROUP, TOPIC, 3_000, done))
        assert shown["work"][TOPIC][0]["floor"] == 3, "nothing of it was forgotten"
        c.group(LeaveGroup(GROUP, "a"))
        gone = told(lambda done: reports.delete(GROUP, "", 3_000, done))
        assert gone == {"group": GROUP, "deleted": True, "work_partitions": 1}
        again = told(lambda done: reports.delete(GROUP, "", 3_000, done))
        assert isinstance(again, UnknownGroup)


def test_a_topic_too_large_for_a_group_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftline.machines.groups.group.GROUP_PARTITIONS_MAX", 6)
    with raftline.testing.cluster(nodes=3, seed=42) as c:
        c.create_topic(TOPIC, partitions=2)
        c.create_topic("bills", partitions=3)
        joined = c.group(JoinGroup(GROUP, (TOPIC, "bills"), "a"))
        offsets = {TOPIC: {0: Offset(4)}}
        c.group(CommitCursors(GROUP, "a", joined.generation, offsets))
        grown: list[object] = []
        wish = {"name": "bills", "partitions": 7}
        c.host("node-1").node.command("topic.grow", wish, 5_000, grown.append)
        c.run_until(lambda: bool(grown))
        assert isinstance(grown[0], dict)
        c.advance("1s")
        delete_topic(c)
        c.create_topic(TOPIC, partitions=1)
        c.advance("10s")
        view = c.group(ShowGroup(GROUP))
        rows = {(row.topic, row.partition): row.offset for row in view.partitions}
        assert rows == {(TOPIC, 0): -1, **{("bills", n): -1 for n in range(3)}}
