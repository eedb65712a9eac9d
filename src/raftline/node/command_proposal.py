"""One command on its way through a shard's log: who waits for it, and what is heard of it."""

from collections.abc import Callable, Sequence

import msgspec

from raftline.model.errors import RaftlineError, TimedOut


class Applied(msgspec.Struct, frozen=True):
    """A command was applied: at which index, and what happened."""

    index: int
    events: Sequence[object]


class CommandProposal:
    """The caller of one command."""

    __slots__ = ("_deadline", "_done", "_name", "_timeout_ms")

    def __init__(
        self,
        name: str,
        deadline: float,
        timeout_ms: int,
        done: Callable[[Applied | RaftlineError], None],
    ) -> None:
        self._name = name
        self._deadline = deadline
        self._timeout_ms = timeout_ms
        self._done: Callable[[Applied | RaftlineError], None] | None = done

    def answer(self, answer: Applied | RaftlineError) -> None:
        """Hand the outcome of the applied command to the caller."""
        done, self._done = self._done, None
        if done is not None:
            done(answer)

    def refuse(self, error: RaftlineError) -> None:
        """The command will never be applied."""
        self.answer(error)

    def ahead(self, done: Callable[[Applied | RaftlineError], None]) -> "CommandProposal":
        """Return the proposal of a command that goes first, and has no more time than this one."""
        return CommandProposal(self._name, self._deadline, self._timeout_ms, done)

    def expire(self, now_ms: float) -> bool:
        """Answer the caller if it is overdue."""
        if now_ms < self._deadline:
            return False
        self.answer(TimedOut(f"a command to {self._name}", self._timeout_ms))
        return True


class Offer(msgspec.Struct, frozen=True):
    """The state at an index, held for a replica that fetches it."""

    index: int
    log_start: int
    log_end: int
    state_bytes: int
    side_ends: dict[str, int] = {}  # log_end of each side log
