"""Errors in the words of each protocol: the only mapping.

A row per leaf of the tree in model/errors.py. ``kafka`` is the number of the Kafka protocol,
``sqs`` the name of the query error (None: never seen there), ``grpc`` the status name, ``http``
the status, ``exit`` the exit code of the command line. Whether a retry may help is the class's own
business.
"""

from typing import Any

import msgspec

from raftline.model import errors as e


class Row(msgspec.Struct, frozen=True):
    """One error as four protocols and the command line say it."""

    http: int
    exit: int
    grpc: str
    kafka: int
    sqs: str | None = None


ERROR_TABLE: dict[type[e.RaftlineError], Row] = {
    e.UnknownTopic: Row(404, 4, "NOT_FOUND", 3, "QueueDoesNotExist"),
    e.UnknownPartition: Row(404, 4, "NOT_FOUND", 3, "QueueDoesNotExist"),
    e.OffsetOutOfRange: Row(416, 4, "OUT_OF_RANGE", 1),
    e.UnknownNode: Row(404, 4, "NOT_FOUND", 42, "InvalidParameterValue"),
    e.UnknownGroup: Row(404, 4, "NOT_FOUND", 69),
    e.UnknownMember: Row(404, 4, "NOT_FOUND", 25),
    e.UnknownMessage: Row(404, 4, "NOT_FOUND", 42, "InvalidParameterValue"),
    e.UnknownRoute: Row(404, 4, "UNIMPLEMENTED", 42, "InvalidAction"),
    e.UnknownMethod: Row(405, 2, "UNIMPLEMENTED", 35, "InvalidAction"),
    e.InvalidTopic: Row(400, 2, "INVALID_ARGUMENT", 17, "InvalidAddress"),
    e.InvalidArgument: Row(400, 2, "INVALID_ARGUMENT", 42, "InvalidParameterValue"),
    e.CorruptBatch: Row(400, 2, "INVALID_ARGUMENT", 2, "InvalidMessageContents"),
    e.BatchTooLarge: Row(413, 2, "INVALID_ARGUMENT", 10, "BatchRequestTooLong"),
    e.TooLarge: Row(413, 8, "INVALID_ARGUMENT", 42, "InvalidParameterValue"),
    e.NotEnoughNodes: Row(400, 6, "FAILED_PRECONDITION", 38, "InvalidParameterValue"),
    e.TopicExists: Row(409, 5, "ALREADY_EXISTS", 36, "QueueNameExists"),
    e.NodeExists: Row(409, 5, "ALREADY_EXISTS", 42),
    e.AlreadyBootstrapped: Row(409, 6, "FAILED_PRECONDITION", 42),
    e.WrongCluster: Row(409, 6, "FAILED_PRECONDITION", 104),
    e.WrongDirectory: Row(409, 6, "FAILED_PRECONDITION", 104),
    e.NewerFormat: Row(409, 6, "FAILED_PRECONDITION", 35),
    e.OutOfOrder: Row(409, 6, "FAILED_PRECONDITION", 45),
    e.FencedProducer: Row(409, 6, "FAILED_PRECONDITION", 47),
    e.FencedMember: Row(409, 6, "FAILED_PRECONDITION", 22),
    e.FencedInstance: Row(409, 6, "FAILED_PRECONDITION", 82),
    e.Rebalancing: Row(409, 6, "FAILED_PRECONDITION", 27),
    e.WrongGroupKind: Row(409, 6, "FAILED_PRECONDITION", 23),
    e.GroupNotEmpty: Row(409, 6, "FAILED_PRECONDITION", 68),
    e.NotWaiting: Row(409, 6, "FAILED_PRECONDITION", 42, "InvalidParameterValue"),
    e.UnknownProducer: Row(409, 6, "FAILED_PRECONDITION", 59),
    e.DuplicateKey: Row(409, 6, "ALREADY_EXISTS", 45),
    e.LeaseLost: Row(409, 6, "FAILED_PRECONDITION", 121, "ReceiptHandleIsInvalid"),
    e.StageMissing: Row(409, 6, "FAILED_PRECONDITION", 42),
    e.FencedQuery: Row(409, 6, "FAILED_PRECONDITION", 47),
    e.NotArchived: Row(409, 6, "FAILED_PRECONDITION", 44),
    e.OverLimit: Row(429, 8, "RESOURCE_EXHAUSTED", 44, "OverLimit"),
    e.NotLeader: Row(503, 7, "UNAVAILABLE", 6, "RequestThrottled"),
    e.NoLeader: Row(503, 7, "UNAVAILABLE", 5, "RequestThrottled"),
    e.NoQuorum: Row(503, 7, "UNAVAILABLE", 19, "RequestThrottled"),
    e.NotReady: Row(503, 7, "UNAVAILABLE", 8, "RequestThrottled"),
    e.ShuttingDown: Row(503, 7, "UNAVAILABLE", 8, "RequestThrottled"),
    e.DiskFull: Row(507, 8, "RESOURCE_EXHAUSTED", 56, "RequestThrottled"),
    e.StorageFault: Row(503, 7, "UNAVAILABLE", 56, "RequestThrottled"),
    e.Damaged: Row(503, 7, "UNAVAILABLE", 56, "RequestThrottled"),
    e.TimedOut: Row(504, 7, "DEADLINE_EXCEEDED", 7, "RequestThrottled"),
    e.Internal: Row(500, 1, "INTERNAL", -1, "InternalFailure"),
}


def to_markdown() -> str:
    """Return the reference of all errors. docs/ERRORS.md is this text."""
    lines: list[str] = [*_HEAD.splitlines()]
    family: type[e.RaftlineError] | None = None
    for kind, row in ERROR_TABLE.items():
        parent = kind.__mro__[1] if kind.__mro__[1] is not e.RaftlineError else None
        if parent is not family or parent is None:
            family = parent
            title = kind if parent is None else parent
            lines += ["", f"## {title.__name__}: {_means(title)}", "", *_COLUMNS]
        again = "yes" if kind.retry else "no"
        again = "unknown whether it happened" if kind.unknown else again
        told = (f"`{kind.code}`", _means(kind), again, row.http, row.grpc, row.kafka, row.exit)
        lines.append(f"| {' | '.join(map(str, told))} |")
    return "\n".join(lines) + "\n"


_HEAD = """# Errors

Generated from `src/raftline/gateways/error_table.py` by `make docs`; do not edit.
One table for all gateways. Every error has a stable `code`, a `message` that names the thing with
its coordinates, and a `hint` that says what to do next: `{"error": {"code", "message", "hint"}}`
over HTTP, `raftline.v1.Error` in the trailing metadata over gRPC, a class of
`raftline.model.errors` in Python, and in words on the command line, which then ends with the exit
code. *Again* says whether the same request may succeed later: `over_limit` is too much for now,
`too_large` never goes."""
_COLUMNS = [
    "| code | means | again | HTTP | gRPC | Kafka | exit |",
    "|---|---|---|---|---|---|---|",
]


def _means(kind: type[e.RaftlineError]) -> str:
    return (kind.__doc__ or "").partition("\n")[0].partition(". ")[0].rstrip(".")


def row_of(error: e.RaftlineError) -> Row:
    """Return the row of ``error``; one without a row is a bug and says so to the caller."""
    return ERROR_TABLE.get(type(error)) or ERROR_TABLE[e.Internal]


def error_body(error: e.RaftlineError) -> dict[str, Any]:
    """Return an error as every gateway shows it."""
    return {"code": error.code, "message": error.message, "hint": error.hint}
