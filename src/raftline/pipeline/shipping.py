"""Our code for the machines of a Spark cluster: the package as one zip, made once per content.

Only ``raftline`` itself: what it imports (msgspec, aiokafka, pyarrow …) is compiled for each
machine and has to be there, as pyarrow has to be for Spark anyway.
"""

import hashlib
import os
import tempfile
import zipfile
from pathlib import Path

import raftline

_STAMP = (2020, 1, 1, 0, 0, 0)  # the same content makes the same file
_LEFT_OUT = ("__pycache__",)


def package_zip(cache: Path) -> Path:
    """Return the package as a zip in ``cache``, whose name tells its content."""
    root = Path(raftline.__file__).parent
    if root.suffix == ".zip" or not root.is_dir():
        return root.parent  # we came out of such a zip
    files = sorted(
        path
        for path in root.rglob("*")
        if path.is_file() and not set(_LEFT_OUT).intersection(path.parts)
    )
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(root)}\0".encode())
        digest.update(path.read_bytes())
    target = cache / f"raftline-{digest.hexdigest()[:16]}.zip"
    if target.exists():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    number, made = tempfile.mkstemp(dir=cache, suffix=".part")
    with os.fdopen(number, "wb") as output, zipfile.ZipFile(output, "w") as archive:
        for path in files:
            name = f"raftline/{path.relative_to(root)}"
            info = zipfile.ZipInfo(name, _STAMP)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, path.read_bytes())
    Path(made).chmod(0o644)
    Path(made).rename(target)
    return target
