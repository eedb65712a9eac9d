"""What a topic starts with: its own settings, filled up from those of the node that creates it."""

from typing import Any

from raftline.config.settings import Settings
from raftline.model.settings import SETTINGS

ALWAYS = ("retention_ms", "retention_bytes")  # written down in every topic

ONE_PARTITION = ("tasks",)


def new_topic_partitions(settings: Settings, name: str) -> int:
    """Return how many partitions a topic has for which nobody says so."""
    if name in ONE_PARTITION or name.startswith("__"):
        return 1
    return settings.topics.partitions


def new_topic_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings of a topic that names none: what differs from the built-in defaults."""
    topics, delivery = settings.topics, settings.delivery
    wanted: dict[str, Any] = {
        "retention_ms": topics.retention_ms,
        "retention_bytes": topics.retention_bytes,
        "lanes": topics.lanes,
        "partitioner": topics.partitioner,
        "delay_ms_max": topics.delay_ms_max if topics.delays else 0,
        "dedup_ms": topics.dedup_ms,
        "lease_ms": delivery.lease_ms,
        "max_retries": delivery.retries_max,
        "backoff_ms": delivery.backoff_ms,
        "backoff_ms_max": delivery.backoff_ms_max,
        "dead_letters": delivery.dead_letters,
        "archive_dir": settings.pipeline.archive_dir,
    }
    return {
        name: value
        for name, value in wanted.items()
        if name in ALWAYS or value != SETTINGS[name].default
    }
