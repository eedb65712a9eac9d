"""What became of a task, from the trace of its message; in the words of ``GET /tasks/{id}``."""

from typing import Any

import msgspec

from raftline.client.asks import Json, split_id
from raftline.client.leased import PRIORITY_HEADER
from raftline.client.line import Line
from raftline.model.tasks import TASK_KEY_HEADER, TASK_RETRIES_HEADER, TASK_TYPE_HEADER

_ENDS = {"ACKNOWLEDGED": "done", "DEAD_LETTERED": "dead", "CANCELLED": "dead"}
_AGAIN = {
    "NACKED": "pending", "REDRIVEN": "pending", "REPLAYED": "pending", "GIVEN_BACK": "pending",
    "REJECTED": "dead",
}  # fmt: skip


def state_of(line: Line, group: str, id: str) -> Json:  # noqa: A002
    """Return a task of any topic: ``status``, ``attempts``, ``worker_id``, ``last_error``."""
    found: Json = {
        "id": id,
        "type": "",
        "payload": None,
        "priority": 0,
        "status": "pending",
        "attempts": 0,
        "max_retries": 0,
        "idempotency_key": None,
        "worker_id": None,
        "last_error": None,
    }
    trace = line.trace(id)
    for row in trace["timeline"]:
        if row.get("group", group) == group:
            _tell(found, row)
    if trace["offset"] >= 0:
        topic, partition, _ = split_id(id)
        message = line.message(f"{topic}.{partition}.{trace['offset']}")
        headers: dict[str, Any] = message.headers
        found["type"] = _text(headers.get(TASK_TYPE_HEADER)) or ""
        found["priority"] = _number(headers.get(PRIORITY_HEADER))
        found["max_retries"] = _number(headers.get(TASK_RETRIES_HEADER))
        found["idempotency_key"] = _text(headers.get(TASK_KEY_HEADER))
        found["payload"] = _payload(message.value or b"null")
    return found


def _tell(found: Json, row: Json) -> None:
    event = row["event"]
    if event in ("DELIVERED", "REDELIVERED"):
        found["status"] = "leased"
        found["attempts"] = row["attempt"]
        found["worker_id"] = row.get("member") or None
    elif event in _ENDS or event in _AGAIN:
        found["status"] = _ENDS.get(event) or _AGAIN[event]
    if event == "GIVEN_BACK":
        found["attempts"] = max(0, found["attempts"] - 1)  # it did not count
    if event in ("NACKED", "REJECTED") and row.get("reason"):
        found["last_error"] = row["reason"]


def _number(content: bytes | None) -> int:
    """Return the number in a header; 0 for what somebody else wrote there."""
    text = _text(content) or ""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 8 else 0


def _payload(value: bytes) -> Any:
    """Return the payload; what is no JSON as text, as ``GET /tasks/{id}`` does."""
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _text(value)


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "replace")
