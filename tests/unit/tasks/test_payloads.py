"""Arguments of tasks: to JSON and back into what the function expects."""

from datetime import UTC, date, datetime
from enum import Enum

import msgspec
import pytest

from raftline.model.errors import InvalidArgument
from raftline.tasks.payloads import Signature


class Colour(Enum):
    RED = "red"


class Order(msgspec.Struct):
    id: int
    day: date


def paint(colour: Colour, at: datetime, order: Order, times: int = 1, other=None) -> None: ...


def anything(**named: object) -> None: ...


def one(name: str) -> None: ...


def nothing() -> None: ...


def placed(order: Order, times: int = 1, /, other: str = "") -> None: ...


def test_there_and_back() -> None:
    signature = Signature("paint", paint, ())
    at = datetime(2026, 1, 2, 3, tzinfo=UTC)
    order = Order(7, date(2026, 1, 2))
    payload = signature.encode((Colour.RED, at), {"order": order, "other": [1]})
    assert signature.decode(payload) == (
        [],
        {"colour": Colour.RED, "at": at, "order": order, "other": [1]},
    )


def test_other_payloads() -> None:
    assert Signature("one", one, ()).decode(b'"bob"') == (["bob"], {})
    assert Signature("nothing", nothing, ()).decode(b"null") == ([], {})
    assert Signature("nothing", nothing, ()).decode(b"") == ([], {})
    named = Signature("anything", anything, ())
    assert named.decode(named.encode((), {"a": 1})) == ([], {"a": 1})


def test_what_is_given_by_position_only_arrives_by_position() -> None:
    """It was enqueued, and failed in every worker until it was dead."""
    signature = Signature("placed", placed, ())
    order = Order(7, date(2026, 1, 2))
    for given, expected in (((order,), [order]), ((order, 2), [order, 2])):
        payload = signature.encode(given, {"other": "x"})
        assert signature.decode(payload) == (expected, {"other": "x"})
        placed(*expected, other="x")
    assert signature.decode(b'{"times": 2}') == ([], {"times": 2})


@pytest.mark.parametrize("payload", [b"{", b'{"name": 7}', b"7"])
def test_payloads_that_do_not_fit(payload: bytes) -> None:
    with pytest.raises(InvalidArgument):
        Signature("one", one, ()).decode(payload)


@pytest.mark.parametrize(
    ("arguments", "named"), [((), {}), (("a", "b"), {}), ((), {"nome": 1}), ((object(),), {})]
)
def test_calls_that_do_not_fit(arguments: tuple[object, ...], named: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        Signature("one", one, ()).encode(arguments, named)


def test_words_of_enqueue_are_taken() -> None:
    with pytest.raises(InvalidArgument, match="name"):
        Signature("one", one, ("name",))
