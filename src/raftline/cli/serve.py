"""``raftline serve``: one node. A small parser of its own, because start-up time counts.

Every flag sets one setting. ``-flag``, ``--flag value``, ``--flag=value`` and ``--flag=true`` are
all understood.
"""

import os
import sys
from pathlib import Path

from raftline import __version__
from raftline.cli import exits

VALUE_FLAGS = {
    "id": "node.name",
    "nodeid": "node.name",
    "node-id": "node.name",
    "data-dir": "node.data_dir",
    "rack": "node.rack",
    "peers": "node.peers",
    "join": "node.join",
    "http-addr": "listen.http",
    "grpc-addr": "listen.grpc",
    "kafka-addr": "listen.kafka",
    "peer-addr": "listen.peer",
    "lease-timeout": "delivery.lease_ms",
    "max-retries": "delivery.retries_max",
    "log-level": "log_output.level",
    "log-format": "log_output.format",
    "partitions": "topics.partitions",
    "replication-factor": "topics.replication_factor",
    "retention": "topics.retention_ms",
    # as queue calls them
    "raft.replica_id": "node.name",
    "raft.addr": "listen.peer",
    "raft.join": "node.join",
    "grpc.listener_addr": "listen.grpc",
    "http.listener_addr": "listen.http",
}
SPANS = ("lease-timeout", "retention")  # times in flags whose names say no unit
_PEER = ": the peer address of a node that is there"
_WANTS: dict[str, str] = {"join": _PEER, "raft.join": _PEER}
SWITCHES = {"bootstrap": "node.bootstrap", "insecure": "node.insecure"}
HELP = """\
Usage: raftline serve [FLAGS]

Run one node. Without flags: a cluster of one node in ./raftline-data.

  --config FILE          settings in TOML, YAML, JSON or .env; one file may list all nodes, --id
                         picks one; files of GoQueue, FalconQ and queue are understood
  --id NAME              name of this node (also --nodeid)
  --data-dir DIR         where it stores everything
  --http-addr H:P        HTTP address                            (127.0.0.1:8080)
  --grpc-addr H:P        gRPC address                            (127.0.0.1:9000)
  --kafka-addr H:P       Kafka address                           (127.0.0.1:9092)
  --peer-addr H:P        address for the other nodes             (127.0.0.1:7000)
  --peers a=H:P,b=H:P    all nodes of a new cluster, this one included
  --join H:P             join the cluster of the node at this peer address
  --bootstrap            found a new cluster; refused where there is one
  --rack NAME            replicas are spread over racks
  --lease-timeout 30s    lease of new topics
  --max-retries 3        retries of new topics
  --partitions 6         partitions of new topics
  --replication-factor N replicas of new topics                  (min(3, nodes))
  --retention 168h       age at which messages of new topics go
  --insecure             allow addresses beyond loopback without credentials
  --log-level LEVEL      debug, info, warning, error
  --log-format FORM      json, console
  --set NAME=VALUE       any setting, for example --set wal.bytes_max=2GiB (repeatable)
  --print-config         print the effective settings as TOML and end
  --version              print the version and end

Settings come from defaults, then the file, then RAFTLINE_SECTION_FIELD variables, then flags.
"""


class Misused(Exception):
    """The flags make no sense."""


class Asked:
    """What the flags ask for."""

    __slots__ = ("file", "flags", "help", "print_config", "version")

    def __init__(self) -> None:
        self.file: Path | None = None
        self.flags: dict[str, str] = {}
        self.help = False
        self.print_config = False
        self.version = False


def run(words: list[str]) -> int:
    """Parse, load the settings, run the node. Returns the exit code."""
    from raftline.config.loader import SettingsError, load

    exits.open_what_is_closed()  # else files of the node would get their numbers, and its log none
    try:
        asked = parse(words)
        if asked.help or asked.version:
            return _tell(HELP if asked.help else f"raftline {__version__}\n")
        settings = load(asked.file, os.environ, asked.flags)
    except Misused as error:
        exits.complain(str(error), "raftline serve --help lists the flags")
        return exits.USAGE
    except SettingsError as error:
        for problem in error.problems:
            exits.complain(problem)
        return exits.USAGE
    if asked.print_config:
        from raftline.config.render import to_toml

        return _tell(to_toml(settings))
    from raftline.server import process

    return process.run(settings)


def parse(words: list[str]) -> Asked:
    """Read the flags.

    Raises:
        Misused: with a sentence for the user.
    """
    asked = Asked()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word in ("-", "--"):
            raise Misused(f"serve takes flags only, not {word!r}")
        name, equals, value = word.lstrip("-").partition("=")
        if name in ("h", "help"):
            asked.help = True
        elif name in ("v", "version"):
            asked.version = True
        elif name == "print-config" or name in SWITCHES:
            _switch(asked, name, value if equals else "true")
        elif name in ("config", "set") or name in VALUE_FLAGS:
            if not equals:
                if not rest or rest[0].startswith("--"):
                    raise Misused(f"--{name} needs a value{_WANTS.get(name, '')}")
                value = rest.pop(0)
            _take(asked, name, value)
        else:
            raise Misused(f"there is no flag --{name}{_nearest(name)}")
    return asked


def _tell(text: str) -> int:
    def write() -> int:
        sys.stdout.write(text)
        return exits.DONE

    return exits.while_read(write)


def _switch(asked: Asked, name: str, value: str) -> None:
    if value.lower() not in ("true", "false", "1", "0"):
        raise Misused(f"--{name} is true or false, not {value!r}")
    if name == "print-config":
        asked.print_config = value.lower() in ("true", "1")
    else:
        asked.flags[SWITCHES[name]] = value


def _take(asked: Asked, name: str, value: str) -> None:
    if name == "config":
        asked.file = Path(value)
    elif name == "set":
        setting, equals, given = value.partition("=")
        if not equals or "." not in setting:
            raise Misused(f"--set {value}: write section.field=value")
        asked.flags[setting] = given
    else:
        if name in SPANS:
            _check_span(name, value)
        asked.flags[VALUE_FLAGS[name]] = f"node-{value}" if name == "raft.replica_id" else value


def _check_span(name: str, value: str) -> None:
    from raftline.config.quantities import parse_span_ms

    try:
        parse_span_ms(value)
    except ValueError as error:
        raise Misused(f"--{name}: {error}") from None


def _nearest(name: str) -> str:
    import difflib

    known = [*VALUE_FLAGS, *SWITCHES, "config", "set", "print-config", "help"]
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean --{near[0]}?" if near else ""
