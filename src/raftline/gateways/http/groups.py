"""Groups over HTTP: members of stream groups, their cursors and polls; all groups, seen."""

from typing import Any

import msgspec

from raftline.config.moments import parse_moment_ms
from raftline.gateways.group_reports import GroupReports
from raftline.gateways.group_resets import EARLIEST, LATEST, GroupResets, ResetWish, Target
from raftline.gateways.http.answers import (
    CommitAnswer,
    GroupAnswer,
    GroupDeleted,
    GroupsAnswer,
    LeaveAnswer,
    MemberAnswer,
    OffsetsOfGroup,
    ResetAnswer,
)
from raftline.gateways.http.connection import Exchange
from raftline.gateways.http.fields import Int
from raftline.gateways.http.items import ReadItem, fill_item
from raftline.gateways.http.routes import Request, Router
from raftline.gateways.http.topics import decode
from raftline.gateways.polls import Poll, PolledMessages, PollWish
from raftline.gateways.ports import Calls
from raftline.model.errors import FencedMember, InvalidArgument
from raftline.model.groups import (
    Beat,
    CommitCursors,
    CursorsCommitted,
    Done,
    GroupView,
    JoinGroup,
    LeaveGroup,
    MemberView,
    Offset,
    Places,
    ShowGroup,
)
from raftline.model.limits import (
    OFFSET_MAX,
    READ_BYTES_DEFAULT,
    REVOKE_MS_DEFAULT,
    SESSION_MS_DEFAULT,
    WAIT_MS_MAX,
)
from raftline.node.ports import Clock

LIMIT_DEFAULT, LIMIT_MAX = 100, 10_000
GENERATION_MAX = (1 << 62) - 1


class JoinBody(msgspec.Struct, forbid_unknown_fields=True):
    """What a member says when it joins."""

    topics: list[str]
    client_id: str = ""
    member_id: str = ""
    assignor: str = ""
    session_timeout_ms: Int = SESSION_MS_DEFAULT
    rebalance_timeout_ms: Int = REVOKE_MS_DEFAULT


class BeatBody(msgspec.Struct, forbid_unknown_fields=True):
    """A heartbeat; ``revoked`` is what the member has given up."""

    member_id: str
    generation: Int
    revoked: dict[str, list[Int]] = {}


class LeaveBody(msgspec.Struct, forbid_unknown_fields=True):
    """Leaving; without a generation it is somebody's order."""

    member_id: str
    generation: Int = -1


class CursorBody(msgspec.Struct, forbid_unknown_fields=True):
    """A cursor with a note."""

    offset: Int
    metadata: str = ""


class CommitBody(msgspec.Struct, forbid_unknown_fields=True):
    """Cursors to move; without a member only where the group has none."""

    offsets: dict[str, dict[Int, Int | CursorBody]]
    member_id: str = ""
    generation: Int = 0


class ResetBody(msgspec.Struct, forbid_unknown_fields=True):
    """Where a group goes on; one of ``to`` (earliest, latest), ``offset`` and ``time``."""

    topic: str
    to: str | int | None = None
    offset: int | None = None
    time: str | int | None = None
    partitions: list[Int] | None = None
    dry_run: bool = False
    kind: str = ""  # stream or work; left out: what the group is
    create: bool = False  # a work group that is not there yet (a stream group always is made)


class GroupItem(ReadItem):
    """One message as a member of a group reads it."""

    topic: str = ""
    partition: int = 0


class PollAnswer(MemberAnswer):
    """The same, and what was read."""

    messages: list[GroupItem]
    next_offsets: dict[str, dict[int, int]]
    poll: int


class GroupRoutes:
    """The routes under ``/v1/groups``."""

    __slots__ = ("_calls", "_clock", "_reply_bytes_max", "_reports", "_resets")

    def __init__(self, clock: Clock, calls: Calls, *, reply_bytes_max: int) -> None:
        self._clock = clock
        self._calls = calls
        self._reply_bytes_max = reply_bytes_max
        self._reports = GroupReports(calls)
        self._resets = GroupResets(calls)

    def add_to(self, router: Router) -> None:
        """Add the routes."""
        add, one = router.add, "/v1/groups/{group}"
        add("GET", "/v1/groups", self.list, query="topic", answer=GroupsAnswer)
        add("GET", one, self.show, query="topic", answer=GroupAnswer)
        add("DELETE", one, self.delete, query="topic", answer=GroupDeleted)
        add("POST", f"{one}/join", self.join, body=JoinBody, answer=MemberAnswer)
        add("POST", f"{one}/heartbeat", self.heartbeat, body=BeatBody, answer=MemberAnswer)
        add("POST", f"{one}/leave", self.leave, body=LeaveBody, answer=LeaveAnswer)
        query = "member_id generation limit wait_ms bytes_max poll"
        add("GET", f"{one}/poll", self.poll, query=query, answer=PollAnswer, is_taking=True)
        add("POST", f"{one}/offsets", self.commit, body=CommitBody, answer=CommitAnswer)
        add("GET", f"{one}/offsets", self.offsets, answer=OffsetsOfGroup)
        add("POST", f"{one}/reset", self.reset, body=ResetBody, answer=ResetAnswer)

    # ------------------------------------------------------------------ members

    def join(self, exchange: Exchange, request: Request) -> None:
        """Become a member."""
        body = decode(request.body, JoinBody, '{"topics": ["orders"], "client_id": "app-1"}')
        wanted = JoinGroup(
            request.params["group"],
            tuple(body.topics),
            body.member_id,
            body.client_id,
            "",
            body.assignor,
            body.session_timeout_ms,
            body.rebalance_timeout_ms,
        )
        answer = exchange.then(lambda view: exchange.json(_member(view)))
        self._calls.group(wanted, request.timeout_ms, answer)

    def heartbeat(self, exchange: Exchange, request: Request) -> None:
        """Say that a member lives; hear what it has, and what it is to give up."""
        example = '{"member_id": "app-1-7f", "generation": 3, "revoked": {"orders": [2]}}'
        body = decode(request.body, BeatBody, example)
        beat = Beat(request.params["group"], body.member_id, body.generation, body.revoked)
        answer = exchange.then(lambda view: exchange.json(_member(view)))
        self._calls.group(beat, request.timeout_ms, answer)

    def leave(self, exchange: Exchange, request: Request) -> None:
        """Stop being a member."""
        body = decode(request.body, LeaveBody, '{"member_id": "app-1-7f", "generation": 3}')
        wanted = LeaveGroup(request.params["group"], body.member_id, body.generation)

        def left(done: Done) -> None:
            exchange.json({"member_id": body.member_id, "generation": done.generation})

        self._calls.group(wanted, request.timeout_ms, exchange.then(left))

    def poll(self, exchange: Exchange, request: Request) -> None:
        """Read on in the member's partitions; counts as a heartbeat."""
        member = request.query.get("member_id", "")
        if not member or "generation" not in request.query:
            raise InvalidArgument("a poll names member_id and generation", "join answers both")
        bytes_max = min(READ_BYTES_DEFAULT, self._reply_bytes_max)
        wish = PollWish(
            request.params["group"],
            member,
            request.number("generation", 0, 0, GENERATION_MAX),
            request.number("poll", -1, 0, GENERATION_MAX),
            request.number("limit", LIMIT_DEFAULT, 1, LIMIT_MAX),
            request.number("bytes_max", bytes_max, 1, self._reply_bytes_max),
            request.number("wait_ms", 0, 0, WAIT_MS_MAX),
        )
        exchange.weigh(wish.bytes_max)

        def answer(polled: PolledMessages) -> None:
            messages: list[GroupItem] = []
            for topic, partition, message in polled.messages:
                item = fill_item(GroupItem, topic, partition, message)
                item.topic, item.partition = topic, partition
                messages.append(item)
            exchange.json(
                {
                    **_member(polled.view),
                    "messages": messages,
                    "next_offsets": polled.positions,
                    "poll": polled.number,
                }
            )

        Poll(
            self._clock,
            self._calls,
            wish,
            request.timeout_ms,
            exchange.then(answer),
            is_wanted=exchange.is_wanted,
        ).start()

    # ------------------------------------------------------------------ cursors

    def commit(self, exchange: Exchange, request: Request) -> None:
        """Move cursors."""
        example = '{"member_id": "app-1-7f", "generation": 3, "offsets": {"orders": {"0": 17}}}'
        body = decode(request.body, CommitBody, example)
        group = request.params["group"]
        offsets = {
            topic: {partition: _offset(row) for partition, row in rows.items()}
            for topic, rows in body.offsets.items()
        }
        wanted = CommitCursors(group, body.member_id, body.generation, offsets)

        def committed(done: CursorsCommitted) -> None:
            if done.refused and not done.count:
                why = f"it does not read {_written(done.refused)}"
                raise FencedMember(group, body.member_id, body.generation, -1, why)
            exchange.json({"committed": done.count, "refused": done.refused})

        self._calls.group(wanted, request.timeout_ms, exchange.then(committed))

    def offsets(self, exchange: Exchange, request: Request) -> None:
        """Show the cursors of a stream group."""

        def shown(view: GroupView) -> None:
            offsets: dict[str, dict[int, Any]] = {}
            for row in view.partitions:
                if row.offset >= 0:
                    cursor = {
                        "offset": row.offset,
                        "metadata": row.metadata,
                        "committed_ms": row.at_ms,
                    }
                    offsets.setdefault(row.topic, {})[row.partition] = cursor
            exchange.json({"group": view.group, "offsets": offsets})

        wanted = ShowGroup(request.params["group"])
        self._calls.group(wanted, request.timeout_ms, exchange.then(shown))

    def reset(self, exchange: Exchange, request: Request) -> None:
        """Set where a group goes on, or say where it would."""
        example = '{"topic": "orders", "to": "earliest", "dry_run": true}'
        body = decode(request.body, ResetBody, example)
        if body.kind not in ("", "stream", "work"):
            raise InvalidArgument(f"there is no kind {body.kind[:40]!r}", "stream or work")
        wish = ResetWish(
            request.params["group"],
            body.topic,
            _target(body),
            body.partitions,
            body.kind,
            body.dry_run,
            body.create,
        )
        self._resets.run(wish, request.timeout_ms, exchange.then(exchange.json))

    # ------------------------------------------------------------------ looking

    def list(self, exchange: Exchange, request: Request) -> None:
        """List groups of both kinds."""
        topic = request.query.get("topic", "")
        self._reports.list_all(topic, request.timeout_ms, exchange.then(exchange.json))

    def show(self, exchange: Exchange, request: Request) -> None:
        """Show one group of either kind, or of both."""
        topic = request.query.get("topic", "")
        group = request.params["group"]
        self._reports.show(group, topic, request.timeout_ms, exchange.then(exchange.json))

    def delete(self, exchange: Exchange, request: Request) -> None:
        """Forget a group: its cursors, and its work state on all topics or on one."""
        topic = request.query.get("topic", "")
        group = request.params["group"]
        self._reports.delete(group, topic, request.timeout_ms, exchange.then(exchange.json))


def _member(view: MemberView) -> dict[str, Any]:
    return {
        "member_id": view.member,
        "generation": view.generation,
        "state": view.state,
        "partitions": view.partitions,
        "revoke": view.revoke,
        "members": view.members,
    }


def _offset(row: int | CursorBody) -> Offset:
    return Offset(row) if isinstance(row, int) else Offset(row.offset, row.metadata)


def _target(body: ResetBody) -> Target:
    """Return where to. Raises InvalidArgument."""
    given = [value for value in (body.to, body.offset, body.time) if value is not None]
    hint = 'one of "to": "earliest" or "latest", "offset": 17, "time": "2026-01-31T12:00:00Z"'
    if len(given) != 1:
        raise InvalidArgument("a reset goes to one place", hint)
    if body.to in (EARLIEST, LATEST):
        return Target(end=str(body.to))
    moment = body.to if isinstance(body.to, str) else body.time
    if moment is not None:
        return Target(time_ms=parse_moment_ms("time", moment))
    offset = body.to if body.offset is None else body.offset
    assert isinstance(offset, int)
    if not 0 <= offset <= OFFSET_MAX:
        raise InvalidArgument(f"offset {offset} is out of bounds", hint)
    return Target(offset=offset)


def _written(places: Places) -> str:
    return ", ".join(f"{topic}/{p}" for topic, rows in places.items() for p in rows)
