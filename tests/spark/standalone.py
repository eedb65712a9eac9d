"""A real Spark standalone cluster for tests: a master and workers, from the pip package."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark

from raftline.chaos.rig import free_port_base, wait_for

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
DEPLOY = "org.apache.spark.deploy"
START_S_MAX = 120.0


@contextlib.contextmanager
def standalone(home: Path, workers: int = 2) -> Iterator[str]:
    """Run a cluster on loopback; yields the address of its master."""
    base = free_port_base(workers + 1)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOG_DIR": str(home),
        "SPARK_WORKER_DIR": str(home / "work"),
    }
    children: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str) -> Path:
        log = home / f"{name}.log"
        with log.open("wb") as output:
            children.append(
                subprocess.Popen(
                    ["bash", str(SPARK_CLASS), *words],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=environment,
                )
            )
        return log

    def saw(log: Path, text: str) -> None:
        wait_for(
            lambda: text in log.read_text(errors="replace"),
            START_S_MAX,
            lambda: log.read_text(errors="replace")[-2000:],
            0.3,
        )

    try:
        master = f"spark://127.0.0.1:{base}"
        ports = ("--port", str(base), "--webui-port", str(base + 1000))
        log = start("master", f"{DEPLOY}.master.Master", "--host", "127.0.0.1", *ports)
        saw(log, "New state: ALIVE")
        logs: list[Path] = []
        for number in range(1, workers + 1):
            ports = ("--port", str(base + number), "--webui-port", str(base + 1000 + number))
            logs.append(
                start(
                    f"worker-{number}",
                    f"{DEPLOY}.worker.Worker",
                    *("--host", "127.0.0.1", *ports, "--cores", "1", "--memory", "700m"),
                    master,
                )
            )
        for log in logs:
            saw(log, "Successfully registered with master")
        yield master
    finally:
        for child in children:
            child.terminate()
        for child in children:
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait(20)


def python_without_us(directory: Path) -> Path:
    """Return a Python that has everything we need but not us, as a machine of a cluster would."""
    libraries = directory / "libraries"
    libraries.mkdir(parents=True)
    for folder in sys.path:
        if Path(folder).name == "site-packages":
            for entry in Path(folder).iterdir():
                if "raftline" not in entry.name and entry.suffix != ".pth":
                    (libraries / entry.name).symlink_to(entry)
    program = directory / "python"
    program.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="$PYTHONPATH:{libraries}"\nexec {sys.executable} -S "$@"\n'
    )
    program.chmod(0o755)
    return program
