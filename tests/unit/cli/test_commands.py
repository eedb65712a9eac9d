"""Commands against a scripted node: what is asked, what is printed, which exit code."""

import json
import os
from typing import Any

import pytest

from tests.unit.cli.node_double import Answer, ScriptedServer, refusal

PARTITIONS = [
    {"partition": n, "leader": 1, "replicas": [1, 2, 3], "log_start": 0, "commit_end": 3,
     "bytes": 9, "state": "ok"}
    for n in range(2)
]  # fmt: skip
TOPIC = {
    "name": "orders",
    "num_partitions": 2,
    "created_ms": 1_769_860_800_000,
    "replication_factor": 3,
    "settings": {"retention_ms": 604_800_000},
    "partitions": PARTITIONS,
}
CLUSTER = {
    "cluster": "c0ffee00", "node": 1, "name": "node-1", "ready": True, "reason": "", "shards": 3,
    "catalog_leader": 2, "leaderless": ["orders/1"], "quarantined": [],
    "nodes": [
        {"id": n, "name": f"node-{n}", "state": "live", "rack": "", "http": "h", "peer": "p",
         "free_bytes": 1 << 30, "clock_offset_ms": -2}
        for n in (1, 2)
    ],
}  # fmt: skip
STAMPS = [100, 300, 200]  # senders' clocks: not in order


def log(method: str, path: str, query: dict[str, list[str]], body: Any) -> Answer:
    """Two partitions of three messages each; the second holds bytes that are no text."""
    if path == "/v1/topics/orders":
        return 200, TOPIC
    if path.endswith("/offsets"):
        if "time" not in query:
            return 200, {"log_start": 0, "commit_end": 3}
        at = int(query["time"][0])
        first = next((n for n, stamp in enumerate(STAMPS) if stamp >= at), -1)
        return 200, {"offset": first, "timestamp": 0, "commit_end": 3}
    if path.endswith("/messages") and method == "GET":
        offset, partition = int(query["offset"][0]), int(path.split("/")[5])
        if offset > 3:
            return refusal(416, "offset_out_of_range", f"{offset} is outside the log")
        value = {"value_base64": "/w=="} if partition else {"value": "text"}
        rows = [
            {
                "offset": n,
                "timestamp": STAMPS[n],
                "key": None,
                "id": f"m{n}",
                "headers": {},
                **value,
            }
            for n in range(offset, 3)
        ][: int(query["limit"][0])]
        return 200, {"messages": rows, "next_offset": offset + len(rows), "commit_end": 3}
    if path.endswith("/messages"):
        rows = body["messages"]
        return 200, {
            "results": [
                {"id": f"id-{n}", "partition": 0, "offset": n, "error": None}
                for n in range(len(rows))
            ]
        }
    return refusal(404, "unknown_route", path)


def test_a_peek_of_all_partitions_shows_those_that_have_the_offset(raftline) -> None:
    """One that ended before it, or began behind it, refused all of them."""
    bounds = [(0, 1), (4, 9)]  # of the log, by partition

    def script(method: str, path: str, query: dict[str, list[str]], body: Any) -> Answer:
        if path == "/v1/topics/orders":
            return 200, TOPIC
        first, end = bounds[int(path.split("/")[5])]
        if path.endswith("/offsets"):
            return 200, {"log_start": first, "commit_end": end}
        offset = int(query["offset"][0])
        if not first <= offset <= end:
            return refusal(416, "offset_out_of_range", f"{offset} is outside the log")
        row = {"id": "m", "offset": offset, "timestamp": 5, "key": None, "value": "v"}
        return 200, {"messages": [row] if offset < end else []}

    with ScriptedServer(script) as server:
        words = ("message", "peek", "orders", "--offset", "2", "--server", server.url)
        ran = raftline(*words, "--json")
        assert ran.code == 0, ran.err
        found = [(row["partition"], row["offset"]) for row in json.loads(ran.out)["messages"]]
        assert found == [(1, 4)]
        assert raftline(*words, "-p", "0").code == 4


def told(code: str) -> dict[str, Any]:
    error = {"code": code, "message": "no", "hint": "try"} if code else None
    return {"lease_token": "t0", "error": error}


def acked(raftline, monkeypatch: pytest.MonkeyPatch, *answers: Answer) -> tuple[int, str, int]:
    """Have one message printed and acked; return exit code, what was said, and how many acks."""
    monkeypatch.setattr("raftline.cli.work.PAUSE_MS", 1)
    acks = iter(answers)

    def script(method: str, path: str, query: dict[str, list[str]], body: Any) -> Answer:
        if path == "/v1/topics/orders":
            return 200, TOPIC
        if path.endswith("/receive"):
            row = {"partition": 0, "offset": 0, "timestamp": 5, "key": None, "value": "v"}
            return 200, {"messages": [{**row, "attempt": 1, "lease_token": "t0"}]}
        return next(acks) if path == "/v1/messages/ack" else (200, {})

    words = ("consume", "orders", "--group", "g", "--follow", "-n", "1", "--server")
    with ScriptedServer(script) as server:
        ran = raftline(*words, server.url)
    assert ran.out == "v\n"
    return ran.code, ran.err, sum(path == "/v1/messages/ack" for _, path, _ in server.asked)


@pytest.mark.parametrize(
    "first",
    [(0, None), refusal(503, "no_quorum"), refusal(429, "over_limit"),
     (200, {"results": [told("no_quorum")]})],
    ids=["no answer", "no quorum", "over the limit", "one of many"],
)  # fmt: skip
def test_an_ack_that_is_not_answered_is_sent_again(
    raftline, first: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that died between a print and its ack ended consume --follow; it was printed again."""
    for second in (200, {"results": [told("")]}), refusal(409, "lease_lost"):
        assert acked(raftline, monkeypatch, first, second) == (0, "", 2)


@pytest.mark.parametrize(
    "answer", [refusal(409, "lease_lost"), (200, {"results": [told("lease_lost")]})]
)
def test_an_ack_that_came_too_late_ends_nothing(
    raftline, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all acks of a call were late, the command ended with that."""
    code, said, count = acked(raftline, monkeypatch, answer)
    assert (code, count) == (6, 1)
    assert said == "1 acks came too late and were refused: these messages come again\n"


@pytest.mark.parametrize(
    ("code", "status", "exit_code"),
    [
        ("unknown_topic", 404, 4), ("topic_exists", 409, 5), ("invalid_topic", 400, 2),
        ("wrong_cluster", 409, 6), ("no_quorum", 503, 7), ("over_limit", 429, 8),
        ("too_large", 413, 8),
        ("timed_out", 504, 7), ("batch_too_large", 413, 2), ("from_the_future", 500, 1),
    ],
)  # fmt: skip
def test_a_refusal_is_text_and_an_exit_code(raftline, code, status, exit_code) -> None:
    with ScriptedServer(lambda *_: refusal(status, code, "what", "do this")) as server:
        ran = raftline("topic", "create", "orders", "--server", server.url)
    assert ran.code == exit_code
    assert ran.err == "error: what\nhint:  do this\n"
    assert ran.out == ""


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "create"),
        ("topic", "crate", "x"),
        ("topic", "create", "x", "--partitions", "many"),
        ("topic", "create", "x", "--set", "novalue"),
        ("topic", "create", "x", "--retention", "soon"),
        ("topic", "create", "x", "--retention", "7"),  # days? it was 7 ms
        ("topic", "set", "x", "--retention", "1_000"),
        ("produce", "x", "-m", "a", "--delay", "5"),
        ("produce", "x", "-m", "a", "--deliver-at", "+5"),
        ("worker", "--lease", "30"),
        ("topic", "list", "--timeout", "15"),
        ("topic", "set", "x"),
        ("consume", "x", "--from-beginning", "--from-offset", "3"),
        ("consume", "x", "--from-time", "yesterday-ish"),
        ("consume", "x", "--follow", "--to-time", "now"),
        ("produce", "x", "-m", "a", "-f", "b"),
        ("produce", "x", "--nope"),
        ("cluster", "move", "orders", "--from", "1", "--to", "2"),
        ("topic", "list", "--timeout", "soon"),
        ("topic", "list", "--server", "ftp://x"),
        ("nonsense",),
        ("topic", "list", "--server"),
        ("topic", "delete", "orders", "--server", ""),
        ("topic", "list", "--server", "http://[::1"),
        ("topic", "list", "--server", "http://my..host:8080"),
        ("task", "enqueue", "--type", "x", "--payload", "[" * 100_000),
        ("topic", "list", "--timeout", "99999999999999999999s"),
        ("produce", "", "-m", "x"),
        ("consume", ""),
        ("topic", "show", ""),
        ("topic", "delete", ""),
        ("group", "show", ""),
        ("message", "peek", ""),
        ("task", "get", ""),
        ("scheduled", "cancel", "orders.0.w1", ""),
        ("worker", "--exec", " ", "--drain"),
        ("dlq", "list", "orders", "--state", "deadd"),
        ("dlq", "purge", "orders", "--reason", "REJECTD"),
        ("up", "--set", "nonsense"),
        ("up", "--set", "no.such=1"),
        ("up", "--set", "wal.bytes_max=abc"),
    ],
)
def test_misuse_ends_with_2_and_a_reason(raftline, words) -> None:
    ran = raftline(*words)
    assert ran.code == 2
    assert ran.err.startswith("error: ")
    assert "Traceback" not in ran.err


def test_topic_create_sends_what_was_asked(raftline) -> None:
    with ScriptedServer(lambda *_: (201, {"name": "orders"})) as server:
        ran = raftline(
            "topic", "create", "orders", "-partitions", "4", "--replication-factor=2",
            "--retention", "7d", "--set", "segment_bytes=64MiB", "--set", "partitioner=crc32",
            "--server", server.url,
        )  # fmt: skip
    assert (ran.code, ran.out) == (0, "created orders\n")
    assert server.asked == [
        ("POST", "/v1/topics", {
            "name": "orders", "num_partitions": 4, "replication_factor": 2,
            "settings": {
                "segment_bytes": 64 << 20, "partitioner": "crc32", "retention_ms": 604_800_000,
            },
        })
    ]  # fmt: skip


def test_settings_are_shown_as_they_are_set(raftline) -> None:
    """``headers=True`` was shown, and refused when it was typed."""
    topic = {"settings": {"headers": True, "lanes": 5}, "partitions": []}
    with ScriptedServer(lambda *_: (200, topic)) as server:
        ran = raftline("topic", "show", "t", "--server", server.url)
    assert ran.out.startswith("t: headers=true, lanes=5")
    assert not {"True", "False"} & set(raftline("topic", "settings").out.split())


def test_no_dead_letters_at_all_and_none_like_these(raftline) -> None:
    with ScriptedServer(lambda *_: (200, {"letters": [], "next": None})) as server:
        line = ("dlq", "list", "t", "--server", server.url)
        assert raftline(*line).out == "t has no dead letters\n"
        assert raftline(*line, "--reason", "EXPIRED").out == "t has no such dead letters\n"


def test_retention_may_be_a_size(raftline) -> None:
    with ScriptedServer(lambda *_: (200, {})) as server:
        assert (
            raftline("topic", "set", "t", "--retention", "10GB", "--server", server.url).code == 0
        )
    assert server.asked[0] == ("PATCH", "/v1/topics/t", {"settings": {"retention_bytes": 10**10}})


def test_topic_list_and_show(raftline) -> None:
    with ScriptedServer(lambda _m, path, *_: (200, {"topics": [TOPIC]} if path.endswith("s")
                        and not path.endswith("orders") else TOPIC)) as server:  # fmt: skip
        shown = raftline("topic", "list", "--server", server.url)
        one = raftline("topic", "show", "orders", "--server", server.url)
        machine = raftline("--json", "topic", "list", "--server", server.url)
    assert "orders" in shown.out
    assert "7d" in shown.out
    assert "1,2,3" in one.out
    assert json.loads(machine.out) == {"topics": [TOPIC]}


def test_the_environment_names_the_server(raftline, monkeypatch) -> None:
    with ScriptedServer(lambda *_: (200, {"topics": []})) as server:
        monkeypatch.setenv("RAFTLINE_SERVER", server.url)
        assert raftline("topic", "list").code == 0
    assert len(server.asked) == 1


def test_produce_one(raftline) -> None:
    with ScriptedServer(log) as server:
        ran = raftline("produce", "orders", "--key", "k", "-m", "--dash", "--server", server.url)
    assert (ran.code, ran.out) == (0, "id-0\n")
    assert server.asked[0][2] == {"messages": [{"value": "--dash", "key": "k"}]}


def test_programs_get_misuse_as_json(raftline) -> None:
    ran = raftline("--json", "topic", "list", "too", "much")
    assert ran.code == 2
    error = json.loads(ran.err)["error"]
    assert (error["code"], error["hint"]) == ("invalid_argument", "raftline topic list --help")


def test_programs_get_errors_as_json(raftline) -> None:
    with ScriptedServer(lambda *_: refusal(404, "unknown_topic", "what", "do this")) as server:
        ran = raftline("topic", "show", "orders", "--json", "--server", server.url)
    assert ran.code == 4
    assert json.loads(ran.err) == {
        "error": {"code": "unknown_topic", "message": "what", "hint": "do this"}
    }


def test_produce_a_file_line_by_line(raftline, tmp_path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\r\n\xff\n\nlast")
    with ScriptedServer(log) as server:
        ran = raftline("produce", "orders", "-f", str(file), "--server", server.url)
    assert ran.code == 0
    sent = [row for _, _, body in server.asked for row in body["messages"]]
    assert sent == [{"value": "one"}, {"value_base64": "/w=="}, {"value": ""}, {"value": "last"}]


def test_produce_standard_input(raftline, monkeypatch) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"a\nb\n")
    os.close(writing)
    with ScriptedServer(log) as server, os.fdopen(reading) as piped:
        monkeypatch.setattr("sys.stdin", piped)
        ran = raftline("produce", "orders", "--server", server.url)
    assert (ran.code, ran.out) == (0, "id-0\nid-1\n")


def test_produce_says_which_messages_failed(raftline, tmp_path) -> None:
    file = tmp_path / "lines"
    file.write_text("a\nb\nc\n")
    wrong = {"code": "over_limit", "message": "too much", "hint": "less"}
    rows = [
        {"id": "x", "partition": 0, "offset": 0, "error": None},
        {"id": None, "partition": None, "offset": None, "error": wrong},
        {"id": "z", "partition": 0, "offset": 1, "error": None},
    ]
    with ScriptedServer(lambda *_: (200, {"results": rows})) as server:
        ran = raftline("produce", "orders", "-f", str(file), "--server", server.url)
    assert (ran.code, ran.out, ran.err) == (8, "x\nz\n", "error: too much\nhint:  less\n")


def test_a_missing_file_is_named(raftline) -> None:
    ran = raftline("produce", "orders", "-f", "/nonexistent/lines")
    assert ran.code == 2
    assert "/nonexistent/lines" in ran.err


def consumed(raftline, *words: str) -> list[tuple[int, int]]:
    with ScriptedServer(log) as server:
        ran = raftline("consume", "orders", *words, "--json", "--server", server.url)
    assert ran.code == 0, ran.err
    rows = [json.loads(line) for line in ran.out.splitlines()]
    return [(row["partition"], row["offset"]) for row in rows]


def test_consume_reads_every_partition_in_order(raftline) -> None:
    every = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert consumed(raftline) == every
    assert consumed(raftline, "--from-beginning=true") == every
    assert consumed(raftline, "--partition", "1", "--from-offset", "2") == [(1, 2)]
    assert consumed(raftline, "-n", "4") == every[:4]


def test_consume_begins_with_the_first_message_also_if_that_has_no_time(raftline) -> None:
    def timeless(method: str, path: str, query: dict[str, list[str]], body: Any) -> Answer:
        if "time" in query:
            return 200, {"offset": -1, "timestamp": -1, "commit_end": 3}
        return log(method, path, query, body)

    with ScriptedServer(timeless) as server:
        ran = raftline("consume", "orders", "--partition", "0", "--server", server.url)
    assert (ran.code, ran.out) == (0, "text\ntext\ntext\n")


def test_one_offset_for_several_partitions_may_be_behind_the_end_of_some(raftline) -> None:
    assert consumed(raftline, "--from-offset", "2") == [(0, 2), (1, 2)]
    assert consumed(raftline, "--from-offset", "9") == []


def test_a_window_of_time_is_exact_though_clocks_were_not(raftline) -> None:
    window = ("--from-time", "1970-01-01T00:00:00.200Z", "--to-time", "1970-01-01T00:00:00.300Z")
    assert consumed(raftline, "--partition", "0", *window) == [(0, 2)]


def test_consume_prints_values_as_they_are(capfdbinary) -> None:
    from raftline.cli import main

    with ScriptedServer(log) as server:
        assert main(["consume", "orders", "-n", "4", "--server", server.url]) == 0
    assert capfdbinary.readouterr().out == b"text\ntext\ntext\n\xff\n"


def test_consume_shows_headers_that_are_not_text(raftline) -> None:
    """What it prints is a backup (docs/OPERATIONS.md)."""

    def coded(*asked: Any) -> Answer:
        status, reply = log(*asked)
        for row in reply.get("messages", ()):
            row["headers_base64"] = {"h": ["/w==", "/g=="]}
        return status, reply

    with ScriptedServer(coded) as server:
        ran = raftline("consume", "orders", "-n", "1", "--json", "--server", server.url)
    assert json.loads(ran.out)["headers_base64"] == {"h": ["/w==", "/g=="]}


def test_cluster_status_and_names_of_nodes(raftline) -> None:
    with ScriptedServer(lambda method, *_: (200, CLUSTER if method == "GET" else {})) as server:
        shown = raftline("cluster", "status", "--server", server.url)
        moved = raftline(
            "cluster", "move", "orders/1", "--from", "node-1", "--to", "2", "--server", server.url
        )
        raftline("cluster", "move", "orders/1", "--to", "2", "--server", server.url)
        lost = raftline("cluster", "remove", "node-9", "--server", server.url)
    more = {"topic": "orders", "partition": 1, "to_node": 2}
    assert ("POST", "/v1/cluster/move", more) in server.asked
    assert "catalog led by node-2" in shown.out
    assert "without leader: orders/1" in shown.out
    assert moved.code == 0
    assert (
        "POST",
        "/v1/cluster/move",
        {"topic": "orders", "partition": 1, "from_node": 1, "to_node": 2},
    ) in server.asked
    assert lost.code == 4
    assert "node-9" in lost.err


def test_recover_says_that_there_was_nothing_to_do(raftline) -> None:
    with ScriptedServer(lambda *_: (200, {"forced": [], "lost": []})) as server:
        ran = raftline("cluster", "recover", "--accept-loss", "--server", server.url)
    assert (ran.code, ran.out) == (0, "nothing to recover: no majority is missing\n")


def test_recover_says_whom_it_removed(raftline) -> None:
    """It forgets nodes that do not answer also where nothing lacks a majority."""
    done = False

    def script(method: str, *_: Any) -> Answer:
        nonlocal done
        if method == "GET":
            nodes = CLUSTER["nodes"][1:] if done else CLUSTER["nodes"]
            return 200, {**CLUSTER, "nodes": nodes}
        done = True
        return 200, {"forced": [], "lost": []}

    with ScriptedServer(script) as server:
        ran = raftline("cluster", "recover", "--accept-loss", "--server", server.url)
    name = CLUSTER["nodes"][0]["name"]
    assert ran.out == f"recovered\n{name}: removed for good, it did not answer\n"


def test_recover_says_what_is_lost(raftline) -> None:
    reply = {"forced": ["orders/0: goes on from node 2 at entry 7"], "lost": ["orders/1"]}
    with ScriptedServer(lambda *_: (200, reply)) as server:
        ran = raftline("cluster", "recover", "--accept-loss", "--server", server.url)
    assert ran.code == 0
    assert reply["forced"][0] in ran.out
    assert "orders/1: lost" in ran.out


@pytest.mark.parametrize(("identical", "code"), [(True, 0), (False, 9)])
def test_verify_fails_where_replicas_differ(raftline, identical, code) -> None:
    replica = {
        "node": 1, "log_start": 0, "commit_end": 3, "log": "ab", "state": "cd", "error": "",
    }  # fmt: skip
    shards = [{"name": "orders/1", "identical": identical, "replicas": [replica]}]
    reply = {"identical": identical, "shards": shards}
    with ScriptedServer(lambda *_: (200, reply)) as server:
        ran = raftline("cluster", "verify", "--server", server.url)
        machine = raftline("cluster", "verify", "--json", "--server", server.url)
    assert (ran.code, machine.code) == (code, code)
    assert json.loads(machine.out) == reply


def test_a_key_with_colons_is_shown_as_it_is(raftline) -> None:
    row = {"offset": 0, "timestamp": 0, "key": "user:key:7", "id": "m0", "value": ":package:"}
    page = {"messages": [row], "next_offset": 1, "commit_end": 1}
    with ScriptedServer(lambda *_: (200, page)) as server:
        got = raftline("message", "get", "orders.0.0", "--server", server.url)
    assert "key: user:key:7\n" in got.out
    assert got.out.endswith("\n:package:\n")


@pytest.mark.parametrize("timestamp", [1_700_000_000_000_000, -(1 << 62)])
def test_a_time_beyond_the_calendar_is_no_bug(raftline, timestamp: int) -> None:
    row = {"offset": 0, "timestamp": timestamp, "key": None, "id": "m0", "value": "text"}
    page = {"messages": [row], "next_offset": 1, "commit_end": 1}
    with ScriptedServer(lambda *_: (200, page)) as server:
        got = raftline("message", "get", "orders.0.0", "--server", server.url)
    assert (got.code, got.err) == (0, "")


@pytest.mark.parametrize("flag", ["--from-time", "--from-snapshot"])
def test_a_group_goes_back_to_the_first_of_all_times(raftline, flag: str) -> None:
    def script(method: str, path: str, query: dict[str, list[str]], body: Any) -> Answer:
        return 200, TOPIC if method == "GET" else {"messages": [], "partitions": []}

    with ScriptedServer(script) as server:
        ran = raftline(
            "consume", "orders", "--group", "replay", flag, "1970-01-01", "--server", server.url
        )
    assert ran.code == 0
    resets = [body for _, path, body in server.asked if path == "/v1/groups/replay/reset"]
    assert [body["time"] for body in resets] == [0]


def test_bytes_that_are_no_text_are_sent_as_they_were_typed(raftline) -> None:
    typed = b"caf\xe9".decode("utf-8", "surrogateescape")  # as Python hands arguments over
    with ScriptedServer(log) as server:
        ran = raftline("produce", "orders", "-m", typed, "--key", typed, "--server", server.url)
    assert (ran.code, ran.err) == (0, "")
    assert server.asked[-1][2]["messages"] == [
        {"value_base64": "Y2Fm6Q==", "key_base64": "Y2Fm6Q=="}
    ]


@pytest.mark.parametrize("text", ["--5", "²", "-"])
def test_what_only_looks_like_a_number_is_left_to_the_node(raftline, text: str) -> None:
    with ScriptedServer(lambda *_: refusal(400, "invalid_argument")) as server:
        ran = raftline("topic", "set", "t", f"max_retries={text}", "--server", server.url)
    assert ran.code == 2
    assert server.asked[0][2] == {"settings": {"max_retries": text}}


def test_every_setting_of_a_topic_takes_every_duration(raftline) -> None:
    with ScriptedServer(lambda *_: (200, {})) as server:
        line = ("topic", "set", "t", "lease_ms=1h30m", "delay_ms_max=1h30m", "backoff_ms_max=1.5m")
        assert raftline(*line, "--server", server.url).code == 0
    wanted = {"lease_ms": 5_400_000, "delay_ms_max": 5_400_000, "backoff_ms_max": 90_000}
    assert server.asked[0][2] == {"settings": wanted}
