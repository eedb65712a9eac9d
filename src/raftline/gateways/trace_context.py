"""The trace context of other systems (W3C Trace Context): from a request into its messages.

``traceparent`` and ``tracestate`` of a request become headers of the messages it publishes, unless
a message has its own; whoever receives the message finds them there. One that does not parse is
ignored, as the standard wants it. Where a collector is configured the publish is a span of its own
(telemetry/spans.py), and its messages name that span.
"""

import re

import msgspec

from raftline.model.message import Header

PARENT, STATE = "traceparent", "tracestate"
STATE_CHARS_MAX = 512
_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 1


class TraceContext(msgspec.Struct, frozen=True):
    """A caller's place in its trace."""

    trace: str
    span: str
    flags: int
    state: str = ""

    @property
    def is_sampled(self) -> bool:
        """Say whether somebody records this trace."""
        return bool(self.flags & _SAMPLED)

    def within(self, span: str) -> "TraceContext":
        """Return the place of what is done inside ``span``."""
        return TraceContext(self.trace, span, self.flags, self.state)

    def headers(self) -> list[Header]:
        """Return the headers of messages sent from here."""
        parent = f"00-{self.trace}-{self.span}-{self.flags:02x}"
        found: list[Header] = [(PARENT, parent.encode())]
        if self.state:
            found.append((STATE, self.state.encode()))
        return found


def parse_context(parent: str, state: str = "") -> TraceContext | None:
    """Return the place that a ``traceparent`` names; None if it names none."""
    found = _FORM.fullmatch(parent.strip())
    if found is None or (found[4] and parent.startswith("00")):
        return None
    trace, span, flags = found[1], found[2], int(found[3], 16)
    if not int(trace, 16) or not int(span, 16):
        return None
    state = state.strip()
    return TraceContext(trace, span, flags, state if len(state) <= STATE_CHARS_MAX else "")


def add_context(headers: list[Header], context: list[Header]) -> list[Header]:
    """Return headers with a context, if they do not have their own."""
    if any(name == PARENT for name, _ in headers):
        return headers
    return [*(header for header in headers if header[0] != STATE), *context]
