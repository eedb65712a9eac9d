"""``raftline.App``: name functions as tasks, enqueue calls of them, see what became of them.

A task is a message of the topic ``tasks`` (model/tasks.py says how it is written), so that the
command line, DQueue's HTTP routes and programs in other languages enqueue and run the same ones.

Where the outcome is
    Nothing is kept twice. Whether a task waits, runs, is done or dead, how often it ran, on which
    worker, and what its last error was, is what the work group and the trace of its message know:
    ``raftline task get ID``, ``GET /tasks/{id}``, ``app.get(id)``. With ``App(results=True)`` the
    value that a run returned is a message of ``<topic>.results`` whose key is the task's id, sent
    before the task is acked.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, overload
from urllib.parse import quote

import msgspec

from raftline.client.asks import Json, Moment, Query
from raftline.client.clock import mono_ms, pause
from raftline.client.core.ports import Ask
from raftline.client.leased import Duration, duration_ms
from raftline.client.line import Line, Sending, connect
from raftline.model.errors import InvalidArgument, RaftlineError, TimedOut, TopicExists
from raftline.model.tasks import (
    TASK_GROUP,
    TASK_KEY_HEADER,
    TASK_RETRIES_HEADER,
    TASK_RETRIES_MAX,
    TASK_TOPIC,
    TASK_TOPIC_SETTINGS,
    TASK_TYPE_CHARS_MAX,
    TASK_TYPE_HEADER,
)
from raftline.tasks.outcomes import TaskFailed
from raftline.tasks.payloads import Signature
from raftline.tasks.states import state_of

P = ParamSpec("P")
R = TypeVar("R")
RESERVED = ("idempotency_key", "delay", "at", "priority", "max_retries")
LOOK_MS = 100.0


class TaskRef:
    """An enqueued call."""

    __slots__ = ("_app", "_sending")

    def __init__(self, app: "App", sending: Sending) -> None:
        self._app = app
        self._sending = sending

    @property
    def id(self) -> str:
        """The task's id."""
        return self._sending.id()

    @property
    def is_duplicate(self) -> bool:
        """Say whether there was a task with this idempotency key already: this is it."""
        return self._sending.result().is_duplicate

    def state(self) -> Json:
        """Return what became of it, as ``raftline task get`` shows it."""
        return self._app.get(self.id)

    def result(self, timeout: Duration = "30s") -> Any:
        """Wait until it is done and return what the run returned; for ``App(results=True)``.

        Raises:
            TimedOut: not done in time.
            TaskFailed: it is dead.
        """
        return self._app.result(self.id, timeout)

    def __repr__(self) -> str:
        return f"<TaskRef {self.id}>"


class Task(Generic[P, R]):
    """A function that workers run. Called directly it runs here and now."""

    def __init__(
        self, app: "App", name: str, function: Callable[P, R], max_retries: int, priority: int | str
    ) -> None:
        if not 0 <= max_retries <= TASK_RETRIES_MAX:
            raise InvalidArgument(f"max_retries {max_retries} is out of bounds", "0 to 1000")
        if not 0 < len(name) <= TASK_TYPE_CHARS_MAX:
            raise InvalidArgument(f"{name!r} cannot be the name of a task")
        self.app = app
        self.name = name
        self.function = function
        self.max_retries = max_retries
        self.priority = priority
        self.signature = Signature(name, function, RESERVED)
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it here and now."""
        return self.function(*args, **kwargs)

    def enqueue(
        self,
        *arguments: Any,
        idempotency_key: str | None = None,
        delay: Duration | None = None,
        at: Moment | None = None,
        priority: int | str | None = None,
        max_retries: int | None = None,
        **named: Any,
    ) -> TaskRef:
        """Have a worker call the function; returns once that is stored.

        Args:
            arguments: for the function, as JSON.
            idempotency_key: the same key again within the topic's window is the same task.
            delay: not before so long.
            at: not before this moment.
            priority: other than the task's.
            max_retries: other than the task's.
            named: for the function, as JSON.

        Raises:
            InvalidArgument: the function cannot be called so.
            RaftlineError: it may not be stored.
        """
        ref = self._enqueue(arguments, named, idempotency_key, delay, at, priority, max_retries)
        _ = ref.id  # raises if it is not stored
        return ref

    def enqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[TaskRef]:
        """Enqueue a call for each set of named arguments; returns once all are stored."""
        refs = [self._enqueue((), call, None, None, None, None, None) for call in calls]
        for ref in refs:
            _ = ref.id
        return refs

    def _enqueue(
        self,
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        idempotency_key: str | None,
        delay: Duration | None,
        at: Moment | None,
        priority: int | str | None,
        max_retries: int | None,
    ) -> TaskRef:
        payload = self.signature.encode(arguments, named)
        retries = self.max_retries if max_retries is None else max_retries
        headers = {TASK_TYPE_HEADER: self.name, TASK_RETRIES_HEADER: str(retries)}
        if idempotency_key:
            headers[TASK_KEY_HEADER] = idempotency_key
        sending = self.app.line.send(
            self.app.topic,
            payload,
            headers=headers,
            priority=self.priority if priority is None else priority,
            delay=delay,
            deliver_at=at,
            dedup_key=idempotency_key or None,
            partition=0,
        )
        return TaskRef(self.app, sending)


class App:
    """Tasks of one program, and the cluster they go through."""

    def __init__(
        self,
        servers: str | Sequence[str] = "http://127.0.0.1:8080",
        *,
        topic: str = TASK_TOPIC,
        group: str = TASK_GROUP,
        results: bool = False,
        **options: Any,
    ) -> None:
        self.servers = servers
        self.topic = topic
        self.group = group
        self.results_topic = f"{topic}.results" if results else ""
        self.tasks: dict[str, Task[Any, Any]] = {}
        self._options = options
        self._line: Line | None = None
        self._lock = threading.Lock()

    @property
    def line(self) -> Line:
        """The client, connected on first use; the topic is there then."""
        with self._lock:
            if self._line is None or self._line.background.is_closed:
                line = connect(self.servers, **self._options)
                try:
                    _ensure(line, self.topic, TASK_TOPIC_SETTINGS)
                    if self.results_topic:
                        _ensure(line, self.results_topic, {})
                except RaftlineError:
                    line.close()
                    raise
                self._line = line
            return self._line

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self, *, name: str = "", max_retries: int = 3, priority: int | str = 0
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(
        self,
        function: Callable[P, R] | None = None,
        *,
        name: str = "",
        max_retries: int = 3,
        priority: int | str = 0,
    ) -> Any:
        """Make a function a task: ``@app.task`` or ``@app.task(max_retries=5, priority=10)``.

        Raises:
            InvalidArgument: the name is taken, or the function cannot be a task.
        """

        def make(target: Callable[P, R]) -> Task[P, R]:
            given = name or target.__name__
            if given in self.tasks:
                raise InvalidArgument(f"there is a task {given!r} already", "name it: name=...")
            made = Task(self, given, target, max_retries, priority)
            self.tasks[given] = made
            return made

        return make if function is None else make(function)

    def get(self, id: str) -> Json:  # noqa: A002
        """Return a task: ``status`` (pending, leased, done, dead), attempts, worker, last error."""
        if self.topic == TASK_TOPIC and self.group == TASK_GROUP and not self.line.is_grpc:
            ask = Ask(method="GET", path=f"/tasks/{quote(id, safe='')}", is_repeatable=True)
            return self.line.run(Query(ask, lambda answer: answer))
        return state_of(self.line, self.group, id)

    def result(self, id: str, timeout: Duration = "30s") -> Any:  # noqa: A002
        """Wait until a task is done and return what its run returned (``App(results=True)``)."""
        if not self.results_topic:
            raise InvalidArgument("this app keeps no results", "make it with App(results=True)")
        until_ms = mono_ms() + duration_ms(timeout)
        after: str | None = None  # a page ends after so many bytes, whether or not it found some
        while True:
            page = self.line.search(self.results_topic, key=id, limit=1, after=after)
            if page["messages"]:
                found = page["messages"][0]["id"]
                return msgspec.json.decode(self.line.message(found).value or b"null")
            if page["next"] and mono_ms() <= until_ms:
                after = page["next"]
                continue
            state = self.get(id)
            if state["status"] == "dead":
                raise TaskFailed(f"task {id} is dead: {state['last_error']}")
            if mono_ms() > until_ms:
                raise TimedOut(f"task {id}", duration_ms(timeout))
            pause(LOOK_MS)

    def close(self) -> None:
        """Hang up."""
        with self._lock:
            if self._line is not None:
                self._line.close()

    def __enter__(self) -> "App":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _ensure(line: Line, topic: str, settings: Mapping[str, Any]) -> None:
    """Create a topic of one partition unless it is there."""
    if any(row["name"] == topic for row in line.topics.list()):
        return
    try:
        line.topics.create(topic, partitions=1, **settings)
    except TopicExists:
        return
