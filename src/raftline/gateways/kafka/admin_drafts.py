"""What a topic would be: the answer to a CreateTopics that only wants to know (validate_only).

Clients that are told no numbers take the node for one too old to tell them.
"""

from typing import Any

from raftline.config.new_topics import new_topic_partitions, new_topic_settings
from raftline.config.settings import Settings
from raftline.gateways.kafka.configs import topic_configs
from raftline.model.calls import TopicRow
from raftline.model.limits import REPLICATION_FACTOR_DEFAULT
from raftline.model.settings import effective

Fields = dict[str, Any]


def draft(arguments: dict[str, Any], settings: Settings, members: int) -> Fields:
    """Return what CreateTopics tells of a topic that ``topic.create`` would make."""
    name: str = arguments["name"]
    count = arguments.get("partitions") or new_topic_partitions(settings, name)
    usual = min(settings.topics.replication_factor or REPLICATION_FACTOR_DEFAULT, members)
    factor = arguments.get("replication_factor") or usual
    topic = TopicRow(
        name=name,
        uuid="",
        replication_factor=factor,
        created_ms=0,
        settings=effective({**new_topic_settings(settings), **arguments["settings"]}),
        partitions=(),
    )
    return {"num_partitions": count, "replication_factor": factor, "configs": told_configs(topic)}


def told_configs(topic: TopicRow) -> list[Fields]:
    """Return a topic's configs as CreateTopics tells them."""
    return [{**config, "is_sensitive": False} for config in topic_configs(topic)]
