"""Errors: codes, hints, and the way between nodes."""

import msgspec
import pytest

from raftline.model import errors
from raftline.model.errors import ERRORS, RaftlineError

SAMPLES: list[RaftlineError] = [
    errors.UnknownTopic("orders"),
    errors.UnknownPartition("orders", 7, 6),
    errors.OffsetOutOfRange("orders/2", 5, 10, 20),
    errors.UnknownNode("node-9"),
    errors.UnknownRoute("/v1/x"),
    errors.UnknownMessage("w7", "it was never given"),
    errors.UnknownMethod("PATCH", "GET, POST"),
    errors.InvalidTopic("a b", "' ' is not allowed"),
    errors.InvalidArgument("limit is -1", "use 1 or more"),
    errors.CorruptBatch("crc", "orders/2"),
    errors.BatchTooLarge(9, 8, "orders/2"),
    errors.NotEnoughNodes("topic orders", 3, 1),
    errors.TopicExists("orders"),
    errors.NodeExists("node-1", "same disk"),
    errors.AlreadyBootstrapped("c1"),
    errors.WrongCluster("c1", "c2"),
    errors.WrongDirectory("it belongs to node-2", "start elsewhere"),
    errors.NewerFormat("the catalog", 2, 1),
    errors.OutOfOrder(7, 0, 5, 3),
    errors.FencedProducer(7, 0, 1),
    errors.NotWaiting("message w7 was released to offset 3"),
    errors.UnknownProducer(7, 5),
    errors.DuplicateKey([(0, 17), (3, -5)]),
    errors.UnknownGroup("billing"),
    errors.UnknownMember("billing", "m1"),
    errors.FencedMember("billing", "m1", 3, 4, "it was expired"),
    errors.FencedInstance("billing", "i1", "m1"),
    errors.Rebalancing("billing"),
    errors.WrongGroupKind("billing", "has members of another kind"),
    errors.GroupNotEmpty("billing", 2),
    errors.LeaseLost("orders/2@7"),
    errors.StageMissing("q", 3, "task 1 has 2 chunks here, not 3"),
    errors.FencedQuery("q", 3, "it stands at 4"),
    errors.NotArchived("orders/2", 100, 50),
    errors.TooLarge("bytes of a key", 70_000, 65_536),
    errors.OverLimit("uncommitted bytes of orders/2", 33, 32),
    errors.NotLeader("orders/2", 3),
    errors.NoLeader("orders/2"),
    errors.NoQuorum("orders/2", 1, 3),
    errors.NotReady("no catalog leader"),
    errors.ShuttingDown(),
    errors.DiskFull("node-1", 1, 2),
    errors.StorageFault("orders/2", "EIO"),
    errors.Damaged("orders/2@7", "crc"),
    errors.TimedOut("append to orders/2", 15000),
    errors.Internal("a bug"),
]


def test_every_leaf_has_a_sample_and_a_code_of_its_own():
    assert sorted(type(e).code for e in SAMPLES) == sorted(ERRORS)
    assert all(code and code == cls.code for code, cls in ERRORS.items())
    assert all(f"{cls.__name__} " in (errors.__doc__ or "") for cls in ERRORS.values())


@pytest.mark.parametrize("error", SAMPLES, ids=lambda e: e.code)
def test_an_error_passes_between_nodes(error: RaftlineError):
    packed = msgspec.msgpack.encode(error.to_wire())
    back = RaftlineError.from_wire(msgspec.msgpack.decode(packed, type=errors.ErrorWire))
    assert type(back) is type(error)
    assert back == error
    assert (back.message, back.hint, back.extras) == (error.message, error.hint, error.extras)
    assert str(back) == error.message
    assert error.message
    assert error.hint


def test_only_a_timeout_leaves_the_effect_unknown():
    assert [cls.code for cls in ERRORS.values() if cls.unknown] == ["timed_out"]
    assert all(cls.retry for cls in ERRORS.values() if issubclass(cls, errors.Unavailable))
    assert not any(cls.retry for cls in ERRORS.values() if issubclass(cls, errors.Invalid))


def test_a_code_of_a_newer_node_is_internal():
    back = RaftlineError.from_wire(("quantum_fault", "both", "look again", {"message": "x"}))
    assert type(back) is errors.Internal
    assert back.message == "both"
    assert back.extras == {"message": "x", "code": "quantum_fault"}
