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
from raftline.model.errors import InvalidArgument, UnknownGroup, UnknownTopic
from raftline.model.intervals import IntervalSet
from raftline.node.partition import PartitionHost
from raftline.node.questions import Arguments, Done, answering

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
        done({"words": self._words(host, asked)[0]})

    def _revive(self, host: PartitionHost, asked: Arguments, timeout_ms: int, done: Done) -> None:
        words, ranges = self._words(host, asked)
        self._change(host, Revive(_text(asked, "group"), ranges), words, timeout_ms, done)

    def _forget(self, host: PartitionHost, asked: Arguments, timeout_ms: int, done: Done) -> None:
        words, ranges = self._words(host, asked)
        self._change(host, Forget(_text(asked, "group"), ranges), words, timeout_ms, done)

    def _change(
        self,
        host: PartitionHost,
        command: Revive | Forget,
        words: list[str],
        timeout_ms: int,
        done: Done,
    ) -> None:
        if not command.ranges:
            done({"words": words})
            return

        deadline = self._node.clock.mono_ms() + timeout_ms
        host.deliver([command], deadline, timeout_ms, answering({"words": words}, done))

    def _words(self, host: PartitionHost, asked: Arguments) -> tuple[list[str], list[int]]:
        """Return a word for each row, and the flat ranges of those that are dead."""
        if asked.get("uuid") != host.identity.topic_uuid:
            raise UnknownTopic(host.name)
        name = _text(asked, "group")
        group = host.machine.delivery.groups.get(name)
        if group is None:
            raise UnknownGroup(name)
        dead = IntervalSet()
        words: list[str] = []
        for offset, generation in _rows(asked):
            word = _word(group, host.machine.log_start, offset, generation)
            words.append(word)
            if word == W_DEAD:
                dead.add(offset, offset + 1)
        return words, [end for pair in dead for end in pair]


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
