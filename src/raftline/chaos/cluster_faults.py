"""What administrators and clocks do: time that jumps, nodes that come and go, other leaders."""

import contextlib

from raftline.chaos.rig import wait_for
from raftline.chaos.scene import Scene
from raftline.model.errors import RaftlineError

MEMBER_S_MAX = 40.0


def jump(scene: Scene) -> None:
    """Let a node's time of day jump, and jump back."""
    victim = scene.victims()[0]
    ahead_s = scene.rng.choice([-120.0, -2.0, 2.0, 120.0])
    scene.tell(f"{victim} {ahead_s:+.0f} s")
    scene.rig.set_clock(victim, ahead_s)
    scene.hold()
    scene.rig.set_clock(victim, 0)


def transfer(scene: Scene) -> None:
    """Hand every leadership of the topic to another node."""
    with scene.rig.client() as client:
        numbers = {row["name"]: row["id"] for row in client.cluster()["nodes"]}
        rows = client.topic(scene.topic)["partitions"]
        scene.tell(f"{len(rows)} partitions of {scene.topic}")
        for row in rows:
            others = [n for n in row["replicas"] if n != row["leader"] and n in numbers.values()]
            if others:
                with contextlib.suppress(RaftlineError):
                    client.administer(
                        "transfer",
                        topic=scene.topic,
                        partition=row["partition"],
                        to_node=scene.rng.choice(others),
                    )


def change_members(scene: Scene) -> None:
    """Let one more node join, take a replica over and lead it, and leave again."""
    rig, spare = scene.rig, f"node-{len(scene.rig.founders) + 1}"
    if spare in rig.names:
        rig.restart(spare)
    else:
        rig.join()
    source = scene.victims()[0]
    place = f"{scene.topic}/0"
    said = rig.command("cluster", "move", place, "--from", source, "--to", spare)
    scene.tell(f"{spare} joined; {place} from {source}: {'moved' if not said.exit else said.err}")
    if not said.exit:
        came, left = rig.number(spare), rig.number(source)
        wait_for(lambda: _has_moved(scene, came, left), MEMBER_S_MAX, lambda: rig.why(spare))
        rig.command("cluster", "transfer", place, "--to", spare)
        scene.hold()
    _remove_member(scene, spare)


def _has_moved(scene: Scene, came: int, left: int) -> bool:
    with scene.rig.client() as client:
        row = client.topic(scene.topic)["partitions"][0]
    return came in row["replicas"] and left not in row["replicas"] and row["state"] == "ok"


def _what_moves(scene: Scene) -> str:
    """Say which partitions are not where they should be."""
    rows = [
        f"{topic['name']}/{row['partition']} is {row['state']} (leader {row['leader']}, "
        f"replicas {row['replicas']}, learners {row['learners']})"
        for topic in scene.rig.status(*scene.rig.founders)["topics"]
        for row in topic["partitions"]
        if row["state"] != "ok"
    ]
    return "; ".join(rows) or "every partition is where it should be"


def _remove_member(scene: Scene, name: str) -> None:
    rig = scene.rig
    stay = rig.founders

    def is_gone() -> bool:
        rows = rig.status(*stay)["nodes"]
        return all(row["name"] != name or row["state"] == "removed" for row in rows)

    def is_taken_out() -> bool:
        return rig.command("cluster", "remove", name).exit == 0

    wait_for(is_taken_out, MEMBER_S_MAX, lambda: f"{name} cannot be removed", 1.0)
    wait_for(is_gone, MEMBER_S_MAX, lambda: f"{name} stays: {_what_moves(scene)}", 0.2)
    rig.stop(name)
    rig.wipe(name)
