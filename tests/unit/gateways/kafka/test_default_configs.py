"""Configs that are taken back."""

from typing import Any

import msgspec
import pytest

from raftline.config.settings import Settings
from raftline.gateways.kafka.configs import DELETE, TOPIC, ConfigsApi
from raftline.gateways.kafka.errors import NONE
from raftline.testing import cluster
from tests.unit.gateways.kafka.test_addresses import ask
from tests.unit.node.whole import node

FOR_EVER = "-1"


@pytest.mark.parametrize("way", ["replaced", "deleted"])
def test_what_is_taken_back_is_as_of_a_new_topic_of_this_node(way: str) -> None:
    """Who keeps messages for ever does not lose them because a client set something else."""
    topics = msgspec.structs.replace(Settings().topics, retention_ms=-1)
    settings = msgspec.structs.replace(Settings(), topics=topics)
    with cluster(nodes=1, seed=1) as sim:
        first = node(sim, next(iter(sim.nodes)))
        api = ConfigsApi(first, settings)
        sim.create_topic("t", 1, settings={"retention_ms": -1, "headers": True})
        place = {"resource_type": TOPIC, "resource_name": "t"}

        def told(name: str) -> str:
            flags = {"include_synonyms": False, "include_documentation": False}
            asked = {"resources": [{**place, "keys": [name]}], **flags}
            (row,) = ask(sim, api.describe, asked, 4)["results"][0]["configs"]
            return row["value"]

        def run(call: Any, *configs: dict[str, Any]) -> int:
            asked = {"resources": [{**place, "configs": configs}], "validate_only": False}
            return ask(sim, call, asked, 1)["responses"][0]["error_code"]

        if way == "replaced":
            assert run(api.alter, {"name": "max.message.bytes", "value": "2048"}) == NONE
            assert told("max.message.bytes") == "2048"
            assert told("headers") == "false"
        else:
            change = {"name": "retention.ms", "operation": DELETE, "value": None}
            assert run(api.alter_some, change) == NONE
            assert told("headers") == "true"
        assert told("retention.ms") == FOR_EVER
