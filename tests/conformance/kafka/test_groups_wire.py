"""The group APIs by hand, in every version that is served."""

import pytest

from raftline.chaos.rig import Rig
from raftline.gateways.kafka import schema_groups as schema
from raftline.model.records import seal_batch
from tests.conformance.kafka.conftest import MakeTopic, kafka_of
from tests.conformance.kafka.members import fill, group_name
from tests.conformance.kafka.wire import Wire, body_of, frame

REBALANCING, ILLEGAL_GENERATION, UNKNOWN_MEMBER, MEMBER_ID_REQUIRED = 27, 22, 25, 79
INCONSISTENT_PROTOCOL = 23


def coordinator(rig: Rig, group: str) -> str:
    """Return the address of a group's coordinator."""
    with Wire(kafka_of(rig, rig.names[0])) as wire:
        found = wire.ask(schema.FIND_COORDINATOR, 4, {"keys": [group]})["coordinators"][0]
    assert found["error_code"] == 0, found
    return f"{found['host']}:{found['port']}"


def joining(group: str, member: str = "", **more: object) -> dict[str, object]:
    return {
        "group": group,
        "session_ms": 10_000,
        "rebalance_ms": 10_000,
        "member": member,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"me"}],
        **more,
    }


@pytest.mark.parametrize("version", range(7))
def test_every_version_finds_the_coordinator(three: Rig, version: int) -> None:
    group = group_name()
    with Wire(kafka_of(three, "node-2")) as wire:
        if version < 4:
            found = wire.ask(schema.FIND_COORDINATOR, version, {"key": group})
        else:
            asked = {"keys": [group, group]}
            answer = wire.ask(schema.FIND_COORDINATOR, version, asked)
            found, again = answer["coordinators"]
            assert found == again
        assert found["error_code"] == 0
        assert f"{found['host']}:{found['port']}" in kafka_of(three).split(",")


@pytest.mark.parametrize("version", range(10))
def test_every_version_joins_syncs_commits_and_leaves(
    three: Rig, make_topic: MakeTopic, version: int
) -> None:
    topic, group = make_topic(three, 2), group_name()
    sync, beat = min(version, 5), min(version, 4)
    with Wire(coordinator(three, group)) as wire:
        joined = wire.ask(schema.JOIN_GROUP, version, joining(group))
        if version >= 4:
            assert joined["error_code"] == MEMBER_ID_REQUIRED
            joined = wire.ask(schema.JOIN_GROUP, version, joining(group, joined["member"]))
        assert (joined["error_code"], joined["generation"]) == (0, 1)
        assert joined["leader"] == joined["member"]
        assert [row["metadata"] for row in joined["members"]] == [b"me"]
        who = {"group": group, "member": joined["member"], "generation": 1}
        shares = [{"member": joined["member"], "assignment": b"all of it"}]
        synced = wire.ask(schema.SYNC_GROUP, sync, {**who, "assignments": shares})
        assert (synced["error_code"], synced["assignment"]) == (0, b"all of it")
        assert wire.ask(schema.HEARTBEAT, beat, who)["error_code"] == 0
        stale = {**who, "generation": 7}
        assert wire.ask(schema.HEARTBEAT, beat, stale)["error_code"] == ILLEGAL_GENERATION

        rows = [
            {"partition": 0, "offset": 5, "metadata": "note", "leader_epoch": 3},
            {"partition": 9, "offset": 5, "metadata": None},
        ]
        request = {**who, "topics": [{"name": topic, "partitions": rows}]}
        committed = wire.ask(schema.OFFSET_COMMIT, max(version, 2), request)
        codes = [row["error_code"] for row in committed["topics"][0]["partitions"]]
        assert codes == [0, 3]
        cursor = fetched(wire, max(version, 1), group, topic)
        assert (cursor["offset"], cursor["metadata"]) == (5, "note")
        assert cursor["leader_epoch"] == (3 if version >= 6 else -1)

        described = wire.ask(schema.DESCRIBE_GROUPS, min(version, 6), {"groups": [group]})
        assert described["groups"][0]["state"] == "Stable"
        listed = wire.ask(schema.LIST_GROUPS, min(version, 5), {})
        assert group in [row["group"] for row in listed["groups"]]
        leaver = {"group": group, "member": who["member"], "members": [{"member": who["member"]}]}
        left = wire.ask(schema.LEAVE_GROUP, min(version, 5), leaver)
        assert left["error_code"] == 0
        assert all(row["error_code"] == 0 for row in left["members"])
        assert wire.ask(schema.HEARTBEAT, beat, who)["error_code"] == UNKNOWN_MEMBER
        codes = []
        for _ in range(2):
            gone = wire.ask(schema.DELETE_GROUPS, min(version, 2), {"groups": [group]})
            codes += [row["error_code"] for row in gone["results"]]
        assert codes == [0, 69]


def fetched(wire: Wire, version: int, group: str, topic: str) -> dict[str, object]:
    """Return the cursor of partition 0; partition 1 has none."""
    topics = [{"name": topic, "partitions": [0, 1]}]
    if version < 8:
        answer = wire.ask(schema.OFFSET_FETCH, version, {"group": group, "topics": topics})
    else:
        asked = {"groups": [{"group": group, "topics": topics}, {"group": group, "topics": None}]}
        answer, every = wire.ask(schema.OFFSET_FETCH, version, asked)["groups"]
        assert [row["offset"] for row in every["topics"][0]["partitions"]] == [5]
    first, second = answer["topics"][0]["partitions"]
    assert second["offset"] == -1
    return first


def test_another_node_is_not_the_coordinator(three: Rig) -> None:
    group = group_name()
    home = coordinator(three, group)
    for address in kafka_of(three).split(","):
        if address != home:
            with Wire(address) as wire:
                assert wire.ask(schema.JOIN_GROUP, 9, joining(group))["error_code"] == 16
                who = {"group": group, "member": "x", "generation": 1}
                assert wire.ask(schema.HEARTBEAT, 4, who)["error_code"] == 16


def test_what_cannot_be_is_refused_by_its_code(one: Rig) -> None:
    address = kafka_of(one)
    group = group_name()
    with Wire(address) as wire:
        wire.ask(schema.FIND_COORDINATOR, 4, {"keys": [group]})

        def code(**more: object) -> int:
            return wire.ask(schema.JOIN_GROUP, 5, {**joining(group), **more})["error_code"]

        assert code(group="") == 24
        assert code(session_ms=1) == 26
        assert code(member="never-heard-of") == UNKNOWN_MEMBER
        assert code(protocols=[]) == INCONSISTENT_PROTOCOL
        assert code(protocol_type="") == INCONSISTENT_PROTOCOL
        assert code(rebalance_ms=1) == MEMBER_ID_REQUIRED  # short, and no reason to refuse
        for version, refused in ((1, 53), (2, 53), (3, 42)):
            other = wire.ask(schema.FIND_COORDINATOR, version, {"key": "t", "key_type": 1})
            assert other["error_code"] == refused
            assert "transactions" in other["error_message"]
        simple = {"group": group, "generation": -1, "member": "", "topics": []}
        assert wire.ask(schema.OFFSET_COMMIT, 8, simple)["topics"] == []


@pytest.mark.parametrize(
    ("client", "shown"),
    [("c" * 300, "c" * 249), ("tab\tand\u200bnothing", "tab?and?nothing"), ("", "")],
)
def test_a_client_may_call_itself_anything(one: Rig, client: str, shown: str) -> None:
    group = group_name()
    with Wire(coordinator(one, group)) as wire:
        name, asked = client.encode(), joining(group)
        wire.raw(frame(body_of(schema.JOIN_GROUP, 3, asked, 1, name)))
        joined = wire.reply(schema.JOIN_GROUP, 3, 1)
        assert joined["error_code"] == 0
        who = {"group": group, "member": joined["member"], "generation": 1}
        assert wire.ask(schema.SYNC_GROUP, 2, who)["error_code"] == 0
        (told,) = wire.ask(schema.DESCRIBE_GROUPS, 4, {"groups": [group]})["groups"]
    assert [row["client_id"] for row in told["members"]] == [shown]


@pytest.mark.parametrize("group", ["", "g" * 250, "tab\tin it"])
def test_what_cannot_be_the_name_of_a_group_is_called_so_everywhere(
    one: Rig, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(one)
    who = {"group": group, "member": "x", "generation": 1}
    rows = [{"name": topic, "partitions": [{"partition": 0, "offset": 1, "metadata": None}]}]
    places = [{"name": topic, "partitions": [0]}]
    with Wire(kafka_of(one)) as wire:
        codes = [
            wire.ask(schema.JOIN_GROUP, 5, joining(group))["error_code"],
            wire.ask(schema.SYNC_GROUP, 3, who)["error_code"],
            wire.ask(schema.HEARTBEAT, 3, who)["error_code"],
            wire.ask(schema.LEAVE_GROUP, 1, who)["error_code"],
            wire.ask(schema.LEAVE_GROUP, 4, {"group": group, "members": []})["error_code"],
            wire.ask(schema.OFFSET_FETCH, 5, {"group": group, "topics": places})["error_code"],
            wire.ask(schema.DESCRIBE_GROUPS, 5, {"groups": [group]})["groups"][0]["error_code"],
            wire.ask(schema.DELETE_GROUPS, 2, {"groups": [group]})["results"][0]["error_code"],
            wire.ask(schema.OFFSET_DELETE, 0, {"group": group, "topics": rows})["error_code"],
        ]
        committed = wire.ask(schema.OFFSET_COMMIT, 8, {**who, "topics": rows})["topics"][0]
        asked = {"groups": [{"group": group, "topics": places}]}
        (fetched_,) = wire.ask(schema.OFFSET_FETCH, 9, asked)["groups"]
    codes += [committed["partitions"][0]["error_code"], fetched_["error_code"]]
    assert codes == [24] * len(codes)


def test_a_commit_may_name_an_end_of_the_log(three: Rig, make_topic: MakeTopic) -> None:
    topic, group = make_topic(three, 2), group_name()
    fill(kafka_of(three), topic, [f"m{i}" for i in range(10)], 2)
    rows = [
        {"partition": 0, "offset": -2, "metadata": None},
        {"partition": 1, "offset": -1, "metadata": "end"},
    ]
    with Wire(coordinator(three, group)) as wire:
        simple = {"group": group, "topics": [{"name": topic, "partitions": rows}]}
        committed = wire.ask(schema.OFFSET_COMMIT, 5, simple)
        assert [row["error_code"] for row in committed["topics"][0]["partitions"]] == [0, 0]
        answer = wire.ask(schema.OFFSET_FETCH, 7, {"group": group, "topics": None})
        found = [(r["offset"], r["metadata"]) for r in answer["topics"][0]["partitions"]]
        assert found == [(0, ""), (5, "end")]
        rows[0]["offset"] = -3
        committed = wire.ask(schema.OFFSET_COMMIT, 5, simple)
        assert [row["error_code"] for row in committed["topics"][0]["partitions"]] == [42, 0]


def test_who_claims_no_generation_commits_where_nobody_is_a_member(
    one: Rig, make_topic: MakeTopic
) -> None:
    """A client that was a member once keeps its name while it reads by itself."""
    topic, group = make_topic(one), group_name()
    rows = [{"partition": 0, "offset": 3, "metadata": None}]

    def code(member: str, generation: int = -1, **more: object) -> int:
        who = {"group": group, "member": member, "generation": generation, **more}
        asked = {**who, "topics": [{"name": topic, "partitions": rows}]}
        answer = wire.ask(schema.OFFSET_COMMIT, 8, asked)
        return answer["topics"][0]["partitions"][0]["error_code"]

    with Wire(coordinator(one, group)) as wire:
        assert code("once") == 0  # the group is new
        assert code("once", instance="host-1") == 0
        assert code("once", 1) == UNKNOWN_MEMBER
        member = wire.ask(schema.JOIN_GROUP, 3, joining(group))["member"]
        assert code("once") == code("") == UNKNOWN_MEMBER
        assert code("once", instance="host-1") == UNKNOWN_MEMBER
        assert code(member) == ILLEGAL_GENERATION
        wire.ask(schema.LEAVE_GROUP, 2, {"group": group, "member": member})
        assert code(member) == 0


def test_the_start_of_the_log_is_before_messages_without_a_time(
    one: Rig, make_topic: MakeTopic
) -> None:
    topic, group = make_topic(one), group_name()
    with Wire(coordinator(one, group)) as wire:
        for time_ms in (-1, -1, 5):
            wire.produce(9, topic, seal_batch([(None, b"x", (), time_ms)]))
        rows = [{"partition": 0, "offset": -2, "metadata": None}]
        simple = {"group": group, "topics": [{"name": topic, "partitions": rows}]}
        wire.ask(schema.OFFSET_COMMIT, 5, simple)
        answer = wire.ask(schema.OFFSET_FETCH, 7, {"group": group, "topics": None})
        assert [row["offset"] for row in answer["topics"][0]["partitions"]] == [0]


def test_cursors_are_dropped_unless_members_read_them(one: Rig, make_topic: MakeTopic) -> None:
    topic, group = make_topic(one, 2), group_name()
    rows = [{"partition": p, "offset": 3, "metadata": None} for p in range(2)]
    with Wire(coordinator(one, group)) as wire:
        simple = {"group": group, "topics": [{"name": topic, "partitions": rows}]}
        committed = wire.ask(schema.OFFSET_COMMIT, 9, simple)
        assert [row["error_code"] for row in committed["topics"][0]["partitions"]] == [0, 0]
        asked = {
            "group": group,
            "topics": [
                {"name": topic, "partitions": [{"partition": 1}, {"partition": 2}]},
                {"name": "nobody", "partitions": [{"partition": 0}]},
            ],
        }
        dropped = wire.ask(schema.OFFSET_DELETE, 0, asked)
        assert dropped["error_code"] == 0
        codes = {
            row["name"]: [part["error_code"] for part in row["partitions"]]
            for row in dropped["topics"]
        }
        assert codes == {topic: [0, 3], "nobody": [3]}
        answer = wire.ask(schema.OFFSET_FETCH, 7, {"group": group, "topics": None})
        found = answer["topics"][0]["partitions"]
        assert [(row["partition"], row["offset"]) for row in found] == [(0, 3)]
        (shown,) = wire.ask(schema.DESCRIBE_GROUPS, 5, {"groups": [group]})["groups"]
        listed = wire.ask(schema.LIST_GROUPS, 4, {})["groups"]
        (row,) = [row for row in listed if row["group"] == group]
        assert shown["protocol_type"] == row["protocol_type"] == ""  # nobody ever joined it
        never = group_name()
        coordinator(one, never)
        assert wire.ask(schema.OFFSET_DELETE, 0, {**asked, "group": never})["error_code"] == 69
