"""Settings files of the systems people come from, in our names.

Each table maps their key (dotted) to ours. A key of theirs that has no counterpart is reported with
the reason, never ignored. Their forms may be mixed with ours in one file.

goqueue  ``broker: {nodeId, dataDir, listeners}``, ``defaults: {topic, delivery, delay, priority}``
falconq  ``default_num_partitions`` and ``nodes: {NAME: {http_address, raft_address}}``
queue    ``raft: {replica_id, addr, invite_members}``, ``grpc: {listener_addr}`` …
"""

import difflib
import math
from collections.abc import Callable, Iterator
from typing import Any, cast

from raftline.config.addresses import parse_address

HOUR_MS = 3_600_000
LOOPBACK = "127.0.0.1"
GATEWAY_STEPS = {"grpc": 1000, "kafka": 2000}  # ports above HTTP, as `raftline up` lays them out

RENAMED = {
    "broker.nodeId": "node.name",
    "broker.dataDir": "node.data_dir",
    "broker.listeners.http": "listen.http",
    "broker.listeners.grpc": "listen.grpc",
    "broker.listeners.internal": "listen.peer",
    "defaults.topic.partitions": "topics.partitions",
    "defaults.topic.replicationFactor": "topics.replication_factor",
    "defaults.topic.retention.hours": "topics.retention_ms",
    "defaults.topic.retention.bytes": "topics.retention_bytes",
    "defaults.delivery.visibilityTimeout": "delivery.lease_ms",
    "defaults.delivery.maxRetries": "delivery.retries_max",
    "defaults.delivery.dlqEnabled": "delivery.dead_letters",
    "defaults.delay.enabled": "topics.delays",
    "defaults.delay.maxDelay": "topics.delay_ms_max",
    "defaults.priority.lanes": "topics.lanes",
    "default_num_partitions": "topics.partitions",
    "raft.replica_id": "node.name",
    "raft.addr": "listen.peer",
    "raft.invite_members": "node.peers",
    "grpc.listener_addr": "listen.grpc",
    "http.listener_addr": "listen.http",
    "shard_leader_wait_time": "limits.timeout_ms",
}
NODE_RENAMED = {
    "http_address": ("listen", "http"),
    "raft_address": ("listen", "peer"),
    "grpc_address": ("listen", "grpc"),
    "data_dir": ("node", "data_dir"),
}
WITHOUT_COUNTERPART = {
    "metadata_path": "everything a node stores is under node.data_dir",
    "partitions_path": "everything a node stores is under node.data_dir",
    "raft.logs_data_dir": "everything a node stores is under node.data_dir",
    "raft.metadata_fsm": "log.checkpoint_bytes and log.checkpoint_ms say when state is written out",
    "raft.messages_fsm": "log.checkpoint_bytes and log.checkpoint_ms say when state is written out",
    "consumer_lost_time": "members of a group say their session_timeout_ms when they join",
    "consumer_health_check_interval": "members of a group say their session_timeout_ms",
    "raft.join": "name a node to join: node.join = host:port",
}
_WHOLE = ("broker", "defaults", "grpc", "http")  # tables that are theirs alone

Named = tuple[str, Any, str]  # our dotted name, value, their key


def take_foreign(table: dict[str, Any], found: list[str], *, insecure: bool) -> list[Named]:
    """Take everything out of ``table`` that is not ours; say what has no counterpart.

    An address without a host means every interface to them. It does so here only with --insecure;
    without, such a file still works, on this machine.
    """
    taken: list[Named] = []
    for key, value in list(_leaves(table)):
        if key in RENAMED:
            convert = _CONVERT.get(key)
            name = RENAMED[key]
            given = convert(value) if convert is not None else value
            if name.startswith("listen.") and not insecure:
                given = _at_home(given)
            taken.append((name, given, key))
        elif key in WITHOUT_COUNTERPART:
            found.append(f"{key} has no counterpart here: {WITHOUT_COUNTERPART[key]}")
        elif key.partition(".")[0] in _WHOLE:
            found.append(f"{key}: no setting has this name{_nearest(key)}")
        else:
            continue
        _drop(table, key.split("."))
    return taken


def tidy_nodes(nodes: dict[str, dict[str, Any]], *, insecure: bool) -> dict[str, dict[str, Any]]:
    """Return ``nodes`` in our form; theirs may all run on one machine, each with its own ports."""
    return {name: _tidy_node(name, node, insecure=insecure) for name, node in nodes.items()}


def _tidy_node(name: str, node: dict[str, Any], *, insecure: bool) -> dict[str, Any]:
    if not NODE_RENAMED.keys() & node.keys():
        return node
    made: dict[str, Any] = {}
    for key, value in node.items():
        if key not in NODE_RENAMED:
            made[key] = value
            continue
        section, field = NODE_RENAMED[key]
        given = _at_home(value) if section == "listen" and not insecure else value
        made.setdefault(section, {})[field] = given
    made.setdefault("node", {}).setdefault("data_dir", f"./raftline-data/{name}")
    listen = made.setdefault("listen", {})
    try:
        host, port = parse_address(str(listen.get("http", "")))
    except ValueError:
        return made  # reported with the other settings
    for gateway, step in GATEWAY_STEPS.items():
        listen.setdefault(gateway, f"{host}:{port + step}")
    return made


def _leaves(table: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        name = f"{above}{key}"
        if name == "nodes":
            continue
        whole = name in RENAMED or name in WITHOUT_COUNTERPART
        if isinstance(value, dict) and value and not whole:
            yield from _leaves(cast("dict[str, Any]", value), f"{name}.")
        else:
            yield name, value


def _drop(table: dict[str, Any], path: list[str]) -> None:
    head, *rest = path
    if not rest:
        del table[head]
        return
    _drop(table[head], rest)
    if not table[head]:
        del table[head]


def _at_home(address: Any) -> Any:
    return f"{LOOPBACK}{address}" if str(address).startswith(":") else address


def _hours(value: Any) -> Any:
    if isinstance(value, str):  # quoted, a number is still one of hours; 7d says its unit itself
        try:
            value = float(value)
        except ValueError:
            return value
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return round(value * HOUR_MS) if is_number and not isinstance(value, bool) else value


def replica_name(number: Any) -> str:
    """Return our name of the replica they know by a number."""
    return f"node-{number}"


def _members(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    rows = cast("dict[Any, Any]", value)
    return {replica_name(number): address for number, address in rows.items()}


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "defaults.topic.retention.hours": _hours,
    "raft.replica_id": replica_name,
    "raft.invite_members": _members,
}


def _nearest(key: str) -> str:
    near = difflib.get_close_matches(key, list(RENAMED), n=1)
    return f"; did you mean {near[0]}?" if near else ""
