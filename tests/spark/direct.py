"""The data source without Spark around it: the same calls that Spark makes, in this process.

Most of what a read does is between the source and the nodes; there a query through Spark would
only cost time. That Spark makes these calls, in this order, is shown by the tests that run it.
"""

import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition

from raftline.archive.schema import SCHEMA
from raftline.spark.source import RaftlineDataSource


def source(servers: str, topic: str = "", **options: object) -> RaftlineDataSource:
    given = {"servers": servers, **{name: str(value) for name, value in options.items()}}
    if topic:
        given["topic"] = topic
    return RaftlineDataSource(CaseInsensitiveDict(given))


def read(
    servers: str, topic: str, filters: Sequence[Any] = (), **options: object
) -> list[dict[str, Any]]:
    """Make a batch read and return its rows in order."""
    if filters:
        options["pushFilters"] = "true"
    made = source(servers, topic, **options)
    reader = made.reader(made.schema())
    left = list(reader.pushFilters(list(filters)))
    assert not left, left
    tasks = pickle.loads(pickle.dumps(reader))  # Spark packs what tasks get before it plans
    return rows_of(tasks, reader.partitions())


def rows_of(reader: Any, partitions: Sequence[InputPartition]) -> list[dict[str, Any]]:
    batches = [batch for one in partitions for batch in reader.read(one)]
    schema = batches[0].schema if batches else SCHEMA
    rows = pa.Table.from_batches(batches, schema).to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def stream_reader(servers: str, topic: str, **options: object) -> Any:
    made = source(servers, topic, **options)
    return made.streamReader(made.schema())
