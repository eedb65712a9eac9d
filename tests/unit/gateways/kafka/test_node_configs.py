"""Configs of nodes: a node tells its own, and nobody else's. Who else has none."""

from typing import Any

from raftline.config.settings import ListenSettings, Settings
from raftline.gateways.kafka.configs import FROM_NODE, INVALID_CONFIG, NODE, SET, TOPIC, ConfigsApi
from raftline.gateways.kafka.errors import INVALID_REQUEST, NONE
from raftline.testing import SimCluster, cluster
from tests.unit.gateways.kafka.test_addresses import ask
from tests.unit.node.whole import node


def described(
    sim: SimCluster, name: str, kafka: str = "127.0.0.1:9092", keys: list[str] | None = None
) -> dict[str, Any]:
    first = node(sim, next(iter(sim.nodes)))
    api = ConfigsApi(first, Settings(listen=ListenSettings(kafka=kafka)))
    resource = {"resource_type": NODE, "resource_name": name, "keys": keys}
    asked = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
    (told,) = ask(sim, api.describe, asked, 4)["results"]
    return told


def test_a_node_tells_its_own_configs_and_where_it_is_reached() -> None:
    with cluster(nodes=1, seed=1) as sim:
        view = node(sim, next(iter(sim.nodes))).nodes_view()
        told = described(sim, str(view.node), "[::1]:9092")
        assert told["error_code"] == NONE
        rows = {row["name"]: row for row in told["configs"]}
        (here,) = view.nodes
        assert rows["advertised.listeners"]["value"] == f"PLAINTEXT://{here.kafka}"
        assert rows["advertised.listeners"]["config_source"] == FROM_NODE
        assert rows["listeners"]["value"] == "PLAINTEXT://[::1]:9092"
        assert rows["broker.id"]["value"] == rows["node.id"]["value"] == str(view.node)


def test_who_asks_a_node_for_anothers_configs_is_refused() -> None:
    with cluster(nodes=1, seed=1) as sim:
        assert described(sim, "")["configs"] == []
        for name in ("7", "none"):
            told = described(sim, name)
            assert told["error_code"] == INVALID_REQUEST
            assert name in told["error_message"]


def test_configs_of_what_has_none_are_an_invalid_request() -> None:
    group = 32
    with cluster(nodes=1, seed=1) as sim:
        api = ConfigsApi(node(sim, next(iter(sim.nodes))), Settings())
        config = {"name": "session.timeout.ms", "value": "1", "operation": SET}
        for kind, code in ((group, INVALID_REQUEST), (NODE, INVALID_CONFIG)):
            row = {"resource_type": kind, "resource_name": "1", "configs": [config]}
            for call in (api.alter, api.alter_some):
                asked = {"resources": [row], "validate_only": False}
                (told,) = ask(sim, call, asked, 0)["responses"]
                assert told["error_code"] == code
                assert "only configs of topics can be changed" in told["error_message"]


def test_who_names_no_configs_is_told_all_of_them() -> None:
    with cluster(nodes=1, seed=1) as sim:
        name = str(node(sim, next(iter(sim.nodes))).nodes_view().node)
        every = described(sim, name)["configs"]
        assert described(sim, name, keys=[])["configs"] == every
        (one,) = described(sim, name, keys=["node.id", "none"])["configs"]
        assert one["name"] == "node.id"


def test_a_refusal_without_a_hint_ends_with_its_reason() -> None:
    with cluster(nodes=1, seed=1) as sim:
        first = node(sim, next(iter(sim.nodes)))
        made: list[object] = []
        first.command("topic.create", {"name": "t"}, 1_000, made.append)
        sim.run_until(lambda: bool(made))
        config = {"name": "cleanup.policy", "operation": 2, "value": "compact"}
        resource = {"resource_type": TOPIC, "resource_name": "t", "configs": [config]}
        api = ConfigsApi(first, Settings())
        asked = {"resources": [resource], "validate_only": False}
        (told,) = ask(sim, api.alter_some, asked, 1)["responses"]
        assert told["error_code"] == INVALID_CONFIG
        assert told["error_message"].endswith("yet")
