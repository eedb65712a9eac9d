"""``raftline consume``: read messages, for oneself or as a worker of a group.

Without a group nothing is settled or removed: it is a look at the log. With a group each message is
leased, printed and acked; a start (``--from-…``) resets the group first, so the same command
replays the same messages again. A window of time is exact either way: what is outside is not
printed, and stays with the group.

With ``--include-deleted`` what retention or a trim removed comes first, from the archive; nobody
can lease it, so with a group it is printed only.
"""

import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from raftline.cli import words
from raftline.cli.replay import Replayed, replay
from raftline.cli.session import Session
from raftline.cli.work import Window, Work
from raftline.client import clock
from raftline.client.client import Client
from raftline.client.messages import Message, to_json

READ_MAX = 1000
FOLLOW_WAIT_MS = 5_000
FOLLOW_PAUSE_MS = 100


def consume(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="name of the topic")],
    group: Annotated[str, typer.Option("--group", "-g", help="lease, print and ack")] = "",
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="only this one")
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="from the oldest message kept")
    ] = False,
    from_latest: Annotated[bool, typer.Option("--from-latest", help="only what comes")] = False,
    from_offset: Annotated[
        int | None, typer.Option("--from-offset", "--offset", min=0, help="from this offset")
    ] = None,
    from_time: Annotated[str, typer.Option(help="RFC 3339, a date, or -1h")] = "",
    to_time: Annotated[str, typer.Option(help="up to, and not including, this time")] = "",
    from_snapshot: Annotated[
        str, typer.Option(help="the same as --from-time; with --include-deleted from the archive")
    ] = "",
    include_deleted: Annotated[
        bool, typer.Option("--include-deleted", help="what was removed, too, from the archive")
    ] = False,
    archive: Annotated[str, typer.Option(help="the archive (archive_dir of the topic)")] = "",
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="at most so many; 0: all")] = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="wait for more")] = False,
    lease: Annotated[str, typer.Option(help="time to print and ack (the topic's)")] = "",
    member: Annotated[str, typer.Option(help="this worker's name in timelines")] = "",
) -> int:
    """Print messages: one a line, or one JSON object a line with --json.

    Without --group the log is read from the beginning (with --follow: only what comes) and nothing
    changes. With --group each message is acked after it is printed. Ends when nothing is left,
    unless --follow.

    For example:

      raftline consume orders --from-beginning -n 10
      raftline consume orders --group processors
      raftline consume orders --group replay --from-time 2026-01-14 --to-time 2026-01-15
      raftline consume orders --from-time -1h --json --follow
      raftline consume orders --from-snapshot 2026-01-01 --include-deleted
    """
    session: Session = context.obj
    words.only_one(
        from_beginning=from_beginning,
        from_latest=from_latest,
        from_offset=from_offset is not None,
        from_time=from_time,
        from_snapshot=from_snapshot,
    )
    if follow and to_time:
        raise typer.BadParameter("--follow has no end, --to-time is one: give one of them")
    if include_deleted and from_latest:
        raise typer.BadParameter("--from-latest wants nothing that is deleted: give one of them")
    since_ms = words.moment_ms(from_time, "--from-time")
    if since_ms is None:
        since_ms = words.moment_ms(from_snapshot, "--from-snapshot")
    window = Window(since_ms, words.moment_ms(to_time, "--to-time"))
    client = session.client
    numbers = partitions_of(client, topic, partition)
    printed = 0
    ends: dict[int, int] = {}  # how far the archive and then the log were read
    if include_deleted:
        found = replay(
            session,
            topic,
            numbers,
            window,
            ends,
            start=from_offset or 0,
            directory=archive,
            deleted_only=bool(group),
        )
        printed = _print_replayed(session, found, count)
        if (count and printed == count) or not (group or follow):
            return 0
        count = max(0, count - printed)
    if group:
        work = Work(session, topic, group, partition, member, words.duration_ms(lease, "--lease"))
        is_first = from_beginning or (include_deleted and not (from_time or from_snapshot))
        start = from_offset
        if start is None and (is_first or from_latest):
            start = "latest" if from_latest else "earliest"
        return work.run(window, start, count, follow=follow)
    is_new_only = from_latest or (
        follow and not (from_beginning or window.from_ms is not None or from_offset is not None)
    )
    starts = ends or {
        number: _start(client, topic, number, from_offset, window.from_ms, new_only=is_new_only)
        if from_offset is None or partition is not None
        else _within(client, topic, number, from_offset)
        for number in numbers
    }
    messages = _follow(client, topic, starts) if follow else drain(client, topic, starts)
    messages = (message for message in messages if message.offset >= (from_offset or 0))
    _print_all(session, window, messages, count)
    return 0


def partitions_of(client: Client, topic: str, partition: int | None) -> list[int]:
    """Return the partition asked for, or all."""
    if partition is not None:
        return [partition]
    return [row["partition"] for row in client.topic(topic)["partitions"]]


def drain(client: Client, topic: str, starts: dict[int, int]) -> Iterator[Message]:
    """Yield what is there now, partition by partition, each in order."""
    for partition, start in starts.items():
        offset, end = start, -1
        while end < 0 or offset < end:
            page = client.read(topic, partition, offset, limit=READ_MAX)
            end = page.commit_end if end < 0 else end
            yield from (message for message in page.messages if message.offset < end)
            if page.next_offset <= offset:
                break
            offset = page.next_offset


def print_message(session: Session, message: Message, **more: Any) -> None:
    """Print the value as it is, or everything as JSON."""
    if session.json:
        sys.stdout.write(json.dumps({**to_json(message), **more}, ensure_ascii=False) + "\n")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write((message.value or b"") + b"\n")
    sys.stdout.flush()


def _print_all(session: Session, window: Window, messages: Iterator[Message], count: int) -> None:
    seen = 0
    for message in messages:
        if window.holds(message.timestamp_ms):
            print_message(session, message)
            seen += 1
            if seen == count:
                break


def _print_replayed(session: Session, found: Iterator[Replayed], count: int) -> int:
    """Print what the archive and the log gave, at most ``count``; return how many."""
    seen = 0
    for one in found:
        print_message(session, one.message, **one.more)
        seen += 1
        if seen == count:
            break
    return seen


def _start(
    client: Client,
    topic: str,
    partition: int,
    offset: int | None,
    from_ms: int | None,
    *,
    new_only: bool,
) -> int:
    if offset is not None:
        return offset
    if new_only:
        return client.bounds(topic, partition)[1]
    return first_since(client, topic, partition, from_ms)


def first_since(client: Client, topic: str, partition: int, from_ms: int | None) -> int:
    """Return where to begin: at a time, or (None) with all there is, of whatever time."""
    if from_ms is None:
        return client.bounds(topic, partition)[0]
    found, commit_end = client.look_up_time(topic, partition, from_ms)
    return commit_end if found < 0 else found


def _within(client: Client, topic: str, partition: int, offset: int) -> int:
    """Return the place nearest to ``offset`` in one of several logs: some may end before it."""
    log_start, commit_end = client.bounds(topic, partition)
    return min(max(offset, log_start), commit_end)


def _follow(client: Client, topic: str, starts: dict[int, int]) -> Iterator[Message]:
    """Yield what is there and what comes, for ever. One partition is waited for at the node."""
    offsets = dict(starts)
    wait_ms = FOLLOW_WAIT_MS if len(offsets) == 1 else 0
    while True:
        came = False
        for partition, offset in list(offsets.items()):
            page = client.read(topic, partition, offset, limit=READ_MAX, wait_ms=wait_ms)
            yield from page.messages
            came = came or bool(page.messages)
            offsets[partition] = page.next_offset
        if not came and not wait_ms:
            clock.pause(FOLLOW_PAUSE_MS)
