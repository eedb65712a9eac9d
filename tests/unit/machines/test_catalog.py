"""The catalog machine, where a dialogue would say too little."""

from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest

from raftline.machines.catalog import commands as c
from raftline.machines.catalog import events as ev
from raftline.machines.catalog.machine import CatalogMachine
from raftline.machines.catalog.nodes import founding_seats
from raftline.machines.machine import FEATURE_LEVEL, Refused
from raftline.model.errors import NewerFormat, UnknownPartition, UnknownTopic
from raftline.model.ids import CATALOG_SHARD, node_of, replica_id


@pytest.fixture
def machine() -> Iterator[CatalogMachine]:
    machine = CatalogMachine()
    yield machine
    machine.check()
    again = CatalogMachine()
    again.restore(machine.snapshot())
    again.check()
    assert again.snapshot() == machine.snapshot()
    assert again.digest() == machine.digest()


def specs(count: int, racks: str = "") -> tuple[c.NodeSpec, ...]:
    return tuple(
        c.NodeSpec(n, f"n{n}", f"d{n}", f"n{n}:7000", rack=racks[n - 1 : n])
        for n in range(1, count + 1)
    )


def run(machine: CatalogMachine, command: c.Command):
    events = machine.apply(1, 1, c.encode_command(command))
    machine.check()
    return events


def test_founding_seats_are_what_found_places(machine: CatalogMachine):
    nodes = specs(5, "aabbc")
    voters, observers = founding_seats(nodes)
    run(machine, c.Found("c1", nodes, 1))
    shard = machine.shards[CATALOG_SHARD]
    assert (shard.initial, shard.replicas, shard.observers) == (voters, voters, observers)
    assert [node_of(r) for r in voters] == [1, 3, 5]
    assert voters[0] == replica_id(1, 1)


@pytest.mark.parametrize(
    "command",
    [
        c.Found("", specs(1), 1),
        c.Found("c1", (), 1),
        c.Found("c1", specs(3)[1:], 1),
        c.Found("c1", (*specs(1), c.NodeSpec(2, "n1", "d2", "x")), 1),
        c.Found("c1", (*specs(1), c.NodeSpec(2, "n2", "d1", "x")), 1),
        c.Found("c1", (c.NodeSpec(1, "a b", "d", "x"),), 1),
        c.Found("c1", (c.NodeSpec(1, "a", "", "x"),), 1),
        c.Found("c1", (c.NodeSpec(1, "a", "d", ""),), 1),
        c.Found("c1", (c.NodeSpec(1, "a", "d", "x" * 301),), 1),
    ],
)
def test_founding_is_checked(machine: CatalogMachine, command: c.Found):
    (event,) = run(machine, command)
    assert isinstance(event, Refused)
    assert machine.cluster == ""


def test_garbage_is_refused(machine: CatalogMachine):
    run(machine, c.Found("c1", specs(1), 1))
    before = machine.snapshot()
    for data in (b"\xff", b"\x81\xa4type\xa4none", b"garbage", b"\x80"):
        (event,) = machine.apply(4, 1, data)
        assert isinstance(event, Refused)
        assert "entry 4" in event.message
    assert machine.apply(5, 1, b"") == ()
    assert machine.snapshot() == before


def test_spread_over_nodes_and_leaders(machine: CatalogMachine):
    run(machine, c.Found("c1", specs(5), 1))
    for n, (partitions, factor) in enumerate([(7, 3), (6, 2), (10, 1), (4, 3)]):
        run(machine, c.CreateTopic(f"t{n}", f"u{n}", partitions, factor))
    shards = [s for n, s in machine.shards.items() if n != CATALOG_SHARD]
    replicas = Counter(node for shard in shards for node in shard.nodes())
    leaders = Counter(shard.nodes()[0] for shard in shards)
    assert max(replicas.values()) - min(replicas.values()) <= 1
    assert max(leaders.values()) - min(leaders.values()) <= 1


def test_queries(machine: CatalogMachine):
    run(machine, c.Found("c1", specs(3), 1))
    run(machine, c.CreateTopic("orders", "u1", 2, at_ms=9))
    shard = machine.shard_of("orders", 1)
    assert (shard.place, shard.partition, shard.topic_uuid) == ("orders/1", 1, "u1")
    assert machine.topics["orders"].created_ms == 9
    assert [s.place for s in machine.shards_on(2)] == ["catalog", "orders/0", "orders/1"]
    with pytest.raises(UnknownTopic):
        machine.shard_of("nothing", 0)
    for partition in (-1, 2):
        with pytest.raises(UnknownPartition):
            machine.shard_of("orders", partition)
    assert not machine.is_deleted(shard.id, "u1")
    run(machine, c.DeleteTopic("orders"))
    assert machine.is_deleted(shard.id, "u1")
    assert not machine.is_deleted(shard.id, "u2")  # another topic's shard of that number
    assert not machine.is_deleted(999, "u1")
    (event,) = run(machine, c.CreateTopic("orders", "u1", 1))
    assert isinstance(event, Refused)  # a uuid is used once


def test_the_answer_comes_first(machine: CatalogMachine):
    run(machine, c.Found("c1", specs(3), 1))
    assert isinstance(run(machine, c.CreateTopic("t", "u", 2))[0], ev.TopicCreated)
    assert isinstance(run(machine, c.AdmitNode("n4", "d4", "x"))[0], ev.NodeAdmitted)
    assert isinstance(run(machine, c.LeaveNode(1))[0], ev.NodeLeaving)
    assert isinstance(run(machine, c.DropNode(1))[0], ev.NodeRemoved)
    assert isinstance(run(machine, c.DeleteTopic("t"))[0], ev.TopicDeleted)


def test_a_delete_repeated_after_a_lost_answer_hears_that_it_is_done(machine: CatalogMachine):
    run(machine, c.Found("c1", specs(3), 1))
    run(machine, c.CreateTopic("t", "u-1", 1))
    deleted = run(machine, c.DeleteTopic("t", request="mine"))[0]
    assert run(machine, c.DeleteTopic("t", request="mine"))[0] == deleted
    assert isinstance(run(machine, c.DeleteTopic("t", request="yours"))[0], Refused)
    run(machine, c.CreateTopic("t", "u-2", 1))
    run(machine, c.DeleteTopic("t", request="mine"))
    assert machine.topics["t"].uuid == "u-2", "an old delete must not take the next topic"


def test_version_counts_changes_only(machine: CatalogMachine):
    run(machine, c.Found("c1", specs(1), 1))
    version = machine.version
    run(machine, c.CreateTopic("a/b", "u", 1))
    assert machine.version == version
    run(machine, c.CreateTopic("ab", "u", 1))
    assert machine.version == version + 1


def test_an_old_build_stops_at_a_newer_level(machine: CatalogMachine):
    run(machine, c.Found("c1", specs(1), 1))
    run(machine, c.SetFeatureLevel(1))
    with pytest.raises(NewerFormat):
        machine.apply(2, 1, c.encode_command(c.SetFeatureLevel(FEATURE_LEVEL + 1)))
    newer = msgspec.msgpack.decode(machine.snapshot())
    newer[0] = 99
    with pytest.raises(NewerFormat):
        CatalogMachine().restore(msgspec.msgpack.encode(newer))


def test_default_replication_factor_counts_members_not_leavers(machine: CatalogMachine):
    run(machine, c.Found("c1", specs(3), 1))
    run(machine, c.LeaveNode(3))
    run(machine, c.CreateTopic("t", "u", 1))
    assert machine.topics["t"].replication_factor == 2
    assert sorted(machine.shard_of("t", 0).nodes()) == [1, 2]


def test_after_a_loss_a_survivor_on_a_leaving_node_keeps_it(machine: CatalogMachine):
    run(machine, c.Found("c1", specs(3), 1))
    run(machine, c.CreateTopic("t", "u", 1, 1))
    shard = machine.shard_of("t", 0)
    (home,) = shard.nodes()
    run(machine, c.LeaveNode(home))
    (event,) = run(machine, c.ForceReplicas(shard.id, shard.replicas))
    assert event == ev.ShardForced(shard.id, shard.replicas, shard.replicas)
    forced = machine.shard_of("t", 0)
    assert (forced.replicas, forced.forced, forced.initial) == (shard.replicas, 1, shard.initial)
    (event,) = run(machine, c.DropNode(home))
    assert isinstance(event, Refused)
    assert "still holds t/0" in event.message
    run(machine, c.LeaveNode(home))
    assert isinstance(run(machine, c.DropNode(home))[0], ev.NodeRemoved)


def test_a_shard_without_survivors_starts_again_from_its_new_replicas(machine: CatalogMachine):
    run(machine, c.Found("c1", specs(3), 1))
    run(machine, c.CreateTopic("t", "u", 1, 2))
    shard = machine.shard_of("t", 0)
    run(machine, c.ForceReplicas(shard.id, (3 << 24, 1 << 24)))
    again = machine.shard_of("t", 0)
    assert again.initial == again.replicas == (replica_id(3, 2), replica_id(1, 3))
