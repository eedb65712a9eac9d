"""Where a worker's jobs come from: tasks, or the messages of any topic.

Both lease with a long poll and settle over HTTP; a job names what its settle needs.
"""

import json
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from raftline.client.caller import Caller
from raftline.client.messages import take_bytes


class Job(msgspec.Struct, frozen=True):
    """One leased task or message."""

    id: str
    kind: str  # the type of a task, the key of a message
    attempt: int
    payload: bytes
    token: str


class Source(Protocol):
    """Jobs for workers. Every method may raise RaftlineError."""

    def lease(self, caller: Caller, wait_ms: int) -> Job | None:
        """Lease the next job; None if none came within ``wait_ms``."""
        ...

    def ack(self, caller: Caller, job: Job) -> None:
        """It is done."""
        ...

    def nack(self, caller: Caller, job: Job, reason: str, *, at_once: bool = False) -> None:
        """It failed: try it again later, or at once."""
        ...

    def extend(self, caller: Caller, job: Job) -> None:
        """It takes longer."""
        ...


class TaskSource:
    """Tasks, settled by their id and the worker's name."""

    __slots__ = ("_lease_ms", "_worker")

    def __init__(self, worker: str, lease_ms: int) -> None:
        self._worker = worker
        self._lease_ms = lease_ms

    def lease(self, caller: Caller, wait_ms: int) -> Job | None:
        """Lease the next task."""
        body = {"worker_id": self._worker, "wait": wait_ms, "lease": self._lease_ms}
        task = caller.call("POST", "/tasks/lease", body, wait_ms=wait_ms)
        if not task:
            return None
        payload = json.dumps(task["payload"], ensure_ascii=False).encode()
        return Job(task["id"], task["type"], task["attempts"], payload, task["id"])

    def ack(self, caller: Caller, job: Job) -> None:
        """The task is done."""
        self._settle(caller, job, "ack")

    def nack(self, caller: Caller, job: Job, reason: str, *, at_once: bool = False) -> None:
        """The task failed."""
        delay = {"delay": 0} if at_once else {}
        self._settle(caller, job, "nack", reason=reason, **delay)

    def extend(self, caller: Caller, job: Job) -> None:
        """The task takes longer."""
        self._settle(caller, job, "extend", lease=self._lease_ms)

    def _settle(self, caller: Caller, job: Job, verb: str, **more: Any) -> None:
        path = f"/tasks/{quote(job.token, safe='')}/{verb}"
        caller.call("POST", path, {"worker_id": self._worker, **more})


class TopicSource:
    """Messages of one topic, leased as a member of a work group."""

    __slots__ = ("_group", "_lease_ms", "_topic", "_worker")

    def __init__(self, topic: str, group: str, worker: str, lease_ms: int) -> None:
        self._topic = topic
        self._group = group
        self._worker = worker
        self._lease_ms = lease_ms

    def lease(self, caller: Caller, wait_ms: int) -> Job | None:
        """Lease the next message."""
        path = f"/v1/topics/{quote(self._topic, safe='')}/groups/{quote(self._group, safe='')}"
        body = {"count": 1, "wait": wait_ms, "lease": self._lease_ms, "member": self._worker}
        rows = caller.call("POST", f"{path}/receive", body, wait_ms=wait_ms)["messages"]
        if not rows:
            return None
        row = rows[0]
        payload, key = take_bytes(row, "value") or b"", take_bytes(row, "key") or b""
        kind = key.decode("utf-8", "replace")
        return Job(row["id"], kind, row["attempt"], payload, row["lease_token"])

    def ack(self, caller: Caller, job: Job) -> None:
        """The message is done with."""
        caller.call("POST", "/v1/messages/ack", {"lease_token": job.token})

    def nack(self, caller: Caller, job: Job, reason: str, *, at_once: bool = False) -> None:
        """It failed."""
        delay = {"delay": 0} if at_once else {}
        caller.call(
            "POST", "/v1/messages/nack", {"lease_token": job.token, "reason": reason, **delay}
        )

    def extend(self, caller: Caller, job: Job) -> None:
        """It takes longer."""
        body = {"lease_token": job.token, "lease": self._lease_ms}
        caller.call("POST", "/v1/messages/extend", body)
