"""The tape: every committed entry of every partition, as replicas applied it.

Replicas apply the same entries again after a restart, and each of three applies each: all must be
the same bytes. What the tape holds in the end is the committed log since the beginning, whatever
checkpoints and retention have removed meanwhile, so that models can replay it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raftline.node.partition import PartitionHost
    from raftline.node.replica import Proposal
    from raftline.raft.rpc import Entry
    from raftline.testing.hosts import Build, Parts, Program

Applied = tuple[int, int, bytes]  # index, term, data


class Tape:
    """Committed entries by shard and index."""

    __slots__ = ("_entries", "conflicts")

    def __init__(self) -> None:
        self._entries: dict[int, dict[int, tuple[int, bytes]]] = {}
        self.conflicts: list[str] = []  # entries that two replicas read differently

    def note(self, shard: int, index: int, term: int, data: bytes) -> None:
        """A replica applies an entry."""
        entry = (term, data)
        before = self._entries.setdefault(shard, {}).setdefault(index, entry)
        if before != entry:
            self.conflicts.append(f"shard {shard} index {index}: terms {before[0]} and {term}")

    def entries(self, shard: int, after: int = 0) -> list[Applied]:
        """Return a shard's entries behind an index, in the order of the log."""
        found = self._entries.get(shard, {})
        return [(index, *found[index]) for index in sorted(i for i in found if i > after)]

    def record(self, build: "Build") -> "Build":
        """Return a build whose nodes write what they apply onto this tape."""

        def recorded(parts: "Parts") -> "Program":
            program: Any = build(parts)
            assemble = getattr(program, "_assemble", None)
            if assemble is not None:  # a toy has none

                def listen() -> None:
                    assemble()
                    self._listen(program.shards)

                program._assemble = listen  # shards exist only once it starts
            return program

        return recorded

    def _listen(self, shards: Any) -> None:
        new_host = shards.new_host

        def made(shard: int, *words: Any, **named: Any) -> "PartitionHost":
            host = new_host(shard, *words, **named)
            apply = host.apply

            def noted(entry: "Entry", proposal: "Proposal | None") -> None:
                self.note(shard, entry.index, entry.term, entry.data)
                apply(entry, proposal)

            host.apply = noted
            return host

        shards.new_host = made
