"""What a node's settings give to topics that are created."""

from raftline.config.loader import load
from raftline.config.new_topics import new_topic_settings
from raftline.model.settings import check_settings


def test_a_new_topic_is_archived_where_the_node_says() -> None:
    told = new_topic_settings(load(flags={"pipeline.archive_dir": "/data/archive"}))
    assert told["archive_dir"] == "/data/archive"
    assert check_settings(told) == dict(sorted(told.items()))
    assert "archive_dir" not in new_topic_settings(load())
