"""Nodes that come and go on request while clients go on."""

from raftline.chaos.rig import Rig, wait_for
from raftline.chaos.traffic import Traffic
from tests.cluster.conftest import MakeRig
from tests.cluster.test_disks import HEAVY, SMALL


def test_a_fourth_node_joins_takes_over_and_leaves_under_load(make_rig: MakeRig) -> None:
    rig = make_rig(settings=SMALL)
    traffic = Traffic(rig, **HEAVY).start()
    traffic.wait_acked(60)
    rig.join()
    assert "node-4" in rig.running()
    traffic.wait_acked(20)

    # New topics use it at once; what is there does not move unasked.
    assert rig.number("node-4") not in _replicas(rig, "orders", 0)
    said = rig.command("topic", "create", "wide", "--partitions", "4", "--replication-factor", "3")
    assert said.exit == 0, said
    assert any(rig.number("node-4") in _replicas(rig, "wide", p) for p in range(4))

    # One replica moves, then leadership follows.
    source = rig.followers_of("orders")[0]
    if source == "node-4":
        source = rig.followers_of("orders")[1]
    said = rig.command("cluster", "move", "orders/0", "--from", source, "--to", "node-4")
    assert said.exit == 0, said
    _wait_settled(rig, "orders", 0, has="node-4", lacks=rig.number(source))
    traffic.wait_acked(20)
    said = rig.command("cluster", "transfer", "orders/0", "--to", "node-4")
    assert said.exit == 0, said
    wait_for(lambda: rig.leader_of("orders") == "node-4", 10)
    traffic.wait_acked(20)
    traffic.finish()


def test_a_node_is_replaced_by_another_and_can_be_switched_off(make_rig: MakeRig) -> None:
    rig = make_rig(settings=SMALL)
    traffic = Traffic(rig, **HEAVY).start()
    traffic.wait_acked(60)
    rig.join()
    old = rig.leader_of("orders")
    number = rig.number(old)
    said = rig.command("cluster", "replace", old, "--by", "node-4")
    assert said.exit == 0, said
    for partition in range(2):
        _wait_settled(rig, "orders", partition, has="node-4", lacks=number)
    _wait_gone(rig, old)
    traffic.wait_acked(20)
    rig.stop(old)
    traffic.wait_acked(20)
    traffic.finish()


def test_a_node_is_removed_and_its_replicas_find_a_home(make_rig: MakeRig) -> None:
    rig = make_rig(settings=SMALL)
    traffic = Traffic(rig, **HEAVY).start()
    traffic.wait_acked(40)
    said = rig.command("cluster", "remove", "node-2")
    assert said.exit == 6, said  # three replicas, two nodes: refused, nothing changed
    assert "node" in said.err
    assert "hint:" in said.err
    rig.join()
    said = rig.command("cluster", "remove", "node-2")
    assert said.exit == 0, said
    _wait_gone(rig, "node-2")
    rig.stop("node-2")
    traffic.wait_acked(20)
    traffic.finish()


def test_a_move_is_finished_although_leaders_die(make_rig: MakeRig) -> None:
    rig = make_rig(settings=SMALL)
    traffic = Traffic(rig, **HEAVY).start()
    traffic.wait_acked(60)
    rig.join()
    old = rig.followers_of("orders")[0]
    old = old if old != "node-4" else rig.followers_of("orders")[1]
    number = rig.number(old)
    said = rig.command("cluster", "replace", old, "--by", "node-4")
    assert said.exit == 0, said
    for victim in ("node-4", rig.leader_of("orders", 1), rig.leader_of("orders", 0)):
        rig.kill(victim)
        rig.restart(victim)
    for partition in range(2):
        _wait_settled(rig, "orders", partition, has="node-4", lacks=number)
    _wait_gone(rig, old)
    rig.stop(old)
    traffic.finish()


def _replicas(rig: Rig, topic: str, partition: int) -> list[int]:
    with rig.client() as client:
        return client.topic(topic)["partitions"][partition]["replicas"]


def _wait_settled(rig: Rig, topic: str, partition: int, *, has: str, lacks: int) -> None:
    """Wait until a move is over: the catalog's wish is the shard's own configuration."""
    came = rig.number(has)

    def settled() -> bool:
        with rig.client(has) as client:
            row = client.topic(topic)["partitions"][partition]
        return came in row["replicas"] and lacks not in row["replicas"] and row["state"] == "ok"

    def shown() -> str:
        with rig.client(has) as client:
            return f"{client.topic(topic)['partitions']} {rig.log_text(has)[-1500:]}"

    wait_for(settled, 20, shown)


def _wait_gone(rig: Rig, name: str) -> None:
    others = [other for other in rig.running() if other != name]
    wait_for(
        lambda: name not in [row["name"] for row in rig.status(*others)["nodes"]],
        20,
        lambda: str(rig.status(*others)) + rig.log_text(name)[-1500:],
    )


def test_a_node_comes_back_at_another_address(make_rig: MakeRig) -> None:
    rig = make_rig()
    traffic = Traffic(rig).start()
    traffic.wait_acked(20)
    rig.stop("node-2")
    rig.move_ports("node-2")
    rig.restart("node-2")
    address = rig.node("node-2").peer
    for name in rig.names:
        wait_for(
            lambda name=name: (
                ("node-2", address, "live")
                in [(row["name"], row["peer"], row["state"]) for row in rig.status(name)["nodes"]]
            ),
            10,
            lambda name=name: str(rig.status(name)["nodes"]),
        )
    rig.kill("node-1")  # the one that moved is needed for a majority now
    traffic.wait_acked(20)
    rig.restart("node-1")
    traffic.finish()
