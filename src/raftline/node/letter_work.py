"""A redrive or a purge: letter by letter, at a rate, as long as the call's time allows.

The sources are asked to revive or to forget; what is gone there is appended (redrive); what was
done is marked in the dead-letter partition, so that a repeat of the call skips it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from raftline.machines.partition.commands import LETTERS_PURGED, LETTERS_REDRIVEN, MarkLetters
from raftline.machines.partition.letters import LETTER_STATES
from raftline.machines.partition.streams import Streamed, StreamHead
from raftline.model.dead_letter import DeadLetter
from raftline.model.errors import (
    RaftlineError,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
)
from raftline.model.intervals import IntervalSet
from raftline.model.records import seal_batch
from raftline.node.command_proposal import Applied, CommandProposal
from raftline.node.dead_questions import W_DEAD, W_GONE, W_REDRIVEN
from raftline.node.letter_scan import END, Found, Scan, wanted_of
from raftline.node.letter_sources import ASK_TIMEOUT_MS, Words, ask_sources, letter_state
from raftline.node.partition import PartitionHost
from raftline.node.questions import Arguments, Done
from raftline.node.trims import trim

if TYPE_CHECKING:
    from raftline.node.node import Node

RATE_STEP_MS = 100
TIME_RESERVED_MS = 2_000  # of a call, for its last step
PURGEABLE = (
    W_DEAD,
    W_REDRIVEN,
    W_GONE,
    UnknownTopic.code,
    UnknownPartition.code,
    UnknownGroup.code,
)


class Work:
    """One redrive or purge, step by step."""

    __slots__ = (
        "_deadline",
        "_done",
        "_dry_run",
        "_ended",
        "_host",
        "_left",
        "_matched",
        "_next",
        "_node",
        "_purge",
        "_rate",
        "_skipped",
        "_timeout_ms",
        "_wanted",
        "_worked",
    )

    def __init__(
        self,
        node: "Node",
        host: PartitionHost,
        asked: Arguments,
        timeout_ms: int,
        done: Done,
        *,
        is_purge: bool,
    ) -> None:
        self._node = node
        self._host = host
        self._done = done
        self._purge = is_purge
        self._timeout_ms = timeout_ms
        self._deadline = node.clock.mono_ms() + timeout_ms - TIME_RESERVED_MS
        self._wanted = wanted_of(asked)
        self._rate = max(0, int(asked.get("rate_per_s", 0)))
        self._dry_run = bool(asked.get("dry_run", False))
        self._left: list[DeadLetter] = []
        self._matched = self._worked = 0
        self._skipped: list[tuple[int, str]] = []
        self._next = END
        self._ended = False

    def start(self) -> None:
        """Find the letters that are meant."""
        Scan(self._node, self._host, self._wanted, self._found).next()

    def _found(self, answer: Found | RaftlineError) -> None:
        if isinstance(answer, RaftlineError):
            self._done(answer)
            return
        self._next = answer.next
        self._left = answer.letters
        if self._dry_run:
            self._look()
        else:
            self._step()

    def _look(self) -> None:
        """Say what would be done."""
        unmarked = [one for one in self._left if not self._marked(one)]
        self._matched = len(self._left)

        def known(words: Words) -> None:
            for letter in self._left:
                why = _why(letter_state(self._host, letter, words), is_purge=self._purge)
                if why:
                    self._skipped.append((letter.offset, why))
                else:
                    self._worked += 1
            self._finish()

        ask_sources(self._node, "dead.state", unmarked, self._timeout_ms, known)

    def _step(self) -> None:
        """Work on the next letters: all of them, or as many as the rate allows."""
        count = max(1, self._rate * RATE_STEP_MS // 1000) if self._rate else len(self._left)
        now, self._left = self._left[:count], self._left[count:]
        self._matched += len(now)
        todo: list[DeadLetter] = []
        for letter in now:
            if self._marked(letter):
                self._skipped.append((letter.offset, self._marked(letter)))
            else:
                todo.append(letter)
        name = "dead.forget" if self._purge else "dead.revive"
        ask_sources(
            self._node, name, todo, self._timeout_ms, lambda words: self._asked(todo, words)
        )

    def _asked(self, todo: list[DeadLetter], words: Words) -> None:
        """The sources answered: append what is gone, mark what is done."""
        gone: list[DeadLetter] = []
        marks: list[int] = []
        for letter in todo:
            word = words[letter.offset]
            if self._purge:
                if word in PURGEABLE:
                    marks.append(letter.offset)
                    self._worked += 1
                else:
                    self._skipped.append((letter.offset, word))
            elif word == W_GONE and not letter.story.lost:
                gone.append(letter)
            elif word == W_DEAD:
                marks.append(letter.offset)
                self._worked += 1
            else:
                if word == W_REDRIVEN:
                    marks.append(letter.offset)
                self._skipped.append((letter.offset, "lost" if word == W_GONE else word))
        self._append(gone, marks)

    def _append(self, gone: list[DeadLetter], marks: list[int]) -> None:
        """Append the messages of letters whose originals are gone, one after the other.

        Each takes a round of the source's log: as many as the call's time allows, one at least.
        """
        if not gone:
            self._mark(marks)
            return
        letter, rest = gone[0], gone[1:]
        story = letter.story
        replica = self._host.replica
        assert replica is not None
        name = f"{self._host.identity.topic_uuid}@{letter.offset}"
        head = StreamHead(replica.shard, name, 1, 1)

        def appended(answer: Streamed | RaftlineError) -> None:
            if isinstance(answer, RaftlineError):
                self._skipped.append((letter.offset, answer.code))
            else:
                marks.append(letter.offset)
                self._worked += 1
            if rest and self._node.clock.mono_ms() >= self._deadline:
                self._matched -= len(rest)
                self._left = rest + self._left  # for the next call: it goes on there
                self._mark(marks)
            else:
                self._node.clock.call_soon(lambda: self._append(rest, marks))

        try:
            batch = seal_batch([letter.message])
        except RaftlineError as error:
            appended(error)
            return
        pieces = self._node.pieces
        pieces.send(story.topic, story.partition, head, batch, ASK_TIMEOUT_MS, appended)

    def _mark(self, offsets: list[int]) -> None:
        """Remember here what was done."""
        if not offsets:
            self._go_on()
            return
        ranges = [end for pair in IntervalSet((o, o + 1) for o in offsets) for end in pair]
        state = LETTERS_PURGED if self._purge else LETTERS_REDRIVEN

        def marked(answer: Applied | RaftlineError) -> None:
            if isinstance(answer, RaftlineError):
                self._end(answer)
            else:
                self._go_on()

        command = MarkLetters(ranges, state, self._stamp())
        self._host.command(command, self._proposal(marked))

    def _go_on(self) -> None:
        clock = self._node.clock
        if not self._left:
            self._trim()
        elif clock.mono_ms() + RATE_STEP_MS >= self._deadline:
            self._next = self._left[0].offset - 1
            self._trim()
        elif self._rate:
            count = max(1, self._rate * RATE_STEP_MS // 1000)
            clock.call_later(1000 * count / self._rate, self._step)
        else:
            self._step()

    def _trim(self) -> None:
        """Let go of the beginning of the log if all of it is purged, and archived where it must."""
        machine, replica = self._host.machine, self._host.replica
        start = machine.letters.purged.first_gap(machine.log_start)
        if replica is not None and self._node.log_questions.is_required(replica):
            start = min(start, machine.archive.archived)
        if self._purge and start > machine.log_start:
            trim(self._host, start, self._proposal(lambda _: self._finish()))
        else:
            self._finish()

    def _finish(self) -> None:
        self._end(
            {
                "matched": self._matched,
                "done": self._worked,
                "skipped": self._skipped,
                "next": self._next,
                "dry_run": self._dry_run,
            }
        )

    def _end(self, answer: Arguments | RaftlineError) -> None:
        if not self._ended:
            self._ended = True
            self._done(answer)

    def _proposal(self, done: Callable[[Applied | RaftlineError], None]) -> CommandProposal:
        deadline = self._node.clock.mono_ms() + ASK_TIMEOUT_MS
        return CommandProposal(self._host.name, deadline, ASK_TIMEOUT_MS, done)

    def _stamp(self) -> int:
        replica = self._host.replica
        assert replica is not None
        return replica.time.stamp()

    def _marked(self, letter: DeadLetter) -> str:
        state = self._host.machine.letters.state(letter.offset)
        if not state or (self._purge and state != LETTERS_PURGED):
            return ""
        return LETTER_STATES[state]


def _why(state: str, *, is_purge: bool) -> str:
    """Say why a letter would be left out; nothing if it would not."""
    if is_purge:
        return state if state == LETTER_STATES[LETTERS_PURGED] else ""
    return "" if state == W_DEAD else state
