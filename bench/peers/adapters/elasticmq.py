"""ElasticMQ: the SQS protocol over HTTP, messages kept in an H2 file.

The client is http.client with SQS' JSON protocol: far cheaper than boto3, whose signatures
ElasticMQ does not look at. Ten messages a request is SQS' limit.
"""

import http.client
import json
import socket
import time
from typing import Any

from bench.peers.clients import Take, ThreadClient, in_threads
from bench.peers.install import jars
from bench.peers.servers import Servers

PORT = 28_720
BATCH = 10
BULK_THREADS = 8
CONFIG = """\
node-address {{ protocol = http, host = "127.0.0.1", port = {port}, context-path = "" }}
rest-sqs {{ enabled = true, bind-port = {port}, bind-hostname = "127.0.0.1", sqs-limits = strict }}
rest-stats {{ enabled = false, bind-port = {other}, bind-hostname = "127.0.0.1" }}
generate-node-address = false
queues {{ }}
queues-storage {{ enabled = true, path = "{folder}/queues.conf" }}
messages-storage {{
  enabled = true, driver-class-name = "org.h2.Driver", uri = "jdbc:h2:{folder}/h2"
  username = "", password = "", prune-data-on-init = false
}}
aws {{ region = "elasticmq", accountId = "000000000000" }}
"""


class ElasticmqServers(Servers):
    def ports(self, number: int) -> list[int]:
        return [PORT + 2 * number, PORT + 2 * number + 1]

    def prepare(self) -> None:
        port, other = self.ports(0)
        text = CONFIG.format(port=port, other=other, folder=self.directory)
        (self.directory / "elasticmq.conf").write_text(text)

    def command(self, number: int) -> list[str]:
        del number
        return [
            "java", "-Xms256m", "-Xmx512m", f"-Dconfig.file={self.directory}/elasticmq.conf",
            "-cp", f"{jars('elasticmq')}/*", "org.elasticmq.server.Main",
        ]  # fmt: skip


class ElasticmqClient(ThreadClient):
    def __init__(self, address: str, option: str = "") -> None:
        super().__init__()
        del option
        self._host, _, port = address.partition(":")
        self._port = int(port)
        self._queues: dict[str, str] = {}

    def connect(self) -> Any:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=30)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def create(self, topic: str, *, work: bool) -> None:
        del work
        attributes = {"VisibilityTimeout": "60"}
        wish = {"QueueName": topic, "Attributes": attributes}
        try:
            answer = self._ask(self.connection, "CreateQueue", wish)
        except (OSError, http.client.HTTPException):
            self.forget()
            raise
        self._queues[topic] = answer["QueueUrl"]

    def publish_by(self, connection: Any, topic: str, value: bytes) -> None:
        wish = {"QueueUrl": self._queues[topic], "MessageBody": value.decode()}
        self._ask(connection, "SendMessage", wish)

    def bulk(self, topic: str, value: bytes, until: float, count_max: int) -> int:
        text = value.decode()
        entries = [{"Id": str(number), "MessageBody": text} for number in range(BATCH)]
        wish = {"QueueUrl": self._queues[topic], "Entries": entries}
        done: list[int] = []

        def one() -> None:
            connection = self.connection
            while time.perf_counter() < until and len(done) * BATCH < count_max:
                answer = self._ask(connection, "SendMessageBatch", wish)
                if len(answer["Successful"]) != BATCH:
                    raise RuntimeError(f"a batch was refused: {answer}")
                done.append(1)

        in_threads(one, BULK_THREADS)
        return len(done) * BATCH

    def consume(self, topic: str, count: int, until: float) -> int:
        got: list[int] = []

        def one() -> None:
            connection = self.connection
            while time.perf_counter() < until and sum(got) < count:
                messages = self._receive(connection, topic, 0)
                if not messages:
                    return
                self._delete(connection, topic, messages)
                got.append(len(messages))

        in_threads(one, BULK_THREADS)
        return sum(got)

    def join(self, topic: str, member: str) -> None:
        del topic, member
        assert self.connection

    def work(self, topic: str, member: str, take: Take) -> None:
        del member
        connection = self.connection
        go_on = True
        while go_on:
            messages = self._receive(connection, topic, 1)
            if not messages:
                go_on = take(None)
                continue
            for message in messages:
                go_on = take(message["Body"].encode())
            self._delete(connection, topic, messages)

    def leader(self, topic: str) -> int:
        del topic
        return 0

    def _receive(self, connection: Any, topic: str, wait_s: int) -> list[dict[str, str]]:
        wish = {
            "QueueUrl": self._queues[topic], "MaxNumberOfMessages": BATCH, "WaitTimeSeconds": wait_s
        }  # fmt: skip
        return self._ask(connection, "ReceiveMessage", wish).get("Messages") or []

    def _delete(self, connection: Any, topic: str, messages: list[dict[str, str]]) -> None:
        entries = [
            {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
            for number, message in enumerate(messages)
        ]
        wish = {"QueueUrl": self._queues[topic], "Entries": entries}
        answer = self._ask(connection, "DeleteMessageBatch", wish)
        if len(answer["Successful"]) != len(messages):
            raise RuntimeError(f"a delete was refused: {answer}")

    def _ask(self, connection: Any, action: str, wish: dict[str, Any]) -> dict[str, Any]:
        connection.request(
            "POST",
            "/",
            json.dumps(wish).encode(),
            {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"},
        )
        reply = connection.getresponse()
        body = reply.read()
        if reply.status != 200:
            raise RuntimeError(f"{action}: {reply.status} {body[:300]!r}")
        return json.loads(body) if body else {}
