"""The overview as people see it: what the nodes told, put together by topic and group."""

from typing import Any

from raftline.model.calls import CatalogView, ClusterStatus, TopicRow
from raftline.model.overview import GroupGlance, NodeGlance, Overview, PartitionGlance, StreamGlance

Place = tuple[str, int]


def merge(status: ClusterStatus, catalog: CatalogView, seen: Overview) -> dict[str, Any]:
    """Return nodes, topics and groups; figures nobody told of are None."""
    told = {(row.topic, row.partition): row for node in seen.nodes for row in node.partitions}
    return {
        "cluster": status.cluster,
        "node": status.node,
        "name": status.name,
        "ready": status.ready,
        "reason": status.reason,
        "catalog_leader": status.catalog_leader,
        "leaderless": status.leaderless,
        "quarantined": status.quarantined,
        "silent": seen.silent,
        "nodes": _nodes(status, seen),
        "topics": [_topic(topic, told, seen) for topic in catalog.topics],
        "groups": _work_groups(seen) + _stream_groups(seen, told),
    }


def _nodes(status: ClusterStatus, seen: Overview) -> list[dict[str, Any]]:
    glances = {glance.node: glance for glance in seen.nodes}
    return [
        {
            "id": row.id,
            "name": row.name,
            "state": row.state,
            "rack": row.rack,
            "http": row.http,
            "grpc": row.grpc,
            "clock_offset_ms": row.clock_offset_ms,
            **_node(glances.get(row.id)),
        }
        for row in status.nodes
    ]


def _node(glance: NodeGlance | None) -> dict[str, Any]:
    names = ("leads", "replicas", "uptime_ms", "connections", "free_bytes", "total_bytes")
    return {name: getattr(glance, name, None) for name in (*names, "wal_bytes")}


def _topic(topic: TopicRow, told: dict[Place, PartitionGlance], seen: Overview) -> dict[str, Any]:
    rows = [told.get((topic.name, row.partition)) for row in topic.partitions]
    known = [row for row in rows if row is not None]
    return {
        "name": topic.name,
        "replication_factor": topic.replication_factor,
        "messages": sum(row.commit_end - row.log_start for row in known),
        "bytes": sum(row.bytes for row in known),
        "waiting": sum(row.waiting for row in known),
        "dead": sum(row.dead for row in known),
        "dead_total": sum(row.dead_total for row in known),
        "messages_in": sum(node.messages_in.get(topic.name, 0) for node in seen.nodes),
        "messages_out": sum(node.messages_out.get(topic.name, 0) for node in seen.nodes),
        "partitions": [
            {
                "partition": row.partition,
                "leader": row.leader,
                "replicas": row.replicas,
                "state": row.state,
                "log_start": glance.log_start if glance is not None else None,
                "commit_end": glance.commit_end if glance is not None else None,
            }
            for row, glance in zip(topic.partitions, rows, strict=True)
        ],
    }


def _work_groups(seen: Overview) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str], list[GroupGlance]] = {}
    for node in seen.nodes:
        for row in node.groups:
            rows.setdefault((row.group, row.topic), []).append(row)
    return [
        {
            "group": group,
            "kind": "work",
            "topic": topic,
            "lag": sum(row.lag for row in found),
            "lag_ms": max(row.lag_ms for row in found),
            "leased": sum(row.leased for row in found),
            "resting": sum(row.resting for row in found),
            "dead": sum(row.dead for row in found),
            "waiting_workers": max(row.receivers for row in found),
        }
        for (group, topic), found in sorted(rows.items())
    ]


def _stream_groups(seen: Overview, told: dict[Place, PartitionGlance]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for row in sorted((row for node in seen.nodes for row in node.streams), key=_by_name):
        topics = sorted({cursor[0] for cursor in row.cursors}) or [""]
        found += [_stream(row, topic, told) for topic in topics]
    return found


def _stream(row: StreamGlance, topic: str, told: dict[Place, PartitionGlance]) -> dict[str, Any]:
    lag: int | None = 0
    lag_ms: int | None = 0
    for name, partition, offset, age_ms in row.cursors:
        if name != topic:
            continue
        place = told.get((name, partition))
        if place is None:
            lag = None
        elif lag is not None:
            lag += max(0, place.commit_end - max(offset, place.log_start))
        lag_ms = None if age_ms < 0 or lag_ms is None else max(lag_ms, age_ms)
    return {
        "group": row.group,
        "kind": "stream",
        "topic": topic,
        "lag": lag,
        "lag_ms": lag_ms,
        "state": row.state,
        "members": row.members,
        "generation": row.generation,
    }


def _by_name(row: StreamGlance) -> str:
    return row.group
