"""Golden bytes of delivery commands: see test_golden.py."""

from pathlib import Path
from typing import get_args

import pytest

from raftline.machines.delivery import commands as c
from raftline.machines.partition.commands import Malformed

GOLDEN = Path(__file__).parent / "golden"
COMMANDS: list[c.Command] = [
    c.OpenGroup("workers", c.Policy(3, 1000, 60_000, True, False, 10), c.START_FIRST),
    c.Grant("workers", 7, "w-1", 31_000, [0, 10, 1, 0, 12, 13, 2, 1], [5, 0, 2**63 - 1]),
    c.Settle("workers", c.NACK, 2, 7, 1, 0, [0, 3, 5, 6], c.BACKOFF, "no answer", "w-1"),
    c.Buried(300),
    c.Revive("workers", [4, 5]),
    c.Forget("workers", [4, 5, 70_000, 70_001]),
    c.Reset("workers", c.START_NEXT),
    c.DropGroup("workers"),
    c.LeaseQuery("workers", "q1", 7, 12, 31_000, [0, 10, 1, 0, 12, 13, 2, 1], [5, 0, 2**63 - 1]),
    c.AckQuery("workers", "q1", 7),
    c.RejectQuery("workers", "q1", 7, [4, 5, 70_000, 70_001], "bad total"),
    c.ReleaseQuery("workers", "q1"),
]
ENTRIES = {type(command).__name__: [command] for command in COMMANDS} | {
    "tick": [],
    "release": [c.Settle("w", c.RELEASE, 2, 7, 1, 0, [0, 3])],
    "many": [c.Grant("w", 1, "", 5, [0, 1, 1, 0]), c.Settle("w", c.ACK, 1, 1, 1, 0, [0, 1])],
}


@pytest.mark.parametrize("name", ENTRIES)
def test_delivery(name: str, rewrite: bool):
    data = c.encode_deliver(1000, ENTRIES[name])
    path = GOLDEN / f"delivery-{name.lower()}.hex"
    text = "\n".join(data.hex()[at : at + 96] for at in range(0, len(data.hex()), 96)) + "\n"
    if rewrite:
        path.write_text(text)
    assert path.read_text() == text, f"{name}: entries on disk are read differently now"
    assert c.decode_deliver(data) == c.Deliver(1000, ENTRIES[name])


def test_none_is_left_out():
    assert {type(command) for command in COMMANDS} == set(get_args(c.Command))
    names = {f"delivery-{name.lower()}" for name in ENTRIES}
    assert {path.stem for path in GOLDEN.glob("delivery-*.hex")} == names


@pytest.mark.parametrize("data", [b"", b"\x03", b"\x02\x92\x01\x90", b"\x03\x92\x01\x91\x91\xa1?"])
def test_other_bytes_are_refused(data):
    with pytest.raises(Malformed):
        c.decode_deliver(data)
