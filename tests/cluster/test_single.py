"""A node without others has nobody to repair it: damage is named, never served, never hidden."""

import contextlib
import time
from pathlib import Path

import pytest

from raftline.chaos.rig import Rig, flip_bit, wait_for
from raftline.chaos.traffic import Caller
from tests.cluster.conftest import MakeRig
from tests.cluster.test_disks import SMALL

MESSAGES = 400
PATH = "/v1/topics/orders/partitions/0/messages"


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    """One node with a partition of several segments and a second, sound topic."""
    made = make_rig(nodes=1, settings=[s for s in SMALL if "checkpoint" not in s])
    with made.client() as client:
        for topic in ("orders", "other"):
            client.create_topic(topic, partitions=1, replication_factor=0, settings={})
        client.send("other", [b"sound"])
        for start in range(0, MESSAGES, 10):
            client.send("orders", [f"{start + i:05}".encode() * 100 for i in range(10)])
    return made


def values(rig: Rig) -> tuple[list[str], str]:
    """Read as far as it goes; return the messages and the error code that ended it."""
    caller = Caller(rig)
    found: list[str] = []
    code = ""
    while len(found) < MESSAGES and not code:
        answer = caller.call("node-1", "GET", f"{PATH}?offset={len(found)}&limit=1")
        if answer.status == 200:
            rows = answer.json()["messages"]
            assert rows, f"the log ends at {len(found)}: acknowledged messages are gone"
            found += [row["value"] for row in rows]
        else:
            code = answer.error["code"]
            assert "orders" in answer.error["message"]
            assert answer.error["hint"]
    caller.close()
    return found, code


def right(found: list[str]) -> bool:
    return found == [f"{i:05}" * 100 for i in range(len(found))]


def test_a_damaged_segment_is_refused_and_the_rest_served(rig: Rig) -> None:
    home = rig.shard_home("node-1", "orders") / "log"
    rig.stop("node-1")
    segment = sorted(home.glob("*.log"))[1]
    flip_bit(segment, segment.stat().st_size // 2)
    rig.restart("node-1")
    found, code = values(rig)
    assert code == "damaged"
    assert 0 < len(found) < MESSAGES
    assert right(found)
    caller = Caller(rig)
    last = caller.call("node-1", "GET", f"{PATH}?offset={MESSAGES - 1}").json()["messages"]
    assert last[0]["value"] == f"{MESSAGES - 1:05}" * 100
    caller.close()
    assert rig.command("produce", "orders", "-m", "goes on").exit == 0
    verified = rig.command("cluster", "verify", "--timeout", "2s")
    assert verified.exit == 9, verified  # it cannot say that all is well
    assert rig.events("node-1", "log.damaged")


@pytest.mark.parametrize("what", ["wal", "checkpoint"])
def test_a_replica_that_cannot_be_trusted_is_out_of_service(rig: Rig, what: str) -> None:
    home = rig.shard_home("node-1", "orders")
    if what == "wal":
        time.sleep(0.5)  # idle for a moment: the WAL notes that its last group was synced
        rig.kill("node-1")
        _flip_wal_of_orders(rig.home("node-1"))
    else:
        rig.stop("node-1")
        for file in home.glob("checkpoint*"):
            flip_bit(file, file.stat().st_size // 2)
    rig.restart("node-1")
    found, code = values(rig)
    assert right(found)
    assert (found, code) == ([], "damaged")
    quarantined = rig.status()["quarantined"]
    assert len(quarantined) == 1
    assert quarantined[0].startswith("orders/0: ")
    said = rig.command("produce", "orders", "-m", "x")
    assert said.exit == 7, said
    assert "orders/0" in said.err
    assert rig.command("consume", "other", "--from-beginning").out.strip() == "sound"
    assert (home / "log").exists(), "nothing is deleted where nobody else has it"


def _flip_wal_of_orders(home: Path) -> None:
    """Damage the last entry of orders in the WAL: it is below what was synced."""
    for file in sorted((home / "wal").iterdir()):
        data = file.read_bytes()
        at = data.rfind(f"{MESSAGES - 5:05}".encode() * 50)
        if at > 0:
            flip_bit(file, at)
            return
    raise AssertionError("the WAL does not hold the last messages")


def test_a_damaged_catalog_is_named(rig: Rig) -> None:
    rig.stop("node-1")
    for file in (rig.home("node-1") / "shards" / "1").glob("checkpoint*"):
        flip_bit(file, file.stat().st_size // 2)
    rig.spawn("node-1")
    caller = Caller(rig)
    rig.at_close.append(caller.close)

    def named() -> bool:
        with contextlib.suppress(OSError):  # it does not listen yet
            health = caller.call("node-1", "GET", "/health")
            return health.status == 503 and "catalog" in health.json()["reason"]
        return False

    wait_for(named, 20, lambda: rig.log_text("node-1")[-2000:])


def test_crashes_before_the_first_checkpoint_leave_no_copies(rig: Rig) -> None:
    homes = rig.home("node-1") / "shards"
    for _ in range(3):
        rig.kill("node-1")
        rig.restart("node-1")
    found, code = values(rig)
    assert (len(found), code) == (MESSAGES, "")
    assert right(found)
    assert not [path for path in homes.rglob("*") if "aside" in path.name or "old-" in path.name]
