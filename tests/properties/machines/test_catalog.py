"""Random lives of a cluster: invariants hold, refusals change nothing, replicas agree."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from raftline.machines.catalog import commands as c
from raftline.machines.catalog.machine import CatalogMachine
from raftline.machines.machine import Refused
from raftline.model.ids import CATALOG_SHARD, node_of

node = st.integers(1, 6)
name = st.sampled_from(["a", "b", "c", "d", "e"])
topic = st.sampled_from(["t1", "t2", "t3"])
shard = st.sampled_from([1, 2, 3, 100, 101, 102, 103, 104])
replica = st.builds(lambda n, i: n << 24 | i, node, st.integers(0, 3))
rack = st.sampled_from(["", "r1", "r2", "r3"])

command = st.one_of(
    st.builds(c.AdmitNode, name, st.sampled_from("vwxyz"), st.just("h:1"), rack=rack),
    st.builds(c.LeaveNode, node, st.booleans()),
    st.builds(c.DropNode, node),
    st.builds(c.ReplaceNode, node, node),
    st.builds(c.CreateTopic, topic, st.just(""), st.integers(0, 4), st.integers(0, 4)),
    st.builds(c.DeleteTopic, topic),
    st.builds(c.SetTopic, topic, st.sampled_from([{}, {"lanes": 3}, {"lanes": 0}])),
    st.builds(c.AddPartitions, topic, st.integers(0, 6)),
    st.builds(c.MoveReplica, shard, node, node),
    st.builds(c.ReplaceReplica, shard, node, replica),
    st.builds(c.ForceReplicas, shard, st.lists(replica, max_size=3).map(tuple)),
    st.builds(c.AllocateProducers, st.integers(-1, 3)),
    st.builds(c.PlaceCoordination, st.integers(1, 4)),
)
racks = st.lists(rack, min_size=1, max_size=4)


def stamped(number: int, given_command: c.Command) -> c.Command:
    if isinstance(given_command, c.CreateTopic):
        given_command = msgspec.structs.replace(given_command, uuid=f"u{number}")
    return msgspec.structs.replace(given_command, at_ms=number)


def founding(given_racks: list[str]) -> c.Found:
    specs = [c.NodeSpec(n, f"n{n}", f"d{n}", "h:1", rack=r) for n, r in enumerate(given_racks, 1)]
    return c.Found("c1", tuple(specs), 0)


def rows_without_time(machine: CatalogMachine) -> list[object]:
    rows = msgspec.msgpack.decode(machine.snapshot())
    return [*rows[:3], *rows[4:]]


@settings(max_examples=60)
@given(racks, st.lists(command, max_size=30))
def test_a_random_life(given_racks, commands):
    machine = CatalogMachine()
    machine.apply_command(founding(given_racks))
    born: set[tuple[int, int]] = set()  # every (shard, replica) there ever was
    gone: set[tuple[int, int]] = set()
    for number, drawn in enumerate(commands, 1):
        before, version = rows_without_time(machine), machine.version
        events = machine.apply(number, 1, c.encode_command(stamped(number, drawn)))
        machine.check()
        assert events
        if isinstance(events[0], Refused):
            assert rows_without_time(machine) == before
        else:
            assert machine.version == version + 1
        held = {(s.id, r) for s in machine.shards.values() for r in (*s.replicas, *s.observers)}
        if not isinstance(drawn, c.ForceReplicas):  # a person may bring a survivor back
            assert not held & gone, "an identity came back"
        born |= held
        gone = born - held
        again = CatalogMachine()
        again.restore(machine.snapshot())
        assert again.digest() == machine.digest()
        machine = again if number % 3 == 0 else machine


@settings(max_examples=60)
@given(st.lists(rack, min_size=1, max_size=7), st.integers(1, 8), st.integers(1, 5))
def test_replicas_share_a_rack_only_where_racks_are_few(given_racks, partitions, factor):
    machine = CatalogMachine()
    machine.apply_command(founding(given_racks))
    events = machine.apply_command(c.CreateTopic("t", "u", partitions, factor))
    if factor > len(given_racks):
        assert isinstance(events[0], Refused)
        return
    rack_of = {n.id: n.rack or f"alone {n.id}" for n in machine.members()}
    for number, row in machine.shards.items():
        if number == CATALOG_SHARD:
            continue
        used = [rack_of[node_of(r)] for r in row.replicas]
        assert len(set(used)) == min(factor, len(set(rack_of.values())))


@settings(max_examples=30)
@given(racks, st.lists(command, max_size=20))
def test_nothing_of_the_users_moves_unasked(given_racks, commands):
    machine = CatalogMachine()
    machine.apply_command(founding(given_racks))
    machine.apply_command(c.CreateTopic("keep", "keep", 3))
    asked = (c.LeaveNode, c.ReplaceNode, c.MoveReplica, c.ReplaceReplica, c.ForceReplicas)
    for number, drawn in enumerate(commands, 1):
        before = [machine.shard_of("keep", p).nodes() for p in range(3)]
        machine.apply_command(stamped(number, drawn))
        if not isinstance(drawn, asked):
            assert [machine.shard_of("keep", p).nodes() for p in range(3)] == before
    machine.check()
