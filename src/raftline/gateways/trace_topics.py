"""Topics by name; ``orders.trace`` is the trace of ``orders``, which reads like a topic."""

from collections.abc import Iterable, Sequence

import msgspec

from raftline.gateways.ports import Calls
from raftline.model.calls import TopicRow
from raftline.model.errors import UnknownTopic
from raftline.model.names import traced_topic


def topic_named(calls: Calls, name: str) -> TopicRow:
    """Return the row of one topic, or of one trace. Raises UnknownTopic, NotReady."""
    try:
        return calls.known_topic(name)
    except UnknownTopic:
        found = topics_named(calls.known_topics(), (name,))
        if not found:
            raise
        return found[0]


def topics_named(topics: Iterable[TopicRow], names: Sequence[str]) -> list[TopicRow]:
    """Return the rows of ``names`` that there are; a trace has the row of its source."""
    sources = {traced_topic(name): name for name in names}
    sources.pop("", None)
    found: dict[str, TopicRow] = {}
    for row in topics:
        if row.name in names:
            found[row.name] = row
        if row.name in sources:
            trace = sources[row.name]
            found.setdefault(trace, msgspec.structs.replace(row, name=trace))
    return [found[name] for name in dict.fromkeys(names) if name in found]
