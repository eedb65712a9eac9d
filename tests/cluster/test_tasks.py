"""Tasks on a real node: enqueued, run, tried again, given up on, stopped in good order."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import raftline
from raftline.chaos.rig import Rig, wait_for
from raftline.model.errors import InvalidArgument
from raftline.tasks import App, GiveUp, Retry, TaskFailed
from raftline.tasks.worker import Worker, load_app
from tests.cluster.test_client import wait_for_grpc


@pytest.fixture(scope="module")
def rig(module_path: Path):
    made = Rig(module_path / "tasks", nodes=1)
    try:
        made.start_all()
        yield made
    finally:
        made.close()


@pytest.fixture
def app(rig: Rig):
    with App(rig.node(rig.names[0]).http) as made:
        yield made


def drain(app: App, concurrency: int = 2) -> Worker:
    worker = Worker(app, concurrency=concurrency, name="w1", drain=True)
    worker.run()
    return worker


def test_a_task_is_run_and_its_outcome_is_seen(app: App) -> None:
    seen: list[tuple[str, int]] = []

    @app.task(max_retries=3, priority=10)
    def email(to: str, copies: int = 1) -> None:
        seen.append((to, copies))

    ref = email.enqueue(to="user@example.com", idempotency_key="abc")
    again = email.enqueue("user@example.com", idempotency_key="abc")
    assert again.id == ref.id
    assert again.is_duplicate
    state = ref.state()
    assert (state["status"], state["type"], state["priority"]) == ("pending", "email", 10)
    assert state["payload"] == {"to": "user@example.com"}
    assert drain(app).done == 1
    assert seen == [("user@example.com", 1)]
    state = ref.state()
    assert (state["status"], state["attempts"], state["worker_id"]) == ("done", 1, "w1")
    email("here", copies=2)
    assert seen[-1] == ("here", 2)


def test_a_task_that_fails_is_run_again_and_given_up_on(app: App) -> None:
    runs: list[float] = []

    @app.task(max_retries=2)
    def flaky(name: str) -> None:
        runs.append(time.monotonic())
        raise Retry("not now", delay="50ms")

    ref = flaky.enqueue(name="x")
    worker = Worker(app, concurrency=1, name="w2")
    thread = threading.Thread(target=worker.run)
    thread.start()
    wait_for(lambda: ref.state()["status"] == "dead", 15, lambda: str(ref.state()))
    worker.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert len(runs) == 3
    state = ref.state()
    assert (state["attempts"], state["last_error"]) == (3, "Retry: not now")


def test_giving_up_and_bad_payloads_are_dead_at_once(app: App) -> None:
    @app.task
    def strict(when: datetime) -> None:
        raise GiveUp(f"never on {when:%A}")

    ref = strict.enqueue(when=datetime(2026, 1, 2, tzinfo=UTC))
    bad = app.line.send_now(
        "tasks", b'{"when": "no day"}', headers={"raftline-task-type": "strict"}, partition=0
    )
    drain(app)
    wait_for(lambda: ref.state()["status"] == "dead", 10)
    assert ref.state()["last_error"] == "GiveUp: never on Friday"
    wait_for(lambda: app.get(bad.id)["status"] == "dead", 10)
    assert "when" in app.get(bad.id)["last_error"]


def test_delays_async_functions_and_many_at_a_time(app: App) -> None:
    seen: list[int] = []

    @app.task
    async def add(number: int) -> None:
        seen.append(number)

    late = add.enqueue(100, delay="300ms")
    at = add.enqueue(200, at=datetime.now(UTC).isoformat())
    assert late.state()["status"] == "pending"
    refs = add.enqueue_many([{"number": number} for number in range(50)])
    assert len({ref.id for ref in refs}) == 50
    drain(app, concurrency=4)
    assert sorted(seen)[:50] == list(range(50))
    time.sleep(0.5)
    drain(app)
    assert sorted(seen) == [*range(50), 100, 200]
    assert late.state()["status"] == at.state()["status"] == "done"


def test_results_are_kept_where_asked_for(rig: Rig) -> None:
    with App(rig.node(rig.names[0]).http, topic="sums", results=True) as app:

        @app.task(max_retries=0)
        def divide(a: int, b: int) -> dict[str, float]:
            return {"quotient": a / b}

        good, bad = divide.enqueue(6, 3), divide.enqueue(1, 0)
        drain(app)
        assert good.result("5s") == {"quotient": 2.0}
        with pytest.raises(TaskFailed, match="ZeroDivisionError"):
            bad.result("10s")
        state = good.state()
        assert (state["status"], state["attempts"], state["type"]) == ("done", 1, "divide")


def test_what_cannot_be_a_task_is_refused(app: App) -> None:
    @app.task
    def once(x: int) -> None: ...

    with pytest.raises(InvalidArgument, match="already"):
        app.task(name="once")(lambda: None)
    with pytest.raises(InvalidArgument, match="delay"):

        @app.task
        def bad(delay: int) -> None: ...

    with pytest.raises(InvalidArgument, match="missing a required argument"):
        once.enqueue()
    with pytest.raises(InvalidArgument, match="unsupported"):
        once.enqueue(x=object())


PROGRAM = """
import os, sys, time
import raftline
app = raftline.App(os.environ["SERVER"], topic="slow")

@app.task(max_retries=3)
def nap(seconds: float) -> None:
    print("start", flush=True)
    time.sleep(seconds)
    print("end", flush=True)

if __name__ == "__main__":
    from raftline.tasks.worker import run_worker
    sys.modules["program"] = sys.modules["__main__"]
    run_worker("program:app", lease="1s", grace=sys.argv[1], name=sys.argv[2])
"""


@pytest.mark.parametrize(("grace", "status"), [("10s", "done"), ("200ms", "pending")])
def test_a_worker_stops_in_good_order(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grace: str, status: str
) -> None:
    server = rig.node(rig.names[0]).http
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SERVER", server)
    sys.modules.pop("program", None)
    app = load_app("program:app")
    ref = app.tasks["nap"].enqueue(seconds=2.5)
    child = subprocess.Popen(
        [sys.executable, "program.py", grace, "w9"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "SERVER": server},
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "start\n"
        child.send_signal(signal.SIGTERM)
        out, _ = child.communicate(timeout=20)
    finally:
        child.kill()
    assert child.returncode == 0
    assert out == ("end\n" if status == "done" else "")
    state = app.get(ref.id)
    assert (state["status"], state["attempts"], state["worker_id"]) == (status, 1, "w9")
    if status == "pending":
        assert state["last_error"] == "worker w9 stopped"
        for message in app.line.receive("slow", group="workers", wait="2s"):
            message.ack(wait=True)
    app.close()


def test_tasks_over_grpc(rig: Rig) -> None:
    wait_for_grpc(rig)
    with contextlib.closing(App(f"grpc://{rig.node(rig.names[0]).grpc}")) as app:
        seen: list[str] = []

        @app.task(max_retries=1, priority=10)
        def greet(name: str) -> None:
            seen.append(name)
            if len(seen) == 1:
                raise Retry("once more", delay="10ms")

        ref = greet.enqueue(name="you", idempotency_key="over-grpc")
        assert ref.state()["status"] == "pending"
        worker = Worker(app, name="w7")
        thread = threading.Thread(target=worker.run)
        thread.start()
        wait_for(lambda: ref.state()["status"] == "done", 15, lambda: str(ref.state()))
        worker.stop()
        thread.join(10)
        state = ref.state()
        assert (seen, state["attempts"], state["worker_id"]) == (["you", "you"], 2, "w7")
        assert (state["type"], state["priority"], state["idempotency_key"]) == (
            "greet",
            10,
            "over-grpc",
        )
        assert state["payload"] == {"name": "you"}


def test_what_a_worker_has_not_begun_counts_as_no_attempt(app: App) -> None:
    gate = threading.Semaphore(0)
    begun: list[int] = []

    @app.task(max_retries=0)
    def wait(number: int) -> None:
        begun.append(number)
        assert gate.acquire(timeout=10)

    refs = [wait.enqueue(number=number) for number in range(30)]
    worker = Worker(app, concurrency=1, name="w8", prefetch=10)
    thread = threading.Thread(target=worker.run)
    thread.start()
    gate.release(3)
    wait_for(lambda: len(begun) == 4, 10)
    worker.stop()
    gate.release()
    thread.join(10)
    app.line.flush()
    assert (worker.done, len(begun)) == (4, 4)
    for ref in refs[4:]:
        assert (ref.state()["status"], ref.state()["attempts"]) == ("pending", 0)
    gate.release(30)
    Worker(app, drain=True, name="w9").run()
    assert {(ref.state()["status"], ref.state()["attempts"]) for ref in refs} == {("done", 1)}


def test_an_app_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for place in ("nowhere:app", "json:app", "nocolon"):
        with pytest.raises(InvalidArgument):
            load_app(place)
    assert raftline.App is App
