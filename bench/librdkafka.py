"""librdkafka as a C program uses it: messages are handed over by the array, not one by one.

The Python client spends more of a processor on each message than librdkafka and the brokers do
together, so it measures itself. Here Python is paid per array. It is the library that comes with
confluent-kafka, called through ctypes, and what it does for each message is the same.
"""

import ctypes
from collections.abc import Mapping
from pathlib import Path

ARRAY = 10_000
WAIT_S = 120
TEXT_BYTES = 512
PRODUCER = 0  # rd_kafka_type_t
ANY_PARTITION = -1
COPY, BLOCK = 0x2, 0x4  # flags: the payload is copied; wait where the queue is full


class Refused(Exception):
    """What librdkafka says is wrong."""


class _Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("error", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_char_p),
        ("length", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_length", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


class ArrayProducer:
    """Sends one value again and again to a topic of one partition."""

    def __init__(self, topic: str, settings: Mapping[str, object]) -> None:
        self._lib = _library()
        self._topic = topic.encode()
        text = ctypes.create_string_buffer(TEXT_BYTES)
        conf = self._lib.rd_kafka_conf_new()
        for name, value in settings.items():
            word = str(value).lower() if isinstance(value, bool) else str(value)
            _check(
                not self._lib.rd_kafka_conf_set(
                    conf, name.encode(), word.encode(), text, TEXT_BYTES
                ),
                text.value.decode(),
            )
        self._client = self._lib.rd_kafka_new(PRODUCER, conf, text, TEXT_BYTES)
        _check(bool(self._client), text.value.decode())
        self._handle = self._lib.rd_kafka_topic_new(self._client, self._topic, None)

    def send(self, value: bytes, count: int) -> None:
        """Send ``count`` messages and wait until all are stored: the topic must have grown so."""
        before = self._end()
        row = _Message(payload=value, length=len(value))
        rows = (_Message * ARRAY)(*[row] * ARRAY)
        flags = COPY | BLOCK
        for start in range(0, count, ARRAY):
            wanted = min(ARRAY, count - start)
            taken = self._lib.rd_kafka_produce_batch(
                self._handle, ANY_PARTITION, flags, rows, wanted
            )
            _check(taken == wanted, f"librdkafka took {taken} of {wanted} messages")
        _check(not self._lib.rd_kafka_flush(self._client, WAIT_S * 1000), "not taken in time")
        grown = self._end() - before
        _check(grown == count, f"{count} messages were sent, {grown} are stored")

    def _end(self) -> int:
        low, high = ctypes.c_int64(), ctypes.c_int64()
        error = self._lib.rd_kafka_query_watermark_offsets(
            self._client, self._topic, 0, ctypes.byref(low), ctypes.byref(high), WAIT_S * 1000
        )
        _check(not error, f"the end of the topic is not known: error {error}")
        return high.value


def _check(is_right: object, text: str) -> None:
    if not is_right:
        raise Refused(text)


def _library() -> ctypes.CDLL:
    import confluent_kafka

    package = Path(confluent_kafka.__file__).parent
    found = [*package.parent.glob("confluent_kafka.libs/librdkafka-*"), *package.glob(".dylibs/*")]
    _check(found, f"no librdkafka beside {package}")
    lib = ctypes.CDLL(str(found[0]))
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("rd_kafka_conf_new", pointer, ()),
        ("rd_kafka_conf_set", number, (pointer, text, text, text, ctypes.c_size_t)),
        ("rd_kafka_new", pointer, (number, pointer, text, ctypes.c_size_t)),
        ("rd_kafka_topic_new", pointer, (pointer, text, pointer)),
        ("rd_kafka_produce_batch", number,
         (pointer, ctypes.c_int32, number, ctypes.POINTER(_Message), number)),
        ("rd_kafka_flush", number, (pointer, number)),
        ("rd_kafka_query_watermark_offsets", number,
         (pointer, text, ctypes.c_int32, pointer, pointer, number)),
    ):  # fmt: skip
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib
