"""Configs that have no effect here are kept for the clients that set them, and told again."""

import pytest

from raftline.config.settings import Settings
from raftline.gateways.kafka.configs import DELETE, INVALID_CONFIG, SET, TOPIC, ConfigsApi
from raftline.gateways.kafka.configs_names import IDLE, KEPT, read_kept, to_settings, write_kept
from raftline.gateways.kafka.errors import NONE
from raftline.model.errors import InvalidArgument
from raftline.model.settings import SETTINGS
from raftline.testing import cluster
from tests.unit.gateways.kafka.test_addresses import ask
from tests.unit.node.whole import node


def test_what_was_set_is_told_until_it_is_taken_back() -> None:
    with cluster(nodes=1, seed=1) as sim:
        first = node(sim, next(iter(sim.nodes)))
        api = ConfigsApi(first, Settings())
        sim.create_topic("t", 1, settings=to_settings({"segment.ms": "1000"}, 1))
        place = {"resource_type": TOPIC, "resource_name": "t"}

        def change(*changes: tuple[str, int, str | None]) -> int:
            configs = [{"name": n, "operation": o, "value": v} for n, o, v in changes]
            asked = {"resources": [{**place, "configs": configs}], "validate_only": False}
            return ask(sim, api.alter_some, asked, 1)["responses"][0]["error_code"]

        def replace(**configs: str) -> int:
            rows = [{"name": n.replace("_", "."), "value": v} for n, v in configs.items()]
            asked = {"resources": [{**place, "configs": rows}], "validate_only": False}
            return ask(sim, api.alter, asked, 1)["responses"][0]["error_code"]

        def told() -> dict[str, str]:
            flags = {"include_synonyms": False, "include_documentation": False}
            asked = {"resources": [{**place, "keys": None}], **flags}
            rows = ask(sim, api.describe, asked, 4)["results"][0]["configs"]
            assert KEPT not in {row["name"] for row in rows}
            return {row["name"]: row["value"] for row in rows if row["name"] in IDLE}

        assert told() == {"segment.ms": "1000"}
        assert change(("flush.ms", SET, "7"), ("preallocate", SET, "TRUE")) == NONE
        assert told() == {"flush.ms": "7", "preallocate": "true", "segment.ms": "1000"}
        assert change(("segment.ms", DELETE, None), ("flush.ms", SET, "8")) == NONE
        assert told() == {"flush.ms": "8", "preallocate": "true"}
        assert change(("flush.ms", SET, "soon")) == INVALID_CONFIG
        assert told() == {"flush.ms": "8", "preallocate": "true"}
        assert replace(segment_ms="5") == NONE
        assert told() == {"segment.ms": "5"}
        assert change(("segment.ms", DELETE, None)) == NONE
        assert told() == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.ms", "1,flush.ms=2"),
        ("segment.ms", ""),
        ("index.interval.bytes", "1.5"),
        ("min.cleanable.dirty.ratio", "half"),
        ("preallocate", "maybe"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=name):
        to_settings({name: value}, 1)


def test_all_of_them_fit_into_the_setting_and_noise_in_it_is_passed_over() -> None:
    every = dict.fromkeys(IDLE, "9" * 9)
    every["preallocate"] = "false"
    settings = to_settings(every, 1)
    assert read_kept(settings[KEPT]) == every
    assert read_kept("segment.ms=1,noise,no.such=2,=") == {"segment.ms": "1"}
    assert read_kept(write_kept({})) == read_kept(SETTINGS[KEPT].default) == {}
