"""Dead letters: written and read back, whatever the original's own headers are."""

from hypothesis import given
from hypothesis import strategies as st

from raftline.model.dead_letter import (
    ERROR_CHARS_MAX,
    HEADERS,
    DeadLetter,
    Story,
    dead_letter,
    read_letter,
)
from raftline.model.limits import TOPIC_NAME_CHARS_MAX
from raftline.model.message import Message
from raftline.model.names import check_topic_name, dead_letter_topic, is_dead_letter_topic
from raftline.model.records import open_batch, seal_batch

STORY = Story(
    topic="orders",
    partition=2,
    offset=45678,
    topic_uuid="u1",
    group="workers",
    generation=1,
    reason="MAX_RETRIES",
    attempts=4,
    first_ms=1000,
    last_ms=9000,
    dead_ms=9001,
    member="w-1",
    error="no such customer",
)
names = st.one_of(st.sampled_from(HEADERS), st.text(max_size=4))
headers = st.lists(st.tuples(names, st.one_of(st.none(), st.binary(max_size=3))), max_size=20)


def stored(message) -> Message:
    (found,) = open_batch(seal_batch([message]))
    return found


def test_every_header_is_there_and_the_rest_is_as_it_was():
    original = Message(45678, 777, b"k", b"v", (("trace", b"t1"),))
    found = stored(dead_letter(original, STORY))
    assert (found.key, found.value, found.timestamp_ms) == (b"k", b"v", 777)
    assert found.headers == (
        ("trace", b"t1"),
        ("raftline-origin", b"orders/2@45678"),
        ("raftline-origin-id", b"orders.2.45678"),
        ("raftline-origin-uuid", b"u1"),
        ("raftline-group", b"workers"),
        ("raftline-generation", b"1"),
        ("raftline-reason", b"MAX_RETRIES"),
        ("raftline-attempts", b"4"),
        ("raftline-first-ms", b"1000"),
        ("raftline-last-ms", b"9000"),
        ("raftline-dead-ms", b"9001"),
        ("raftline-member", b"w-1"),
        ("raftline-error", b"no such customer"),
    )


@given(headers, st.text(), st.sampled_from(["", "trimmed"]))
def test_read_back(own, error, lost):
    story = Story(**{f: getattr(STORY, f) for f in STORY.__struct_fields__} | {"lost": lost})
    story = Story(**{f: getattr(story, f) for f in STORY.__struct_fields__} | {"error": error})
    original = Message(45678, 777, None, b"v", tuple(own))
    found = read_letter(stored(dead_letter(original, story)))
    assert isinstance(found, DeadLetter)
    assert found.message == (None, b"v", tuple(own), 777)
    assert found.story.error == error[:ERROR_CHARS_MAX]
    assert (found.story.lost, found.story.offset) == (lost, 45678)


def test_a_message_that_is_none():
    assert read_letter(Message(0, 0, None, b"v", (("raftline-origin", b"x"),))) is None
    assert read_letter(Message(0, 0, None, b"v")) is None


def test_an_original_that_could_not_be_read():
    found = read_letter(stored(dead_letter(None, STORY)))
    assert found is not None
    assert found.message == (None, None, (), 9000)


def test_names():
    assert dead_letter_topic("orders") == "orders.dlq"
    assert is_dead_letter_topic("orders.dlq")
    assert not is_dead_letter_topic("orders")
    long = ["x" * TOPIC_NAME_CHARS_MAX, "x" * (TOPIC_NAME_CHARS_MAX - 1) + "y", "x" * 245]
    letters = [dead_letter_topic(name) for name in long]
    assert len(set(letters)) == 3
    for name in letters:
        check_topic_name(name)
        assert is_dead_letter_topic(name)
