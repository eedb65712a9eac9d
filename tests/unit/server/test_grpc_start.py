"""gRPC beside a node: when it starts, and what happens when it cannot."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import uvloop

from raftline.config.settings import ListenSettings, Settings
from raftline.node.clock import LoopClock
from raftline.server.grpc_start import GrpcStart, load_gateway
from raftline.server.kafka_start import KafkaStart
from raftline.transport.addresses import hold
from tests.unit.gateways.little_node import LittleNode
from tests.unit.transport.free_port import bind_free


def run(scenario: Callable[..., Any], load: Callable[[], Any] = load_gateway) -> list[Any]:
    """Run a scenario with a start on a free port; return what was logged."""
    logged: list[Any] = []

    async def main() -> None:
        with bind_free() as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        settings = msgspec.structs.replace(Settings(), listen=ListenSettings(grpc=address))
        node = LittleNode()
        node.ready = False

        def log(level: str, event: str, **fields: Any) -> None:
            logged.append((level, event, fields))

        clock = LoopClock(asyncio.get_running_loop())
        start = GrpcStart(clock, node, settings, hold(address), log, load)  # type: ignore[arg-type]
        async with asyncio.timeout(30):
            await scenario(start, node, address)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    return logged


def listens(address: str) -> bool:
    host, port = address.split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def test_it_starts_after_the_node_is_ready_and_ends() -> None:
    async def scenario(start: GrpcStart, node: LittleNode, address: str) -> None:
        start.begin()
        await asyncio.sleep(0.3)
        assert not listens(address), "not before the node takes work"
        node.ready = True
        await until(lambda: listens(address))
        await start.end()
        assert not listens(address)

    assert [(level, event) for level, event, _ in run(scenario)] == [("info", "grpc.started")]


def test_a_node_without_grpc_serves_without() -> None:
    tried: list[int] = []

    def load() -> Any:
        tried.append(1)
        raise ImportError("No module named 'grpc'")

    async def scenario(start: GrpcStart, node: LittleNode, address: str) -> None:
        node.ready = True
        start.begin()
        await until(lambda: bool(tried))
        await asyncio.sleep(0.05)
        assert not listens(address)
        await start.end()

    ((level, event, fields),) = run(scenario, load)
    assert (level, event) == ("error", "grpc.unavailable")
    assert "No module named" in fields["error"]


def test_an_end_before_the_start_is_no_start() -> None:
    async def scenario(start: GrpcStart, node: LittleNode, address: str) -> None:
        start.begin()
        await start.end()
        node.ready = True
        await asyncio.sleep(0.4)
        assert not listens(address)

    assert run(scenario) == []


def test_a_port_is_held_and_one_that_is_taken_refused() -> None:
    with bind_free() as taken, pytest.raises(OSError, match="in use"):
        hold(f"127.0.0.1:{taken.getsockname()[1]}")


def test_a_process_loads_no_grpc_to_start() -> None:
    text = (
        "import sys, raftline.server.process, raftline.node.node;"
        "print([n for n in sys.modules if n.split('.')[0] in ('grpc', 'google')])"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_kafka_clients_wait_for_the_loading_only() -> None:
    """Before the node takes work they are refused: they go to another one."""
    logged: list[Any] = []

    async def main() -> None:
        with bind_free() as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        settings = msgspec.structs.replace(Settings(), listen=ListenSettings(kafka=address))
        node = LittleNode()
        node.ready = False

        def log(_level: str, event: str, **fields: Any) -> None:
            logged.append(event)

        def load() -> Any:
            raise ImportError("No module named 'crc32c'")

        clock = LoopClock(asyncio.get_running_loop())
        start = KafkaStart(clock, node, settings, hold(address), log, load)  # type: ignore[arg-type]
        start.begin()
        await asyncio.sleep(0.1)
        assert not listens(address)
        node.ready = True
        await until(lambda: listens(address))
        await until(lambda: bool(logged))
        assert not listens(address), "nobody will ever take them"
        await start.end()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), 30))
    assert logged == ["kafka.unavailable"]
