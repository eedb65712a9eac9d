"""Running stream queries in tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException

QUERY_S_MAX = 240
TRIES = 5
TOO_BUSY = "Python worker failed to connect back"


def stream(spark: Any, servers: str, topic: str, **options: object) -> Any:
    """Return a stream of a topic."""
    reader = spark.readStream.format("raftline").option("servers", servers).option("topic", topic)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def drain(frame: Any, target: Path, checkpoint: Path | None = None) -> Any:
    """Write what is there now into a folder of Parquet files, and end. Returns the query."""
    writer = (
        frame.writeStream.format("parquet")
        .option("path", str(target))
        .option("checkpointLocation", str(checkpoint or target.with_suffix(".checkpoint")))
        .trigger(availableNow=True)
    )
    return run(writer.start)


def run(start: Callable[[], Any]) -> Any:
    """Start a query and wait for its end.

    Spark gives a Python process 10 s to start, and says nothing of it in its settings: where a
    machine is too busy for that the query is started again, as an operator would.
    """
    for left in range(TRIES - 1, -1, -1):
        try:
            return finish(start())
        except StreamingQueryException as error:
            if not left or TOO_BUSY not in str(error):
                raise
    raise AssertionError


def finish(query: Any) -> Any:
    """Wait until a query ends by itself; its error is ours."""
    try:
        assert query.awaitTermination(QUERY_S_MAX), "the query did not end in time"
    finally:
        query.stop()
    return query


def places(spark: Any, target: Path) -> list[tuple[int, int]]:
    """Return (partition, offset) of all rows that were written, in order."""
    rows = spark.read.parquet(str(target)).select("partition", "offset").collect()
    return sorted((row.partition, row.offset) for row in rows)
