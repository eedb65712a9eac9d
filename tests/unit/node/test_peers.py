"""Peers: who is alive, silent or gone. E1-E3."""

from raftline.node.log_time import ClusterTime
from raftline.node.peers import Peers
from raftline.transport.rpcs import Heartbeat
from tests.unit.node.little_ports import HandClock, HandLink, HandNetwork

SILENT_MS = 800


class Others:
    """Peers whose events are written down."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.network = HandNetwork()
        self.time = ClusterTime(self.clock)
        self.events: list[object] = []
        self.peers = Peers(
            self.clock,
            self.network,
            self.time,
            heartbeat_ms=100,
            silent_ms=SILENT_MS,
            on_gone=lambda node: self.events.append(("gone", node)),
            on_silent=lambda node: self.events.append(("silent", node)),
            on_heard=lambda node, restarted: self.events.append(("heard", node, restarted)),
        )

    def hear(self, node: int = 2, process: str = "p") -> None:
        self.peers.heard(Heartbeat(node, process, self.clock.wall_ms(), 1, 1, 0))

    def beat(self) -> None:
        self.peers.beat(Heartbeat(1, "us", self.clock.wall_ms(), 1, 1, 0))


def linked() -> tuple[Others, HandLink]:
    others = Others()
    others.peers.know("b:1", 2)
    link = HandLink(2, "b:1")
    others.peers.up(link)
    return others, link


def test_gone_is_a_closed_link_and_a_refused_redial() -> None:
    """E2: neither alone is proof."""
    others, link = linked()
    others.hear()
    others.peers.down(link)
    assert others.network.dials[-1] == ("b:1", "control")
    others.peers.dial_failed("b:1", refused=False)
    assert ("gone", 2) not in others.events
    others.clock.advance(1_000)
    others.peers.dial_failed("b:1", refused=True)
    assert others.events[-1] == ("gone", 2)
    assert not others.peers.is_live(2)
    others.clock.advance(2_000)
    others.peers.dial_failed("b:1", refused=True)
    assert others.events.count(("gone", 2)) == 1
    assert len(others.network.dials) > 3, "it is dialed again and again"


def test_a_failed_bulk_dial_says_nothing_about_the_node() -> None:
    others, _ = linked()
    others.hear()
    assert others.peers.bulk_link(2) is None
    others.peers.dial_failed("b:1", refused=True)
    assert ("gone", 2) not in others.events
    assert others.peers.is_live(2)
    others.peers.bulk_link(2)
    assert others.network.dials.count(("b:1", "bulk")) == 2


def test_silent_is_no_heartbeat_for_an_election_timeout() -> None:
    others, link = linked()
    others.hear()
    others.clock.advance(SILENT_MS)
    others.beat()
    assert others.peers.is_live(2)
    others.clock.advance(1)
    others.beat()
    assert others.events[-1] == ("silent", 2)
    assert not others.peers.is_live(2)
    assert len(link.sent) == 2, "it is told that we live all the same"
    others.hear()
    assert others.events[-1] == ("heard", 2, False)


def test_a_new_process_is_noticed_by_its_heartbeat() -> None:
    others, _ = linked()
    others.hear()
    others.hear(process="q")
    assert others.events[-1] == ("heard", 2, True)
    others.hear(process="q")
    assert len(others.events) == 2


def test_a_node_that_moved_and_restarted_is_noticed_too() -> None:
    """What was heard of it goes with its number, not with its address."""
    others, _ = linked()
    others.hear()
    others.peers.know("b:2", 2)
    others.peers.up(HandLink(2, "b:2"))
    assert others.peers.is_live(2)
    assert ("silent", 2) not in others.events
    others.hear(process="q")
    assert others.events[-1] == ("heard", 2, True)


def test_a_node_that_moved_and_says_nothing_is_silent() -> None:
    others, _ = linked()
    others.hear()
    others.peers.know("b:2", 2)
    others.clock.advance(SILENT_MS + 1)
    others.beat()
    assert others.events[-1] == ("silent", 2)


def test_a_live_node_that_is_dropped_is_silent_at_once() -> None:
    """Quiet shards led there would else wait for it for ever."""
    others, link = linked()
    others.hear()
    others.peers.drop("b:1")
    assert link.is_closed
    assert others.events[-1] == ("silent", 2)
    assert others.time.offset_ms() == 0


def test_two_nodes_that_change_places_are_both_kept() -> None:
    """Each is where it was heard last; the name of one is no hold on the link of the other."""
    others, _ = linked()
    others.peers.know("c:1", 3)
    others.peers.up(HandLink(3, "c:1"))
    two, three = HandLink(2, "c:1"), HandLink(3, "b:1")
    others.peers.up(two)
    assert others.peers.get(3) is None
    others.peers.know("b:1", 3)
    others.peers.up(three)
    for node, link in ((2, two), (3, three)):
        others.hear(node)
        assert others.peers.is_live(node)
        assert others.peers.send(node, [b"x"])
        assert link.sent == [b"x"]
        assert not link.is_closed


def test_an_old_address_does_not_take_the_name_of_who_is_there_now() -> None:
    """A catalog that still has the dead node where another one listens now."""
    others, _ = linked()
    others.peers.know("c:1", 3)
    there = HandLink(2, "c:1")
    others.peers.up(there)
    others.peers.know("c:1", 2)
    others.peers.know("c:1", 3)
    others.hear(2)
    assert others.peers.is_live(2)
    assert not others.peers.is_live(3)
    others.peers.down(there)
    others.peers.dial_failed("c:1", refused=True)
    assert others.events[-1] == ("gone", 2)


def test_a_second_link_takes_the_place_of_the_first() -> None:
    others, link = linked()
    newer = HandLink(2, "b:1")
    others.peers.up(newer)
    assert link.is_closed
    others.peers.down(link)
    assert others.peers.send(2, [b"x"])
    assert newer.sent == [b"x"]


def test_we_are_never_dialed() -> None:
    others = Others()
    others.peers.us = "a:1"
    assert others.peers.know("a:1") is None
    assert others.peers.know("") is None
    assert others.network.dials == []
