"""The cluster over Kafka: DescribeCluster, DescribeTopicPartitions, DescribeLogDirs."""

from typing import Any

from raftline.gateways.kafka import schema_admin as schema
from raftline.gateways.kafka.dispatch import Context, Reply, Table
from raftline.gateways.kafka.errors import NONE, missing_code
from raftline.gateways.kafka.metadata import broker_rows, live_ids, topic_row
from raftline.gateways.kafka.operations import ON_CLUSTER, ON_TOPIC, may
from raftline.gateways.kafka.ports import KafkaCalls

OF_NODES = 1  # the only type of endpoints there is
UNSUPPORTED_ENDPOINT_TYPE = 115
PARTITIONS_MAX = 2_000  # in one reply
LOG_DIRECTORY = "raftline"  # what our one directory is called; where it is is nobody's business

Fields = dict[str, Any]


class ClusterApi:
    """Describes nodes, partitions and what they weigh."""

    __slots__ = ("_calls",)

    def __init__(self, calls: KafkaCalls) -> None:
        self._calls = calls

    def add_to(self, table: Table) -> None:
        """Serve them."""
        table.add(schema.DESCRIBE_CLUSTER, 0, 2, self.describe_cluster)
        table.add(schema.DESCRIBE_TOPIC_PARTITIONS, 0, 0, self.describe_partitions)
        table.add(schema.DESCRIBE_LOG_DIRS, 1, 4, self.describe_log_dirs)

    def describe_cluster(
        self, request: Fields, version: int, context: Context, reply: Reply
    ) -> None:
        """Describe the nodes."""
        view = self._calls.nodes_view()
        told: Fields = {"endpoint_type": request["endpoint_type"], "cluster_id": view.cluster}
        if request["endpoint_type"] != OF_NODES:
            text = "every node is alike: ask for brokers"
            reply({**told, "error_code": UNSUPPORTED_ENDPOINT_TYPE, "error_message": text})
            return
        live = live_ids(view.nodes)
        rows = broker_rows(row for row in view.nodes if row.id in live)
        reply(
            {
                **told,
                "error_code": NONE,
                "controller_id": view.catalog_leader if view.catalog_leader in live else -1,
                "brokers": [{**row, "broker_id": row["node_id"]} for row in rows],
                "cluster_authorized_operations": may(
                    ON_CLUSTER, request["include_cluster_authorized_operations"]
                ),
            }
        )

    def describe_partitions(
        self, request: Fields, version: int, context: Context, reply: Reply
    ) -> None:
        """Describe topics with their partitions, a page at a time, in the order of names."""
        asked = sorted({row["name"] for row in request["topics"]}) or self._calls.topic_names()
        cursor: Fields | None = request["cursor"]
        if cursor is not None:
            asked = [name for name in asked if name >= cursor["topic_name"]]
        left = max(1, min(request["response_partition_limit"], PARTITIONS_MAX))
        live = live_ids(self._calls.nodes_view().nodes)
        rows: list[Fields] = []
        after: Fields | None = None
        for name in asked:
            if left <= 0:
                after = {"topic_name": name, "partition": 0}
                break
            first = cursor["partition"] if cursor and cursor["topic_name"] == name else 0
            row, more = self._topic(name, max(0, first), left, live)
            rows.append(row)
            left -= len(row.get("partitions", ()))
            if more >= 0:
                after = {"topic_name": name, "partition": more}
                break
        reply({"topics": rows, "next_cursor": after})

    def _topic(self, name: str, first: int, left: int, live: set[int]) -> tuple[Fields, int]:
        """Describe a topic from a partition on; also return where the next page begins, or -1."""
        found = self._calls.find_topic(name)
        if found is None:
            return {"error_code": missing_code(self._calls.unknown(name)), "name": name}, -1
        row = topic_row(found, live, ON_TOPIC)
        every = row["partitions"]
        row["partitions"] = [
            {**partition, "eligible_leader_replicas": [], "last_known_elr": []}  # never null
            for partition in every[first : first + left]
        ]
        return row, first + left if first + left < len(every) else -1

    def describe_log_dirs(
        self, request: Fields, version: int, context: Context, reply: Reply
    ) -> None:
        """Say how many bytes of each partition are on this node."""
        asked: list[Fields] | None = request["topics"]
        wanted = None if asked is None else {row["topic"]: set(row["partitions"]) for row in asked}
        rows: list[Fields] = []
        for name in self._calls.topic_names() if wanted is None else sorted(wanted):
            topic = self._calls.find_topic(name)
            here = [
                {"partition": row.partition, "size": row.bytes}
                for row in (topic.partitions if topic is not None else ())
                if row.bytes >= 0 and (not wanted or row.partition in wanted[name])
            ]
            if here:
                rows.append({"name": name, "partitions": here})
        view = self._calls.nodes_view()
        free = next((row.free_bytes for row in view.nodes if row.id == view.node), -1)
        directory = {"log_dir": LOG_DIRECTORY, "topics": rows, "usable_bytes": free}
        reply({"results": [directory]})
