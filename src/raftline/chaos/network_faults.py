"""Faults between nodes: cut, one-way, flapping, slow, lossy; on a ``Switch`` or on ``Wires``."""

import time

from raftline.chaos.scene import Scene
from raftline.chaos.switch import Switch


def _pairs(scene: Scene) -> tuple[str, list[str]]:
    victim, *others = scene.victims()
    return victim, others


def cut(scene: Scene) -> None:
    """Let a node hear nobody, and nobody hear it."""
    assert scene.rig.wires is not None
    victim, others = _pairs(scene)
    scene.tell(victim)
    for other in others:
        scene.rig.wires.cut(victim, other)
        scene.rig.wires.cut(other, victim)
    scene.hold()
    scene.rig.wires.heal()


def cut_one_way(scene: Scene) -> None:
    """Cut each connection of a node in one direction."""
    assert scene.rig.wires is not None
    victim, others = _pairs(scene)
    ways = [scene.rng.sample((victim, other), 2) for other in others]
    scene.tell(", ".join(f"{target} does not hear {source}" for source, target in ways))
    for source, target in ways:
        scene.rig.wires.cut(source, target)
    scene.hold()
    scene.rig.wires.heal()


def flap(scene: Scene) -> None:
    """Cut and heal, again and again."""
    assert scene.rig.wires is not None
    victim, others = _pairs(scene)
    scene.tell(victim)
    for _ in range(5):
        for other in others:
            scene.rig.wires.cut(victim, other)
        time.sleep(scene.hold_s / 10)
        scene.rig.wires.heal()
        time.sleep(scene.hold_s / 10)


def slow(scene: Scene) -> None:
    """Delay everything to and from a node."""
    assert scene.rig.wires is not None
    victim, others = _pairs(scene)
    delay_s = scene.rng.choice([0.02, 0.1, 0.3])
    scene.tell(f"{victim}, {delay_s * 1000:.0f} ms each way")
    for other in others:
        scene.rig.wires.slow(victim, other, delay_s)
        scene.rig.wires.slow(other, victim, delay_s)
    scene.hold()
    scene.rig.wires.heal()


def disturb(scene: Scene) -> None:
    """Lose, double and delay single packets."""
    assert isinstance(scene.rig.wires, Switch)
    victim, others = _pairs(scene)
    loss = scene.rng.choice([0.02, 0.1, 0.3])
    scene.tell(f"{victim}, {loss:.0%} lost, as many doubled, as many late")
    for other in others:
        scene.rig.wires.disturb(victim, other, loss)
        scene.rig.wires.disturb(other, victim, loss)
    scene.hold()
    scene.rig.wires.heal()
