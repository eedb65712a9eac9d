"""Every command and URL that the four seeds' documents print, run as printed on fresh nodes.

A row has the seed, the text as its document has it, and what must come of it. Only the name of the
binary and the address are ours. Rows that talk to a cluster are run through each of its three
nodes; rows that start one are started. What needs Docker, Helm, Go or a cloud is listed, not run.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from raftline.chaos.rig import Rig, free_port_base, wait_for

BIN = Path(sys.executable).parent
SECONDS = 40
ORDER = {"order_id": 123}
Check = Callable[["Ran"], None]

# Their programs, and ours (INTERFACES.md).
PROGRAMS = [
    ("go run broker/main.go", "raftline serve"),
    ("./bin/dqueue-cli", "raftline task"),
    ("./bin/dqueue-worker", "raftline worker"),
    ("./bin/dqueue", "raftline serve"),
    ("goqueue-cli", "raftline"),
    ("goqueue ", "raftline serve "),
    ("./queue", "raftline serve"),
    ("curl ", "curl -sS -w '\\n%{http_code}' "),
]
ADDRESS = re.compile(r"http://localhost:80\d\d")


class Ran:
    """What became of a row at one node."""

    def __init__(self, url: str, text: str, out: str = "", err: str = "", code: int = 0) -> None:
        self.url = url
        self.text = text
        self.out = out
        self.err = err
        self.exit = code

    def __repr__(self) -> str:
        return f"{self.text}\nexit {self.exit}\n{self.out}{self.err}"

    @property
    def status(self) -> int:
        return int(self.out.rstrip().rpartition("\n")[2])

    @property
    def json(self) -> Any:
        body = self.out.rstrip().rpartition("\n")[0]
        return json.loads(body) if body else None

    def ok(self, status: int = 200) -> Any:
        assert (self.exit, self.status) == (0, status), self
        return self.json

    def get(self, path: str) -> Any:
        reply = requests.get(self.url + path, timeout=20)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def post(self, path: str, body: Any) -> Any:
        reply = requests.post(self.url + path, json=body, timeout=20)
        assert reply.status_code in (200, 201), reply.text
        return reply.json()


def has(**wanted: Any) -> Check:
    """Expect a 200 whose JSON has these fields."""

    def check(ran: Ran) -> None:
        found = ran.ok()
        assert {name: found.get(name) for name in wanted} == wanted, ran

    return check


def fields(*names: str, status: int = 200) -> Check:
    """Expect these fields, whatever they hold."""

    def check(ran: Ran) -> None:
        found = ran.ok(status)
        assert set(names) <= set(found), ran

    return check


# ---------------------------------------------------------------------- what to expect


def is_scheduled_order(ran: Ran) -> None:
    told = ran.ok()
    assert told["delayed"] is True, ran
    shown = ran.get(f"/v1/topics/orders/delayed/{told['id']}")
    assert (shown["state"], shown["key"]) == ("waiting", "order-123")
    assert json.loads(shown["value"]) == ORDER
    assert 290_000 < shown["in_ms"] <= 300_000


def is_produced(ran: Ran) -> None:
    assert ran.exit == 0, ran
    told = ran.get(f"/v1/traces/{ran.out.strip().splitlines()[-1]}")
    assert [line["event"] for line in told["timeline"]][:2] == ["PUBLISHED", "REPLICATED"]


def is_consumed(ran: Ran) -> None:
    assert ran.exit == 0, ran
    assert "fresh order" in ran.out, ran
    again = sh("raftline consume orders --group processors", ran.url)
    assert "fresh order" not in again.out, again  # acked


def is_replayed(ran: Ran) -> None:
    assert ran.exit == 0, ran
    assert "fresh order" in ran.out, ran


def is_empty(ran: Ran) -> None:
    assert (ran.exit, ran.out.strip()) == (0, ""), ran


def is_timeline(ran: Ran) -> None:
    assert ran.exit == 0, ran
    for word in ("PUBLISHED", "REPLICATED", "DELIVERED", "ACKNOWLEDGED", "RETAINED"):
        assert word in ran.out, ran
    assert "order-service" in ran.out, ran


def is_task(ran: Ran) -> None:
    task = ran.ok(201)
    assert (task["type"], task["payload"]["to"]) == ("email", "user@example.com")
    assert ran.get(f"/tasks/{task['id']}")["status"] in ("pending", "leased")


def is_full_task(ran: Ran) -> None:
    reply = ran.ok(ran.status)
    assert ran.status in (200, 201), ran  # the same key: the first node's task
    assert (reply["priority"], reply["max_retries"], reply["idempotency_key"]) == (10, 3, "abc")


def is_enqueued(ran: Ran) -> None:
    assert ran.exit == 0, ran
    task = ran.get(f"/tasks/{ran.out.strip().split()[-1]}")
    assert task["payload"] == {"to": "user@example.com"}


def is_nacked(ran: Ran) -> None:
    name = ran.ok()["id"]
    task = ran.get(f"/tasks/{name}")
    assert (task["status"], task["last_error"]) == ("pending", "database connection failed")


def is_worked(ran: Ran) -> None:
    stats = ran.get("/stats")
    assert (stats["pending"] - stats["delayed"], stats["leased"]) == (0, 0), (stats, ran)


def is_published(ran: Ran) -> None:
    told = ran.ok()
    assert (told["status"], told["priority"]) == ("message committed", "high")


def is_batch(ran: Ran) -> None:
    told = ran.ok()
    assert told["count"] == len(told["messages"]) == 2, ran
    assert {"v", "p"} <= set(told["messages"][0])


def is_peeked(ran: Ran) -> None:
    first = ran.ok()
    assert first["count"] == 5, ran
    assert first == sh(ran.text, ran.url).json  # it moved nothing


def is_topic_list(ran: Ran) -> None:
    assert "orders" in ran.ok()["topics"], ran


def is_created_twice(ran: Ran) -> None:
    assert ran.status in (201, 409), ran

    def is_known_here() -> bool:
        rows = ran.get("/shards-info?topics=invoices")["shards"]
        return bool(rows) and all(row["leader"] for row in rows)

    wait_for(is_known_here, 5)
    shown = ran.get("/shards-info?topics=invoices")["shardInfo"]
    assert len(shown) == 4
    for row in shown.values():
        assert row["Leader"]["ID"] in [broker["ID"] for broker in row["Brokers"]]
        assert len(row["Brokers"]) == 3


# ---------------------------------------------------------------------- what must be there first


def fresh_order(url: str) -> dict[str, str]:
    body = {"messages": [{"value": "fresh order", "key": "k"}], "producer": "order-service"}
    requests.post(f"{url}/v1/topics/orders/messages", json=body, timeout=20).raise_for_status()
    return {}


def acked_order(url: str) -> dict[str, str]:
    """Return the id of a message that was delivered and acked."""
    body = {"messages": [{"value": "paid"}], "producer": "order-service"}
    sent = requests.post(f"{url}/v1/topics/payments/messages", json=body, timeout=20).json()
    path = f"{url}/v1/topics/payments/groups/tracers/receive"
    got = requests.post(path, json={"count": 100, "wait": "5s"}, timeout=20).json()["messages"]
    tokens = [row["lease_token"] for row in got]
    requests.post(f"{url}/messages/ack", json={"lease_tokens": tokens}, timeout=20)
    return {"msg-abc123": sent["results"][0]["id"]}


def new_task(url: str) -> dict[str, str]:
    requests.post(f"{url}/tasks", json={"type": "email", "payload": {}}, timeout=20)
    return {}


def leased_task(url: str) -> dict[str, str]:
    new_task(url)
    path = f"{url}/tasks/lease"
    task = requests.post(path, json={"worker_id": "worker-1"}, timeout=20).json()
    return {"{id}": task["id"]}


def five_orders(url: str) -> dict[str, str]:
    for _ in range(5):
        fresh_order(url)
    return {"{topic}": "orders", "X": "worker1", "N": "2"}


def zero_offset(url: str) -> dict[str, str]:
    return {**five_orders(url), "X": "0"}


def consumer(url: str) -> dict[str, str]:
    topic = {"name": "invoices", "numberOfPartitions": 4, "replicationFactor": 3}
    requests.post(f"{url}/topics", json=topic, timeout=20)
    body = {"consumerID": "c-1", "consumerGroup": "billing", "topics": ["invoices"]}
    requests.post(f"{url}/connect", json=body, timeout=20).raise_for_status()
    return {}


def unacked(url: str) -> dict[str, str]:
    consumer(url)
    body = {"topic": "invoices", "data": "aGk=", "partitionKey": "k"}
    sent = requests.post(f"{url}/sendMessage", json=body, timeout=20).json()
    return {"invoices-0": sent["PartitionID"], "AAAAAAAAAAE=": sent["ID"]}


Row = tuple[str, str, Callable[[str], dict[str, str]] | None, Check]

# seed, text, what must be there first (and what stands for names in the text), what comes of it
ROWS: list[Row] = [
    # --- GoQueue
    ("goqueue", "curl http://localhost:8080/health", None, fields("status", "timestamp")),
    ("goqueue", """curl -X POST http://localhost:8080/v1/topics/orders/publish \\
  -H "Content-Type: application/json" \\
  -d '{
    "key": "order-123",
    "value": "eyJvcmRlcl9pZCI6MTIzfQ==",
    "delay": "5m"
  }'""", None, is_scheduled_order),
    ("goqueue", """echo '{"order_id": 123}' | goqueue-cli produce orders --key order-123""",
     None, is_produced),
    ("goqueue", "goqueue-cli consume orders --group processors", fresh_order, is_consumed),
    ("goqueue", "goqueue-cli trace msg-abc123", acked_order, is_timeline),
    ("goqueue", 'goqueue-cli consume orders --group replay-test --from-time "2025-01-14T15:00:00Z"',
     fresh_order, is_replayed),
    ("goqueue", ('goqueue-cli consume orders --group replay-test --from-time '
     '"2025-01-14T15:00:00Z" --to-time "2025-01-14T16:00:00Z"'), fresh_order, is_empty),
    ("goqueue", ('goqueue-cli consume orders --group audit --from-snapshot "2025-01-01" '
     "--include-deleted"), fresh_order, is_replayed),
    # --- DQueue
    ("dqueue", "curl http://localhost:8081/health", None, has(status="ready")),
    ("dqueue", """./bin/dqueue-cli enqueue -type email -payload '{"to":"user@example.com"}'""",
     None, is_enqueued),
    ("dqueue", """curl -X POST http://localhost:8081/tasks \\
-H "Content-Type: application/json" \\
-d '{"type":"email","payload":{"to":"user@example.com"}}'""", None, is_task),
    ("dqueue", "./bin/dqueue-worker --server http://localhost:8081", new_task, is_worked),
    ("dqueue", """POST /tasks
{
"type": "email",
"payload": {"to": "user@example.com", "subject": "Hello"},
"priority": 10, # Optional: higher = more urgent
"max_retries": 3, # Optional: default 3
"idempotency_key": "abc" # Optional: for deduplication
}""", None, is_full_task),
    ("dqueue", """POST /tasks/lease
{
"worker_id": "worker-1"
}""", new_task, has(status="leased", worker_id="worker-1")),
    ("dqueue", """POST /tasks/{id}/ack
{
"worker_id": "worker-1"
}""", leased_task, has(status="done")),
    ("dqueue", """POST /tasks/{id}/nack
{
"worker_id": "worker-1",
"reason": "database connection failed"
}""", leased_task, is_nacked),
    ("dqueue", "GET /tasks/{id}", leased_task, has(status="leased", worker_id="worker-1")),
    ("dqueue", "GET /health", None, has(status="ready")),
    ("dqueue", "GET /stats", None, fields("pending", "leased", "done", "dead")),
    # --- FalconQ
    ("falconq", """curl -X POST http://localhost:8080/topic/orders/publish \
-H "Content-Type: application/json" \
-d '{"message": "Urgent refund request #RF001", "priority": "high"}'""", None, is_published),
    ("falconq", 'curl "http://localhost:8080/topic/orders/consume?consumerID=worker1&batch=2"',
     five_orders, is_batch),
    ("falconq", 'curl "http://localhost:8080/topic/orders/peek?offset=0&batch=5"',
     five_orders, is_peeked),
    ("falconq", "curl http://localhost:8080/topics", fresh_order, is_topic_list),
    ("falconq", "curl http://localhost:8080/topics/orders/partitions", fresh_order,
     fields("configuredPartitions", "partitionKeyStrategy", "activePartitions")),
    ("falconq", 'POST /topic/{topic}/publish\n{"message": "m", "priority": "high"}',
     five_orders, is_published),
    ("falconq", "GET /topic/{topic}/consume?consumerID=X&batch=N", five_orders, is_batch),
    ("falconq", "GET /topic/{topic}/peek?offset=X&batch=N", zero_offset, fields("messages")),
    ("falconq", "GET /topics", fresh_order, is_topic_list),
    ("falconq", "GET /topics/{topic}/partitions", five_orders, fields("activePartitions")),
    ("falconq", "GET /raft/stats?topic=orders&partitionID=0", fresh_order,
     fields("state", "term", "commit_index")),
    # --- sreekar2307/queue
    ("queue", ('POST /topics\n{"name": "invoices", "numberOfPartitions": 4, '
     '"replicationFactor": 3}'), None, is_created_twice),
    ("queue", ('POST /connect\n{"consumerID": "c-1", "consumerGroup": "billing", '
     '"topics": ["invoices"]}'), consumer, fields("consumer", "consumerGroup")),
    ("queue", 'POST /sendMessage\n{"topic": "invoices", "data": "aGk=", "partitionKey": "k"}',
     consumer, fields("Topic", "PartitionKey", "PartitionID", "Data", "ID")),
    ("queue", 'GET /receiveMessage\n{"consumerID": "c-1", "partitionID": "invoices-0"}',
     unacked, fields("PartitionID", "Data", "ID")),
    ("queue", ('POST /ackMessage\n{"consumerID": "c-1", "partitionID": "invoices-0", '
     '"ID": "AAAAAAAAAAE="}'), unacked, fields()),
    ("queue", 'POST /healthCheck\n{"consumerID": "c-1", "pingAt": "2025-01-14T15:00:00Z"}',
     consumer, has(is_active=True)),
    ("queue", "GET /shards-info?topics=invoices", consumer,
     fields("shardInfo", "brokers", "leader")),
]  # fmt: skip

# Rows whose command is not built yet, and what comes instead: it is refused, in words.
PENDING: dict[str, str] = {}

# Commands that start nodes: run as printed, each in a directory of its own.
GOQUEUE_YAML = """\
broker:
  nodeId: "node-1"
  dataDir: "/var/lib/goqueue"

  listeners:
    http: ":8080"
    grpc: ":9000"

defaults:
  topic:
    partitions: 6
    replicationFactor: 2
    retention:
      hours: 168          # 7 days
      bytes: 10737418240  # 10GB

  delivery:
    visibilityTimeout: 30s
    maxRetries: 3
    dlqEnabled: true

  delay:
    enabled: true
    maxDelay: 168h        # 7 days max delay

  priority:
    lanes: 3              # high, normal, low
"""
STARTS = [
    ("queue", "./queue"),
    ("goqueue", "goqueue -config config.yaml"),
    ("dqueue", "./bin/dqueue --id=dev --bootstrap=true"),
]
FALCONQ_STARTS = [
    f"go run broker/main.go -config broker/config.yaml -nodeid node{n}" for n in (1, 2, 3)
]

# Checked by reading, not run here: they need Docker, Helm, Go or a cloud account.
LISTED = [
    ("queue", "go build -o queue . && ./queue", "Go; ./queue itself is a row"),
    ("queue", "go build -o queue cmd/queue && ./queue", "Go; ./queue itself is a row"),
    ("goqueue", ("docker run -p 8080:8080 -p 9000:9000 -v goqueue-data:/var/lib/goqueue "
     "ghcr.io/abd-ulbasit/goqueue:latest"), "Docker"),
    ("goqueue", "./deploy.sh deploy dev", "a cloud"),
    ("goqueue", "./deploy.sh goqueue dev", "a cloud"),
    ("goqueue", "./deploy.sh url dev", "a cloud"),
    ("goqueue", "./deploy.sh benchmark dev", "a cloud"),
    ("goqueue", ("helm install goqueue ./deploy/kubernetes/helm/goqueue --set replicaCount=3 "
     "--set service.type=LoadBalancer"), "Helm"),
    ("goqueue", "go install github.com/abd-ulbasit/goqueue/cmd/goqueue@latest", "Go"),
    ("dqueue", "make build", "it builds the package; make has it"),
    ("dqueue", "make test", "this is it"),
    ("dqueue", "make proto", "it writes into the tree; make has it"),
    ("dqueue", "make docker-build", "Docker"),
    ("dqueue", "docker-compose -f deploy/docker-compose.yml up -d", "Docker"),
    ("dqueue", "docker-compose -f deploy/docker-compose.yml logs -f", "Docker"),
    ("dqueue", "docker-compose -f deploy/docker-compose.yml up", "Docker"),
    ("dqueue", "./scripts/demo-failover.sh", "run by tests/cluster/test_scripts.py"),
    ("dqueue", "./scripts/chaos-test.sh", "run by tests/cluster/test_scripts.py"),
    ("falconq", "git clone …; go mod tidy", "Go"),
]  # fmt: skip


# ---------------------------------------------------------------------- running


def ours(text: str) -> str:
    """Return a command with our programs in it."""
    for theirs, name in PROGRAMS:
        if re.search(rf"(^|\| ){re.escape(theirs)}", text):
            return text.replace(theirs, name, 1)
    return text


def environment(url: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "RAFTLINE_SERVER": url}


def sh(text: str, url: str) -> Ran:
    """Run a command line as a shell would, against one node."""
    line = ADDRESS.sub(url, ours(text))
    if line.startswith("raftline worker"):
        return work(line, url)
    done = subprocess.run(
        ["bash", "-c", line],
        capture_output=True, text=True, check=False, timeout=SECONDS, env=environment(url),
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return Ran(url, text, done.stdout, done.stderr, done.returncode)


def work(line: str, url: str) -> Ran:
    """Let a worker run until nothing is left to do, then stop it."""
    worker = subprocess.Popen(
        shlex.split(line), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(url), stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:

        def is_done() -> bool:
            assert worker.poll() is None, worker.communicate()
            stats = requests.get(f"{url}/stats", timeout=20).json()
            return stats["pending"] == stats["delayed"] and not stats["leased"]

        wait_for(is_done, SECONDS, lambda: requests.get(f"{url}/stats", timeout=20).text)
    finally:
        worker.send_signal(signal.SIGTERM)
        out, err = worker.communicate(timeout=SECONDS)
    return Ran(url, line, out, err, worker.returncode)


def call(text: str, url: str) -> Ran:
    """Make a request that a document writes as method, path and body."""
    first, _, body = text.partition("\n")
    method, path = first.split(" ", 1)
    body = re.sub(r" # .*", "", body)
    fields = {"Content-Type": "application/json"} if body else {}
    reply = requests.request(method, url + path, data=body, headers=fields, timeout=SECONDS)
    return Ran(url, text, f"{reply.text}\n{reply.status_code}")


@pytest.fixture(scope="module")
def rig(module_path: Path) -> Iterator[Rig]:
    made = Rig(module_path / "seeds")
    try:
        made.start_all()
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("number", range(len(ROWS)), ids=[f"{r[0]}: {r[1][:70]}" for r in ROWS])
def test_a_row_through_every_node(rig: Rig, number: int) -> None:
    _, text, prepare, check = ROWS[number]
    pending = next((why for word, why in PENDING.items() if word in text), "")
    for name in rig.names:
        url = rig.node(name).http
        written = text
        for word, value in (prepare(url) if prepare is not None else {}).items():
            written = written.replace(word, value)
        is_request = written.split(" ", 1)[0] in ("GET", "POST", "DELETE")
        ran = (call if is_request else sh)(written, url)
        if pending:
            assert ran.exit != 0, f"it works now, take it out of PENDING: {ran}"
            assert "error: " in ran.err, ran
            assert "hint:  " in ran.err, ran
        else:
            check(ran)


def start(text: str, directory: Path, ports: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start a node with a command as printed; only its places are the test's."""
    with (directory / "log").open("ab") as log:
        return subprocess.Popen(
            ["bash", "-c", f"exec {ours(text)}"],
            cwd=directory,
            env={**environment(""), **ports},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def places(base: int, directory: Path) -> dict[str, str]:
    return {
        "RAFTLINE_LISTEN_HTTP": f"127.0.0.1:{base}",
        "RAFTLINE_LISTEN_GRPC": f"127.0.0.1:{base + 1000}",
        "RAFTLINE_LISTEN_KAFKA": f"127.0.0.1:{base + 2000}",
        "RAFTLINE_LISTEN_PEER": f"127.0.0.1:{base + 3000}",
        "RAFTLINE_NODE_DATA_DIR": str(directory / "data"),
    }


def is_ready(url: str) -> bool:
    try:
        return requests.get(f"{url}/health", timeout=2).status_code == 200
    except requests.RequestException:
        return False


@pytest.mark.parametrize("text", [text for _, text in STARTS])
def test_a_start(tmp_path: Path, text: str) -> None:
    base = free_port_base(1)
    (tmp_path / "config.yaml").write_text(GOQUEUE_YAML)
    child = start(text, tmp_path, places(base, tmp_path))
    url = f"http://127.0.0.1:{base}"
    try:
        wait_for(lambda: is_ready(url), 20, lambda: (tmp_path / "log").read_text()[-3000:])
        ran = call('POST /topic/orders/publish\n{"message": "m", "priority": "high"}', url)
        is_published(ran)
        if "config.yaml" in text:
            shown = call("GET /topics/orders/partitions", url).ok()
            assert shown["configuredPartitions"] == 6
            told = call("GET /admin/config", url).ok()
            assert told["broker"]["nodeId"] == "node-1"
            assert told["defaults"]["priority"]["lanes"] == 3
    finally:
        child.terminate()
        assert child.wait(15) == 0, (tmp_path / "log").read_text()[-3000:]


def test_one_file_for_all_nodes(tmp_path: Path) -> None:
    """FalconQ's three terminals: one file, a name each."""
    base = free_port_base(3)
    lines = ["default_num_partitions: 3", "nodes:"]
    for n in (1, 2, 3):
        lines += [
            f"  node{n}:",
            f'    http_address: "localhost:{base + n - 1}"',
            f'    raft_address: "localhost:{base + 3000 + n - 1}"',
        ]
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "config.yaml").write_text("\n".join(lines))
    children: list[subprocess.Popen[bytes]] = []
    try:
        for n, text in enumerate(FALCONQ_STARTS):
            own = {"RAFTLINE_NODE_DATA_DIR": str(tmp_path / f"data-{n}")}
            children.append(start(text, tmp_path, own))
        urls = [f"http://127.0.0.1:{base + n}" for n in range(3)]
        for url in urls:
            wait_for(
                lambda url=url: is_ready(url), 30, lambda: (tmp_path / "log").read_text()[-3000:]
            )
        body = '{"message": "m", "priority": "low"}'
        for n in range(9):  # nine of nine, through every node
            ran = call(f"POST /topic/orders/publish\n{body}", urls[n % 3])
            assert ran.ok()["status"] == "message committed", ran
        shown = call("GET /topics/orders/partitions", urls[0]).ok()
        assert shown["configuredPartitions"] == 3
    finally:
        for child in children:
            child.terminate()
        for child in children:
            assert child.wait(15) == 0


def test_the_count(capsys: pytest.CaptureFixture[str]) -> None:
    """Say how many commands there are, and which were only read."""
    makefile = Path("Makefile").read_text()
    pending = [text for _, text, _, _ in ROWS if any(word in text for word in PENDING)]
    with capsys.disabled():
        started = len(STARTS) + len(FALCONQ_STARTS)
        print(f"\n{len(ROWS) + started} commands of the seeds run ({len(pending)} of them pending)")
        print(f"{len(LISTED)} checked, not run:")
        for seed, text, why in LISTED:
            print(f"  {seed:8} {text[:70]}  ({why})")
    for _, text, _ in LISTED:
        if text.startswith("make ") and "docker" not in text:
            assert f"\n{text.removeprefix('make ')}:" in makefile, text
    assert len({text for _, text, _, _ in ROWS}) == len(ROWS)
