"""What is sent to ``/tasks`` and answered there."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from raftline.gateways.http.dialects.tasks import (
    Task,
)
from raftline.gateways.http.fields import Int


class NewTask(msgspec.Struct, forbid_unknown_fields=True):
    """What is to be done."""

    type: str
    payload: msgspec.Raw | UnsetType = UNSET
    priority: Int | str | None = None
    max_retries: Int | None = None
    idempotency_key: str | None = None
    delay: str | Int | None = None
    run_at: str | Int | None = None


class LeaseBody(msgspec.Struct, forbid_unknown_fields=True):
    """Who wants a task."""

    worker_id: str
    wait: str | Int = 0  # long poll
    lease: str | Int = 0  # 0: the topic's own


class SettleBody(msgspec.Struct, forbid_unknown_fields=True):
    """Who is done with a task, and how it went."""

    worker_id: str
    reason: str = ""
    delay: str | Int | None = None  # nack: instead of the backoff
    lease: str | Int | None = None  # extend


class NewTaskForm(msgspec.Struct, forbid_unknown_fields=True):
    """What is to be done; the payload is any JSON."""

    type: str
    payload: Any = None
    priority: Int | str | None = None
    max_retries: Int | None = None
    idempotency_key: str | None = None
    delay: str | Int | None = None
    run_at: str | Int | None = None


class SettledTask(msgspec.Struct):
    """What became of it."""

    id: str
    status: str
    attempts: int


class TaskList(msgspec.Struct):
    """A page of tasks; ``next`` is the ``after`` of the next one."""

    tasks: list[Task]
    next: str | None


class TaskStats(msgspec.Struct):
    """How many tasks there are of each kind; ``delayed`` are pending and not due."""

    pending: int
    leased: int
    done: int
    dead: int
    delayed: int
    total: int
    topics: int
    nodes: int
    uptime_ms: int
