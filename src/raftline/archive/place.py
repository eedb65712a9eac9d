"""Which directory a topic's archive is in: a command's word, then the topic's, then the setting."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raftline.archive.layout import local_root
from raftline.model.names import DEAD_LETTERS, TRACES

SETTING = "archive_dir"


def archive_dir(given: str = "", topic_setting: str = "", default: str = "") -> Path:
    """Return the first directory that is named.

    Args:
        given: what a flag or option says.
        topic_setting: the setting ``archive_dir`` of the topic.
        default: ``pipeline.archive_dir``.

    Raises:
        InvalidArgument: none is named, or it is no directory.
    """
    return local_root(given or topic_setting or default)


def setting_of(topic: Mapping[str, Any]) -> str:
    """Return the directory that a topic, as a node tells of it, was set to."""
    return str(topic.get("settings", {}).get(SETTING, ""))


def source_of(topic: str) -> str:
    """Return the topic whose dead letters or traces these are; empty if it is a topic itself."""
    for suffix in (DEAD_LETTERS, TRACES):
        if topic.endswith(suffix):
            return topic.removesuffix(suffix)
    return ""
