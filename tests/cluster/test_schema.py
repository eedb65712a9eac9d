"""Requests of every kind, made from /openapi.json: never a 5xx, never an answer it does not allow.

Half of the requests are about things that exist: names, ids and tokens of the node's own answers
are put in place of the generated ones.
"""

import random
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import Case
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.schemas import APIOperation

from raftline.chaos.rig import STACK_TRACE, Rig

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
WAIT_MS = 20  # instead of whatever wait was generated
TIMEOUT_S = 20
# Requests that fit their description and change who is in the cluster: what they do to one is
# tested elsewhere (test_membership.py), here they would leave no cluster to ask.
LEFT_OUT = ("/cluster/add", "/cluster/recover", "/cluster/remove", "/cluster/replace")
FROZEN = ("DELETE",)  # of topics that the other requests need


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("schema"), nodes=1, settings=("limits.timeout_ms=3000",))
    try:
        made.start_all()
        yield made
    finally:
        made.close()


class Known:
    """What there is, to be named in requests."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.values: dict[str, list[str]] = {
            "topic": ["orders", "tasks"],
            "group": ["billing", "workers"],
            "partition": ["0"],
            "number": ["1"],
            "consumerID": ["c-1"],
            "partitionID": ["0"],
        }
        self._fill()

    def post(self, path: str, body: Any) -> Any:
        reply = requests.post(self.url + path, json=body, timeout=10)
        assert reply.status_code in (200, 201, 204), reply.text
        return reply.json() if reply.content else None

    def _fill(self) -> None:
        """Have one of everything: delayed, leased, dead, settled messages, groups, members."""
        self.post("/v1/topics", {"name": "orders", "num_partitions": 1})
        rows = [{"value": f"v{n}", "key": f"k{n}", "priority": n} for n in range(6)]
        rows.append({"value": "later", "delay": "1h"})
        sent = self.post("/v1/topics/orders/messages", {"messages": rows})["results"]
        got = self.post("/v1/topics/orders/groups/billing/receive", {"count": 3})["messages"]
        self.post("/messages/reject", {"lease_token": got[0]["lease_token"], "reason": "bad"})
        self.post("/messages/ack", {"lease_token": got[1]["lease_token"]})
        tasks = [self.post("/tasks", {"type": "email", "payload": {"n": n}}) for n in range(3)]
        self.post("/tasks/lease", {"worker_id": "worker-1"})
        member = self.post("/v1/groups/readers/join", {"topics": ["orders"]})
        body = {"consumerID": "c-1", "consumerGroup": "queue", "topics": ["orders"]}
        self.post("/connect", body)
        self.values["id"] = [row["id"] for row in sent] + [task["id"] for task in tasks]
        self.values["id"] += ["orders.dlq.0.0"]
        self.values["lease_token"] = self.values["receipt_handle"] = [got[2]["lease_token"]]
        self.values["worker_id"] = ["worker-1"]
        self.values["member_id"] = [member["member_id"]]
        self.values["generation"] = [str(member["generation"])]
        self.values["group"].append("readers")


def put_known(case: Case, known: Known, rng: random.Random) -> None:
    """Name things that exist in half of the places that name something."""
    for part in (case.path_parameters, case.query, case.body):
        if not isinstance(part, dict):
            continue
        for name in list(part):
            if name in known.values and rng.random() < 0.5:
                value = rng.choice(known.values[name])
                part[name] = int(value) if isinstance(part[name], int) else value
    _be_brief(case)


def _be_brief(case: Case) -> None:
    """Wait for nothing, and give back what is leased before long."""
    query = case.query if isinstance(case.query, dict) else {}
    for name in ("wait_ms", "timeout"):
        if name in query:
            query[name] = str(WAIT_MS)
    query.pop("timeout_ms", None)
    if isinstance(case.headers, dict) or case.headers is not None:
        for name in [name for name in case.headers if name.lower() == "raftline-timeout-ms"]:
            del case.headers[name]
    if isinstance(case.body, dict):
        if "wait" in case.body:
            case.body["wait"] = WAIT_MS
        case.body.pop("rate_per_s", None)
        if "num_partitions" in case.body or "numberOfPartitions" in case.body:
            for name in ("num_partitions", "numberOfPartitions"):
                if isinstance(case.body.get(name), int):
                    case.body[name] = min(case.body[name], 2)


def is_left_out(operation: APIOperation) -> bool:
    path, method = operation.path, operation.method.upper()
    if path.endswith(LEFT_OUT) and method == "POST":
        return True
    return method in FROZEN and path.endswith("/topics/{topic}")


def ask(operation: APIOperation, known: Known, count: int, problems: list[str]) -> int:
    """Make ``count`` requests of one route; return how many were answered with a success."""
    rng = random.Random(operation.label)
    done = 0

    @seed(7)
    @given(case=operation.as_strategy())
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def run(case: Case) -> None:
        nonlocal done
        put_known(case, known, rng)
        response = case.call(base_url=known.url, timeout=TIMEOUT_S)
        done += response.status_code < 300
        try:
            case.validate_response(response, checks=CHECKS)
        except (Exception, BaseExceptionGroup) as failure:  # noqa: BLE001
            problems.append(f"{case.as_curl_command()}\n{response.status_code}\n{failure}")

    run()
    return done


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [3, pytest.param(25, marks=pytest.mark.full)])
def test_requests_of_every_kind(rig: Rig, count: int) -> None:
    url = rig.node("node-1").http
    document = requests.get(f"{url}/openapi.json", timeout=10).json()
    schema = schemathesis.openapi.from_dict(document)
    known = Known(url)
    problems: list[str] = []
    asked = done = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        if is_left_out(operation):
            continue
        asked += 1
        done += ask(operation, known, count, problems) > 0
        assert rig.running() == ["node-1"], rig.log_text("node-1")[-3000:]
    assert STACK_TRACE not in rig.log_text("node-1")
    print(f"{asked} routes, {done} of them with a success, {len(problems)} problems")
    assert not problems, f"{len(problems)} problems\n" + "\n\n".join(problems[:5])
    assert asked > 140
