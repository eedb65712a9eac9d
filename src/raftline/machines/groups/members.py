"""Members of a stream group: who they are, and which of their words still count.

Rules
    E1  A member is fenced by (id, generation): words from before it joined, or of a generation its
        group has not reached, are refused. Who is not a member is unknown.
    E2  The same Join again (same ``nonce``) changes nothing; another Join with the same id is
        another instance: it keeps the partitions, and fences the one before.
"""

import msgspec

from raftline.machines.groups.commands import Join
from raftline.model.errors import InvalidArgument, TooLarge
from raftline.model.limits import (
    CLIENT_ID_CHARS_MAX,
    GROUP_TOPICS_MAX,
    MEMBER_ID_CHARS_MAX,
    SESSION_MS_MAX,
    SESSION_MS_MIN,
)
from raftline.model.names import check_topic_name


class Member(msgspec.Struct, frozen=True, array_like=True):
    """One member, replaced whole when it joins again."""

    id: str
    nonce: str
    client: str
    topics: tuple[str, ...]  # sorted
    session_ms: int
    revoke_ms: int
    joined_epoch: int
    joined_ms: int


def member_of(command: Join, epoch: int, at_ms: int) -> Member:
    """Return the member a Join makes. Raises InvalidArgument or TooLarge."""
    for what, text, most in (
        ("a member", command.member, MEMBER_ID_CHARS_MAX),
        ("a client", command.client, CLIENT_ID_CHARS_MAX),
        ("a nonce", command.nonce, CLIENT_ID_CHARS_MAX),
    ):
        if len(text) > most or not text.isprintable():
            raise InvalidArgument(f"{text[:40]!r} cannot be the name of {what}")
    if not command.member:
        raise InvalidArgument("a member has no name")
    if not command.topics:
        raise InvalidArgument("the member reads no topics", "name at least one")
    if len(command.topics) > GROUP_TOPICS_MAX:
        raise TooLarge("topics of a member", len(command.topics), GROUP_TOPICS_MAX)
    for topic in command.topics:
        check_topic_name(topic)
    for name, value in (("session", command.session_ms), ("revoke", command.revoke_ms)):
        if not SESSION_MS_MIN <= value <= SESSION_MS_MAX:
            raise InvalidArgument(
                f"a {name} timeout of {value} ms", f"use {SESSION_MS_MIN} to {SESSION_MS_MAX}"
            )
    return Member(
        command.member,
        command.nonce,
        command.client,
        tuple(sorted(set(command.topics))),
        command.session_ms,
        command.revoke_ms,
        epoch,
        at_ms,
    )
