"""A node that just started knows an old catalog: it denies nothing, by any protocol."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from raftline.chaos.rig import Rig
from raftline.chaos.traffic import Caller
from raftline.gateways.kafka.configs import TOPIC
from raftline.gateways.kafka.errors import LEADER_NOT_AVAILABLE, NONE, UNKNOWN_TOPIC_OR_PARTITION
from raftline.gateways.kafka.schema import METADATA
from raftline.gateways.kafka.schema_admin import DESCRIBE_CONFIGS
from raftline.wire.proto.raftline.v1 import admin_pb2, messages_pb2
from tests.cluster.conftest import MakeRig
from tests.cluster.test_grpc import wait_serving
from tests.conformance.kafka.wire import Wire
from tests.unit.gateways.grpc_rig import Stubs

YES, LATER, NO = "yes", "later", "no"
LATE = "node-3"
Ask = Callable[[str], str]  # topic -> verdict


def by_http(rig: Rig) -> dict[str, Ask]:
    caller = Caller(rig)
    rig.at_close.append(caller.close)

    def ask(path: str, topic: str) -> str:
        answer = caller.call(LATE, "GET", path.format(topic=topic) + "timeout_ms=1000")
        if answer.status == 503:
            assert answer.error["code"] == "not_ready", answer.body
        return {200: YES, 503: LATER, 404: NO}[answer.status]

    paths = (
        "/v1/topics/{topic}?",
        "/v1/topics/{topic}/partitions/0/messages?offset=0&any_replica=true&",
        "/v1/topics/{topic}/offsets?",
    )
    return {path: lambda topic, path=path: ask(path, topic) for path in paths}


def by_kafka(rig: Rig) -> dict[str, Ask]:
    verdicts = {NONE: YES, LEADER_NOT_AVAILABLE: LATER, UNKNOWN_TOPIC_OR_PARTITION: NO}

    def metadata(topic: str) -> str:
        row = {"name": topic, "topic_id": bytes(16)}
        request = {"topics": [row], "allow_auto_topic_creation": False}
        with Wire(rig.node(LATE).kafka) as wire:
            return verdicts[wire.ask(METADATA, 12, request)["topics"][0]["error_code"]]

    def configs(topic: str) -> str:
        row = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": None}
        request = {"resources": [row]}
        with Wire(rig.node(LATE).kafka) as wire:
            return verdicts[wire.ask(DESCRIBE_CONFIGS, 4, request)["results"][0]["error_code"]]

    return {"Metadata": metadata, "DescribeConfigs": configs}


def by_grpc(rig: Rig) -> dict[str, Ask]:
    def ask(name: str, topic: str) -> str:
        async def main() -> Any:
            async with grpc.aio.insecure_channel(rig.node(LATE).grpc) as channel:
                stubs = Stubs(channel)
                if name == "ShowTopic":
                    request = admin_pb2.ShowTopicRequest(name=topic)
                    return await stubs.AdminService.ShowTopic(request, timeout=2)
                asked = messages_pb2.ReadRequest(topic=topic, any_replica=True)
                return await stubs.MessageService.Read(asked, timeout=2)

        try:
            asyncio.run(main())
        except grpc.aio.AioRpcError as error:
            known = {grpc.StatusCode.UNAVAILABLE: LATER, grpc.StatusCode.NOT_FOUND: NO}
            return known[error.code()]
        return YES

    return {name: lambda topic, name=name: ask(name, topic) for name in ("ShowTopic", "Read")}


def test_a_topic_made_while_a_node_was_down_is_never_denied_by_it(make_rig: MakeRig) -> None:
    rig = make_rig()
    assert rig.command("topic", "create", "early", "--partitions", "1").exit == 0
    rig.kill(LATE)
    assert rig.command("topic", "create", "made", "--partitions", "1").exit == 0
    assert rig.command("produce", "made", "-m", "one").exit == 0
    others = [name for name in rig.names if name != LATE]
    for name in others:
        rig.pause(name)
    try:
        rig.restart(LATE)  # it takes work: it knows what was before
        wait_serving(rig, LATE)
        asks = {**by_http(rig), **by_kafka(rig), **by_grpc(rig)}
        assert {name: ask("made") for name, ask in asks.items()} == dict.fromkeys(asks, LATER)
    finally:
        for name in others:
            rig.resume(name)
    deadline = time.monotonic() + 30
    for name, ask in asks.items():
        while (verdict := ask("made")) == LATER and time.monotonic() < deadline:
            time.sleep(0.05)
        assert verdict == YES, name
    assert {name: ask("never-made") for name, ask in asks.items()} == dict.fromkeys(asks, NO)
