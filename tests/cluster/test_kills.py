"""Nodes that die: nothing acknowledged is lost, and the others go on."""

import time

import pytest

from raftline.chaos.traffic import Traffic
from tests.cluster.conftest import MakeRig


@pytest.mark.parametrize("kills", [3, pytest.param(10, marks=pytest.mark.full)])
def test_the_leader_is_killed_again_and_again_under_load(make_rig: MakeRig, kills: int) -> None:
    rig = make_rig()
    traffic = Traffic(rig).start()
    for _ in range(kills):
        traffic.wait_acked(60)
        leader = rig.leader_of("orders")
        rig.kill(leader)
        traffic.wait_acked(20)
        rig.restart(leader)
    traffic.finish()


def test_all_nodes_are_killed_at_once_under_load(make_rig: MakeRig) -> None:
    rig = make_rig()
    traffic = Traffic(rig).start()
    for _ in range(2):
        traffic.wait_acked(80)
        rig.kill(*rig.names)
        rig.start_all()
    traffic.wait_acked(20)
    traffic.finish()


def test_a_paused_leader_is_replaced_and_finds_its_way_back(make_rig: MakeRig) -> None:
    rig = make_rig()
    traffic = Traffic(rig).start()
    traffic.wait_acked(60)
    leader = rig.leader_of("orders")
    rig.pause(leader)
    traffic.wait_acked(40)
    time.sleep(1)
    assert rig.leader_of("orders") != leader
    rig.resume(leader)
    traffic.wait_acked(40)
    traffic.finish()


def test_a_leader_that_wakes_up_tells_no_old_news(make_rig: MakeRig) -> None:
    """Clients stay with the paused leader: what it says after its sleep must be true by then."""
    rig = make_rig()
    traffic = Traffic(rig, readers=3, stubborn=True).start()
    for _ in range(3):
        traffic.wait_acked(30, 25)
        leader = rig.leader_of("orders")
        rig.pause(leader)
        time.sleep(2)
        rig.resume(leader)
    traffic.wait_acked(20, 25)
    traffic.finish()


def test_a_clean_stop_and_start_keeps_everything(make_rig: MakeRig) -> None:
    rig = make_rig()
    traffic = Traffic(rig).start()
    traffic.wait_acked(60)
    rig.stop(*rig.names)
    rig.start_all()
    traffic.wait_acked(20)
    traffic.finish()
