"""Calls of ``raftline.v1``: what is asked, and what the reply means to the client's core."""

from collections.abc import Callable
from typing import Any

import msgspec
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from raftline.client.core.ports import Ask, Reply
from raftline.config.moments import parse_moment_ms
from raftline.wire.proto.raftline.v1 import (
    admin_pb2,
    dead_letters_pb2,
    deliveries_pb2,
    errors_pb2,
    groups_pb2,
    messages_pb2,
    scheduled_pb2,
    traces_pb2,
)

Json = dict[str, Any]
OK = 200
REFUSED = 500


class Remote:
    """One call: its name, its request, and what its reply means."""

    __slots__ = ("_answer", "method", "reply", "request")

    def __init__(self, method: str, request: Message, answer: Callable[[Any], Reply]) -> None:
        self.method = f"/raftline.v1.{method}"
        self.request = request
        self.reply = REPLIES[method]
        self._answer = answer

    def answer(self, reply: Message) -> Reply:
        """Return the reply as the route would have answered."""
        return self._answer(reply)


class Asked:
    """A route with its parameters."""

    __slots__ = ("ask", "params", "query")

    def __init__(self, ask: Ask, params: dict[str, str], query: dict[str, str]) -> None:
        self.ask = ask
        self.params = params
        self.query = query

    @property
    def topic(self) -> str:
        """The topic of the path."""
        return self.params["topic"]

    @property
    def partition(self) -> int:
        """The partition of the path."""
        return int(self.params["partition"])

    def body(self) -> Json:
        """Return what the body says."""
        return msgspec.json.decode(self.ask.body or b"{}")

    def given(self, *names: str) -> Json:
        """Return the parameters of the query that are there."""
        return {name: self.query[name] for name in names if name in self.query}

    def numbers(self, *names: str) -> Json:
        """Return the parameters of the query that are there and are numbers."""
        return {name: int(text) for name, text in self.given(*names).items()}

    def moments(self) -> Json:
        """Return ``from`` and ``to`` as milliseconds. Raises InvalidArgument."""
        names = {"from": "from_ms", "to": "to_ms"}
        return {names[name]: moment_ms(name, text) for name, text in self.given(*names).items()}


def moment_ms(name: str, value: str | int) -> int:
    """Return a moment in milliseconds. Raises InvalidArgument."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
    return parse_moment_ms(name, value)


def as_json(answer: Callable[[Any], Any]) -> Callable[[Any], Reply]:
    """Answer with what a reply is as JSON."""
    return lambda reply: Reply(OK, b"", msgspec.json.encode(answer(reply)))


def known(answer: Json) -> Callable[[Any], Reply]:
    """Answer what is known beforehand."""
    return as_json(lambda _: answer)


def refusal_of(error: errors_pb2.Error) -> Reply:
    """Answer with an error."""
    told = {"code": error.code, "message": error.message, "hint": error.hint}
    return Reply(REFUSED, b"", msgspec.json.encode({"error": told}))


REPLIES: dict[str, type[Message]] = {
    f"{service.name}/{method.name}": GetMessageClass(method.output_type)
    for file in (
        admin_pb2,
        dead_letters_pb2,
        deliveries_pb2,
        groups_pb2,
        messages_pb2,
        scheduled_pb2,
        traces_pb2,
    )
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
