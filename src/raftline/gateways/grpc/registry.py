"""From a service in a descriptor to the methods that serve it.

A method ``ReceiveStream`` of the service is the coroutine ``receive_stream`` of its class. Unary
ones take (request, call) and return the reply; streaming ones take (request or requests, call,
send) and send replies one by one.

Rules
    R1  Nothing a caller sends ends a call other than with a status of the error table, and no call
        ends more than itself: bytes that are no request are refused like any other mistake.
    R2  Requests being worked on weigh at most ``inflight_bytes_max`` together; more are refused.
        Those of a stream are bounded by themselves (pipeline.py): a stream waits.
    R3  A caller that does not read for ``WRITE_S_MAX`` is let go of.
"""

import asyncio
import re
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from raftline.gateways.grpc.calling import Call, Done, answer_of, new_answer, settle, status_of
from raftline.gateways.second_look import SecondLook
from raftline.model.errors import (
    Internal,
    InvalidArgument,
    NotFound,
    NotReady,
    OverLimit,
    RaftlineError,
)
from raftline.telemetry.counters import GatewayCounts
from raftline.telemetry.log import LogEvent

WRITE_S_MAX = 30.0

Send = Callable[[Any], Awaitable[None]]
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Arrived:
    """A request as it came: decoded, or why not."""

    __slots__ = ("problem", "request", "size")

    def __init__(self, request: Any, problem: str, size: int) -> None:
        self.request = request
        self.problem = problem
        self.size = size

    def checked(self) -> Any:
        """Return the request. Raises InvalidArgument."""
        if self.problem:
            raise InvalidArgument(self.problem, "the contract is in proto/; reflection is on")
        return self.request


class Requests:
    """The requests of a stream, one after another. A mistake among them is raised."""

    __slots__ = ("_came", "size")

    def __init__(self, came: AsyncIterator[Arrived]) -> None:
        self._came = came
        self.size = 0  # bytes of the latest

    def __aiter__(self) -> "Requests":
        """Return itself."""
        return self

    async def __anext__(self) -> Any:
        """Return the next. Raises InvalidArgument."""
        arrived = await anext(self._came)
        self.size = arrived.size
        return arrived.checked()


class Registry:
    """Makes handlers; knows what is being worked on."""

    __slots__ = (
        "_counts",
        "_inflight_bytes",
        "_inflight_bytes_max",
        "_log",
        "_second_look",
        "_timeout_ms",
        "handlers",
    )

    def __init__(
        self,
        log: LogEvent,
        counts: GatewayCounts,
        second_look: SecondLook,
        *,
        timeout_ms: int,
        inflight_bytes_max: int,
    ) -> None:
        self._second_look = second_look
        self.handlers: dict[str, Any] = {}  # by the service's full name
        self._counts = counts
        self._log = log
        self._timeout_ms = timeout_ms
        self._inflight_bytes_max = inflight_bytes_max
        self._inflight_bytes = 0

    def add(self, service: ServiceDescriptor, implementation: object) -> None:
        """Let ``implementation`` serve a service."""
        methods = {
            method.name: self._handler(method, getattr(implementation, method_name(method.name)))
            for method in service.methods
        }
        handler = grpc.method_handlers_generic_handler(service.full_name, methods)
        self.handlers[service.full_name] = handler

    def _handler(self, method: MethodDescriptor, serve: Callable[..., Awaitable[Any]]) -> Any:
        decode = _decoder(GetMessageClass(method.input_type))
        reads, writes = method.client_streaming, method.server_streaming
        if not reads and not writes:
            return grpc.unary_unary_rpc_method_handler(self._unary(serve), decode, _encode)
        assert writes, "a stream of requests has a stream of replies"
        stream = self._stream(serve, reads=reads)
        if reads:
            return grpc.stream_stream_rpc_method_handler(stream, decode, _encode)
        return grpc.unary_stream_rpc_method_handler(stream, decode, _encode)

    def _unary(self, serve: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def handle(arrived: Arrived, context: Any) -> Any:
            call = Call(context, self._timeout_ms)
            self._counts.requests += 1
            self._inflight_bytes += arrived.size
            try:
                self._check_room(arrived.size)
                request = arrived.checked()
                try:
                    return await serve(request, call)
                except (NotFound, NotReady) as error:
                    await self._look_again(error, call)
                return await serve(request, call)
            except grpc.aio.AbortError:
                raise  # a status is on its way
            except RaftlineError as error:
                refusal = error
            except Exception as error:  # noqa: BLE001 - the border of the gateway
                refusal = self._report(error)
            finally:
                call.is_over = True
                self._inflight_bytes -= arrived.size
            self._counts.refuse(refusal.code)
            return await context.abort(*status_of(refusal))

        return handle

    def _stream(
        self, serve: Callable[..., Awaitable[None]], *, reads: bool
    ) -> Callable[..., Awaitable[None]]:
        async def handle(came: Any, context: Any) -> None:
            call = Call(context, self._timeout_ms)
            self._counts.requests += 1

            async def send(reply: Any) -> None:
                async with asyncio.timeout(WRITE_S_MAX):  # R3
                    await context.write(reply)

            try:
                await serve(Requests(came) if reads else came.checked(), call, send)
            except grpc.aio.AbortError:
                raise  # a status is on its way
            except RaftlineError as error:
                refusal = await self._verdict(error)
            except TimeoutError:
                refusal = OverLimit("seconds a reply may wait to be read", 0, int(WRITE_S_MAX))
            except Exception as error:  # noqa: BLE001 - the border of the gateway
                refusal = self._report(error)
            else:
                return
            finally:
                call.is_over = True
            self._counts.refuse(refusal.code)
            await context.abort(*status_of(refusal))

        return handle

    async def _look_again(self, error: RaftlineError, call: Call) -> None:
        """Return if a refusal was for want of knowing and the call is worth another try."""
        if not self._second_look.is_due(error):
            raise error

        def judge(done: Done) -> None:
            # With time left to hear of it, and for the second try.
            self._second_look.take(error, call.timeout_ms * 3 // 4, done)

        await answer_of(judge)

    async def _verdict(self, error: RaftlineError) -> RaftlineError:
        """Return what to say of the end of a stream, which cannot be run again."""
        if not self._second_look.is_due(error):
            return error
        said = new_answer()
        self._second_look.verdict(error, self._timeout_ms, partial(settle, said))
        return await said

    def _check_room(self, size: int) -> None:
        if self._inflight_bytes > max(self._inflight_bytes_max, size):  # R2: one always fits
            asked, limit = self._inflight_bytes, self._inflight_bytes_max
            raise OverLimit("bytes of gRPC requests in work", asked, limit)

    def _report(self, error: Exception) -> RaftlineError:
        """Note a bug; the caller learns no more than that it is one."""
        where = "".join(traceback.format_exception(error))
        self._log("error", "grpc.bug", error=repr(error), where=where)
        return Internal(type(error).__name__)


def method_name(name: str) -> str:
    """Return the coroutine that serves a method."""
    return _WORD.sub("_", name).lower()


def _decoder(kind: type[Message]) -> Callable[[bytes], Arrived]:
    def decode(raw: bytes) -> Arrived:
        try:
            return Arrived(kind.FromString(raw), "", len(raw))
        except (DecodeError, ValueError) as error:
            name = kind.DESCRIPTOR.full_name
            return Arrived(None, f"{len(raw)} bytes are no {name}: {error}"[:300], len(raw))

    return decode


def _encode(reply: Message) -> bytes:
    return reply.SerializeToString()
