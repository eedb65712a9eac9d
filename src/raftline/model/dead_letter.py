"""A dead letter: the message as it was, and in its last headers what became of it.

Key, value, headers and timestamp are the original's. Behind its headers stand ours, in the order
of ``HEADERS``; what a producer wrote under such a name stays in front and is not mistaken for them.
"""

import msgspec

from raftline.model.limits import OFFSET_MAX
from raftline.model.message import Header, Message, NewMessage
from raftline.model.names import place

ORIGIN = "raftline-origin"
HEADERS = (
    ORIGIN,  # topic/partition@offset
    "raftline-origin-id",
    "raftline-origin-uuid",  # of the topic: one of the same name later is another
    "raftline-group",
    "raftline-generation",
    "raftline-reason",
    "raftline-attempts",
    "raftline-first-ms",
    "raftline-last-ms",
    "raftline-dead-ms",
    "raftline-member",
    "raftline-error",
    "raftline-lost",  # only where the original could not be read: why
)
ERROR_CHARS_MAX = 1000  # of what a worker said


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a message: the content of our headers."""

    topic: str
    partition: int
    offset: int
    topic_uuid: str
    group: str
    generation: int
    reason: str  # REJECTED | MAX_RETRIES | EXPIRED
    attempts: int
    first_ms: int
    last_ms: int
    dead_ms: int
    member: str
    error: str
    lost: str = ""

    def headers(self) -> list[Header]:
        """Return our headers."""
        values = (
            place(self.topic, self.partition, self.offset),
            f"{self.topic}.{self.partition}.{self.offset}",
            self.topic_uuid,
            self.group,
            str(self.generation),
            self.reason,
            str(self.attempts),
            str(self.first_ms),
            str(self.last_ms),
            str(self.dead_ms),
            self.member,
            self.error[:ERROR_CHARS_MAX],
            self.lost,
        )
        found: list[Header] = [
            (name, value.encode()) for name, value in zip(HEADERS, values, strict=True)
        ]
        return found if self.lost else found[:-1]


class DeadLetter(msgspec.Struct, frozen=True):
    """A message of a dead-letter topic, read back."""

    offset: int  # in the dead-letter topic
    story: Story
    message: NewMessage  # as it was


def dead_letter(original: Message | None, story: Story) -> NewMessage:
    """Return what is stored for a message that is given up on; None: it could not be read."""
    if original is None:
        return None, None, story.headers(), story.last_ms
    headers = [*original.headers, *story.headers()]
    return original.key, original.value, headers, original.timestamp_ms


def read_letter(message: Message) -> DeadLetter | None:
    """Read a dead letter; None if the message is none."""
    headers = list(message.headers)
    ours: dict[str, str] = {}
    while headers and headers[-1][0] in HEADERS and headers[-1][0] not in ours:
        name, value = headers.pop()
        ours[name] = (value or b"").decode(errors="replace")
        if name == ORIGIN:
            break
    try:
        story = _story(ours)
    except (KeyError, ValueError):
        return None
    original: NewMessage = (message.key, message.value, tuple(headers), message.timestamp_ms)
    return DeadLetter(message.offset, story, original)


def _story(ours: dict[str, str]) -> Story:
    where, _, offset = ours[ORIGIN].rpartition("@")
    topic, _, partition = where.rpartition("/")
    return Story(
        topic=topic,
        partition=_number(partition),
        offset=_number(offset),
        topic_uuid=ours["raftline-origin-uuid"],
        group=ours["raftline-group"],
        generation=_number(ours["raftline-generation"]),
        reason=ours["raftline-reason"],
        attempts=_number(ours["raftline-attempts"]),
        first_ms=_number(ours["raftline-first-ms"]),
        last_ms=_number(ours["raftline-last-ms"]),
        dead_ms=_number(ours["raftline-dead-ms"]),
        member=ours["raftline-member"],
        error=ours["raftline-error"],
        lost=ours.get("raftline-lost", ""),
    )


def _number(text: str) -> int:
    """Return a number as we write them. Raises ValueError: somebody else wrote it."""
    number = int(text)
    if not 0 <= number <= OFFSET_MAX:
        raise ValueError(text)
    return number
