"""A receive over all partitions of a topic: from the one with the highest lane waiting.

First every leader is asked at once what waits for the group, then the best partition is asked for
messages. Another receiver may have been faster: then the next best is asked. While nothing waits
anywhere, all leaders are asked to say when that changes. Where this node has no replica it guesses
who leads; who is asked by mistake says so by a row for that partition, which is then asked last, by
way of the router: that finds the leader, and remembers it.

The first look begins a group on every partition where it is to begin at what comes next, or
ordered: which partition serves first, and when the others do, makes no difference to that.

Invariants
    W1  One partition at most hands out messages for one receive: nothing is leased that the
        caller never hears of.
    W2  The receive ends at its deadline, with messages, empty or with an error. Where no leader
        could be asked it is not empty but an error, after all the time it has.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from raftline.model.calls import Received
from raftline.model.errors import NoLeader, RaftlineError, ShuttingDown, Unavailable
from raftline.node.remote import VERB_READY, Answer

if TYPE_CHECKING:
    from raftline.node.desks import Desks, Ready, Receive
    from raftline.node.node import Node

ASK_MS = 1_000
ASK_SILENT_MS = 200  # the same, for one that was not heard from lately
WAIT_SLICE_MS = 2_000  # leaders are asked anew this often: leadership moves
PAUSE_MS = 20  # before asking again when nobody leads


class SpreadReceive:
    """One receive without a partition."""

    def __init__(
        self,
        node: "Node",
        desks: "Desks",
        topic: str,
        ask: "Receive",
        timeout_ms: int,
        done: Callable[[Received | RaftlineError], None],
        is_wanted: Callable[[], bool],
    ) -> None:
        self._is_wanted = is_wanted
        self._node = node
        self._desks = desks
        self._topic = topic
        self._ask = ask
        self._done = done
        self._deadline = node.clock.mono_ms() + ask.wait_ms
        self._give_up = node.clock.mono_ms() + timeout_ms
        self._shards: list[int] = []
        self._round = 0

    @property
    def is_over(self) -> bool:
        """Say whether nobody can be told any more of what others would lease now."""
        return self._node.is_stopping

    def start(self) -> None:
        """Find the partitions, then look who has something."""
        first = self._node.locate(self._topic, 0)
        if isinstance(first, RaftlineError):
            self._done(first)
            return
        shards: list[int] = list(self._node.catalog_machine.topics[self._topic].shards)
        turn = self._desks.next_turn(self._topic) % len(shards)
        self._shards = shards[turn:] + shards[:turn]
        self._look(0)

    def _look(self, wait_ms: int) -> None:
        """Ask all leaders what they have; ``wait_ms``: let them answer when they have something."""
        self._round += 1
        questions = self._by_node()
        if list(questions) == [self._node.id] or not questions:
            self._look_here()
            return
        gather = _Gather(self, self._round, len(questions), is_waiting=wait_ms > 0)
        left_ms = int(self._give_up - self._node.clock.mono_ms())
        for node, shards in questions.items():
            if node == self._node.id:
                self._ask_here(shards, wait_ms, gather)
            else:
                grace_ms = ASK_MS if self._node.peers.is_live(node) else ASK_SILENT_MS
                patience_ms = max(1, min(wait_ms + grace_ms, left_ms))  # W2
                ask = self._ask
                body = [_pack((shards, ask.group, wait_ms, ask.start, ask.ordered))]
                self._node.remote.call(node, VERB_READY, body, patience_ms, gather.heard)

    def _by_node(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for shard in self._shards:
            node = self._node.router.leader_of(shard)
            if node:
                found.setdefault(node, []).append(shard)
        return found

    def _look_here(self) -> None:
        """All is led here: what one look does not find is waited for at once."""
        found = self._desks.ready_here(self._shards, self._ask)
        is_blind = not self._desks.leads_any(self._shards)
        wait_ms = self._slice_ms()
        if found or is_blind or wait_ms <= 0:
            self.looked(self._round, found, is_waiting=False, is_blind=is_blind)
        else:
            gather = _Gather(self, self._round, 1, is_waiting=True)
            self._await_here(self._shards, wait_ms, gather)

    def _ask_here(self, shards: list[int], wait_ms: int, gather: "_Gather") -> None:
        found = self._desks.ready_here(shards, self._ask)
        if found or wait_ms <= 0:
            gather.found(found, is_blind=not self._desks.leads_any(shards))
        else:
            self._await_here(shards, wait_ms, gather)

    def _await_here(self, shards: list[int], wait_ms: int, gather: "_Gather") -> None:
        def changed() -> None:
            found = self._desks.ready_here(shards, self._ask)
            gather.found(found, is_blind=not self._desks.leads_any(shards))

        if not self._desks.when_ready_here(shards, self._ask.group, wait_ms, changed):
            self._node.clock.call_later(PAUSE_MS, changed)

    def looked(self, number: int, found: "Ready", *, is_waiting: bool, is_blind: bool) -> None:
        """All leaders answered, or the first that waited: take from the best, or wait. W2.

        Blind is a look that no leader answered.
        """
        if number != self._round:
            return
        self._round += 1  # later answers of this round are not listened to
        now = self._node.clock.mono_ms()
        if not self._is_wanted():
            self._done(Received(-1, 0, 0, 0, [], b"", 0))
        elif self.is_over:
            self._done(ShuttingDown())
        elif found:
            order = {shard: at for at, shard in enumerate(self._shards)}
            found = sorted(found, key=lambda row: (-row[1], order.get(row[0], 0)))
            self._take([shard for shard, _ in found])
        elif is_blind and now >= self._give_up - PAUSE_MS:
            self._done(NoLeader(self._topic))
        elif is_blind and now >= self._deadline:
            self._node.clock.call_later(PAUSE_MS, lambda: self._look(0))
        elif now >= self._deadline:
            self._done(Received(-1, 0, 0, 0, [], b"", 0))
        elif (
            is_waiting or is_blind
        ):  # leadership moved, or a leader could not be asked: not at once again
            self._node.clock.call_later(PAUSE_MS, self._wait)
        else:
            self._wait()

    def _wait(self) -> None:
        self._look(self._slice_ms())

    def _slice_ms(self) -> int:
        """Return how long to wait before asking anew."""
        left = self._deadline - self._node.clock.mono_ms()
        return min(int(left) + 1, WAIT_SLICE_MS) if left > 0 else 0

    def _take(self, shards: list[int], refusal: RaftlineError | None = None) -> None:
        """Ask the best partition; if others were faster there, or it cannot now, the next. W1."""
        ask = msgspec.structs.replace(self._ask, shard=shards[0], wait_ms=0)
        left = int(self._give_up - self._node.clock.mono_ms())
        if refusal is not None and left <= PAUSE_MS:
            self._done(refusal)
            return

        def took(answer: Received | RaftlineError) -> None:
            error = refusal
            if isinstance(answer, Unavailable):
                error = answer  # nothing was leased there
            elif isinstance(answer, RaftlineError) or answer.spans:
                self._done(answer)
                return
            if len(shards) > 1:
                self._take(shards[1:], error)
            elif error is not None:
                self._done(error)
            else:
                self._again()

        self._desks.receive_shard(ask, max(1, left), took, self._is_wanted)

    def _again(self) -> None:
        now = self._node.clock.mono_ms()
        if now >= self._deadline:
            self._done(Received(-1, 0, 0, 0, [], b"", 0))
            return
        self._node.clock.call_later(1, lambda: self._look(0))


class _Gather:
    """The answers of one look: all of them, or the first with something where leaders wait."""

    __slots__ = ("_found", "_is_blind", "_is_waiting", "_missing", "_number", "_receive")

    def __init__(
        self, receive: SpreadReceive, number: int, count: int, *, is_waiting: bool
    ) -> None:
        self._receive = receive
        self._number = number
        self._missing = count
        self._is_waiting = is_waiting
        self._found: Ready = []
        self._is_blind = True

    def heard(self, answer: Answer) -> None:
        """Another node answered."""
        if isinstance(answer, RaftlineError):
            self.found([], is_blind=True)
        else:
            self.found(_decode_ready(answer), is_blind=False)

    def found(self, rows: "Ready", *, is_blind: bool) -> None:
        """One leader answered, or could not."""
        self._missing -= 1
        self._found += rows
        self._is_blind = self._is_blind and is_blind
        is_over = self._receive.is_over or (self._is_waiting and rows)
        if not self._missing or is_over:
            self._receive.looked(
                self._number, self._found, is_waiting=self._is_waiting, is_blind=self._is_blind
            )


_pack = msgspec.msgpack.encode
_decode_ready = msgspec.msgpack.Decoder(list[tuple[int, int]]).decode
