"""Texts by small numbers: names and errors that many rows repeat.

State
    Number -> text, and how many messages hold each number. Number 0 is the empty text.

Invariants
    X1  A number is given while somebody holds it; the smallest free one is given next. So which
        number a text gets follows from who holds what, not from what was there before.
    X2  At most ``texts_max`` are kept; a text that finds no room is the empty one.
"""

import heapq

TextState = list[tuple[int, str]]  # by number


class Texts:
    """Texts that are held, by number."""

    __slots__ = ("_free", "_held", "_numbers", "_texts", "_texts_max")

    def __init__(self, texts_max: int) -> None:
        self._texts_max = texts_max
        self._texts: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._held: dict[int, int] = {}
        self._free: list[int] = []  # a heap: every free number below the highest given

    def number(self, text: str) -> int:
        """Return the number of ``text``, a new one if need be: hold it, or ``tidy`` it."""
        if not text:
            return 0
        known = self._numbers.get(text)
        if known is not None:
            return known
        if len(self._texts) >= self._texts_max:
            return 0  # X2
        number = heapq.heappop(self._free) if self._free else len(self._texts) + 1
        self._texts[number], self._numbers[text], self._held[number] = text, number, 0
        return number

    def text(self, number: int) -> str:
        """Return the text of ``number``."""
        return self._texts[number] if number else ""

    def hold(self, number: int, count: int) -> None:
        """So many messages more have ``number``."""
        if number:
            self._held[number] += count

    def drop(self, number: int, count: int) -> None:
        """So many messages fewer have ``number``."""
        if number:
            left = self._held[number] - count
            self._held[number] = left
            if not left:
                self.tidy(number)

    def tidy(self, number: int) -> None:
        """Forget the text of ``number`` if nobody holds it. X1."""
        if number and not self._held[number]:
            del self._numbers[self._texts.pop(number)], self._held[number]
            heapq.heappush(self._free, number)

    def clear(self) -> None:
        """Forget all texts."""
        self.restore([])

    def state(self) -> TextState:
        """Return numbers and texts. Who holds them is known from the rows."""
        return sorted(self._texts.items())

    def restore(self, state: TextState) -> None:
        """Take over what ``state`` returned elsewhere; then hold what the rows hold."""
        self._texts = dict(state)
        self._numbers = {text: number for number, text in state}
        self._held = dict.fromkeys(self._texts, 0)
        highest = max(self._texts, default=0)
        self._free = [number for number in range(1, highest) if number not in self._texts]

    def check(self, held: dict[int, int]) -> None:
        """Raise if an invariant is broken; ``held``: messages by number, as counted."""
        assert self._held == {n: count for n, count in held.items() if n}, (self._held, held)
        assert all(count > 0 for count in self._held.values())
        assert len(self._texts) <= self._texts_max
        assert self._numbers == {text: number for number, text in self._texts.items()}
        free = set(self._free)
        assert len(free) == len(self._free)
        assert free.isdisjoint(self._texts)
        assert free | set(self._texts) == set(range(1, len(free) + len(self._texts) + 1))

    def __len__(self) -> int:
        return len(self._texts)
