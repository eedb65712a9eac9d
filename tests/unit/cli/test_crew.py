"""The crew of ``raftline worker --exec``: jobs that cannot be run, nodes that are busy."""

import threading
import time

import msgspec
import pytest

from raftline.cli.crew import Crew, Plan
from raftline.cli.session import Session
from raftline.cli.sources import Job
from raftline.client.caller import Caller
from raftline.model.errors import OverLimit, RaftlineError

PLAN = Plan(command="true", concurrency=1, lease_ms=5_000, grace_ms=0, is_draining=True)


class Jobs:
    """A source of some jobs; what is said of them is written down."""

    def __init__(self, *jobs: Job | RaftlineError, busy: int = 0) -> None:
        self._jobs = list(jobs)
        self._busy = busy  # so many settles are refused
        self.said: list[tuple[str, str]] = []

    def lease(self, caller: Caller, wait_ms: int) -> Job | None:
        job = self._jobs.pop(0) if self._jobs else None
        if isinstance(job, RaftlineError):
            raise job
        return job

    def ack(self, caller: Caller, job: Job) -> None:
        if self._busy:
            self._busy -= 1
            raise OverLimit("uncommitted bytes on this node", 2, 1)
        self.said.append((job.id, "ack"))

    def nack(self, caller: Caller, job: Job, reason: str, *, at_once: bool = False) -> None:
        self.said.append((job.id, reason))

    def extend(self, caller: Caller, job: Job) -> None: ...


def run(jobs: Jobs, plan: Plan = PLAN) -> int:
    return Crew(Session("", timeout_ms=100, as_json=True), jobs, plan).run()


def job(number: int, kind: str = "k", payload: bytes = b"") -> Job:
    return Job(str(number), kind, 1, payload, "")


def test_a_key_of_any_bytes_is_run() -> None:
    """A key with a NUL in it ended the thread, and the next one that leased the message."""
    jobs = Jobs(job(1, kind="\0\0\0\7"), job(2))
    assert run(jobs) == 0
    assert jobs.said == [("1", "ack"), ("2", "ack")]


def test_a_command_that_cannot_be_started_is_nacked() -> None:
    jobs = Jobs(job(1, kind="x" * 1_000_000), job(2))
    assert run(jobs) == 0
    (first, reason), second = jobs.said
    assert first == "1"
    assert reason.startswith("the command cannot be started: ")
    assert second == ("2", "ack")


def test_a_job_ends_with_its_command_whatever_that_left_running() -> None:
    """Its lease was extended until the last process ended that held its standard error."""
    command = 'echo "no paper" >&2; (sleep 30; echo late >&2) & test $RAFTLINE_ID = 1'
    jobs = Jobs(job(1, payload=b"x" * 200_000), job(2))
    began = time.monotonic()
    assert run(jobs, msgspec.structs.replace(PLAN, command=command)) == 0
    assert time.monotonic() - began < 10
    assert jobs.said == [("1", "ack"), ("2", "exit code 1: no paper")]


def test_a_command_that_is_slow_to_read_gets_all_of_a_large_payload() -> None:
    """More than a pipe holds was written for a tenth of a second; it waited for the rest."""
    jobs = Jobs(job(1, payload=b"x" * 300_000))
    command = "sleep 0.4; test $(wc -c) = 300000"
    assert run(jobs, msgspec.structs.replace(PLAN, command=command)) == 0
    assert jobs.said == [("1", "ack")]


def test_a_command_is_ended_when_the_grace_is_over() -> None:
    jobs = Jobs(job(1))
    plan = msgspec.structs.replace(PLAN, command="sleep 30")
    crew = Crew(Session("", timeout_ms=100, as_json=True), jobs, plan)
    began = time.monotonic()
    stopping = threading.Timer(0.3, crew.stop)
    stopping.start()
    assert crew.run() == 0
    stopping.join()
    assert time.monotonic() - began < 10
    assert jobs.said == [("1", "the worker was stopped")]


def test_a_node_with_too_much_to_do_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ack that it would not take was given up on: the message came again, and was run again."""
    monkeypatch.setattr("raftline.cli.crew.PAUSE_MS", 1)
    jobs = Jobs(OverLimit("receivers that wait", 2, 1), job(1), busy=1)
    assert run(jobs) == 0
    assert jobs.said == [("1", "ack")]


class Unread:
    """A standard error that nobody reads."""

    def write(self, text: str) -> int:
        raise BrokenPipeError

    def writelines(self, lines: object) -> None:
        for _ in iter(lines):  # type: ignore[call-overload]
            raise BrokenPipeError

    def flush(self) -> None: ...


def test_what_is_done_is_acked_though_nobody_reads_its_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread ended, the next one with the message's next delivery, and so the worker."""
    monkeypatch.setattr("raftline.cli.crew.PAUSE_MS", 1)
    monkeypatch.setattr("sys.stderr", Unread())
    jobs = Jobs(OverLimit("receivers that wait", 2, 1), job(1), job(2))
    plan = Plan(command="echo no >&2", concurrency=1, lease_ms=5_000, grace_ms=0, is_draining=True)
    assert Crew(Session("", timeout_ms=100, as_json=False), jobs, plan).run() == 0
    assert jobs.said == [("1", "ack"), ("2", "ack")]
