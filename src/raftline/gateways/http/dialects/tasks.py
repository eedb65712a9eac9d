"""A message of the topic ``tasks`` as DQueue shows it."""

from typing import Any

import msgspec

from raftline.config.moments import show_moment
from raftline.gateways.http.items import PRIORITY_HEADER, to_item
from raftline.gateways.message_ids import waiting_id
from raftline.machines.delivery.commands import EXTEND
from raftline.model.message import Message
from raftline.model.tasks import (
    TASK_GROUP,
    TASK_KEY_HEADER,
    TASK_RETRIES_HEADER,
    TASK_TOPIC,
    TASK_TYPE_HEADER,
)

PENDING, LEASED, DONE, DEAD = "pending", "leased", "done", "dead"
STATUSES = (PENDING, LEASED, DONE, DEAD)
PARTITION = 0
_FROM_STATE = {
    "leased": LEASED,
    "settled": DONE,
    "dying": DEAD,
    "dead": DEAD,
    "cancelled": DEAD,
}
EXPIRED = "its lease ran out"

State = dict[str, Any]  # a row of group.messages


class Task(msgspec.Struct, kw_only=True):
    """One task."""

    id: str
    type: str
    payload: Any
    priority: int
    status: str
    attempts: int
    max_retries: int
    idempotency_key: str | None
    worker_id: str | None
    lease_expires_at: str | None
    created_at: str
    last_error: str | None


def may_be(state: State, status: str) -> bool:
    """Say whether a task in this state may have the status; "" is any. The task itself knows."""
    found = _FROM_STATE.get(state["state"], PENDING)
    return status in ("", found) or (status == DEAD and found == PENDING)


def task_of(message: Message, state: State, default_retries: int, name: str = "") -> Task:
    """Return the task in ``message``; ``state`` is what it is to the workers."""
    headers = dict(message.headers)
    retries = retries_of(message, default_retries)
    attempts = int(state["attempts"])
    status = _FROM_STATE.get(state["state"], PENDING)
    error = state.get("error") or None
    if status == PENDING and attempts > retries:  # whoever leases it next finds it dead
        status, error = DEAD, error or EXPIRED
    is_leased = status == LEASED
    return Task(
        id=name or id_of(message, state),
        type=_text(headers.get(TASK_TYPE_HEADER)) or "",
        payload=payload_of(message.value),
        priority=int(state.get("priority") or _priority_in(headers.get(PRIORITY_HEADER))),
        status=status,
        attempts=attempts,
        max_retries=retries,
        idempotency_key=_text(headers.get(TASK_KEY_HEADER)),
        worker_id=(state.get("member") or None) if is_leased else None,
        lease_expires_at=show_moment(int(state["time_ms"])) if is_leased else None,
        created_at=show_moment(message.timestamp_ms),
        last_error=error,
    )


def _priority_in(header: bytes | None) -> int:
    """Return the priority that a header tells; anybody may have written anything there."""
    text = _text(header) or ""
    return int(text) if text.removeprefix("-").isdecimal() and len(text) < 5 else 0


def add_story(task: Task, events: list[dict[str, Any]]) -> Task:
    """Add what only the trace knows of a task that is over: deliveries, the last worker, error."""
    if task.status not in (DONE, DEAD):
        return task
    for event in events:
        if event.get("group") != TASK_GROUP:
            continue
        if event["kind"] == "given":
            task.attempts = max(task.attempts, int(event["attempt"]))
            task.worker_id = event["member"] or None
        elif event["kind"] == "ended" and event["verb"] != EXTEND and event["reason"]:
            task.last_error = event["reason"]
        elif event["kind"] == "died":
            task.attempts = max(task.attempts, int(event["attempts"]))
    return task


def id_of(message: Message, state: State) -> str:
    """Return the id that the sender knows."""
    number = int(state.get("number", 0))
    if number:
        return waiting_id(TASK_TOPIC, PARTITION, number)
    return to_item(TASK_TOPIC, PARTITION, message).id


def retries_of(message: Message, default: int) -> int:
    """Return how often a task may be delivered after its first time."""
    text = _text(dict(message.headers).get(TASK_RETRIES_HEADER)) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 else default


def payload_of(value: bytes | None) -> Any:
    """Return the payload; what is no JSON as text."""
    if value is None:
        return None
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return value.decode("utf-8", "replace")


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "replace")
