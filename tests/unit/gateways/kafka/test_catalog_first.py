"""Requests about topics that are not known here: the catalog is given the time to say so."""

from typing import Any

import pytest

from raftline.gateways.kafka import schema, schema_admin
from raftline.gateways.kafka.catalog_first import ABOUT_TOPICS, CatalogFirst
from raftline.gateways.kafka.codec import decoder, encoder
from raftline.gateways.kafka.dispatch import Table
from raftline.gateways.kafka.schema import Api
from raftline.gateways.second_look import LOOK_MS_MAX
from raftline.model.errors import UnknownTopic
from tests.unit.gateways.kafka.test_addresses import Asker


class Behind:
    """A node that knows no topics, and notes how long its catalog may take."""

    is_sure = True

    def __init__(self) -> None:
        self.timeouts: list[int] = []

    def locate(self, topic: str, _partition: int) -> UnknownTopic:
        return UnknownTopic(topic)

    def check_catalog(self, timeout_ms: int, done: Any) -> None:
        self.timeouts.append(timeout_ms)
        done(None)


def ask(api: Api, version: int, fields: dict[str, Any]) -> list[int]:
    """Send a request as a client does; return how long the catalog was given."""
    table, behind, ran = Table(), Behind(), list[dict[str, Any]]()
    for one in ABOUT_TOPICS:
        table.add(one, 0, 20, lambda request, _version, _context, _reply: ran.append(request))
    CatalogFirst(behind).guard(table)  # type: ignore[arg-type]
    data, flexible = bytearray(), version >= api.flexible_from
    encoder(api.request, version, flexible=flexible)(data, fields)
    request = decoder(api.request, version, flexible=flexible)(bytes(data), 0)
    call = table.handlers[api.key].call
    assert call is not None
    call(request, version, Asker(), lambda _: None)
    assert len(ran) == 1
    return behind.timeouts


@pytest.mark.parametrize("version", range(1, 11))
def test_list_offsets_waits_in_every_version(version: int) -> None:
    """Before version 10 it names no timeout: that is not one of nothing."""
    place = {"partition": 0, "timestamp": -1}
    fields = {"topics": [{"name": "new", "partitions": [place]}], "timeout_ms": 30_000}
    assert ask(schema.LIST_OFFSETS, version, fields) == [LOOK_MS_MAX]


def test_who_does_not_wait_for_a_change_is_not_denied_unasked() -> None:
    rows = [{"name": "new", "partitions": [{"partition": 0, "offset": -1}]}]
    fields = {"topics": rows, "timeout_ms": 0}
    assert ask(schema_admin.DELETE_RECORDS, 2, fields) == [LOOK_MS_MAX]
    assert ask(schema_admin.DELETE_RECORDS, 2, {**fields, "timeout_ms": 300}) == [300]
