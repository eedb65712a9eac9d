"""The data source with places to fail at, each once: where a file of that name lies.

Spark runs the source in processes of its own, so a test arms a place by a file in the folder that
``RAFTLINE_TEST_FAULTS`` names; who comes by takes the file away and raises.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql.datasource import InputPartition, WriterCommitMessage

from raftline.spark import options as option_table
from raftline.spark import writers
from raftline.spark.queue_reader import RaftlineQueueReader
from raftline.spark.source import RaftlineDataSource
from raftline.spark.stream_reader import RaftlineStreamReader

FAULTS = "RAFTLINE_TEST_FAULTS"


class Crashed(Exception):
    """Raised on purpose."""


def arm(*places: str) -> None:
    for place in places:
        (Path(os.environ[FAULTS]) / place).touch()


def armed() -> list[str]:
    return sorted(path.name for path in Path(os.environ[FAULTS]).iterdir())


def trip(place: str) -> None:
    try:
        (Path(os.environ[FAULTS]) / place).unlink()
    except FileNotFoundError:
        return
    raise Crashed(place)


def crashed(once: Callable[[], None]) -> bool:
    """Run a query; say whether it crashed on purpose."""
    try:
        once()
    except PySparkException as error:
        if "Crashed" not in str(error):
            raise
        return True
    return False


class _FaultyReading:
    """Fails before and after each call of a stream reader."""

    def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802
        trip("latest-before")
        found = super().latestOffset(start, limit)
        trip("latest-after")
        return found

    def partitions(self, start: Any, end: Any) -> Any:
        trip("partitions-before")
        found = super().partitions(start, end)
        trip("partitions-after")
        return found

    def read(self, partition: InputPartition) -> Iterator[Any]:
        for batch in super().read(partition):
            yield batch
            trip("read")

    def commit(self, end: Any) -> None:
        trip("source-commit-before")
        super().commit(end)
        trip("source-commit-after")


class FaultyStreamReader(_FaultyReading, RaftlineStreamReader):
    pass


class FaultyQueueReader(_FaultyReading, RaftlineQueueReader):
    pass


class FaultyStreamWriter(writers.RaftlineStreamWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        trip("write-before")
        found = super().write(iterator)
        trip("write-after")
        return found

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        trip("commit-before")
        told = writers.written(messages)
        places = sorted({place for one in told for place in one.chunks})
        if "commit-half" in armed() and len(places) > 1:
            for one in told:
                one.chunks = {places[0]: one.chunks[places[0]]} if places[0] in one.chunks else {}
            writers.publish(self.options, told)
            trip("commit-half")
        super().commit(messages, batchId)
        trip("commit-after")


class FaultyDataSource(RaftlineDataSource):
    @classmethod
    def name(cls) -> str:
        return "raftline_faulty"

    def streamReader(self, schema: Any) -> Any:  # noqa: N802
        options = option_table.parse(self.options, option_table.STREAM_READ)
        return FaultyQueueReader(options) if options.group else FaultyStreamReader(options)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        return FaultyStreamWriter(option_table.parse(self.options, option_table.STREAM_WRITE))
