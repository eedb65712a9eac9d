"""Calls of jobs against nodes that refuse, hang and hang up: real sockets, answers by script."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest

from raftline.client import fenced_calls
from raftline.client.fenced import Fenced
from raftline.model.errors import (
    FencedQuery,
    Internal,
    InvalidArgument,
    LeaseLost,
    NoLeader,
    OverLimit,
    RaftlineError,
    TimedOut,
    Unavailable,
)

Answer = tuple[int, object]  # status, body; status 0: hang up without a word, -1: say nothing
HUNG_UP, SILENT = (0, None), (-1, None)


class ScriptedNode:
    """A server that answers requests with what it was given, one after another."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked: list[str] = []
        self._open: list[socket.socket] = []
        self._is_over = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._is_over.set()
        self._listener.close()
        for one in self._open:
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as reader:
            while line := reader.readline().decode():
                length = 0
                while (field := reader.readline().strip().lower()) and field:
                    if field.startswith(b"content-length:"):
                        length = int(field.partition(b":")[2])
                reader.read(length)
                method, path, _ = line.split()
                if path.startswith("/shards-info") or path == "/v1/topics/orders":
                    status, body = 404, {"error": {"code": "unknown_route", "message": "-"}}
                else:
                    self.asked.append(f"{method} {path.partition('?')[0]}")
                    status, body = self._answers.pop(0) if len(self._answers) > 1 else (
                        self._answers[0]
                    )  # fmt: skip
                if status == 0:
                    return
                if status < 0:
                    self._is_over.wait()
                    return
                data = body if isinstance(body, bytes) else msgspec.json.encode(body)
                head = f"HTTP/1.1 {status} -\r\nContent-Length: {len(data)}\r\n\r\n"
                connection.sendall(head.encode() + data)


@contextmanager
def nodes(*scripts: tuple[Answer, ...]) -> Iterator[list[ScriptedNode]]:
    made = [ScriptedNode(*script) for script in scripts]
    try:
        yield made
    finally:
        for node in made:
            node.close()


def refusal(error: RaftlineError) -> dict[str, dict[str, str]]:
    return {"error": {"code": error.code, "message": error.message, "hint": error.hint}}


FENCE: Answer = (200, {"fence": 4, "chunks": 0, "bytes": 0, "publishing": False})


@pytest.mark.parametrize(
    "first",
    [
        (503, refusal(NoLeader("orders/0"))),
        (429, refusal(OverLimit("bytes", 2, 1))),
        (504, refusal(TimedOut("a command", 5))),
        HUNG_UP,
    ],
    ids=["no leader", "over limit", "unknown", "hung up"],
)
def test_what_passes_is_asked_again(first: Answer) -> None:
    with nodes((first, first, FENCE)) as (node,), Fenced(node.url, 10) as job:
        assert job.fence("orders", 0, "q") == 4
        assert len(node.asked) >= 3


def test_another_node_is_asked_where_one_is_gone_or_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fenced_calls, "ATTEMPT_MS", 300)
    monkeypatch.setattr(fenced_calls, "SLACK_MS", 100)
    with nodes((SILENT,), (FENCE,)) as made:
        servers = ["http://127.0.0.1:1", *[node.url for node in made]]
        with Fenced(servers, 10) as job:
            assert job.fence("orders", 0, "q") == 4
        assert len(made[0].asked) <= 1
        assert made[1].asked


@pytest.mark.parametrize(
    ("answer", "kind", "call"),
    [
        (
            (409, refusal(FencedQuery("q", 1, "it stands at 2"))),
            FencedQuery,
            lambda job: job.lease("orders", 0, "g", "q", 1, 5),
        ),
        ((500, b"<html>"), Internal, lambda job: job.fence("orders", 0, "q")),
        ((200, b"<html>"), Internal, lambda job: job.fence("orders", 0, "q")),
        (
            (200, {"n": 1, "ranges": [[0, 1]], "lost": [[1, 3]], "count": 1}),
            LeaseLost,
            lambda job: job.lease("orders", 0, "g", "q", 1, 5),
        ),
        (FENCE, InvalidArgument, lambda job: job.fence("", 0, "q")),
        (FENCE, InvalidArgument, lambda job: job.held("orders", 0, "", "q")),
    ],
    ids=["fenced", "no reason", "no JSON", "lost", "no topic", "no group"],
)
def test_what_does_not_pass_is_raised_at_once(
    answer: Answer, kind: type[Exception], call: Callable[[Fenced], object]
) -> None:
    with nodes((answer,)) as (node,), Fenced(node.url, 10) as job:
        with pytest.raises(kind):
            call(job)
        assert len(node.asked) <= 1


def test_a_lost_part_is_allowed_where_that_is_said() -> None:
    told = (200, {"n": 1, "ranges": [[0, 1]], "lost": [[1, 3]], "count": 1})
    with nodes((told,)) as (node,), Fenced(node.url, 10) as job:
        assert job.lease("orders", 0, "g", "q", 1, 5, allow_lost=True) == [(0, 1)]


def test_a_call_ends_by_its_deadline_with_the_last_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: Answer = (503, refusal(NoLeader("orders/0")))
    with (
        nodes((refused,)) as (node,),
        Fenced(node.url, 0.5) as job,
        pytest.raises(NoLeader, match="orders/0"),
    ):
        job.fence("orders", 0, "q")
    monkeypatch.setattr(fenced_calls, "PATIENCE_MS", 200)
    with Fenced("http://127.0.0.1:1", 30) as job, pytest.raises(Unavailable, match="no node"):
        job.fence("orders", 0, "q")


@pytest.mark.parametrize("servers", ["grpc://127.0.0.1:9000", "", "http://a:b:c"])
def test_servers_that_are_none(servers: str) -> None:
    with pytest.raises(InvalidArgument):
        Fenced(servers)
    with pytest.raises(InvalidArgument):
        Fenced("http://127.0.0.1:8080", 0)
