"""Bugs planted into staged writes and query leases: the checker must name the promise."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

Planted = Generator[None]


@contextmanager
def a_batch_published_again() -> Planted:
    """The fence is forgotten: a repeated publish stores the batch again."""
    from raftline.machines.partition.staging import PublishBegun, Publishing, Staging

    real = Staging.publish
    chosen: dict[tuple[int, str, int], list[Any]] = {}

    def publish(self: Any, command: Any, at_ms: int) -> Any:
        query = self.queries.get(command.query)
        key = (id(self), command.query, command.batch)
        if query is not None and query.publishing is None and query.fence == command.batch:
            again = chosen.get(key)
            if again:
                query.publishing = Publishing(command.batch, list(again))
                self._moving[command.query] = query.publishing
                query.fence -= 1
                query.bytes += sum(chunk[3] for chunk in again)
                self._kept.update(chunk[0] for chunk in again)
                return PublishBegun(command.batch, is_repeat=False, result=None)
        begun = real(self, command, at_ms)
        if query is not None and query.publishing is not None:
            chosen[key] = list(query.publishing.chunks)
        return begun

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Staging, "publish", publish)
        patch.setattr(Staging, "log_start", property(lambda self: 1))
        yield


@contextmanager
def a_loser_published() -> Planted:
    """All attempts of a task count, not only the one that was named."""
    from raftline.machines.partition import staging

    real = staging._chosen

    def chosen(query: Any, name: str, batch: int, winners: Any) -> Any:
        found = real(query, name, batch, winners)
        if isinstance(found, list):
            others = [c for key, c in query.chunks.items() if key[0] == batch and c not in found]
            found += others
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "_chosen", chosen)
        yield


@contextmanager
def a_piece_skipped() -> Planted:
    """A publisher takes a batch to be done when its first piece is."""
    from raftline.machines.partition.staging import Staging

    real = Staging.moved

    def moved(self: Any, command: Any, *words: Any) -> Any:
        under_way = self.queries[command.query].publishing
        for chunk in under_way.chunks[command.end :]:
            self.queries[command.query].bytes -= chunk[3]
            self._kept.discard(chunk[0])
        del under_way.chunks[command.end :]
        return real(self, command, *words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Staging, "moved", moved)
        yield


@contextmanager
def a_number_leased_anew() -> Planted:
    """Asking for a number again acks what it had and takes other messages."""
    from raftline.machines.delivery import query_leases

    real = query_leases.lease_query

    def lease_query(group: Any, command: Any, *words: Any) -> Any:
        held = group.queries.get(command.query)
        if held is not None and held.n == command.n and held.spans:
            query_leases._ack(group, held)
            held.is_acked = False
        return real(group, command, *words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("raftline.machines.delivery.machine.lease_query", lease_query)
        yield


@contextmanager
def acked_when_leased() -> Planted:
    """What a query leases counts as acked at once."""
    from raftline.machines.delivery import query_leases

    real = query_leases.lease_query

    def lease_query(group: Any, command: Any, *words: Any) -> Any:
        outcome = real(group, command, *words)
        held = group.queries.get(command.query)
        if held is not None and held.spans:
            for start, end, _, _ in query_leases._fours(held.spans):
                for piece in query_leases._leased(group, held.lease, start, end):
                    group.change(piece, None)
        return outcome

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("raftline.machines.delivery.machine.lease_query", lease_query)
        yield


@contextmanager
def a_stale_number_taken() -> Planted:
    """A number that is behind is given messages as if it were the next."""
    from raftline.machines.delivery import query_leases

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_leases, "_refusal", lambda *_: None)
        yield
