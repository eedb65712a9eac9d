"""Requests that name very many topics: they cost what they weigh, the loop is everybody's."""

from typing import Any

from raftline.config.settings import Settings
from raftline.gateways.kafka.admin import AdminApi
from raftline.gateways.kafka.codec import ZERO_UUID
from raftline.gateways.kafka.errors import (
    INVALID_REQUEST,
    INVALID_TOPIC,
    LEADER_NOT_AVAILABLE,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from raftline.gateways.kafka.groups_cursors import CursorsApi
from raftline.gateways.kafka.metadata import LEADER_WAIT_MS, LOOK_AGAIN_MS, MetadataApi
from raftline.model.calls import NodesView, PartitionRow, TopicRow
from raftline.model.groups import CommitCursors, CursorsCommitted
from tests.unit.gateways.kafka.test_addresses import UNASKED, Asker
from tests.unit.node.little_ports import HandClock

COUNT = 2_000
LOOKS_EACH_MAX = 20  # at a name; who compares each with all others needs COUNT of them


class Name(str):
    """A name that counts how often it is compared."""

    looks = 0
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        Name.looks += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


class Nothing:
    """A node without topics."""

    def find_topic(self, _name: str) -> None:
        return None


def test_creating_topics_looks_at_each_name_once() -> None:
    told: list[dict[str, Any]] = []
    sizes: dict[str, Any] = {"num_partitions": 1, "replication_factor": 1}
    names = ["!twice", "!twice", *(f"!{number:06}" for number in range(COUNT))]
    rows = [{"name": Name(name), **sizes, "assignments": [], "configs": []} for name in names]
    api = AdminApi(None, Nothing(), Settings())  # type: ignore[arg-type]
    api.create({"topics": rows, "validate_only": True, "timeout_ms": 1}, 7, Asker(), told.append)
    assert Name.looks < LOOKS_EACH_MAX * COUNT
    codes = [row["error_code"] for row in told[0]["topics"]]
    assert codes == [INVALID_REQUEST, INVALID_REQUEST, *[INVALID_TOPIC] * COUNT]


class Leaderless:
    """A node with one topic whose leader died, that counts how often it is looked at."""

    is_sure = True

    def __init__(self) -> None:
        self.looks = 0

    def find_topic(self, name: str) -> TopicRow:
        self.looks += 1
        part = PartitionRow(partition=0, shard=7, leader=0, term=4, replicas=(1, 2, 3))
        return TopicRow(
            name=name, uuid="00" * 16, replication_factor=3, created_ms=0, settings={},
            partitions=(part,),
        )  # fmt: skip

    def nodes_view(self) -> NodesView:
        return NodesView("c", 1, 0, ())


def test_clients_that_wait_for_leaders_share_their_looks() -> None:
    clock, node, clients = HandClock(), Leaderless(), 200
    api = MetadataApi(clock, node, auto_create=True)  # type: ignore[arg-type]
    told: list[dict[str, Any]] = []
    asked = {"topics": [{"name": "t", "topic_id": ZERO_UUID}], "allow_auto_topic_creation": True}
    for _ in range(clients):
        api.metadata({**UNASKED, **asked}, 12, Asker(), told.append)
    node.looks = 0
    clock.advance(LEADER_WAIT_MS + 2 * LOOK_AGAIN_MS)
    assert len(told) == clients
    (part,) = told[0]["topics"][0]["partitions"]
    assert part["error_code"] == LEADER_NOT_AVAILABLE
    answers = clients  # each is written from what is so then
    assert node.looks <= answers + 2 * LEADER_WAIT_MS / LOOK_AGAIN_MS


class Wide:
    """A node with a topic of very many partitions, of which no row is ever wanted."""

    def partition_count(self, topic: str) -> int:
        return 10_000 if topic == "t" else 0

    def group_here(self, wish: CommitCursors, _timeout_ms: int, done: Any) -> None:
        done(CursorsCommitted(sum(map(len, wish.offsets.values())), {}))


def test_a_commit_does_not_cost_what_its_topic_has_of_partitions() -> None:
    told: list[dict[str, Any]] = []
    api = CursorsApi(Wide())  # type: ignore[arg-type]
    parts = [
        {"partition": number, "offset": 5, "leader_epoch": -1, "metadata": None}
        for number in (9_999, 10_000)
    ]
    topics = [{"name": name, "partitions": parts} for name in ("t", "none")]
    asked = {"group": "g", "member": "", "generation": -1, "instance": None, "topics": topics}
    api.commit(asked, 8, Asker(), told.append)
    codes = [[part["error_code"] for part in row["partitions"]] for row in told[0]["topics"]]
    unknown = UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [[NONE, unknown], [unknown, unknown]]
