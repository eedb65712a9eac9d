"""A replica far behind is filled with segments while writes go on."""

import pytest

from raftline.chaos.rig import wait_for
from raftline.chaos.traffic import Traffic
from tests.cluster.conftest import MakeRig
from tests.cluster.test_disks import SMALL


@pytest.mark.parametrize(
    ("messages", "batch", "settings"),
    [
        (20_000, 200, SMALL),
        pytest.param(1_000_000, 1_000, (), marks=[pytest.mark.full, pytest.mark.timeout(600)]),
    ],
    ids=["20k", "1M"],
)
def test_a_follower_far_behind_catches_up_while_writes_go_on(
    make_rig: MakeRig, messages: int, batch: int, settings: tuple[str, ...]
) -> None:
    rig = make_rig(settings=settings)
    traffic = Traffic(rig, partitions=1, texts=0, pause_s=0.03).start()
    traffic.wait_acked(20)
    behind = rig.followers_of("orders")[0]
    rig.stop(behind)
    traffic.bulk(messages, batch)
    rig.restart(behind)
    took_s = wait_for(
        lambda: bool(rig.events(behind, "replica.caught_up")),
        120,
        lambda: rig.log_text(behind)[-2000:],
    )
    filled = rig.events(behind, "replica.caught_up")
    print(f"caught up in {took_s:.1f} s: {filled}")
    assert sum(event["bytes"] for event in filled) > messages * 100 // 2, "not by segments"
    traffic.wait_acked(20)
    traffic.finish()
