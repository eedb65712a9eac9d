"""What a coordinator remembers of members: silence, things held back, positions of polls."""

from raftline.machines.groups import commands as c
from raftline.machines.groups.group import Group
from raftline.machines.groups.machine import GroupsMachine
from raftline.machines.groups.views import member_view
from raftline.model.groups import Offset
from raftline.node.group_calls import shard_of
from raftline.node.sessions import FROM_START, Sessions, advance, positions

SIZES = {"orders": c.TopicSize("u", 4, 1)}
SESSION_MS, REVOKE_MS = 10_000, 4_000


def machine_of(*members: str) -> GroupsMachine:
    machine = GroupsMachine()
    for member in members:
        join(machine, member)
    return machine


def join(machine: GroupsMachine, member: str, nonce: str = "") -> Group:
    topics = ("orders",)
    command = c.Join(
        "g", member, nonce or member, "", topics, SIZES, "", SESSION_MS, REVOKE_MS, machine.at_ms
    )
    machine.apply_command(command)
    return machine.group("g")


def test_a_new_leader_gives_one_full_session_and_no_more() -> None:
    group = machine_of("a").group("g")
    sessions = Sessions()
    assert sessions.late(group, 5_000) == {}, "never heard of: its time begins now"
    assert sessions.late(group, 5_000 + SESSION_MS) == {}
    assert sessions.late(group, 5_001 + SESSION_MS) == {"a": 1}


def test_time_in_which_the_leader_stood_still_is_nobodys_silence() -> None:
    group = machine_of("a").group("g")
    sessions = Sessions()
    sessions.late(group, 0)
    sessions.stood_still(60_000, 60_000)
    assert sessions.late(group, 60_000 + SESSION_MS) == {}
    assert sessions.late(group, 60_001 + SESSION_MS) == {"a": 1}


def test_who_is_heard_after_a_standstill_is_not_heard_in_the_future() -> None:
    group = machine_of("a").group("g")
    sessions = Sessions()
    sessions.of(group, "a", 60_000).heard_mono = 60_000  # read before the look that is late
    sessions.stood_still(50_000, 60_000)
    assert sessions.late(group, 60_000 + SESSION_MS) == {}
    assert sessions.late(group, 60_001 + SESSION_MS) == {"a": 1}


def test_who_holds_back_what_was_revoked_is_late_however_often_it_is_heard() -> None:
    machine = machine_of("a")
    group = join(machine, "b")
    sessions = Sessions()
    for now in range(0, REVOKE_MS + 500, 500):
        for member in ("a", "b"):
            sessions.of(group, member, now).heard_mono = now
        late = sessions.late(group, now)
        assert late == ({} if now <= REVOKE_MS else {"a": 1})
    machine.apply_command(c.Acknowledge("g", "a", 2, {"orders": [2, 3]}))
    assert sessions.late(group, REVOKE_MS + 501) == {}


def test_who_gives_up_in_time_is_not_late_because_it_is_asked_again_and_again() -> None:
    """Members come one after the other, as in a deployment: each takes a little of the first."""
    machine, sizes = GroupsMachine(), {"orders": c.TopicSize("u", 2_000, 1)}
    sessions, asked = Sessions(), list[int]()
    for now in range(0, 2 * REVOKE_MS, 500):
        member = f"m{now:05}"
        machine.apply_command(
            c.Join("g", member, member, "", ("orders",), sizes, "", SESSION_MS, REVOKE_MS, 0)
        )
        group = machine.group("g")
        for name in group.members:
            sessions.of(group, name, now).heard_mono = now
            if name != "m00000":
                revoked = member_view(group, name).revoke
                machine.apply_command(c.Acknowledge("g", name, group.epoch, revoked))
        machine.apply_command(c.Acknowledge("g", "m00000", group.epoch, {"orders": asked}))
        asked = member_view(group, "m00000").revoke.get("orders", [])
        assert sessions.late(group, now) == {}, f"asked {now} ms ago for the first time"


def test_who_joins_again_begins_a_session_of_its_own() -> None:
    machine = machine_of("a")
    group = machine.group("g")
    sessions = Sessions()
    first = sessions.of(group, "a", 0)
    first.number = 9
    again = join(machine, "a", "another")
    assert sessions.of(again, "a", 7_000).number == 0
    machine.apply_command(c.Leave("g", "a"))
    sessions.keep_only(machine.groups)
    join(machine, "a", "third")
    assert sessions.of(machine.group("g"), "a", 8_000).heard_mono == 8_000


def test_positions_belong_to_one_ownership() -> None:
    machine = machine_of("a")
    group = machine.group("g")
    machine.apply_command(c.Commit("g", "a", 1, {"orders": {1: Offset(7)}}))
    session = Sessions().of(group, "a", 0)
    view = member_view(group, "a")
    assert positions(group, session, view) == {
        "orders": {0: FROM_START, 1: 7, 2: FROM_START, 3: FROM_START}
    }
    advance(group, session, view, {"orders": {1: 20, 3: 5}})
    assert positions(group, session, view)["orders"] == {0: FROM_START, 1: 20, 2: FROM_START, 3: 5}
    # b comes, takes 2 and 3, and leaves again: a begins there at the cursor, elsewhere it goes on.
    join(machine, "b")
    machine.apply_command(c.Acknowledge("g", "a", 2, {"orders": [2, 3]}))
    machine.apply_command(c.Leave("g", "b"))
    now = positions(group, session, member_view(group, "a"))["orders"]
    assert now == {0: FROM_START, 1: 20, 2: FROM_START, 3: FROM_START}


def test_names_are_spread_over_sixteen_shards() -> None:
    found = {shard_of(f"group-{n}") for n in range(500)}
    assert found == set(range(2, 18))
