"""The world itself: order, pauses, crashes, lanes, clocks, links. With a toy, no node."""

import pytest

from raftline.testing.cluster import SimCluster, SimError, duration_ms
from raftline.testing.sim_net import QUIET, Noise
from raftline.testing.world import EPOCH_MS, SOCKET, TIMER, LaneSettings, SimLane, World
from tests.simulation.toy import Toy, ToyStore, toy_builder


def test_events_run_in_order_of_time_then_of_asking() -> None:
    world, seen = World(1), []
    world.at(5.0, lambda: seen.append("b"))
    world.at(1.0, lambda: seen.append("a"))
    world.at(5.0, lambda: seen.append("c"))
    world.at(5.0, lambda: world.after(0.0, lambda: seen.append("soon")))
    world.at(5.0, lambda: seen.append("d"))
    world.run_to(9.0)
    assert seen == ["a", "b", "c", "d", "soon"]
    assert world.now_ms == 9.0


def test_a_cancelled_event_does_not_happen() -> None:
    world, seen = World(1), []
    world.at(1.0, lambda: seen.append(1)).cancel()
    world.run_to(2.0)
    assert seen == []


def test_a_pause_ends_in_a_burst_with_sockets_before_timers() -> None:
    world, seen = World(1), []
    process = world.new_process("p")
    world.at(1.0, lambda: seen.append("tick 1"), process, TIMER)
    world.at(2.0, lambda: seen.append("frame 1"), process, SOCKET)
    world.at(3.0, lambda: seen.append("tick 2"), process, TIMER)
    world.at(4.0, lambda: seen.append("frame 2"), process, SOCKET)
    world.pause(process)
    world.run_to(10.0)
    assert seen == []
    world.resume(process)
    world.run_to(10.0)
    assert seen == ["frame 1", "frame 2", "tick 1", "tick 2"]


def test_nothing_of_a_dead_process_happens() -> None:
    world, seen = World(1), []
    process = world.new_process("p")
    world.at(1.0, lambda: seen.append(1), process)
    world.pause(process)
    world.run_to(2.0)
    world.kill(process)
    world.resume(process)
    world.run_to(3.0)
    assert seen == []


def test_a_lane_keeps_order_through_a_stall() -> None:
    world, seen = World(1), []
    process = world.new_process("p")
    lane = SimLane(world, process, world.fork_rng(), LaneSettings())
    for i in range(5):
        lane.submit(lambda i=i: i, lambda result, error: seen.append((result, world.now_ms)))
    lane.stalled_until_ms = 50.0
    lane.submit(lambda: 5, lambda result, error: seen.append((result, world.now_ms)))
    world.run_to(100.0)
    assert [result for result, _ in seen] == [0, 1, 2, 3, 4, 5]
    assert all(at_ms >= 50.0 for _, at_ms in seen)


def test_a_lane_hands_failures_to_done() -> None:
    world, seen = World(1), []
    process = world.new_process("p")
    lane = SimLane(world, process, world.fork_rng(), LaneSettings())
    lane.submit(lambda: 1 // 0, lambda result, error: seen.append((result, type(error))))
    world.run_to(10.0)
    assert seen == [(None, ZeroDivisionError)]


def toys(nodes: int = 2, seed: int = 1) -> tuple[SimCluster, list[Toy]]:
    cluster = SimCluster(nodes, seed, build=toy_builder(ToyStore()))
    for name in cluster.nodes:
        cluster.start(name)
    cluster.advance("1s")
    # The first to start found nobody listening; let everybody dial again.
    return cluster, [cluster.host(name).node for name in cluster.nodes]  # type: ignore[misc]


def link_to(toy: Toy, name: str):
    return next(link for link in toy.links if link.peer.name == name)


def test_links_carry_frames_in_order() -> None:
    cluster, (one, two) = toys()
    assert one.failures == [("10.0.0.2:7000", True, "connection refused")]
    link = link_to(two, "node-1")
    assert link.dialed
    assert link.address == "10.0.0.1:7000"
    frames = [bytes([9, i]) for i in range(50)]
    assert all(link.send([frame[:1], frame[1:]]) for frame in frames)
    cluster.advance("1s")
    assert one.heard == [("node-2", frame) for frame in frames]


def test_a_killed_process_resets_its_links_and_refuses_dials() -> None:
    cluster, (one, _) = toys()
    cluster.kill("node-2")
    cluster.advance("1s")
    assert one.links == []
    one.parts.network.dial("10.0.0.2:7000")
    cluster.advance("1s")
    assert one.failures[-1] == ("10.0.0.2:7000", True, "connection refused")


def test_a_host_without_power_says_nothing_until_it_is_back() -> None:
    cluster, (one, _) = toys()
    cluster.power_off("node-2")
    cluster.advance("5s")
    assert len(one.links) == 1  # half open: nobody told it
    one.parts.network.dial("10.0.0.2:7000")
    cluster.advance("2s")
    assert one.failures[-1] == ("10.0.0.2:7000", False, "timed out")
    cluster.start("node-2")
    old = one.links[0]
    old.send([b"\x09late"])
    cluster.advance("100ms")
    assert old not in one.links


@pytest.mark.parametrize("seed", range(6))
def test_a_cut_holds_frames_and_never_leaves_a_hole(seed: int) -> None:
    cluster, (one, two) = toys(seed=seed)
    link = link_to(two, "node-1")
    link.send([b"\x09a"])
    cluster.advance("10ms")
    cluster.cut("node-2", "node-1", both_ways=False)
    link.send([b"\x09b"])
    cluster.advance("1s")
    assert [frame for _, frame in one.heard] == [b"\x09a"]
    cluster.uncut("node-2", "node-1", both_ways=False)
    link.send([b"\x09c"])
    cluster.advance("1s")
    got = [frame for _, frame in one.heard]
    if link in two.links:
        assert got == [b"\x09a", b"\x09b", b"\x09c"]
    else:
        assert got == [b"\x09a"]
        assert one.links == []


def test_noise_disturbs_raft_frames_only() -> None:
    cluster, (one, two) = toys()
    cluster.net.disturb("node-2", "node-1", Noise(drop=0.3, duplicate=0.3, reorder=0.3))
    link = link_to(two, "node-1")
    for i in range(100):
        link.send([b"\x01", bytes([i])])
        link.send([b"\x03", bytes([i])])
    cluster.advance("1s")
    raft = [f[1] for _, f in one.heard if f[0] == 1]
    calls = [f[1] for _, f in one.heard if f[0] == 3]
    assert calls == list(range(100))
    assert len(set(raft)) < 100
    assert len(raft) > len(set(raft))
    assert raft != sorted(raft)
    cluster.net.disturb("node-2", "node-1", QUIET)
    one.heard.clear()
    for i in range(50):
        link.send([b"\x01", bytes([i])])
    cluster.advance("1s")
    assert [f[1] for _, f in one.heard] == list(range(50))
    assert link.unsent_bytes == 0


def test_a_dial_to_a_paused_process_times_out_and_leaves_nothing_behind() -> None:
    cluster, (one, two) = toys()
    cluster.pause("node-2")
    one.parts.network.dial("10.0.0.2:7000")
    cluster.advance("2s")
    assert one.failures[-1] == ("10.0.0.2:7000", False, "timed out")
    before = len(two.links)
    cluster.resume("node-2")
    cluster.advance("2s")
    assert len(two.links) == before


def test_a_refused_link_tells_the_caller_why() -> None:
    cluster, (one, two) = toys()
    two.refuse_links = "wrong cluster"
    one.parts.network.dial("10.0.0.2:7000", "bulk")
    cluster.advance("1s")
    assert one.failures[-1] == ("10.0.0.2:7000", False, "wrong cluster")


def test_wall_clocks_jump_and_drift_and_monotonic_ones_do_not() -> None:
    cluster, (one, _) = toys()
    clock, wall = one.parts.clock, cluster.host("node-1").wall
    assert clock.wall_ms() == EPOCH_MS + 1_000
    before = clock.mono_ms()
    wall.jump(-5_000)
    wall.drift(2.0)
    cluster.advance("1s")
    assert clock.mono_ms() - before == 1_000
    assert clock.wall_ms() == EPOCH_MS - 2_000
    wall.true_up()
    assert clock.wall_ms() == EPOCH_MS + 2_000


def test_a_failed_sync_ends_the_process_with_its_reason() -> None:
    cluster, _ = toys()
    cluster.host("node-1").disk.fail_fdatasync("wal/")
    with pytest.raises(SimError, match="node-1 gave no answer: it died"):
        cluster.append("t", [b"x"])
    assert "ended itself" in cluster.host("node-1").ends[-1]
    assert cluster.bugs == []


def test_an_exception_nobody_caught_is_kept_as_a_bug() -> None:
    cluster, (one, _) = toys()
    one.parts.clock.call_soon(one.heard.pop)
    cluster.advance("1ms")
    assert not cluster.host("node-1").running
    assert "pop from empty list" in cluster.bugs[0]


def test_power_goes_out_inside_a_disk_operation() -> None:
    cluster, _ = toys()
    cluster.host("node-1").disk.power_off_after(1)
    with pytest.raises(SimError, match="it died"):
        cluster.append("t", [b"x"])
    assert cluster.host("node-1").ends[-1] == "power lost inside a disk operation"
    cluster.start("node-1")
    cluster.append("t", [b"x"], via="node-1")


def test_calls_have_plain_faces() -> None:
    cluster, _ = toys()
    cluster.append("t", [b"a", b"b"], timestamps_ms=[10, 20])
    cluster.append("t", [b"c"], timestamps_ms=[30])
    assert [m.value for m in cluster.read_all("t", 0)] == [b"a", b"b", b"c"]
    assert cluster.look_up_time("t", 0, 15).offset == 1
    cluster.trim("t", 0, 2)
    assert [m.value for m in cluster.read_all("t", 0)] == [b"c"]
    with pytest.raises(SimError, match="there is no node 'node-9'; there are node-1, node-2"):
        cluster.kill("node-9")


@pytest.mark.parametrize(
    ("text", "ms"), [("30s", 30_000), ("500ms", 500), ("1.5m", 90_000), (2, 2_000), ("1d", 864e5)]
)
def test_durations(text: str | float, ms: float) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "s", "5 parsecs", "5"])
def test_a_bad_duration_says_how_to_write_one(text: str) -> None:
    with pytest.raises(SimError, match="write 500ms, 30s"):
        duration_ms(text)
