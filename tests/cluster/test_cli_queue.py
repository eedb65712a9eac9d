"""The command line on a real cluster: sending, working, replaying, looking, dead letters."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftline.chaos.rig import Rig
from raftline.client.caller import Caller
from tests.cluster.shell import Shell

NODES = 3


@pytest.fixture(scope="module")
def rig(module_path: Path) -> Iterator[Rig]:
    rig = Rig(module_path / "cli", nodes=NODES)
    try:
        rig.start_all()
        yield rig
    finally:
        rig.close()


@pytest.fixture
def shell(rig: Rig, capfd: pytest.CaptureFixture[str]) -> Shell:
    return Shell(rig, capfd)


def test_a_message_is_sent_leased_acked_and_traced(shell: Shell) -> None:
    (name,) = shell.lines("produce", "orders", "--key", "k1", "-m", "hello", "--producer", "shop")
    assert shell.lines("consume", "orders", "--group", "billing", "--member", "b-1") == ["hello"]
    assert shell.lines("consume", "orders", "--group", "billing") == []
    assert shell.lines("consume", "orders", "--group", "audit") == ["hello"], "another group"
    assert shell.lines("consume", "orders") == ["hello"], "the log keeps it"

    shown = shell.run("trace", name).out
    assert f"Message: {name}\nTopic: orders\n" in shown
    words = [line.split()[2] for line in shown.splitlines() if line.startswith(("├─", "└─"))]
    assert words[:2] == ["PUBLISHED", "REPLICATED"]
    assert words.count("DELIVERED") == words.count("ACKNOWLEDGED") == 2
    assert words[-1] == "RETAINED"
    assert "producer=shop" in shown
    assert "consumer=b-1" in shown
    assert "nodes=[node-1, node-2, node-3]" in shown
    assert "Delivery Attempts (billing): 1" in shown
    told = shell.run("trace", name, "--json").json()
    assert [line["event"] for line in told["timeline"]] == words
    topic, partition, offset = name.rsplit(".", 2)
    assert shell.run("trace", f"{topic}/{partition}@{offset}", "--json").json()["topic"] == "orders"


def test_lines_of_standard_input_with_everything_a_message_can_have(shell: Shell) -> None:
    words = (
        "produce",
        "wishes",
        "--priority",
        "high",
        "--header",
        "a=b",
        "--header=c=d",
        "-k",
        "k",
    )
    done = subprocess.run(
        [sys.executable, "-m", "raftline", *words, "--server", shell.rig.node("node-2").http],
        input='{"order_id": 123}\nsecond\n', capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = done.stdout.split()
    assert len(names) == 2
    told = shell.run("message", "get", names[0], "--json").json()
    assert (told["value"], told["key"], told["priority"]) == ('{"order_id": 123}', "k", 10)
    assert (told["headers"]["a"], told["headers"]["c"]) == ("b", "d")
    shell.run("produce", "wishes", "-m", "first", "-k", "k", "--priority", "critical")
    taken = shell.rows("consume", "wishes", "--group", "g")
    assert [(row["priority"], row["attempt"]) for row in taken] == [(20, 1), (10, 1), (10, 1)]
    values = [row["value"] for row in taken]
    assert values == ["first", '{"order_id": 123}', "second"], "the highest priority first"


def test_a_dedup_key_stores_once(shell: Shell) -> None:
    first = shell.rows("produce", "once", "-m", "a", "--dedup-key", "x")
    again = shell.rows("produce", "once", "-m", "b", "--dedup-key", "x")
    assert again[0]["id"] == first[0]["id"]
    assert again[0]["duplicate"] is True
    assert shell.lines("consume", "once") == ["a"]


def test_a_window_of_time_is_replayed_exactly(shell: Shell) -> None:
    shell.run("topic", "create", "clock", "--partitions", 2)
    times = [100, 500, 300, 200, 400, 600]
    with Caller(shell.rig.node("node-1").http) as caller:
        body = [{"value": str(t), "timestamp": 1_700_000_000_000 + t} for t in times]
        caller.call("POST", "/v1/topics/clock/messages", {"messages": body})
    window = (
        "--from-time", "2023-11-14T22:13:20.200Z", "--to-time", "2023-11-14T22:13:20.500Z",
    )  # fmt: skip
    want = ["200", "300", "400"]
    assert sorted(shell.lines("consume", "clock", *window)) == want
    for _ in range(2):  # the same command replays the same messages
        assert sorted(shell.lines("consume", "clock", "--group", "replay", *window)) == want
    left = shell.lines("consume", "clock", "--group", "replay")
    assert {"500", "600"} <= set(left), "what is behind the window stays with the group"
    assert not {"200", "300", "400"} & set(left)
    late = shell.lines("consume", "clock", "--group", "late", "--from-time", window[3])
    assert sorted(late) == ["500", "600"], "a new group begins there"


def test_where_a_group_begins(shell: Shell) -> None:
    for value in ("a", "b", "c"):
        shell.run("produce", "starts", "-k", "one", "-m", value)
    assert shell.lines("consume", "starts", "-n", 2) == ["a", "b"]
    assert shell.lines("consume", "starts", "-g", "g", "-n", 1) == ["a"]
    assert shell.lines("consume", "starts", "-g", "g") == ["b", "c"]
    assert shell.lines("consume", "starts", "-g", "g", "--from-beginning") == ["a", "b", "c"]
    assert shell.lines("consume", "starts", "-g", "g", "--from-offset", 2) == ["c"]
    assert shell.lines("consume", "starts", "-g", "new", "--from-latest") == []
    assert shell.lines("consume", "starts", "-g", "g", "--from-time", "-1h", "-n", 2) == ["a", "b"]
    told = shell.run("group", "show", "g", "--json").json()
    assert sum(row["lag"] for row in told["work"]["starts"]) == 1
    assert "work group on starts" in shell.run("group", "show", "g").out


def test_an_interrupted_reader_gives_back_what_it_did_not_print(shell: Shell) -> None:
    big = [{"value": "x" * 70_000}] * 30
    with Caller(shell.rig.node("node-1").http) as caller:
        caller.call("POST", "/v1/topics/pipe/messages", {"messages": big})
    done = subprocess.run(
        f"{sys.executable} -m raftline --server {shell.rig.node('node-1').http} "
        "consume pipe --group g | head -c 10 >/dev/null",
        shell=True, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    rest = shell.lines("consume", "pipe", "--group", "g")
    assert 20 < len(rest) <= 30, "at most what fits a pipe was acked"


def test_followers_wait_for_more(shell: Shell) -> None:
    shell.run("topic", "create", "live", "--partitions", 1)
    words = ["consume", "live", "--group", "f", "--follow", "-n", "2"]
    command = [sys.executable, "-m", "raftline", "--server", shell.rig.node("node-1").http, *words]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        time.sleep(1)
        shell.run("produce", "live", "-m", "one")
        shell.run("produce", "live", "-m", "two")
        assert child.communicate(timeout=20)[0] == "one\ntwo\n"
        assert child.returncode == 0
    finally:
        child.kill()


def test_waiting_messages_are_listed_moved_and_cancelled(shell: Shell) -> None:
    (later,) = shell.lines("produce", "timed", "-m", "later", "--delay", "5m")
    (never,) = shell.lines("produce", "timed", "-m", "never", "--deliver-at", "+2h")
    listed = shell.run("scheduled", "list", "timed", "--json").json()
    assert [row["id"] for row in listed["messages"]] == [later, never]
    assert "2 wait in timed" in shell.run("scheduled", "list", "timed").out
    assert shell.run("message", "get", later, "--json").json()["state"] == "waiting"
    assert shell.lines("consume", "timed", "--group", "g") == []
    assert shell.lines("scheduled", "cancel", never) == [f"cancelled {never}"]
    assert "is due" in shell.run("scheduled", "move", later, "--delay", "0s").out
    assert shell.lines("consume", "timed", "--group", "g", "--follow", "-n", 1) == ["later"]
    shown = shell.run("scheduled", "show", later, "--json").json()
    assert shown["state"] == "released"
    assert shell.run("message", "get", later, "--json").json()["value"] == "later"
    assert shell.command("scheduled", "move", later, "--delay", "1h").exit == 6
    assert shell.command("scheduled", "show", "timed.0.w99999").exit in (2, 4)
    words = [line["event"] for line in shell.run("trace", later, "--json").json()["timeline"]]
    assert {"SCHEDULED", "MOVED", "RELEASED", "DELIVERED", "ACKNOWLEDGED"} <= set(words)


def test_groups_of_both_kinds(shell: Shell) -> None:
    for value in ("a", "b"):
        shell.run("produce", "kinds", "-k", "x", "-m", value)
    shell.run("consume", "kinds", "-g", "worked")
    listed = shell.run("group", "list", "--topic", "kinds", "--json").json()["groups"]
    assert [(row["group"], row["kind"], row["lag"]) for row in listed] == [("worked", "work", 0)]
    shell.run(
        "group", "reset", "streamed", "--topic", "kinds", "--to", "latest", "--kind", "stream"
    )
    out = shell.run("group", "list", "--topic", "kinds").out
    assert "stream" in out
    assert "work" in out
    reset = ("group", "reset", "worked", "--topic", "kinds", "--to")
    dry = shell.run(*reset, "earliest", "--dry-run", "--json").json()
    assert dry["dry_run"]
    assert shell.lines("consume", "kinds", "-g", "worked") == []
    shell.run(*reset, "1")
    assert shell.lines("consume", "kinds", "-g", "worked") == ["b"]
    shell.run(*reset, "-1h")
    assert shell.lines("consume", "kinds", "-g", "worked") == ["a", "b"]
    assert shell.command("group", "reset", "nobody", "--topic", "kinds", "--to", "1").exit == 4
    shell.run("group", "reset", "made", "--topic", "kinds", "--to", "1", "--create")
    assert shell.lines("consume", "kinds", "-g", "made") == ["b"]
    shell.run("group", "delete", "worked")
    assert shell.command("group", "show", "worked").exit == 4


def test_looking_at_messages_changes_nothing(shell: Shell) -> None:
    shell.run("topic", "create", "looks", "--partitions", 2)
    for value in ("[bold]a", "b", "c"):
        shell.run("produce", "looks", "-k", value, "-m", value)
    peeked = shell.run("message", "peek", "looks", "--offset", 0, "--json").json()["messages"]
    assert sorted(row["value"] for row in peeked) == ["[bold]a", "b", "c"]
    assert "[bold]a" in shell.run("message", "peek", "looks").out
    found = shell.run("message", "search", "looks", "--key", "b", "--json").json()["messages"]
    assert [row["key"] for row in found] == ["b"]
    shell.run("consume", "looks", "-g", "g", "-n", 1)
    settled = shell.run(
        "message", "search", "looks", "--group", "g", "--state", "settled", "--json"
    )
    assert len(settled.json()["messages"]) == 1
    assert shell.command("message", "get", "looks.0.999").exit == 4
    assert shell.command("message", "get", "what").exit == 2


def test_dead_letters_are_listed_redriven_and_purged(shell: Shell) -> None:
    shell.run("topic", "create", "sick", "--partitions", 1, "--set", "max_retries=0")
    for value in range(5):
        shell.run("produce", "sick", "-k", f"k{value}", "-m", value)
    failing = ("worker", "--topic", "sick", "--group", "w", "--exec", "exit 7", "--drain")
    assert {row["outcome"] for row in shell.rows(*failing)} == {"nacked"}
    for _ in range(50):
        letters = shell.run("dlq", "list", "sick", "--json").json()["letters"]
        if len(letters) == 5:
            break
        time.sleep(0.1)
    assert [row["reason"] for row in letters] == ["MAX_RETRIES"] * 5
    assert letters[0]["error"] == "exit code 7"
    assert "exit code 7" in shell.run("dlq", "list", "sick").out
    assert "reason: MAX_RETRIES" in shell.run("dlq", "show", letters[0]["id"]).out
    assert (
        shell.run("dlq", "list", "sick", "--key", "k3", "--json").json()["letters"][0]["key"]
        == "k3"
    )

    assert shell.command("dlq", "redrive", "sick").exit == 2, "nothing is done by accident"
    dry = shell.run("dlq", "redrive", "sick", "--all", "--dry-run").out
    assert dry == "5 would be redriven\n"
    assert shell.run("dlq", "redrive", "sick", letters[0]["id"]).out == "1 redriven\n"
    assert shell.lines("consume", "sick", "-g", "w") == ["0"]
    done = shell.run("dlq", "redrive", "sick", "--key", "k1", "--rate", 100, "--json").json()
    assert (done["matched"], done["redriven"]) == (1, 1)
    assert shell.run("dlq", "purge", "sick", "--all").out == "5 purged\n"
    assert shell.run("dlq", "list", "sick", "--state", "dead", "--json").json()["letters"] == []


def test_errors_have_their_exit_codes(shell: Shell) -> None:
    shell.run("topic", "create", "there")
    assert shell.command("topic", "create", "there").exit == 5
    assert shell.command("consume", "nowhere").exit == 4
    assert shell.command("consume", "nowhere", "--group", "g").exit == 4
    assert shell.command("produce", "there", "-m", "x", "--priority", "999").exit == 2
    assert shell.command("produce", "there", "-m", "x", "--delay", "9999h").exit == 2
    assert shell.command("produce", "there", "-m", "x", "--delay", "soon").exit == 2
    assert shell.command("trace", "there.0.999").exit in (2, 4)
    assert shell.command("topic", "list", server="http://127.0.0.1:9").exit == 7
    assert shell.command("chaos", "--faults", "none").exit == 2
    assert shell.command("pipeline", "nothing").exit == 2


def test_topics_from_their_making_to_their_end(shell: Shell) -> None:
    shell.run("topic", "create", "whole", "--partitions", 2, "--replication-factor", 3,
        "--retention", "2d", "--set", "lease_ms=45s", "--set", "lanes=3")  # fmt: skip
    told = shell.run("topic", "show", "whole", "--json").json()
    assert (told["num_partitions"], told["replication_factor"]) == (2, 3)
    assert told["settings"]["retention_ms"] == 2 * 86_400_000
    assert (told["settings"]["lease_ms"], told["settings"]["lanes"]) == (45_000, 3)
    shell.run("topic", "set", "whole", "max_retries=7")
    assert shell.run("topic", "describe", "whole", "--json").json()["settings"]["max_retries"] == 7
    assert "whole" in shell.run("topic", "list").out
    shell.run("topic", "delete", "whole")
    assert shell.command("topic", "show", "whole").exit == 4


def test_a_bench_of_half_a_second(shell: Shell) -> None:
    report = shell.run("bench", "--seconds", 0.5, "-c", 2, "--json").json()
    assert report["publish"]["messages_per_s"] > 0
    assert report["lease_and_ack"]["messages_per_s"] > 0
    assert shell.command("topic", "show", "raftline-bench").exit == 4
