"""A majority is gone for good: nothing is automatic, a person accepts the loss."""

from raftline.chaos.rig import wait_for
from raftline.chaos.traffic import BATCH, Caller, Traffic, wall_ms
from raftline.testing.batches import seal
from raftline.testing.history import BODY_FROM
from tests.cluster.conftest import MakeRig


def test_the_last_node_goes_on_alone_after_the_loss_is_accepted(make_rig: MakeRig) -> None:
    rig = make_rig()
    traffic = Traffic(rig).start()
    traffic.wait_acked(60)
    traffic.stop()
    traffic.wait_level()
    rig.kill("node-1", "node-3")
    rig.wipe("node-1")
    rig.wipe("node-3")

    caller = Caller(rig)
    rig.at_close.append(caller.close)
    path = "/v1/topics/orders/partitions/0/messages"
    batch = seal([b"nobody to agree"], [wall_ms()])
    refused = caller.call(
        "node-2", "POST", path, batch, timeout_ms=1500, fields={"Content-Type": BATCH}
    )
    assert refused.status in (503, 504), refused.body
    traffic.history.sent(batch[BODY_FROM:])  # after a 504 it may yet be stored

    said = rig.command("cluster", "recover")
    assert said.exit == 2, said
    assert "--accept-loss" in said.err
    said = rig.command("cluster", "recover", "--accept-loss", "--timeout", "20s")
    assert said.exit == 0, said

    traffic.finish()
    assert [row["name"] for row in rig.status()["nodes"]] == ["node-2"]

    # The lost ones may come back, with empty disks, as new nodes.
    rig.restart("node-1")
    numbers = {row["name"]: row["id"] for row in rig.status()["nodes"]}
    assert numbers["node-1"] > 3
    wait_for(lambda: rig.status("node-1")["ready"], 10)
    said = rig.command("topic", "create", "after", "--replication-factor", "2")
    assert said.exit == 0, said
    rig.stop("node-1")
