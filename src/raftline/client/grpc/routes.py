"""From the native routes that the client's core names to the calls of ``raftline.v1``.

Each row of ``ROUTES`` is one route: what is asked for over gRPC, and how its reply looks as the
answer of that route. The core, and who uses it, cannot tell the two apart.
"""

import re
from collections.abc import Callable
from urllib.parse import parse_qsl, unquote, urlsplit

from raftline.client.core.ports import Ask
from raftline.client.grpc import admin_routes as admin
from raftline.client.grpc import message_routes as messages
from raftline.client.grpc import story_routes as stories
from raftline.client.grpc.remotes import Asked, Remote
from raftline.model.errors import InvalidArgument

Route = Callable[[Asked], Remote]


def remote_of(ask: Ask) -> Remote:
    """Return the call that carries an ask. Raises RaftlineError."""
    if ask.is_batch:
        return messages.send_batch(ask)
    parts = urlsplit(ask.path)
    for method, pattern, route in ROUTES:
        found = pattern.fullmatch(parts.path) if method == ask.method else None
        if found is not None:
            params = {name: unquote(text) for name, text in found.groupdict().items()}
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
            return route(Asked(ask, params, query))
    raise InvalidArgument(
        f"{ask.method} {parts.path} is not to be had over gRPC", "connect with http://"
    )


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path))


_T = "/v1/topics/{topic}"
ROUTES: list[tuple[str, re.Pattern[str], Route]] = [
    (method, _pattern(path), route)
    for method, path, route in (
        ("POST", f"{_T}/partitions/{{partition}}/groups/{{group}}/settle", messages.settle),
        ("POST", f"{_T}/groups/{{group}}/receive", messages.receive),
        ("POST", f"{_T}/messages", messages.send),
        ("GET", f"{_T}/partitions/{{partition}}/messages", messages.read),
        ("GET", f"{_T}/partitions/{{partition}}/offsets", messages.offsets),
        ("GET", "/shards-info", admin.list_shards),
        ("POST", "/v1/producers", admin.new_producer),
        ("GET", "/v1/topics", admin.list_topics),
        ("POST", "/v1/topics", admin.create_topic),
        ("GET", _T, admin.show_topic),
        ("PUT", _T, admin.ensure_topic),
        ("PATCH", _T, admin.set_topic),
        ("DELETE", _T, admin.delete_topic),
        ("GET", "/v1/cluster", admin.cluster),
        ("GET", "/v1/groups", admin.list_groups),
        ("GET", "/v1/groups/{group}", admin.show_group),
        ("DELETE", "/v1/groups/{group}", admin.delete_group),
        ("POST", "/v1/groups/{group}/reset", admin.reset_group),
        ("GET", f"{_T}/delayed", stories.list_scheduled),
        ("GET", f"{_T}/delay/stats", stories.scheduled_stats),
        ("GET", f"{_T}/delayed/{{id}}", stories.show_scheduled),
        ("DELETE", f"{_T}/delayed/{{id}}", stories.cancel_scheduled),
        ("POST", f"{_T}/delayed/{{id}}/move", stories.move_scheduled),
        ("GET", f"{_T}/dlq", stories.list_letters),
        ("GET", f"{_T}/dlq/{{id}}", stories.show_letter),
        ("POST", f"{_T}/dlq/(?P<verb>redrive|purge)", stories.end_letters),
        ("GET", "/v1/traces/search", stories.search_traces),
        ("GET", "/v1/traces/{id}", stories.show_trace),
    )
]
