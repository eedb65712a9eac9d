"""The core put together: it finds topics and leaders, and finds them again when they move."""

import sys
import threading
from random import Random
from typing import TYPE_CHECKING

import pytest

from raftline.client.core.batches import Handle
from raftline.client.core.engine import REFRESH_MS, Engine, Options
from raftline.client.core.receives import Receiver, Wish
from raftline.model.errors import RaftlineError, UnknownTopic
from tests.unit.client.world import FakeClock, Nodes, Request, Script, refusal

if TYPE_CHECKING:
    from raftline.client.core.topology import TopicMap


class Watched(Nodes):
    """Nodes that remember who was asked what."""

    def __init__(self, clock: FakeClock, rng: Random) -> None:
        super().__init__(clock, rng)
        self.asked: list[tuple[int, str]] = []
        self.is_known = True
        self.creates = True

    def serve(self, request: Request, node: int):
        self.asked.append((node, f"{request.method} {request.path}"))
        if request.path.startswith("/v1/topics/") and request.path.count("/") == 3:
            if request.method == "PUT":
                self.is_known = self.is_known or self.creates
            if not self.is_known:
                return refusal("unknown_topic", 404)
        return super().serve(request, node)

    def asked_for(self, path: str) -> list[int]:
        return [node for node, what in self.asked if what.endswith(path)]


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.nodes = Watched(self.clock, Random(5))
        self.engine = Engine(self.clock, self.nodes, Random(5), ["node:1"], Options(linger_ms=1.0))
        self.engine.start()

    def send(self, key: bytes = b"k") -> Handle:
        handle = Handle()
        deadline = self.clock.now + 5000
        self.engine.sends.take([(handle, "t", key, b"v", (), 0, -1, 70, deadline, 5, None)])
        self.clock.advance(500)
        return handle


def test_batches_go_straight_to_the_leader() -> None:
    world = World()
    for partition in world.nodes.partitions:
        partition.leader = 3
    place = world.send().outcome()
    path = f"/v1/topics/t/partitions/{place.partition}/messages"
    assert world.nodes.asked_for(path) == [3]


def test_leaders_are_looked_for_again_from_time_to_time() -> None:
    world = World()
    place = world.send().outcome()
    world.nodes.partitions[place.partition].leader = 2
    world.clock.advance(REFRESH_MS + 100)
    world.send()
    path = f"/v1/topics/t/partitions/{place.partition}/messages"
    assert world.nodes.asked_for(path) == [1, 2]


def test_leaders_are_looked_for_again_when_one_is_gone() -> None:
    world = World()
    place = world.send().outcome()
    world.nodes.down = {1}
    world.nodes.partitions[place.partition].leader = 2
    assert world.send().outcome().partition == place.partition
    path = f"/v1/topics/t/partitions/{place.partition}/messages"
    assert world.nodes.asked_for(path)[0] == 1
    assert world.nodes.asked_for(path)[-1] in (2, 3)
    world.send()
    assert world.nodes.asked_for(path)[-1] == 2


def test_a_topic_is_created_as_a_first_publish_does() -> None:
    world = World()
    world.nodes.is_known = False
    assert world.send().outcome().topic == "t"
    assert len(world.nodes.asked_for("PUT /v1/topics/t")) == 1


def test_where_topics_are_not_created_a_send_is_refused() -> None:
    world = World()
    world.nodes.is_known = world.nodes.creates = False
    handle = world.send()
    with pytest.raises(UnknownTopic):
        handle.outcome()


def test_who_reads_creates_nothing() -> None:
    world = World()
    world.nodes.is_known = False
    found: list[TopicMap | RaftlineError] = []
    world.engine.find_topic("t", 5000, found.append)
    world.clock.advance(100)
    assert isinstance(found[0], UnknownTopic)
    assert not world.nodes.asked_for("PUT /v1/topics/t")


def test_one_look_serves_all_who_ask() -> None:
    world = World()
    found: list[TopicMap | RaftlineError] = []
    for _ in range(5):
        world.engine.find_topic("t", 5000, found.append)
    world.clock.advance(100)
    assert len(found) == 5
    assert len(world.nodes.asked_for("GET /v1/topics/t")) == 1


def test_a_topic_with_other_partitions_now_is_found_anew() -> None:
    world = World()
    world.send()
    world.nodes.partitions.append(type(world.nodes.partitions[0])())
    world.clock.advance(REFRESH_MS + 100)
    world.send()
    assert world.engine.topology.topics["t"].count == 4


def test_a_closed_engine_looks_no_more() -> None:
    world = World()
    world.clock.advance(10)
    world.engine.close()
    before = len(world.nodes.asked)
    world.clock.advance(REFRESH_MS * 3)
    assert len(world.nodes.asked) == before


def test_flush_waits_for_sends_and_settles() -> None:
    world = World()
    done: list[int] = []
    world.engine.flush(lambda: done.append(1))
    assert done == [1]
    handle = Handle()
    row = (handle, "t", None, b"v", (), 0, -1, 70, world.clock.now + 5000, 5, None)
    world.engine.sends.take([row])
    world.engine.flush(lambda: done.append(2))
    assert done == [1]
    world.clock.advance(500)
    assert done == [1, 2]
    assert handle.is_done


def test_receivers_of_many_threads_are_all_closed() -> None:
    """One that was forgotten kept what it had leased, and its poll, when its client was closed."""
    clock = FakeClock()
    engine = Engine(clock, Script(clock), Random(5), ["node:1"], Options())
    receivers: list[Receiver] = []

    def begin() -> None:
        receivers.extend([engine.receiver(Wish(topic="t", group="g")) for _ in range(40)])

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=begin) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    engine.close_receivers(lambda: None)
    assert len(receivers) == 320
    assert all(receiver.is_closed for receiver in receivers)
