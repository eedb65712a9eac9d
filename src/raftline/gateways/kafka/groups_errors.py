"""How refusals are said to members of groups: find the coordinator again, or join anew."""

from raftline.gateways.kafka.errors import code_of
from raftline.model.errors import (
    GroupNotEmpty,
    InvalidArgument,
    NotLeader,
    OverLimit,
    RaftlineError,
    TimedOut,
    Unavailable,
    UnknownGroup,
)
from raftline.model.names import check_group_name

COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
TRANSACTIONAL_ID_NOT_ALLOWED = 53
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
MEMBER_ID_REQUIRED = 79
GROUP_MAX_SIZE_REACHED = 81
GROUP_SUBSCRIBED_TO_TOPIC = 86
OFFSET_METADATA_TOO_LARGE = 12


def is_group_name(group: str) -> bool:
    """Say whether a group may have this name."""
    try:
        check_group_name(group)
    except InvalidArgument:
        return False
    return True


def member_code(error: RaftlineError, group: str = "group") -> int:
    """Return what a member hears: every passing fault sends it to find its coordinator.

    ``group`` is what it calls its group: no group may have some names.
    """
    if isinstance(error, NotLeader):
        return NOT_COORDINATOR
    if isinstance(error, Unavailable | TimedOut):
        return COORDINATOR_NOT_AVAILABLE
    if isinstance(error, UnknownGroup | GroupNotEmpty):
        return UNKNOWN_MEMBER_ID
    if isinstance(error, OverLimit):
        return GROUP_MAX_SIZE_REACHED
    if isinstance(error, InvalidArgument) and not is_group_name(group):
        return INVALID_GROUP_ID
    return code_of(error)


def admin_code(error: RaftlineError, group: str) -> int:
    """Return what who looks at a group from outside hears."""
    if isinstance(error, UnknownGroup | GroupNotEmpty):
        return code_of(error)
    return member_code(error, group)


def cursors_code(error: RaftlineError, group: str) -> int:
    """Return what who asks for cursors hears: of what passes, clients know two codes there.

    Older Java clients and aiokafka take any other (15 too) for one that nothing helps against.
    """
    if isinstance(error, Unavailable | TimedOut):
        return NOT_COORDINATOR
    if isinstance(error, OverLimit):
        return COORDINATOR_LOAD_IN_PROGRESS
    return member_code(error, group)
