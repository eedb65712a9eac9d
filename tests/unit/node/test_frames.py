"""Frames of other nodes: whatever they hold, a node refuses or hangs up and goes on.

Every kind of frame and every verb gets bodies that are empty, cut short, of other types, of other
shards, and plain noise. The world fails on any exception that nobody caught.
"""

import random
import struct

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raftline.model.errors import RaftlineError
from raftline.node import remote
from raftline.raft.rpc import ConfState, Entry, Rpc, RpcKind, Snapshot
from raftline.testing import SimCluster, cluster
from raftline.transport.ports import Buffer
from raftline.transport.rpcs import (
    FRAME_CALL,
    FRAME_FOUND,
    FRAME_REPLY,
    decode_reply,
    encode_call,
    encode_rpcs,
)
from raftline.wire.peer.hello import Hello
from tests.unit.node.whole import lead, node, replica, shard_of

VERBS = sorted(value for name, value in vars(remote).items() if name.startswith("VERB_"))
TOPIC = "orders"
pack = msgspec.msgpack.encode


class StrangeLink:
    """A link to a node that says whatever the test wants."""

    def __init__(self, peer: Hello) -> None:
        self.peer = peer
        self.dialed = False
        self.address = ""
        self.lane = "control"
        self.is_closed = False
        self.sent: list[bytes] = []

    def send(self, buffers: list[Buffer]) -> bool:
        self.sent.append(b"".join(buffers))
        return True

    def close(self) -> None:
        self.is_closed = True

    def replies(self) -> list[bytes | RaftlineError]:
        frames = [memoryview(frame) for frame in self.sent if frame[0] == FRAME_REPLY]
        return [decode_reply(frame)[1] for frame in frames]


def strange_link(sim: SimCluster, of: str) -> StrangeLink:
    return StrangeLink(node(sim, of).hello())


def bodies(shard: int, replica_id: int) -> list[bytes]:
    numbers = [0, 1, shard, replica_id, -1, 1 << 31, (1 << 63) - 1]
    rows: list[object] = [
        None, 5, "text", {}, [], [[]], {"name": 1}, (shard,), (1, "a", {}),
        (shard, "topic.trim", {}),
        (1, "topic.create", {"name": 5}), (1, "cluster.move", {"topic": "orders"}),
        (shard, "topic.trim", {"offset": 1 << 62}), (shard, "cluster.transfer", {"to_node": [1]}),
        (1, "replica.replace", {"shard": shard, "node": 1, "seen": 5}),
        (1, "topic.create", {"name": "x", "uuid": "u", "partitions": 1 << 60}),
        (1, "topic.create", {"name": "y", "uuid": "u", "settings": {"retention_ms": {}}}),
        (1, "cluster.replace", {"node": True, "by": {}}), (1, "shard.mark", {}),
        (shard, replica_id, True), (shard, replica_id, False), (shard, 1 << 40, False),
        *numbers,
    ]  # fmt: skip
    for first in (1, shard):
        rows += [(first, a) for a in numbers]
        rows += [(first, a, b) for a in numbers for b in numbers]
        rows += [(first, a, b, 5, -1) for a in numbers for b in numbers]
    packed = [pack(row) for row in rows]
    fixed = [struct.pack("<I", n) for n in (0, 1, shard)]
    fixed += [struct.pack("<Iq", n, t) for n in (1, shard) for t in (-1, 0, 1 << 62)]
    fixed += [
        struct.pack("<IqIIB", n, offset, size, 0, linear)
        for n in (1, shard)
        for offset in (-5, 0, 1 << 62)
        for size in (0, 1 << 31)
        for linear in (0, 1)
    ]
    return [b"", *packed, *fixed, *(body[:-1] for body in fixed)]


@pytest.mark.parametrize("verb", [*VERBS, 0, 255])
def test_every_verb_refuses_what_makes_no_sense(verb: int) -> None:
    with cluster(nodes=3, seed=31) as sim:
        sim.create_topic(TOPIC, partitions=1)
        sim.append(TOPIC, [b"one"])
        leader, (follower, _) = lead(sim, TOPIC)
        shard = shard_of(sim, TOPIC)
        noise = random.Random(verb)
        held = [*bodies(shard, replica(sim, follower, TOPIC).id)]
        held += [noise.randbytes(noise.randrange(0, 60)) for _ in range(40)]
        for name in (leader, follower):
            link = strange_link(sim, next(n for n in sim.nodes if n != name))
            for number, body in enumerate(held):
                frame = b"".join(encode_call(number, verb, 50, [body]))
                node(sim, name).link_frame(link, memoryview(frame))
            sim.advance("1s")
            assert not link.is_closed
        sim.advance("3s")
        assert sim.running == sim.nodes
        assert [m.value for m in sim.read_all(TOPIC, 0)][:1] in ([b"one"], [])
        assert sim.append(TOPIC, [b"two"], timeout="10s").count == 1


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 1 << 32))
def test_noise_on_a_link_never_ends_a_node(seed: int) -> None:
    noise = random.Random(seed)
    with cluster(nodes=1, seed=32) as sim:
        sim.create_topic(TOPIC, partitions=1, replication_factor=1)
        sim.append(TOPIC, [b"one"])
        target = node(sim, "node-1")
        ours = replica(sim, "node-1", TOPIC)
        good = b"".join(encode_rpcs([(ours.shard, _append(ours.id, 9))]))
        for _ in range(60):
            link = strange_link(sim, "node-1")
            size = noise.randrange(0, 90)
            frame = bytes([noise.randrange(0, FRAME_FOUND + 2)]) + noise.randbytes(size)
            target.link_frame(link, memoryview(frame))
            broken = bytearray(good)
            for _ in range(noise.randrange(1, 4)):
                broken[noise.randrange(1, len(broken))] = noise.randrange(256)
            target.link_frame(link, memoryview(broken))
            sim.advance("10ms")
        assert sim.running == ["node-1"]


def _append(to: int, term: int) -> Rpc:
    return Rpc(
        RpcKind.APP, to=to, sender=(1 << 24) | 1, term=term, log_term=1, index=1, commit=1,
        entries=[Entry(2, term, 0, b"data")],
    )  # fmt: skip


@pytest.mark.parametrize("kind", list(RpcKind))
@pytest.mark.parametrize("data", [b"", b"\xc1", pack({}), pack({"index": 1}), pack([1, 2])])
def test_an_rpc_no_correct_replica_sends_harms_nobody(kind: RpcKind, data: bytes) -> None:
    """Local kinds, offers that do not parse, huge numbers: refused, or the link is closed."""
    with cluster(nodes=3, seed=33) as sim:
        sim.create_topic(TOPIC, partitions=1)
        sim.append(TOPIC, [b"one"])
        leader, (follower, _) = lead(sim, TOPIC)
        giver, taker = replica(sim, leader, TOPIC), replica(sim, follower, TOPIC)
        for index in (0, 1, taker.raft.last_index, 1 << 40):
            snapshot = Snapshot(index, giver.raft.term, ConfState(voters=(giver.id,)), data)
            rpc = Rpc(
                kind, to=taker.id, sender=giver.id, term=giver.raft.term, log_term=1, index=index,
                commit=index, snapshot=snapshot, context=data,
            )  # fmt: skip
            link = strange_link(sim, leader)
            frame = b"".join(encode_rpcs([(taker.shard, rpc)]))
            node(sim, follower).link_frame(link, memoryview(frame))
        sim.advance("4s")
        assert sim.running == sim.nodes
        assert sim.append(TOPIC, [b"two"], timeout="10s").count == 1


def test_an_answer_that_makes_no_sense_is_answered_as_unknown() -> None:
    """C1: the caller hears of it, and the link is closed."""
    with cluster(nodes=3, seed=34) as sim:
        target = node(sim, "node-1")
        link = strange_link(sim, "node-2")
        heard: list[object] = []

        def done(answer: bytes | RaftlineError) -> None:
            heard.append(
                answer if isinstance(answer, RaftlineError) else msgspec.json.decode(answer)
            )

        target.remote.call_link(link, 1, [], 1_000, done)
        number = struct.unpack_from("<Q", link.sent[0], 1)[0]
        assert link.sent[0][0] == FRAME_CALL
        reply = struct.pack("<BQB", FRAME_REPLY, number, 1) + b"{"
        target.link_frame(link, memoryview(reply))
        assert link.is_closed
        assert [getattr(answer, "code", "") for answer in heard] == ["timed_out"]
