"""One Spark session for all tests of this folder, and real nodes to read from."""

import http.client
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import raftline
from raftline.chaos.rig import Rig
from raftline.client.line import Line
from tests.spark import faulty

ROOT = Path(__file__).parents[2]
TEST_S_MAX = 600
SESSION = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.log.level": "ERROR",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests time: the first one that uses Spark waits for the session as well."""
    for item in items:
        if item.path.parent == Path(__file__).parent and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TEST_S_MAX))


@pytest.fixture(scope="session")
def spark(home: Path) -> Iterator[Any]:
    """The session that all tests share; it costs some 20 s once."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Spark's own processes import what tests register, and hear of faults that tests ask for.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    os.environ[faulty.FAULTS] = str(home / "faults")
    (home / "faults").mkdir()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    import raftline.spark

    # A task that fails is run again, as on a cluster.
    builder = SparkSession.builder.master("local[2,3]").appName("raftline tests")
    for name, value in SESSION.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    raftline.spark.register(session)
    session.dataSource.register(faulty.FaultyDataSource)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def node(home: Path) -> Iterator[Rig]:
    """One node that all tests share: each uses topics of its own."""
    rig = Rig(home / "node", nodes=1)
    try:
        rig.directory.mkdir(parents=True, exist_ok=True)
        rig.start_all()
        yield rig
    finally:
        rig.close()


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Clusters of a test's own, for those that kill nodes."""
    made: list[Rig] = []

    def make(**options: Any) -> Rig:
        rig = Rig(tmp_path / f"cluster-{len(made)}", **options)
        made.append(rig)
        rig.directory.mkdir(parents=True, exist_ok=True)
        rig.start_all()
        return rig

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def servers(node: Rig) -> str:
    return servers_of(node)


@pytest.fixture
def line(node: Rig) -> Iterator[Line]:
    with raftline.connect(servers_of(node)) as found:
        yield found


@pytest.fixture
def topic(request: pytest.FixtureRequest, line: Line) -> str:
    """A name of the test's own; ``make_topic`` or a first publish creates it."""
    name = request.node.name.replace("[", "-").replace("]", "").replace("test_", "")
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in name)[:200]


def servers_of(rig: Rig) -> str:
    return ",".join(rig.node(name).http for name in rig.names)


def publish(line: Line, topic: str, values: Sequence[bytes], **wishes: Any) -> None:
    """Send values and wait until all are stored."""
    for sending in line.send_many(topic, values, **wishes):
        sending.result()


def post_batch(servers: str, topic: str, partition: int, batch: bytes) -> None:
    """Append one sealed batch as it is."""
    host = servers.split(",", 1)[0].removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=30)
    kind = {"Content-Type": "application/vnd.raftline.batch"}
    connection.request("POST", f"/v1/topics/{topic}/partitions/{partition}/messages", batch, kind)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    assert response.status == 200, text
