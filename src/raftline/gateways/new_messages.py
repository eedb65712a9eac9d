"""What holds for a new message through every gateway: bounds, and headers of our own."""

from collections.abc import Sequence

from raftline.model.errors import InvalidArgument, TooLarge
from raftline.model.limits import HEADER_BYTES_MAX, HEADERS_MAX, KEY_BYTES_MAX
from raftline.model.message import Header, NewMessage

MESSAGE_BYTES = 32  # what a message weighs in a batch besides its key, value and headers
TIMESTAMP_MS_MAX = 1 << 50
PRIORITY_HEADER = "raftline-priority"  # so that raw reads show it too
PRODUCER_HEADER = "raftline-producer"
ID_HEADER = "raftline-id"  # of a message that waited: the id its sender knows


def check_timestamp(timestamp_ms: int) -> int:
    """Return the time if a message may have it. Raises InvalidArgument."""
    if not 0 <= timestamp_ms <= TIMESTAMP_MS_MAX:
        raise InvalidArgument(f"timestamp {timestamp_ms} is out of bounds", "Unix milliseconds")
    return timestamp_ms


def check_key(key: bytes | None) -> None:
    """Refuse a key that is too long. Raises TooLarge."""
    if key is not None and len(key) > KEY_BYTES_MAX:
        raise TooLarge("bytes of a key", len(key), KEY_BYTES_MAX)


def check_headers(headers: Sequence[Header]) -> None:
    """Refuse more headers than a message may have. Raises TooLarge."""
    if len(headers) > HEADERS_MAX:
        raise TooLarge("headers of a message", len(headers), HEADERS_MAX)
    size = sum(len(name.encode()) + len(value or b"") for name, value in headers)
    if size > HEADER_BYTES_MAX:
        raise TooLarge("bytes of a message's headers", size, HEADER_BYTES_MAX)


def size_of(message: NewMessage) -> int:
    """Return about how many bytes ``message`` takes in a batch, rather too many."""
    key, value, headers, _ = message
    size = MESSAGE_BYTES + len(key or b"") + len(value or b"")
    return size + sum(len(n) * 3 + len(v or b"") + 10 for n, v in headers) if headers else size
