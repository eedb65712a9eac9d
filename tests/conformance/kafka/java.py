"""Java's Kafka clients through Kafka's own tools; Maven fetches jars (scripts/fetch_jars.py)."""

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
VERSIONS = ("kafka-3.9", "kafka-4")
SECONDS = 90.0
PACKAGE = "org.apache.kafka.tools"

needs_java = pytest.mark.skipif(
    shutil.which("java") is None or shutil.which("mvn") is None,
    reason="no Java or no Maven is here",
)


@cache
def jars(version: str) -> str:
    """Return the folder of a version's jars; fetch them if need be."""
    command = [sys.executable, str(ROOT / "scripts" / "fetch_jars.py"), version]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def line(version: str, tool: str, *words: str) -> list[str]:
    """Return the command line of a tool."""
    memory = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return ["java", *memory, "-cp", f"{jars(version)}/*", f"{PACKAGE}.{tool}", *words]


def run(version: str, tool: str, *words: str, text: str = "", is_good: bool = True) -> str:
    """Run a tool to its end; return what it said."""
    command = line(version, tool, *words)
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    said = done.stdout + done.stderr
    assert (done.returncode == 0) == is_good, said
    return said


class Running:
    """A tool that runs on and says what happens, one JSON object a line."""

    def __init__(self, version: str, tool: str, *words: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._child = subprocess.Popen(
            line(version, tool, *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for text in self._child.stdout:
            if text.startswith("{"):
                self.events.append(json.loads(text))

    def named(self, name: str) -> list[dict[str, Any]]:
        """Return the events of a name."""
        return [event for event in self.events if event["name"] == name]

    def reads(self) -> set[int]:
        """Return the partitions a consumer has, as it told."""
        found: set[int] = set()
        for event in list(self.events):
            rows = {row["partition"] for row in event.get("partitions", ())}
            if event["name"] == "partitions_assigned":
                found |= rows
            elif event["name"] == "partitions_revoked":
                found -= rows
        return found

    def stop(self) -> None:
        """End it as Ctrl-C does."""
        self._child.terminate()
        try:
            self._child.wait(20)
        finally:
            self._child.kill()
            self._thread.join(20)
            if self._child.stdout is not None:
                self._child.stdout.close()


def until(holds: Callable[[], bool], told: Callable[[], Any], seconds: float = SECONDS) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, told()
        time.sleep(0.1)
