"""Every bad option gets a clear error, before anything runs."""

import subprocess
import sys
from typing import Any

import pytest

from raftline.client.line import Line
from raftline.model.errors import InvalidArgument
from raftline.spark.options import (
    BATCH_READ,
    BATCH_WRITE,
    EARLIEST,
    LATEST,
    STREAM_READ,
    STREAM_WRITE,
    Options,
    check_any_read,
    parse,
)
from tests.spark.conftest import publish

pytestmark = pytest.mark.spark
GOOD = {"servers": "http://127.0.0.1:8080", "topic": "orders"}
JSON = '{"0": 17, "1": "latest"}'

BAD: list[tuple[str, dict[str, str], str]] = [
    (BATCH_READ, {"topik": "x"}, r"option 'topik' is not known: did you mean topic\?"),
    (BATCH_READ, {"zzzzzz": "x"}, "option 'zzzzzz' is not known: there are servers"),
    (BATCH_READ, {"servers": "ftp://x"}, "option servers: 'ftp://x' is no server: write http://"),
    (BATCH_READ, {"servers": ""}, "option servers: no server is named"),
    (BATCH_READ, {"topic": "a b"}, "option topic: "),
    (BATCH_READ, {"includeValue": "maybe"}, "option includeValue is 'maybe': write true or false"),
    (BATCH_READ, {"readFrom": "moon"}, "option readFrom is 'moon': write leader or any"),
    (BATCH_READ, {"offsetsPerSplit": "many"}, "offsetsPerSplit is 'many': write a whole number"),
    (BATCH_READ, {"offsetsPerSplit": "0"}, "option offsetsPerSplit is 0: write 1 to "),
    (BATCH_READ, {"fetchBytes": "1GB"}, "option fetchBytes is 1GB: write 65536 to 8388608 bytes"),
    (BATCH_READ, {"fetchBytes": "lots"}, "option fetchBytes"),
    (BATCH_READ, {"timeout": "soon"}, "option timeout: 'soon' is no duration"),
    (BATCH_READ, {"timeout": "2h"}, "option timeout is 2h: write 100ms to 1h"),
    (BATCH_READ, {"startingOffsets": "first"}, "option startingOffsets is 'first': write earliest"),
    (BATCH_READ, {"startingOffsets": '{"0": "x"}'}, "option startingOffsets has 0: 'x'"),
    (BATCH_READ, {"startingOffsets": '{"0": -5}'}, "option startingOffsets has 0: -5"),
    (BATCH_READ, {"startingOffsets": '{"x": 5}'}, "option startingOffsets has x: 5"),
    (BATCH_READ, {"startingOffsets": "[1]"}, "option startingOffsets is"),
    (BATCH_READ, {"startingOffsets": "latest"}, "a batch read from latest on reads nothing"),
    (BATCH_READ, {"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
    (BATCH_READ, {"startingTimestamp": "noon"}, "option startingTimestamp"),
    (
        BATCH_READ,
        {"startingTimestamp": "2026-01-02", "endingTimestamp": "2026-01-01"},
        "startingTimestamp is after endingTimestamp",
    ),
    (
        BATCH_READ,
        {"startingTimestamp": "2026-01-02", "startingOffsets": JSON},
        "options startingOffsets and startingTimestamp contradict each other",
    ),
    (
        BATCH_READ,
        {"endingTimestamp": "2026-01-02", "endingOffsets": JSON},
        "options endingOffsets and endingTimestamp contradict each other",
    ),
    (BATCH_READ, {"archive": " "}, "option archive is empty"),
    (BATCH_READ, {"group": "g"}, "option group is not for a batch read: it is for a queue read"),
    (BATCH_READ, {"maxOffsetsPerTrigger": "5"}, "option maxOffsetsPerTrigger is not for a batch"),
    (BATCH_READ, {"compression": "zstd"}, "option compression is not for a batch read"),
    (STREAM_READ, {"maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger is 0"),
    (STREAM_READ, {"endingOffsets": JSON}, "option endingOffsets is not for a stream read"),
    (STREAM_READ, {"archive": "/a"}, "option archive is not for a stream read"),
    (STREAM_READ, {"group": ""}, "option group is ''"),
    (STREAM_READ, {"group": "g", "progressGroup": "h"}, "progressGroup is not for a queue read"),
    (STREAM_READ, {"group": "g", "startingOffsets": JSON}, "of a queue read is earliest or latest"),
    (STREAM_READ, {"group": "g", "startingTimestamp": "-1h"}, "startingTimestamp is not for a qu"),
    (STREAM_READ, {"query": "q"}, "option query is not for a stream read"),
    (BATCH_WRITE, {"compression": "brotli"}, "option compression is 'brotli': write none or gzip"),
    (BATCH_WRITE, {"chunkBytes": "1"}, "option chunkBytes is 1"),
    (BATCH_WRITE, {"batch": "3"}, "option batch counts the batches of a query: give the option"),
    (BATCH_WRITE, {"startingOffsets": "earliest"}, "startingOffsets is not for a batch write"),
    (STREAM_WRITE, {"batch": "3", "query": "q"}, "option batch is not for a stream write"),
    (STREAM_WRITE, {"query": "q" * 300}, "option query is"),
]


@pytest.mark.parametrize(("use", "given", "said"), BAD, ids=lambda value: str(value)[:40])
def test_a_bad_option_is_told(use: str, given: dict[str, str], said: str):
    with pytest.raises(InvalidArgument, match=said) as found:
        parse({**GOOD, **given}, use)
    assert found.value.hint


@pytest.mark.parametrize("missing", ["servers", "topic"])
def test_what_is_needed_is_told(missing: str):
    given = {name: value for name, value in GOOD.items() if name != missing}
    with pytest.raises(InvalidArgument, match=f"option {missing} is missing: write .option"):
        parse(given, BATCH_READ)


def test_good_options_are_understood_in_any_case():
    found = parse(
        {
            "SERVERS": "a:1,http://b:2",
            "Topic": "orders",
            "STARTINGOFFSETS": JSON,
            "includevalue": "FALSE",
            "timeout": "5s",
            "fetchbytes": "1MiB",
            "checkpointLocation": "/spark/adds/it",
        },
        STREAM_READ,
    )
    assert found == Options(
        servers="http://a:1,http://b:2",
        topic="orders",
        starting={0: 17, 1: LATEST},
        include_value=False,
        timeout_ms=5000,
        fetch_bytes=1 << 20,
    )
    assert parse(GOOD, BATCH_READ).starting == EARLIEST
    assert parse({**GOOD, "group": "g"}, STREAM_READ).query == "spark"
    assert check_any_read({**GOOD, "startingOffsets": "latest"}).starting == LATEST
    assert check_any_read({**GOOD, "archive": "/a"}).archive == "/a"


class TestThroughSpark:
    """What a person sees: the error comes at load, or when the query starts."""

    def test_an_unknown_option(self, spark: Any, servers: str):
        reader = spark.read.format("raftline").option("servers", servers).option("topic", "x")
        with pytest.raises(Exception, match=r"option 'topics' is not known: did you mean topic\?"):
            reader.option("topics", "y").load()

    def test_a_topic_that_is_not_there(self, spark: Any, servers: str):
        reader = spark.read.format("raftline").option("servers", servers)
        with pytest.raises(Exception, match="there is no topic 'nowhere'"):
            reader.option("topic", "nowhere").load().count()

    def test_servers_that_are_not_there(self, spark: Any):
        reader = spark.read.format("raftline").option("servers", "http://127.0.0.1:9")
        with pytest.raises(Exception, match=r"no node answers at 127\.0\.0\.1:9"):
            reader.option("topic", "orders").load().count()

    def test_columns_of_ones_own(self, spark: Any, servers: str):
        reader = spark.read.format("raftline").option("servers", servers).option("topic", "x")
        with pytest.raises(Exception, match=r"leave .schema\(\) out"):
            reader.schema("value string").load().count()

    def test_offsets_for_other_partitions(self, spark: Any, servers: str, line: Line, topic: str):
        line.topics.create(topic, partitions=2)
        publish(line, topic, [b"x"])
        reader = spark.read.format("raftline").option("servers", servers).option("topic", topic)
        with pytest.raises(Exception, match=rf"no offset is given for {topic}/1"):
            reader.option("startingOffsets", '{"0": 0}').load().count()
        with pytest.raises(Exception, match=rf"there is no partition {topic}/7"):
            reader.option("startingOffsets", '{"0": 0, "1": 0, "7": 0}').load().count()


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_what_to_install_is_told(missing: str):
    code = f"import sys; sys.modules['{missing}'] = None\nimport raftline.spark"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert f"needs {missing}, which is not installed: pip install 'raftline[spark]'" in done.stderr
