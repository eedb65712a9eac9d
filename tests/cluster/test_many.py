"""Many partitions: nodes die and come back with all of them."""

import pytest

from raftline.chaos.rig import Rig, mono_ms
from raftline.chaos.traffic import Traffic
from tests.cluster.conftest import MakeRig


@pytest.mark.parametrize("partitions", [60, pytest.param(600, marks=pytest.mark.full)])
def test_hundreds_of_partitions_survive_their_leaders(make_rig: MakeRig, partitions: int) -> None:
    rig = make_rig()
    with rig.client(timeout_ms=30_000) as client:
        client.create_topic("many", partitions=partitions, replication_factor=0, settings={})
    _write_to_all(rig, partitions, "first")
    traffic = Traffic(rig).start()
    traffic.wait_acked(20)
    rig.kill("node-1")
    traffic.wait_acked(20)
    _write_to_all(rig, partitions, "without node-1")
    rig.restart("node-1")
    rig.kill(*rig.names)
    rig.start_all()
    _write_to_all(rig, partitions, "after all")
    with rig.client() as client:
        for partition in range(partitions):
            page = client.read("many", partition, 0, limit=10)
            values = [message.value for message in page.messages]
            assert values == [b"first", b"without node-1", b"after all"], (partition, values)
    # All nodes start at once, and each elects leaders for all partitions on the same two cores.
    traffic.finish(outage_ms_max=10_000 if partitions < 100 else 30_000)


def _write_to_all(rig: Rig, partitions: int, value: str) -> None:
    """Write once to each partition; a call that ends as unknown would be a loss of sleep."""
    began_ms = mono_ms()
    with rig.client(timeout_ms=20_000) as client:
        for partition in range(partitions):
            (sent,) = client.send("many", [value.encode()], partition=partition)
            assert sent.error is None, (partition, sent)
    print(f"{value}: {partitions} partitions written in {mono_ms() - began_ms:.0f} ms")
