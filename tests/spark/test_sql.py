"""``raftline pipeline sql``: topics, dead letters, traces and groups as tables."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import raftline
from raftline.cli import main
from raftline.model.errors import Conflict, InvalidArgument, NotFound
from raftline.pipeline import sql
from raftline.pipeline.job import Job
from tests.spark.pipeline_traffic import GROUP, fill
from tests.unit.archive.rows import HOUR_MS, NOON_MS, put

pytestmark = pytest.mark.spark
TOPIC = "sql-orders"


@pytest.fixture(scope="module")
def filled(spark: Any, node: Any) -> str:
    servers = node.node(node.names[0]).http
    with raftline.connect(servers) as line:
        line.topics.create(TOPIC, partitions=2)
        fill(line, servers, TOPIC)
    return servers


@pytest.fixture
def ask(spark: Any, filled: str):
    def run(query: str, **options: Any) -> list[list[Any]]:
        with Job("sql", filled) as job:
            return sql.run(job, query=query, **options).rows

    return run


def test_a_topic_is_a_table_of_texts(ask: Any) -> None:
    (row,) = ask(
        f"select key, json(value, 'total'), headers['source'], topic from `{TOPIC}` "
        "where get_json_object(value, '$.id') = '7'"
    )
    assert row == ["c3", "70", "web", TOPIC]


def test_an_archive_is_a_table_within_the_times_that_were_asked_for(
    ask: Any, tmp_path: Path
) -> None:
    put(tmp_path, (0, [NOON_MS + at for at in range(10)]), (10, [NOON_MS + HOUR_MS] * 10))
    query, root = "select min(offset), count(*) from orders.archive", str(tmp_path)
    assert ask(query, archive=root) == [[0, 20]]
    for times, found in (
        ({"startingTimestamp": NOON_MS + 5}, [5, 15]),
        ({"endingTimestamp": NOON_MS + 5}, [0, 5]),
        ({"startingTimestamp": NOON_MS + 5, "endingTimestamp": NOON_MS + HOUR_MS}, [5, 5]),
        ({"startingTimestamp": NOON_MS + 2 * HOUR_MS}, [None, 0]),
    ):
        options = {name: str(time_ms) for name, time_ms in times.items()}
        assert ask(query, archive=root, source_options=options) == [found]


def test_an_archive_may_lie_where_names_look_like_patterns(ask: Any, tmp_path: Path) -> None:
    root = tmp_path / "of {2026} [*]"
    put(root, (0, [NOON_MS + at for at in range(10)]))
    assert ask("select count(*) from orders.archive", archive=str(root)) == [[10]]


def test_bytes_are_left_alone_if_wanted(ask: Any) -> None:
    (row,) = ask(
        f"select value, text(value), headers from `{TOPIC}` where text(value) like '%\"id\": 7,%'",
        decode="binary",
    )
    assert json.loads(bytes(row[0]))["id"] == json.loads(row[1])["id"] == 7
    assert [(one["key"], bytes(one["value"])) for one in row[2]] == [("source", b"web")]


def test_dead_letters_tell_their_story_under_three_spellings(ask: Any, filled: str) -> None:
    names = [f"`{TOPIC}`.dlq", f'"{TOPIC}.dlq"', f"`{TOPIC}.dlq`"]
    for name in names:
        (row,) = ask(
            f"select reason, state, `group`, max(error), count(*) from {name} group by all"
        )
        assert row == ["REJECTED", "dead", GROUP, "no such customer", 3]
    rows = ask(f"select origin, attempts, origin_topic, json(value, 'id') from {names[0]}")
    assert {row[3] for row in rows} == {"0", "10", "20"}
    assert all(row[0].startswith(f"{TOPIC}/") and row[1:3] == [2, TOPIC] for row in rows)


def test_names_are_found_in_subqueries_and_behind_with(ask: Any) -> None:
    (row,) = ask(
        f"""with given as (
                select partition, offset from `{TOPIC}`.trace where event = 'REDELIVERED')
            select count(*), count(distinct json(o.value, 'id'))
            from `{TOPIC}` o where exists (
                select 1 from given where given.partition = o.partition and given.offset = o.offset)
        """
    )
    assert row == [6, 6]


def test_a_table_that_is_read_twice_is_whole_each_time(ask: Any) -> None:
    zero = f"(select count(*) from `{TOPIC}` where partition = 0)"
    one = f"(select count(*) from `{TOPIC}` where partition = 1)"
    ((first, second, every),) = ask(f"select {zero}, {one}, (select count(*) from `{TOPIC}`)")
    assert first > 0 < second
    assert first + second == every == 30
    again = f"with t as (select * from `{TOPIC}`) select (select count(*) from t where offset < 3)"
    assert ask(f"{again}, count(*) from t") == [[6, 30]]


def test_a_query_is_explained_with_its_tables(ask: Any) -> None:
    for words in ("explain", "EXPLAIN EXTENDED", " explain formatted"):
        plan = str(ask(f"{words} select count(*) from `{TOPIC}` where partition = 0"))
        assert "BatchScan raftline" in plan, plan
    plan = str(ask(f"explain select count(*) from `{TOPIC}` where partition = 0"))
    assert "Filter" not in plan.replace("RuntimeFilters", ""), plan
    assert "Scan" in str(ask(f"explain select reason from `{TOPIC}`.dlq"))
    with pytest.raises(NotFound, match="no table"):
        ask("explain select * from nowhere")


def test_a_trace_has_one_row_per_message_and_event(ask: Any) -> None:
    rows = ask(
        f"select event, count(*) from \"{TOPIC}.trace\" where `group` = '{GROUP}' group by 1"
    )
    counts = dict(map(tuple, rows))
    assert counts == {
        "DELIVERED": 30, "REDELIVERED": 6, "NACKED": 6, "ACKNOWLEDGED": 27, "REJECTED": 3,
        "DEAD_LETTERED": 3,
    }  # fmt: skip


def test_groups_and_topics_are_tables(ask: Any) -> None:
    rows = ask(
        f"select kind, sum(lag), sum(dead) from raftline.groups where topic = '{TOPIC}' group by 1"
    )
    assert rows == [["work", 0, 3]]
    (row,) = ask(f"select sum(messages), count(*) from raftline.topics where topic = '{TOPIC}'")
    assert row == [30, 2]


def test_what_there_is_not_is_told_with_what_there_is(ask: Any) -> None:
    with pytest.raises(NotFound) as told:
        ask("select * from `sql-order`")
    assert TOPIC in told.value.hint
    with pytest.raises(InvalidArgument, match="no query"):
        ask("drop table x")


@pytest.mark.parametrize(
    "query",
    [
        "insert overwrite directory '{}' using parquet select 1 a",
        "with t as (select 1 a) insert overwrite directory '{}' using parquet select * from t",
        "from t insert overwrite directory '{}' select 1 insert overwrite directory '{}' select 2",
        "execute immediate 'insert overwrite directory \"{}\" using parquet select 1 a'",
        "with t as (select 1 a) insert into there select * from t",
        "explain insert overwrite directory '{}' using parquet select 1 a",
    ],
)
def test_a_query_writes_nothing_wherever_its_insert_stands(
    ask: Any, tmp_path: Path, query: str
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("mine")
    with pytest.raises(InvalidArgument, match="no query"):
        ask(query.replace("{}", str(kept)))
    assert [path.name for path in kept.iterdir()] == ["file"]
    assert ask("select 1 union all (with t as (select 2 a) select * from t)") == [[1], [2]]
    assert ask("explain select 1")


def test_the_session_is_left_as_it_was(ask: Any, spark: Any) -> None:
    before = spark.conf.get("spark.sql.ansi.doubleQuotedIdentifiers")
    ask(f"select count(*) from `{TOPIC}`")
    assert TOPIC not in [row.name for row in spark.catalog.listTables()]
    assert spark.conf.get("spark.sql.ansi.doubleQuotedIdentifiers") == before


def test_the_command_prints_tables_json_and_files(
    filled: str, spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def command(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main(["pipeline", "sql", *words, "--servers", filled])
        return code, *capfd.readouterr()

    query = f"select partition, headers from `{TOPIC}` order by partition, offset"
    code, out, err = command(query, "-n", "2")
    assert (code, out.count("source")) == (0, 2)
    assert "more than 2 rows" in err
    code, out, _ = command(query, "--json", "-n", "1")
    assert code == 0
    assert set(json.loads(out)["headers"]) == {"source"}
    target = tmp_path / "rows.csv"
    assert command(query, "--output", str(target))[0] == 0
    texts = [file.read_text().splitlines() for file in target.glob("*.csv")]
    found = [row for lines in texts for row in csv.DictReader(lines)]
    assert len(found) == 30
    assert set(json.loads(found[0]["headers"])) == {"source"}
    assert command(query, "--output", str(target))[0] == 6  # it is there already
    code, _, err = command(f"select nothing from `{TOPIC}`")
    assert code == 2
    assert "nothing" in err
    assert "Traceback" not in err
    assert "\tat " not in err
    assert command("select * from missing")[0] == 4
    assert command("")[0] == 2


def test_bad_outputs_are_refused_before_spark_starts(tmp_path: Path) -> None:
    job = Job("sql", "http://127.0.0.1:1")
    with pytest.raises(InvalidArgument, match=r"end it with|does not say"):
        sql.run(job, query="select 1", output=str(tmp_path / "x.doc"))
    (tmp_path / "x.csv").mkdir()
    with pytest.raises(Conflict):
        sql.run(job, query="select 1", output=str(tmp_path / "x.csv"))
