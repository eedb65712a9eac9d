"""Dead letters in the simulated cluster: once each, whoever dies on the way."""

from typing import Any

import pytest

import raftline.testing
from raftline.machines.delivery.commands import ACK, NACK, REJECT, Settle
from raftline.model.dead_letter import DeadLetter, read_letter
from raftline.model.errors import UnknownTopic
from raftline.model.records import open_batches
from raftline.testing import SimCluster

GROUP = "workers"


def ask(c: SimCluster, call, timeout_ms: int = 5_000) -> Any:
    return c._wait(c._via(""), timeout_ms, lambda node, done: call(node, timeout_ms, done))


def receive(c: SimCluster, topic: str = "t", wait_ms: int = 0):
    return ask(
        c,
        lambda node, timeout_ms, done: node.receive(
            topic, GROUP, 0, 10, 1 << 20, 30_000, wait_ms, "w-1", timeout_ms, done
        ),
    )


def settle(c: SimCluster, got, verb: int, offsets: list[int], delay_ms: int = 0) -> None:
    for at in range(0, len(got.spans), 4):
        start, end, attempt, generation = got.spans[at : at + 4]
        for offset in range(start, end):
            if offset not in offsets:
                continue
            one = Settle(
                GROUP, verb, got.term, got.sequence, attempt, generation, [offset, offset + 1],
                delay_ms, "it does not work", "w-1",
            )  # fmt: skip
            answer = ask(c, lambda n, ms, done, one=one: n.settle("t", 0, [one], ms, done))
            assert answer.lost == [[]]


def offsets_of(got) -> list[int]:
    spans = got.spans
    return [o for at in range(0, len(spans), 4) for o in range(spans[at], spans[at + 1])]


def question(c: SimCluster, topic: str, name: str, arguments: dict) -> dict:
    return ask(c, lambda node, ms, done: node.ask(topic, 0, name, arguments, ms, done))


def letters(c: SimCluster, topic: str = "t.dlq") -> list[DeadLetter]:
    try:
        reply = c.read(topic, 0, 0, linearizable=True)
    except UnknownTopic:
        return []
    read = [read_letter(message) for message in open_batches(reply.batches)]
    assert None not in read
    return read


def settled(c: SimCluster) -> bool:
    """Say whether no replica of the source that leads has anything in its outbox."""
    for host in c.hosts.values():
        if host.node is None:
            continue
        for replica in host.node.shards:
            machine = getattr(replica.host, "machine", None)
            if replica.is_leader and hasattr(machine, "delivery") and machine.delivery.outbox:
                return False
    return True


def dead(c: SimCluster, poison: list[int], count: int) -> None:
    """Give up on some of ``count`` messages, ack the rest."""
    c.create_topic("t", partitions=1)
    c.append("t", [b"m%d" % n for n in range(count)])
    got = receive(c, wait_ms=2_000)
    assert len(offsets_of(got)) == count
    settle(c, got, REJECT, poison)
    settle(c, got, ACK, [o for o in offsets_of(got) if o not in poison])


def test_the_fourth_failure_is_the_last() -> None:
    with raftline.testing.cluster(nodes=3, seed=11) as c:
        c.create_topic("t", partitions=1)
        c.append("t", [b"poison"])
        for attempt in range(1, 5):
            assert letters(c) == []
            got = receive(c, wait_ms=2_000)
            assert got.spans == [0, 1, attempt, 0]
            settle(c, got, NACK, [0])
        c.advance("2s")
        assert receive(c).spans == []
        (letter,) = letters(c)
        story = letter.story
        assert letter.message[1] == b"poison"
        assert (story.topic, story.partition, story.offset) == ("t", 0, 0)
        assert (story.reason, story.attempts, story.generation) == ("MAX_RETRIES", 4, 0)
        assert (story.group, story.member, story.error) == (GROUP, "w-1", "it does not work")
        assert 0 < story.first_ms <= story.last_ms == story.dead_ms
        assert settled(c)
        c.advance("5s")
        assert c.verify().identical


@pytest.mark.parametrize("seed", range(6))
def test_once_each_though_leaders_die(seed: int) -> None:
    with raftline.testing.cluster(nodes=3, seed=seed) as c:
        dead(c, poison=[1, 4, 7], count=10)
        rng = c.rng
        for _ in range(4):  # of the source, of the dead-letter topic, of both
            c.advance(rng.randrange(300) / 1000)
            names = ["t"] + (["t.dlq"] if any(r.name == "t.dlq" for r in topics(c)) else [])
            victim = leader_of(c, names[rng.randrange(len(names))])
            if victim is None:
                continue
            c.kill(victim)
            c.advance(rng.randrange(1500) / 1000)
            c.restart(victim)
        c.run_until(lambda: settled(c) and bool(topics(c)), "30s")
        c.advance("8s")
        assert settled(c)
        assert [letter.story.offset for letter in letters(c)] == [1, 4, 7]
        assert c.verify().identical


def topics(c: SimCluster):
    name = c.running[0]
    return c.host(name).node.catalog().topics


def leader_of(c: SimCluster, topic: str) -> str | None:
    try:
        return c.leader(topic, 0)
    except raftline.testing.SimError:
        return None


def test_redrive_gives_it_back_in_its_place() -> None:
    with raftline.testing.cluster(nodes=3, seed=21) as c:
        dead(c, poison=[2, 5], count=8)
        c.advance("2s")
        assert receive(c).spans == []
        listed = question(c, "t.dlq", "letters.list", {"wanted": {}})
        assert [row["state"] for row in listed["letters"]] == ["dead", "dead"]
        assert listed["next"] == -1
        work = {"wanted": {"reason": "REJECTED"}, "dry_run": True}
        tried = question(c, "t.dlq", "letters.redrive", work)
        assert (tried["matched"], tried["done"], tried["skipped"]) == (2, 2, [])
        assert receive(c).spans == []
        work["dry_run"] = False
        assert question(c, "t.dlq", "letters.redrive", work)["done"] == 2
        again = question(c, "t.dlq", "letters.redrive", work)
        assert (again["done"], again["skipped"]) == (0, [[0, "redriven"], [1, "redriven"]])
        got = receive(c)
        assert got.spans == [2, 3, 1, 1, 5, 6, 1, 1]
        settle(c, got, REJECT, [2])
        settle(c, got, ACK, [5])
        c.advance("2s")
        stories = [(one.story.offset, one.story.generation) for one in letters(c)]
        assert stories == [(2, 0), (5, 0), (2, 1)]
        listed = question(c, "t.dlq", "letters.list", {"wanted": {}})
        assert [row["state"] for row in listed["letters"]] == ["redriven", "redriven", "dead"]


def test_a_redrive_of_what_is_gone_ends_in_time_and_says_where_to_go_on() -> None:
    with raftline.testing.cluster(nodes=3, seed=22) as c:
        c.create_topic("t", partitions=1)
        c.append("t", [b"%d" % n for n in range(500)])
        for _ in range(50):
            got = receive(c, wait_ms=2_000)
            start, end, attempt, generation = got.spans
            ranges = [start, end]
            one = Settle(GROUP, REJECT, got.term, got.sequence, attempt, generation, ranges)
            ask(c, lambda n, ms, done, one=one: n.settle("t", 0, [one], ms, done))
        c.advance("3s")
        assert settled(c)
        assert len(letters(c)) == 500
        c.trim("t", 0, 500)
        wanted = {"limit": 1_000}

        def redrive(timeout_ms: int) -> dict:
            arguments = {"wanted": wanted}
            return c._wait(
                c._via(""),
                timeout_ms,
                lambda n, done: n.ask("t.dlq", 0, "letters.redrive", arguments, timeout_ms, done),
            )

        first = redrive(900)  # for an answer, and about 2 ms a letter
        assert 0 < first["done"] == first["matched"] < 500
        wanted["after"] = first["next"]
        assert first["next"] == first["done"] - 1
        rest = redrive(15_000)
        assert (rest["done"], rest["next"]) == (500 - first["done"], -1)
        assert c.read("t", 0, 500).commit_end == 1_000


def test_purge_takes_them_off_the_list_and_trims() -> None:
    with raftline.testing.cluster(nodes=3, seed=22) as c:
        dead(c, poison=[0, 1, 2, 3], count=4)
        c.advance("2s")
        purged = question(c, "t.dlq", "letters.purge", {"wanted": {"offsets": [0, 2]}})
        assert (purged["matched"], purged["done"]) == (2, 2)
        listed = question(c, "t.dlq", "letters.list", {"wanted": {}})
        assert [row["offset"] for row in listed["letters"]] == [1, 3]
        assert c.read("t.dlq", 0, 1).log_start == 1
        work = question(c, "t.dlq", "letters.redrive", {"wanted": {}})
        assert work["done"] == 2
        assert receive(c).spans == [1, 2, 1, 1, 3, 4, 1, 1]


def test_purge_removes_nothing_that_is_to_be_archived_first() -> None:
    with raftline.testing.cluster(nodes=3, seed=22) as c:
        dead(c, poison=[0, 1, 2], count=3)
        c.advance("2s")
        asked = {"name": "t.dlq", "settings": {"archive": "required"}}
        ask(c, lambda node, ms, done: node.command("topic.set", asked, ms, done))
        assert question(c, "t.dlq", "log.archived", {"offset": 1}) == {"archived": 1}
        assert question(c, "t.dlq", "letters.purge", {"wanted": {}})["done"] == 3
        assert c.read("t.dlq", 0, 2).log_start == 1
        assert question(c, "t.dlq", "letters.list", {"wanted": {}})["letters"] == []


def test_redrive_from_the_middle_of_a_batch_that_is_cold() -> None:
    with raftline.testing.cluster(nodes=3, seed=26) as c:
        dead(c, poison=[2], count=4)
        for _ in range(20):
            c.append("t", [bytes(16 << 10)])
        c.advance("8s")
        assert question(c, "t.dlq", "letters.redrive", {"wanted": {}})["done"] == 1
        got = receive(c, wait_ms=1_000)
        assert got.spans[:4] == [2, 3, 1, 1]  # first of all, though bytes do not reach far
        assert len(got.spans) > 4


def test_a_rate_spreads_the_work_and_says_where_to_go_on() -> None:
    with raftline.testing.cluster(nodes=3, seed=27) as c:
        dead(c, poison=list(range(10)), count=10)
        c.advance("2s")
        begun = c.now_ms
        work = {"wanted": {}, "rate_per_s": 2}
        first = question(c, "t.dlq", "letters.redrive", work)  # 5 s, of which 3 s are for work
        assert 1_000 < c.now_ms - begun < 5_000
        assert 4 <= first["done"] <= 8
        assert first["matched"] == first["done"]
        assert first["next"] == first["done"] - 1
        work["wanted"] = {"after": first["next"]}
        second = question(c, "t.dlq", "letters.redrive", work)
        assert first["done"] + second["done"] == 10
        assert second["next"] == -1
        assert len(offsets_of(receive(c, wait_ms=1_000))) == 10


def test_where_the_original_is_gone_the_letter_is_appended_once() -> None:
    with raftline.testing.cluster(nodes=3, seed=23) as c:
        dead(c, poison=[0], count=3)
        c.advance("2s")
        c.trim("t", 0, 3)
        work = {"wanted": {}}
        assert question(c, "t.dlq", "letters.redrive", work)["done"] == 1
        assert question(c, "t.dlq", "letters.redrive", work)["done"] == 0
        got = receive(c, wait_ms=1_000)
        assert got.spans == [3, 4, 1, 0]
        (message,) = open_batches(got.batches)
        assert (message.value, message.headers) == (b"m0", ())


def test_the_source_goes_on_while_the_dead_letter_topic_is_away() -> None:
    with raftline.testing.cluster(nodes=3, seed=24) as c:
        c.create_topic("t.dlq", partitions=1, replication_factor=1)
        (row,) = [row for row in topics(c) if row.name == "t.dlq"]
        home = f"node-{row.partitions[0].replicas[0]}"
        c.kill(home)
        c.advance("3s")
        dead(c, poison=[1], count=3)
        c.advance("10s")
        assert not settled(c)
        c.append("t", [b"more"])
        got = receive(c, wait_ms=1_000)
        assert offsets_of(got) == [3]
        settle(c, got, ACK, [3])
        c.trim("t", 0, 4)
        assert c.read("t", 0, 1).log_start == 1  # pinned
        c.restart(home)
        c.advance("15s")
        assert settled(c)
        assert [(one.story.offset, one.message[1]) for one in letters(c)] == [(1, b"m1")]


def test_a_dead_letter_topic_created_anew_goes_on() -> None:
    with raftline.testing.cluster(nodes=3, seed=25) as c:
        dead(c, poison=[1], count=3)
        c.advance("2s")
        assert len(letters(c)) == 1
        ask(c, lambda n, ms, done: n.command("topic.delete", {"name": "t.dlq"}, ms, done))
        c.append("t", [b"next"])
        settle(c, receive(c, wait_ms=1_000), REJECT, [3])
        c.advance("3s")
        assert [one.story.offset for one in letters(c)] == [3]


def test_an_original_that_nobody_can_read_goes_without_its_value() -> None:
    with raftline.testing.cluster(nodes=1, seed=28) as c:
        c.create_topic("t", partitions=1)
        c.append("t", [b"m0", b"m1"])
        got = receive(c, wait_ms=2_000)
        c.advance("10s")  # written out, and checkpointed
        c.stop("node-1")
        host = c.host("node-1")
        (path,) = [path for path in segments(host.disk) if host.disk.open(path).size()]
        host.disk.flip_bit(path, 70)
        c.restart("node-1")
        c.wait_ready()
        settle(c, got, REJECT, [1])
        c.advance("30s")
        assert letters(c) == []  # it may be repaired yet
        c.append("t", [b"m2"])
        c.advance("90s")
        (letter,) = letters(c)
        assert (letter.story.offset, letter.story.lost, letter.message[1]) == (1, "damaged", None)
        redriven = question(c, "t.dlq", "letters.redrive", {"wanted": {}})
        assert redriven["done"] == 1  # it is still at its place, in case somebody mends the disk


def segments(disk) -> list[str]:
    shards = [f"shards/{name}/log" for name in disk.listdir("shards")]
    folders = [folder for folder in shards if disk.exists(folder)]
    names = [f"{folder}/{name}" for folder in folders for name in disk.listdir(folder)]
    return [name for name in names if name.endswith(".log")]


def test_a_source_that_is_deleted_leaves_its_letters() -> None:
    with raftline.testing.cluster(nodes=3, seed=29) as c:
        dead(c, poison=[1], count=3)
        c.advance("2s")
        ask(c, lambda n, ms, done: n.command("topic.delete", {"name": "t"}, ms, done))
        c.advance("1s")
        listed = question(c, "t.dlq", "letters.list", {"wanted": {}})
        assert [row["state"] for row in listed["letters"]] == ["unknown_topic"]
        work = question(c, "t.dlq", "letters.redrive", {"wanted": {}})
        assert (work["done"], work["skipped"]) == (0, [[0, "unknown_topic"]])
        c.create_topic("t", partitions=1)  # of the same name, and another
        c.append("t", [b"a", b"b"])
        work = question(c, "t.dlq", "letters.redrive", {"wanted": {}})
        assert (work["done"], work["skipped"]) == (0, [[0, "unknown_topic"]])
        assert question(c, "t.dlq", "letters.purge", {"wanted": {}})["done"] == 1
        assert question(c, "t.dlq", "letters.list", {"wanted": {}})["letters"] == []
