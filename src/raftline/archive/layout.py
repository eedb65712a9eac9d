"""Where things are in an archive: folders, names of files, names of manifests.

::

    ROOT/topic=orders/partition=2/date=2026-11-16/hour=05/00000000000000045678-1f0c2a9be4.parquet
    ROOT/topic=orders/partition=2/_manifest/00000000000000000007.json

A data file is named by its first offset and by the run that wrote it, so that a task which was
given up on can never write over what another one finished. A folder says in which hour (UTC) the
first message of a file was sent; the exact times are in the manifest. Names that begin with ``_``
or ``.`` are passed over by whoever reads folders of Parquet files.
"""

import re
from datetime import UTC, datetime
from pathlib import Path

from raftline.model.errors import InvalidArgument
from raftline.model.names import check_topic_name

HOUR_MS = 3_600_000
MANIFESTS = "_manifest"
SUFFIX = ".parquet"
UNFINISHED = ".tmp"

_VERSION = re.compile(r"(?P<version>[0-9]{20})\.json", re.ASCII)
_PARTITION = re.compile(r"partition=(?P<partition>[0-9]{1,9})", re.ASCII)
_TOPIC = "topic="
_HOURS_MAX = 253_402_300_799_999 // HOUR_MS  # the end of the year 9999
_FILE = re.compile(r"\Afile:/(//)?(?!/)")  # Hadoop writes one slash
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def local_root(text: str | Path) -> Path:
    """Return the directory that an address of an archive means.

    Raises:
        InvalidArgument: it is empty, or no directory of a file system.
    """
    given = str(text).strip()
    path = _FILE.sub("/", given)
    if not path:
        raise InvalidArgument(
            "no archive is named",
            "name its directory: --dir DIR, the topic setting archive_dir, pipeline.archive_dir",
        )
    if _SCHEME.match(path):
        raise InvalidArgument(
            f"{given!r} is no directory",
            "an archive is a directory that every Spark worker can reach; mount the store there",
        )
    return Path(path).expanduser().absolute()


def topic_folder(root: Path, topic: str) -> Path:
    """Return the folder of a topic. Raises InvalidTopic."""
    check_topic_name(topic)
    return root / f"{_TOPIC}{topic}"


def partition_folder(root: Path, topic: str, partition: int) -> Path:
    """Return the folder of a partition; paths in its manifest are relative to it."""
    return topic_folder(root, topic) / f"partition={partition}"


def hour_folder(time_ms: int) -> str:
    """Return the folder, in that of the partition, of files that begin at a time."""
    hour = max(0, min(time_ms // HOUR_MS, _HOURS_MAX))
    moment = datetime.fromtimestamp(hour * HOUR_MS / 1000, UTC)
    return f"date={moment:%Y-%m-%d}/hour={moment:%H}"


def file_name(start: int, run: str) -> str:
    """Return the name of a data file that begins at an offset."""
    return f"{start:020d}-{run}{SUFFIX}"


def manifest_name(version: int) -> str:
    """Return the name of a manifest."""
    return f"{version:020d}.json"


def version_of(name: str) -> int | None:
    """Return the version that the name of a manifest means."""
    found = _VERSION.fullmatch(name)
    return int(found["version"]) if found else None


def topics_in(root: Path) -> list[str]:
    """Return the topics that have a folder."""
    found = [path.name.removeprefix(_TOPIC) for path in root.glob(f"{_TOPIC}*") if path.is_dir()]
    return sorted(found)


def partitions_in(root: Path, topic: str) -> list[int]:
    """Return the partitions of a topic that have a folder."""
    folder = topic_folder(root, topic)
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(found["partition"]) for found in map(_PARTITION.fullmatch, names) if found)
