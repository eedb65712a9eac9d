"""From the node's callbacks to a call that is awaited, and from its refusals to a status.

Deadlines
    A call may take as long as its caller waits; without a deadline, as long as the setting
    ``limits.timeout_ms`` says. A caller that wants to hear why it took too long says
    ``raftline-timeout-ms``, less than its deadline. A caller that left is not waited for: what the
    node answers later is dropped.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage

from raftline.gateways.error_table import row_of
from raftline.gateways.trace_context import PARENT, STATE, parse_context
from raftline.model.errors import ERRORS, Internal, RaftlineError
from raftline.model.limits import WAIT_MS_MAX
from raftline.model.message import Header
from raftline.wire.proto.raftline.v1.errors_pb2 import Error, StatusDetails

CODE_KEY, ERROR_KEY, DETAILS_KEY = "raftline-code", "raftline-error-bin", "grpc-status-details-bin"
TIMEOUT_KEY = "raftline-timeout-ms"
REPLY_MS = 100  # of a caller's deadline kept for the way back
DETAILS_CHARS_MAX = 2_000  # of the status text; the whole is in ERROR_KEY up to as much again

Done = Callable[[Any], None]


class Call:
    """One call on its way: who waits, and for how long."""

    __slots__ = ("_asked_ms", "_timeout_ms", "context", "is_over")

    def __init__(self, context: Any, timeout_ms: int) -> None:
        self.context = context
        self.is_over = False  # nobody waits any more
        self._timeout_ms = timeout_ms
        self._asked_ms = WAIT_MS_MAX
        for name, value in context.invocation_metadata() or ():
            if name == TIMEOUT_KEY and value.isascii() and value.isdigit():
                self._asked_ms = max(1, min(WAIT_MS_MAX, int(value[:9])))

    @property
    def has_deadline(self) -> bool:
        """Say whether the caller said how long it waits."""
        return self.context.time_remaining() is not None

    @property
    def timeout_ms(self) -> int:
        """Return how long the caller waits from now on, within bounds."""
        left_s: float | None = self.context.time_remaining()
        if left_s is None:
            return min(self._timeout_ms, self._asked_ms)
        return max(1, min(self._asked_ms, int(left_s * 1000)))

    def waiting(self, wait_ms: int) -> tuple[int, int]:
        """Return how long a call that waits may do so, and its timeout.

        Who said a deadline is answered before it; without one the wait comes on top.
        """
        timeout_ms = self.timeout_ms
        if self.has_deadline:
            return max(0, min(wait_ms, timeout_ms - REPLY_MS)), timeout_ms
        return wait_ms, timeout_ms + wait_ms

    @property
    def stream_timeout_ms(self) -> int:
        """Return how long one request of a stream may take: the stream itself has no end."""
        return min(self._timeout_ms, self.timeout_ms)

    def trace_headers(self) -> list[Header]:
        """Return the caller's place in its trace, as headers of what it sends; often none."""
        fields: dict[str, Any] = dict(self.context.invocation_metadata() or ())
        parent = fields.get(PARENT)
        if not isinstance(parent, str):
            return []
        context = parse_context(parent, str(fields.get(STATE, "")))
        return [] if context is None else context.headers()

    def is_wanted(self) -> bool:
        """Say whether somebody still waits."""
        return not self.is_over


def new_answer() -> "asyncio.Future[Any]":
    """Return what an answer is waited for with; a refusal is an answer, never an exception of it.

    So an answer that nobody waits for any more is no mistake.
    """
    return asyncio.get_running_loop().create_future()


def settle(future: "asyncio.Future[Any]", answer: Any) -> None:
    """Take the answer, if somebody still waits."""
    if not future.done():
        future.set_result(answer)


def unwrap(answer: Any) -> Any:
    """Return an answer, or raise the refusal it is."""
    if isinstance(answer, Exception):
        raise answer
    return answer


async def answer_of(start: Callable[[Done], None]) -> Any:
    """Make a call of the node and wait for its answer. Raises RaftlineError."""
    future = new_answer()
    start(lambda answer: settle(future, answer))
    return unwrap(await future)


def error_message(error: RaftlineError) -> Error:
    """Return an error as replies carry it."""
    return Error(
        code=error.code,
        message=error.message[:DETAILS_CHARS_MAX],
        hint=error.hint[:DETAILS_CHARS_MAX],
        retry=error.retry,
        unknown=error.unknown,
    )


def error_of_body(body: dict[str, Any]) -> Error:
    """Return the error of a result (error_table.error_body) as replies carry it."""
    kind = ERRORS.get(body["code"], Internal)
    return Error(retry=kind.retry, unknown=kind.unknown, **body)


def status_of(error: RaftlineError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, Any], ...]]:
    """Return code, text and trailing metadata of a refusal."""
    code = grpc.StatusCode[row_of(error).grpc]
    told = error_message(error)
    text = f"{error.code}: {told.message}" + (f"; {told.hint}" if told.hint else "")
    packed = AnyMessage()
    packed.Pack(told)
    details = StatusDetails(code=code.value[0], message=text, details=[packed])
    trailing = (
        (CODE_KEY, error.code),
        (ERROR_KEY, told.SerializeToString()),
        (DETAILS_KEY, details.SerializeToString()),
    )
    return code, text, trailing
