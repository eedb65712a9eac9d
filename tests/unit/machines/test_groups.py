"""Stream groups: what scripts do not tell. See tests/scripts/groups for how they work."""

import msgspec
import pytest

from raftline.machines.groups import commands as c
from raftline.machines.groups.group import Group
from raftline.machines.groups.machine import GroupsMachine
from raftline.machines.groups.views import member_view, summary
from raftline.machines.machine import Refused
from raftline.model import limits
from raftline.model.classic_groups import ClassicMember, Offered, Share
from raftline.model.errors import NewerFormat
from raftline.model.groups import Offset

CLASSIC = ClassicMember(
    "a", "i", "app", "/127.0.0.1", 30_000, 60_000, (Offered("range", b"me"),), ("orders",)
)
ORDERS = {"orders": c.TopicSize("u1", 4, 1)}
GOLDEN = [
    c.Join("g", "a", "n", "app", ("orders",), ORDERS, "range", 30_000, 60_000, 1000),
    c.Leave("g", "a", 3, 1000),
    c.Expire("g", {"a": 2}, 1000),
    c.Acknowledge("g", "a", 3, {"orders": [1, 2]}, 1000),
    c.Commit("g", "a", 3, {"orders": {1: Offset(7, "m", 2)}}, ORDERS, 1000),
    c.SetTopics("g", ORDERS, 1000),
    c.Reset("g", {"orders": {0: Offset(0)}}, ORDERS, 1000),
    c.Delete("g", 900, 1000),
    c.DropCursors("g", {"orders": [0, 2]}, 1000),
    c.Form("g", 4, "consumer", "range", "a", (CLASSIC,), 1000),
    c.Assign("g", 4, {"a": Share(b"bytes", {"orders": [1]})}, 1000),
    c.Dismiss("g", ("a", "b"), 1000),
    c.Substitute("g", "b", CLASSIC, 1000),
    c.Noop(1000),
]


def join(machine: GroupsMachine, member: str, **fields: object):
    command = c.Join("g", member, f"{member}1", "app", ("orders",), ORDERS, at_ms=5)
    return machine.apply_command(msgspec.structs.replace(command, **fields))


def code(events) -> str:
    assert isinstance(events[0], Refused), events
    return events[0].code


@pytest.mark.parametrize("command", GOLDEN, ids=lambda it: type(it).__struct_config__.tag)
def test_golden_bytes(command, rewrite: bool, golden) -> None:
    data = c.encode_command(command)
    golden(f"groups-{type(command).__struct_config__.tag}", data, rewrite)
    assert c.decode_command(data) == command


@pytest.fixture
def golden(request: pytest.FixtureRequest):
    folder = request.path.parent / "golden"

    def same(name: str, data: bytes, rewrite: bool) -> None:
        path = folder / f"{name}.hex"
        text = "\n".join(data.hex()[at : at + 96] for at in range(0, len(data.hex()), 96)) + "\n"
        if rewrite:
            path.write_text(text)
        assert path.read_text() == text, f"{name}: entries on disk are read differently now"

    return same


def test_every_command_has_golden_bytes() -> None:
    assert {type(command) for command in GOLDEN} == set(c.Command.__args__)


def test_what_is_no_command_is_refused_and_a_leaders_first_entry_is_nothing() -> None:
    machine = GroupsMachine()
    assert code(machine.apply(1, 1, b"\x01nonsense")) == "invalid_argument"
    assert machine.apply(2, 1, b"") == ()


def test_names_and_bounds() -> None:
    machine = GroupsMachine()
    assert code(join(machine, "a", group="")) == "invalid_argument"
    assert code(join(machine, "a", group="x\n")) == "invalid_argument"
    assert code(join(machine, "")) == "invalid_argument"
    assert code(join(machine, "a" * 250)) == "invalid_argument"
    assert code(join(machine, "a", session_ms=1)) == "invalid_argument"
    assert code(join(machine, "a", topics=("/",))) == "invalid_topic"
    topics = tuple(f"t{n}" for n in range(limits.GROUP_TOPICS_MAX + 1))
    assert code(join(machine, "a", topics=topics)) == "too_large"
    huge = {"orders": c.TopicSize("u1", limits.GROUP_PARTITIONS_MAX + 1, 1)}
    assert code(join(machine, "a", sizes=huge)) == "over_limit"
    offset = {"orders": {0: Offset(limits.OFFSET_MAX + 1)}}
    assert code(machine.apply_command(c.Commit("g", "", 0, offset, ORDERS))) == "invalid_argument"
    text = {"orders": {0: Offset(0, "x" * (limits.CURSOR_TEXT_CHARS_MAX + 1))}}
    assert code(machine.apply_command(c.Commit("g", "", 0, text, ORDERS))) == "too_large"
    assert not machine.groups, "a refused join leaves no group behind"


def test_too_many_members_and_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftline.machines.groups.group.GROUP_MEMBERS_MAX", 1)
    monkeypatch.setattr("raftline.machines.groups.machine.GROUPS_PER_SHARD_MAX", 1)
    machine = GroupsMachine()
    join(machine, "a")
    assert code(join(machine, "b")) == "over_limit"
    assert code(join(machine, "a", group="h")) == "over_limit"


def test_an_old_catalog_changes_nothing() -> None:
    machine = GroupsMachine()
    join(machine, "a", sizes={"orders": c.TopicSize("new", 4, 9)})
    before = machine.group("g").epoch
    for size in (c.TopicSize("old", 2, 1), c.TopicSize("new", 3, 9), c.TopicSize("old", 0, 1)):
        machine.apply_command(c.SetTopics("g", {"orders": size}, 6))
    assert machine.group("g").epoch == before
    assert len(machine.group("g").topics["orders"].slots) == 4


def test_only_an_idle_group_is_swept() -> None:
    machine = GroupsMachine()
    machine.apply_command(c.Commit("g", "", 0, {"orders": {0: Offset(1)}}, ORDERS, 100))
    assert code(machine.apply_command(c.Delete("g", 99, 200))) == "invalid_argument"
    machine.apply_command(c.Delete("g", 100, 200))
    assert not machine.groups


def test_time_does_not_go_back() -> None:
    machine = GroupsMachine()
    machine.apply_command(c.Noop(100))
    machine.apply_command(c.Noop(50))
    assert machine.at_ms == 100


def test_a_snapshot_is_of_this_build() -> None:
    with pytest.raises(NewerFormat):
        GroupsMachine().restore(msgspec.msgpack.encode([2, 0, 1, []]))


def test_a_large_group_is_shared_out_in_a_moment() -> None:
    machine = GroupsMachine()
    sizes = {"orders": c.TopicSize("u", 5000, 1)}
    for number in range(20):
        join(machine, f"m{number:02}", nonce=str(number), sizes=sizes)
    machine.check()
    assert summary(machine.group("g")).members == 20
    view = member_view(machine.group("g"), "m00")
    assert len(view.revoke["orders"]) == 5000 - 250
    raw = machine.group("g").raw()
    machine.apply_command(c.Noop(7))
    assert machine.group("g").raw() is raw, "an unchanged group is not encoded again"
    assert Group.of(raw).raw() == raw


def test_a_restored_replica_counts_pauses_in_the_same_order() -> None:
    # "b" is known before "a": only a replica that was restored has them by name.
    a, b = c.TopicSize("ua", 1, 1), c.TopicSize("ub", 1, 1)
    lived, restored = GroupsMachine(), GroupsMachine()
    join(lived, "x", topics=("b",), sizes={"b": b})
    join(lived, "y", topics=("a",), sizes={"a": a})
    join(lived, "z", topics=("a", "b"), sizes={"a": a, "b": b})
    restored.restore(lived.snapshot())
    for machine in (lived, restored):
        machine.apply_command(c.Leave("g", "x", at_ms=100))
        machine.apply_command(c.Leave("g", "y", at_ms=200))
        machine.apply_command(c.Acknowledge("g", "z", 5, at_ms=300))  # two pauses end at once
    assert lived.group("g").pauses == restored.group("g").pauses
    assert lived.digest() == restored.digest()
