"""Delivery commands on their way: collected, proposed in one entry, answered at apply."""

from collections.abc import Callable, Sequence

from raftline.machines.delivery.commands import (
    Command,
    Forget,
    Grant,
    LeaseQuery,
    RejectQuery,
    Revive,
    Settle,
)
from raftline.machines.delivery.outcomes import Outcome
from raftline.model.errors import RaftlineError, TimedOut

DeliverDone = Callable[[Sequence[Outcome] | RaftlineError], None]
NEVER = float("inf")
COMMAND_BYTES = 64  # what a command weighs besides its lists and texts
NUMBER_BYTES = 9
CHAR_BYTES = 4


class DeliverCall:
    """Some commands of one caller, and who hears what became of them."""

    __slots__ = ("commands", "deadline", "done", "rows", "timeout_ms", "weight")

    def __init__(
        self,
        commands: Sequence[Command],
        deadline: float,
        timeout_ms: int,
        done: DeliverDone,
        weight: int = 0,
        rows: int = 0,
    ) -> None:
        self.commands = commands
        self.rows = rows or sum(map(rows_of, commands))
        self.weight = weight or sum(map(weigh, commands)) or COMMAND_BYTES
        self.deadline = deadline
        self.timeout_ms = timeout_ms
        self.done: DeliverDone | None = done

    def answer(self, answer: Sequence[Outcome] | RaftlineError) -> None:
        """Tell the caller, once."""
        done, self.done = self.done, None
        if done is not None:
            done(answer)


class DeliverProposal:
    """The callers of one entry of delivery commands."""

    __slots__ = ("_calls", "_deadline", "_name", "callers")

    def __init__(self, name: str, calls: list[DeliverCall]) -> None:
        self._name = name
        self._calls = calls
        self._deadline = min([call.deadline for call in calls])
        self.callers = sum([call.timeout_ms > 0 for call in calls])  # who wait for an answer

    def settles(self) -> tuple[int, float]:
        """Return how many calls settle something, and when the first of them came."""
        began = [
            call.deadline - call.timeout_ms
            for call in self._calls
            if call.timeout_ms and call.commands and type(call.commands[0]) is Settle
        ]
        return len(began), min(began, default=0.0)

    def answer(self, outcomes: Sequence[Outcome]) -> None:
        """Hand every caller the outcomes of its own commands."""
        start = 0
        for call in self._calls:
            end = start + len(call.commands)
            done, call.done = call.done, None
            if done is not None:
                done(outcomes[start:end])
            start = end

    def refuse(self, error: RaftlineError) -> None:
        """Nothing of it will be applied."""
        for call in self._calls:
            call.answer(error)

    def expire(self, now_ms: float) -> bool:
        """Answer the overdue; say whether nobody waits any more."""
        if now_ms < self._deadline:
            return False
        for call in self._calls:
            if call.deadline <= now_ms and call.done is not None:
                call.answer(TimedOut(f"a command to {self._name}", call.timeout_ms))
        self._deadline = min([c.deadline for c in self._calls if c.done is not None], default=NEVER)
        return all(call.done is None for call in self._calls)


def rows_of(command: Command) -> int:
    """Return about how many rows a command changes, without a look at them."""
    match command:
        case Settle() | Revive() | Forget() | RejectQuery():
            return max(1, len(command.ranges) // 2)
        case Grant() | LeaseQuery():
            return len(command.spans) // 4 if command.keys is None else len(command.keys)
        case _:
            return 1


def weigh(command: Command) -> int:
    """Return how many bytes a command has in its entry at most."""
    if isinstance(command, Settle):
        texts = len(command.reason) + len(command.member) + len(command.group)
        return COMMAND_BYTES + NUMBER_BYTES * len(command.ranges) + CHAR_BYTES * texts
    match command:
        case Grant():
            numbers = len(command.spans) + len(command.keys or ())
            texts = len(command.member) + len(command.group)
            return COMMAND_BYTES + NUMBER_BYTES * numbers + CHAR_BYTES * texts
        case LeaseQuery():
            numbers = len(command.spans) + len(command.keys or ())
            texts = len(command.query) + len(command.group)
            return COMMAND_BYTES + NUMBER_BYTES * numbers + CHAR_BYTES * texts
        case RejectQuery():
            texts = len(command.query) + len(command.group) + len(command.reason)
            return COMMAND_BYTES + NUMBER_BYTES * len(command.ranges) + CHAR_BYTES * texts
        case Revive() | Forget():
            return COMMAND_BYTES + NUMBER_BYTES * len(command.ranges)
        case _:
            return 4 * COMMAND_BYTES
