"""Staged writes and the archived mark: what jobs ask of a partition's leader.

Questions and answers (questions.py); each may be repeated.
    stage.put      {query, batch, task, attempt, chunk, payload, extras} -> {staged, already}
    stage.publish  {query, batch, winners: [[task, attempt, chunks], ...], after: batch or None}
                   -> {offset, count, already, waiting, duplicates}
    stage.abandon  {query, batch} -> {dropped}
    stage.forget   {query} -> {dropped}
    stage.show     {query} -> {fence, chunks, bytes, publishing}
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from raftline.machines.partition.side_car import HASH_BYTES
from raftline.machines.partition.stage_extras import Extras, check_extras, seal_extras
from raftline.machines.partition.staging_commands import (
    Abandon,
    ChunkKey,
    ForgetQuery,
    Publish,
    PublishAfter,
    Winner,
    encode_stage,
    encode_staging,
)
from raftline.machines.partition.staging_words import (
    NO_BATCH,
    Dropped,
    PublishBegun,
    Result,
    Staged,
)
from raftline.machines.partition.waiting import over_limit
from raftline.model.batch import NO_PRODUCER, check_batch
from raftline.model.errors import (
    CorruptBatch,
    InvalidArgument,
    NotLeader,
    RaftlineError,
    TooLarge,
)
from raftline.model.limits import (
    OFFSET_MAX,
    QUERY_NAME_CHARS_MAX,
    STAGE_CHUNKS_MAX,
    STAGE_DUE_BYTES_MAX,
)
from raftline.model.settings import SETTINGS
from raftline.node.command_proposal import Applied, CommandProposal
from raftline.node.partition import PartitionHost
from raftline.node.publishing import Publisher
from raftline.node.questions import Arguments, Done
from raftline.node.replica import Replica
from raftline.node.stage_pieces import check_parts

if TYPE_CHECKING:
    from raftline.node.node import Node

CHUNK_MAX = (1 << 32) - 1


class StagedWrites:
    """What a node does about staged writes."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        add = node.questions.add
        add("stage.put", self._put)
        add("stage.publish", self._publish)
        add("stage.abandon", self._abandon)
        add("stage.forget", self._forget)
        add("stage.show", self._show)

    def role_changed(self, replica: Replica) -> None:
        """A leader goes on with what was decided, or will be as it applies; nobody else does."""
        host = replica.host
        if not isinstance(host, PartitionHost) or host.replica is not replica:
            return
        if not replica.is_leader:
            if host.publisher is not None:
                host.publisher.close(NotLeader(host.name, replica.leader_node))
                host.publisher = None
        else:
            self._publisher(host, replica).look()

    def _publisher(self, host: PartitionHost, replica: Replica) -> Publisher:
        if host.publisher is None:
            host.publisher = Publisher(
                self._node, host, replica, lambda: self.setting(replica, "dedup_ms")
            )
        return host.publisher

    def setting(self, replica: Replica, name: str) -> int:
        """Return a setting of a partition's topic."""
        machine = self._node.catalog_machine
        row = machine.shards.get(replica.shard)
        topic = machine.topics.get(row.topic) if row is not None else None
        settings = topic.settings if topic is not None else {}
        return int(settings.get(name, SETTINGS[name].default))

    def tidy(self, host: PartitionHost, replica: Replica) -> None:
        """Let time pass in a partition whose staged writes ran out: nothing else may do it."""
        expiry_ms, at_ms = host.machine.staging.next_expiry_ms(), replica.time.stamp()
        if expiry_ms is not None and expiry_ms < at_ms:
            name = next(iter(host.machine.staging.queries))
            data = encode_staging(Abandon(at_ms, name, NO_BATCH))
            replica.propose(data, self._node.proposal(lambda _: None))

    # ------------------------------------------------------------------ staging

    def _put(self, host: PartitionHost, asked: Arguments, ms: int, done: Done) -> None:
        replica = _replica(host)
        query, key = query_of(asked), _key_of(asked)
        refusal = self._node.upkeep.admission(replica)
        if refusal is not None:
            raise refusal
        payload = asked.get("payload")
        if not isinstance(payload, bytes):
            raise InvalidArgument("a staged chunk has no payload", "send one sealed batch")
        batch_bytes_max = min(
            self.setting(replica, "batch_bytes_max"), self._node.settings.limits.batch_bytes_max
        )
        info = check_batch(payload, host.name, bytes_max=batch_bytes_max)
        if info.producer_id != NO_PRODUCER:
            text = "a staged batch has a producer id"
            raise InvalidArgument(text, "seal it without one: the fence keeps repeats out")
        extras = _extras_of(asked)
        check_extras(extras, info.count)
        at_ms = replica.time.stamp()
        if extras.dues_ms:
            self._check_dues(replica, extras, info.attributes, info.length, at_ms)
        data = encode_stage(
            at_ms,
            self.setting(replica, "stage_ms"),
            query,
            key,
            payload,
            info.count,
            info.max_timestamp,
            seal_extras(extras, at_ms),
        )

        def answer(event: Staged) -> dict[str, Any]:
            return {"staged": event.number >= 0, "already": event.number < 0}

        def checked(_: None, error: BaseException | None) -> None:
            if isinstance(error, RaftlineError):
                done(error)
            elif error is not None:
                done(CorruptBatch(str(error), host.name))
            elif replica.is_closed:
                done(NotLeader(host.name, replica.leader_node))
            else:
                self._propose(host, data, ms, done, Staged, answer)

        if extras.dues_ms or extras.dedup:
            self._node.segments.run(lambda: check_parts(payload, extras), checked)
        else:
            checked(None, None)

    def _check_dues(
        self, replica: Replica, extras: Extras, attributes: int, length: int, at_ms: int
    ) -> None:
        """Refuse what could not be scheduled when it is published. Raises RaftlineError."""
        if attributes:
            text = "a chunk of messages that wait is compressed"
            raise InvalidArgument(text, "seal chunks with due times without compression")
        if length > STAGE_DUE_BYTES_MAX:
            raise TooLarge("bytes of a chunk of messages that wait", length, STAGE_DUE_BYTES_MAX)
        delay_ms, delay_ms_max = max(extras.dues_ms) - at_ms, self.setting(replica, "delay_ms_max")
        if delay_ms > delay_ms_max:
            raise over_limit(delay_ms, delay_ms_max)

    # ------------------------------------------------------------------ publishing

    def _publish(self, host: PartitionHost, asked: Arguments, ms: int, done: Done) -> None:
        replica = _replica(host)
        query, batch = query_of(asked), number_of(asked, "batch")
        winners = _winners_of(asked)

        def told(result: Result, *, already: bool) -> None:
            done({**msgspec.structs.asdict(result), "already": already})

        def applied(answer: Applied | RaftlineError) -> None:
            if isinstance(answer, RaftlineError):
                done(answer)
                return
            event = answer.events[0]
            assert isinstance(event, PublishBegun)
            already = event.is_repeat
            if event.result is not None:
                told(event.result, already=already)
                return
            self._publisher(host, replica).wait(query, batch, ms, finished(already))

        def finished(already: bool) -> Callable[[Result | RaftlineError], None]:  # noqa: FBT001
            def end(result: Result | RaftlineError) -> None:
                if isinstance(result, RaftlineError):
                    done(result)
                else:
                    told(result, already=already)

            return end

        command = Publish(replica.time.stamp(), query, batch, winners)
        if asked.get("after") is not None:
            after = number_of(asked, "after", low=NO_BATCH)
            command = PublishAfter(command.at_ms, query, batch, winners, after)
        data = encode_staging(command)
        deadline = self._node.clock.mono_ms() + ms
        replica.propose(data, CommandProposal(host.name, deadline, ms, applied))

    # ------------------------------------------------------------------ the rest

    def _abandon(self, host: PartitionHost, asked: Arguments, ms: int, done: Done) -> None:
        query, batch = query_of(asked), number_of(asked, "batch")
        data = encode_staging(Abandon(_replica(host).time.stamp(), query, batch))
        self._propose(host, data, ms, done, Dropped, lambda event: {"dropped": event.count})

    def _forget(self, host: PartitionHost, asked: Arguments, ms: int, done: Done) -> None:
        data = encode_staging(ForgetQuery(_replica(host).time.stamp(), query_of(asked)))
        self._propose(host, data, ms, done, Dropped, lambda event: {"dropped": event.count})

    def _show(self, host: PartitionHost, asked: Arguments, _ms: int, done: Done) -> None:
        name, staging = query_of(asked), host.machine.staging
        query = staging.queries.get(name)
        done(
            {
                "fence": staging.fence(name),
                "chunks": 0 if query is None else len(query.chunks),
                "bytes": 0 if query is None else query.bytes,
                "publishing": query is not None and query.publishing is not None,
            }
        )

    def _propose(
        self,
        host: PartitionHost,
        data: bytes,
        timeout_ms: int,
        done: Done,
        kind: type[Any],
        tell: Callable[[Any], dict[str, Any]],
    ) -> None:
        def applied(answer: Applied | RaftlineError) -> None:
            if isinstance(answer, RaftlineError):
                done(answer)
            else:
                assert isinstance(answer.events[0], kind)
                done(tell(answer.events[0]))

        deadline = self._node.clock.mono_ms() + timeout_ms
        _replica(host).propose(data, CommandProposal(host.name, deadline, timeout_ms, applied))


def query_of(asked: Arguments) -> str:
    """Return the name of the query that asks. Raises InvalidArgument."""
    name = asked.get("query")
    if not isinstance(name, str) or not 0 < len(name) <= QUERY_NAME_CHARS_MAX:
        raise InvalidArgument(
            "the query has no name, or one that is too long",
            f"query: 1 to {QUERY_NAME_CHARS_MAX} characters, the same after every restart",
        )
    return name


def number_of(asked: Arguments, name: str, high: int = OFFSET_MAX, low: int = 0) -> int:
    """Return a number that was asked with. Raises InvalidArgument."""
    value = asked.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidArgument(f"{name} is {value!r}", f"a whole number from {low} to {high}")
    return value


def _replica(host: PartitionHost) -> Replica:
    assert host.replica is not None
    return host.replica


def _key_of(asked: Arguments) -> ChunkKey:
    return (
        number_of(asked, "batch"),
        number_of(asked, "task"),
        number_of(asked, "attempt"),
        number_of(asked, "chunk", CHUNK_MAX),
    )


def _extras_of(asked: Arguments) -> Extras:
    try:
        extras = msgspec.convert(asked.get("extras") or (), Extras)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"extras of a staged chunk: {error}") from error
    if any(len(key) != HASH_BYTES for _, key in extras.dedup):
        raise InvalidArgument("extras of a staged chunk: dedup keys travel as hashes")
    return extras


def _winners_of(asked: Arguments) -> list[Winner]:
    try:
        winners = msgspec.convert(asked.get("winners"), list[Winner])
    except msgspec.ValidationError as error:
        hint = "winners: [[task, attempt, chunks], ...]"
        raise InvalidArgument(f"winners of a batch: {error}", hint) from error
    if len(winners) > STAGE_CHUNKS_MAX:
        raise TooLarge("tasks of a batch", len(winners), STAGE_CHUNKS_MAX)
    if any(not 0 <= number <= OFFSET_MAX for winner in winners for number in winner):
        raise InvalidArgument("winners of a batch: a number out of bounds")
    return winners
