"""The whole error tree: every refusal a caller may see.

::

    RaftlineError
    ├── NotFound            there is no such thing
    │   ├── UnknownTopic        unknown_topic
    │   ├── UnknownPartition    unknown_partition
    │   ├── OffsetOutOfRange    offset_out_of_range
    │   ├── UnknownNode         unknown_node
    │   ├── UnknownGroup        unknown_group
    │   ├── UnknownMember       unknown_member
    │   ├── UnknownMessage      unknown_message
    │   ├── UnknownRoute        unknown_route
    │   └── UnknownMethod       unknown_method
    ├── Invalid             the request can never succeed as it stands
    │   ├── InvalidTopic        invalid_topic
    │   ├── InvalidArgument     invalid_argument
    │   ├── CorruptBatch        corrupt_batch
    │   ├── BatchTooLarge       batch_too_large
    │   ├── TooLarge            too_large
    │   └── NotEnoughNodes      not_enough_nodes
    ├── Conflict            it clashes with what is there
    │   ├── TopicExists         topic_exists
    │   ├── NodeExists          node_exists
    │   ├── AlreadyBootstrapped already_bootstrapped
    │   ├── WrongCluster        wrong_cluster
    │   ├── WrongDirectory      wrong_directory
    │   ├── NewerFormat         newer_format
    │   ├── OutOfOrder          out_of_order
    │   ├── FencedProducer      fenced_producer
    │   ├── FencedMember        fenced_member
    │   ├── FencedInstance      fenced_instance
    │   ├── Rebalancing         rebalancing
    │   ├── WrongGroupKind      wrong_group_kind
    │   ├── GroupNotEmpty       group_not_empty
    │   ├── NotWaiting          not_waiting
    │   ├── UnknownProducer     unknown_producer
    │   ├── DuplicateKey        duplicate_key
    │   ├── LeaseLost           lease_lost
    │   ├── StageMissing        stage_missing
    │   ├── FencedQuery         fenced_query
    │   └── NotArchived         not_archived
    ├── OverLimit           over_limit: too much for now; later it may go
    ├── Unavailable         not now; nothing was proposed, so trying again is safe
    │   ├── NotLeader           not_leader
    │   ├── NoLeader            no_leader
    │   ├── NoQuorum            no_quorum
    │   ├── NotReady            not_ready
    │   ├── ShuttingDown        shutting_down
    │   ├── DiskFull            disk_full
    │   ├── StorageFault        storage_fault
    │   └── Damaged             damaged
    ├── TimedOut            timed_out: the only error after which the effect is unknown
    └── Internal            internal: a bug, or an error of a newer node

Rules
    E1  A leaf has a stable ``code``; one code, one class (``ERRORS``).
    E2  The message names the thing with coordinates; the ``hint`` says what to do next.
    E3  ``retry`` says whether the same request may succeed later.
    E4  An error passes between nodes as (code, message, hint, extras) and comes back as its class;
        a code this build does not know becomes ``Internal`` with the code in its extras.
"""

from collections.abc import Sequence
from typing import ClassVar

Extra = str | int
ErrorWire = tuple[str, str, str, dict[str, Extra]]  # code, message, hint, extras


class RaftlineError(Exception):
    """Base of every refusal a caller may see."""

    code: ClassVar[str] = ""
    retry: ClassVar[bool] = False
    unknown: ClassVar[bool] = False  # the effect may or may not have happened

    def __init__(self, message: str, hint: str = "", **extras: Extra) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.extras: dict[str, Extra] = extras

    def to_wire(self) -> ErrorWire:
        """Return what a peer needs to rebuild this error. E4."""
        return self.code, self.message, self.hint, self.extras

    @staticmethod
    def from_wire(wire: ErrorWire) -> "RaftlineError":
        """Rebuild the error another node sent. E4."""
        code, message, hint, extras = wire
        cls = ERRORS.get(code)
        if cls is None:
            cls, extras = Internal, {**extras, "code": code}
        error = cls.__new__(cls)
        RaftlineError.__init__(error, message, hint)
        error.extras = extras
        return error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RaftlineError) and self.to_wire() == other.to_wire()

    __hash__ = Exception.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.message!r})"


class NotFound(RaftlineError):
    """There is no such thing."""


class UnknownTopic(NotFound):
    """No topic has this name."""

    code = "unknown_topic"

    def __init__(self, topic: str) -> None:
        shown = topic[:300]  # anything may be asked for
        super().__init__(
            f"there is no topic {shown!r}",
            f"create it: raftline topic create {shown}; what there is: raftline topic list",
            topic=topic,
        )


class UnknownPartition(NotFound):
    """The topic has fewer partitions."""

    code = "unknown_partition"

    def __init__(self, topic: str, partition: int, count: int = 0) -> None:
        has = f"; partitions are 0..{count - 1}" if count else ""
        super().__init__(
            f"there is no partition {topic}/{partition}{has}",
            f"raftline topic show {topic}",
            topic=topic,
            partition=partition,
        )


class OffsetOutOfRange(NotFound):
    """The offset is trimmed away or not written yet."""

    code = "offset_out_of_range"

    def __init__(self, where: str, offset: int, log_start: int, commit_end: int) -> None:
        super().__init__(
            f"{where}@{offset} is outside the log [{log_start}, {commit_end})",
            f"read from {log_start} (oldest kept) or {commit_end} (next to come)",
            offset=offset,
            log_start=log_start,
            commit_end=commit_end,
        )


class UnknownNode(NotFound):
    """The catalog has no such node."""

    code = "unknown_node"

    def __init__(self, node: str | int) -> None:
        super().__init__(f"the cluster has no node {node}", "raftline cluster status", node=node)


class UnknownGroup(NotFound):
    """No group has this name."""

    code = "unknown_group"

    def __init__(self, group: str) -> None:
        super().__init__(
            f"there is no group {group!r}", "what there is: raftline group list", group=group
        )


class UnknownMember(NotFound):
    """The group has no such member: it never joined, left, or was expired."""

    code = "unknown_member"

    def __init__(self, group: str, member: str) -> None:
        super().__init__(
            f"group {group!r} has no member {member!r}",
            "it left or was silent for too long: join again, and begin at the committed cursors",
            group=group,
            member=member,
        )


class UnknownMessage(NotFound):
    """No message has this id, or none any more."""

    code = "unknown_message"

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(
            f"there is no message {message}" + (f": {reason}" if reason else ""),
            "use an id that a send returned; what waits: raftline scheduled list TOPIC",
        )


class UnknownRoute(NotFound):
    """No gateway route has this path."""

    code = "unknown_route"

    def __init__(self, path: str) -> None:
        super().__init__(f"there is no route {path}", "GET /openapi.json lists the routes")


class UnknownMethod(NotFound):
    """The route, command or API exists, but not with this method or name."""

    code = "unknown_method"

    def __init__(self, method: str, known: str = "") -> None:
        super().__init__(f"{method} is not known here", f"use one of: {known}" if known else "")


class Invalid(RaftlineError):
    """The request can never succeed as it stands."""


class InvalidTopic(Invalid):
    """The name cannot be a topic's."""

    code = "invalid_topic"

    def __init__(self, topic: str, reason: str, hint: str = "") -> None:
        super().__init__(
            f"{topic[:300]!r} cannot be the name of a topic: {reason}",
            hint or "use 1 to 249 letters, digits, '.', '_' or '-'; not '.' or '..'",
        )


class InvalidArgument(Invalid):
    """A value is missing, malformed or out of bounds."""

    code = "invalid_argument"


class CorruptBatch(Invalid):
    """The bytes are not a sound record batch."""

    code = "corrupt_batch"

    def __init__(self, reason: str, where: str = "") -> None:
        super().__init__(
            f"corrupt batch {where}: {reason}" if where else f"corrupt batch: {reason}",
            "nothing was stored; seal the batch again (record batch v2, crc32c from byte 21 on)",
        )


class BatchTooLarge(Invalid):
    """One batch is over the limit."""

    code = "batch_too_large"

    def __init__(self, size_bytes: int, bytes_max: int, where: str = "") -> None:
        to = f" for {where}" if where else ""
        super().__init__(
            f"a batch of {size_bytes} bytes{to} is over the limit of {bytes_max}",
            "send fewer or smaller messages at a time",
            size_bytes=size_bytes,
            bytes_max=bytes_max,
        )


class TooLarge(Invalid):
    """What is asked for is larger than anybody may ask for."""

    code = "too_large"

    def __init__(self, what: str, asked: int, limit: int) -> None:
        super().__init__(
            f"{what}: {asked} is more than the {limit} allowed",
            "it will never go like that: ask for less, or split it",
            asked=asked,
            limit=limit,
        )


class NotEnoughNodes(Invalid):
    """More replicas are asked for than there are members."""

    code = "not_enough_nodes"

    def __init__(self, what: str, wanted: int, members: int) -> None:
        super().__init__(
            f"{what} needs {wanted} nodes, the cluster has {members} that may hold replicas",
            "add nodes (raftline serve --join), or ask for a smaller replication factor",
            wanted=wanted,
            members=members,
        )


class Conflict(RaftlineError):
    """The request clashes with what is there."""


class TopicExists(Conflict):
    """The name is taken."""

    code = "topic_exists"

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"topic {topic!r} exists already",
            f"use it, or choose another name; raftline topic show {topic}",
            topic=topic,
        )


class NodeExists(Conflict):
    """The node, or a replica on it, is there already."""

    code = "node_exists"

    def __init__(self, node: str | int, reason: str = "") -> None:
        super().__init__(
            f"node {node} is there already" + (f": {reason}" if reason else ""),
            "choose another name or node; raftline cluster status",
            node=node,
        )


class AlreadyBootstrapped(Conflict):
    """The cluster is founded; that happens once."""

    code = "already_bootstrapped"

    def __init__(self, cluster: str) -> None:
        super().__init__(
            f"cluster {cluster} is founded already",
            "start without --bootstrap, or with --join to become a member",
            cluster=cluster,
        )


class WrongCluster(Conflict):
    """The other end belongs to another cluster."""

    code = "wrong_cluster"

    def __init__(self, ours: str, theirs: str) -> None:
        super().__init__(
            f"this is cluster {ours}, the request is for cluster {theirs}",
            "check addresses and data directories; nothing was changed",
            ours=ours,
            theirs=theirs,
        )


class WrongDirectory(Conflict):
    """The data directory is not this node's, or not whole."""

    code = "wrong_directory"

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason, f"{hint}; nothing was changed")


class NewerFormat(Conflict):
    """Bytes or a feature level of a newer build."""

    code = "newer_format"

    def __init__(self, what: str, found: int, known: int) -> None:
        super().__init__(
            f"{what} has format {found}, this build knows up to {known}",
            "run the newer build here; nothing was changed",
            found=found,
            known=known,
        )


class OutOfOrder(Conflict):
    """The producer skipped a sequence number."""

    code = "out_of_order"

    def __init__(self, producer: int, epoch: int, sequence: int, expected: int) -> None:
        super().__init__(
            f"producer {producer} epoch {epoch} sent sequence {sequence}, expected {expected}",
            "an earlier batch is missing: send it first, or start a new producer epoch at 0",
            producer=producer,
            sequence=sequence,
            expected=expected,
        )


class FencedProducer(Conflict):
    """A newer epoch of the same producer exists."""

    code = "fenced_producer"

    def __init__(self, producer: int, epoch: int, current: int) -> None:
        super().__init__(
            f"producer {producer} epoch {epoch} is fenced by epoch {current}",
            "another instance took over: stop, or ask for a new producer id",
            producer=producer,
            epoch=epoch,
            current=current,
        )


class FencedMember(Conflict):
    """The member acts on an assignment that is not its own any more."""

    code = "fenced_member"

    def __init__(self, group: str, member: str, generation: int, current: int, why: str) -> None:
        super().__init__(
            f"member {member!r} of group {group!r} is fenced at generation {generation}: {why}",
            "send a heartbeat for the present assignment; drop what is not in it",
            group=group,
            member=member,
            generation=generation,
            current=current,
        )


class FencedInstance(Conflict):
    """A static member came back elsewhere: this one is not it any more."""

    code = "fenced_instance"

    def __init__(self, group: str, instance: str, member: str) -> None:
        super().__init__(
            f"member {member!r} of group {group!r} is fenced: another is {instance!r} now",
            "two run under one instance name: stop one of them, or give it a name of its own",
            group=group,
            instance=instance,
        )


class Rebalancing(Conflict):
    """Members of the group share partitions out anew."""

    code = "rebalancing"

    def __init__(self, group: str) -> None:
        super().__init__(
            f"members of group {group!r} share partitions out anew",
            "join again; cursors can be committed once partitions are assigned",
            group=group,
        )


class WrongGroupKind(Conflict):
    """The group has members of another kind, or that know no common protocol."""

    code = "wrong_group_kind"

    def __init__(self, group: str, reason: str) -> None:
        super().__init__(
            f"group {group!r} {reason}",
            "use another group name, or stop the other members first",
            group=group,
        )


class GroupNotEmpty(Conflict):
    """The group has members, so its cursors are theirs."""

    code = "group_not_empty"

    def __init__(self, group: str, members: int) -> None:
        super().__init__(
            f"group {group!r} has {members} members",
            "stop them first, or wait until their sessions end",
            group=group,
            members=members,
        )


class NotWaiting(Conflict):
    """The message is not waiting any more: it was released, or cancelled."""

    code = "not_waiting"

    def __init__(self, reason: str) -> None:
        super().__init__(
            reason,
            "nothing was changed; a released message is in the log and is delivered",
        )


class UnknownProducer(Conflict):
    """The partition has no state for this producer."""

    code = "unknown_producer"

    def __init__(self, producer: int, sequence: int) -> None:
        super().__init__(
            f"producer {producer} is not known here, yet sends sequence {sequence}",
            "its state expired: start a new epoch at sequence 0",
            producer=producer,
            sequence=sequence,
        )


class DuplicateKey(Conflict):
    """Messages of the batch have dedup keys that are remembered: nothing of it was stored.

    ``firsts`` names them: their place in the batch and the first message with that key, an offset
    or -n for the waiting message number n.
    """

    code = "duplicate_key"

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        super().__init__(
            f"{len(pairs)} messages of the batch were stored before, by their dedup keys",
            "send the rest without them; they have the ids of the first ones",
            firsts=",".join([f"{delta}:{first}" for delta, first in pairs]),
        )

    @property
    def firsts(self) -> list[tuple[int, int]]:
        """Return (place in the batch, first message) of each duplicate."""
        pairs = [pair.split(":") for pair in str(self.extras["firsts"]).split(",")]
        return [(int(delta), int(first)) for delta, first in pairs]


class LeaseLost(Conflict):
    """The lease ran out or was settled; somebody else may have the message."""

    code = "lease_lost"

    def __init__(self, where: str) -> None:
        super().__init__(
            f"the lease of {where} is not yours any more",
            "it ran out or was settled: receive again, with a longer lease or extended in time",
            where=where,
        )


class StageMissing(Conflict):
    """A batch cannot be published: chunks that it names are not staged."""

    code = "stage_missing"

    def __init__(self, query: str, batch: int, reason: str) -> None:
        super().__init__(
            f"batch {batch} of query {query!r} cannot be published: {reason}",
            "nothing was published; its chunks expired, were abandoned or never came: stage again",
            query=query,
            batch=batch,
        )


class FencedQuery(Conflict):
    """A query asks for what is behind it: somebody went on in its name."""

    code = "fenced_query"

    def __init__(self, query: str, asked: int, reason: str) -> None:
        super().__init__(
            f"number {asked} of query {query!r} is refused: {reason}",
            "a restarted query went on, or two run from different checkpoints: end this one, or "
            "give it a name of its own",
            query=query,
            asked=asked,
        )


class NotArchived(Conflict):
    """A trim would remove messages that are not archived."""

    code = "not_archived"

    def __init__(self, where: str, asked: int, archived: int) -> None:
        super().__init__(
            f"{where} is archived up to offset {archived}, a trim to {asked} would lose messages",
            "wait for raftline pipeline archive, trim less, or set archive=off on the topic",
            archived=archived,
        )


class OverLimit(RaftlineError):
    """There is too much of something now. Later it may go; what never goes is ``TooLarge``."""

    code = "over_limit"
    retry = True

    def __init__(self, what: str, asked: int, limit: int) -> None:
        super().__init__(
            f"{what}: {asked} is over the limit of {limit}",
            "nothing was done: try again later, more slowly, or make room",
            asked=asked,
            limit=limit,
        )


class Unavailable(RaftlineError):
    """Not now. Nothing was proposed, so trying again is safe."""

    retry = True


class NotLeader(Unavailable):
    """This replica does not lead; definitely not proposed."""

    code = "not_leader"

    def __init__(self, where: str, leader: int = 0) -> None:
        knows = f"; node {leader} does" if leader else "; no leader is known"
        super().__init__(
            f"this node does not lead {where}{knows}",
            "nothing was proposed: ask the leader, or any node with a fresh view",
            leader=leader,
        )


class NoLeader(Unavailable):
    """The shard has no known leader."""

    code = "no_leader"

    def __init__(self, where: str) -> None:
        super().__init__(
            f"{where} has no known leader",
            "an election takes about a second: try again; if it stays, raftline cluster status",
        )


class NoQuorum(Unavailable):
    """Too few voters answer."""

    code = "no_quorum"

    def __init__(self, where: str, alive: int, voters: int) -> None:
        super().__init__(
            f"{where} has no quorum: {alive} of {voters} voters answer",
            "start the missing nodes; if they are lost for good, raftline cluster recover",
            alive=alive,
            voters=voters,
        )


class NotReady(Unavailable):
    """The node cannot say or do it yet: it starts, joins, or is behind."""

    code = "not_ready"

    def __init__(self, reason: str) -> None:
        super().__init__(f"the node is not ready: {reason}", "try again in a moment")


class ShuttingDown(Unavailable):
    """The node stops."""

    code = "shutting_down"

    def __init__(self) -> None:
        super().__init__("the node is shutting down", "nothing was proposed: ask another node")


class DiskFull(Unavailable):
    """Free space is under the floor on a replica."""

    code = "disk_full"

    def __init__(self, node: str | int, free_bytes: int, floor_bytes: int) -> None:
        super().__init__(
            f"node {node} has {free_bytes} bytes free, under the floor of {floor_bytes}",
            "free space, trim or delete topics; reads, trims and deletes go on",
            node=node,
            free_bytes=free_bytes,
        )


class StorageFault(Unavailable):
    """A disk operation failed on a replica."""

    code = "storage_fault"

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(
            f"storage of {where} failed: {reason}",
            "see the node's log; the other replicas go on",
        )


class Damaged(Unavailable):
    """The bytes asked for are damaged here and out of service until repaired."""

    code = "damaged"

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(
            f"{where} is damaged here: {reason}",
            "it is repaired from the other replicas: try again, or read from another node",
        )


class TimedOut(RaftlineError):
    """Time is up; the effect is unknown."""

    code = "timed_out"
    retry = True
    unknown = True

    def __init__(self, what: str, timeout_ms: int) -> None:
        super().__init__(
            f"{what} was not answered within {timeout_ms} ms; it may still happen",
            "repeat it with the same producer id and sequence, or read to see whether it happened",
            timeout_ms=timeout_ms,
        )


class Internal(RaftlineError):
    """A bug, or an error of a newer node."""

    code = "internal"

    def __init__(self, reason: str) -> None:
        super().__init__(f"internal error: {reason}", "please report it with the node's log")


def _leaves(cls: type[RaftlineError]) -> list[type[RaftlineError]]:
    below = cls.__subclasses__()
    return [leaf for sub in below for leaf in _leaves(sub)] if below else [cls]


ERRORS: dict[str, type[RaftlineError]] = {cls.code: cls for cls in _leaves(RaftlineError)}
"""Every leaf by its code. E1."""
