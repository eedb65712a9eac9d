"""Requests that name topics this node does not know wait until its catalog is up to now.

Kafka denies topic by topic inside an answer, so a denial cannot be held back like elsewhere
(second_look.py): the names are looked at before the request is run. Where the catalog cannot be
asked, handlers say of such topics what clients try again (``missing_code``). Produce and Fetch run
at once: clients take their denials for a reason to ask Metadata again.

Costs
    One dictionary lookup a topic named.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from raftline.gateways.kafka import schema, schema_admin, schema_groups
from raftline.gateways.kafka.codec import ZERO_UUID
from raftline.gateways.kafka.configs import TOPIC
from raftline.gateways.kafka.dispatch import Call, Context, Reply, Table
from raftline.gateways.kafka.ports import KafkaCalls
from raftline.gateways.second_look import LOOK_MS_MAX
from raftline.model.errors import RaftlineError

ABOUT_TOPICS = (
    schema.METADATA,
    schema.LIST_OFFSETS,
    schema_admin.DELETE_TOPICS,
    schema_admin.CREATE_PARTITIONS,
    schema_admin.DELETE_RECORDS,
    schema_admin.ELECT_LEADERS,
    schema_admin.DESCRIBE_TOPIC_PARTITIONS,
    schema_admin.DESCRIBE_LOG_DIRS,
    schema_admin.DESCRIBE_CONFIGS,
    schema_admin.ALTER_CONFIGS,
    schema_admin.INCREMENTAL_ALTER_CONFIGS,
    schema_groups.OFFSET_COMMIT,
    schema_groups.OFFSET_DELETE,
)

Fields = dict[str, Any]


class CatalogFirst:
    """Holds requests back while something they name is not known."""

    __slots__ = ("_calls",)

    def __init__(self, calls: KafkaCalls) -> None:
        self._calls = calls

    def guard(self, table: Table) -> None:
        """Stand before the handlers of all APIs that are about topics."""
        for api in ABOUT_TOPICS:
            row = table.handlers[api.key]
            assert row.call is not None
            table.handlers[api.key] = msgspec.structs.replace(row, call=self._first(row.call))

    def _first(self, call: Call) -> Call:
        def run(request: Fields, version: int, context: Context, reply: Reply) -> None:
            if self._knows(request):
                call(request, version, context, reply)
                return
            asked_ms: int = request.get("timeout_ms", 0)  # 0 too where the version has none
            timeout_ms = min(asked_ms, LOOK_MS_MAX) if asked_ms > 0 else LOOK_MS_MAX

            def checked(_problem: RaftlineError | None) -> None:
                call(request, version, context, reply)

            self._calls.check_catalog(timeout_ms, context.guarded(checked))

        return run

    def _knows(self, request: Fields) -> bool:
        names = list(_named(request))
        if not names:
            return self._calls.is_sure  # it is about all topics, or about none
        return all(self._is_known(name) for name in names)

    def _is_known(self, name: str | bytes) -> bool:
        if isinstance(name, bytes):
            return self._calls.topic_of(name.hex()) is not None
        return isinstance(self._calls.locate(name, 0), int)


def _named(request: Fields) -> Iterator[str | bytes]:
    """Return the topics a request names: by name, or by id."""
    for row in request.get("topics") or ():
        uuid = row.get("topic_id", ZERO_UUID)
        yield uuid if uuid != ZERO_UUID else row.get("name") or row.get("topic") or ""
    yield from request.get("names") or ()
    for row in request.get("resources") or ():
        if row["resource_type"] == TOPIC:
            yield row["resource_name"]
