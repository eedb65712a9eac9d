"""``raftline produce`` and ``raftline consume``, in their simple forms."""

import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from raftline.cli import exits
from raftline.cli.session import Session
from raftline.cli.times import parse_time_ms
from raftline.client import clock
from raftline.client.client import Client, Sent
from raftline.client.messages import Message, to_json
from raftline.model.errors import InvalidArgument, RaftlineError

SEND_MAX = 500  # messages in one call
SEND_BYTES_MAX = 1 << 20
READ_MAX = 1000
PIECE_BYTES = 1 << 18
FOLLOW_WAIT_MS = 5_000
FOLLOW_PAUSE_MS = 100

Topic = Annotated[str, typer.Argument(help="name of the topic")]


def produce(
    context: typer.Context,
    topic: Topic,
    key: Annotated[str | None, typer.Option(help="key: the same key, the same partition")] = None,
    text: Annotated[str | None, typer.Option("--message", "-m", help="one message")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="one message a line")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="this partition")] = None,
) -> int:
    """Send messages: one a line from standard input, unless -m or -f. Prints the id of each."""
    session: Session = context.obj
    if text is not None and file is not None:
        raise typer.BadParameter("give -m or -f, not both")
    code = exits.DONE
    for values in _values(text, file):
        sent = session.client.send(
            topic, values, key=None if key is None else key.encode(), partition=partition
        )
        for one in sent:
            code = _report(session, one) or code
        sys.stdout.flush()
    return code


def consume(
    context: typer.Context,
    topic: Topic,
    partition: Annotated[int | None, typer.Option(min=0, help="only this one")] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="from the oldest message kept")
    ] = False,
    from_offset: Annotated[int | None, typer.Option(min=0, help="from this offset")] = None,
    from_time: Annotated[str, typer.Option(help="RFC 3339, a date, or -1h")] = "",
    to_time: Annotated[str, typer.Option(help="up to, and not including, this time")] = "",
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="at most so many")] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="wait for more")] = False,
) -> None:
    """Read messages of a topic; nothing is settled or removed.

    Without a start: from the beginning, with --follow only what comes. Ends when nothing is left,
    unless --follow.
    """
    session: Session = context.obj
    if sum([from_beginning, from_offset is not None, bool(from_time)]) > 1:
        raise typer.BadParameter("give one of --from-beginning, --from-offset, --from-time")
    if follow and to_time:
        raise typer.BadParameter("--follow has no end, --to-time is one: give one of them")
    window = _moment(from_time, "--from-time"), _moment(to_time, "--to-time")
    client = session.client
    starts = {
        number: _start(client, topic, number, from_offset, window[0], new_only=follow and not (
            from_beginning or from_time))
        for number in _partitions(client, topic, partition)
    }  # fmt: skip
    messages = _follow(client, topic, starts) if follow else _drain(client, topic, starts)
    for seen, message in enumerate(_within(messages, *window), 1):
        _print(session, message)
        if seen == count:
            break
    sys.stdout.flush()


def split_lines(pieces: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Cut pieces into lines, in lots that fit one call. What came together is sent together."""
    left = b""
    for piece in pieces:
        *lines, left = (left + piece).split(b"\n")
        yield from _lots(line.removesuffix(b"\r") for line in lines)
    if left:
        yield [left]


def _lots(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    lot: list[bytes] = []
    size_bytes = 0
    for line in lines:
        if lot and (len(lot) == SEND_MAX or size_bytes + len(line) > SEND_BYTES_MAX):
            yield lot
            lot, size_bytes = [], 0
        lot.append(line)
        size_bytes += len(line)
    if lot:
        yield lot


def _values(text: str | None, file: Path | None) -> Iterator[list[bytes]]:
    if text is not None:
        yield [text.encode()]
        return
    try:
        if file is None:
            yield from split_lines(_pieces(sys.stdin.fileno()))
        else:
            with file.open("rb") as opened:
                yield from split_lines(_pieces(opened.fileno()))
    except io.UnsupportedOperation:
        yield from split_lines(iter([sys.stdin.read().encode()]))
    except OSError as error:
        raise InvalidArgument(
            f"{file or 'standard input'} cannot be read: {error.strerror}",
            "name a file of messages, one a line, or leave -f out to type them",
        ) from None


def _pieces(descriptor: int) -> Iterator[bytes]:
    """Yield what is there, as soon as it is there."""
    while piece := os.read(descriptor, PIECE_BYTES):
        yield piece


def _report(session: Session, sent: Sent) -> int:
    """Print one result; return the exit code it asks for."""
    if session.json:
        row = {"id": sent.id, "partition": sent.partition, "offset": sent.offset}
        sys.stdout.write(json.dumps({**row, "error": sent.error}) + "\n")
    elif sent.error is None:
        sys.stdout.write(f"{sent.id}\n")
    if sent.error is None:
        return exits.DONE
    given: dict[str, Any] = sent.error if isinstance(sent.error, dict) else {"code": sent.error}
    code, message, hint = (str(given.get(name, "")) for name in ("code", "message", "hint"))
    error = RaftlineError.from_wire((code, message or code, hint, {}))
    return exits.code_of(error) if session.json else exits.fail(error)


def _moment(text: str, flag: str) -> int | None:
    if not text:
        return None
    try:
        return parse_time_ms(text, now_ms=clock.wall_ms())
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=flag) from error


def _partitions(client: Client, topic: str, partition: int | None) -> list[int]:
    if partition is not None:
        return [partition]
    return [row["partition"] for row in client.topic(topic)["partitions"]]


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
    found, commit_end = client.look_up_time(topic, partition, from_ms or 0)
    return commit_end if new_only or found < 0 else found


def _drain(client: Client, topic: str, starts: dict[int, int]) -> Iterator[Message]:
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


def _within(
    messages: Iterator[Message], from_ms: int | None, to_ms: int | None
) -> Iterator[Message]:
    """Keep exactly ``[from_ms, to_ms)``: timestamps are the senders' and need not be in order."""
    for message in messages:
        if from_ms is not None and message.timestamp_ms < from_ms:
            continue
        if to_ms is not None and message.timestamp_ms >= to_ms:
            continue
        yield message


def _print(session: Session, message: Message) -> None:
    if session.json:
        sys.stdout.write(json.dumps(to_json(message), ensure_ascii=False) + "\n")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write((message.value or b"") + b"\n")
    sys.stdout.flush()
