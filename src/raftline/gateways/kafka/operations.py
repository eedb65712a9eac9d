"""What a client may do, as Kafka counts it: one bit for each operation.

There are no rules of access here, so whoever is connected may do all that can be done to a thing.
Clients that ask are told so; to those that do not ask, and of things that are not there, nothing is
said.
"""

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12
NOT_TOLD = -(1 << 31)


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


ON_TOPIC = _bits(READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
ON_GROUP = _bits(READ, DELETE, DESCRIBE)
ON_CLUSTER = _bits(
    CREATE,
    ALTER,
    DESCRIBE,
    CLUSTER_ACTION,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    IDEMPOTENT_WRITE,
)


def may(operations: int, is_asked: bool) -> int:  # noqa: FBT001 - a field of the request
    """Return what a reply says of operations."""
    return operations if is_asked else NOT_TOLD
