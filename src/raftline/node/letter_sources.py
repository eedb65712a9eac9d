"""What the sources of dead letters say of them: one question to each partition and group."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from raftline.machines.partition.commands import LETTERS_PURGED
from raftline.machines.partition.letters import LETTER_STATES
from raftline.model.dead_letter import DeadLetter
from raftline.model.errors import RaftlineError
from raftline.node.dead_questions import W_DEAD, W_DYING, W_GONE
from raftline.node.partition import PartitionHost
from raftline.node.questions import Arguments

if TYPE_CHECKING:
    from raftline.node.node import Node

ASK_TIMEOUT_MS = 5_000  # at most, and half of the call's time: a source that is away is no end

Words = dict[int, str]  # by offset of the letter
Source = tuple[str, int, str, str]  # topic, partition, uuid, group


def ask_sources(
    node: "Node",
    name: str,
    letters: list[DeadLetter],
    timeout_ms: int,
    done: Callable[[Words], None],
) -> None:
    """Ask the source partitions of ``letters``; whoever does not answer says its error."""
    sources: dict[Source, list[DeadLetter]] = {}
    for letter in letters:
        story = letter.story
        source = (story.topic, story.partition, story.topic_uuid, story.group)
        sources.setdefault(source, []).append(letter)
    words: Words = {}
    missing = len(sources)
    if not missing:
        done(words)

    def asked(about: list[DeadLetter], answer: Arguments | RaftlineError) -> None:
        nonlocal missing
        if isinstance(answer, RaftlineError):
            words.update({letter.offset: answer.code for letter in about})
        else:
            said = msgspec.convert(answer["words"], list[str])
            pairs = zip(about, said, strict=True)
            words.update({letter.offset: word for letter, word in pairs})
        missing -= 1
        if not missing:
            done(words)

    for (topic, partition, uuid, group), about in sources.items():
        rows = [[letter.story.offset, letter.story.generation] for letter in about]
        node.questions.ask(
            topic,
            partition,
            name,
            {"uuid": uuid, "group": group, "rows": rows},
            min(timeout_ms // 2, ASK_TIMEOUT_MS),
            lambda answer, about=about: asked(about, answer),
        )


def letter_state(host: PartitionHost, letter: DeadLetter, words: Words) -> str:
    """Return dead, redriven or purged; another word says why that is not known."""
    marked = host.machine.letters.state(letter.offset)
    if marked:
        return LETTER_STATES[marked]
    word = words.get(letter.offset, LETTER_STATES[LETTERS_PURGED])  # trimmed away meanwhile
    return W_DEAD if word in (W_DYING, W_GONE) else word
