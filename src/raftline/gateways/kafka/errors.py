"""Kafka's error codes, where the error table has no row because only this protocol says it."""

from raftline.gateways.error_table import row_of
from raftline.model.errors import (
    NoLeader,
    NoQuorum,
    NotLeader,
    NotReady,
    RaftlineError,
    ShuttingDown,
)

NONE = 0
UNKNOWN_SERVER_ERROR = -1
OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
REQUEST_TIMED_OUT = 7
MESSAGE_TOO_LARGE = 10
INVALID_TOPIC = 17
NOT_ENOUGH_REPLICAS = 19
INVALID_REQUIRED_ACKS = 21
UNSUPPORTED_VERSION = 35
NOT_CONTROLLER = 41
INVALID_REQUEST = 42
OUT_OF_ORDER_SEQUENCE = 45
FETCH_SESSION_ID_NOT_FOUND = 70
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
INVALID_RECORD = 87
UNKNOWN_TOPIC_ID = 100


def code_of(error: RaftlineError) -> int:
    """Return the code of an error."""
    return row_of(error).kafka


def command_code(error: RaftlineError) -> int:
    """Return the code of a refused command: where the catalog cannot be reached now, "ask again".

    Of a topic that is to be made, changed or deleted, clients try nothing else again.
    """
    if isinstance(error, NotLeader | NoLeader | NoQuorum | NotReady | ShuttingDown):
        return NOT_CONTROLLER
    return row_of(error).kafka


def missing_code(error: RaftlineError) -> int:
    """Return the code of a topic that is not known: one to try again if we are not sure."""
    return LEADER_NOT_AVAILABLE if isinstance(error, NotReady) else row_of(error).kafka


def partition_code(error: RaftlineError) -> int:
    """Return the code of an error of a partition: where nobody serves it now, clients look anew."""
    if isinstance(error, NoLeader | NotReady | ShuttingDown):
        return NOT_LEADER_OR_FOLLOWER
    return row_of(error).kafka
