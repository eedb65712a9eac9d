"""Messages that ask for nothing but to be stored: the short way of a JSON publish.

Most requests carry values, perhaps keys, and no more. Their body is read with a decoder that knows
these two fields alone; whatever it refuses (other fields, a value of null, a key that is too long,
more than fits one batch, plain nonsense) goes the long way (publication.py) from the beginning. So
the two ways differ in their cost only: a request gets the same reply on both.

Costs: below 1 us a message in batches of 1,000, where the long way takes more than 4.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from raftline.gateways.error_table import error_body
from raftline.gateways.fan import Gather
from raftline.gateways.http.connection import Exchange
from raftline.gateways.http.publication import answer_results
from raftline.gateways.message_ids import message_id
from raftline.gateways.new_messages import MESSAGE_BYTES
from raftline.gateways.publication import GROUP_BYTES_MAX, Result
from raftline.gateways.publisher import NodePublisher
from raftline.model.calls import Appended
from raftline.model.errors import RaftlineError, TimedOut
from raftline.model.limits import KEY_BYTES_MAX
from raftline.model.message import NewMessage

Answer = Appended | RaftlineError
ShortKey = Annotated[str, msgspec.Meta(max_length=KEY_BYTES_MAX // 4)]
"""in characters: as bytes within the bound, whatever they are"""


class PlainItem(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A message of which only this much is said."""

    value: str
    key: ShortKey | None = None


class PlainPublish(msgspec.Struct, forbid_unknown_fields=True):
    """A body of such messages."""

    messages: list[PlainItem]


_decoder = msgspec.json.Decoder(PlainPublish)


def read_plain(body: bytes, count_max: int, now_ms: int) -> list[NewMessage] | None:
    """Return the messages of ``body``, or None where it needs the long way."""
    try:
        items = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    messages: list[NewMessage] = [
        (None if item.key is None else item.key.encode(), item.value.encode(), (), now_ms)
        for item in items.messages
    ]
    # Text is never longer in a batch than in JSON.
    if not 0 < len(messages) <= count_max:
        return None
    if len(body) + len(messages) * MESSAGE_BYTES > GROUP_BYTES_MAX:
        return None
    return messages


class PlainPublication:
    """The way of one request."""

    __slots__ = (
        "_deadline_ms",
        "_exchange",
        "_groups",
        "_messages",
        "_publisher",
        "_timeout_ms",
        "_topic",
    )

    def __init__(
        self,
        publisher: NodePublisher,
        exchange: Exchange,
        topic: str,
        messages: list[NewMessage],
        timeout_ms: int,
    ) -> None:
        self._publisher = publisher
        self._exchange = exchange
        self._topic = topic
        self._messages = messages
        self._timeout_ms = timeout_ms
        self._deadline_ms = publisher.mono_ms() + timeout_ms
        self._groups: list[tuple[int, Sequence[int]]] = []  # partition, slots of its messages

    def start(self, partition: int | None) -> None:
        """Choose partitions unless there is one, then send."""
        if partition is not None:
            self._groups = [(partition, range(len(self._messages)))]
            self._send()
            return
        keys = [message[0] for message in self._messages]
        self._publisher.choose(self._topic, keys, self._timeout_ms, self._chosen)

    def _chosen(self, chosen: list[int] | RaftlineError) -> None:
        if isinstance(chosen, RaftlineError):
            self._exchange.fail(chosen)
            return
        if chosen.count(chosen[0]) == len(chosen):
            self._groups = [(chosen[0], range(len(chosen)))]
        else:
            slots: dict[int, list[int]] = {}
            for slot, partition in enumerate(chosen):
                slots.setdefault(partition, []).append(slot)
            self._groups = list(slots.items())
        self._exchange.guard(self._send)

    def _send(self) -> None:
        left_ms = int(self._deadline_ms - self._publisher.mono_ms()) + 1
        if left_ms <= 0:
            self._take([TimedOut(f"publishing to {self._topic}", self._timeout_ms)])
            return
        left_ms = min(self._timeout_ms, left_ms)
        topic, messages, append = self._topic, self._messages, self._publisher.append_messages
        if len(self._groups) == 1:
            partition = self._groups[0][0]
            append(topic, partition, messages, left_ms, lambda answer: self._answered([answer]))
            return
        gather = Gather(len(self._groups), self._answered)
        for at, (partition, slots) in enumerate(self._groups):
            some = [messages[slot] for slot in slots]
            append(topic, partition, some, left_ms, gather.taker(at))

    def _answered(self, answers: list[Answer]) -> None:
        self._exchange.guard(self._take, answers)

    def _take(self, answers: list[Answer]) -> None:
        """Answer; in the order of the request."""
        if len(answers) < len(self._groups):
            answers = answers * len(self._groups)  # nothing was sent: one refusal for all
        error = next((answer for answer in answers if isinstance(answer, RaftlineError)), None)
        if error is not None:
            answer_results(self._exchange, self._results(answers), error)
            return
        if len(answers) == 1:
            texts = self._texts(self._groups[0], answers[0])
        else:
            texts = [""] * len(self._messages)
            for group, answer in zip(self._groups, answers, strict=True):
                for slot, text in zip(group[1], self._texts(group, answer), strict=True):
                    texts[slot] = text
        self._exchange.json_bytes(f'{{"results":[{",".join(texts)}]}}'.encode())

    def _texts(self, group: tuple[int, Sequence[int]], answer: Answer) -> list[str]:
        """Return the results of stored messages as JSON: what ``Result`` would become."""
        assert isinstance(answer, Appended)
        base, partition = answer.base_offset, answer.partition
        before = '{"id":"' + message_id(self._topic, partition, 0)[:-1]
        between = f'","partition":{partition},"offset":'
        return [
            f'{before}{offset}{between}{offset},"error":null}}'
            for offset in range(base, base + len(group[1]))
        ]

    def _results(self, answers: list[Answer]) -> list[Result]:
        """Return a result for each message, where some were refused."""
        results = [Result(None, None, None) for _ in self._messages]
        for (partition, slots), answer in zip(self._groups, answers, strict=True):
            for delta, slot in enumerate(slots):
                if isinstance(answer, RaftlineError):
                    results[slot] = Result(None, partition, None, error_body(answer))
                else:
                    offset = answer.base_offset + delta
                    name = message_id(self._topic, answer.partition, offset)
                    results[slot] = Result(name, answer.partition, offset)
        return results
