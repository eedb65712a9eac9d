"""``raftline up`` and ``raftline down``: a cluster of real processes on this machine."""

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from raftline.cli import exits
from raftline.cli.session import Session, table
from raftline.client import clock
from raftline.client.client import Client
from raftline.model.errors import InvalidArgument, RaftlineError
from raftline.server.local_cluster import LocalCluster, LocalNode, open_cluster

DIRECTORY = Path("raftline-data")
NODES = 3
STATUS_MS = 1_000

Directory = Annotated[Path, typer.Option(help="where the cluster lives")]


def up(
    context: typer.Context,
    nodes: Annotated[int | None, typer.Option(min=1, help=f"how many nodes ({NODES})")] = None,
    data_dir: Directory = DIRECTORY,
    port_base: Annotated[
        int | None, typer.Option(min=1, help="HTTP N, gRPC N+1000, Kafka N+2000, peers N+3000")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="return once every node serves")] = False,
    pairs: Annotated[
        list[str] | None,
        typer.Option("--set", help="setting of every new node, section.field=value"),
    ] = None,
) -> int:
    """Start a local cluster, or the nodes of it that died. Ctrl-C stops it."""
    session: Session = context.obj
    cluster = LocalCluster(data_dir)
    known = cluster.read()
    count = nodes or (len(cluster.nodes) if known else NODES)
    _refuse_other_shape(cluster, count, port_base)
    cluster.plan(count, port_base, tuple(pairs or ()))
    _check_settings([*cluster.nodes[-1].arguments, *(f"--set={pair}" for pair in pairs or ())])
    try:
        started = cluster.start()
    except OSError as error:  # no right, no room, a file system that takes nothing
        raise InvalidArgument(
            f"{data_dir} cannot be written: {error.strerror}", "name another --data-dir"
        ) from error
    try:
        _wait(session, cluster, started)
        _introduce(session, cluster)
        if detach:
            return exits.DONE
        return _watch(session, cluster)
    except RaftlineError:
        cluster.stop(started)
        raise
    except KeyboardInterrupt:
        _say(session, "\nstopping")
        cluster.stop()
        return exits.DONE


def down(context: typer.Context, data_dir: Directory = DIRECTORY) -> None:
    """Stop the nodes of a local cluster. Their data stays."""
    session: Session = context.obj
    stopped = open_cluster(data_dir).stop()
    names = [node.name for node in stopped]
    session.answer({"stopped": names}, f"stopped {', '.join(names)}" if names else "nothing ran")


def _refuse_other_shape(cluster: LocalCluster, count: int, port_base: int | None) -> None:
    if not cluster.nodes:
        return
    if count < len(cluster.nodes):
        raise InvalidArgument(
            f"{cluster.directory} holds a cluster of {len(cluster.nodes)} nodes, not {count}",
            "leave --nodes out, or name another --data-dir; `cluster remove` takes nodes out",
        )
    first = cluster.nodes[0].http
    if port_base is not None and first != f"http://127.0.0.1:{port_base}":
        raise InvalidArgument(
            f"the cluster in {cluster.directory} listens from {first} on",
            "leave --port-base out, or name another --data-dir",
        )


def _check_settings(arguments: list[str]) -> None:
    """Refuse what no node would start with, before it is written down for all its starts."""
    from raftline.cli.serve import Misused, parse
    from raftline.config.loader import SettingsError, load

    try:
        load(None, os.environ, parse(arguments).flags)
    except Misused as error:
        hint = "raftline serve --print-config shows what can be set"
        raise InvalidArgument(str(error), hint) from error
    except SettingsError as error:
        raise InvalidArgument(
            "; ".join(error.problems), "raftline serve --print-config shows what can be set"
        ) from error


def _wait(session: Session, cluster: LocalCluster, started: list[LocalNode]) -> None:
    names = ", ".join(node.name for node in started)
    _say(session, f"starting {names}" if started else "every node runs already")
    # From here on a polite request to end is like Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    cluster.wait_ready()


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt


def _introduce(session: Session, cluster: LocalCluster) -> None:
    from raftline.cli.session import console

    if session.json:
        from msgspec import json

        sys.stdout.write(json.encode(cluster.nodes).decode() + "\n")
        sys.stdout.flush()
        return
    rows = table(">id", "node", ">pid", "http", "grpc", "kafka", "peer", "log")
    for node in cluster.nodes:
        rows.add_row(
            str(node.id),
            node.name,
            str(node.pid),
            node.http,
            node.grpc,
            node.kafka,
            node.peer,
            node.log,
        )
    console().print(rows)
    server = cluster.nodes[0].http
    command = f"{_program()} --server {server}"
    _say(session, f"try:  {command} produce orders -m hello; {command} consume orders")
    _say(session, f"or:   curl {server}/v1/cluster")


def _program() -> str:
    """Return the command as it can be typed here: people run it from a checkout too."""
    started = Path(sys.argv[0])
    if started.name != "raftline" or len(started.parts) == 1:
        return "raftline"
    return str(started)


def _watch(session: Session, cluster: LocalCluster) -> int:
    """Show a line of live status until Ctrl-C."""
    _say(session, "Ctrl-C stops the cluster")
    shown = ""
    with Client(cluster.servers(), timeout_ms=STATUS_MS) as client:
        while True:
            cluster.read()  # another `up` may have started some again, or `down` stopped them all
            if not any(node.pid for node in cluster.nodes):
                _say(session, "stopped by raftline down")
                return exits.DONE
            line = _status_line(client, cluster)
            if sys.stdout.isatty() and not session.json:
                sys.stdout.write(f"\r\x1b[2K{line}")
                sys.stdout.flush()
            elif line != shown:
                _say(session, line)
            shown = line
            clock.pause(STATUS_MS)


def _status_line(client: Client, cluster: LocalCluster) -> str:
    dead = cluster.dead()
    running = f"{len(cluster.nodes) - len(dead)}/{len(cluster.nodes)} nodes"
    words = [running]
    if dead:
        names = ", ".join(node.name for node in dead)
        words.append(f"DIED: {names} (raftline up --data-dir {cluster.directory} restarts)")
    try:
        status = client.cluster()
    except RaftlineError as error:
        return " · ".join([*words, error.message])
    names = {node["id"]: node["name"] for node in status["nodes"]}
    words.append(f"catalog led by {names.get(status['catalog_leader'], 'nobody')}")
    words.append(f"{len(status.get('topics', ()))} topics")
    if status["leaderless"]:
        words.append(f"{len(status['leaderless'])} partitions without leader")
    if status["quarantined"]:
        words.append(f"{len(status['quarantined'])} quarantined")
    return " · ".join(words)


def _say(session: Session, text: str) -> None:
    if not session.json:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
