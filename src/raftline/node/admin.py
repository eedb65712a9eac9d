"""Administrative commands: what people ask of the cluster, wherever they ask it.

Commands on the catalog are built and proposed by its leader (which stamps time); those on one
partition by that partition's leader. The caller hears of it after this node has applied it too, and
of a change of topics after every live node has (everywhere.py).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from raftline.config.new_topics import new_topic_partitions, new_topic_settings
from raftline.machines.catalog.commands import (
    AddPartitions,
    AllocateProducers,
    Command,
    CreateTopic,
    DeleteTopic,
    DropNode,
    ForceReplicas,
    LeaveNode,
    MoveReplica,
    PlaceCoordination,
    ReplaceNode,
    ReplaceReplica,
    SetTopic,
)
from raftline.machines.catalog.events import (
    ProducersAllocated,
    ReplicaReplaced,
    TopicCreated,
)
from raftline.machines.catalog.state import LEAVING
from raftline.machines.partition.commands import Noop
from raftline.model.errors import (
    InvalidArgument,
    InvalidTopic,
    NodeExists,
    NotReady,
    OverLimit,
    RaftlineError,
    TimedOut,
    UnknownTopic,
)
from raftline.model.ids import (
    CATALOG_SHARD,
    INCARNATION_BITS,
    NodeId,
    ReplicaId,
    ShardId,
    node_of,
)
from raftline.model.limits import REPLICATION_FACTOR_MAX
from raftline.model.names import traced_topic
from raftline.model.settings import check_settings
from raftline.node.catalog import CatalogHost
from raftline.node.command_proposal import Applied, CommandProposal
from raftline.node.everywhere import Everywhere
from raftline.node.partition import PartitionHost
from raftline.node.remote import VERB_COMMAND, Answer, Reply
from raftline.node.replica import Replica
from raftline.node.state_host import StateHost
from raftline.node.trims import trim

if TYPE_CHECKING:
    from raftline.node.node import Node

Arguments = dict[str, object]
Done = Callable[[dict[str, object] | RaftlineError], None]
PRODUCER_BLOCK = 1000
# Known to all when they are answered.
EVERYWHERE = ("topic.create", "topic.set", "topic.grow", "topic.delete")

_pack = msgspec.msgpack.encode


class Request(msgspec.Struct, frozen=True, array_like=True):
    """A command on its way to a leader."""

    shard: int
    name: str
    arguments: dict[str, object]


_decode_request = msgspec.msgpack.Decoder(Request).decode
_decode_dict = msgspec.msgpack.Decoder(dict[str, object]).decode


class Admin:
    """Runs administrative commands."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._producers = (0, 0)  # next id, end of our block
        self._everywhere = Everywhere(node)

    def serve(self) -> None:
        """Answer other nodes."""
        self._node.remote.handle(VERB_COMMAND, self._on_command)
        self._everywhere.serve()

    # ------------------------------------------------------------------ asking

    def run(self, name: str, arguments: Arguments, timeout_ms: int, done: Done) -> None:
        """Run one command; ``done`` hears its result."""
        node = self._node
        try:
            if name == "producer.new":
                self._new_producer(timeout_ms, done)
            elif name == "cluster.recover":
                node.recovery.run(arguments, timeout_ms, done)
            elif name == "cluster.add":
                node.admissions.invite(_text(arguments, "address"), timeout_ms, done)
            elif name in ("cluster.transfer", "topic.trim", "shard.mark"):
                self._on_shard(name, arguments, timeout_ms, done)
            else:
                self._on_catalog(name, arguments, timeout_ms, done)
        except RaftlineError as error:
            done(error)

    def _on_catalog(self, name: str, arguments: Arguments, timeout_ms: int, done: Done) -> None:
        node = self._node
        if name == "topic.create":
            arguments = {"uuid": node.rng.randbytes(16).hex(), **arguments}
        elif name == "topic.delete":
            arguments = {"request": node.rng.randbytes(8).hex(), **arguments}
        deadline = node.clock.mono_ms() + timeout_ms

        def answered(answer: Answer) -> None:
            if isinstance(answer, RaftlineError):
                done(answer)
                return
            result = _decode_dict(answer)
            index = result.get("index")
            reached = index if isinstance(index, int) else 0

            def applied(ok: bool) -> None:  # noqa: FBT001
                if not ok:
                    done(TimedOut(f"{name} to reach this node", timeout_ms))
                elif name in EVERYWHERE:
                    left_ms = deadline - node.clock.mono_ms()
                    self._everywhere.wait(reached, left_ms, lambda: done(result))
                else:
                    done(result)

            node.wait_catalog(reached, deadline, applied)

        self._send(CATALOG_SHARD, name, arguments, timeout_ms, answered)

    def ask_catalog(self, name: str, arguments: Arguments, timeout_ms: int, done: Done) -> None:
        """Run a command on the catalog without waiting for it to be applied here."""
        self._send(
            CATALOG_SHARD,
            name,
            arguments,
            timeout_ms,
            lambda answer: done(
                answer if isinstance(answer, RaftlineError) else _decode_dict(answer)
            ),
        )

    def _on_shard(self, name: str, arguments: Arguments, timeout_ms: int, done: Done) -> None:
        shard = arguments.get("shard")
        if not isinstance(shard, int):
            topic, partition = _text(arguments, "topic", "name"), _number(arguments, "partition")
            shard = self._node.catalog_machine.shard_of(topic, partition).id
        self._send(
            shard,
            name,
            arguments,
            timeout_ms,
            lambda answer: done(
                answer if isinstance(answer, RaftlineError) else _decode_dict(answer)
            ),
        )

    def _send(
        self,
        shard: int,
        name: str,
        arguments: Arguments,
        timeout_ms: int,
        done: Callable[[Answer], None],
    ) -> None:
        def local(replica: Replica, left_ms: int, answer: Callable[[Answer], None]) -> None:
            self._lead(replica, name, arguments, left_ms, answer)

        self._node.router.send(
            shard,
            VERB_COMMAND,
            [_pack(Request(shard, name, arguments))],
            timeout_ms,
            done,
            local,
            repeatable=True,
        )

    def _new_producer(self, timeout_ms: int, done: Done) -> None:
        first, end = self._producers
        if first < end:
            self._producers = (first + 1, end)
            done({"producer_id": first, "epoch": 0})
            return

        def allocated(answer: Answer) -> None:
            if isinstance(answer, RaftlineError):
                done(answer)
                return
            block = _decode_dict(answer)
            first, count = block["first"], block["count"]
            assert isinstance(first, int)
            assert isinstance(count, int)
            self._producers = (first, first + count)
            self._new_producer(timeout_ms, done)

        self._send(CATALOG_SHARD, "producers.allocate", {}, timeout_ms, allocated)

    # ------------------------------------------------------------------ leading

    def _on_command(self, body: memoryview, timeout_ms: int, reply: Reply) -> None:
        try:
            request = _decode_request(body)
        except msgspec.DecodeError as error:
            reply(InvalidArgument(f"a command does not parse: {error}"))
            return
        replica = self._node.led(request.shard)
        if isinstance(replica, RaftlineError):
            reply(replica)
            return
        self._lead(replica, request.name, request.arguments, timeout_ms, reply)

    def _lead(
        self, replica: Replica, name: str, arguments: Arguments, timeout_ms: int, reply: Reply
    ) -> None:
        """Carry a command out on the leader of its shard.

        Who was just elected may not have applied yet what its predecessor took in, and would judge
        by what was true before: it is not ready. Who was deposed may not know it yet: whether a
        topic exists is therefore judged where the command is applied, never here.
        """
        if replica.applied_term != replica.raft.term:
            reply(NotReady(f"{replica.name} has a new leader"))
            return
        try:
            if replica.shard == CATALOG_SHARD and name != "cluster.transfer":
                self._lead_catalog(replica, name, arguments, timeout_ms, reply)
            else:
                self._lead_shard(replica, name, arguments, timeout_ms, reply)
        except RaftlineError as error:
            reply(error)

    def _proposal(self, replica: Replica, timeout_ms: int, reply: Reply) -> CommandProposal:
        def applied(result: Applied | RaftlineError) -> None:
            if isinstance(result, RaftlineError):
                reply(result)
            else:
                reply(_pack({"index": result.index, **self._describe(result.events)}))

        deadline = self._node.clock.mono_ms() + timeout_ms
        return CommandProposal(replica.name, deadline, timeout_ms, applied)

    def _lead_catalog(
        self, replica: Replica, name: str, arguments: Arguments, timeout_ms: int, reply: Reply
    ) -> None:
        host = replica.host
        assert isinstance(host, CatalogHost)
        if name == "topic.create" and self._already(host, arguments):
            row = host.machine.topics[_text(arguments, "name")]
            made = {"name": row.name, "uuid": row.uuid, "partitions": len(row.shards)}
            reply(_pack({"index": replica.applied_index, **made}))
            return
        proposal = self._proposal(replica, timeout_ms, reply)
        if name == "shard.mark":
            host.mark(proposal)
        else:
            host.propose(self._build(host, name, arguments, replica.time.stamp()), proposal)

    @staticmethod
    def _already(host: CatalogHost, arguments: Arguments) -> bool:
        """Say whether this very request was carried out before (its answer got lost)."""
        row = host.machine.topics.get(_text(arguments, "name"))
        return row is not None and row.uuid == arguments.get("uuid")

    def _build(self, host: CatalogHost, name: str, arguments: Arguments, at_ms: int) -> Command:
        match name:
            case "topic.create":
                return self._create_topic(host, arguments, at_ms)
            case "topic.delete":
                return self._delete_topic(host, arguments, at_ms)
            case "topic.set":
                settings = check_settings(_mapping(arguments, "settings"))
                unset = msgspec.convert(arguments.get("unset") or [], list[str])
                return SetTopic(_text(arguments, "name"), settings, tuple(unset), at_ms)
            case "topic.grow":
                return AddPartitions(
                    _text(arguments, "name"), _number(arguments, "partitions"), at_ms
                )
            case "cluster.remove":
                return self._remove_node(host, arguments, at_ms)
            case "cluster.drained":
                return self._drop_drained(host, arguments, at_ms)
            case "cluster.replace":
                old = self._node_number(host, arguments, "node")
                return ReplaceNode(old, self._node_number(host, arguments, "by"), at_ms)
            case "cluster.move" if not arguments.get("from_node"):
                return self._one_more(host, arguments, at_ms)
            case "cluster.move":
                return MoveReplica(
                    self._shard_number(host, arguments),
                    self._node_number(host, arguments, "from_node"),
                    self._node_number(host, arguments, "to_node"),
                    at_ms,
                )
            case "replica.replace":
                return ReplaceReplica(
                    ShardId(_number(arguments, "shard")),
                    NodeId(_number(arguments, "node")),
                    ReplicaId(_number(arguments, "seen")),
                    at_ms,
                )
            case "groups.place":
                return PlaceCoordination(ShardId(_number(arguments, "shard")), at_ms)
            case "producers.allocate":
                return AllocateProducers(PRODUCER_BLOCK, at_ms)
            case _:
                raise InvalidArgument(
                    f"there is no command {name!r}", "see raftline --help for what there is"
                )

    def _create_topic(self, host: CatalogHost, arguments: Arguments, at_ms: int) -> CreateTopic:
        defaults = self._node.settings
        name = _text(arguments, "name")
        if (source := traced_topic(name)) in host.machine.topics:
            raise InvalidTopic(name, f"it means the trace of {source}", "use another name")
        partitions = arguments.get("partitions") or new_topic_partitions(defaults, name)
        # A default is no order: it yields where there are fewer nodes.
        factor = arguments.get("replication_factor") or min(
            defaults.topics.replication_factor, len(host.machine.members())
        )
        if not isinstance(partitions, int) or not isinstance(factor, int):
            raise InvalidArgument("partitions and replication_factor are whole numbers")
        settings = check_settings(_mapping(arguments, "settings"))
        settings = {**new_topic_settings(defaults), **settings}
        return CreateTopic(name, _text(arguments, "uuid"), partitions, factor, settings, at_ms)

    @staticmethod
    def _delete_topic(host: CatalogHost, arguments: Arguments, at_ms: int) -> DeleteTopic:
        """Delete a topic; where a uuid is named, none that was made anew under its name.

        Only a tombstone says that the one with the uuid is gone: who was deposed may be behind.
        """
        name, uuid = _text(arguments, "name"), str(arguments.get("uuid", ""))
        row = host.machine.topics.get(name)
        if uuid and row is not None and row.uuid != uuid:
            if host.machine.was_deleted(uuid):
                raise UnknownTopic(name)
            raise NotReady(f"the catalog here may be an old one: topic {name} has another id")
        return DeleteTopic(name, at_ms, str(arguments.get("request", "")))

    def _remove_node(
        self, host: CatalogHost, arguments: Arguments, at_ms: int
    ) -> LeaveNode | DropNode:
        """Let a node leave. One that is dead never says that it has left: a person does."""
        number = self._node_number(host, arguments, "node")
        force = bool(arguments.get("force", False))
        row = host.machine.nodes[number]
        is_live = number == self._node.id or self._node.peers.is_live(number)
        if force and row.state == LEAVING and not is_live:
            return DropNode(number, at_ms)
        return LeaveNode(number, force, at_ms)

    def _drop_drained(self, host: CatalogHost, arguments: Arguments, at_ms: int) -> DropNode:
        """Forget a node that says it is drained; that may be of before it had to vote again."""
        number, replica = self._node_number(host, arguments, "node"), host.replica
        assert replica is not None
        voters = (*replica.conf.voters, *replica.conf.voters_outgoing)
        is_live = number == self._node.id or self._node.peers.is_live(number)
        if is_live and any(node_of(ReplicaId(voter)) == number for voter in voters):
            raise NotReady(f"node {number} still votes in the catalog")
        return DropNode(number, at_ms)

    def _one_more(self, host: CatalogHost, arguments: Arguments, at_ms: int) -> ForceReplicas:
        """Give a partition one replica more: those it has, and a new one.

        They are listed as applied here. A replica that a command in between took away would come
        back under its old number: nothing may be between what is applied here and this command.
        """
        shard = host.machine.shards[self._shard_number(host, arguments)]
        to = self._node_number(host, arguments, "to_node")
        count = len(shard.replicas)
        if not shard.topic:
            raise InvalidArgument(f"{shard.place} has as many replicas as it needs", "use --from")
        if to in shard.nodes():
            raise NodeExists(to, f"{shard.place} has a replica there")
        if count >= REPLICATION_FACTOR_MAX:
            raise OverLimit(f"replicas of {shard.place}", count + 1, REPLICATION_FACTOR_MAX)
        replica = host.replica
        assert replica is not None
        if replica.applied_index < replica.raft.last_index:
            raise NotReady("the catalog is just being changed")
        new = ReplicaId(to << INCARNATION_BITS)
        return ForceReplicas(shard.id, (*shard.replicas, new), at_ms)

    def _lead_shard(
        self, replica: Replica, name: str, arguments: Arguments, timeout_ms: int, reply: Reply
    ) -> None:
        if name == "cluster.transfer":
            reply(_pack(self._transfer(replica, arguments)))
            return
        host = replica.host
        proposal = self._proposal(replica, timeout_ms, reply)
        if isinstance(host, StateHost) and name == "shard.mark":
            host.mark(proposal)
            return
        if not isinstance(host, PartitionHost):
            raise InvalidArgument(f"{replica.name} holds no messages")
        if name == "topic.trim":
            offset = _number(arguments, "offset")
            self._node.log_questions.check_trim(replica, host, offset)
            trim(host, offset, proposal)
        elif name == "shard.mark":
            host.command(Noop(replica.time.stamp()), proposal)
        else:
            raise InvalidArgument(f"there is no command {name!r} on a partition")

    def _transfer(self, replica: Replica, arguments: Arguments) -> dict[str, object]:
        wanted = self._node.node_number(arguments.get("to_node"))
        for voter in replica.conf.voters:
            if node_of(ReplicaId(voter)) == wanted:
                replica.transfer(ReplicaId(voter))
                return {"to": wanted}
        raise InvalidArgument(
            f"node {wanted} has no voting replica of {replica.name}",
            "raftline topic show lists the replicas",
        )

    @staticmethod
    def _describe(events: Sequence[object]) -> dict[str, object]:
        first = events[0] if events else None
        match first:
            case TopicCreated():
                return {"name": first.name, "uuid": first.uuid, "partitions": len(first.shards)}
            case ProducersAllocated():
                return {"first": first.first, "count": first.count}
            case ReplicaReplaced():
                return {"replica": first.replica}
            case _:
                return {}

    def _node_number(self, host: CatalogHost, arguments: Arguments, key: str) -> NodeId:
        return self._node.node_number(arguments.get(key))

    @staticmethod
    def _shard_number(host: CatalogHost, arguments: Arguments) -> ShardId:
        named = arguments.get("topic")
        if not named or (named == "catalog" and named not in host.machine.topics):
            return CATALOG_SHARD
        topic, partition = _text(arguments, "topic"), _number(arguments, "partition")
        return host.machine.shard_of(topic, partition).id


def _text(arguments: Arguments, *keys: str) -> str:
    for key in keys:
        value = arguments.get(key)
        if isinstance(value, str) and value:
            return value
    raise InvalidArgument(f"{keys[0]!r} is missing", "give it as text")


def _number(arguments: Arguments, key: str) -> int:
    value = arguments.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"{key!r} is missing", "give it as a whole number")
    return value


def _mapping(arguments: Arguments, key: str) -> dict[str, object]:
    value = arguments.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidArgument(f"{key!r} is not a table of settings")
    return msgspec.convert(value, dict[str, object])
