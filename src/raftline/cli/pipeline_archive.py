"""``raftline pipeline archive``, ``restore`` and ``optimize``."""

from typing import Annotated

import typer

from raftline.cli import words
from raftline.cli.archive_place import archive_dir_default
from raftline.cli.pipeline_options import Conf, Master, Servers, finish, need_spark, pipeline_job

Dir = Annotated[
    str, typer.Option("--dir", "--archive", help="the archive (archive_dir of the topic)")
]


def archive(
    context: typer.Context,
    topics: Annotated[
        list[str] | None, typer.Argument(help="topics (all with archive=required)")
    ] = None,
    directory: Dir = "",
    continuous: Annotated[
        str, typer.Option(metavar="10s", help="go on, with this pause, until stopped")
    ] = "",
    dead_letters: Annotated[
        bool, typer.Option("--dead-letters/--no-dead-letters", help="those of the topics, too")
    ] = True,
    traces: Annotated[
        bool, typer.Option("--traces/--no-traces", help="those of the topics, too")
    ] = True,
    servers: Servers = "",
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Write topics to Parquet files, by topic, partition, date and hour.

    It goes on where it came to the last time. Messages may be removed from the log afterwards:
    raftline consume TOPIC --from-snapshot T --include-deleted, restore and Spark still have them.

    For example:

      raftline pipeline archive orders --dir /data/archive
      raftline pipeline archive --continuous 10s
    """
    every_ms = words.duration_ms(continuous, "--continuous")
    with pipeline_job(context, "archive", servers, master, conf) as job:
        need_spark()
        from raftline.pipeline import archive as module

        summary = module.run(
            job,
            topics=topics or [],
            directory=directory,
            directory_default=archive_dir_default(),
            dead_letters=dead_letters,
            traces=traces,
            every_ms=every_ms,
        )
        finish(context, job, summary)


def restore(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="the archived topic")],
    to: Annotated[str, typer.Option(help="the topic they go to (the same)")] = "",
    from_time: Annotated[str, typer.Option(help="RFC 3339, a date, or -1h")] = "",
    to_time: Annotated[str, typer.Option(help="up to, and not including, this time")] = "",
    from_offset: Annotated[int, typer.Option(min=0, help="from this offset")] = 0,
    to_offset: Annotated[
        int | None, typer.Option(min=1, help="up to, and not including, this offset")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="only this one")
    ] = None,
    directory: Dir = "",
    servers: Servers = "",
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Bring archived messages back into a topic: a window of time, or of offsets.

    Each comes once: the same command again goes on where it came to, and adds nothing when it was
    done. Write times that stay the same (2026-01-31, not -1h) for that.

    For example:

      raftline pipeline restore orders --from-time 2026-01-30 --to-time 2026-01-31 --to orders-jan
      raftline pipeline restore orders --partition 2 --from-offset 1000 --to-offset 2000
    """
    from_ms, to_ms = (
        words.moment_ms(from_time, "--from-time"),
        words.moment_ms(to_time, "--to-time"),
    )
    with pipeline_job(context, "restore", servers, master, conf) as job:
        need_spark()
        from raftline.pipeline import restore as module

        summary = module.run(
            job,
            topic=topic,
            to=to,
            directory=directory,
            directory_default=archive_dir_default(),
            from_ms=from_ms,
            to_ms=to_ms,
            from_offset=from_offset,
            to_offset=to_offset,
            partition=partition,
        )
        finish(context, job, summary)


def optimize(
    context: typer.Context,
    topics: Annotated[
        list[str] | None, typer.Argument(help="topics (all that the directory holds)")
    ] = None,
    directory: Dir = "",
    grace: Annotated[
        str, typer.Option(help="how long files stay for readers after they were replaced")
    ] = "1h",
    file_size: Annotated[str, typer.Option(help="size of a merged file, about")] = "256MiB",
    servers: Servers = "",
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Merge small files of the archive into large ones; remove what was replaced.

    Readers are not disturbed: files stay for the grace period after they were replaced.

    For example:

      raftline pipeline optimize --dir /data/archive
      raftline pipeline optimize orders --grace 24h
    """
    grace_ms = words.duration_ms(grace, "--grace") or 0
    file_bytes = words.size_bytes(file_size, "--file-size")
    with pipeline_job(context, "optimize", servers, master, conf) as job:
        need_spark()
        from raftline.pipeline import optimize as module

        summary = module.run(
            job,
            topics=topics or [],
            directory=directory,
            directory_default=archive_dir_default(),
            grace_ms=grace_ms,
            file_bytes=file_bytes,
        )
        finish(context, job, summary)
