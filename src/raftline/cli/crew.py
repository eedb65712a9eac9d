"""Threads that lease jobs, run a command for each, and settle them.

Rules
    W1  A lease is renewed every third of it while the command runs.
    W2  A lease that is lost ends the command: somebody else has the job now.
    W3  After ``stop`` nothing more is leased; what runs has ``grace_ms``, then it is ended and
        released for others at once. A second ``stop`` takes the grace away.
    W4  A settle that was not answered is repeated while the lease may hold; "lost" after that may
        mean that the first one counted.
    W5  A job whose command cannot be started is nacked: it must not end the thread, nor one after
        the other of all workers. A variable holds no NUL, so the key of a message is shown without.
        Nor does it end because nobody reads its standard error.
    W6  A command reads its payload from a file, when it likes, and writes its standard error into
        one. So a job ends with its command, whatever that left running; what such a process says
        later is not waited for, nor shown.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading

import msgspec

from raftline.cli import exits
from raftline.cli.session import Session
from raftline.cli.sources import Job, Source
from raftline.cli.times import show_time
from raftline.client import clock
from raftline.client.caller import Caller
from raftline.model.errors import LeaseLost, OverLimit, RaftlineError, TimedOut, Unavailable

WAIT_MS = 2_000  # long poll: also the longest a stop waits for it
LAST_LOOK_MS = 300  # of a worker that ends when nothing is left
EMPTY_PAUSE_MS = 500
PAUSE_MS = 500
CHECK_MS = 100
REASON_CHARS = 500
PASSING = (Unavailable, TimedOut, OverLimit)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How the crew works."""

    command: str
    concurrency: int
    lease_ms: int
    grace_ms: int
    is_draining: bool


class Crew:
    """The threads of one worker process."""

    __slots__ = (
        "_asked",
        "_code",
        "_lock",
        "_plan",
        "_session",
        "_source",
        "_stop",
        "_unread",
        "_until_ms",
    )

    def __init__(self, session: Session, source: Source, plan: Plan) -> None:
        self._session = session
        self._source = source
        self._plan = plan
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._asked = 0
        self._until_ms = 0.0  # end of the grace
        self._code = exits.DONE
        self._unread: OSError | None = None  # nobody reads what we print, or there is no room

    def run(self) -> int:
        """Work until told to stop, or until nothing is left. Returns the exit code."""
        threads = [
            threading.Thread(target=self._work, name=f"worker-{number}", daemon=True)
            for number in range(self._plan.concurrency)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(CHECK_MS / 1000)
        if self._unread is not None:
            raise self._unread
        return self._code

    def stop(self) -> None:
        """Lease nothing more; asked again, end what runs. W3."""
        self._asked += 1
        grace_ms = self._plan.grace_ms if self._asked == 1 else 0
        self._until_ms = clock.mono_ms() + grace_ms
        self._stop.set()

    # ------------------------------------------------------------------ one thread

    def _work(self) -> None:
        wait_ms = LAST_LOOK_MS if self._plan.is_draining else WAIT_MS
        with self._session.new_caller() as caller:
            while not self._stop.is_set():
                try:
                    job = self._source.lease(caller, wait_ms)
                except PASSING as error:
                    self._note(f"{error.message}; trying again")
                    self._stop.wait(PAUSE_MS / 1000)
                    continue
                except RaftlineError as error:
                    self._fail(error)
                    return
                if job is not None:
                    self._do(caller, job)
                elif self._plan.is_draining:
                    return
                else:
                    self._stop.wait(EMPTY_PAUSE_MS / 1000)

    def _do(self, caller: Caller, job: Job) -> None:
        began_ms = clock.mono_ms()
        if not self._plan.command:
            self._settle(caller, job, "", began_ms)
            return
        try:
            reason = self._run_command(caller, job)
        except _Ended as ended:
            with contextlib.suppress(RaftlineError):
                if not ended.is_lost:
                    self._source.nack(caller, job, str(ended), at_once=True)
            self._tell(job, "released" if not ended.is_lost else "lost", str(ended), began_ms)
            return
        self._settle(caller, job, reason, began_ms)

    def _settle(self, caller: Caller, job: Job, reason: str, began_ms: float) -> None:
        """Ack, or nack with a reason; again while nobody answers. W4."""
        until_ms = clock.mono_ms() + self._plan.lease_ms
        while True:
            try:
                if reason:
                    self._source.nack(caller, job, reason)
                else:
                    self._source.ack(caller, job)
            except PASSING as error:
                if clock.mono_ms() > until_ms:
                    self._tell(job, "unknown", error.message, began_ms)
                    return
                clock.pause(PAUSE_MS)
            except RaftlineError as error:
                self._tell(job, "lost", error.message, began_ms)
                return
            else:
                self._tell(job, "nacked" if reason else "acked", reason, began_ms)
                return

    def _run_command(self, caller: Caller, job: Job) -> str:
        """Run the command to its end; return why it failed, nothing if it did not."""
        variables = {
            "RAFTLINE_ID": job.id,
            "RAFTLINE_TYPE": job.kind.replace("\0", "\N{REPLACEMENT CHARACTER}"),  # W5
            "RAFTLINE_ATTEMPT": str(job.attempt),
        }
        with contextlib.ExitStack() as files:
            try:
                given, said = (files.enter_context(tempfile.TemporaryFile()) for _ in range(2))
                given.write(job.payload)
                given.seek(0)
                process = self._begin(variables, given.fileno(), said.fileno())
            except (OSError, ValueError) as error:  # W5
                return f"the command cannot be started: {error}"[:REASON_CHARS]
            try:
                self._attend(caller, job, process)
            except _Ended:
                _end(process)
                raise
            lines = _read(said.fileno()).decode("utf-8", "replace").strip().splitlines()
        with self._lock, contextlib.suppress(OSError):  # W5
            sys.stderr.writelines(line + "\n" for line in lines)
            sys.stderr.flush()
        if process.returncode == 0:
            return ""
        last = f": {lines[-1]}" if lines else ""
        return f"exit code {process.returncode}{last}"[:REASON_CHARS]

    def _begin(self, variables: dict[str, str], given: int, said: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            ["/bin/sh", "-c", self._plan.command],
            stdin=given,
            stderr=said,
            env={**os.environ, **variables},
            start_new_session=True,  # Ctrl-C is for us; the command may finish
        )

    def _attend(self, caller: Caller, job: Job, process: "subprocess.Popen[bytes]") -> None:
        """Wait for the command, keeping the lease. W1, W2."""
        renew_ms = clock.mono_ms() + self._plan.lease_ms / 3
        while not _is_over(process):
            if self._stop.is_set() and clock.mono_ms() > self._until_ms:
                raise _Ended("the worker was stopped", is_lost=False)
            if clock.mono_ms() > renew_ms:
                renew_ms = clock.mono_ms() + self._plan.lease_ms / 3
                self._renew(caller, job)

    def _renew(self, caller: Caller, job: Job) -> None:
        try:
            self._source.extend(caller, job)
        except LeaseLost as error:
            raise _Ended(error.message, is_lost=True) from error
        except RaftlineError as error:
            self._note(f"{job.id}: its lease could not be renewed: {error.message}")

    # ------------------------------------------------------------------ telling

    def _note(self, text: str) -> None:
        with contextlib.suppress(OSError):  # W5
            self._session.note(text)

    def _tell(self, job: Job, outcome: str, reason: str, began_ms: float) -> None:
        took_ms = round(clock.mono_ms() - began_ms)
        payload = job.payload.decode("utf-8", "replace")
        if self._session.json:
            row = {
                "id": job.id,
                "type": job.kind,
                "attempt": job.attempt,
                "outcome": outcome,
                "reason": reason,
                "took_ms": took_ms,
                "payload": payload,
            }
            line = json.dumps(row, ensure_ascii=False)
        else:
            words = [show_time(clock.wall_ms()), job.id, job.kind, f"attempt={job.attempt}"]
            words += [outcome, f"{took_ms}ms", f"({reason})" if reason else payload]
            line = " ".join(word for word in words if word)
        with self._lock:
            try:
                sys.stdout.write(line + "\n")
                sys.stdout.flush()
            except OSError as error:
                self._unread = error
                self.stop()

    def _fail(self, error: RaftlineError) -> None:
        with self._lock:
            if not self._stop.is_set():
                self._code = exits.fail(error, as_json=self._session.json)
        self.stop()


class _Ended(Exception):
    """The command was not let finish."""

    def __init__(self, why: str, *, is_lost: bool) -> None:
        super().__init__(why)
        self.is_lost = is_lost


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a command and what it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
            break


def _is_over(process: "subprocess.Popen[bytes]") -> bool:
    """Wait a moment for a command; say whether it ended."""
    try:
        process.wait(CHECK_MS / 1000)
    except subprocess.TimeoutExpired:
        return False
    return True


def _read(descriptor: int) -> bytes:
    """Return what is in a file, without moving the place where others write."""
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
