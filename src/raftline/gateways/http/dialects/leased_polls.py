"""One poll of a group's member that leases: GoQueue's poll, every message with a receipt handle.

The member's partitions are those of the stream group; what is leased on them belongs to the work
group of the same name. A poll is a heartbeat, and gives up what was revoked before.
"""

import msgspec

from raftline.gateways.fan import Chain
from raftline.gateways.http.connection import Exchange
from raftline.gateways.http.deliveries import Delivered, DeliveryRoutes, duration_ms
from raftline.gateways.http.groups import GENERATION_MAX
from raftline.gateways.http.routes import Request
from raftline.gateways.ports import Calls
from raftline.model.calls import Received
from raftline.model.errors import InvalidArgument, RaftlineError
from raftline.model.groups import Answer, MemberView, Polled, PollGroup
from raftline.model.limits import READ_BYTES_DEFAULT, WAIT_MS_MAX
from raftline.node.ports import Clock

LIMIT_DEFAULT, LIMIT_MAX = 100, 1_000
ROUND_MS = 100  # between looks while nothing is there


class PolledAnswer(msgspec.Struct):
    """Messages by partition (``topic/partition`` where the member reads several topics)."""

    member_id: str
    generation: int
    messages: dict[str, list[Delivered]]
    next_offset: dict[str, int]


class LeasedPoll:
    """One poll on its way."""

    __slots__ = (
        "_calls",
        "_chain",
        "_clock",
        "_deadline",
        "_deliveries",
        "_exchange",
        "_found",
        "_generation",
        "_group",
        "_left",
        "_member",
        "_places",
        "_request",
        "_room",
        "_turn",
        "_view",
    )

    def __init__(
        self,
        clock: Clock,
        calls: Calls,
        deliveries: DeliveryRoutes,
        exchange: Exchange,
        request: Request,
        turn: int,
    ) -> None:
        self._clock = clock
        self._calls = calls
        self._deliveries = deliveries
        self._exchange = exchange
        self._request = request
        self._group = request.params["group"]
        self._member = request.query.get("member_id", "")
        if not self._member or "generation" not in request.query:
            raise InvalidArgument("a poll names member_id and generation", "join answers both")
        self._generation = request.number("generation", 0, 0, GENERATION_MAX)
        self._left = request.number("limit", LIMIT_DEFAULT, 1, LIMIT_MAX)
        wait_ms = duration_ms("timeout", request.query.get("timeout", "0"), 0, WAIT_MS_MAX)
        self._deadline = clock.mono_ms() + wait_ms
        self._found: list[tuple[str, Delivered]] = []
        self._room = READ_BYTES_DEFAULT  # of stored batches; each partition may give as much
        self._turn = turn  # which of the partitions is asked first
        self._view: MemberView | None = None
        self._places: list[tuple[str, int]] = []  # to be asked in this round, the last one first
        self._chain = Chain(self._lease_next)
        exchange.weigh(READ_BYTES_DEFAULT)

    def start(self) -> None:
        """Ask the coordinator what the member has."""
        request = PollGroup(self._group, self._member, self._generation)
        self._calls.group(request, self._request.timeout_ms, self._exchange.then(self._told))

    def _told(self, answer: Answer) -> None:
        assert isinstance(answer, Polled)
        view = answer.view
        self._view = view
        places = [(t, p) for t in sorted(view.partitions) for p in sorted(view.partitions[t])]
        self._turn += 1
        turn = self._turn % len(places) if places else 0
        self._places = (places[turn:] + places[:turn])[::-1]
        self._chain.next()

    def _lease_next(self) -> None:
        """Lease from one partition after the other until there is enough."""
        if not self._places or not self._left or self._room <= 0:
            self._finish_round()
            return
        topic, partition = self._places.pop()

        def took(received: Received | RaftlineError) -> None:
            error = self._take(topic, received) if isinstance(received, Received) else received
            if error is not None and not self._found and not self._places:
                self._exchange.fail(error)
                return
            self._exchange.guard(self._chain.next)

        self._calls.receive(
            topic,
            self._group,
            partition,
            self._left,
            self._room,
            0,
            0,
            self._member,
            self._request.timeout_ms,
            took,
            is_wanted=self._exchange.is_wanted,
        )

    def _take(self, topic: str, received: Received) -> RaftlineError | None:
        """Take what a partition gave; return why it cannot be read, if so."""
        try:
            items = self._deliveries.items(topic, self._group, received)
        except RaftlineError as error:  # sound outside, not inside
            return error
        self._found += [(topic, item) for item in items]
        self._left -= len(items)
        self._room -= len(received.batches)
        return None

    def _finish_round(self) -> None:
        assert self._view is not None
        changed = self._view.generation != self._generation or bool(self._view.revoke)
        is_over = self._clock.mono_ms() >= self._deadline or not self._exchange.is_wanted()
        if self._found or changed or is_over:
            self._answer(self._view)
        else:
            self._clock.call_later(ROUND_MS, lambda: self._exchange.guard(self.start))

    def _answer(self, view: MemberView) -> None:
        several = len(view.partitions) > 1
        messages: dict[str, list[Delivered]] = {}
        ends: dict[str, int] = {}
        for topic, item in self._found:
            name = f"{topic}/{item.partition}" if several else str(item.partition)
            messages.setdefault(name, []).append(item)
            ends[name] = max(ends.get(name, 0), item.offset + 1)
        self._exchange.json(PolledAnswer(view.member, view.generation, messages, ends))
