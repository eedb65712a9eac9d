"""The cluster over HTTP: health, status, membership, the check that all replicas agree."""

from typing import Any

import msgspec

from raftline.config.moments import show_moment
from raftline.gateways.http.answers import ClusterAnswer, HealthAnswer, ShardsAnswer
from raftline.gateways.http.connection import Exchange
from raftline.gateways.http.fields import Int
from raftline.gateways.http.routes import Request, Router
from raftline.gateways.http.topics import decode
from raftline.gateways.ports import Calls
from raftline.gateways.trace_topics import topics_named
from raftline.model.calls import NodeRow, Verified
from raftline.node.ports import Clock

Node = Int | str  # number or name


class Add(msgspec.Struct, forbid_unknown_fields=True):
    """Let a node join."""

    name: str
    address: str


class Remove(msgspec.Struct, forbid_unknown_fields=True):
    """Take a node out."""

    node: Node
    force: bool = False


class Replace(msgspec.Struct, forbid_unknown_fields=True):
    """Put one node in the place of another."""

    node: Node
    by: Node


class Move(msgspec.Struct, forbid_unknown_fields=True):
    """Move a replica; without ``from_node`` the partition gets one more."""

    topic: str
    partition: Int
    to_node: Node
    from_node: Node | None = None


class Transfer(msgspec.Struct, forbid_unknown_fields=True):
    """Hand leadership over."""

    topic: str
    partition: Int
    to_node: Node


class Recover(msgspec.Struct, forbid_unknown_fields=True):
    """Go on after a majority is gone."""

    accept_loss: bool = False


ADMIN: dict[str, tuple[type[msgspec.Struct], str]] = {
    "add": (Add, '{"name": "node-4", "address": "127.0.0.1:7003"}'),
    "remove": (Remove, '{"node": 3}'),
    "replace": (Replace, '{"node": 3, "by": 4}'),
    "move": (Move, '{"topic": "orders", "partition": 0, "from_node": 1, "to_node": 4}'),
    "transfer": (Transfer, '{"topic": "orders", "partition": 0, "to_node": 2}'),
    "recover": (Recover, '{"accept_loss": true}'),
}


class ClusterRoutes:
    """The routes that look at the cluster as a whole, or change it."""

    __slots__ = ("_calls", "_clock")

    def __init__(self, clock: Clock, calls: Calls) -> None:
        self._clock = clock
        self._calls = calls

    def add_to(self, router: Router) -> None:
        """Add the routes."""
        router.add("GET", "/health", self.health, answer=HealthAnswer)
        router.add("GET", "/v1/cluster", self.status, answer=ClusterAnswer)
        router.add("POST", "/v1/cluster/verify", self.verify, answer=Verified)
        for verb, (kind, _) in ADMIN.items():
            told: dict[str, Any] = {"summary": kind.__doc__ or "", "body": kind}
            path = f"/v1/cluster/{verb}"
            router.add("POST", path, self.change, answer=dict[str, Any], **told)
        router.add("GET", "/shards-info", self.shards, query="topics", answer=ShardsAnswer)

    def health(self, exchange: Exchange, request: Request) -> None:
        """Say whether this node takes work."""
        status = self._calls.status()
        body = {
            "status": "ready" if status.ready else "not ready",
            "reason": status.reason,
            "node": status.node,
            "name": status.name,
            "leader": next((n.name for n in status.nodes if n.id == status.catalog_leader), None),
            "timestamp": show_moment(self._clock.wall_ms()),
            "uptime_ms": status.uptime_ms,
        }
        exchange.json(body, 200 if status.ready else 503)

    def status(self, exchange: Exchange, request: Request) -> None:
        """Show nodes, topics and health as this node sees them."""
        status: dict[str, Any] = msgspec.to_builtins(self._calls.status())
        exchange.json({**status, "topics": self._calls.catalog().topics})

    def verify(self, exchange: Exchange, request: Request) -> None:
        """Compare all replicas of all shards."""

        def answer(verified: Verified) -> None:
            exchange.json(verified)

        self._calls.verify(request.timeout_ms, exchange.then(answer))

    def change(self, exchange: Exchange, request: Request) -> None:
        """Run an administrative command."""
        verb = request.path.strip("/").rpartition("/")[2]
        kind, example = ADMIN[verb]
        arguments = msgspec.structs.asdict(decode(request.body, kind, example))
        self._calls.command(
            f"cluster.{verb}", arguments, request.timeout_ms, exchange.then(exchange.json)
        )

    def shards(self, exchange: Exchange, request: Request) -> None:
        """Show who leads and who holds each partition (``?topics=a,b``: of these topics)."""
        wanted = request.query.get("topics")
        catalog = self._calls.catalog()
        topics = self._calls.known_topics()
        if wanted is not None:
            topics = topics_named(topics, wanted.split(","))
        shards = [
            {
                "topic": topic.name,
                "partition": row.partition,
                "shard": row.shard,
                "leader": row.leader,
                "replicas": row.replicas,
            }
            for topic in topics
            for row in topic.partitions
        ]
        leader = self._calls.status().catalog_leader
        brokers = {node.id: _broker(node) for node in catalog.nodes}
        info = {
            f"{topic.name}-{row.partition}": {
                "ShardType": "PARTITIONS",
                "ShardID": row.shard,
                "Topic": topic.name,
                "PartitionID": f"{topic.name}-{row.partition}",
                "Brokers": [brokers[node] for node in row.replicas if node in brokers],
                "Leader": brokers.get(row.leader),
            }
            for topic in topics
            for row in topic.partitions
        }
        exchange.json(
            {
                "shards": shards,
                "nodes": catalog.nodes,
                "shardInfo": info,
                "brokers": list(brokers.values()),
                "leader": brokers.get(leader),
            }
        )


def _broker(node: NodeRow) -> dict[str, Any]:
    """Return a node in the words of sreekar2307/queue."""
    return {
        "ID": node.id,
        "RaftAddress": node.peer,
        "ReachGrpcAddress": node.grpc,
        "ReachHttpAddress": node.http,
    }
