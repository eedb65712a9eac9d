"""The local cluster's book-keeping. That real nodes start and stop is in tests/cluster."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from raftline.model.errors import Conflict, InvalidArgument, NotFound, Unavailable
from raftline.server import local_cluster
from raftline.server.local_cluster import LocalCluster, LocalNode, is_running, open_cluster
from tests.unit.cli.node_double import ScriptedServer
from tests.unit.transport.free_port import bind_free


def planned(directory: Path, count: int, port_base: int | None = None) -> LocalCluster:
    cluster = LocalCluster(directory)
    cluster.read()
    cluster.plan(count, port_base, ())
    return cluster


def flag(node: LocalNode, name: str) -> str:
    return node.arguments[node.arguments.index(name) + 1]


def test_default_ports_and_peers(tmp_path: Path) -> None:
    third = planned(tmp_path, 3).nodes[2]
    assert (third.http, third.grpc) == ("http://127.0.0.1:8082", "127.0.0.1:9002")
    assert (third.kafka, third.peer) == ("127.0.0.1:9094", "127.0.0.1:7002")
    assert flag(third, "--peers") == (
        "node-1=127.0.0.1:7000,node-2=127.0.0.1:7001,node-3=127.0.0.1:7002"
    )
    assert flag(third, "--data-dir") == str(tmp_path / "node-3")
    assert third.log == str(tmp_path / "node-3" / "log")


def test_port_base_moves_all_ports(tmp_path: Path) -> None:
    second = planned(tmp_path, 2, 20_000).nodes[1]
    assert [second.http[-5:], second.grpc[-5:], second.kafka[-5:], second.peer[-5:]] == [
        "20001", "21001", "22001", "23001",
    ]  # fmt: skip
    with pytest.raises(InvalidArgument, match="do not exist"):
        planned(tmp_path, 3, 65_000)


def test_one_node_needs_no_peers(tmp_path: Path) -> None:
    assert "--peers" not in planned(tmp_path, 1).nodes[0].arguments


def test_more_nodes_join_the_first(tmp_path: Path) -> None:
    cluster = planned(tmp_path, 3, 20_000)
    cluster.plan(4, None, ())
    assert flag(cluster.nodes[3], "--join") == "127.0.0.1:23000"
    assert cluster.nodes[3].kafka == "127.0.0.1:22003"
    assert len(cluster.nodes) == 4


def test_a_taken_port_is_named_with_the_way_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        node = planned(tmp_path, 1, 29_500).nodes[0]
        cluster = LocalCluster(tmp_path)
        cluster.nodes = [msgspec.structs.replace(node, peer=f"127.0.0.1:{port}")]
        with pytest.raises(Conflict, match=f"port {port} \\(peer of node-1\\)") as caught:
            cluster.start()
    assert "--port-base" in caught.value.hint


def test_a_node_of_others_at_our_port_is_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took the port after we had looked: ours ends, and that is what is told."""
    monkeypatch.setattr(local_cluster, "_check_ports", lambda _: None)
    free = [bind_free() for _ in range(3)]
    grpc, kafka, peer = (f"127.0.0.1:{one.getsockname()[1]}" for one in free)
    for one in free:
        one.close()

    def script(method: str, path: str, *_: object) -> tuple[int, object]:
        return 200, {"node": 1, "name": "node-1", "cluster": "another", "nodes": []}

    with ScriptedServer(script) as other:
        addresses = ("--http-addr", other.url.removeprefix("http://"), "--grpc-addr", grpc,
                     "--kafka-addr", kafka, "--peer-addr", peer)  # fmt: skip
        node = planned(tmp_path, 1, 29_500).nodes[0]
        named = ("--id", node.name, "--data-dir", node.data_dir)
        cluster = LocalCluster(tmp_path)
        cluster.nodes = [
            msgspec.structs.replace(node, http=other.url, arguments=(*named, *addresses))
        ]
        cluster.start()
        with pytest.raises(Unavailable, match="the port is taken"):
            cluster.wait_ready()


def test_a_reused_pid_is_not_our_node(tmp_path: Path) -> None:
    node = planned(tmp_path, 1).nodes[0]
    assert not is_running(node)
    assert not is_running(msgspec.structs.replace(node, pid=os.getpid()))


def test_a_process_is_known_by_its_arguments(tmp_path: Path) -> None:
    node = planned(tmp_path, 1).nodes[0]
    wait = "import sys; print('up', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", wait, "serve", *node.arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout.readline() == b"up\n"
        assert is_running(msgspec.structs.replace(node, pid=process.pid))
        process.communicate()
    assert not is_running(msgspec.structs.replace(node, pid=process.pid))


def test_down_on_nothing(tmp_path: Path, raftline) -> None:
    with pytest.raises(NotFound, match="no local cluster"):
        open_cluster(tmp_path)
    ran = raftline("down", "--data-dir", tmp_path)
    assert ran.code == 4
    assert "raftline up" in ran.err


def test_a_strange_nodes_file_is_refused(tmp_path: Path, raftline) -> None:
    (tmp_path / "nodes.json").write_text(json.dumps([{"id": "x"}]))
    ran = raftline("up", "--data-dir", tmp_path, "--detach")
    assert ran.code == 2
    assert "nodes.json" in ran.err


def test_stopping_what_does_not_run_keeps_the_book(tmp_path: Path, raftline) -> None:
    cluster = planned(tmp_path, 2, 20_000)
    cluster.stop()
    assert raftline("down", "--data-dir", tmp_path).out == "nothing ran\n"
    rows = json.loads((tmp_path / "nodes.json").read_text())
    assert [row["name"] for row in rows] == ["node-1", "node-2"]
    assert raftline("up", "--data-dir", tmp_path, "--nodes", "1").code == 2
    assert raftline("up", "--data-dir", tmp_path, "--port-base", "21000").code == 2


def test_nodes_of_another_user_are_not_stopped_and_it_is_said(
    tmp_path: Path, raftline, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = planned(tmp_path, 1)
    node = msgspec.structs.replace(cluster.nodes[0], pid=os.getpid())
    (tmp_path / "nodes.json").write_bytes(msgspec.json.encode([node]))

    def refuse(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(local_cluster, "is_running", lambda _: True)
    monkeypatch.setattr(local_cluster.os, "kill", refuse)
    ran = raftline("down", "--data-dir", str(tmp_path))
    assert ran.code == 6
    assert "runs as another user" in ran.err


def test_what_up_says_itself_is_not_asked_of_the_environment(
    tmp_path: Path, raftline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image lets nodes listen everywhere; those of ``up`` are told where, on loopback."""

    def start(_: LocalCluster) -> list[LocalNode]:
        raise Conflict("it would start")

    monkeypatch.setattr(LocalCluster, "start", start)
    monkeypatch.setenv("RAFTLINE_LISTEN_HTTP", "0.0.0.0:8080")
    words = ("up", "--data-dir", str(tmp_path))
    assert "it would start" in raftline(*words).err
    assert "--insecure" in raftline(*words, "--set", "listen.http=0.0.0.0:8080").err
