"""RabbitMQ: quorum queues with publisher confirms; client pika.

Publishing runs on SelectConnection, whose confirms come as callbacks: the cheapest form pika has.
Reading and working are BlockingConnection: quorum queues have no log to read again, so consuming is
consuming, with an ack for many.
"""

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.peers.clients import Take
from bench.peers.install import CannotInstall, program
from bench.peers.servers import Servers

PORTS = {1: 28_730, 3: 28_740}
EPMD_PORT = 28_769
EPMD = -1  # its number among the nodes
RELEASES = Path("/usr/lib/rabbitmq/lib")
NAMES = {1: "one", 3: "three"}
BULK_WINDOW = 1000
PREFETCH_READ = 2000
PREFETCH_WORK = 100
ACKED_AT_ONCE = 500
PACE_STEP_S = 0.001
CONFIG = """\
listeners.tcp.1 = 127.0.0.1:{port}
loopback_users.guest = true
log.file.level = warning
log.console = false
vm_memory_high_watermark.absolute = 4GB
disk_free_limit.absolute = 500MB
"""


class RabbitmqServers(Servers):
    """Nodes with an epmd, a cookie and databases of their own."""

    def ports(self, number: int) -> list[int]:
        first = PORTS[self.count] + 2 * number
        return [first, first + 1]

    @property
    def address(self) -> str:
        """Return the nodes, and the home whose cookie lets a command line in."""
        return f"{super().address};{self.directory / 'home'}"

    def prepare(self) -> None:
        home = self.directory / "home"
        home.mkdir()
        cookie = home / ".erlang.cookie"
        cookie.write_text("BESIDERAFTLINE")
        cookie.chmod(0o400)
        (self.directory / "plugins").write_text("[].\n")
        for number in range(self.count):
            text = CONFIG.format(port=self.ports(number)[0])
            if self.count > 1:
                text += "cluster_formation.peer_discovery_backend = classic_config\n"
                for other in range(self.count):
                    key = f"cluster_formation.classic_config.nodes.{other + 1}"
                    text += f"{key} = {self._name(other)}\n"
            (self.directory / f"{number}.conf").write_text(text)

    def command(self, number: int) -> list[str]:
        del number
        return ["sh", _release("rabbitmq-server")]

    def environment(self, number: int) -> dict[str, str]:
        folder = self.directory
        return {
            "HOME": str(folder / "home"),
            "RUNNING_UNDER_SYSTEMD": "1",  # the script becomes the node, without a shell around it
            "ERL_EPMD_PORT": str(EPMD_PORT),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self._name(number),
            "RABBITMQ_DIST_PORT": str(self.ports(number)[1]),
            "RABBITMQ_CONFIG_FILE": str(folder / f"{number}.conf"),
            "RABBITMQ_MNESIA_BASE": str(folder / f"data-{number}"),
            "RABBITMQ_LOG_BASE": str(folder / f"log-{number}"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_PID_FILE": str(folder / f"{number}.pid"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / f"generated-{number}"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ("-kernel inet_dist_use_interface {127,0,0,1}"),
        }

    def start(self) -> None:
        if EPMD not in self._children or not self._runs(EPMD):
            self._children[EPMD] = self._spawn(EPMD)
        super().start()

    def _spawn(self, number: int) -> Any:
        if number != EPMD:
            return super()._spawn(number)
        import subprocess

        return subprocess.Popen(
            [program("epmd"), "-port", str(EPMD_PORT), "-address", "127.0.0.1"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _name(self, number: int) -> str:
        return f"bench-{NAMES[self.count]}-{number}@localhost"


class RabbitmqClient:
    def __init__(self, address: str, option: str = "") -> None:
        del option
        nodes, _, self._home = address.partition(";")
        self._ports = [int(one.rpartition(":")[2]) for one in nodes.split(",")]
        self._at = 0
        self._blocking: Any = None
        self._channel: Any = None
        self._confirms = False
        self._is_whole = False

    def create(self, topic: str, *, work: bool) -> None:
        del work
        self._wait_for_all()
        self.channel.queue_declare(
            topic,
            durable=True,
            arguments={
                "x-queue-type": "quorum",
                "x-quorum-initial-group-size": len(self._ports),
            },
        )

    def _wait_for_all(self) -> None:
        """Have all nodes listen, which they do once they joined: a queue lives on those there."""
        if self._is_whole:
            return
        import socket

        for port in self._ports:
            with socket.create_connection(("127.0.0.1", port), 1):
                pass
        self._is_whole = True

    @property
    def channel(self) -> Any:
        """Return the channel of a blocking connection."""
        import pika

        if self._channel is None:
            self._blocking = pika.BlockingConnection(_parameters(self._ports[self._at]))
            self._channel = self._blocking.channel()
        return self._channel

    def publish(self, topic: str, value: bytes, window: int, until: float) -> list[float]:
        return Publisher(self._ports[0], topic).closed_loop(value, window, until)

    def bulk(self, topic: str, value: bytes, until: float, count_max: int) -> int:
        publisher = Publisher(self._ports[0], topic)
        return len(publisher.closed_loop(value, BULK_WINDOW, until, count_max))

    def pace(self, topic: str, make: Callable[[], bytes], rate: float, until: float) -> int:
        return Publisher(self._ports[0], topic).pace(make, rate, until)

    def publish_one(self, topic: str, value: bytes) -> None:
        """Publish and wait for the confirm, by a connection that goes on to another node."""
        import pika

        try:
            channel = self.channel
            if not self._confirms:
                channel.confirm_delivery()
                self._confirms = True
            channel.basic_publish("", topic, value, pika.BasicProperties(delivery_mode=2), True)
        except Exception:
            self._at = (self._at + 1) % len(self._ports)
            self.close()
            raise

    def consume(self, topic: str, count: int, until: float) -> int:
        channel = self.channel
        channel.basic_qos(prefetch_count=PREFETCH_READ)
        got = 0
        for frame, _, _ in channel.consume(topic, inactivity_timeout=2):
            if frame is None:
                break
            got += 1
            if got % ACKED_AT_ONCE == 0 or got == count:
                channel.basic_ack(frame.delivery_tag, multiple=True)
            if got >= count or (got % 100 == 0 and time.perf_counter() > until):
                break
        return got

    def join(self, topic: str, member: str) -> None:
        self._at = int(member.rpartition("-")[2]) % len(self._ports) if "-" in member else 0
        self.close()
        del topic
        self.channel.basic_qos(prefetch_count=PREFETCH_WORK)

    def work(self, topic: str, member: str, take: Take) -> None:
        del member
        channel = self.channel
        for frame, _, body in channel.consume(topic, inactivity_timeout=1):
            if frame is None:
                if not take(None):
                    return
                continue
            go_on = take(body)
            channel.basic_ack(frame.delivery_tag)
            if not go_on:
                break
        self._blocking.process_data_events(0)

    def leader(self, topic: str) -> int:
        """Ask a node's command line; go on by another node than the leader's."""
        import json
        import subprocess

        name = NAMES[len(self._ports)]
        environment = {**os.environ, "ERL_EPMD_PORT": str(EPMD_PORT), "HOME": self._home}
        words = ["-n", f"bench-{name}-0@localhost", "list_queues", "name", "leader", "online"]
        done = subprocess.run(
            ["sh", _release("rabbitmqctl"), *words, "--formatter", "json", "-q"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=environment,
        )
        rows = json.loads(done.stdout[done.stdout.index("[") :])
        row = next(row for row in rows if row["name"] == topic)
        leader = row["leader"]
        if len(row["online"]) != len(self._ports):
            raise RuntimeError(f"{topic} has only {row['online']}")
        number = int(leader.partition("@")[0].rpartition("-")[2])
        self._at = (number + 1) % len(self._ports)
        self.close()
        return number

    def close(self) -> None:
        self._channel = None
        self._confirms = False
        if self._blocking is not None:
            with contextlib.suppress(Exception):
                self._blocking.close()
            self._blocking = None


class Publisher:
    """Publishes on a SelectConnection; a confirm lets the next message go."""

    def __init__(self, port: int, queue: str) -> None:
        import pika

        self._properties = pika.BasicProperties(delivery_mode=2)
        self._queue = queue
        self._sent: deque[tuple[int, float]] = deque()  # tag, when
        self._tag = 0
        self._channel: Any = None
        self._begin: Callable[[], None] = lambda: None
        self._confirmed: Callable[[], None] = lambda: None
        self._failure = ""
        self.took: list[float] = []
        self._connection = pika.SelectConnection(
            _parameters(port),
            on_open_callback=lambda connection: connection.channel(
                on_open_callback=self._opened_channel
            ),
            on_open_error_callback=lambda _, error: self._fail(repr(error)),
            on_close_callback=lambda _, error: self._fail(repr(error)),
        )

    def closed_loop(
        self, value: bytes, window: int, until: float, count_max: int = 1 << 60
    ) -> list[float]:
        """Keep so many on their way; return how long each took."""
        clock = time.perf_counter

        def more() -> None:
            if clock() < until and self._tag < count_max:
                while len(self._sent) < window:
                    self._send(value)
            elif not self._sent:
                self._connection.ioloop.stop()

        self._run(more, more)
        return self.took

    def pace(self, make: Callable[[], bytes], rate: float, until: float) -> int:
        """Publish at a rate."""
        begun = 0.0

        def tick() -> None:
            nonlocal begun
            now = time.perf_counter()
            begun = begun or now
            if now < until:
                while self._tag < (now - begun) * rate:
                    self._send(make())
                self._connection.ioloop.call_later(PACE_STEP_S, tick)
            elif self._sent:
                self._connection.ioloop.call_later(PACE_STEP_S, tick)
            else:
                self._connection.ioloop.stop()

        self._run(tick, lambda: None)
        return len(self.took)

    def _run(self, begin: Callable[[], None], confirmed: Callable[[], None]) -> None:
        self._begin, self._confirmed = begin, confirmed
        self._connection.ioloop.start()
        if self._failure:
            raise RuntimeError(self._failure)

    def _opened_channel(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._on_confirm, callback=lambda _: self._begin())

    def _send(self, value: bytes) -> None:
        self._tag += 1
        self._sent.append((self._tag, time.perf_counter()))
        self._channel.basic_publish("", self._queue, value, self._properties)

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        if method.NAME != "Basic.Ack":
            self._fail("a publish was refused")
            return
        now = time.perf_counter()
        tag, sent = method.delivery_tag, self._sent
        if method.multiple:
            while sent and sent[0][0] <= tag:
                self.took.append(now - sent.popleft()[1])
        elif sent[0][0] == tag:
            self.took.append(now - sent.popleft()[1])
        else:  # confirmed out of order
            at = next(number for number, row in enumerate(sent) if row[0] == tag)
            self.took.append(now - sent[at][1])
            del sent[at]
        self._confirmed()

    def _fail(self, words: str) -> None:
        self._failure = words
        self._connection.ioloop.stop()


def _release(name: str) -> str:
    """Return a script of the release: those on the PATH change to another user."""
    program("rabbitmq-server")
    found = sorted(RELEASES.glob(f"rabbitmq_server-*/sbin/{name}"))
    if not found:
        raise CannotInstall(f"{name} is not under {RELEASES}")
    return str(found[-1])


def _parameters(port: int) -> Any:
    import logging

    import pika

    logging.getLogger("pika").setLevel(logging.CRITICAL)
    return pika.ConnectionParameters("127.0.0.1", port, heartbeat=0, socket_timeout=5)
