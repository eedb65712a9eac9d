"""Faults of processes: killed, ended, stopped where they are."""

import time

from raftline.chaos.rig import ChaosProblem
from raftline.chaos.scene import Scene


def kill(scene: Scene) -> None:
    """Kill a node and start it again."""
    victim = scene.victims()[0]
    scene.tell(victim)
    scene.rig.kill(victim)
    scene.hold()
    scene.rig.restart(victim)


def kill_leader(scene: Scene) -> None:
    """Kill who leads the first partition."""
    victim = scene.rig.leader_of(scene.topic, 0)
    scene.tell(victim)
    scene.rig.kill(victim)
    scene.hold()
    scene.rig.restart(victim)


def kill_two(scene: Scene) -> None:
    """Kill two of three, one shortly after the other."""
    first, second, *_ = scene.victims()
    scene.tell(f"{first} and {second}")
    scene.rig.kill(first)
    time.sleep(scene.rng.random() / 2)
    scene.rig.kill(second)
    scene.hold()
    scene.rig.spawn(first)
    scene.rig.spawn(second)


def kill_all(scene: Scene) -> None:
    """Kill all nodes at the same moment."""
    names = scene.victims()
    scene.tell("all nodes")
    scene.rig.kill(*names)
    time.sleep(scene.rng.random())
    for name in names:
        scene.rig.spawn(name)
        time.sleep(scene.rng.random() / 2)


def stop(scene: Scene) -> None:
    """Ask a node to end, in good order."""
    victim = scene.victims()[0]
    scene.tell(victim)
    try:
        scene.rig.stop(victim)
    except ChaosProblem:
        scene.tell("(it did not end well)")  # its log says why, and the verdict will
    scene.hold()
    scene.rig.restart(victim)


def pause(scene: Scene) -> None:
    """Stop a process where it is, for a while."""
    victim = scene.victims()[0]
    scene.tell(victim)
    scene.rig.pause(victim)
    scene.hold()
    scene.rig.resume(victim)


def pause_all(scene: Scene) -> None:
    """Stop all processes where they are, as a suspended machine does."""
    scene.tell("all nodes")
    for name in scene.rig.founders:
        scene.rig.pause(name)
    time.sleep(min(2.0, scene.hold_s))
    for name in scene.rig.founders:
        scene.rig.resume(name)
