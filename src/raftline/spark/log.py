"""The cluster as Spark's tasks and drivers see it: the calls of jobs, and ranges read ahead."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from raftline.client import clock
from raftline.client.fenced import Fenced
from raftline.spark.options import Options
from raftline.spark.ranges import LogRange


def open_log(options: Options) -> Fenced:
    """Return the calls to a cluster, to be used with ``with`` and by one thread.

    Where any replica may be read, whom to ask first is drawn, so that tasks spread.
    """
    turn = clock.wall_ms() if options.read_from == "any" else 0
    return Fenced(options.servers, options.timeout_ms / 1000, turn=turn)


def read_ahead(options: Options, one: LogRange) -> Iterator[bytes]:
    """Yield stored batches that cover a range; first and last may reach beyond.

    The next reply is fetched while the last one is being opened: a thread, and two replies in
    memory at most.

    Raises:
        OffsetOutOfRange: the log no longer holds the start.
        RaftlineError: nobody answered in time, or a refusal.
    """
    with open_log(options) as log, ThreadPoolExecutor(1) as helper:
        replies = log.read(
            options.topic,
            one.partition,
            one.start,
            one.end,
            bytes_max=options.fetch_bytes,
            any_replica=options.read_from == "any",
        )
        coming = helper.submit(next, replies, b"")
        while batches := coming.result():
            coming = helper.submit(next, replies, b"")
            yield batches
