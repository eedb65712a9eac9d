"""Who this data directory is: the small file that is read before anything else.

Rules
    I1  A directory gets a random uuid when it is formatted; a wiped directory is another directory.
    I2  Cluster, node number and name never change once written. Another name, cluster or a newer
        format refuses to start and changes nothing.
    I3  Written whole: temporary file, sync, rename, directory sync.
    I4  A catalog replica is noted as opened before it takes part. One that is not noted never
        voted, so a start may open it; one that is noted and gone may not come back.
"""

import msgspec

from raftline.model.errors import AlreadyBootstrapped, NewerFormat, WrongDirectory
from raftline.node.ports import Rng
from raftline.storage.files import Disk
from raftline.transport.rpcs import FoundingNode

FILE = "identity.json"
FORMAT = 1


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says."""

    format: int = FORMAT
    directory: str
    name: str
    cluster: str = ""
    node: int = 0
    catalog_replica: int = 0  # our replica of the catalog shard, 0 until the cluster gave one
    catalog_opened: int = -1  # the last one that took part, 0 for none, -1 where nobody noted it
    founders: tuple[FoundingNode, ...] = ()
    addresses: dict[str, int] = {}  # peer address -> node, as last known


def load_identity(disk: Disk, name: str, rng: Rng, *, bootstrap: bool) -> Identity:
    """Return the directory's identity, formatting an empty one. I1, I2."""
    if not disk.exists(FILE):
        leftovers = [entry for entry in disk.listdir("") if entry in ("wal", "shards")]
        if leftovers:
            raise WrongDirectory(
                f"the data directory holds {' and '.join(leftovers)} but no {FILE}",
                "restore the file from a backup, or start on an empty directory: the cluster "
                "fills it again",
            )
        identity = Identity(directory=rng.randbytes(16).hex(), name=name)
        save_identity(disk, identity)
        return identity
    identity = _read(disk)
    if identity.name != name:
        raise WrongDirectory(
            f"the data directory belongs to node {identity.name!r}, not {name!r}",
            f"start with --id {identity.name}, or give {name!r} a directory of its own",
        )
    if bootstrap and identity.cluster:
        raise AlreadyBootstrapped(identity.cluster)
    return identity


def not_ours(error: Exception) -> WrongDirectory:
    """Return the refusal for files that a newer build or another node has written. I2."""
    return WrongDirectory(
        str(error), "give this node the directory it had, or run the newer build here"
    )


def _read(disk: Disk) -> Identity:
    file = disk.open(FILE)
    try:
        text = file.read_at(0, file.size())
    finally:
        file.close()
    try:
        version = msgspec.json.decode(text, type=dict[str, msgspec.Raw]).get("format")
        if version is not None and int(bytes(version)) > FORMAT:
            raise NewerFormat(FILE, int(bytes(version)), FORMAT)
        return msgspec.json.decode(text, type=Identity)
    except (msgspec.DecodeError, ValueError) as error:
        raise WrongDirectory(
            f"{FILE} is damaged: {error}",
            "start on an empty directory under the same name: the cluster fills it again",
        ) from error


def save_identity(disk: Disk, identity: Identity) -> None:
    """Write the file. I3."""
    temporary = FILE + ".tmp"
    file = disk.open(temporary, create=True)
    try:
        text = msgspec.json.encode(identity)
        file.truncate(0)
        file.write_at(0, [text])
        file.fdatasync()
    finally:
        file.close()
    disk.rename(temporary, FILE)
    disk.sync_dir("")
