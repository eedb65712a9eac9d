"""Install the other systems: clients and NATS by pip, jars by Maven, the rest by apt.

    python -m bench.peers.install [SYSTEM ...]

Everything but the packages of apt goes to ``$RAFTLINE_CACHE/peers`` (default
~/.cache/raftline/peers). What is there is not fetched again. A system that cannot be had is named
with the reason, and the others go on.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
REQUIREMENTS = Path(__file__).parent / "requirements.txt"
TIMEOUT_S = 900
APT_PACKAGES = {  # system: package, program
    "beanstalkd": ("beanstalkd", "beanstalkd"),
    "redis": ("redis-server", "redis-server"),
    "rabbitmq": ("rabbitmq-server", "rabbitmq-server"),
}
JARS = {"kafka": "kafka-broker", "elasticmq": "elasticmq"}  # sets of scripts/fetch_jars.py
SYSTEMS = (*APT_PACKAGES, "nats", *JARS)
POLICY = Path("/usr/sbin/policy-rc.d")  # says to apt whether it may start what it installs


class CannotInstall(Exception):
    """A system is not to be had here."""


def home() -> Path:
    """Return where clients and servers are kept."""
    base = os.environ.get("RAFTLINE_CACHE") or Path.home() / ".cache" / "raftline"
    return Path(base) / "peers"


def python() -> Path:
    """Return the Python that load processes run on: it has the clients of all systems.

    Where nothing is installed it is this one, which has Raftline's own.
    """
    return _python() if (home() / "venv" / ".ready").exists() else Path(sys.executable)


def _python() -> Path:
    return home() / "venv" / "bin" / "python"


def program(name: str) -> str:
    """Return the path of a server's program. Raises CannotInstall."""
    places = os.pathsep.join([str(_python().parent), os.environ.get("PATH", ""), "/usr/sbin"])
    found = shutil.which(name, path=places)
    if found is None:
        raise CannotInstall(f"{name} is not installed: python -m bench.peers.install")
    return found


def install_clients() -> None:
    """Make the venv of the load processes, or renew it where the requirements changed."""
    stamp = home() / "venv" / ".ready"
    wanted = REQUIREMENTS.read_text() + (ROOT / "pyproject.toml").read_text()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    home().mkdir(parents=True, exist_ok=True)
    if not _python().exists():
        _run([sys.executable, "-m", "venv", str(home() / "venv")])
    pip = [str(_python()), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    _run([*pip, "-r", str(REQUIREMENTS), *_own_dependencies()])
    stamp.write_text(wanted)


def install(system: str) -> None:
    """Install the server of one system. Raises CannotInstall."""
    if system in APT_PACKAGES:
        _install_package(*APT_PACKAGES[system])
    elif system in JARS:
        _fetch_jars(JARS[system])
    elif system == "nats":
        program("nats-server")


def versions(systems: list[str]) -> dict[str, str]:
    """Return what runs, by the adapters' names."""
    import raftline

    found = {"raftline": raftline.__version__}
    for name in set(systems) - {"raftline"}:
        with contextlib.suppress(OSError, CannotInstall, subprocess.SubprocessError):
            found[name] = _version(name)
    return found


def jars(name: str) -> Path:
    """Return the folder of a set of jars, fetched if need be. Raises CannotInstall."""
    return _fetch_jars(name)


def _version(system: str) -> str:
    if system in APT_PACKAGES:
        package = APT_PACKAGES[system][0]
        return _run(["dpkg-query", "-W", "-f=${Version}", package]).strip()
    if system == "nats":
        return _run([program("nats-server"), "--version"]).split()[-1]
    pattern = {"kafka": "kafka_2.13-*.jar", "elasticmq": "elasticmq-server_2.13-*.jar"}[system]
    found = sorted(_fetch_jars(JARS[system]).glob(pattern))
    return found[0].stem.rpartition("-")[2] if found else "?"


def _own_dependencies() -> list[str]:
    """Return what Raftline's own client needs; its code comes by PYTHONPATH."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return list(project["dependencies"])


def _install_package(package: str, name: str) -> None:
    try:
        program(name)
    except CannotInstall:
        pass
    else:
        return
    if shutil.which("apt-get") is None:
        raise CannotInstall(f"{name} is not installed, and there is no apt-get to get {package}")
    made = not POLICY.exists()
    try:
        if made:  # installed only, not started
            POLICY.write_text("#!/bin/sh\nexit 101\n")
            POLICY.chmod(0o755)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        _run(["apt-get", "update", "-qq"], environment)
        _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", package], environment)
    except PermissionError as error:
        raise CannotInstall(f"{package} is installed by root only: apt-get install") from error
    finally:
        if made:
            POLICY.unlink(missing_ok=True)


def _fetch_jars(name: str) -> Path:
    command = [sys.executable, str(ROOT / "scripts" / "fetch_jars.py"), name]
    return Path(_run(command).strip())


def _run(command: list[str], environment: dict[str, str] | None = None) -> str:
    with tempfile.TemporaryFile("w+") as errors:
        try:
            done = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
                env=environment,
            )
        except subprocess.TimeoutExpired as error:
            raise CannotInstall(f"{command[0]} took more than {TIMEOUT_S} s") from error
        errors.seek(0)
        if done.returncode:
            words = (done.stdout + errors.read()).strip().splitlines()
            raise CannotInstall(f"{' '.join(command[:4])} …: {' '.join(words[-3:])}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "systems",
        nargs="*",
        choices=[*SYSTEMS, []],
        metavar="SYSTEM",
        help=f"{', '.join(SYSTEMS)}; all of them if none is named",
    )
    names = parser.parse_args().systems or SYSTEMS
    install_clients()
    failed = 0
    for name in names:
        try:
            install(name)
        except CannotInstall as error:
            print(f"{name}: {error}")
            failed += 1
        else:
            print(f"{name}: installed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
