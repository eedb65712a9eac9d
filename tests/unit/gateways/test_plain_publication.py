"""The short way of a JSON publish gives what the long way gives."""

from typing import Any

import pytest

from raftline.gateways.http import messages as message_routes
from raftline.gateways.http.plain_publication import read_plain
from raftline.model.errors import NotReady, RaftlineError
from raftline.model.limits import KEY_BYTES_MAX
from raftline.model.records import open_batches
from tests.unit.gateways.web import Web, serve

ONE = "/v1/topics/t/partitions/1/messages"
ANY = "/v1/topics/t/messages"

Items = list[dict[str, Any]]
REQUESTS: list[Items] = [
    [{"value": "a"}],
    [{"value": ""}, {"value": "x", "key": ""}, {"value": "y", "key": None}],
    [{"value": f'wert {n} \u00e9\u4e16\U0001f600\n"', "key": f"k\u00e9{n % 7}"} for n in range(50)],
    [{"value": "v" * 100} for _ in range(500)],
    [{"value": "v", "key": "k" * KEY_BYTES_MAX}, {"value": "v", "key": "\u4e16" * 8000}],
    [{"value": "v"}, {"value": "v", "key": "k" * (KEY_BYTES_MAX + 1)}],
    [{"value": "v"}, {"value": None, "key": "gone"}],
]


def both_ways(items: Items, path: str, refusal: RaftlineError | None = None) -> list[Any]:
    """Publish as it is, and with a field that only the long way knows."""
    found: list[Any] = []
    for more in ({}, {"headers": None}):

        async def scenario(web: Web, more: dict[str, Any] = more) -> None:
            web.node.topic("t", 3)
            web.node.refuse = refusal
            client = await web.client()
            reply = await client.ask("POST", path, {"messages": [{**i, **more} for i in items]})
            stored = [
                [(m.offset, m.key, m.value, m.headers) for _, b, _ in log for m in open_batches(b)]
                for log in web.node.logs["t"]
            ]
            batches = [len(log) for log in web.node.logs["t"]]
            found.append((reply.status, reply.fields, reply.body, stored, batches))

        serve(scenario)
    return found


@pytest.mark.parametrize("path", [ANY, ONE])
@pytest.mark.parametrize("items", REQUESTS)
def test_reply_and_log_are_the_same_both_ways(items: Items, path: str) -> None:
    short, long = both_ways(items, path)
    assert short == long
    assert short[0] == 200


@pytest.mark.parametrize("items", REQUESTS[:4])
def test_a_refusal_is_the_same_both_ways(items: Items) -> None:
    short, long = both_ways(items, ANY, NotReady("not yet"))
    assert short == long
    assert short[0] == 503


def test_an_unknown_partition_is_refused_the_same_way() -> None:
    short, long = both_ways([{"value": "a"}], ONE.replace("1", "9").replace("v9", "v1"))
    assert short == long
    assert short[0] == 404


def test_the_short_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the long way was taken")

    monkeypatch.setattr(message_routes, "Publication", refuse)

    async def scenario(web: Web) -> None:
        client = await web.client()
        body = {"messages": [{"value": "a", "key": "k"}]}
        assert (await client.ask("POST", ANY, body)).status == 200
        assert (await client.ask("POST", ONE, body)).status == 200

    serve(scenario)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"messages":[]}',
        b'{"messages":[{}]}',
        b'{"messages":[{"value":1}]}',
        b'{"messages":[{"value":"a"},{"value":"b","priority":1}]}',
        b'{"messages":[{"value":"a"}],"producer":"p"}',
        b'{"messages":[{"value":"a"},{"value":"b"},{"value":"c"},{"value":"d"}]}',
        b'{"messages":[{"value":"\xff"}]}',
        b'{"messages":[{"value":"' + b"v" * (6 << 20) + b'"}]}',
    ],
)
def test_everything_else_goes_the_long_way(body: bytes) -> None:
    assert read_plain(body, 3, 0) is None


def test_a_producer_in_the_head_is_not_lost() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        body = {"messages": [{"value": "a"}]}
        await client.ask("POST", ANY, body, {"Raftline-Producer": "me"})
        (stored,) = [m for log in web.node.logs["t"] for _, b, _ in log for m in open_batches(b)]
        assert stored.headers == (("raftline-producer", b"me"),)

    serve(scenario)
