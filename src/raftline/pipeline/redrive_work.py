"""Redriving chosen letters: each origin once, also when the job is stopped and run again.

A letter that is as it was goes through the redrive of the dead-letter topic, which skips what is
redriven already. A changed one is a new message, and takes four steps:

    1  stage and publish it under a fence of its origin: a repeat finds it published
    2  with a dedup key of its origin: the letter of another group does not bring it a second time
    3  purge the letter: it is off the list for good
    4  forget the fence

Stopped behind any step, the next run does the others.
"""

import secrets
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import msgspec

from raftline.client import clock
from raftline.client.caller import Caller
from raftline.client.fenced import Fenced
from raftline.model.errors import RaftlineError
from raftline.model.names import dead_letter_topic, place
from raftline.model.partitioner import partition_of
from raftline.model.records import seal_batch
from raftline.model.settings import effective
from raftline.pipeline.redrive_letters import Letter

PAGE = 200
THREADS = 8
REDRIVEN_HEADER = "raftline-redriven"  # where a changed message comes from
SECOND_MS = 1000


class Sums(msgspec.Struct):
    """What a redrive has done so far."""

    matched: int = 0
    redriven: int = 0
    transformed: int = 0
    skipped: int = 0
    why: dict[str, int] = msgspec.field(default_factory=dict[str, int])

    def skip(self, why: str) -> None:
        """Count a letter that was left alone."""
        self.skipped += 1
        self.why[why] = self.why.get(why, 0) + 1


class Worker:
    """Redrives pages of letters of one topic."""

    __slots__ = (
        "_caller",
        "_connections",
        "_local",
        "_partitioner",
        "_partitions",
        "_pool",
        "_servers",
        "_topic",
    )

    def __init__(self, servers: str, topic: str) -> None:
        self._servers = servers
        self._topic = topic
        self._caller = Caller(servers)
        shown = self._caller.call("GET", f"/v1/topics/{quote(topic, safe='')}")
        self._partitions = int(shown["num_partitions"])
        self._partitioner = str(effective(shown["settings"])["partitioner"])
        self._pool = ThreadPoolExecutor(THREADS, "redrive")
        self._local = threading.local()
        self._connections: list[Fenced] = []  # of the threads

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()
        for connection in (self._caller, *self._connections):
            connection.close()

    def work(self, page: Sequence[Letter], sums: Sums) -> None:
        """Redrive a page of letters."""
        plain = [letter for letter in page if not letter.is_changed]
        changed = [letter for letter in page if letter.is_changed]
        sums.matched += len(page)
        if plain:
            reply = self._post("redrive", plain)
            sums.redriven += reply["redriven"]
            for row in reply["skipped"]:
                sums.skip(row["why"])
        if changed:
            self._append(changed, sums)

    def _append(self, letters: Sequence[Letter], sums: Sums) -> None:
        """Send changed messages, one for each origin; then be done with their letters."""
        first = {origin_of(letter): letter for letter in reversed(letters)}
        sealed = [_sealed(letter) for letter in first.values()]
        told = list(self._pool.map(self._send, first.values(), sealed))
        lost = {name for name, error in zip(first, told, strict=True) if error}
        for error in filter(None, told):
            sums.skip(error)
        done = [letter for letter in letters if origin_of(letter) not in lost]
        sums.transformed += len(first) - len(lost)
        for _ in range(len(done) - (len(first) - len(lost))):
            sums.skip("its origin was redriven for another group")
        if done:
            self._post("purge", done)
        sent = [letter for name, letter in first.items() if name not in lost]
        list(self._pool.map(self._forget, sent))

    def _send(self, letter: Letter, batch: bytes) -> str:
        """Put one changed message into the log, once; return why it could not be."""
        query, topic, partition = origin_of(letter), letter.topic, self.partition_of(letter)
        priorities = [(0, 1, letter.priority)] if letter.priority else []
        attempt = secrets.randbits(62)  # a run that was stopped may have staged other bytes
        try:
            self._fenced.stage(
                topic,
                partition,
                query,
                0,
                0,
                attempt,
                0,
                batch,
                priorities=priorities,
                dedup=[(0, query.encode())],
            )
            self._fenced.publish(topic, partition, query, 0, [(0, attempt, 1)])
        except RaftlineError as error:
            if error.retry or error.unknown:
                raise
            return error.message
        return ""

    def _forget(self, letter: Letter) -> None:
        self._fenced.forget(letter.topic, self.partition_of(letter), origin_of(letter))

    def partition_of(self, letter: Letter) -> int:
        """Return where a changed message goes: where its key goes; without one, where it was."""
        key = letter.after.key
        if key is None or key == letter.before.key:
            return letter.partition
        return partition_of(self._partitioner, key, self._partitions)

    @property
    def _fenced(self) -> Fenced:
        """The connection of this thread."""
        found = getattr(self._local, "fenced", None)
        if found is None:
            found = self._local.fenced = Fenced(self._servers)
            self._connections.append(found)
        return found

    def _post(self, verb: str, letters: Sequence[Letter]) -> dict[str, Any]:
        letters_of = dead_letter_topic(self._topic)
        ids = [f"{letters_of}.0.{letter.offset}" for letter in letters]
        path = f"/v1/topics/{quote(self._topic, safe='')}/dlq/{verb}"
        return self._caller.call("POST", path, {"ids": ids, "limit": len(ids)})


class Pace:
    """Holds pages to so many letters a second."""

    __slots__ = ("_began_ms", "_done", "rate_per_s")

    def __init__(self, rate_per_s: int) -> None:
        self.rate_per_s = rate_per_s  # 0: as fast as it goes
        self._began_ms = clock.mono_ms()
        self._done = 0

    @property
    def page(self) -> int:
        """How many letters to take at once: a fifth of a second's, so that it goes evenly."""
        return max(1, min(PAGE, self.rate_per_s // 5)) if self.rate_per_s else PAGE

    def wait(self, count: int) -> None:
        """Wait until ``count`` more may go."""
        if self.rate_per_s:
            due_ms = self._began_ms + self._done * SECOND_MS / self.rate_per_s
            clock.pause(due_ms - clock.mono_ms())
            self._done += count


def _sealed(letter: Letter) -> bytes:
    """Return a changed message as it is stored; it says which letter it was."""
    after = letter.after
    where = place(dead_letter_topic(letter.topic), 0, letter.offset).encode()
    headers = [*after.headers, (REDRIVEN_HEADER, where)]
    return seal_batch([(after.key, after.value, headers, clock.wall_ms())])


def origin_of(letter: Letter) -> str:
    """Return the name of what is redriven: a message in one generation, whichever group."""
    return f"redrive:{letter.origin}:{letter.generation}"
