"""A batch with wishes that is taken apart: all of it is refused, or nothing."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from raftline.gateways.kafka.wishes import Wishes
from raftline.model.batch import check_batch
from raftline.model.errors import TooLarge
from raftline.model.limits import HEADERS_MAX, KEY_BYTES_MAX
from raftline.model.message import NewMessage
from raftline.model.records import NO_PRODUCER, seal_plain
from raftline.model.settings import Value, effective

NOW_MS = 1_700_000_000_000
WAITS: NewMessage = (None, b"later", [("raftline-delay-ms", b"60000")], NOW_MS)
PLAIN: NewMessage = (None, b"now", [], NOW_MS)


class Publisher:
    """Stores nothing, and says what it was asked to."""

    def __init__(self) -> None:
        self.stored: list[str] = []

    def wall_ms(self) -> int:
        return NOW_MS

    def mono_ms(self) -> float:
        return 0.0

    def settings_of(self, _topic: str) -> Callable[[], Mapping[str, Value]]:
        return lambda: effective({})

    def append(self, *_: Any) -> None:
        self.stored.append("append")

    def schedule(self, *_: Any) -> None:
        self.stored.append("schedule")


def send(publisher: Publisher, *messages: NewMessage) -> None:
    batch = seal_plain(messages, (NO_PRODUCER, -1, -1))
    led: Any = SimpleNamespace(topic="t")
    wishes = Wishes(publisher)  # type: ignore[arg-type]
    wishes.append(led, 0, batch, check_batch(batch), 1_000, lambda _: None)


def test_what_can_be_stored_is_stored_apart() -> None:
    publisher = Publisher()
    send(publisher, PLAIN, WAITS)
    assert sorted(publisher.stored) == ["append", "schedule"]


@pytest.mark.parametrize(
    "message",
    [
        (bytes(KEY_BYTES_MAX + 1), b"", [], NOW_MS),
        (None, b"", [(f"h{n}", b"") for n in range(HEADERS_MAX + 1)], NOW_MS),
    ],
    ids=["a long key", "many headers"],
)
def test_a_message_that_cannot_be_sealed_anew_keeps_all_from_being_stored(
    message: NewMessage,
) -> None:
    publisher = Publisher()
    with pytest.raises(TooLarge):
        send(publisher, PLAIN, message, WAITS)
    assert not publisher.stored
