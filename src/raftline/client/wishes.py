"""What a receiver asks for, checked before anything is asked."""

from typing import Any

import msgspec

from raftline.client.core.receives import Wish
from raftline.client.drafts import check_topic
from raftline.client.leased import Duration, duration_ms
from raftline.model.errors import InvalidArgument, TooLarge
from raftline.model.limits import MEMBER_ID_CHARS_MAX
from raftline.model.names import check_group_name


def wish_of(
    topic: str,
    group: str,
    lease: Duration | None,
    count: int,
    wait: Duration | None,
    partition: int | None,
    timeout: Duration | None,
    timeout_ms: float,
    rest: dict[str, Any],
) -> Wish:
    """Return what a receiver asks for. Raises InvalidArgument."""
    check_topic(topic)
    check_group_name(group)
    if count < 1:
        raise InvalidArgument(f"count {count} is below 1", "ask for at least one message")
    if len(rest.get("member", "")) > MEMBER_ID_CHARS_MAX:
        what = "characters of a member's name"
        raise TooLarge(what, len(rest["member"]), MEMBER_ID_CHARS_MAX)
    wish = Wish(
        topic=topic,
        group=group,
        count=int(count),  # whatever kind of whole number
        lease_ms=0 if lease is None else duration_ms(lease),
        wait_ms=None if wait is None else duration_ms(wait),
        partition=-1 if partition is None else int(partition),
        timeout_ms=timeout_ms if timeout is None else duration_ms(timeout),
        **rest,
    )
    try:
        msgspec.json.encode(wish)  # the thread that asks would end in it
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"that cannot be asked for: {error}"[:200]) from error
    return wish
