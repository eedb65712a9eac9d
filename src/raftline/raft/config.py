"""What a replica is told when it starts."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from raftline.raft.rpc import LOCAL_APPLY, NO_LIMIT

Say = Callable[[str, str], None]  # level, text


class Rng(Protocol):
    """Seeded chance."""

    def randrange(self, start: int, stop: int, /) -> int:
        """Return a number in ``[start, stop)``."""
        ...


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one replica. A limit of 0 bytes means no limit, where not said otherwise."""

    id: int
    rng: Rng
    election_ticks: int = 10  # patience of a follower; the real one is random, up to twice that
    heartbeat_ticks: int = 1
    applied: int = 0  # where the machine already stands
    async_storage_writes: bool = False
    message_bytes_max: int = NO_LIMIT  # of entries per append; one entry always goes
    committed_bytes_max: int = 0  # of entries handed out and not applied; 0: message_bytes_max
    uncommitted_bytes_max: int = 0  # of data not applied yet; beyond it proposals are dropped
    inflight_max: int = 256  # appends not answered, per replica
    inflight_bytes_max: int = 0
    check_quorum: bool = False
    pre_vote: bool = False
    read_only_lease_based: bool = False
    proposal_forwarding_disabled: bool = False
    conf_change_validation_disabled: bool = False
    step_down_on_removal: bool = False
    commit_rides: bool = False  # tell a new commit mark with the next append, or flush_commit()
    heartbeats_ride: bool = False  # an append since the last heartbeat stands for the next one
    own_vote_first: bool = False  # lead a term only when term and vote are durable here as well
    logger: Say | None = None

    def problems(self) -> list[str]:
        """Return everything that is wrong with the settings."""
        found: list[str] = []
        if not 0 < self.id < LOCAL_APPLY:
            found.append(f"id {self.id} is reserved")
        if self.heartbeat_ticks < 1:
            found.append("heartbeat_ticks must be at least 1")
        if self.election_ticks <= self.heartbeat_ticks:
            found.append("election_ticks must exceed heartbeat_ticks")
        if self.inflight_max < 1:
            found.append("inflight_max must be at least 1")
        if 0 < self.inflight_bytes_max < self.message_bytes_max:
            found.append("inflight_bytes_max must hold one append of message_bytes_max")
        if self.read_only_lease_based and not self.check_quorum:
            found.append("read_only_lease_based needs check_quorum")
        return found
