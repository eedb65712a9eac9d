"""Writing a frame or a stream to topics, each row once (DESIGN: Stage and Publish).

Tasks stage their rows under (query, batch, task, attempt), invisible to all. When every task is
done the driver publishes: one command a partition puts the chunks of the attempts that count into
the log, drops all others and moves the fence of the query to this batch. A batch at or below the
fence is done already. So a task that is run twice, a zombie, or a whole batch that comes again
after a crash writes nothing twice. It is atomic for each partition, not across them.

Rules
    W1  Rows go where their content says (routing.py), so a batch that comes again, half published,
        fills exactly the partitions that are missing.
    W2  What tasks tell names query and batch; the driver adds nothing of its own.
    W3  After an abort only unpublished chunks are dropped. The fence stays.
"""

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from raftline.model.errors import RaftlineError
from raftline.spark.chunks import Place, Stager
from raftline.spark.log import open_log
from raftline.spark.options import Options, bad

QUERY_PROPERTY = "sql.streaming.queryId"
BATCH_PROPERTY = "streaming.sql.batchId"
PUBLISHERS_MAX = 8  # partitions published at a time


class Written(WriterCommitMessage):
    """What one task has staged."""

    def __init__(self, stager: Stager, chunks: dict[Place, int]) -> None:
        self.query, self.batch = stager.query, stager.batch
        self.task, self.attempt = stager.task, stager.attempt
        self.rows = stager.rows
        self.chunks = chunks


class RaftlineWriter(DataSourceArrowWriter):
    """One batch write. The same ``query`` again, if one is named, writes nothing again."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.query = options.query or f"spark-{uuid.uuid4()}"

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        return stage_rows(self.options, iterator, self.query, self.options.batch)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what the tasks have staged."""
        told = written(messages)
        publish(self.options, told)
        if not self.options.query:
            forget(self.options, told)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop what is not published."""
        abandon(self.options, written(messages))


class RaftlineStreamWriter(DataSourceStreamArrowWriter):
    """One stream write; Spark makes it anew for every step."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        context = TaskContext.get()
        assert context is not None
        query = self.options.query or context.getLocalProperty(QUERY_PROPERTY)
        batch = context.getLocalProperty(BATCH_PROPERTY)
        if not query or not batch:
            raise bad("Spark does not say which query this is", 'name it: .option("query", …)')
        return stage_rows(self.options, iterator, query, int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish what the tasks have staged."""
        told = written(messages)
        assert all(one.batch == batchId for one in told), "tasks of another micro-batch"  # W2
        publish(self.options, told)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Drop what is not published."""
        abandon(self.options, [one for one in written(messages) if one.batch == batchId])


def stage_rows(
    options: Options, batches: Iterator[Any], query: str, batch: int, task: int = 0
) -> Written:
    """Stage Arrow batches as one task; its number is Spark's where this is one of Spark's."""
    from raftline.spark.rows import to_rows

    context = TaskContext.get()
    task = context.partitionId() if context is not None else task
    with open_log(options) as fenced:
        stager = Stager(options, fenced, query, batch, task)
        for one in batches:
            if one.num_rows:
                stager.add(to_rows(one))
        return Written(stager, stager.finish())


def written(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    """Return what tasks told; a failed one tells nothing."""
    return [one for one in messages if isinstance(one, Written)]


def publish(options: Options, told: Sequence[Written]) -> None:
    """Publish every partition that got rows. Raises RaftlineError: some may not be published."""
    winners: dict[tuple[str, int, str, int], list[tuple[int, int, int]]] = {}
    for one in told:
        for (topic, partition), chunks in one.chunks.items():
            name = (topic, partition, one.query, one.batch)
            winners.setdefault(name, []).append((one.task, one.attempt, chunks))

    def publish_one(name: tuple[str, int, str, int]) -> None:
        with open_log(options) as fenced:
            fenced.publish(*name, sorted(winners[name]))

    with ThreadPoolExecutor(PUBLISHERS_MAX) as helpers:
        for done in [helpers.submit(publish_one, name) for name in sorted(winners)]:
            done.result()


def abandon(options: Options, told: Sequence[Written]) -> None:
    """Drop unpublished chunks; where that fails they run out by themselves. W3."""
    places = {(*place, one.query, one.batch) for one in told for place in one.chunks}
    with open_log(options) as fenced:
        for name in sorted(places):
            with contextlib.suppress(RaftlineError):
                fenced.abandon(*name)


def forget(options: Options, told: Sequence[Written]) -> None:
    """Leave no fence behind of a write that nobody can repeat."""
    places = {(*place, one.query) for one in told for place in one.chunks}
    with open_log(options) as fenced:
        for name in sorted(places):
            with contextlib.suppress(RaftlineError):
                fenced.forget(*name)
