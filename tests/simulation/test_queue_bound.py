"""How long a message of a low priority waits while workers are served (P7).

One message of a low priority, then a stream of higher ones that never ends and that the workers
do not keep up with. By age it waits no longer than the bound; by weight its lane has its turn
soon; strict lanes let it wait as long as there are higher ones.
"""

import pytest

from raftline.machines.delivery.selection import AGED, STRICT, WEIGHTED
from raftline.model.limits import WAIT_BOUND_MS
from raftline.testing.queue_history import Delivery
from raftline.testing.queue_workload import QueueSettings
from raftline.testing.sim import Plan, Simulation

SLACK_MS = 3_000.0
EVERY_MS = 250.0
TURN_MS = 2_000.0  # by weight: eight receives


def starve(seconds: float, disturb: str, mode: str = AGED) -> tuple[Simulation, float]:
    """Return the run, and when the low message was first delivered after it was sent; -1: never."""
    plan = Plan(seconds=1.0, queue_operations=1, queue=QueueSettings(mode=mode))
    simulation = Simulation(3, plan)
    queue = simulation.queue
    assert queue is not None
    assert simulation.boot()
    cluster, world = simulation.cluster, simulation.cluster.world
    cluster.advance("1s")
    queue.workload.members.start()
    producers, workers = queue.workload.producers, queue.workload.workers
    host = cluster.host("node-1")
    late = next(name for name in cluster.nodes if name != cluster.leader("jobs", 0))
    if disturb == "late follower":
        cluster.isolate(late)
        host = cluster.host(cluster.leader("jobs", 0))
    sent_ms = world.now_ms
    (low,) = producers.send(host, 0, [-3])
    end_ms = sent_ms + seconds * 1_000.0

    def more() -> None:
        running = [h for h in cluster.hosts.values() if h.running and h.name != late]
        if running:
            producers.send(running[0], 0, [5, 5])
            workers.receive(running[-1], 0, "plain", 1, lease_ms=5_000, got=ack)
        if world.now_ms < end_ms:
            world.after(EVERY_MS, more)

    def ack(delivery: Delivery) -> None:
        workers.settle(host, delivery, "ack", delivery.items)

    producers.send(host, 0, [5] * 20)
    world.after(EVERY_MS, more)
    world.after(12_000.0, lambda: strike(simulation, disturb, late))
    cluster.advance(f"{seconds:.0f}s")
    for delivery in queue.history.deliveries:
        if any(item.number == low.number for item in delivery.items):
            return simulation, queue.history.op(delivery.op).ended_ms - sent_ms
    return simulation, -1.0


def strike(simulation: Simulation, disturb: str, late: str) -> None:
    cluster = simulation.cluster
    if disturb == "late follower":  # it hears of many seconds at once, then it leads
        cluster.net.heal()
        to: dict[str, object] = {
            "topic": "jobs",
            "partition": 0,
            "to_node": cluster.number_of(late),
        }
        host = cluster.host(late)
        cluster.world.after(
            2_000.0, lambda: simulation.workload.command(host, "cluster.transfer", to)
        )
    if disturb == "failover":
        gone = cluster.host(cluster.leader("jobs", 0))
        gone.kill()
        cluster.world.after(2_000.0, gone.start)
    elif disturb == "restart":
        for host in list(cluster.hosts.values()):
            host.kill()
            cluster.world.after(500.0, host.start)


@pytest.mark.parametrize("disturb", ["nothing", "failover", "restart", "late follower"])
def test_a_low_priority_is_delivered_within_the_bound(disturb: str) -> None:
    simulation, waited_ms = starve(45.0, disturb)
    assert 0 <= waited_ms <= WAIT_BOUND_MS + SLACK_MS, waited_ms
    if disturb != "restart":  # a new process takes what it finds for old: the bound holds
        assert waited_ms >= WAIT_BOUND_MS - SLACK_MS  # else it was never starved
    assert not simulation.cluster.bugs


@pytest.mark.parametrize("disturb", ["nothing", "failover", "restart", "late follower"])
def test_a_strict_lane_goes_first_for_as_long_as_it_has_something(disturb: str) -> None:
    simulation, waited_ms = starve(45.0, disturb, STRICT)
    assert waited_ms < 0
    report = simulation.finish()  # the stream has ended: it is delivered like the others
    assert report.verdict.clean, str(report.verdict)


@pytest.mark.parametrize("disturb", ["nothing", "failover", "restart", "late follower"])
def test_a_light_lane_has_its_turn(disturb: str) -> None:
    simulation, waited_ms = starve(20.0, disturb, WEIGHTED)
    assert 0 <= waited_ms <= TURN_MS, waited_ms
    report = simulation.finish()
    assert report.verdict.clean, str(report.verdict)


def test_the_checker_sees_a_lane_that_starves(monkeypatch: pytest.MonkeyPatch) -> None:
    from raftline.machines.delivery.selection import Chooser

    monkeypatch.setattr(Chooser, "_choose_overdue", lambda self, *words: None)
    simulation, waited_ms = starve(45.0, "nothing")
    assert waited_ms < 0
    assert simulation.queue is not None
    assert [v.promise for v in simulation.queue.check() if "waits for" in v.text][:1] == ["P7"]
