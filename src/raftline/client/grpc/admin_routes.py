"""Topics, groups and the cluster: native routes as calls of ``raftline.v1``."""

from raftline.client.grpc import forms
from raftline.client.grpc.remotes import Asked, Json, Remote, as_json, known, moment_ms
from raftline.wire.proto.raftline.v1 import admin_pb2, groups_pb2

# ---------------------------------------------------------------------- topics and the cluster


def list_topics(asked: Asked) -> Remote:
    """List topics."""

    def answer(reply: admin_pb2.ListTopicsReply) -> Json:
        return {"topics": [forms.topic_summary(row) for row in reply.topics]}

    return Remote("AdminService/ListTopics", admin_pb2.ListTopicsRequest(), as_json(answer))


def create_topic(asked: Asked) -> Remote:
    """Create a topic."""
    body = asked.body()
    request = admin_pb2.CreateTopicRequest(
        name=body["name"],
        partitions=body.get("num_partitions", 0),
        replication_factor=body.get("replication_factor", 0),
        settings=_settings(body),
    )

    def answer(reply: admin_pb2.CreateTopicReply) -> Json:
        return {
            "name": reply.name,
            "created": True,
            "partitions": reply.partitions,
            "Name": reply.name,
            "NumberOfPartitions": reply.partitions,
        }

    return Remote("AdminService/CreateTopic", request, as_json(answer))


def show_topic(asked: Asked) -> Remote:
    """Show a topic."""
    request = admin_pb2.ShowTopicRequest(name=asked.topic)
    return Remote("AdminService/ShowTopic", request, as_json(forms.topic))


def ensure_topic(asked: Asked) -> Remote:
    """Show a topic, created first if need be."""
    request = admin_pb2.EnsureTopicRequest(name=asked.topic)
    return Remote("AdminService/EnsureTopic", request, as_json(forms.topic))


def set_topic(asked: Asked) -> Remote:
    """Change a topic."""
    request = admin_pb2.SetTopicRequest(name=asked.topic, settings=_settings(asked.body()))
    return Remote("AdminService/SetTopic", request, known({}))


def delete_topic(asked: Asked) -> Remote:
    """Delete a topic."""
    told: Json = {"name": asked.topic, "deleted": True}
    request = admin_pb2.DeleteTopicRequest(name=asked.topic)
    return Remote("AdminService/DeleteTopic", request, known(told))


def _settings(body: Json) -> dict[str, admin_pb2.Setting]:
    found: dict[str, admin_pb2.Setting] = {}
    for name, value in body.get("settings", {}).items():
        if isinstance(value, bool):
            found[name] = admin_pb2.Setting(flag=value)
        elif isinstance(value, int):
            found[name] = admin_pb2.Setting(number=value)
        else:
            found[name] = admin_pb2.Setting(text=str(value))
    return found


def new_producer(asked: Asked) -> Remote:
    """Get a producer id."""

    def answer(reply: admin_pb2.NewProducerReply) -> Json:
        return {"producer_id": reply.producer_id, "epoch": reply.epoch}

    return Remote("AdminService/NewProducer", admin_pb2.NewProducerRequest(), as_json(answer))


def list_shards(asked: Asked) -> Remote:
    """Find who leads what."""
    topics = asked.query.get("topics")
    request = admin_pb2.ListShardsRequest(
        topics=[] if topics is None else filter(None, topics.split(",")), all=topics is None
    )

    def answer(reply: admin_pb2.ListShardsReply) -> Json:
        return {
            "shards": [forms.shard(row) for row in reply.shards],
            "nodes": [forms.node(row) for row in reply.nodes],
        }

    return Remote("AdminService/ListShards", request, as_json(answer))


def cluster(asked: Asked) -> Remote:
    """Show the cluster."""
    return Remote(
        "AdminService/ShowCluster", admin_pb2.ShowClusterRequest(), as_json(forms.cluster)
    )


# ---------------------------------------------------------------------- groups


def list_groups(asked: Asked) -> Remote:
    """List groups."""
    request = groups_pb2.ListGroupsRequest(topic=asked.query.get("topic", ""))

    def answer(reply: groups_pb2.ListGroupsReply) -> Json:
        return {"groups": [forms.group_summary(row) for row in reply.groups]}

    return Remote("GroupService/List", request, as_json(answer))


def show_group(asked: Asked) -> Remote:
    """Show a group."""
    request = groups_pb2.ShowGroupRequest(
        group=asked.params["group"], topic=asked.query.get("topic", "")
    )
    return Remote("GroupService/Show", request, as_json(forms.group))


def delete_group(asked: Asked) -> Remote:
    """Forget a group."""
    group = asked.params["group"]
    request = groups_pb2.DeleteGroupRequest(group=group, topic=asked.query.get("topic", ""))

    def answer(reply: groups_pb2.DeleteGroupReply) -> Json:
        return {"group": group, "deleted": True, "work_partitions": reply.work_partitions}

    return Remote("GroupService/Delete", request, as_json(answer))


def reset_group(asked: Asked) -> Remote:
    """Move a group."""
    body, group = asked.body(), asked.params["group"]
    kind = body.get("kind", "stream")
    request = groups_pb2.ResetGroupRequest(
        group=group,
        topic=body["topic"],
        partitions=body.get("partitions", ()),
        kind=groups_pb2.KIND_WORK if kind == "work" else groups_pb2.KIND_STREAM,
        dry_run=body.get("dry_run", False),
        create=body.get("create", False),
    )
    to = body.get("to")
    if to in ("earliest", "latest"):
        request.end = groups_pb2.END_LATEST if to == "latest" else groups_pb2.END_EARLIEST
    elif to is not None:
        request.time_ms = moment_ms("to", to)
    if "offset" in body:
        request.offset = body["offset"]
    if "time" in body:
        request.time_ms = moment_ms("time", body["time"])

    def answer(reply: groups_pb2.ResetGroupReply) -> Json:
        rows = [forms.reset_row(row) for row in reply.partitions]
        return {"group": group, "kind": kind, "dry_run": reply.dry_run, "partitions": rows}

    return Remote("GroupService/Reset", request, as_json(answer))
