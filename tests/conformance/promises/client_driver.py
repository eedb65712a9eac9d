"""The promises through the Python client: record batches and ranges of leases underneath."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import raftline
from raftline.model.errors import RaftlineError
from tests.conformance.promises.driver import Leased, Letter, Moved, Placed, Refused, own_headers
from tests.conformance.promises.http_driver import letter_of, moves_of


@contextmanager
def told() -> Iterator[None]:
    """Turn the client's errors into refusals."""
    try:
        yield
    except RaftlineError as error:
        raise Refused(error.code, error.message) from error


class ClientDriver:
    """``raftline.connect``."""

    def __init__(self, servers: list[str], name: str = "client") -> None:
        self.name = name
        self._line = raftline.connect(servers, timeout="30s", linger=0)

    def close(self) -> None:
        self._line.close()

    def create(self, topic: str, *, partitions: int, **settings: Any) -> None:
        with told():
            self._line.topics.create(topic, partitions=partitions, **settings)

    def send(
        self,
        topic: str,
        value: str,
        *,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        priority: int = 0,
        delay_ms: int | None = None,
        dedup_key: str | None = None,
    ) -> Placed:
        with told():
            sent = self._line.send_now(
                topic,
                value.encode(),
                key=key,
                headers=headers,
                priority=priority,
                delay=None if delay_ms is None else delay_ms / 1000,
                dedup_key=dedup_key,
            )
        return Placed(
            id=sent.id,
            partition=sent.partition,
            offset=sent.offset,
            is_duplicate=sent.is_duplicate,
        )

    def receive(
        self,
        topic: str,
        group: str,
        *,
        count: int = 10,
        wait_ms: int = 0,
        lease_ms: int = 10_000,
        ordered: bool = False,
        member: str = "",
    ) -> list[Leased]:
        with told():
            found = self._line.receive_many(
                topic,
                group=group,
                count=count,
                wait=wait_ms / 1000,
                lease=lease_ms / 1000,
                ordered=ordered,
                member=member,
            )
        return [
            Leased(
                id=message.id,
                partition=message.partition,
                offset=message.offset,
                key=None if message.key is None else message.key.decode(),
                value=message.text,
                headers=own_headers(
                    (name, text.decode()) for name, text in message.headers.items()
                ),
                priority=message.priority,
                attempt=message.attempt,
                handle=message,
            )
            for message in found
        ]

    def settle(
        self,
        message: Leased,
        verb: str,
        *,
        delay_ms: int | None = None,
        reason: str = "",
        lease_ms: int = 0,
    ) -> None:
        with told():
            if verb == "ack":
                message.handle.ack(wait=True)
            elif verb == "nack":
                delay = None if delay_ms is None else delay_ms / 1000
                message.handle.nack(reason, delay, wait=True)
            elif verb == "reject":
                message.handle.reject(reason, wait=True)
            elif verb == "release":
                message.handle.release(wait=True)
            else:
                message.handle.extend(lease_ms / 1000, wait=True)

    def read(self, topic: str, partition: int = 0) -> list[str]:
        with told():
            page = self._line.read(topic, partition)
        return [(message.value or b"").decode() for message in page.messages]

    def offset_at(self, topic: str, time_ms: int) -> int:
        with told():
            return self._line.offsets(topic, 0, time_ms)["offset"]

    def cancel(self, message: str) -> None:
        with told():
            self._line.scheduled.cancel(message)

    def letters(self, topic: str) -> list[Letter]:
        with told():
            return [letter_of(row) for row in self._line.dlq.list(topic)["letters"]]

    def redrive(self, topic: str) -> int:
        with told():
            return self._line.dlq.redrive(topic, every=True)["redriven"]

    def reset(
        self,
        topic: str,
        group: str,
        *,
        offset: int | None = None,
        time_ms: int | None = None,
        create: bool = False,
        dry_run: bool = False,
    ) -> list[Moved]:
        to = "earliest" if offset is None and time_ms is None else None
        with told():
            answer = self._line.groups.reset(
                group, topic, to=to, offset=offset, time=time_ms, create=create, dry_run=dry_run
            )
        return moves_of(answer)
