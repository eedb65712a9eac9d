"""What HTTP requests did inside other systems' traces, for an OpenTelemetry collector.

A publish is one span, child of the caller's; its messages name it as their parent. A delivery of a
message whose trace is sampled is a span below that one. Nothing of this happens, or is loaded,
unless a collector is configured.
"""

from typing import TYPE_CHECKING

from raftline import __version__
from raftline.config.settings import Settings
from raftline.gateways.publication import Finish, Result
from raftline.gateways.trace_context import PARENT, TraceContext, parse_context
from raftline.model.errors import RaftlineError
from raftline.telemetry.log import LogEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftline.gateways.http.connection import Exchange
    from raftline.gateways.http.deliveries import Delivered
    from raftline.telemetry.spans import Spans

_PRODUCER, _CONSUMER = 4, 5  # telemetry.spans, which is not loaded for their sake


def open_spans(settings: Settings, log: LogEvent) -> "Spans":
    """Return who sends spans to the configured collector."""
    from raftline.telemetry.spans import Spans  # noqa: PLC0415 - only where it is wanted

    about = {
        "service.name": "raftline",
        "service.instance.id": settings.node.name,
        "service.version": __version__,
    }
    return Spans(settings.telemetry.otlp_endpoint, about, log)


class PublishSpan:
    """One publish inside a trace."""

    __slots__ = ("_began_ns", "_parent", "_spans", "_topic", "context")

    def __init__(self, spans: "Spans", parent: TraceContext, topic: str) -> None:
        self._spans = spans
        self._parent = parent
        self._topic = topic
        self._began_ns = spans.now_ns()
        self.context = parent.within(spans.new_id())

    @classmethod
    def of(cls, exchange: "Exchange", topic: str) -> "PublishSpan | None":
        """Begin a span, if the request is part of a trace that is sampled."""
        context, spans = exchange.known.context, exchange.spans
        if context is None or spans is None or not context.is_sampled:
            return None
        return cls(spans, context, topic)

    def ending(self, finish: Finish) -> Finish:
        """Return a ``finish`` that ends the span first."""

        def ended(results: list[Result], error: RaftlineError | None) -> None:
            about: dict[str, str | int] = {
                "messaging.system": "raftline",
                "messaging.operation.type": "send",
                "messaging.destination.name": self._topic,
                "messaging.batch.message_count": len(results),
            }
            if len(results) == 1 and results[0].id is not None:
                about["messaging.message.id"] = results[0].id
            self._spans.add(
                f"send {self._topic}",
                _PRODUCER,
                self.context.trace,
                self._parent.span,
                self.context.span,
                self._began_ns,
                about,
                error.code if error is not None else "",
            )
            finish(results, error)

        return ended


def tell_delivered(spans: "Spans", topic: str, group: str, items: "Sequence[Delivered]") -> None:
    """Make a span of every delivery whose message is part of a trace that is sampled."""
    for item in items:
        parent = item.headers.get(PARENT)
        context = parse_context(parent) if isinstance(parent, str) else None
        if context is None or not context.is_sampled:
            continue
        about: dict[str, str | int] = {
            "messaging.system": "raftline",
            "messaging.operation.type": "receive",
            "messaging.destination.name": topic,
            "messaging.consumer.group.name": group,
            "messaging.message.id": item.id,
            "raftline.attempt": item.attempt,
        }
        spans.add(
            f"receive {topic}",
            _CONSUMER,
            context.trace,
            context.span,
            spans.new_id(),
            spans.now_ns(),
            about,
        )
