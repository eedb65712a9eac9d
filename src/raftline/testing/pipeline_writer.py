"""A job that writes in a simulated run: tasks fail, run twice and come back; the driver repeats.

A driver has the tasks of a batch stage their chunks and publishes what finished first. It may die
before it hears of that, and then runs the batch again with other attempts: which of its publishes
decided, only the log can say.

The promise, ``STAGE``
    A published batch is in the log once, whole, as exactly one of the choices that were sent, its
    chunks in order of task and chunk, from the offset on that was answered. Nothing else that was
    staged is there, and batches follow each other. Messages that wait come once, whenever.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from raftline.machines.partition.side_car import hash_key
from raftline.testing.batches import seal
from raftline.testing.checker import Violation
from raftline.testing.pipeline_asks import Answer, JobAsks

if TYPE_CHECKING:
    import random

QUERY = "writer"
TASKS = 2
EPOCH_MS = 1_790_000_000_000
STAGE_TRIES = 6

Winner = tuple[int, int, int]  # task, attempt, chunks
Name = tuple[int, int, int, int, int]  # batch, task, attempt, chunk, place: what a value says


class Writer:
    """The driver and its tasks."""

    def __init__(self, asks: JobAsks, rng: "random.Random") -> None:
        self._asks = asks
        self._rng = rng
        self.batch = 0
        self.choices: dict[int, list[tuple[Winner, ...]]] = {}  # sent, by batch
        self.answers: dict[int, list[Answer]] = {}
        self.waiting: dict[tuple[int, int, int, int], bool] = {}  # chunks whose messages wait
        self._attempt = 0
        self._finished: dict[int, Winner] = {}
        self._life = 0  # of the driver: what an earlier one began does not count for this one
        self.is_ending = False
        self.is_idle = False

    def begin(self) -> None:
        """Run the tasks of the batch."""
        if self.is_ending:
            self.is_idle = True
            return
        self._life += 1
        self._finished = {}
        for task in range(TASKS):
            self._run(task)
            if self._rng.randrange(6) == 0:
                self._run(task)  # speculation

    def _run(self, task: int) -> None:
        self._attempt += 1
        key = (self.batch, task, self._attempt)
        chunks = self._rng.randrange(3) if self._rng.randrange(4) else 1
        dies_at = self._rng.randrange(3) if self._rng.randrange(6) == 0 else -1
        self._stage(key, 0, chunks, dies_at, self._life)

    def _stage(
        self, key: tuple[int, int, int], chunk: int, chunks: int, dies_at: int, life: int
    ) -> None:
        """Stage the next chunk of an attempt, or be done."""
        batch, task, attempt = key
        world, rng = self._asks.clients.world, self._rng
        if chunk == chunks:
            if life == self._life and batch == self.batch:
                self._ended((task, attempt, chunks))
            return
        if chunk == dies_at:  # another is run; this one comes back as a zombie
            late_ms = 200.0 + rng.random() * 5_000.0
            world.after(late_ms, lambda: self._stage(key, chunk, chunks, -1, -1))
            if life == self._life and batch == self.batch:
                self._run(task)
            return

        def staged(answer: Answer | None, code: str) -> None:
            del code
            if answer is not None:
                self._stage(key, chunk + 1, chunks, dies_at, life)
            elif life == self._life and batch == self.batch:
                self._run(task)

        arguments = self._arguments(key, chunk)
        self._asks.ask("stage.put", arguments, staged, STAGE_TRIES)
        if rng.randrange(8) == 0:
            self._asks.ask("stage.put", arguments, _nobody, 1)

    def _arguments(self, key: tuple[int, int, int], chunk: int) -> Answer:
        rng, (batch, task, attempt) = self._rng, key
        count = rng.randrange(1, 4)
        names = [f"{batch}.{task}.{attempt}.{chunk}.{place}" for place in range(count)]
        now_ms = EPOCH_MS + int(self._asks.clients.world.now_ms)
        payload = seal([name.encode() for name in names], [now_ms] * count)
        kind = rng.randrange(6)
        extras: list[object] = []
        if kind == 0:
            extras = [[], [(p, hash_key(name.encode())) for p, name in enumerate(names)], []]
        elif kind == 1:
            extras = [[(0, count, 5)], [], []]
        elif kind == 2:
            extras = [[], [], [now_ms + rng.randrange(3_000) for _ in names]]
            self.waiting[(*key, chunk)] = True
        return {
            "query": QUERY, "batch": batch, "task": task, "attempt": attempt, "chunk": chunk,
            "payload": payload, "extras": extras,
        }  # fmt: skip

    def _ended(self, winner: Winner) -> None:
        """An attempt staged all it has; when every task has one, commit."""
        self._finished.setdefault(winner[0], winner)
        if len(self._finished) == TASKS:
            winners = tuple(sorted(self._finished.values()))
            self._finished = {}
            self._life += 1
            self._publish(winners)

    def _publish(self, winners: tuple[Winner, ...]) -> None:
        rng, batch, life = self._rng, self.batch, self._life
        world = self._asks.clients.world
        self.choices.setdefault(batch, []).append(winners)
        arguments: Answer = {"query": QUERY, "batch": batch, "winners": list(winners)}
        if rng.randrange(8) == 0 and not self.is_ending:  # the driver dies with its call under way
            self._asks.ask("stage.publish", arguments, self._heard(batch), 1)
            world.after(300.0 + rng.random() * 2_000.0, self.begin)
            return

        def published(answer: Answer | None, code: str) -> None:
            self._heard(batch)(answer, code)
            if life != self._life:
                return
            if rng.randrange(5) == 0:  # a commit that is repeated
                world.after(rng.random() * 3_000.0, lambda: self._repeat(arguments, batch))
            self.batch += 1
            world.after(rng.random() * 800.0, self.begin)

        self._asks.ask("stage.publish", arguments, published)

    def _repeat(self, arguments: Answer, batch: int) -> None:
        self._asks.ask("stage.publish", arguments, self._heard(batch), 2)

    def _heard(self, batch: int) -> "_Heard":
        return _Heard(self.answers.setdefault(batch, []))

    # ------------------------------------------------------------------ the verdict

    def check(self, log: Iterable[tuple[int, bytes]]) -> Iterator[Violation]:
        """Judge a log of (offset, value)."""
        by_batch: dict[int, list[tuple[int, Name]]] = {}
        last = -1
        for offset, value in log:
            name = _name(value)
            by_batch.setdefault(name[0], []).append((offset, name))
            if name[:4] not in self.waiting:
                if name[0] < last:
                    yield Violation("STAGE", f"batch {name[0]} goes on behind batch {last}", "")
                last = max(last, name[0])
        for batch in range(self.batch + 1):
            yield from self._check_batch(batch, by_batch.get(batch, []))

    def _check_batch(self, batch: int, rows: list[tuple[int, Name]]) -> Iterator[Violation]:
        told = [answer for answer in self.answers.get(batch, []) if answer["count"] >= 0]
        chunks = sorted({(n[1], n[2], n[3]) for _, n in rows})
        names = [n for _, n in rows]
        if len(set(names)) < len(names):
            yield Violation("STAGE", f"batch {batch} is in the log more than once", str(names))
        wanted = [
            sorted((task, attempt, at) for task, attempt, count in choice for at in range(count))
            for choice in self.choices.get(batch, [])
        ]
        if (rows or told) and chunks not in wanted:
            text = f"batch {batch} holds {chunks}, sent were {wanted}"
            yield Violation("STAGE", text, f"answers {told}")
        straight = [(o, n) for o, n in rows if n[:4] not in self.waiting]
        order = [(n[1], n[3], n[4]) for _, n in straight]
        if order != sorted(order):
            yield Violation("STAGE", f"batch {batch} is out of order", str(order))
        for answer in told:
            if answer["already"] and answer["offset"] < 0 and not answer["waiting"]:
                continue  # a later batch is published: nothing is known of this one any more
            first = straight[0][0] if straight else -1
            if (answer["offset"], answer["count"]) != (first, len(straight)):
                text = f"batch {batch} was answered {answer}, it has {len(straight)} from {first}"
                yield Violation("STAGE", text, "")


class _Heard:
    """Keeps what was answered."""

    def __init__(self, answers: list[Answer]) -> None:
        self._answers = answers

    def __call__(self, answer: Answer | None, code: str) -> None:
        if answer is not None:
            self._answers.append(answer)


def _nobody(answer: Answer | None, code: str) -> None:
    """Nobody waits for this."""


def _name(value: bytes) -> Name:
    batch, task, attempt, chunk, place = map(int, value.decode().split("."))
    return batch, task, attempt, chunk, place
