"""Apache Kafka on loopback: one broker, or three that replicate, in KRaft mode.

Jars come by Maven (scripts/fetch_jars.py, set ``kafka-broker``). Kafka does not sync what it
acknowledges to disk; that is its default and is left so, except for topics that ask for
``flush.messages=1``.
"""

import contextlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
CLUSTER_ID = "kafkaBesideRaftline0AA"
PORT_FIRST = 29_092
PORT_STEP = 10
START_S_MAX = 90
HEAPS = {1: "1g", 3: "512m"}
LOGGING = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"


class Brokers:
    """So many brokers of one cluster."""

    def __init__(self, directory: Path, count: int) -> None:
        self._directory = directory
        self._count = count
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self.servers = ",".join(f"127.0.0.1:{self._port(n)}" for n in range(count))

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self._children.values()]

    def start(self) -> None:
        """Format, start, and wait until all listen."""
        jars = _jars()
        for number in range(self._count):
            file = self._directory / f"{number}.properties"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self._properties(number))
            self._format(jars, file)
        for number in range(self._count):
            self._children[number] = self._spawn(jars, number)
        for number in range(self._count):
            self._wait(number)

    def _wait(self, number: int) -> None:
        until = time.perf_counter() + START_S_MAX
        while not _listens(self._port(number)):
            if time.perf_counter() > until or self._children[number].poll() is not None:
                raise SystemExit(f"broker {number} did not start: see {self._directory}")
            time.sleep(0.2)

    def kill(self, server: str) -> int:
        """End the broker at this address without warning; return its number."""
        number = next(n for n in range(self._count) if server.endswith(f":{self._port(n)}"))
        self._children[number].kill()
        self._children[number].wait()
        return number

    def revive(self, number: int) -> None:
        """Start a killed broker again."""
        self._children[number] = self._spawn(_jars(), number)
        self._wait(number)

    def stop(self) -> None:
        """End what was started."""
        for child in self._children.values():
            child.terminate()
        for child in self._children.values():
            try:
                child.wait(30)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def create(self, topic: str, partitions: int, *, synced: bool = False) -> str:
        """Create a topic on all brokers; return the address of the leader of partition 0."""
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 2})
        settings = {"flush.messages": "1"} if synced else {}
        wanted = NewTopic(topic, partitions, self._count, config=settings)
        admin.create_topics([wanted])[topic].result(30)
        return self.leader(topic)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 2})
        admin.delete_topics([topic])[topic].result(30)

    def leader(self, topic: str) -> str:
        """Wait until all replicas are in step; return the address of the leader."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 2})
        until = time.perf_counter() + START_S_MAX
        while time.perf_counter() < until:
            found = admin.list_topics(topic, timeout=10)
            rows = found.topics[topic].partitions.values()
            if rows and all(r.leader >= 0 and len(r.isrs) == self._count for r in rows):
                leader = found.brokers[found.topics[topic].partitions[0].leader]
                return f"{leader.host}:{leader.port}"
            time.sleep(0.1)
        raise SystemExit(f"{topic} has no leader")

    def _port(self, number: int) -> int:
        return PORT_FIRST + PORT_STEP * number

    def _properties(self, number: int) -> str:
        port, count = self._port(number), self._count
        voters = ",".join(f"{n + 1}@127.0.0.1:{self._port(n) + 1}" for n in range(count))
        minimum = 1 if count == 1 else 2
        rows = {
            "process.roles": "broker,controller",
            "node.id": number + 1,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": voters,
            "log.dirs": self._directory / f"log-{number}",
            "default.replication.factor": count,
            "min.insync.replicas": minimum,
            "offsets.topic.replication.factor": count,
            "transaction.state.log.replication.factor": count,
            "transaction.state.log.min.isr": minimum,
        }
        return "".join(f"{name}={value}\n" for name, value in rows.items())

    def _format(self, jars: Path, file: Path) -> None:
        words = ["format", "-t", CLUSTER_ID, "-c", str(file)]
        command = ["java", "-Xmx256m", LOGGING, "-cp", f"{jars}/*", "kafka.tools.StorageTool"]
        done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"Kafka's storage could not be made: {done.stdout}{done.stderr}")

    def _spawn(self, jars: Path, number: int) -> "subprocess.Popen[bytes]":
        heap = HEAPS[self._count]
        options = [f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", LOGGING]
        file = self._directory / f"{number}.properties"
        with (self._directory / f"{number}.out").open("wb") as out:
            return subprocess.Popen(
                ["java", *options, "-cp", f"{jars}/*", "kafka.Kafka", str(file)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )


@contextlib.contextmanager
def brokers(directory: Path, count: int) -> Iterator[Brokers]:
    """Run fresh brokers and remove their data afterwards."""
    shutil.rmtree(directory, ignore_errors=True)
    made = Brokers(directory, count)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _jars() -> Path:
    command = [sys.executable, str(ROOT / "scripts" / "fetch_jars.py"), "kafka-broker"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return Path(done.stdout.strip())


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
