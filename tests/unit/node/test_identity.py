"""The identity of a directory: refusals change nothing. I1-I3."""

import msgspec
import pytest

from raftline.model.errors import AlreadyBootstrapped, NewerFormat, RaftlineError, WrongDirectory
from raftline.node.identity import FILE, Identity, load_identity, save_identity
from raftline.testing import SimDisk
from tests.unit.node.little_ports import rng


def contents(disk: SimDisk) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in disk.listdir(""):
        if name.endswith((".json", ".tmp")):
            file = disk.open(name)
            found[name] = file.read_at(0, file.size())
    return found


def write(disk: SimDisk, text: bytes) -> None:
    file = disk.open(FILE, create=True)
    file.write_at(0, [text])
    file.fdatasync()


def test_an_empty_directory_is_formatted_once_and_stays_itself() -> None:
    disk = SimDisk(rng())
    first = load_identity(disk, "a", rng(1), bootstrap=False)
    disk.crash()
    again = load_identity(disk, "a", rng(2), bootstrap=False)
    assert again == first
    assert len(first.directory) == 32
    disk.wipe()
    assert load_identity(disk, "a", rng(3), bootstrap=False).directory != first.directory


MEMBER = Identity(directory="d", name="a", cluster="c", node=1)


@pytest.mark.parametrize(
    ("text", "name", "bootstrap", "refusal"),
    [
        (msgspec.json.encode(MEMBER), "b", False, WrongDirectory),
        (msgspec.json.encode(MEMBER), "a", True, AlreadyBootstrapped),
        (b'{"format": 2, "new": {}}', "a", False, NewerFormat),
        (b"{", "a", False, WrongDirectory),
        (b"", "a", False, WrongDirectory),
        (b"[]", "a", False, WrongDirectory),
        (b'{"format": "x"}', "a", False, WrongDirectory),
        (b'{"directory": 1, "name": "a"}', "a", False, WrongDirectory),
    ],
)
def test_a_refusal_changes_nothing(
    text: bytes, name: str, *, bootstrap: bool, refusal: type[RaftlineError]
) -> None:
    """I2."""
    disk = SimDisk(rng())
    write(disk, text)
    with pytest.raises(refusal) as caught:
        load_identity(disk, name, rng(), bootstrap=bootstrap)
    assert caught.value.hint
    assert contents(disk) == {FILE: text}


@pytest.mark.parametrize("left", ["wal", "shards"])
def test_data_without_an_identity_is_never_taken_for_an_empty_directory(left: str) -> None:
    disk = SimDisk(rng())
    disk.mkdir(left)
    with pytest.raises(WrongDirectory):
        load_identity(disk, "a", rng(), bootstrap=False)
    assert contents(disk) == {}


def test_a_crash_at_any_point_of_saving_leaves_the_old_or_the_new_one() -> None:
    """I3."""
    new = msgspec.structs.replace(MEMBER, catalog_replica=7, addresses={"b:1": 2})
    seen: set[int] = set()
    for operations in range(12):
        for seed in range(4):
            disk = SimDisk(rng(seed))
            save_identity(disk, MEMBER)
            disk.power_off_after(operations)
            try:
                save_identity(disk, new)
            except BaseException as error:
                if type(error).__name__ != "PowerLoss":
                    raise
            disk.crash()
            found = load_identity(disk, "a", rng(), bootstrap=False)
            assert found in (MEMBER, new)
            seen.add(found.catalog_replica)
    assert seen == {0, 7}
