"""``raftline produce``: send messages."""

import contextlib
import io
import json
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Annotated, Any, cast
from urllib.parse import quote

import typer

from raftline.cli import exits, words
from raftline.cli.session import Session
from raftline.client.messages import put_bytes
from raftline.model.errors import InvalidArgument, RaftlineError

SEND_MAX = 500  # messages in one call
SEND_BYTES_MAX = 1 << 20
PIECE_BYTES = 1 << 18


def produce(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="name of the topic")],
    key: Annotated[
        str | None, typer.Option("--key", "-k", help="the same key, the same partition, in order")
    ] = None,
    text: Annotated[str | None, typer.Option("--message", "-m", help="one message")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="one message a line")] = None,
    priority: Annotated[
        str, typer.Option(help="-128 to 127, or critical, high, normal, low, background")
    ] = "",
    delay: Annotated[str, typer.Option("--delay", "-d", help="deliver after 30s, 5m, 2h …")] = "",
    deliver_at: Annotated[str, typer.Option(help="deliver at an RFC 3339 time, a date, +1h")] = "",
    dedup_key: Annotated[
        str, typer.Option(help="the same key again within a day stores nothing")
    ] = "",
    header: Annotated[list[str] | None, typer.Option(help="name=value, repeatable")] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0)] = None,
    producer: Annotated[str, typer.Option(help="the sender's name in the timeline")] = "",
) -> int:
    """Send messages: one a line from standard input, unless -m or -f. Prints the id of each.

    For example:

      echo '{"order_id": 123}' | raftline produce orders --key order-123
      raftline produce orders -m "remind me" --delay 5m
      raftline produce orders -m now! --priority high --dedup-key payment-7
    """
    session: Session = context.obj
    words.only_one(message=text is not None, file=file)
    words.only_one(delay=delay, deliver_at=deliver_at)
    due_ms = words.moment_ms(deliver_at, "--deliver-at")
    shared: dict[str, Any] = {
        "priority": words.priority(priority),
        "delay": words.duration_ms(delay, "--delay"),
        "deliverAt": due_ms,
        "dedup_key": dedup_key or None,
        "headers": words.pairs(header, "--header") or None,
        "partition": partition,
    }
    shared = {name: value for name, value in shared.items() if value is not None}
    if key is not None:
        put_bytes(shared, "key", key.encode("utf-8", "surrogateescape"))
    code = exits.DONE
    for values in _values(session, text, file):
        code = _send(session, topic, values, shared, producer) or code
        with _read_or_not():
            sys.stdout.flush()
    return code


def split_lines(pieces: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Cut pieces into lines, in lots that fit one call. What came together is sent together."""
    left = b""
    for piece in pieces:
        *lines, left = (left + piece).split(b"\n")
        yield from _lots(line.removesuffix(b"\r") for line in lines)
    if left:
        yield [left]


def _send(
    session: Session, topic: str, values: list[bytes], shared: dict[str, Any], producer: str
) -> int:
    rows: list[dict[str, Any]] = []
    for value in values:
        row: dict[str, Any] = {}
        put_bytes(row, "value", value)
        rows.append({**row, **shared})
    body: dict[str, Any] = {"messages": rows}
    if producer:
        body["producer"] = producer
    reply = session.call("POST", f"/v1/topics/{quote(topic, safe='')}/messages", body)
    code = exits.DONE
    for result in reply["results"]:
        code = _report(session, result) or code
    return code


def _report(session: Session, result: dict[str, Any]) -> int:
    """Print one result; return the exit code it asks for."""
    error = result.get("error")
    with _read_or_not():
        if session.json:
            sys.stdout.write(json.dumps(result, ensure_ascii=False) + "\n")
        elif error is None:
            sys.stdout.write(f"{result['id']}\n")
    if error is None:
        return exits.DONE
    given = cast("dict[str, Any]", error) if isinstance(error, dict) else {"code": error}
    code, message, hint = (str(given.get(name, "")) for name in ("code", "message", "hint"))
    refusal = RaftlineError.from_wire((code, message or code, hint, {}))
    return exits.code_of(refusal) if session.json else exits.fail(refusal)


@contextlib.contextmanager
def _read_or_not() -> Generator[None]:
    """Print ids. Who had enough of them (``produce … | head``) wants the rest sent all the same."""
    try:
        yield
    except BrokenPipeError:
        exits.write_no_more()


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


def _values(session: Session, text: str | None, file: Path | None) -> Iterator[list[bytes]]:
    if text is not None:
        yield [text.encode("utf-8", "surrogateescape")]  # bytes as they were typed
        return
    try:
        if file is None:
            if sys.stdin.isatty():
                session.note("one message a line; Ctrl-D ends")
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
