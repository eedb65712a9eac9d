"""Values of configs that are no numbers: refused by name, never a fault of ours."""

import pytest

from raftline.gateways.kafka.configs_names import to_settings
from raftline.model.errors import InvalidArgument


@pytest.mark.parametrize("name", ["retention.ms", "segment.bytes", "min.insync.replicas"])
@pytest.mark.parametrize("value", ["--5", "9" * 5_000 + "x", "-", "\u0665x"])
def test_what_is_no_number_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidArgument):
        to_settings({name: value}, 3)


@pytest.mark.parametrize("name", ["max.message.bytes", "min.insync.replicas"])
def test_a_number_that_is_far_too_long_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument):
        to_settings({name: "9" * 5_000}, 3)
