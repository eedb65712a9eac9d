"""Stream groups through HTTP on real processes: join, leave, crash, replay, a join under load."""

import threading
import time
from itertools import pairwise
from typing import Any

import pytest

from raftline.chaos.rig import Rig, wait_for
from raftline.client.caller import Caller
from raftline.model.errors import FencedMember, GroupNotEmpty, RaftlineError, UnknownMember
from tests.cluster.conftest import MakeRig

TOPIC, GROUP = "orders", "billing"


class Member:
    """A member that reads by polls, and commits what it read when it polls again."""

    def __init__(self, rig: Rig, name: str, *nodes: str, **join: Any) -> None:
        servers = ",".join(rig.node(node).http for node in nodes or rig.names)
        self.caller = Caller(servers, timeout_ms=10_000)
        rig.at_close.append(self.caller.close)
        self.seen: dict[int, list[int]] = {}  # offsets by partition
        self.seen_at: dict[int, list[float]] = {}
        self.last: dict[str, Any] = {}
        body = {"topics": [TOPIC], "member_id": name, "client_id": name, **join}
        self._hear(self.post("join", body))
        self.name = self.last["member_id"]

    def post(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        return self.caller.call("POST", f"/v1/groups/{GROUP}/{verb}", body)

    def _hear(self, answer: dict[str, Any]) -> None:
        self.last = answer

    @property
    def reads(self) -> set[int]:
        return {*self.last["partitions"].get(TOPIC, []), *self.last["revoke"].get(TOPIC, [])}

    def beat(self) -> None:
        body = {"member_id": self.name, "generation": self.last["generation"]}
        self._hear(self.post("heartbeat", {**body, "revoked": self.last["revoke"]}))

    def poll(self, wait_ms: int = 0, limit: int = 500) -> list[dict[str, Any]]:
        query = f"member_id={self.name}&generation={self.last['generation']}"
        query += f"&wait_ms={wait_ms}&limit={limit}"
        if "poll" in self.last:
            query += f"&poll={self.last['poll']}"
        answer = self.caller.call("GET", f"/v1/groups/{GROUP}/poll?{query}")
        self._hear(answer)
        now = time.monotonic()
        for message in answer["messages"]:
            partition = message["partition"]
            self.seen.setdefault(partition, []).append(message["offset"])
            self.seen_at.setdefault(partition, []).append(now)
        return answer["messages"]

    def commit(self) -> dict[str, Any]:
        offsets = {TOPIC: {p: rows[-1] + 1 for p, rows in self.seen.items() if p in self.reads}}
        return self.commit_at(offsets)

    def commit_at(self, offsets: dict[str, dict[int, int]]) -> dict[str, Any]:
        body = {"member_id": self.name, "generation": self.last["generation"], "offsets": offsets}
        return self.post("offsets", body)

    def leave(self) -> None:
        self.post("leave", {"member_id": self.name, "generation": self.last["generation"]})


def show(rig: Rig, *nodes: str) -> dict[str, Any]:
    with Caller(",".join(rig.node(n).http for n in nodes or rig.running())) as caller:
        return caller.call("GET", f"/v1/groups/{GROUP}")["stream"]


def create(rig: Rig, partitions: int) -> None:
    with rig.client() as client:
        client.create_topic(TOPIC, partitions=partitions, replication_factor=None, settings={})


def send(rig: Rig, partition: int, count: int) -> None:
    post(rig, [{"value": str(n), "partition": partition} for n in range(count)])


def post(rig: Rig, messages: list[dict[str, Any]]) -> None:
    with Caller(",".join(rig.node(name).http for name in rig.running())) as caller:
        results = caller.call("POST", f"/v1/topics/{TOPIC}/messages", {"messages": messages})
        assert all(row["error"] is None for row in results["results"]), results


def settle(*members: Member) -> None:
    """Let everybody do as told until nobody has anything to give up."""
    for _ in range(4):
        for member in members:
            member.beat()
    assert all(not member.last["revoke"] for member in members)


def test_join_poll_commit_leave_and_look(make_rig: MakeRig) -> None:
    rig = make_rig(nodes=1)
    create(rig, 2)
    send(rig, 0, 5)
    send(rig, 1, 3)
    a = Member(rig, "")
    assert a.name.startswith("member-")
    assert a.reads == {0, 1}
    first = a.poll(limit=4)
    rest = a.poll() + a.poll()
    assert len(first) == 4
    assert sorted((m["partition"], m["offset"]) for m in first + rest) == [
        *((0, n) for n in range(5)),
        *((1, n) for n in range(3)),
    ]
    assert a.commit() == {"committed": 2, "refused": {}}
    view = show(rig)
    assert view["lag"] == 0
    assert {row["owner"] for row in view["partitions"]} == {a.name}
    b = Member(rig, "b")
    settle(a, b)
    assert {len(a.reads), len(b.reads)} == {1}
    with pytest.raises(FencedMember):
        a.commit_at({TOPIC: {min(b.reads): 0}})
    with pytest.raises(GroupNotEmpty):
        a.caller.call("POST", f"/v1/groups/{GROUP}/reset", {"topic": TOPIC, "to": "earliest"})
    b.leave()
    with pytest.raises(UnknownMember):
        b.beat()
    settle(a)
    assert a.reads == {0, 1}
    a.leave()
    groups = a.caller.call("GET", "/v1/groups")["groups"]
    assert [(row["group"], row["kind"], row["state"]) for row in groups] == [
        (GROUP, "stream", "empty")
    ]


def test_replay_by_offset_and_time_with_a_dry_run(make_rig: MakeRig) -> None:
    rig = make_rig(nodes=1)
    create(rig, 1)
    post(rig, [{"value": str(n), "timestamp": 1000 + 10 * n} for n in range(10)])
    a = Member(rig, "a")
    assert len(a.poll()) == 10
    a.commit()
    a.leave()

    def reset(**body: Any) -> list[dict[str, int]]:
        answer = a.caller.call("POST", f"/v1/groups/{GROUP}/reset", {"topic": TOPIC, **body})
        return [(row["from"], row["to"]) for row in answer["partitions"]]

    def cursor() -> int:
        return a.caller.call("GET", f"/v1/groups/{GROUP}/offsets")["offsets"][TOPIC]["0"]["offset"]

    assert reset(to="earliest", dry_run=True) == [(10, 0)]
    assert cursor() == 10, "a dry run changes nothing"
    assert reset(time=1035) == [(10, 4)]
    assert cursor() == 4
    again = Member(rig, "a")
    assert [m["offset"] for m in again.poll()] == [4, 5, 6, 7, 8, 9]
    again.leave()
    assert reset(offset=7) == [(4, 7)]
    assert reset(to="latest") == [(7, 10)]
    a.caller.call("DELETE", f"/v1/groups/{GROUP}")
    with pytest.raises(RaftlineError, match="there is no group"):
        a.caller.call("GET", f"/v1/groups/{GROUP}")


def test_work_groups_beside_stream_groups(make_rig: MakeRig) -> None:
    rig = make_rig(nodes=1)
    create(rig, 2)
    send(rig, 0, 3)
    send(rig, 1, 2)
    a = Member(rig, "a")
    receive = f"/v1/topics/{TOPIC}/groups/{GROUP}/receive"
    for _ in range(2):
        a.caller.call("POST", receive, {"count": 10})
    rows = a.caller.call("GET", f"/v1/groups?topic={TOPIC}")["groups"]
    assert sorted((row["group"], row["kind"]) for row in rows) == [
        (GROUP, "stream"),
        (GROUP, "work"),
    ]
    shown = a.caller.call("GET", f"/v1/groups/{GROUP}")
    assert [row["partition"] for row in shown["work"][TOPIC]] == [0, 1]
    until = time.monotonic() + 10
    while sum(row["leased"] for row in shown["work"][TOPIC]) < 5 and time.monotonic() < until:
        shown = a.caller.call("GET", f"/v1/groups/{GROUP}")  # leases commit after the delivery
    assert sum(row["leased"] for row in shown["work"][TOPIC]) == 5
    assert shown["stream"]["members"][0]["member"] == "a"
    body = {"topic": TOPIC, "to": "latest", "kind": "work"}
    planned = a.caller.call("POST", f"/v1/groups/{GROUP}/reset", {**body, "dry_run": True})
    assert [(row["from"], row["to"]) for row in planned["partitions"]] == [(0, 3), (0, 2)]
    a.caller.call("POST", f"/v1/groups/{GROUP}/reset", body)
    shown = a.caller.call("GET", f"/v1/groups/{GROUP}")
    assert sum(row["lag"] for row in shown["work"][TOPIC]) == 0
    a.caller.call("DELETE", f"/v1/groups/{GROUP}?topic={TOPIC}")
    shown = a.caller.call("GET", f"/v1/groups/{GROUP}")
    assert shown["work"] == {}, "the work group of that topic is gone"
    assert shown["stream"]["members"], "the stream group is not"


def test_a_crashed_member_a_killed_coordinator_and_a_restart(make_rig: MakeRig) -> None:
    rig = make_rig(nodes=3)
    create(rig, 4)
    for partition in range(4):
        send(rig, partition, 10)
    a = Member(rig, "a", session_timeout_ms=60_000)
    b = Member(rig, "b", session_timeout_ms=2_000)
    settle(a, b)
    assert len(a.reads) == len(b.reads) == 2
    for member in (a, b):
        for _ in range(3):
            member.poll()
        member.commit()
    orphaned = set(b.reads)
    # b says no more. a has everything once b's session is over, and goes on at its cursors.
    began = time.monotonic()
    wait_for(lambda: a.beat() or a.reads == {0, 1, 2, 3}, 8.0, pause_s=0.1)
    print(f"a crashed member's partitions moved after {time.monotonic() - began:.2f} s")
    assert time.monotonic() - began > 1.0
    with pytest.raises(UnknownMember):
        b.poll()
    a.poll()
    assert all(offset >= 10 for p in orphaned for offset in a.seen.get(p, [10]))
    # Each node is killed once, so the coordinator's too: nothing is lost, nobody expires.
    for name in rig.names:
        rig.kill(name)
        wait_for(lambda: _beats(a), 10.0, pause_s=0.1)
        rig.restart(name)
    a.beat()
    assert a.reads == {0, 1, 2, 3}
    assert show(rig)["lag"] == 0
    said = rig.verify()
    assert said.exit == 0, said
    assert any(row["name"].startswith("groups-") for row in said.json()["shards"])


def _beats(member: Member) -> bool:
    try:
        member.beat()
    except UnknownMember:
        raise AssertionError("a new leader gives everybody a full session") from None
    except RaftlineError:
        return False
    return True


class Reading(threading.Thread):
    """A member that polls until it is told to stop."""

    def __init__(self, rig: Rig, name: str) -> None:
        super().__init__(daemon=True)
        self.member = Member(rig, name)
        self.over = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.over.is_set():
                self.member.poll(wait_ms=500)
                self.member.commit()
        except RaftlineError as error:
            self.failure = error


def test_a_join_under_load_pauses_only_what_moves(make_rig: MakeRig) -> None:
    rig = make_rig(nodes=3)
    create(rig, 6)
    over = threading.Event()
    sent = [0] * 6

    def produce() -> None:
        while not over.is_set():
            post(rig, [{"value": "x", "partition": p} for p in range(6)])
            for p in range(6):
                sent[p] += 1
            time.sleep(0.02)

    producer = threading.Thread(target=produce, daemon=True)
    producer.start()
    readers = [Reading(rig, "a"), Reading(rig, "b")]
    for reader in readers:
        reader.start()
    wait_for(lambda: sorted(len(r.member.reads) for r in readers) == [3, 3], 10.0)
    time.sleep(1.5)
    joined_at = time.monotonic()
    third = Reading(rig, "c")
    third.start()
    readers.append(third)
    wait_for(lambda: len(third.member.reads) == 2, 10.0)
    time.sleep(1.5)
    over.set()
    producer.join()
    wait_for(lambda: _all_seen(readers, sent), 10.0, lambda: f"{sent} {_seen(readers)}")
    for reader in readers:
        reader.over.set()
    for reader in readers:
        reader.join()
        assert reader.failure is None, reader.failure
    moved = set(third.member.seen)
    gaps = {p: _longest_gap_ms(readers, p, joined_at - 0.2, joined_at + 1.5) for p in range(6)}
    for partition, gap_ms in sorted(gaps.items()):
        what = "moved" if partition in moved else "stayed"
        print(f"{TOPIC}/{partition} {what}: longest gap {gap_ms:.0f} ms")
    view = show(rig)
    print(f"pauses as the coordinator measured them: {view['pauses']}")
    assert len(moved) == 2
    assert max(gaps[p] for p in moved) < 3_000
    assert max(gaps[p] for p in range(6) if p not in moved) < 1_500
    for partition in range(6):
        everything = sorted(o for r in readers for o in r.member.seen.get(partition, []))
        assert sorted(set(everything)) == list(range(sent[partition])), "nothing is skipped"
        repeats = len(everything) - len(set(everything))
        assert partition in moved or repeats == 0, f"{partition}: {repeats} read twice"


def _seen(readers: list[Reading]) -> list[int]:
    return [len({o for r in readers for o in r.member.seen.get(p, [])}) for p in range(6)]


def _all_seen(readers: list[Reading], sent: list[int]) -> bool:
    return _seen(readers) == sent


def _longest_gap_ms(readers: list[Reading], partition: int, start: float, end: float) -> float:
    times = sorted(t for r in readers for t in r.member.seen_at.get(partition, []))
    times = [t for t in times if start <= t <= end]
    return 1000 * max((b - a for a, b in pairwise(times)), default=9_999.0)
