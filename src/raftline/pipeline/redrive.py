"""``raftline pipeline redrive``: dead letters chosen in SQL, delivered again, changed if wanted."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from raftline.model.errors import InvalidArgument
from raftline.model.names import is_dead_letter_topic
from raftline.pipeline.job import Job
from raftline.pipeline.redrive_letters import Letter, choose, letters_of
from raftline.pipeline.redrive_work import Pace, Sums, Worker
from raftline.pipeline.sql import Desk

SHOWN = 20  # letters of a dry run
RATE_MAX = 1_000_000


def run(
    job: Job,
    *,
    topic: str,
    where: str,
    transform: Mapping[str, str] | None = None,
    rate_per_s: int = 0,
    limit: int = 0,
    dry_run: bool = False,
    shown: int = SHOWN,
) -> dict[str, Any]:
    """Redrive the dead letters of a topic that fit a predicate; return what was done.

    Args:
        job: whose session and servers are used.
        topic: where the letters come from.
        where: a predicate over the table of dead letters: ``reason = 'REJECTED'``.
        transform: ``key``, ``value``, ``headers`` -> an expression of SQL over the same columns.
        rate_per_s: letters a second at most; 0: as fast as it goes.
        limit: letters at most; 0: all that fit.
        dry_run: change nothing; ``letters`` tells of the first ``shown`` what would happen.
        shown: how many a dry run tells of.
    """
    if is_dead_letter_topic(topic):
        raise InvalidArgument(
            f"{topic} holds dead letters itself", "name the topic that they come from"
        )
    if not 0 <= rate_per_s <= RATE_MAX:
        raise InvalidArgument(f"a rate of {rate_per_s}", f"0 (no limit) to {RATE_MAX} a second")
    changes = {part: text for part, text in (transform or {}).items() if text}
    with Desk(job, options={}) as desk:
        table = choose(desk, topic, where, changes, limit)
        letters = letters_of(table, changes)
        if dry_run:
            return _preview(letters, shown)
        with job.progress("letters", label=f"redrive {topic}") as bar:
            sums, stopped = Sums(), False
            worker, pace = Worker(job.servers, topic), Pace(rate_per_s)
            try:
                while page := list(islice(letters, pace.page)):
                    pace.wait(len(page))
                    worker.work(page, sums)
                    bar.advance(len(page))
                    if job.is_stopping:
                        stopped = True
                        break
            finally:
                worker.close()
    return {**msgspec.to_builtins(sums), "stopped": stopped}


def _preview(letters: Iterator[Letter], shown: int) -> dict[str, Any]:
    """Count what would be redriven, and tell of the first ones."""
    sums, told = Sums(), list[Letter]()
    for letter in letters:
        sums.matched += 1
        if letter.is_changed:
            sums.transformed += 1
        else:
            sums.redriven += 1
        if len(told) < shown:
            told.append(letter)
    return {**msgspec.to_builtins(sums), "dry_run": True, "letters": told}
