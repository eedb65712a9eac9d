"""Staged writes on whole nodes: they outlive leaders, power, disks and wiped replicas."""

from typing import Any

import pytest
from crc32c import crc32c

from raftline.machines.delivery import query_leases as machine_leases
from raftline.machines.partition.side_car import SideCar
from raftline.model.batch import CRC_FROM, check_batch
from raftline.model.errors import (
    CorruptBatch,
    FencedQuery,
    OverLimit,
    RaftlineError,
    TooLarge,
)
from raftline.model.limits import BATCH_HEADER_BYTES, KEY_BYTES_MAX
from raftline.model.records import seal_batch, seal_plain
from raftline.node import query_leases as node_leases
from raftline.node import stage_pieces
from raftline.node.partition import STAGE
from raftline.testing import SimCluster, cluster
from tests.unit.node.whole import answer_of, host, lead, node, replica, stall_segments

TOPIC = "orders"
CHUNKS, ROWS = 20, 5


def ask(sim: SimCluster, name: str, *, via: str = "", **arguments: Any) -> Any:
    asked = node(sim, via or sim.running[0])
    return answer_of(sim, lambda done: asked.ask(TOPIC, 0, name, arguments, 8_000, done))


def stage_all(sim: SimCluster, batch: int = 0, size: int = 400) -> list[bytes]:
    """Stage chunks of one task; return the values that are to come of it."""
    texts = [[b"%d.%02d.%d" % (batch, c, r) for r in range(ROWS)] for c in range(CHUNKS)]
    for chunk, values in enumerate(texts):
        payload = seal_batch([(None, value.ljust(size), (), 1_000) for value in values])
        key = {"batch": batch, "task": 0, "attempt": 0, "chunk": chunk}
        answer = ask(sim, "stage.put", query="q", payload=payload, **key)
        assert answer == {"staged": True, "already": False}, answer
    return [value for values in texts for value in values]


def publish(sim: SimCluster, batch: int = 0) -> Any:
    return ask(sim, "stage.publish", query="q", batch=batch, winners=[(0, 0, CHUNKS)])


def values(sim: SimCluster) -> list[bytes]:
    return [(message.value or b"").strip() for message in sim.read_all(TOPIC)]


@pytest.fixture
def sim():
    with cluster(nodes=3, seed=7) as made:
        made.create_topic(TOPIC, partitions=1)
        lead(made, TOPIC)
        yield made


def test_staged_writes_survive_a_loss_of_power_everywhere(sim: SimCluster) -> None:
    wanted = stage_all(sim)
    for name in sim.running:
        own = node(sim, name)
        own.segments.checkpoint(own.shards.get(host(sim, name, TOPIC).replica.shard))
    sim.advance("2s")
    wanted += stage_all(sim, batch=1)
    assert publish(sim)["count"] == CHUNKS * ROWS
    sim.power_off_all()
    for name in sim.nodes:
        sim.start(name)
    sim.wait_ready()
    lead(sim, TOPIC)
    assert ask(sim, "stage.show", query="q")["chunks"] == CHUNKS
    assert publish(sim)["already"]
    assert publish(sim, 1)["count"] == CHUNKS * ROWS
    assert values(sim) == wanted
    assert sim.verify().identical


def test_whoever_leads_next_finishes_what_was_decided(
    sim: SimCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_pieces, "PUBLISH_BYTES_MAX", 5_000)  # about two chunks a piece
    wanted = stage_all(sim)
    leader, (other, _) = lead(sim, TOPIC)
    answers: list[object] = []
    arguments = {"query": "q", "batch": 0, "winners": [(0, 0, CHUNKS)]}
    node(sim, other).ask(TOPIC, 0, "stage.publish", arguments, 10_000, answers.append)
    sim.run_until(lambda: 0 < host(sim, leader, TOPIC).machine.next_offset < len(wanted))
    sim.kill(leader)
    sim.run_until(lambda: bool(answers), "20s")
    assert answers[0]["count"] == len(wanted), answers  # type: ignore[index]
    assert values(sim) == wanted
    sim.start(leader)
    sim.wait_ready()
    sim.advance("2s")
    assert sim.verify().identical


def test_nobody_need_wait_for_a_batch_that_is_decided(
    sim: SimCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller and the leader die together: the next leader finishes all the same."""
    monkeypatch.setattr(stage_pieces, "PUBLISH_BYTES_MAX", 5_000)
    wanted = stage_all(sim)
    leader, _ = lead(sim, TOPIC)
    arguments = {"query": "q", "batch": 0, "winners": [(0, 0, CHUNKS)]}
    node(sim, leader).ask(TOPIC, 0, "stage.publish", arguments, 10_000, lambda _: None)
    sim.run_until(lambda: 0 < host(sim, leader, TOPIC).machine.next_offset < len(wanted))
    sim.kill(leader)
    following, _ = lead(sim, TOPIC)
    sim.run_until(lambda: host(sim, following, TOPIC).machine.next_offset == len(wanted), "20s")
    assert values(sim) == wanted


def test_a_batch_decided_after_the_change_of_leaders_is_finished_too(sim: SimCluster) -> None:
    """The decision was on its way when its leader died with the caller: the next one commits it."""
    wanted = stage_all(sim)
    leader, others = lead(sim, TOPIC)
    arguments = {"query": "q", "batch": 0, "winners": [(0, 0, CHUNKS)]}
    ends = [replica(sim, name, TOPIC).raft.log.last_index for name in others]
    node(sim, leader).ask(TOPIC, 0, "stage.publish", arguments, 10_000, lambda _: None)

    def arrived() -> bool:
        now = [replica(sim, name, TOPIC).raft.log.last_index for name in others]
        return all(after > before for after, before in zip(now, ends, strict=True))

    sim.run_until(arrived)
    sim.kill(leader)
    assert not any(host(sim, name, TOPIC).machine.staging.publishing() for name in others)
    following, _ = lead(sim, TOPIC)
    sim.run_until(lambda: host(sim, following, TOPIC).machine.next_offset == len(wanted), "20s")
    assert values(sim) == wanted


def test_one_that_is_far_behind_gets_the_stage_log_too() -> None:
    with cluster(nodes=3, seed=8) as sim:
        sim.create_topic(TOPIC, partitions=1)
        wanted = stage_all(sim, size=3_000)
        leader, (follower, _) = lead(sim, TOPIC)
        sim.wipe(follower)
        sim.start(follower)
        ends = host(sim, leader, TOPIC).side[STAGE].log_end

        def filled() -> bool:
            found = sim.host(follower).node
            assert found is not None
            return any(
                STAGE in own.side and own.side[STAGE].log_end == ends
                for own in found.shards.partitions()
            )

        sim.run_until(filled, "30s")
        sim.advance("3s")
        sim.command("cluster.transfer", topic=TOPIC, partition=0, to_node=follower)
        sim.run_until(lambda: sim.leader(TOPIC) == follower)
        assert publish(sim)["count"] == len(wanted)
        assert values(sim) == wanted
        assert sim.verify().identical


def test_damage_of_the_stage_log_is_mended_from_a_peer(sim: SimCluster) -> None:
    wanted = stage_all(sim, size=3_000)
    sim.advance("1s")  # the followers hear that it is committed
    _, (follower, _) = lead(sim, TOPIC)
    path = host(sim, follower, TOPIC).side[STAGE]._files.directory
    sim.stop(follower)
    disk = sim.host(follower).disk
    names = [name for name in disk.listdir(path) if name.endswith(".log")]
    disk.flip_bit(f"{path}/{names[0]}", 1000)
    sim.start(follower)
    sim.wait_ready()
    sim.advance("2s")
    sim.command("cluster.transfer", topic=TOPIC, partition=0, to_node=follower)
    sim.run_until(lambda: sim.leader(TOPIC) == follower)
    assert publish(sim)["count"] == len(wanted)
    assert values(sim) == wanted
    assert any("log.repaired" in line for line in sim.log_lines(500))
    assert sim.verify().identical


def test_the_stage_log_is_let_go_of(sim: SimCluster) -> None:
    for batch in range(8):
        stage_all(sim, batch, size=3_000)
        assert publish(sim, batch)["count"] == CHUNKS * ROWS
    leader, _ = lead(sim, TOPIC)
    log = host(sim, leader, TOPIC).side[STAGE]
    assert log.log_start == log.log_end
    sim.advance("5s")
    assert log.bytes < 2 << 20  # of 2.4 MB in all


def test_a_query_lease_outlives_its_leader(sim: SimCluster) -> None:
    stage_all(sim)
    publish(sim)
    wanted = {"group": "spark", "query": "r", "count": 30}
    first = ask(sim, "query.lease", n=0, **wanted)
    assert first["ranges"] == [0, 30]
    sim.kill_leader(TOPIC)
    lead(sim, TOPIC)
    assert ask(sim, "query.lease", n=0, **wanted) == first
    assert ask(sim, "query.held", group="spark", query="r")["ranges"] == [0, 30]
    assert ask(sim, "query.lease", n=1, **wanted)["ranges"] == [30, 60]
    stale = ask(sim, "query.lease", n=0, **wanted)
    assert isinstance(stale, RaftlineError)
    assert stale.code == FencedQuery.code


def test_a_query_that_acks_first_goes_on_at_the_next_leader(sim: SimCluster) -> None:
    """The ack is committed, but only by the next leader: the desk that waited for it is closed."""
    sim.append(TOPIC, [b"%d" % at for at in range(4)])
    leader, others = lead(sim, TOPIC)
    wanted = {"group": "spark", "query": "r", "count": 1, "ordered": True}
    assert ask(sim, "query.lease", via=leader, n=0, **wanted)["ranges"] == [0, 1]
    sim.advance("1s")
    ends = [replica(sim, name, TOPIC).raft.log.last_index for name in others]
    heard: list[Any] = []
    arguments = {"n": 1, **wanted}
    node(sim, leader).ask(TOPIC, 0, "query.lease", arguments, 60_000, heard.append)

    def arrived() -> bool:
        now = [replica(sim, name, TOPIC).raft.log.last_index for name in others]
        return all(after > before for after, before in zip(now, ends, strict=True))

    sim.run_until(arrived)
    for name in others:
        sim.cut(leader, name)
    sim.advance("5s")
    assert any(replica(sim, name, TOPIC).is_leader for name in others)
    for name in others:
        sim.uncut(leader, name)
    sim.run_until(lambda: bool(heard))
    assert heard[0]["ranges"] == [1, 2]


def test_queries_that_lost_their_lease_and_are_silent_give_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (machine_leases, node_leases):
        monkeypatch.setattr(module, "QUERY_LEASES_MAX", 3)
        monkeypatch.setattr(module, "FENCE_EXPIRE_MS", 90_000)
    with cluster(nodes=3, seed=7) as sim:
        sim.create_topic(TOPIC, partitions=1, settings={"query_lease_ms": 60_000})
        sim.append(TOPIC, [b"%d" % at for at in range(40)])
        lead(sim, TOPIC)

        def lease(query: str) -> Any:
            return ask(sim, "query.lease", group="spark", query=query, n=0, count=10)

        for at in range(3):
            assert lease(f"q{at}")["ranges"] == [10 * at, 10 * at + 10]
        answer = lease("late")
        assert isinstance(answer, OverLimit)
        sim.advance("65s")  # the leases ran out
        assert isinstance(lease("late"), OverLimit)
        assert lease("q1")["lost"] == [10, 20]
        sim.advance("30s")
        assert lease("late")["count"] == 10
        found = ask(sim, "query.held", group="spark", query="q0")
        assert found["n"] == -1
        assert ask(sim, "query.held", group="spark", query="q1")["n"] == 0  # it was heard of
        assert sim.verify().identical


def test_messages_that_wait_are_not_lost_where_dedup_keys_do_not_fit(sim: SimCluster) -> None:
    def keys_max(count: int) -> None:
        for name in sim.running:
            host(sim, name, TOPIC).machine.dedup._keys_max = count

    def stage(query: str, extras: list[Any]) -> None:
        payload = seal_batch([(None, b"%d" % at, (), 1_000) for at in range(3)])
        key = {"batch": 0, "task": 0, "attempt": 0, "chunk": 0}
        answer = ask(sim, "stage.put", query=query, payload=payload, extras=extras, **key)
        assert answer == {"staged": True, "already": False}, answer

    leader, _ = lead(sim, TOPIC)
    due_ms = host(sim, leader, TOPIC).replica.time.stamp() + 60_000
    hashes = [(at, b"%016d" % at) for at in range(3)]
    stage("late", [[], hashes, [due_ms] * 3])
    stage("plain", [])
    keys_max(2)
    winners = [(0, 0, 1)]
    late: list[Any] = []
    asked = {"query": "late", "batch": 0, "winners": winners}
    node(sim, leader).ask(TOPIC, 0, "stage.publish", asked, 8_000, late.append)
    other = ask(sim, "stage.publish", query="plain", batch=0, winners=winners)
    assert (other["offset"], other["count"]) == (0, 3)  # it need not wait for the first
    assert not late
    keys_max(3)
    sim.run_until(lambda: bool(late))
    assert (late[0]["waiting"], late[0]["duplicates"]) == (3, 0)
    assert sim.verify().identical


def test_messages_that_wait_leave_room_for_the_dedup_keys_on_their_way(sim: SimCluster) -> None:
    leader, others = lead(sim, TOPIC)
    for name in sim.running:
        host(sim, name, TOPIC).machine.dedup._keys_max = 28_002
    due_ms = replica(sim, leader, TOPIC).time.stamp() + 60_000
    payload = seal_batch([(None, b"%d" % at, (), 1_000) for at in range(3)])
    hashes = [(at, b"late%012d" % at) for at in range(3)]
    key = {"query": "q", "batch": 0, "task": 0, "attempt": 0, "chunk": 0}
    extras = [[], hashes, [due_ms] * 3]
    assert ask(sim, "stage.put", payload=payload, extras=extras, **key)["staged"]
    stall_segments(sim, leader, 300)  # the piece is made while appends are on their way
    late: list[Any] = []
    asked = {"query": "q", "batch": 0, "winners": [(0, 0, 1)]}
    node(sim, leader).ask(TOPIC, 0, "stage.publish", asked, 8_000, late.append)
    sim.run_until(lambda: bool(host(sim, leader, TOPIC).machine.staging.publishing()))
    for name in others:
        sim.cut(leader, name)
    stored: list[object] = []
    for batch in range(4):
        keyed = seal_batch([(None, b"", (), 1_000)] * 7_000)
        side = SideCar((), tuple((at, b"%08d%08d" % (batch, at)) for at in range(7_000)))
        info = check_batch(keyed)
        node(sim, leader).append(TOPIC, 0, keyed, info, 8_000, stored.append, side)
    sim.advance("500ms")
    for name in others:
        sim.uncut(leader, name)
    sim.run_until(lambda: len(stored) == 4)
    assert not late
    for name in sim.running:
        host(sim, name, TOPIC).machine.dedup._keys_max = 28_003
    sim.run_until(lambda: bool(late))
    assert (late[0]["waiting"], late[0]["duplicates"]) == (3, 0)


def unreadable(rows: int, compression: str = "none") -> bytes:
    """Return a batch that is sound outside and cannot be opened."""
    sealed = seal_batch([(None, b"x" * 30, (), 1_000)] * rows, compression=compression)
    body = b"\xff" * (len(sealed) - BATCH_HEADER_BYTES)
    tail = sealed[CRC_FROM:BATCH_HEADER_BYTES] + body
    return sealed[: CRC_FROM - 4] + crc32c(tail).to_bytes(4, "big") + tail


@pytest.mark.parametrize("wish", ["waits", "dedup"])
def test_a_chunk_that_could_not_be_taken_apart_is_not_staged(sim: SimCluster, wish: str) -> None:
    leader, _ = lead(sim, TOPIC)
    due_ms = replica(sim, leader, TOPIC).time.stamp() + 1_000
    dedup, dues = [(0, b"%016d" % 0)], [due_ms] * 3
    extras = [[], [], dues] if wish == "waits" else [[], dedup]
    key = {"query": "q", "batch": 0, "task": 0, "attempt": 0, "chunk": 0}
    large = seal_plain([(b"k" * (KEY_BYTES_MAX + 1), b"", (), 1_000)] * 3, (-1, -1, -1))
    for payload in (unreadable(3), large):
        answer = ask(sim, "stage.put", payload=payload, extras=extras, **key)
        assert isinstance(answer, CorruptBatch | TooLarge), answer
    assert ask(sim, "stage.show", query="q")["chunks"] == 0
    sound = seal_batch([(None, b"%d" % at, (), 1_000) for at in range(3)])
    assert ask(sim, "stage.put", payload=sound, extras=extras, **key)["staged"]
    answer = ask(sim, "stage.publish", query="q", batch=0, winners=[(0, 0, 1)])
    assert answer["count"] + answer["waiting"] == 3
