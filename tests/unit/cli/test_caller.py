"""The client core: another node when one is gone, no repeat of what may have happened."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from raftline.client import caller as calling
from raftline.client.caller import Caller, parse_servers
from raftline.client.client import Client
from raftline.model.errors import (
    Internal,
    InvalidArgument,
    RaftlineError,
    TimedOut,
    Unavailable,
    UnknownTopic,
)
from tests.unit.cli.node_double import ScriptedServer, refusal


@pytest.fixture
def closed_port() -> Iterator[str]:
    """An address where nobody listens; bound, so that nobody else gets it meanwhile."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"


def test_the_next_node_is_asked_when_one_is_gone(closed_port: str) -> None:
    with (
        ScriptedServer(lambda *_: (200, {"ok": 1})) as server,
        Caller(f"{closed_port},{server.url}") as caller,
    ):
        assert caller.call("POST", "/x", {"a": 1}) == {"ok": 1}
        assert caller.call("GET", "/y") == {"ok": 1}
        assert [path for _, path, _ in server.asked] == ["/x", "/y"]


def test_nobody_there_is_said_soon_and_names_the_address(closed_port: str) -> None:
    started = time.monotonic()
    with pytest.raises(Unavailable, match=closed_port) as caught:
        Caller(closed_port, timeout_ms=10_000).call("GET", "/x")
    assert time.monotonic() - started < 5
    assert "--server" in caught.value.hint


def test_a_passing_refusal_is_tried_again_elsewhere() -> None:
    with (
        ScriptedServer(lambda *_: refusal(503, "not_ready")) as young,
        ScriptedServer(lambda *_: (200, {"node": 2})) as ready,
        Caller(f"{young.url},{ready.url}") as caller,
    ):
        assert caller.call("POST", "/x", {}) == {"node": 2}
        assert len(young.asked) == 1


def test_a_passing_refusal_that_stays_is_what_the_caller_hears() -> None:
    with (
        ScriptedServer(lambda *_: refusal(503, "no_leader", "orders/1 has none")) as server,
        Caller(server.url, timeout_ms=200) as caller,
        pytest.raises(RaftlineError, match="orders/1 has none"),
    ):
        caller.call("GET", "/x")
    assert len(server.asked) > 1


def test_a_send_that_may_have_happened_is_not_repeated() -> None:
    with (
        ScriptedServer(lambda *_: (0, None)) as server,
        Caller(server.url) as caller,
        pytest.raises(TimedOut, match="may still happen"),
    ):
        caller.call("POST", "/x", {})
    assert len(server.asked) == 1


def test_a_read_that_broke_is_repeated() -> None:
    answers = iter([(0, None), (200, {"ok": 1})])
    with (
        ScriptedServer(lambda *_: next(answers)) as server,
        Caller(server.url) as caller,
    ):
        assert caller.call("GET", "/x") == {"ok": 1}


def test_no_answer_in_time_is_an_error_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        caller = Caller(f"127.0.0.1:{mute.getsockname()[1]}", timeout_ms=50)
        started = time.monotonic()
        with pytest.raises(TimedOut):
            caller.call("POST", "/x", {})
        assert time.monotonic() - started < 5
        caller.close()


def test_a_silent_node_is_left_for_the_next_one() -> None:
    """A worker that names three nodes asked the one that hangs for ever."""
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        ScriptedServer(lambda *_: (200, {"ok": 1})) as server,
    ):
        servers = f"127.0.0.1:{mute.getsockname()[1]},{server.url}"
        with Caller(servers, timeout_ms=200) as caller:
            with pytest.raises(TimedOut, match=str(mute.getsockname()[1])):
                caller.call("POST", "/x", {})
            assert caller.call("POST", "/x", {}) == {"ok": 1}
        with Caller(servers, timeout_ms=3_000) as caller:
            assert caller.call("GET", "/x") == {"ok": 1}


def test_a_read_has_the_time_of_all_nodes() -> None:
    """One that had its share and says so is not the last word."""
    with (
        ScriptedServer(lambda *_: refusal(504, "timed_out")) as slow,
        ScriptedServer(lambda *_: (200, {"ok": 1})) as quick,
    ):
        with Caller(f"{slow.url},{quick.url}", timeout_ms=2_000) as caller:
            assert caller.call("GET", "/x") == {"ok": 1}
        with Caller(slow.url) as caller, pytest.raises(TimedOut):
            caller.call("GET", "/x")
        assert len(slow.asked) == 2


def test_a_node_that_cannot_be_reached_is_not_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is off answers nothing: to connect takes longer than the patience."""
    monkeypatch.setattr(calling, "PATIENCE_MS", 50)
    monkeypatch.setattr(calling, "CONNECT_MS", 100)
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as full,
        socket.create_connection(full.getsockname()),
        ScriptedServer(lambda *_: (200, {"ok": 1})) as server,
    ):
        lost = f"127.0.0.1:{full.getsockname()[1]}"
        with Caller(f"{lost},{server.url}", timeout_ms=2_000) as caller:
            assert caller.call("POST", "/x", {}) == {"ok": 1}
        with pytest.raises(Unavailable, match=lost):
            Caller(f"{lost},{lost}", timeout_ms=2_000).call("POST", "/x", {})


def test_errors_come_back_as_their_class() -> None:
    with (
        ScriptedServer(lambda *_: refusal(404, "unknown_topic", "there is no topic 'x'")) as server,
        Client(server.url) as client,
        pytest.raises(UnknownTopic, match="there is no topic 'x'"),
    ):
        client.topic("x")


@pytest.mark.parametrize("reply", [b"<html>", b"[1]", b'"x"'])
def test_an_answer_that_is_no_object_is_an_internal_error(reply: bytes) -> None:
    with (
        ScriptedServer(lambda *_: (200, reply)) as server,
        Caller(server.url) as caller,
        pytest.raises(Internal),
    ):
        caller.call("GET", "/x")


def test_names_are_quoted_in_paths() -> None:
    with ScriptedServer(lambda *_: (200, {})) as server, Client(server.url) as client:
        client.topic("a/b?c")
    assert server.asked[0][1] == "/v1/topics/a%2Fb%3Fc"


def test_servers() -> None:
    assert parse_servers("http://a:1, b:2,") == [("a", 1), ("b", 2)]
    assert parse_servers("b\u00fccher.example:1,[::1]:2") == [
        ("xn--bcher-kva.example", 1),
        ("::1", 2),
    ]
    bad = ("my..host:1", f"{'a' * 64}:1", "ho st:1", "a:0")  # that nobody can look up, or call
    for text in ("", "ftp://a", "http://a:x", "http://a:1/path", *bad):
        with pytest.raises(InvalidArgument):
            parse_servers(text)


def test_what_is_no_http_is_not_shown_to_the_terminal() -> None:
    """A gRPC port answers with bytes of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def answer() -> None:
            link, _ = listening.accept()
            with link:
                link.recv(4096)
                link.sendall(b"\0\0\x18\x04\x1b[31mred\n")

        thread = threading.Thread(target=answer)
        thread.start()
        caller = Caller(f"http://127.0.0.1:{port}", timeout_ms=2000)
        with caller, pytest.raises(RaftlineError) as caught:
            caller.call("POST", "/v1/topics", {})
        thread.join()
    assert "\x1b" not in str(caught.value.__cause__)
    assert "does not speak HTTP" in str(caught.value.__cause__)
