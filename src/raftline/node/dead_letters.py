"""Dead letters on their way: from the outbox of a partition to the dead-letter topic.

The machine of the source partition gave up on messages and put each into its outbox under the next
number (machines/delivery/outbox.py). Its leader reads the originals, writes what became of them
into headers, sends them as pieces of a stream to partition 0 of ``<topic>.dlq`` and, once they are
there, commits ``Buried``. Nothing of that is remembered here: every step may be repeated, by this
leader or the next, because the fence at the other end stores each number once.

A dead-letter topic has no dead-letter topic. What a work group gives up on there is settled for
that group (node/desks.py) and stays where it is: in the log, listed, to be redriven.

Invariants
    B1  One piece of a source partition is in flight at a time.
    B2  What cannot be sent is tried again, 100 ms to 5 s later; the source goes on meanwhile.
    B3  An original that cannot be read is not waited for without end: its letter goes without a
        value and says why (``raftline-lost``).
"""

from typing import TYPE_CHECKING

from raftline.machines.delivery.commands import Buried
from raftline.machines.partition.streams import Streamed, StreamHead
from raftline.model.errors import RaftlineError, TopicExists, UnknownTopic
from raftline.model.names import dead_letter_topic
from raftline.model.settings import effective
from raftline.node.letter_pieces import (
    PIECE_MESSAGES_MAX,
    Gathering,
    Letter,
    PieceBuilt,
    Place,
)
from raftline.node.partition import PartitionHost

if TYPE_CHECKING:
    from raftline.node.node import Node
    from raftline.node.replica import Replica

TIMEOUT_MS = 5_000  # of one step
BACKOFF_MS, BACKOFF_MS_MAX = 100, 5_000
UNREADABLE_TRIES_MAX = 20  # about a minute and a half: time for repair from a peer

LETTER_PARTITION = 0


class DeadLetters:
    """The outboxes of the partitions that are led here."""

    def __init__(self, node: "Node") -> None:
        self.node = node
        self._outgoing: dict[int, Outgoing] = {}  # by source shard

    def look_after(self, replica: "Replica") -> None:
        """Send what is in the outbox of a partition we lead, if nobody does so already."""
        host = replica.host
        if (
            not replica.is_leader
            or replica.frozen
            or not isinstance(host, PartitionHost)
            or not host.machine.delivery.outbox
        ):
            return
        known = self._outgoing.get(replica.shard)
        row = self.node.catalog_machine.shards.get(replica.shard)
        if row is not None and (known is None or not known.is_alive()):  # B1
            outgoing = self._outgoing[replica.shard] = Outgoing(self, replica, host, row.topic)
            outgoing.next()

    def ended(self, outgoing: "Outgoing") -> None:
        """An outbox is empty, or no longer ours to send."""
        if self._outgoing.get(outgoing.replica.shard) is outgoing:
            del self._outgoing[outgoing.replica.shard]


class Outgoing:
    """The outbox of one partition, sent piece by piece as long as there is something in it."""

    __slots__ = (
        "_backoff_ms",
        "_letters",
        "_sent",
        "_term",
        "_topic",
        "_unreadable",
        "host",
        "replica",
    )

    def __init__(
        self, letters: DeadLetters, replica: "Replica", host: PartitionHost, topic: str
    ) -> None:
        self._letters = letters
        self._topic = topic
        self.replica = replica
        self.host = host
        self._term = replica.raft.term
        self._sent = 0  # the last number that the dead-letter topic has, as far as we know
        self._backoff_ms = 0
        self._unreadable = 0  # tries in a row in which an original could not be read

    def is_alive(self) -> bool:
        """Say whether we still lead in the term in which this began."""
        replica = self.replica
        return (
            replica.is_leader
            and replica.raft.term == self._term
            and replica.host is self.host
            and not self._letters.node.is_stopping
        )

    def next(self) -> None:
        """Gather the next piece."""
        outbox = self.host.machine.delivery.outbox
        if not self.is_alive() or not outbox:
            self._letters.ended(self)
            return
        self._sent = max(self._sent, outbox.buried)
        wanted = self._wanted()
        if not wanted:
            self._bury()  # all we know of is there
            return
        gathering = Gathering(self._letters.node, self.host, wanted, self._built)
        gathering.give_up = self._unreadable >= UNREADABLE_TRIES_MAX  # B3
        gathering.next()

    def _wanted(self) -> list[Letter]:
        """Return the first messages behind what was sent."""
        wanted: list[Letter] = []
        identity = self.host.identity
        place = Place(self._topic, identity.partition, identity.topic_uuid)
        for dying in self.host.machine.delivery.outbox.after(self._sent):
            for offset in range(dying.start, dying.end):
                if len(wanted) == PIECE_MESSAGES_MAX:
                    return wanted
                number = dying.number + offset - dying.start
                wanted.append(Letter(number, offset, place, dying))
        return wanted

    def _built(self, built: PieceBuilt | RaftlineError) -> None:
        if not self.is_alive():
            self._letters.ended(self)
        elif isinstance(built, RaftlineError):
            self._unreadable += 1
            self._later(built)
        else:
            self._send(built)

    def _send(self, built: PieceBuilt) -> None:
        head = StreamHead(
            self.replica.shard,
            self.host.identity.topic_uuid,
            self._sent + 1,
            built.number,
            self.host.machine.delivery.outbox.buried,
        )
        self._letters.node.pieces.send(
            dead_letter_topic(self._topic),
            LETTER_PARTITION,
            head,
            built.batch,
            TIMEOUT_MS,
            self._answered,
        )

    def _answered(self, answer: Streamed | RaftlineError) -> None:
        if not self.is_alive():
            self._letters.ended(self)
        elif isinstance(answer, UnknownTopic):
            self._create()
        elif isinstance(answer, RaftlineError):
            self._later(answer)
        elif answer.last <= self._sent:  # another log than the one we knew: from the outbox again
            self._sent = answer.last
            self._later(None)
        else:
            self._sent = answer.last
            self._backoff_ms = self._unreadable = 0
            self._bury()

    def _bury(self) -> None:
        """Commit that everything up to here is there."""
        clock = self._letters.node.clock
        if self._sent <= self.host.machine.delivery.outbox.buried:
            self._letters.ended(self)
            return

        def buried(answer: object) -> None:
            if isinstance(answer, RaftlineError):
                self._later(answer)
            else:
                self.next()

        desk = self._letters.node.desks.of(self.replica)
        desk.collect([Buried(self._sent)], clock.mono_ms() + TIMEOUT_MS, TIMEOUT_MS, buried)

    def _create(self) -> None:
        """Create the dead-letter topic, with as many replicas as the source has."""
        node = self._letters.node
        row = node.catalog_machine.topics.get(self._topic)
        if row is None:
            self._letters.ended(self)  # the source is deleted
            return
        retention_ms = effective(row.settings)["dead_letter_retention_ms"]
        arguments: dict[str, object] = {
            "name": dead_letter_topic(self._topic),
            "partitions": 1,
            "replication_factor": row.replication_factor,
            "settings": {"retention_ms": retention_ms},
        }

        def created(answer: dict[str, object] | RaftlineError) -> None:
            if isinstance(answer, RaftlineError) and not isinstance(answer, TopicExists):
                self._later(answer)
            else:
                self.next()

        node.command("topic.create", arguments, TIMEOUT_MS, created)

    def _later(self, error: RaftlineError | None) -> None:
        """Try again after a while. B2."""
        node = self._letters.node
        if not self.is_alive():
            self._letters.ended(self)
            return
        if error is not None and self._backoff_ms in (0, BACKOFF_MS_MAX // 2):
            reason = f"{error.code}: {error.message}"
            node.log("warning", "dead_letters.wait", partition=self.host.name, reason=reason)
        self._backoff_ms = min(BACKOFF_MS_MAX, max(BACKOFF_MS, 2 * self._backoff_ms))
        node.clock.call_later(self._backoff_ms, self.next)
