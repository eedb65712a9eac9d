"""Topics that shrink and go: files follow."""

import msgspec

from raftline.chaos.rig import wait_for
from raftline.chaos.traffic import BATCH, Caller, wall_ms
from raftline.testing.batches import seal
from tests.cluster.conftest import MakeRig
from tests.cluster.test_disks import SMALL


def test_a_deleted_topic_takes_its_files_along_and_its_name_is_free(make_rig: MakeRig) -> None:
    rig = make_rig()
    assert rig.command("topic", "create", "orders", "--partitions", "2").exit == 0
    assert rig.command("produce", "orders", "-m", "one").exit == 0
    homes = [rig.shard_home(name, "orders", p) for name in rig.names for p in range(2)]
    wait_for(lambda: all(home.exists() for home in homes), 10)
    late = rig.names[2]
    rig.kill(late)
    rest = [home for home in homes if rig.home(late) not in home.parents]
    assert rig.command("topic", "delete", "orders").exit == 0
    wait_for(lambda: not any(home.exists() for home in rest), 10, lambda: str(rest))
    rig.restart(late)  # it slept through the deletion
    wait_for(lambda: not any(home.exists() for home in homes), 15, lambda: rig.log_text(late))
    assert rig.command("topic", "show", "orders").exit == 4
    assert rig.command("topic", "create", "orders", "--partitions", "1").exit == 0
    said = rig.command("consume", "orders", "--from-beginning")
    assert (said.exit, said.out) == (0, "")
    assert rig.verify().exit == 0


def test_a_topics_own_segment_size_holds_and_changes(make_rig: MakeRig) -> None:
    rig = make_rig()
    said = rig.command(
        "topic", "create", "orders", "--partitions", "1", "--set", "segment_bytes=1MiB"
    )
    assert said.exit == 0, said
    caller = Caller(rig)
    rig.at_close.append(caller.close)

    def send(count: int) -> None:
        for _ in range(count):
            batch = seal([b"x" * 100_000], [wall_ms()])
            path = "/v1/topics/orders/partitions/0/messages"
            assert (
                caller.call("node-1", "POST", path, batch, fields={"Content-Type": BATCH}).status
                == 200
            )

    def segments() -> list[list[int]]:
        logs = [rig.home(name).glob("shards/*/log/*.log") for name in rig.names]
        return [[file.stat().st_size for file in files] for files in logs]

    def written(size: int) -> bool:
        return all(sum(sizes) >= size for sizes in segments())

    send(25)
    wait_for(lambda: written(25 * 100_000), 10, lambda: str(segments()))
    assert [len(sizes) for sizes in segments()] == [3, 3, 3]
    assert rig.command("topic", "set", "orders", "--set", "segment_bytes=64MiB").exit == 0
    send(30)
    wait_for(lambda: written(55 * 100_000), 10, lambda: str(segments()))
    assert [len(sizes) for sizes in segments()] == [3, 3, 3]


def test_retention_by_size_removes_the_oldest_segments(make_rig: MakeRig) -> None:
    rig = make_rig(settings=SMALL)
    said = rig.command(
        "topic", "create", "orders", "--partitions", "1",
        "--set", "retention_bytes=200KiB",
    )  # fmt: skip
    assert said.exit == 0, said
    caller = Caller(rig)
    rig.at_close.append(caller.close)
    path = "/v1/topics/orders/partitions/0/messages"
    for number in range(100):
        batch = seal([f"{number:06}".encode() * 1000], [wall_ms()])
        answer = caller.call("node-1", "POST", path, batch, fields={"Content-Type": BATCH})
        assert answer.status == 200, answer.body

    def starts() -> list[int]:
        query = f"{path}?offset=99&any_replica=true"
        answers = [caller.call(name, "GET", query, fields={"Accept": BATCH}) for name in rig.names]
        return [int(answer.fields["Raftline-Log-Start"]) for answer in answers]

    wait_for(lambda: min(starts()) > 50 and len(set(starts())) == 1, 20, lambda: str(starts()))
    start = starts()[0]
    gone = caller.call("node-1", "GET", f"{path}?offset=0")
    assert (gone.status, gone.error["code"]) == (416, "offset_out_of_range")
    assert str(start) in gone.error["message"] + gone.error["hint"]
    kept = caller.call("node-1", "GET", f"{path}?offset={start}&limit=1").json()["messages"]
    assert kept[0]["value"] == f"{start:06}" * 1000
    for name in rig.names:
        home = rig.shard_home(name, "orders") / "log"
        wait_for(
            lambda home=home: sum(f.stat().st_size for f in home.glob("*.log")) < 400_000,
            10,
            lambda home=home: str(sorted(home.iterdir())),
        )
    assert rig.verify().exit == 0


def test_a_topic_grows_and_never_shrinks(make_rig: MakeRig) -> None:
    rig = make_rig()
    assert rig.command("topic", "create", "orders", "--partitions", "2").exit == 0
    assert rig.command("produce", "orders", "-m", "before").exit == 0
    said = rig.command("topic", "set", "orders", "--partitions", "5", "lease_ms=45s")
    assert (said.exit, said.out.strip()) == (0, "changed orders: lease_ms, 5 partitions")
    shown = rig.command("--json", "topic", "show", "orders").json()
    assert (len(shown["partitions"]), shown["settings"]["lease_ms"]) == (5, 45_000)
    text = "".join(f"message {i}\n" for i in range(20))
    path = rig.directory / "lines"
    path.write_text(text)
    assert rig.command("produce", "orders", "-f", str(path)).exit == 0
    said = rig.command("consume", "orders", "--from-beginning", "--json")
    assert {row["partition"] for row in map(msgspec.json.decode, said.out.splitlines())} == {
        0, 1, 2, 3, 4,
    }  # fmt: skip
    said = rig.command("topic", "set", "orders", "--partitions", "3")
    assert said.exit == 2
    assert "has 5 partitions" in said.err
    assert rig.verify().exit == 0
