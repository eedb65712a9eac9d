"""Routing: every call finds the leader of its shard, wherever it was made.

A call is tried on the leader this node knows: here, or by a question to its node. An answer that
proves nothing was proposed (``not_leader``, ``not_ready`` …) sends it on to the leader it names, or
to the next guess, until its time is up. An answer that leaves the effect unknown ends it, unless
the call may be repeated (a read, or a batch with a producer's sequence).

Invariants
    O1  A call that is not repeatable is never sent again after it may have been proposed.
    O2  Every call is answered exactly once, within its timeout.
    O3  Once an attempt may have been carried out, no refusal of a later one says otherwise: only
        a success ends the doubt.
"""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from raftline.model.errors import (
    DuplicateKey,
    NoLeader,
    NotLeader,
    NotReady,
    RaftlineError,
    ShuttingDown,
    TimedOut,
)
from raftline.node.peers import Peers
from raftline.node.ports import Clock, Timer
from raftline.node.remote import Remote
from raftline.node.replica import Replica

T = TypeVar("T")
Local = Callable[[Replica, int, Callable[[T | RaftlineError], None]], None]
"""Serve the call here: (replica, timeout_ms, answer). What it answers is passed on as it is."""

RETRY_MS = (2, 10, 20, 40)
DEFINITE = (NotLeader, NoLeader, NotReady, ShuttingDown)


class Directory(Protocol):
    """Where replicas are, as this node knows."""

    def replica(self, shard: int) -> Replica | None:
        """Return our own replica of a shard."""
        ...

    def hosts(self, shard: int) -> tuple[int, ...]:
        """Return the nodes with a replica, preferred leader first; empty: no such shard yet."""
        ...

    def is_opening(self, shard: int) -> bool:
        """Say whether our own replica of a shard is about to be open."""
        ...

    def out_of_service(self, shard: int) -> RaftlineError | None:
        """Say so if the only replica of a shard is ours and cannot be trusted."""
        ...

    def shard_name(self, shard: int) -> str:
        """Return what people call the shard."""
        ...


class Router:
    """Sends calls to leaders."""

    def __init__(
        self, clock: Clock, peers: Peers, remote: Remote, directory: Directory, node: int
    ) -> None:
        self.clock = clock
        self.peers = peers
        self.remote = remote
        self.directory = directory
        self.node = node
        self._hints: dict[int, int] = {}  # shard -> node that led it last

    def hint(self, shard: int, node: int) -> None:
        """Remember who leads a shard."""
        if node:
            self._hints[shard] = node
        else:
            self._hints.pop(shard, None)

    def leader_of(self, shard: int, attempt: int = 0) -> int:
        """Return the best guess at a shard's leader; 0 if there is none."""
        replica = self.directory.replica(shard)
        if replica is not None and replica.leader_node:
            return replica.leader_node
        hinted = self._hints.get(shard, 0)
        hosts = self.directory.hosts(shard)
        if hinted and attempt == 0 and (hinted == self.node or self.peers.is_live(hinted)):
            return hinted
        live = [host for host in hosts if host != self.node and self.peers.is_live(host)]
        if not live:
            return hinted
        return live[attempt % len(live)]

    def known_leader(self, shard: int) -> int:
        """Return a shard's leader without guessing where we have a replica; 0 if none is known.

        A replica that is being opened counts: of a new shard the guess is wrong as often as not,
        and a client that is sent to it may take minutes to ask again.
        """
        replica = self.directory.replica(shard)
        if replica is not None:
            return replica.leader_node
        return 0 if self.directory.is_opening(shard) else self.leader_of(shard)

    def send(
        self,
        shard: int,
        verb: int,
        body: list[bytes],
        timeout_ms: int,
        done: Callable[[T | bytes | RaftlineError], None],
        local: Local[T],
        *,
        repeatable: bool,
    ) -> None:
        """Have a shard's leader answer; ``local`` serves it if that is us."""
        Routed(self, shard, verb, body, timeout_ms, done, local, repeatable=repeatable).attempt()


class Routed(Generic[T]):
    """One call on its way."""

    __slots__ = (
        "_asked",
        "_attempts",
        "_body",
        "_deadline",
        "_done",
        "_error",
        "_is_waiting",
        "_local",
        "_repeatable",
        "_router",
        "_shard",
        "_timeout_ms",
        "_timer",
        "_told",
        "_verb",
    )

    def __init__(
        self,
        router: Router,
        shard: int,
        verb: int,
        body: list[bytes],
        timeout_ms: int,
        done: Callable[[T | bytes | RaftlineError], None],
        local: Local[T],
        *,
        repeatable: bool,
    ) -> None:
        self._router = router
        self._shard = shard
        self._verb = verb
        self._body = body
        self._timeout_ms = timeout_ms
        self._deadline = router.clock.mono_ms() + timeout_ms
        self._done = done
        self._local = local
        self._repeatable = repeatable
        self._asked = 0  # the node that was asked last; 0: here
        self._attempts = 0
        self._error: RaftlineError | None = None
        self._is_waiting = False  # for our own replica
        self._told = 0  # who leads, by the latest answer; it may be no host that the catalog wants
        self._timer: Timer | None = None

    def attempt(self) -> None:
        """Try the leader as it is known now."""
        router = self._router
        left = self._deadline - router.clock.mono_ms()
        if left <= 0:
            self._give_up()
            return
        replica = router.directory.replica(self._shard)
        if replica is not None and replica.is_leader:
            self._asked = 0
            self._is_waiting = True
            self._local(replica, int(left) + 1, self._here)
            if self._is_waiting:
                self._timer = router.clock.call_later(left, self._late)
            return
        node, self._told = self._told or router.leader_of(self._shard, self._attempts), 0
        if node == 0 or node == router.node:
            refusal = router.directory.out_of_service(self._shard)
            if refusal is not None:
                self._done(refusal)  # time does not heal it
            else:
                self._retry(NoLeader(router.directory.shard_name(self._shard)))
            return
        self._asked = node
        router.remote.call(node, self._verb, self._body, max(1, int(left)), self._answered)

    def _here(self, answer: T | RaftlineError) -> None:
        """Our own replica answered; once it was late nobody listens. O2."""
        if self._is_waiting:
            self._is_waiting = False
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._answered(answer)

    def _late(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            name = self._router.directory.shard_name(self._shard)
            self._done(TimedOut(f"a call to {name}", self._timeout_ms))

    def _answered(self, answer: T | bytes | RaftlineError) -> None:
        if not isinstance(answer, RaftlineError):
            if self._asked:
                self._router.hint(self._shard, self._asked)
            self._done(answer)
        elif isinstance(answer, DEFINITE):
            leader = answer.extras.get("leader")
            if isinstance(leader, int):
                self._router.hint(self._shard, leader)
                self._told = leader if self._router.peers.is_live(leader) else 0
            self._retry(answer)
        elif answer.unknown and self._repeatable and "lost" in answer.extras:
            self._router.hint(self._shard, 0)
            self._retry(answer)
        elif isinstance(answer, DuplicateKey):
            self._done(answer)  # it says what became of an earlier attempt
        else:
            self._done(self._unknown() or answer)  # O1, O3

    def _unknown(self) -> RaftlineError | None:
        """Return why nobody knows whether it was done, if that is so. O3."""
        return self._error if self._error is not None and self._error.unknown else None

    def _retry(self, error: RaftlineError) -> None:
        self._error = self._unknown() or error
        wait = RETRY_MS[min(self._attempts, len(RETRY_MS) - 1)]
        self._attempts += 1
        if self._router.clock.mono_ms() + wait >= self._deadline:
            self._give_up()
        else:
            self._router.clock.call_later(wait, self.attempt)

    def _give_up(self) -> None:
        error = self._error
        if error is None:
            error = TimedOut(self._router.directory.shard_name(self._shard), self._timeout_ms)
        self._done(error)
