"""What a task may raise to say more than that it failed."""

from raftline.client.leased import Duration, nack_delay_ms


class Retry(Exception):
    """Run it again, after ``delay`` instead of the topic's backoff. Counts as an attempt.

    Raises:
        InvalidArgument: the delay is none; the task fails of it.
    """

    delay: Duration | None = None  # also of a kind of it that says nothing

    def __init__(self, reason: str = "", *, delay: Duration | None = None) -> None:
        super().__init__(reason or "the task asked to be run again")
        if delay is not None:
            nack_delay_ms(delay)
        self.delay = delay


class GiveUp(Exception):
    """Do not run it again: it goes to the dead letters."""


class TaskFailed(Exception):
    """A task whose result was asked for was given up on."""
