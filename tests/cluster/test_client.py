"""The Python client against real nodes: all it can do, and nodes that die under it."""

import asyncio
import contextlib
import socket
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import raftline
from raftline.chaos.rig import Rig, wait_for
from raftline.client.line import Line
from raftline.model.errors import (
    InvalidArgument,
    InvalidTopic,
    LeaseLost,
    NotWaiting,
    OverLimit,
    RaftlineError,
    TimedOut,
    TooLarge,
    Unavailable,
    UnknownPartition,
    UnknownTopic,
)
from tests.cluster.conftest import MakeRig

WORKERS = 4
KEYS = 20


WAYS = ("http", "grpc")


def servers(rig: Rig, way: str = "http") -> str:
    nodes = [rig.node(name) for name in rig.names]
    return ",".join(f"grpc://{node.grpc}" if way == "grpc" else node.http for node in nodes)


def wait_for_grpc(rig: Rig) -> None:
    """Wait until every node listens for gRPC: that begins a moment after it takes work."""
    for name in rig.names:
        host, port = rig.node(name).grpc.split(":")

        def listens(address: tuple[str, int] = (host, int(port))) -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(address) == 0

        wait_for(listens, 20, lambda name=name: rig.log_text(name)[-2000:])


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """What carries the client's calls."""
    return request.param


class Crew:
    """Workers of one group that note what they get."""

    def __init__(self, rig: Rig, topic: str, way: str) -> None:
        self.seen: list[bytes] = []
        self.attempts: list[int] = []
        self.errors: list[BaseException] = []
        self.lost = 0
        self._stop = threading.Event()
        self._topic = topic
        self._lines = [raftline.connect(servers(rig, way), timeout="30s") for _ in range(WORKERS)]
        self._threads = [
            threading.Thread(target=self._work, args=(line, f"worker-{number}"))
            for number, line in enumerate(self._lines)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, line: Line, name: str) -> None:
        try:
            while not self._stop.is_set():
                receiving = line.receive(
                    self._topic, group="crew", member=name, lease="5s", wait="500ms", count=50
                )
                for message in receiving:
                    self.seen.append(message.value)
                    self.attempts.append(message.attempt)
                    message.ack()
        except BaseException as error:  # noqa: BLE001
            self.errors.append(error)

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        self.lost = sum(line.settles_lost for line in self._lines)
        for line in self._lines:
            line.close()


@pytest.mark.parametrize("count", [2_000, pytest.param(20_000, marks=pytest.mark.full)])
def test_each_node_dies_under_a_client_and_its_workers(
    make_rig: MakeRig, count: int, way: str
) -> None:
    rig = make_rig()
    wait_for_grpc(rig)
    with rig.client() as client:
        client.create_topic(
            "jobs", partitions=3, replication_factor=3, settings={"max_retries": 50}
        )
    crew = Crew(rig, "jobs", way)
    sendings = []
    over = threading.Event()

    def send() -> None:
        with raftline.connect(servers(rig, way), timeout="30s") as line:
            for number in range(count):
                value = b"job %d" % number
                sendings.append((number, line.send("jobs", value, key=f"k{number % KEYS}")))
                if over.is_set() or number % 10:
                    continue
                time.sleep(10 * 12 / count)
            line.flush("30s")

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for name in rig.names:
            time.sleep(0.7)
            rig.kill(name)
            time.sleep(1.0)
            rig.restart(name)
            rig.wait_whole()
        over.set()
        sender.join(90)
        assert not sender.is_alive()
        places = [sending.result(0) for _, sending in sendings]  # raises what went wrong
        wanted = {b"job %d" % number for number in range(count)}
        wait_for(lambda: wanted <= set(crew.seen), 60, lambda: missing(wanted, crew))
        wait_for(lambda: lag(rig) == 0, 30, lambda: f"lag {lag(rig)}", 0.3)
    finally:
        crew.close()
    assert not crew.errors, crew.errors
    stored = read_all(rig, "jobs", 3)
    assert Counter(stored).most_common(1)[0][1] == 1, "a message was stored twice"
    assert set(stored) == wanted
    for key in range(KEYS):
        mine = [p for (n, _), p in zip(sendings, places, strict=True) if n % KEYS == key]
        assert [p.offset for p in mine] == sorted(p.offset for p in mine)
    extra = len(crew.seen) - count
    redelivered = sum(attempt > 1 for attempt in crew.attempts)
    print(f"{count} messages: {extra} came twice, {redelivered} again, {crew.lost} acks were late")
    assert extra <= count


def missing(wanted: set[bytes], crew: Crew) -> str:
    left = wanted - set(crew.seen)
    return f"{len(left)} of {len(wanted)} never came: {sorted(left)[:5]}, {crew.errors}"


def lag(rig: Rig) -> int:
    with raftline.connect(servers(rig)) as line:
        rows = line.groups.show("crew", "jobs")["work"]["jobs"]
        return sum(row["lag"] for row in rows)


def read_all(rig: Rig, topic: str, partitions: int) -> list[bytes]:
    found: list[bytes] = []
    with raftline.connect(servers(rig)) as line:
        for partition in range(partitions):
            offset = 0
            while True:
                page = line.read(topic, partition, offset, count=10_000)
                found += [message.value or b"" for message in page.messages]
                if page.next_offset >= page.commit_end:
                    break
                offset = page.next_offset
    return found


def test_a_leader_that_hangs_is_gone_round(make_rig: MakeRig, way: str) -> None:
    rig = make_rig()
    wait_for_grpc(rig)
    with raftline.connect(servers(rig, way), timeout="20s") as line:
        line.topics.create("hang", partitions=1, replication_factor=3)
        line.send_now("hang", b"0")
        leader = rig.leader_of("hang")
        rig.pause(leader)
        try:
            began = time.monotonic()
            sendings = line.send_many("hang", [b"%d" % i for i in range(1, 50)])
            assert [sending.result().offset for sending in sendings] == list(range(1, 50))
            assert time.monotonic() - began < 15
            got = [(m.value, m.ack()) for m in line.receive("hang", group="g", wait="2s")]
            assert [value for value, _ in got] == [b"%d" % i for i in range(50)]
        finally:
            rig.resume(leader)


# ---------------------------------------------------------------------- one node


@pytest.fixture(scope="module")
def rig(module_path: Path, way: str):
    made = Rig(module_path / f"client-{way}", nodes=1)
    try:
        made.start_all()
        wait_for_grpc(made)
        yield made
    finally:
        made.close()


@pytest.fixture
def line(rig: Rig, way: str):
    with raftline.connect(servers(rig, way)) as made:
        yield made


def test_a_message_is_sent_received_and_acked(line: Line) -> None:
    sent = line.send("a", b"one", key="k", headers={"h": "1", "raw": b"\xff"}).result()
    assert sent.id == f"a.{sent.partition}.0"
    (message,) = line.receive("a", group="g", lease="10s", wait="1s", count=1)
    assert (message.id, message.value, message.key) == (sent.id, b"one", b"k")
    assert message.headers == {"h": b"1", "raw": b"\xff"}
    assert (message.attempt, message.text, message.topic) == (1, "one", "a")
    message.ack(wait=True)
    assert line.receive_many("a", group="g") == []
    assert line.message(sent.id).value == b"one"
    events = [row["event"] for row in line.trace(sent.id)["timeline"]]
    assert events == ["PUBLISHED", "REPLICATED", "DELIVERED", "ACKNOWLEDGED", "RETAINED"]


def test_nack_reject_and_extend(line: Line) -> None:
    line.send_now("b", "text")
    (first,) = line.receive_many("b", group="g", lease="2s", wait="1s")
    first.extend("30s")
    first.nack("not yet", 0, wait=True)
    (second,) = line.receive_many("b", group="g", wait="2s")
    assert second.attempt == 2
    with pytest.raises(LeaseLost):
        late(first)
    second.reject("never", wait=True)
    wait_for(lambda: len(line.dlq.list("b")["letters"]) == 1, 10)
    (letter,) = line.dlq.list("b")["letters"]
    assert (letter["error"], letter["attempts"]) == ("never", 2)
    assert line.dlq.show("b", letter["id"])["value"] == "text"
    assert line.dlq.redrive("b", ids=[letter["id"]])["redriven"] == 1
    (third,) = line.receive_many("b", group="g", wait="5s")
    assert third.value == b"text"
    third.reject(wait=True)
    wait_for(lambda: line.dlq.purge("b", every=True)["purged"] == 1, 10)


def late(message: raftline.Message) -> None:
    """Settle a message a second time, as a worker would whose lease is gone."""
    message._is_settled = False
    message.ack(wait=True)


def test_many_are_acked_at_once(line: Line) -> None:
    line.send_many("c2", [b"%d" % i for i in range(300)], partition=0)
    line.flush()
    messages = line.receive_many("c2", group="g", count=300, wait="1s")
    assert len(messages) == 300
    line.ack_many(messages, wait=True)
    assert all(message.is_settled for message in messages)
    assert line.groups.show("g", "c2")["work"]["c2"][0]["floor"] == 300
    with pytest.raises(InvalidArgument):
        line.ack_many(messages[:1])


def test_a_message_is_settled_once(line: Line) -> None:
    line.send_now("c", b"x")
    (message,) = line.receive_many("c", group="g", wait="1s")
    message.ack()
    with pytest.raises(InvalidArgument):
        message.nack()


def test_a_block_acks_or_nacks(line: Line) -> None:
    line.send_many("d", [b"good", b"bad"], partition=0)
    line.flush()
    for message in line.receive("d", group="g", wait="1s"):
        if message.attempt > 1:
            assert message.value == b"bad"
            break
        with contextlib.suppress(ValueError), message:
            int(message.value.replace(b"good", b"1"))
    line.flush()
    shown = line.trace("d.0.1")["timeline"]
    assert any(row.get("reason", "").startswith("ValueError: invalid literal") for row in shown)


def test_a_lease_is_extended_while_the_handler_runs(line: Line) -> None:
    line.send_many("e", [b"1", b"2"], partition=0)
    seen = []
    for message in line.receive("e", group="g", lease="500ms", wait="500ms", extend=True):
        seen.append((message.value, message.attempt))
        if message.value == b"1":
            time.sleep(1.5)
        message.ack(wait=True)
    assert seen == [(b"1", 1), (b"2", 1)]


def test_without_extending_a_slow_handler_loses_its_lease(line: Line) -> None:
    line.send_now("e2", b"1", partition=0)
    (message,) = line.receive_many("e2", group="g", lease="200ms", wait="500ms")
    (again,) = line.receive_many("e2", group="g", lease="5s", wait="3s")
    assert again.attempt == 2
    with pytest.raises(LeaseLost):
        message.ack(wait=True)
    again.ack(wait=True)


def test_who_stops_early_keeps_nothing_from_others(line: Line) -> None:
    line.send_many("f", [b"%d" % i for i in range(20)], partition=0)
    line.flush()
    for message in line.receive("f", group="g", wait="1s"):
        message.ack(wait=True)
        break
    rest = line.receive_many("f", group="g", count=50, wait="1s")
    assert [(m.value, m.attempt) for m in rest] == [(b"%d" % i, 1) for i in range(1, 20)]


def test_a_release_is_no_delivery(line: Line) -> None:
    line.topics.create("f2", partitions=1, max_retries=0)
    line.send_many("f2", [b"%d" % i for i in range(40)])
    line.flush()
    (first,) = line.receive_many("f2", group="g", count=1, wait="1s")
    first.release(wait=True)
    assert first.is_settled
    for _ in range(3):  # what is leased ahead and not begun is given back
        with line.receive("f2", group="g", wait="1s", count=20) as receiving:
            for number, message in enumerate(receiving):
                message.release()
                if number == 3:
                    break
        line.flush()
    wait_for(lambda: line.groups.show("g", "f2")["work"]["f2"][0]["leased"] == 0, 10)
    rest = line.receive_many("f2", group="g", count=50, wait="1s")
    assert sorted(int(m.value) for m in rest) == list(range(40))
    assert {m.attempt for m in rest} == {1}
    line.ack_many(rest, wait=True)


def test_priorities_go_first(line: Line) -> None:
    for value, priority in ((b"low", "low"), (b"normal", 0), (b"high", "high"), (b"20", 20)):
        line.send_now("g", value, priority=priority, partition=0)
    found = [(m.value, m.priority) for m in line.receive_many("g", group="g", wait="1s")]
    assert found == [(b"20", 20), (b"high", 10), (b"normal", 0), (b"low", -10)]


def test_delay_cancel_and_move(line: Line) -> None:
    far = line.send("h", b"far", delay="1h").result()
    near = line.send("h", b"near", delay=3600).result()
    assert far.offset == -1
    assert line.scheduled.list("h")["count"] == 2
    assert line.scheduled.show(far.id)["value"] == "far"
    assert line.scheduled.cancel(far.id)["cancelled"]
    line.scheduled.move(near.id, delay="200ms")
    (message,) = line.receive("h", group="g", wait="5s", count=1)
    assert (message.id, message.value) == (near.id, b"near")
    assert line.message(near.id).value == b"near"
    with pytest.raises(NotWaiting):
        line.scheduled.cancel(near.id)
    assert line.scheduled.stats("h")["waiting"] == 0


def test_a_dedup_key_stores_once(line: Line) -> None:
    first = line.send("i", b"1", dedup_key="d").result()
    second = line.send("i", b"2", dedup_key="d").result()
    assert second.id == first.id
    assert second.is_duplicate


def test_topics_and_groups(line: Line) -> None:
    line.topics.create("j", partitions=2, max_retries=7)
    assert line.topics.show("j")["settings"]["max_retries"] == 7
    line.topics.set("j", max_retries=8)
    assert "j" in [row["name"] for row in line.topics.list()]
    line.send_now("j", b"x", partition=1)
    (message,) = line.receive_many("j", group="jg", wait="1s")
    message.ack(wait=True)
    assert "jg" in [row["group"] for row in line.groups.list("j")]
    line.groups.reset("jg", "j", to="earliest")
    (again,) = line.receive_many("j", group="jg", wait="2s")
    assert again.value == b"x"
    assert [row["id"] for row in line.search("j")["messages"]] == ["j.1.0"]
    line.groups.delete("jg", "j")
    line.topics.delete("j")
    with pytest.raises(UnknownTopic):
        line.topics.show("j")


def test_what_cannot_be_sent_is_refused(line: Line) -> None:
    with pytest.raises(InvalidTopic):
        line.send("no/slash", b"x")
    with pytest.raises(InvalidArgument):
        line.send("k", {"a": 1})  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        line.send("k", b"x", delay="1m", deliver_at="2030-01-01T00:00:00Z")
    with pytest.raises(InvalidArgument):
        line.send("k", b"x", priority=1000)
    with pytest.raises(InvalidArgument):
        line.send("k", b"x", priority=None)  # type: ignore[arg-type]
    with pytest.raises(TooLarge):
        line.send("k", b"x", key=b"k" * 100_000).result()
    with pytest.raises(UnknownPartition):
        line.send("k", b"x", partition=99).result()
    assert line.send("k", b"fine").id().startswith("k.")  # and nothing of it stands in the way
    with pytest.raises(UnknownTopic):
        list(line.receive("not-there", group="g", wait=0))


def test_a_topic_that_has_grown_is_sent_to(line: Line, rig: Rig) -> None:
    line.topics.create("growing", partitions=2)
    assert line.send("growing", b"x", partition=1).result().partition == 1
    with rig.client() as client:
        client.set_topic("growing", {}, partitions=4)
    assert line.send("growing", b"x", partition=3).result().partition == 3


def test_read_pages(line: Line) -> None:
    line.send_many("l", [b"%d" % i for i in range(10)], partition=0)
    line.flush()
    page = line.read("l", 0, 3, count=4)
    assert [m.value for m in page.messages] == [b"3", b"4", b"5", b"6"]
    assert (page.next_offset, page.commit_end) == (7, 10)
    assert line.offsets("l")["commit_end"] == 10
    assert line.cluster()["ready"]


def test_many_threads_send_through_one_line(line: Line) -> None:
    def send(who: int) -> None:
        for number in range(500):
            line.send("m", b"%d %d" % (who, number), key=f"{who}")

    threads = [threading.Thread(target=send, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    line.flush()
    seen: dict[bytes, list[int]] = {}
    for message in line.receive("m", group="g", wait="500ms", ordered=False):
        who, number = message.value.split()
        seen.setdefault(who, []).append(int(number))
        message.ack()
    assert all(numbers == list(range(500)) for numbers in seen.values())
    assert len(seen) == 4


def test_the_buffer_is_bounded_and_a_send_gives_up_in_time(rig: Rig, way: str) -> None:
    with raftline.connect(servers(rig, way), buffer_bytes=100_000, timeout="10s") as line:
        line.send_now("n", b"x")
        rig.pause(rig.names[0])
        try:
            held = line.send_many("n", [b"x" * 1000] * 94)
            began = time.monotonic()
            with pytest.raises(OverLimit):
                line.send("n", b"x" * 1000, timeout="300ms")
            assert 0.25 < time.monotonic() - began < 2
        finally:
            rig.resume(rig.names[0])
        assert line.send("n", b"last", partition=0).result().topic == "n"
        assert len({sending.id() for sending in held}) == 94


def test_every_call_ends_while_a_node_hangs(rig: Rig, way: str) -> None:
    line = raftline.connect(servers(rig, way), timeout="1s")
    line.send_now("o", b"x")
    rig.pause(rig.names[0])
    try:
        for call in (
            lambda: line.send("o", b"y").result(),
            line.topics.list,
            lambda: line.receive_many("o", group="g"),
            lambda: list(line.receive("o", group="g", wait=0)),
            lambda: line.read("o"),
        ):
            began = time.monotonic()
            with pytest.raises((TimedOut, Unavailable)):
                call()
            assert time.monotonic() - began < 4.5
        began = time.monotonic()
        line.close()
        assert time.monotonic() - began < 6
    finally:
        rig.resume(rig.names[0])


def test_nobody_there_is_said_soon(way: str) -> None:
    began = time.monotonic()
    with (
        raftline.connect(f"{way}://127.0.0.1:9", timeout="10s") as line,
        pytest.raises(RaftlineError, match="no node answers"),
    ):
        line.topics.list()
    assert time.monotonic() - began < 8


def test_the_async_twin(rig: Rig, way: str) -> None:
    async def work() -> None:
        async with raftline.connect_async(servers(rig, way)) as line:
            sendings = [await line.send("p", b"%d" % i, partition=0) for i in range(300)]
            assert (await sendings[-1]).offset == 299
            assert await sendings[0].id() == "p.0.0"
            seen = []
            async for message in line.receive("p", group="g", wait="500ms"):
                seen.append(message.value)
                await message.ack()
                if len(seen) == 200:
                    break
            await line.flush()
            rest = await line.receive_many("p", group="g", count=20, wait="1s")
            seen += [message.value for message in rest]
            await line.ack_many(rest, wait=True)
            assert (await line.groups.show("g", "p"))["work"]["p"][0]["leased"] == 0
            (again,) = await line.receive_many("p", group="g", count=1, wait="1s")
            await again.release(wait=True)
            while rest := await line.receive_many("p", group="g", count=500, wait="1s"):
                for message in rest:
                    assert message.attempt == 1
                    async with message:
                        seen.append(message.value)
            await line.flush()
            assert set(seen) == {b"%d" % i for i in range(300)}
            assert (await line.topics.show("p"))["name"] == "p"
            assert (await line.message("p.0.7")).value == b"7"
            later = await line.send("p", b"x", delay="1h")
            assert (await line.scheduled.cancel(await later.id()))["cancelled"]
            with pytest.raises(UnknownTopic):
                await line.topics.show("not-there")

    asyncio.run(work())
