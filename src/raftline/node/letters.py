"""Letters: what people do with a dead-letter topic. Answered by the leader of its partition.

    letters.list     {wanted}                    letters and what state each is in
    letters.redrive  {wanted, rate_per_s, dry_run}   deliver them again where they came from
    letters.purge    {wanted, dry_run}           done with: they are not listed any more

A redrive revives the message in its group at its old offset, so that its order holds and other
groups see nothing. Only where the log of the source begins behind it (retention) the letter's own
message is appended to the source partition, once: as a stream of its own with one piece.

One call handles up to ``LETTERS_PER_CALL_MAX`` letters, with ``rate_per_s`` as many as its time
allows, and says where to go on (``next``; -1: that was all). A call may be repeated: what is
redriven already is skipped.

What a letter's state is
    The source partition knows (``dead.state``). What was redriven or purged here is marked in the
    dead-letter partition as well, because the source forgets what is settled.
"""

from typing import TYPE_CHECKING

import msgspec

from raftline.model.dead_letter import DeadLetter
from raftline.model.errors import RaftlineError
from raftline.node.letter_scan import Found, Scan, wanted_of
from raftline.node.letter_sources import Words, ask_sources, letter_state
from raftline.node.letter_work import Work
from raftline.node.partition import PartitionHost
from raftline.node.questions import Arguments, Done

if TYPE_CHECKING:
    from raftline.node.node import Node


class Letters:
    """Answers for the dead-letter partitions that are led here."""

    def __init__(self, node: "Node") -> None:
        self.node = node

    def serve(self) -> None:
        """Answer these questions."""
        add = self.node.questions.add
        add("letters.list", self._list)
        add("letters.redrive", self._redrive)
        add("letters.purge", self._purge)

    def _list(self, host: PartitionHost, asked: Arguments, timeout_ms: int, done: Done) -> None:
        def found(answer: Found | RaftlineError) -> None:
            if isinstance(answer, RaftlineError):
                done(answer)
                return

            def known(words: Words) -> None:
                rows = [
                    _row(letter, letter_state(host, letter, words)) for letter in answer.letters
                ]
                done({"letters": rows, "next": answer.next})

            unmarked = [one for one in answer.letters if not host.machine.letters.state(one.offset)]
            ask_sources(self.node, "dead.state", unmarked, timeout_ms, known)

        Scan(self.node, host, wanted_of(asked), found).next()

    def _redrive(self, host: PartitionHost, asked: Arguments, timeout_ms: int, done: Done) -> None:
        Work(self.node, host, asked, timeout_ms, done, is_purge=False).start()

    def _purge(self, host: PartitionHost, asked: Arguments, timeout_ms: int, done: Done) -> None:
        Work(self.node, host, asked, timeout_ms, done, is_purge=True).start()


def _row(letter: DeadLetter, state: str) -> Arguments:
    key, value, headers, timestamp_ms = letter.message
    return {
        "offset": letter.offset,
        "state": state,
        "story": msgspec.to_builtins(letter.story),
        "key": key,
        "value": value,
        "headers": [[name, content] for name, content in headers],
        "timestamp_ms": timestamp_ms,
    }
