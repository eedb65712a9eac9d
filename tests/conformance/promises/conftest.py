"""One cluster for all promises, and every way to talk to it."""

import socket
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from raftline.chaos.rig import Rig, wait_for
from tests.conformance.promises.client_driver import ClientDriver
from tests.conformance.promises.driver import Driver
from tests.conformance.promises.grpc_driver import GrpcDriver
from tests.conformance.promises.http_driver import HttpDriver
from tests.conformance.promises.mixed_driver import MixedDriver

NAMES = ("http", "grpc", "client", "client-grpc", "mixed")
NUMBERS = count()
MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Three nodes that live as long as the tests of promises."""
    rig = Rig(tmp_path_factory.mktemp("promises"))
    try:
        rig.start_all()
        for name in rig.names:  # gRPC begins a moment after a node takes work
            host, port = rig.node(name).grpc.split(":")

            def listens(address: tuple[str, int] = (host, int(port))) -> bool:
                with socket.socket() as probe:
                    return probe.connect_ex(address) == 0

            wait_for(listens, 20, lambda name=name: rig.log_text(name)[-2000:])
        yield rig
    finally:
        rig.close()


@pytest.fixture(scope="session")
def drivers(cluster: Rig) -> Iterator[dict[str, Driver]]:
    """Every way in, each through a node of its own; the client finds them all."""
    first, second, third = (cluster.node(name) for name in cluster.names)
    made: dict[str, Driver] = {
        "http": HttpDriver(first.http),
        "grpc": GrpcDriver(second.grpc),
        "client": ClientDriver([third.http]),
        "client-grpc": ClientDriver([f"grpc://{first.grpc}"], "client-grpc"),
    }
    made["mixed"] = MixedDriver(list(made.values()))
    yield made
    for driver in made.values():
        driver.close()


@pytest.fixture(params=NAMES)
def driver(request: pytest.FixtureRequest, drivers: dict[str, Driver]) -> Driver:
    """One way in: every promise is held through each."""
    return drivers[request.param]


@pytest.fixture
def topic(driver: Driver) -> MakeTopic:
    """Return a maker of topics that nobody else uses, where retries are quick."""

    def make(*, partitions: int = 1, **settings: Any) -> str:
        name = f"{driver.name}-{next(NUMBERS)}"
        driver.create(name, partitions=partitions, **{"backoff_ms": 100, **settings})
        return name

    return make
