"""The wheel has all that a node, a client and those beside them need; a stranger can install it."""

import json
import os
import subprocess
import sys
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftline.chaos.rig import free_port_base

ROOT = Path(__file__).parents[2]
SHARED = {
    "share/doc/raftline/README.md": "README.md",
    "share/raftline/config.example.yaml": "config.example.yaml",
    "share/raftline/grafana/raftline.json": "deploy/grafana/raftline.json",
    "share/raftline/prometheus/alerts.yml": "deploy/prometheus/alerts.yml",
    "share/raftline/systemd/raftline.service": "deploy/systemd/raftline.service",
    "share/raftline/proto/raftline/v1/messages.proto": "proto/raftline/v1/messages.proto",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it as `make build` does, but the source archive first and the wheel from that."""
    out = tmp_path_factory.mktemp("dist")
    command = [
        *(str(Path(sys.executable).with_name("uv")), "build", "--no-build-isolation", "--quiet"),
        *("--python", sys.executable, "--out-dir", str(out)),
    ]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    (found,) = out.glob("*.whl")
    assert len(list(out.glob("*.tar.gz"))) == 1
    return found


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "src/raftline"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    wanted = {line.removeprefix("src/") for line in listed.stdout.splitlines()}
    wanted = {name for name in wanted if (ROOT / "src" / name).exists()}
    assert wanted
    held = set(zipfile.ZipFile(wheel).namelist())
    assert not wanted - held
    assert wheel.name.endswith("-py3-none-any.whl")


def test_the_wheel_brings_what_other_programs_read(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        data = next(name for name in archive.namelist() if ".data/data/" in name)
        root = data.partition("share/")[0]
        for inside, source in SHARED.items():
            assert archive.read(root + inside) == (ROOT / source).read_bytes()


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of programs of a new environment with nothing but the wheel in it."""
    place = tmp_path_factory.mktemp("fresh")
    venv.create(place, with_pip=True)
    programs = place / "bin"
    command = [
        *(str(programs / "python"), "-m", "pip", "install", "--quiet"),
        *("--disable-pip-version-check", "--only-binary=:all:", str(wheel)),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert ran.returncode == 0, ran.stderr
    return programs


@pytest.fixture
def servers(installed: Path, tmp_path: Path) -> Iterator[str]:
    """Start three nodes with the installed program, far from this folder."""
    base = free_port_base(3)
    data = ["--data-dir", str(tmp_path / "data")]
    run(installed, "up", "--nodes", "3", "--port-base", str(base), "--detach", *data)
    try:
        yield ",".join(f"127.0.0.1:{base + number}" for number in range(3))
    finally:
        run(installed, "down", *data)


def run(programs: Path, *words: str, server: str = "") -> str:
    """Run the installed program with an environment that knows nothing of this folder."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "RAFTLINE_SERVER")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment["RAFTLINE_SERVER"] = server
    ran = subprocess.run(
        [str(programs / "raftline"), *words],
        capture_output=True, text=True, check=False, timeout=120, cwd="/", env=environment,
    )  # fmt: skip
    assert ran.returncode == 0, f"{words}: {ran.stdout}{ran.stderr}"
    return ran.stdout


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_stranger_installs_it_and_everything_works(installed: Path, servers: str) -> None:
    first = f"http://{servers.split(',', maxsplit=1)[0]}"
    said = run(installed, "produce", "orders", "-m", "a book", "--key", "k", server=servers)
    assert said.startswith("orders.")
    said = run(installed, "consume", "orders", "--group", "g", server=servers)
    assert "a book" in said
    assert "identical" in run(installed, "cluster", "verify", server=servers)
    page = urllib.request.urlopen(f"{first}/status", timeout=10).read()
    assert b"<html" in page.lower()
    assert json.loads(urllib.request.urlopen(f"{first}/openapi.json", timeout=10).read())["paths"]
    assert b"raftline_ready" in urllib.request.urlopen(f"{first}/metrics", timeout=10).read()
    for inside, source in SHARED.items():
        assert (installed.parent / inside).read_bytes() == (ROOT / source).read_bytes()
    code = (
        "import raftline, sys; grpc = sys.argv[1]\n"
        "with raftline.connect(grpc) as line:\n"
        "    line.send('orders', 'by gRPC', wait=True)\n"
        "import aiokafka, raftline.wire.proto.raftline.v1.messages_pb2\n"
        "assert 'site-packages' in raftline.__file__\n"
    )
    port = int(servers.split(",", maxsplit=1)[0].rpartition(":")[2]) + 1000
    words = [str(installed / "python"), "-I", "-c", code, f"grpc://127.0.0.1:{port}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, cwd="/")
    assert done.returncode == 0, done.stderr


@pytest.mark.full
@pytest.mark.timeout(900)
def test_every_dependency_has_wheels_for_both_processors() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "check_wheels.py")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("compiled for it") == 2
