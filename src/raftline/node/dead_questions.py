"""Questions to a source partition about messages that were given up on.

    dead.state   {uuid, group, rows}    what became of them since
    dead.revive  {uuid, group, rows}    deliver those that are dead again
    dead.forget  {uuid, group, rows}    settle those that are dead for good

``rows`` are pairs of offset and generation, as dead letters name them; the answer has one word for
each under ``words``::

    dead      given up on, in this generation (after forget: dropped, after revive: revived)
    dying     given up on, and the dead-letter topic has not confirmed it yet
    redriven  in a later generation, or settled since
    gone      the log begins behind it

A partition whose topic has another uuid than the letter says is another topic: ``unknown_topic``.
"""

from typing import TYPE_CHECKING

import msgspec

from raftline.machines.delivery.commands import Forget, Revive
from raftline.machines.delivery.group import WorkGroup
from raftline.machines.delivery.rows import DEAD, DYING, generation_of, state_of
from raftline.model.errors import InvalidArgument, RaftlineError, UnknownGroup, UnknownTopic
from raftline.model.intervals import IntervalSet
from raftline.node.partition import PartitionHost
from raftline.node.questions import Arguments, Done, answering
from raftline.node.settle_pieces import PIECE_ROWS

if TYPE_CHECKING:
    from raftline.node.node import Node

W_DEAD, W_DYING, W_REDRIVEN, W_GONE = "dead", "dying", "redriven", "gone"


class DeadQuestions:
    """What a source partition answers."""

    def __init__(self, node: "Node") -> None:
        self._node = node

    def serve(self) -> None:
        """Answer these questions."""
        add = self._node.questions.add
        add("dead.state", self._state)
        add("dead.revive", self._revive)
        add("dead.forget", self._forget)

    def _state(self, host: PartitionHost, asked: Arguments, _timeout_ms: int, done: Done) -> None:
        done({"words": self._words(host, asked)})

    def _revive(self, host: PartitionHost, asked: Arguments, timeout_ms: int, done: Done) -> None:
        self._change(Revive, host, asked, timeout_ms, done)

    def _forget(self, host: PartitionHost, asked: Arguments, timeout_ms: int, done: Done) -> None:
        self._change(Forget, host, asked, timeout_ms, done)

    def _change(
        self,
        command: type[Revive | Forget],
        host: PartitionHost,
        asked: Arguments,
        timeout_ms: int,
        done: Done,
    ) -> None:
        """Change the dead, piece by piece; what an error kept back has its code for a word."""
        words = self._words(host, asked)
        rows = _rows(asked)
        dead = [at for at, word in enumerate(words) if word == W_DEAD]
        deadline = self._node.clock.mono_ms() + timeout_ms

        def step(start: int) -> None:
            if start >= len(dead):
                done({"words": words})
                return
            piece = [rows[at][0] for at in dead[start : start + PIECE_ROWS]]
            ranges = IntervalSet((offset, offset + 1) for offset in piece)
            flat = [edge for pair in ranges for edge in pair]
            host.deliver(
                [command(_text(asked, "group"), flat)],
                deadline,
                timeout_ms,
                answering({}, lambda answer: took(start, answer)),
            )

        def took(start: int, answer: Arguments | RaftlineError) -> None:
            if not isinstance(answer, RaftlineError):
                step(start + PIECE_ROWS)
            elif not start:
                done(answer)
            else:
                for at in dead[start:]:
                    words[at] = answer.code
                done({"words": words})

        step(0)

    def _words(self, host: PartitionHost, asked: Arguments) -> list[str]:
        """Return a word for each row."""
        if asked.get("uuid") != host.identity.topic_uuid:
            raise UnknownTopic(host.name)
        name = _text(asked, "group")
        group = host.machine.delivery.groups.get(name)
        if group is None:
            raise UnknownGroup(name)
        log_start = host.machine.log_start
        return [_word(group, log_start, *row) for row in _rows(asked)]


def _word(group: WorkGroup, log_start: int, offset: int, generation: int) -> str:
    if offset < log_start:
        return W_GONE
    held = group.rows.find(offset)
    if held is None or generation_of(held[2]) != generation:
        return W_REDRIVEN
    state = state_of(held[2])
    return W_DEAD if state == DEAD else W_DYING if state == DYING else W_REDRIVEN


def _text(asked: Arguments, name: str) -> str:
    return str(asked.get(name, ""))


def _rows(asked: Arguments) -> list[tuple[int, int]]:
    try:
        return msgspec.convert(asked.get("rows"), list[tuple[int, int]])
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"rows of dead letters: {error}") from error
