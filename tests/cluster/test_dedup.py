"""The same dedup key gives the first id, whoever leads and whatever died in between."""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from raftline.chaos.rig import Rig, wait_for
from tests.cluster.conftest import MakeRig

PATH = "/v1/topics/orders/messages?timeout_ms=3000"
Row = dict[str, Any]


def publish(rig: Rig, name: str, items: list[Row]) -> tuple[int, list[Row]]:
    """Publish through one node; status 0 if it does not answer."""
    address = urlsplit(rig.node(name).http)
    line = http.client.HTTPConnection(address.hostname or "", address.port, timeout=5)
    try:
        line.request("POST", PATH, json.dumps({"messages": items}))
        reply = line.getresponse()
        return reply.status, json.loads(reply.read()).get("results", [])
    except OSError:
        return 0, []
    finally:
        line.close()


def keyed(count: int, start: int = 0) -> list[Row]:
    return [{"value": f"v{n}", "dedup_key": f"k{n}"} for n in range(start, start + count)]


def until_stored(rig: Rig, items: list[Row]) -> list[Row]:
    """Send the same messages again and again, to one node after the other, until all are in."""
    found: list[list[Row]] = []

    def attempt() -> bool:
        for name in rig.running():
            status, rows = publish(rig, name, items)
            if status == 200 and all(row["error"] is None for row in rows):
                found.append(rows)
                return True
        return False

    wait_for(attempt, 20, lambda: "publishing does not come back")
    return found[0]


def ids(rows: list[Row]) -> list[str]:
    return [row["id"] for row in rows]


def values(rig: Rig) -> list[str]:
    """Return everything stored."""
    found: list[str] = []
    with rig.client() as client:
        for row in client.topic("orders")["partitions"]:
            offset = 0
            while True:
                page = client.read("orders", row["partition"], offset, limit=1000)
                if not page.messages:
                    break
                found += [(message.value or b"").decode() for message in page.messages]
                offset = page.next_offset
    return found


def test_a_key_keeps_its_first_id_when_the_leader_is_killed_and_all_start_again(
    make_rig: MakeRig,
) -> None:
    rig = make_rig()
    with rig.client() as client:
        client.create_topic("orders", partitions=2, replication_factor=3, settings={})
    first: list[str] = []
    for turn, name in enumerate(rig.names):  # two of them pass the batch on
        status, rows = publish(rig, name, keyed(20, turn * 20))
        assert status == 200
        assert not any(row.get("duplicate") for row in rows)
        first += ids(rows)
    leader = rig.leader_of("orders")
    rig.kill(leader)
    for _ in range(2):
        rows = until_stored(rig, [*keyed(60), {"value": "new", "dedup_key": "new"}])
        assert ids(rows[:60]) == first
        assert all(row["duplicate"] for row in rows[:60])
    rig.restart(leader)
    rig.stop(*rig.names)  # with checkpoints: keys come back from the snapshot
    rig.start_all()
    assert ids(until_stored(rig, keyed(60))) == first
    assert sorted(values(rig)) == sorted([f"v{n}" for n in range(60)] + ["new"])
    assert rig.verify().exit == 0


def test_who_sends_until_it_works_has_each_message_stored_once(make_rig: MakeRig) -> None:
    rig = make_rig()
    with rig.client() as client:
        client.create_topic("orders", partitions=1, replication_factor=3, settings={})
    for turn in range(12):
        items = keyed(5, turn * 5)
        if turn in (3, 7):
            leader = rig.leader_of("orders")
            publish(rig, leader, items[:3])
            rig.kill(leader)
            rows = until_stored(rig, items)
            rig.restart(leader)
        else:
            rows = until_stored(rig, items)
        assert ids(until_stored(rig, items)) == ids(rows)
    assert sorted(values(rig)) == sorted(f"v{n}" for n in range(60))
