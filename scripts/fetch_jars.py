"""Fetch sets of jars with Maven, for tests and measurements that run other people's programs.

    python scripts/fetch_jars.py SET [SET ...]

SET: elasticmq, kafka-3.9, kafka-4, kafka-broker, spark-kafka

Each set lies in a folder of its own under ``$RAFTLINE_CACHE`` (default ~/.cache/raftline/jars) and
is fetched once. Needs ``mvn`` and whatever repositories it is configured for. Prints the folders.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TIMEOUT_S = 600
Coordinates = tuple[str, ...]  # group:artifact:version

SETS: dict[str, tuple[Coordinates, bool]] = {  # jars; with all they depend on
    "elasticmq": (("org.elasticmq:elasticmq-server_2.13:1.7.1",), True),
    "kafka-3.9": (("org.apache.kafka:kafka-tools:3.9.1",), True),
    "kafka-4": (("org.apache.kafka:kafka-tools:4.3.1", "org.slf4j:slf4j-nop:1.7.36"), True),
    "kafka-broker": (
        (
            "org.apache.kafka:kafka_2.13:4.3.1",
            "org.apache.kafka:kafka-tools:4.3.1",
            "org.slf4j:slf4j-simple:1.7.36",
        ),
        True,
    ),
    "spark-kafka": (
        (
            "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
            "org.apache.kafka:kafka-clients:3.9.2",
            "org.apache.commons:commons-pool2:2.12.0",
        ),
        False,
    ),
}


def cache() -> Path:
    """Return where jars are kept."""
    return Path(os.environ.get("RAFTLINE_CACHE") or Path.home() / ".cache" / "raftline") / "jars"


def fetch(name: str) -> Path:
    """Return the folder of a set; fetch it if it is not there."""
    coordinates, with_all = SETS[name]
    folder = cache() / name
    if folder.exists():
        return folder
    if shutil.which("mvn") is None:
        raise SystemExit("mvn is not installed: jars are fetched with Maven")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        project, target = Path(scratch) / "pom.xml", Path(scratch) / "jars"
        project.write_text(_project(coordinates, with_all=with_all))
        command = [
            "mvn", "-q", "-B", "-f", str(project), "dependency:copy-dependencies",
            f"-DoutputDirectory={target}", "-DincludeScope=runtime",
        ]  # fmt: skip
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        if done.returncode != 0 or not any(target.glob("*.jar")):
            raise SystemExit(f"mvn could not fetch {name}:\n{(done.stdout + done.stderr)[-2000:]}")
        target.rename(folder)
    return folder


def _project(coordinates: Coordinates, *, with_all: bool) -> str:
    every = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    alone = "" if with_all else f"<exclusions>{every}</exclusions>"
    rows = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
        "{}</dependency>".format(*row.split(":"), alone)
        for row in coordinates
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>raftline</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{rows}</dependencies></project>"
    )


def main() -> int:
    """Fetch what is named."""
    unknown = [name for name in sys.argv[1:] if name not in SETS]
    if unknown or len(sys.argv) < 2:
        print(f"usage: fetch_jars.py SET [SET ...]   SET: {', '.join(SETS)}")
        return 2
    for name in sys.argv[1:]:
        print(fetch(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
