"""Words of a catalog script. Nodes are written ``name`` or ``name:rack``, replicas ``name`` or
``name.3`` where 3 is the incarnation (1 is not written). ``b!b2`` is b with the disk ``b2``; the
first disk of b is ``b1``.

found NODE...                        found the cluster
admit NODE                           a node comes, or comes back (``b!b2``: with an empty disk)
leave NAME [force]                   move everything off it
drop NAME
replace NAME BY
create TOPIC partitions=N [factor=N] [setting=value ...]
delete TOPIC | grow TOPIC N | set TOPIC [setting=value ...] [-setting ...]
move PLACE FROM TO                   PLACE is ``orders/0`` or ``catalog``
renew PLACE NAME.INCARNATION         the replica is lost or damaged
force PLACE REPLICA...               ``b.1`` survives, ``+c`` is new
producers N
groups N                             place the Nth shard for groups
restart                              restore a fresh machine from the snapshot
show                                 where everything is
"""

from raftline.machines.catalog import commands as c
from raftline.machines.catalog import events as ev
from raftline.machines.catalog.machine import CatalogMachine
from raftline.machines.machine import Refused
from raftline.model.ids import (
    CATALOG_SHARD,
    COORDINATION_SHARDS,
    NodeId,
    incarnation_of,
    node_of,
    replica_id,
)


class Words:
    def __init__(self) -> None:
        self.machine = CatalogMachine()
        self.at_ms = 0

    def check(self) -> None:
        self.machine.check()

    def run(self, line: str) -> list[str]:
        verb, *words = line.split()
        if verb == "show":
            return self._show()
        if verb == "restart":
            fresh = CatalogMachine()
            fresh.restore(self.machine.snapshot())
            assert fresh.snapshot() == self.machine.snapshot()
            self.machine = fresh
            return []
        make = getattr(self, f"_{verb}", None)
        if make is None:
            return [f"unknown word {verb}"]
        self.at_ms += 1
        events = self.machine.apply(1, 1, c.encode_command(make(words)))
        return [text for event in events if (text := self._told(event))]

    # From words to commands.

    def _found(self, words: list[str]) -> c.Command:
        specs: list[c.NodeSpec] = []
        for number, word in enumerate(words, 1):
            name, directory, peer, rack = node(word)
            specs.append(c.NodeSpec(NodeId(number), name, directory, peer, rack=rack))
        return c.Found("c1", tuple(specs), self.at_ms)

    def _admit(self, words: list[str]) -> c.Command:
        name, directory, peer, rack = node(words[0])
        return c.AdmitNode(name, directory, peer, rack=rack, at_ms=self.at_ms)

    def _leave(self, words: list[str]) -> c.Command:
        return c.LeaveNode(self._node(words[0]), "force" in words, self.at_ms)

    def _drop(self, words: list[str]) -> c.Command:
        return c.DropNode(self._node(words[0]), self.at_ms)

    def _replace(self, words: list[str]) -> c.Command:
        return c.ReplaceNode(self._node(words[0]), self._node(words[1]), self.at_ms)

    def _create(self, words: list[str]) -> c.Command:
        args = dict(word.split("=") for word in words[1:])
        partitions, factor = int(args.pop("partitions")), int(args.pop("factor", "0"))
        return c.CreateTopic(words[0], f"uuid{self.at_ms}", partitions, factor, args, self.at_ms)

    def _delete(self, words: list[str]) -> c.Command:
        return c.DeleteTopic(words[0], self.at_ms)

    def _grow(self, words: list[str]) -> c.Command:
        return c.AddPartitions(words[0], int(words[1]), self.at_ms)

    def _set(self, words: list[str]) -> c.Command:
        given = dict(word.split("=") for word in words[1:] if "=" in word)
        unset = tuple(word[1:] for word in words[1:] if word.startswith("-"))
        return c.SetTopic(words[0], given, unset, self.at_ms)

    def _move(self, words: list[str]) -> c.Command:
        place, old, new = words
        return c.MoveReplica(self._shard(place), self._node(old), self._node(new), self.at_ms)

    def _renew(self, words: list[str]) -> c.Command:
        replica = self._replica(words[1])
        return c.ReplaceReplica(self._shard(words[0]), node_of(replica), replica, self.at_ms)

    def _force(self, words: list[str]) -> c.Command:
        replicas = tuple(self._replica(word) for word in words[1:])
        return c.ForceReplicas(self._shard(words[0]), replicas, self.at_ms)

    def _producers(self, words: list[str]) -> c.Command:
        return c.AllocateProducers(int(words[0]), self.at_ms)

    def _groups(self, words: list[str]) -> c.Command:
        return c.PlaceCoordination(COORDINATION_SHARDS.start + int(words[0]), self.at_ms)

    def _node(self, name: str) -> NodeId:
        row = self.machine.node_named(name)
        return row.id if row else NodeId(99)

    def _shard(self, place: str):
        if place == "catalog":
            return CATALOG_SHARD
        topic, partition = place.split("/")
        return self.machine.shard_of(topic, int(partition)).id

    def _replica(self, word: str):
        if word.startswith("+"):
            return self._node(word[1:]) << 24
        name, incarnation = word.split(".")
        return replica_id(self._node(name), int(incarnation))

    # From events to words.

    def _told(self, event: ev.Event) -> str:
        match event:
            case Refused():
                return f"refused {event.code}: {event.message}"
            case ev.ShardPlaced() | ev.ShardMoved() | ev.ShardForced():
                return self._where(event.shard, event)
            case ev.ReplicaReplaced():
                return f"the replica is {self._name(event.replica)}"
            case ev.NodeAdmitted():
                return f"node {event.node} is {event.name} ({event.how})"
            case ev.NodeLeaving() | ev.NodeRemoved():
                verb = "is leaving" if isinstance(event, ev.NodeLeaving) else "is removed"
                return f"node {event.node} {verb}"
            case ev.TopicCreated() | ev.TopicDeleted():
                verb = "created" if isinstance(event, ev.TopicCreated) else "deleted"
                return f"topic {event.name} {verb}"
            case ev.TopicChanged():
                topic = self.machine.topics[event.name]
                settings = " ".join(f"{k}={v}" for k, v in topic.settings.items())
                return f"topic {event.name} factor={topic.replication_factor} {settings}".rstrip()
            case ev.Founded():
                return f"cluster {event.cluster} founded"
            case _:
                return str(event)

    def _where(self, shard: int, row) -> str:
        held = self.machine.shards.get(shard)
        place = held.place if held else f"shard {shard}"
        text = f"{place} on {self._names(row.replicas)}"
        if getattr(row, "observers", ()):
            text += f", observed by {self._names(row.observers)}"
        if isinstance(row, ev.ShardForced):
            text += f", from {self._names(row.survivors) or 'nothing'}"
        return text

    def _show(self) -> list[str]:
        lines = [
            f"node {row.id} {row.name} {row.state}" + (f" in {row.rack}" if row.rack else "")
            for row in self.machine.nodes.values()
        ]
        return lines + [self._where(n, row) for n, row in sorted(self.machine.shards.items())]

    def _names(self, replicas) -> str:
        return " ".join(self._name(replica) for replica in replicas)

    def _name(self, replica) -> str:
        name = self.machine.nodes[node_of(replica)].name
        incarnation = incarnation_of(replica)
        return name if incarnation == 1 else f"{name}.{incarnation}"


def node(word: str) -> tuple[str, str, str, str]:
    """Return name, directory, peer address, rack."""
    word, _, rack = word.partition(":")
    name, _, disk = word.partition("!")
    return name, disk or f"{name}1", f"{name}:7000", rack
