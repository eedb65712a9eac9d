"""``raftline pipeline redrive``: dead letters chosen in SQL; each origin once, whatever happens."""

import json
from typing import Any

import pytest

import raftline
from raftline.cli import main
from raftline.cli.pipeline_redrive import changes
from raftline.client import clock
from raftline.client.caller import Caller
from raftline.client.fenced import Fenced
from raftline.client.line import Line
from raftline.model.errors import InvalidArgument, UnknownTopic
from raftline.pipeline import redrive
from raftline.pipeline.job import Job
from raftline.pipeline.redrive_letters import Content, Letter
from raftline.pipeline.redrive_work import Pace, Worker, _sealed
from tests.spark.pipeline_traffic import GROUP, fill, wait_for_letters

pytestmark = pytest.mark.spark
FIX = {
    "value": "replace(value, 'USD', 'EUR')",
    "headers": "map_concat(headers, map('fixed', 'yes'))",
}


def states(servers: str, topic: str) -> dict[str, int]:
    with Caller(servers) as caller:
        path = f"/v1/topics/{topic}/dlq"
        rows = caller.call("GET", path, query={"limit": 1000})["letters"]
    found: dict[str, int] = {}
    for row in rows:
        found[row["state"]] = found.get(row["state"], 0) + 1
    return found


def messages(servers: str, topic: str, partitions: int = 1) -> list[dict[str, Any]]:
    with Caller(servers) as caller:
        return [
            row
            for partition in range(partitions)
            for row in caller.call(
                "GET", f"/v1/topics/{topic}/partitions/{partition}/messages", query={"limit": 1000}
            )["messages"]
        ]


def run(servers: str, topic: str, where: str = "true", **options: Any) -> dict[str, Any]:
    with Job("redrive", servers) as job:
        return redrive.run(job, topic=topic, where=where, **options)


@pytest.fixture
def filled(spark: Any, servers: str, line: Line, topic: str) -> str:
    line.topics.create(topic, partitions=1)
    fill(line, servers, topic, 60)  # 0, 10 … 50 are dead
    return topic


def test_what_fits_a_predicate_is_delivered_again_where_it_was(
    servers: str, line: Line, filled: str
) -> None:
    done = run(servers, filled, "json(value, 'currency') = 'USD' and headers['source'] = 'app'")
    assert (done["matched"], done["redriven"], done["skipped"]) == (2, 2, 0)  # 10 and 40
    assert states(servers, filled) == {"dead": 4, "redriven": 2}
    got = line.receive_many(filled, group=GROUP, count=10, wait="5s")
    got += line.receive_many(filled, group=GROUP, count=10, wait="0s")
    assert sorted(json.loads(m.value or b"")["id"] for m in got) == [10, 40]
    for message in got:
        message.ack(wait=True)
    again = run(servers, filled, "json(value, 'currency') = 'USD'")
    assert again["matched"] == 0  # they are not dead any more
    assert len(messages(servers, filled)) == 60


def test_a_dry_run_shows_what_would_change_and_changes_nothing(
    servers: str, filled: str, capfd: pytest.CaptureFixture[str]
) -> None:
    told = run(servers, filled, transform=FIX, dry_run=True, shown=2)
    assert (told["matched"], told["transformed"], len(told["letters"])) == (6, 6, 2)
    capfd.readouterr()
    words = ["pipeline", "redrive", filled, "--where", "json(value, 'id') = '10'", "--dry-run"]
    words += ["--value", FIX["value"], "--servers", servers]
    assert main(words) == 0
    out, err = capfd.readouterr()
    assert '-  "currency": "USD"' in out
    assert '+  "currency": "EUR"' in out
    assert "Traceback" not in err
    assert main([*words, "--json"]) == 0
    (letter,) = json.loads(capfd.readouterr().out)["letters"]
    assert json.loads(letter["before"]["value"])["currency"] == "USD"
    assert json.loads(letter["after"]["value"])["currency"] == "EUR"
    assert states(servers, filled) == {"dead": 6}
    assert len(messages(servers, filled)) == 60


def test_a_run_that_was_stopped_between_staging_and_publishing_is_finished(
    servers: str, line: Line, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.topics.create(topic, partitions=1)
    letter = Letter(
        offset=0,
        topic=topic,
        partition=0,
        origin_offset=0,
        group=GROUP,
        generation=0,
        reason="REJECTED",
        priority=0,
        before=Content(None, b"old", ()),
        after=Content(None, b"new", ()),
    )

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    times_ms = iter((1_790_000_000_000, 1_790_000_000_001))
    monkeypatch.setattr(clock, "wall_ms", lambda: next(times_ms))
    worker = Worker(servers, topic)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(Fenced, "publish", stop)
            with pytest.raises(KeyboardInterrupt):
                worker._send(letter, _sealed(letter))
        assert worker._send(letter, _sealed(letter)) == ""
    finally:
        worker.close()
    assert [row["value"] for row in messages(servers, topic)] == ["new"]


def test_changed_messages_are_sent_once_however_often_the_job_is_stopped(
    servers: str, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before the purge, and behind it; then finished; then run again."""
    purge, forget = Worker._post, Worker._forget

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Worker, "_post", stop)
    with pytest.raises(KeyboardInterrupt):
        run(servers, filled, transform=FIX)
    assert len(messages(servers, filled)) == 66
    monkeypatch.setattr(Worker, "_post", purge)
    monkeypatch.setattr(Worker, "_forget", stop)
    with pytest.raises(KeyboardInterrupt):
        run(servers, filled, transform=FIX)
    monkeypatch.setattr(Worker, "_forget", forget)
    assert run(servers, filled, transform=FIX)["matched"] == 0
    rows = messages(servers, filled)
    fixed = [row for row in rows if row["headers"].get("fixed") == "yes"]
    assert len(rows) == 66
    assert sorted(json.loads(row["value"])["id"] for row in fixed) == [0, 10, 20, 30, 40, 50]
    assert not any("USD" in row["value"] for row in fixed)
    assert {row["headers"]["raftline-redriven"].split("/")[0] for row in fixed} == {filled + ".dlq"}
    assert states(servers, filled) == {}  # all purged


def test_an_origin_that_two_groups_gave_up_on_is_sent_once(
    spark: Any, servers: str, line: Line, topic: str
) -> None:
    line.topics.create(topic, partitions=1)
    line.send_now(topic, b"both", key="k")
    for group in ("one", "two"):
        (message,) = line.receive_many(topic, group=group, wait="5s")
        message.reject("no", wait=True)
    wait_for_letters(servers, topic, 2)
    done = run(servers, topic, "`group` = 'one'", transform={"value": "concat(value, '!')"})
    assert done["transformed"] == 1
    done = run(servers, topic, transform={"value": "concat(value, '!')"})
    assert [row["value"] for row in messages(servers, topic)] == ["both", "both!"]
    assert states(servers, topic) == {}


def test_a_new_key_goes_to_its_partition_and_bytes_that_are_not_changed_stay(
    spark: Any, servers: str, line: Line, topic: str
) -> None:
    line.topics.create(topic, partitions=4)
    value = bytes(range(256))  # no text at all
    line.send_now(topic, value, key="old", headers={"raw": b"\xff\xfe"}, priority="high")
    (message,) = line.receive_many(topic, group=GROUP, wait="5s")
    message.reject("no", wait=True)
    wait_for_letters(servers, topic, 1)
    assert run(servers, topic, transform={"key": "'new'"})["transformed"] == 1
    line.send_now(topic, b"beside", key="new")
    with Fenced(servers) as fenced:
        bounds = {row.partition: row for row in fenced.bounds(topic)}
    (place,) = [row for row in messages(servers, topic, 4) if row.get("key") == "new"][-1:]
    partition = int(place["id"].split(".")[-2])
    assert bounds[partition].commit_end == 2
    moved = next(
        row for row in messages(servers, topic, 4) if "raftline-redriven" in row["headers"]
    )
    assert (moved["key"], moved["priority"]) == ("new", 10)
    with raftline.connect(servers) as other:
        got = other.receive_many(topic, group="look", count=10, wait="5s", partition=partition)
    found = next(one for one in got if one.priority == 10)
    assert found.value == value
    assert dict(found.headers)["raw"] == b"\xff\xfe"


def test_bad_requests_are_told(spark: Any, servers: str, filled: str) -> None:
    with pytest.raises(UnknownTopic):
        run(servers, "no-such-topic")
    with pytest.raises(InvalidArgument, match="holds dead letters"):
        run(servers, f"{filled}.dlq")
    with pytest.raises(InvalidArgument, match="headers gives"):
        run(servers, filled, transform={"headers": "'text'"}, dry_run=True)
    assert main(["pipeline", "redrive", filled, "--servers", servers]) == 2
    words = ["pipeline", "redrive", filled, "--where", "no_such = 1", "--servers", servers]
    assert main(words) == 2


def test_a_topic_without_dead_letters_has_none_to_redrive(
    spark: Any, servers: str, line: Line, topic: str
) -> None:
    line.topics.create(topic, partitions=1)
    assert run(servers, topic)["matched"] == 0


def test_a_rate_holds_pages_back() -> None:
    pace, began = Pace(100), clock.mono_ms()
    assert pace.page == 20
    for _ in range(4):
        pace.wait(pace.page)
    assert clock.mono_ms() - began >= 590  # the fourth page of twenty may go after 0.6 s
    assert Pace(0).page == 200
    assert Pace(1).page == 1


def test_differences_are_shown_line_by_line() -> None:
    before = Content(b"k", b'{"a": 1, "b": 2}', (("h", b"x"),))
    after = Content(b"k", b'{"a": 1, "b": 3}', (("h", b"y"),))
    assert [line for line in changes(before, after) if line[0] in "+-"] == [
        "-header h: x",
        "+header h: y",
        '-  "b": 2',
        '+  "b": 3',
    ]
    assert changes(before, before) == []
