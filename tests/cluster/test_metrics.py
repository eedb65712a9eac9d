"""Metrics of a real cluster while it works: the figures are what was done."""

import contextlib
import subprocess
import sys
import time

from raftline.chaos.rig import Rig, wait_for
from raftline.client.fenced import Fenced
from raftline.telemetry.metrics import METRICS
from raftline.testing.batches import seal
from tests.cluster.watching import ask, scrape, total

TOPIC, GROUP = "orders", "workers"
PLACE = {"topic": TOPIC, "group": GROUP}
SENT, BATCHES = 600, 6


def publish(rig: Rig, start: int, count: int, **fields: object) -> None:
    """Publish through every node in turn."""
    name = rig.names[start % len(rig.names)]
    messages = [{"value": f"{n}", "key": f"k{n}", **fields} for n in range(start, start + count)]
    path = f"/v1/topics/{TOPIC}/messages"
    answer = ask(rig.node(name).http, "POST", path, {"messages": messages})
    assert all(row["error"] is None for row in answer["results"])


def test_figures_are_what_was_done(make_rig) -> None:
    rig: Rig = make_rig(nodes=3)
    first = rig.node(rig.names[0]).http
    ask(first, "POST", "/v1/topics", {"name": TOPIC, "num_partitions": 3})
    began = time.monotonic()
    for number in range(BATCHES):
        publish(rig, number * (SENT // BATCHES), SENT // BATCHES)
    publish(rig, SENT, 2, delay="1h")
    publish(rig, SENT + 2, 1, dedup_key="once")
    publish(rig, SENT + 2, 1, dedup_key="once")
    stored = SENT + 1
    assert total(rig, "raftline_topic_in_messages_total", topic=TOPIC) == stored
    assert total(rig, "raftline_topic_messages", topic=TOPIC) == stored
    assert total(rig, "raftline_topic_waiting_messages", topic=TOPIC) == 2
    assert total(rig, "raftline_topic_dedup_keys", topic=TOPIC) == 1

    acked = nacked = 0
    rejected = delivered = 0
    receive = f"/v1/topics/{TOPIC}/groups/{GROUP}/receive"
    while acked < 200:
        got = ask(first, "POST", receive, {"count": 50, "wait": "1s"})["messages"]
        delivered += len(got)
        tokens = [message["lease_token"] for message in got]
        settles = [("nack", tokens[:1]), ("reject", tokens[1:2]), ("ack", tokens[2:])]
        for verb, some in settles:
            if some:
                ask(first, "POST", f"/v1/messages/{verb}", {"lease_tokens": some})
        nacked, rejected = nacked + len(tokens[:1]), rejected + len(tokens[1:2])
        acked += len(tokens[2:])
    assert total(rig, "raftline_group_delivered_messages_total", **PLACE) == delivered
    settled = "raftline_group_settled_messages_total"
    assert total(rig, settled, verb="ack", **PLACE) == acked
    assert total(rig, settled, verb="nack", **PLACE) == nacked
    assert total(rig, settled, verb="reject", **PLACE) == rejected
    assert total(rig, "raftline_topic_dead_letters_total", topic=TOPIC) == rejected
    listed = ask(first, "GET", f"/v1/groups?topic={TOPIC}")["groups"]
    lag = next(row["lag"] for row in listed if row["group"] == GROUP)
    assert total(rig, "raftline_group_lag_messages", kind="work", **PLACE) == lag
    ages = [
        value
        for name in rig.names
        for row, value in scrape(rig.node(name).http)["raftline_group_lag_seconds"]
        if row["topic"] == TOPIC
    ]
    assert 0 < max(ages) <= time.monotonic() - began + 1

    read = 0
    for partition in range(3):
        path = f"/v1/topics/{TOPIC}/partitions/{partition}/messages?limit=10000"
        read += len(ask(first, "GET", path)["messages"])
    assert read == stored
    assert total(rig, "raftline_topic_read_messages_total", topic=TOPIC) == read

    joined = ask(first, "POST", "/v1/groups/readers/join", {"topics": [TOPIC]})
    assert joined["member_id"]
    stream = {"topic": TOPIC, "group": "readers", "kind": "stream"}
    assert total(rig, "raftline_group_lag_messages", **stream) == stored
    assert total(rig, "raftline_group_members", group="readers") == 1

    appended = total(rig, "raftline_append_seconds_count")
    assert BATCHES <= appended <= stored + 50
    assert total(rig, "raftline_settle_seconds_count") > 0
    assert total(rig, "raftline_receive_seconds_count") > 0
    ask(first, "PATCH", f"/v1/topics/{TOPIC}", {"settings": {"archive": "required"}})
    with contextlib.closing(Fenced(first)) as jobs:
        jobs.stage(TOPIC, 0, "job", 0, 0, 0, 0, seal([b"staged"], [1]))
        assert jobs.archived(TOPIC, 0, 1) == 1
    assert total(rig, "raftline_partition_archived_end", topic=TOPIC) == 1
    assert total(rig, "raftline_topic_staged_bytes", topic=TOPIC) > 0
    assert total(rig, "raftline_topic_queries", topic=TOPIC) == 1

    sync = scrape(first)
    assert sync["raftline_wal_sync_seconds_count"][0][1] > 0
    assert sync["raftline_wal_sync_seconds_sum"][0][1] > 0
    assert sync["raftline_disk_free_bytes"][0][1] > 0
    seen = {
        name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
        for node in rig.names
        for name in (*scrape(rig.node(node).http), "raftline_raft_committed_entries")
    }
    seen |= {f"{name}_sum" for name in seen}
    assert set(METRICS) - seen <= {"raftline_requests_refused_total"}  # nothing was refused


def test_a_node_that_dies_is_seen_and_elections_are_counted(make_rig) -> None:
    rig: Rig = make_rig(nodes=3)
    first = rig.node(rig.names[0]).http
    ask(first, "POST", "/v1/topics", {"name": TOPIC, "num_partitions": 6})
    publish(rig, 0, 60)
    leader = rig.leader_of(TOPIC)
    won = total(rig, "raftline_elections_won_total")
    rig.kill(leader)
    watcher = next(rig.node(name).http for name in rig.running())

    def silent() -> float:
        rows = scrape(watcher)["raftline_nodes"]
        return sum(value for row, value in rows if row["state"] == "silent")

    wait_for(lambda: silent() == 1, 20)
    wait_for(lambda: scrape(watcher)["raftline_shards_leaderless"][0][1] == 0, 20)
    assert won >= 7
    assert total(rig, "raftline_leader_changes_total") > 0
    assert total(rig, "raftline_shards_under_replicated") > 0
    rig.restart(leader)
    wait_for(lambda: total(rig, "raftline_shards_under_replicated") == 0, 30)


def test_a_node_starts_without_what_reads_metrics() -> None:
    """Nothing heavy is loaded for metrics, before or after a scrape."""
    code = (
        "import sys, raftline.server.process, raftline.gateways.http.gateway\n"
        "from raftline.telemetry.metrics import Board\n"
        "Board().render()\n"
        "print([m for m in sys.modules if m.startswith(('prometheus', 'opentelemetry'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
