"""Rows of ``pipeline sql`` as programs read them: JSON, with every digit."""

import decimal
import json
import math
from typing import Any

import pytest

from raftline.cli.pipeline import plain


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (decimal.Decimal("9.99"), "9.99"),
        (decimal.Decimal("5.00"), "5"),
        (decimal.Decimal("9007199254740993"), "9007199254740993"),
        (decimal.Decimal("90071992547409931.25"), '"90071992547409931.25"'),
        (1 << 62, "4611686018427387904"),
        (math.nan, '"nan"'),
        ([math.inf, 0.5], '["inf", 0.5]'),
    ],
)
def test_a_number_keeps_its_digits_and_is_json(value: Any, wanted: str) -> None:
    assert json.dumps(plain(value), allow_nan=False) == wanted
