"""Reading the log as it is stored: stored batches in, messages out."""

from urllib.parse import quote

import msgspec

from raftline.client.core.batches import known_id
from raftline.client.core.ports import BATCH, Ask, Reply
from raftline.client.messages import Message
from raftline.model.batch import split_batches
from raftline.model.errors import InvalidArgument
from raftline.model.records import open_batch

ID_HEADER = "raftline-id"


class Page(msgspec.Struct, frozen=True):
    """Messages of one read, and where to go on."""

    messages: list[Message]
    next_offset: int
    log_start: int
    commit_end: int


def read_ask(topic: str, partition: int, offset: int, *, wait_ms: int, bytes_max: int) -> Ask:
    """Return the call that reads from ``offset`` on."""
    path = f"/v1/topics/{quote(topic, safe='')}/partitions/{partition}/messages"
    return Ask(
        method="GET",
        path=f"{path}?offset={offset}&wait_ms={wait_ms}&bytes_max={bytes_max}",
        accept=BATCH,
        topic=topic,
        partition=partition,
        is_repeatable=True,
        wait_ms=wait_ms,
    )


def page_of(reply: Reply, topic: str, partition: int, offset: int, count: int) -> Page:
    """Return at most ``count`` messages from ``offset`` on.

    Raises:
        InvalidArgument, CorruptBatch: none are asked for; what came is no batch.
    """
    if count < 1:
        raise InvalidArgument(f"count {count} is below 1", "read at least one message")
    view = memoryview(reply.body)
    messages: list[Message] = []
    next_offset = offset
    for start, length in split_batches(reply.body):
        batch = view[start : start + length]
        for stored in open_batch(batch):
            if stored.offset < offset or len(messages) == count:
                continue
            headers = {name: content or b"" for name, content in stored.headers}
            waited = headers.get(ID_HEADER)
            messages.append(
                Message(
                    topic=topic,
                    partition=partition,
                    offset=stored.offset,
                    timestamp_ms=stored.timestamp_ms,
                    id=known_id(topic, partition, stored.offset, waited),
                    key=stored.key,
                    value=stored.value,
                    headers=headers,
                )
            )
        end = int.from_bytes(batch[:8], "big") + int.from_bytes(batch[23:27], "big") + 1
        next_offset = max(next_offset, end)
        if len(messages) == count:
            next_offset = messages[-1].offset + 1
            break
    log_start = int(reply.field(b"Raftline-Log-Start") or 0)
    commit_end = int(reply.field(b"Raftline-Commit-End") or next_offset)
    return Page(messages, next_offset, log_start, commit_end)
