"""Delayed messages and real processes: all nodes killed while messages wait, none comes early."""

import json
import time
from typing import Any

from raftline.chaos.rig import Rig, wait_for
from raftline.chaos.traffic import Caller
from tests.cluster.conftest import MakeRig

TOPIC = "orders"
BASE = f"/v1/topics/{TOPIC}"
SOON_MS, LATE_MS = 500, 12_000
LATENESS_MS_MAX = 3_000  # of a busy machine; the figure of a quiet one is in the benchmark


def call(caller: Caller, name: str, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    answer = caller.call(name, method, path, data, timeout_ms=10_000)
    assert answer.status == 200, (answer.status, answer.json())
    return answer.json()


def in_the_log(rig: Rig, name: str) -> list[str]:
    caller = Caller(rig)
    rows = call(caller, name, "GET", f"{BASE}/partitions/0/messages?offset=0&limit=1000")
    caller.close()
    return [row["value"] for row in rows["messages"]]


def publish(caller: Caller, name: str, values: list[str], delay_ms: int) -> list[str]:
    messages = [{"value": value, "delay": delay_ms} for value in values]
    results = call(caller, name, "POST", f"{BASE}/messages", {"messages": messages})["results"]
    assert all(row["error"] is None for row in results), results
    return [row["id"] for row in results]


def test_what_waits_survives_the_death_of_all_nodes_and_comes_in_time(make_rig: MakeRig) -> None:
    rig = make_rig(nodes=3)
    with rig.client() as client:
        client.create_topic(TOPIC, partitions=1, replication_factor=3, settings={})
    caller = Caller(rig)
    sent = time.time()
    publish(caller, "node-1", ["soon"], SOON_MS)
    late = publish(caller, "node-2", [f"late-{i}" for i in range(5)], LATE_MS)
    wait_for(lambda: in_the_log(rig, "node-3") == ["soon"], 10, lambda: "it is not released", 0.05)
    assert time.time() - sent >= SOON_MS / 1000
    caller.close()

    rig.kill(*rig.names)
    for name in rig.names:
        rig.spawn(name)
    rig.wait_ready(*rig.names)
    rig.wait_whole()

    listed = call(caller, "node-1", "GET", f"{BASE}/delayed")
    assert [row["id"] for row in listed["messages"]] == late
    shown = call(caller, "node-3", "GET", f"{BASE}/delayed/{late[1]}")
    assert (shown["state"], shown["value"]) == ("waiting", "late-1")
    assert call(caller, "node-2", "DELETE", f"{BASE}/delayed/{late[1]}")["cancelled"]
    moved = call(caller, "node-1", "POST", f"{BASE}/delayed/{late[4]}/move", {"delay": "100ms"})
    assert moved["id"] == late[4]

    def soon() -> bool:
        return in_the_log(rig, "node-1") == ["soon", "late-4"]

    if time.time() - sent < LATE_MS / 1000 - 3:
        wait_for(soon, 5, lambda: str(in_the_log(rig, "node-1")), 0.05)
    want = ["soon", "late-4", "late-0", "late-2", "late-3"]
    wait_for(lambda: len(in_the_log(rig, "node-1")) == 5, 30, lambda: "they do not come", 0.02)
    took_ms = (time.time() - sent) * 1000
    assert in_the_log(rig, "node-1") == want
    assert took_ms >= LATE_MS
    print(f"due after {LATE_MS} ms, seen after {took_ms:.0f} ms, all nodes killed in between")
    assert took_ms < LATE_MS + LATENESS_MS_MAX
    answer = caller.call("node-1", "DELETE", f"{BASE}/delayed/{late[0]}")
    assert (answer.status, answer.error["code"]) == (409, "not_waiting")
    stats = call(caller, "node-2", "GET", f"{BASE}/delay/stats")
    assert (stats["waiting"], stats["released"], stats["cancelled"]) == (0, 5, 1)
    caller.close()
    said = rig.verify()
    assert said.exit == 0, said
