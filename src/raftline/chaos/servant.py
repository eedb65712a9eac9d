"""A helper process of a run: started with it, obeys orders, ends with it.

Orders are lines of JSON on its stdin, each answered by a line on its stdout. When stdin ends, the
servant puts everything back and ends: nothing stays behind a run that was killed.
"""

import errno
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

ANSWER_S_MAX = 20.0


class Servant:
    """The run's side: starts the process, gives orders, ends it."""

    def __init__(self, module: str, *words: str, log: Path) -> None:
        """Start ``python -m module words``. Raises OSError if it does not come up."""
        self._log = log
        self._lock = threading.Lock()
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
            )
        self._answer()

    def order(self, **order: Any) -> dict[str, int]:
        """Give an order and return the answer. Raises OSError if there is none."""
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
            return self._answer()

    def close(self) -> None:
        """Hang up, and wait until everything is put back."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(ANSWER_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _answer(self) -> dict[str, int]:
        assert self._process.stdout is not None
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        if not poll.poll(ANSWER_S_MAX * 1000):
            raise OSError(errno.ETIMEDOUT, f"no answer; see {self._log}")
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(ANSWER_S_MAX)
            said = self._log.read_text(errors="replace").strip()
            raise OSError(errno.EIO, said.rpartition("\n")[2] or "it ended")
        return json.loads(line)


class Orders:
    """The servant's side: stdin and stdout. Say ``ready`` once everything stands."""

    def __init__(self, obey: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._obey = obey
        self._rest = b""
        self.fd = 0
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run; it hangs up on us

    @staticmethod
    def ready() -> None:
        """Tell the run that it may go on."""
        os.write(1, b"{}\n")

    def take(self) -> bool:
        """Carry out what has come; False: the run has hung up."""
        got = os.read(self.fd, 65_536)
        *lines, self._rest = (self._rest + got).split(b"\n")
        for line in lines:
            os.write(1, json.dumps(self._obey(json.loads(line))).encode() + b"\n")
        return bool(got)
