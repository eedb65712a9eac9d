"""Cursors of groups: OffsetCommit, OffsetFetch, OffsetDelete. With members and without."""

from collections.abc import Callable
from functools import partial
from typing import Any

from raftline.gateways.fan import Call, Fan
from raftline.gateways.kafka import groups_errors as ge
from raftline.gateways.kafka import schema_groups as schema
from raftline.gateways.kafka.dispatch import Context, Reply, Table
from raftline.gateways.kafka.errors import (
    INVALID_REQUEST,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
    missing_code,
    partition_code,
)
from raftline.gateways.kafka.ports import KafkaCalls
from raftline.gateways.places import Places as PlacesAsked
from raftline.model.errors import RaftlineError, UnknownGroup, UnknownMember
from raftline.model.groups import (
    CommitCursors,
    CursorsCommitted,
    CursorsFetched,
    DropCursors,
    FetchCursors,
    Offset,
    Offsets,
    Places,
)
from raftline.model.limits import CURSOR_TEXT_CHARS_MAX, OFFSET_MAX, TIMEOUT_MS_DEFAULT

MANY_GROUPS = 8  # the first version of OffsetFetch for several groups
NO_GENERATION = -1
EARLIEST = -2  # ends of the log by name; -1 is the latest

Fields = dict[str, Any]
Codes = dict[tuple[str, int], int]


class CursorsApi:
    """Moves, shows and forgets cursors."""

    __slots__ = ("_calls",)

    def __init__(self, calls: KafkaCalls) -> None:
        self._calls = calls

    def add_to(self, table: Table) -> None:
        """Serve them."""
        table.add(schema.OFFSET_COMMIT, 2, 9, self.commit)
        table.add(schema.OFFSET_FETCH, 1, 9, self.fetch)
        table.add(schema.OFFSET_DELETE, 0, 0, self.delete)

    # -- commit

    def commit(self, request: Fields, version: int, context: Context, reply: Reply) -> None:
        """Move cursors; what cannot be a cursor is refused by itself."""
        codes: Codes = {}
        offsets = self._offsets(request["topics"], codes)

        def answer(code: int) -> None:
            reply({"topics": _rows(request["topics"], codes, code)})

        def committed(wish: CommitCursors, result: object) -> None:
            if isinstance(result, UnknownGroup | UnknownMember) and _is_nobodys(wish):
                send(CommitCursors(wish.group, "", NO_GENERATION, offsets))
                return
            if isinstance(result, RaftlineError):
                unknown = isinstance(result, UnknownGroup)
                answer(ge.ILLEGAL_GENERATION if unknown else ge.member_code(result))
                return
            assert isinstance(result, CursorsCommitted), result
            for topic, partitions in result.refused.items():
                codes.update({(topic, p): ge.ILLEGAL_GENERATION for p in partitions})
            answer(NONE)

        def send(wish: CommitCursors) -> None:
            done = context.guarded(partial(committed, wish))
            self._calls.group_here(wish, TIMEOUT_MS_DEFAULT, done)

        def looked() -> None:
            if not offsets:
                answer(NONE)
                return
            send(
                CommitCursors(
                    request["group"],
                    request["member"],
                    request["generation"],
                    offsets,
                    request["instance"] or "",
                )
            )

        if not ge.is_group_name(request["group"]):
            answer(ge.INVALID_GROUP_ID)
        elif request["generation"] >= 0 and not request["member"]:
            answer(ge.UNKNOWN_MEMBER_ID)
        else:
            self._look_up(offsets, codes, context, looked)

    def _offsets(self, topics: list[Fields], codes: Codes) -> Offsets:
        offsets: Offsets = {}
        for topic in topics:
            count = self._calls.partition_count(topic["name"])
            for row in topic["partitions"]:
                place = (topic["name"], row["partition"])
                text: str = row["metadata"] or ""
                if not 0 <= row["partition"] < count:
                    codes[place] = UNKNOWN_TOPIC_OR_PARTITION
                elif len(text) > CURSOR_TEXT_CHARS_MAX:
                    codes[place] = ge.OFFSET_METADATA_TOO_LARGE
                elif not EARLIEST <= row["offset"] <= OFFSET_MAX:
                    codes[place] = INVALID_REQUEST
                else:
                    cursor = Offset(row["offset"], text, row["leader_epoch"])
                    offsets.setdefault(topic["name"], {})[row["partition"]] = cursor
        return offsets

    def _look_up(
        self, offsets: Offsets, codes: Codes, context: Context, then: Callable[[], None]
    ) -> None:
        """Put numbers for the names of the ends of the log, which some clients commit."""
        named = [
            (topic, partition, cursor)
            for topic, rows in offsets.items()
            for partition, cursor in rows.items()
            if cursor.offset < 0
        ]

        def looked(answers: list[Any]) -> None:
            for (topic, partition, cursor), found in zip(named, answers, strict=True):
                if isinstance(found, RaftlineError):
                    codes[(topic, partition)] = partition_code(found)
                    del offsets[topic][partition]
                else:
                    is_first = cursor.offset == EARLIEST and found.offset >= 0
                    offset = found.offset if is_first else found.commit_end
                    offsets[topic][partition] = Offset(offset, cursor.metadata, cursor.term)
            for topic in [name for name, rows in offsets.items() if not rows]:
                del offsets[topic]
            then()

        places = PlacesAsked(self._calls)
        calls = [places.looking((topic, p), 0, TIMEOUT_MS_DEFAULT) for topic, p, _ in named]
        Fan(calls, context.guarded(looked)).start()

    # -- fetch

    def fetch(self, request: Fields, version: int, context: Context, reply: Reply) -> None:
        """Show cursors of one group or several."""
        groups: list[Fields] = request["groups"]
        if version < MANY_GROUPS:
            groups = [{"group": request["group"], "topics": request["topics"]}]

        def fetched(answers: list[Any]) -> None:
            pairs = zip(groups, answers, strict=True)
            rows = [_fetched(group, answer, version) for group, answer in pairs]
            if version >= MANY_GROUPS:
                reply({"groups": rows})
            else:
                reply(rows[0])

        calls = [self._fetching(group) for group in groups]
        Fan(calls, context.guarded(fetched)).start()

    def _fetching(self, group: Fields) -> Call:
        places = None if group["topics"] is None else _places(group["topics"])
        wish = FetchCursors(group["group"], places)
        return lambda take: self._calls.group_here(wish, TIMEOUT_MS_DEFAULT, take)

    # -- delete

    def delete(self, request: Fields, version: int, context: Context, reply: Reply) -> None:
        """Forget cursors of partitions that no member reads; topics that are none are named."""
        topics: list[Fields] = [
            {"name": row["name"], "partitions": [p["partition"] for p in row["partitions"]]}
            for row in request["topics"]
        ]
        codes = self._unknown(topics)

        def deleted(result: object) -> None:
            if isinstance(result, RaftlineError):
                reply({"error_code": ge.admin_code(result, request["group"])})
                return
            assert isinstance(result, CursorsCommitted), result
            for topic, partitions in result.refused.items():
                codes.update({(topic, p): ge.GROUP_SUBSCRIBED_TO_TOPIC for p in partitions})
            reply({"topics": _rows(request["topics"], codes, NONE)})

        wish = DropCursors(request["group"], _places(topics))
        self._calls.group_here(wish, TIMEOUT_MS_DEFAULT, context.guarded(deleted))

    def _unknown(self, topics: list[Fields]) -> Codes:
        """Return partitions that are none, or of topics that we do not know yet."""
        codes: Codes = {}
        for row in topics:
            code, count = UNKNOWN_TOPIC_OR_PARTITION, self._calls.partition_count(row["name"])
            if not count:
                code = missing_code(self._calls.unknown(row["name"]))
            missing = [p for p in row["partitions"] if not 0 <= p < count]
            codes.update({(row["name"], partition): code for partition in missing})
        return codes


def _is_nobodys(wish: CommitCursors) -> bool:
    """Say whether a commit claims no generation, though its client has a name.

    It was a member once; where nobody is one now, it may commit as anybody may.
    """
    return wish.generation < 0 and bool(wish.member or wish.instance)


def _places(topics: list[Fields]) -> Places:
    places: Places = {}
    for row in topics:
        places.setdefault(row["name"], []).extend(row["partitions"])
    return places


def _rows(topics: list[Fields], codes: Codes, otherwise: int) -> list[Fields]:
    """Say of every partition that was named what became of it."""
    return [
        {
            "name": topic["name"],
            "partitions": [
                {
                    "partition": row["partition"],
                    "error_code": codes.get((topic["name"], row["partition"]), otherwise),
                }
                for row in topic["partitions"]
            ],
        }
        for topic in topics
    ]


def _fetched(group: Fields, answer: object, version: int) -> Fields:
    """Say where a group is; partitions without a cursor that were asked for are at -1.

    A refusal is said of every partition too, as long as a reply is about one group: aiokafka looks
    at nothing else, and would take no rows for no cursors, and begin where it likes.
    """
    code = NONE
    if isinstance(answer, RaftlineError):
        code = ge.cursors_code(answer, group["group"])
    offsets: Offsets = answer.offsets if isinstance(answer, CursorsFetched) else {}
    asked: list[Fields] | None = group["topics"]
    if asked is None:
        asked = [{"name": name, "partitions": list(rows)} for name, rows in offsets.items()]
    topics = [
        {
            "name": topic["name"],
            "partitions": [
                _cursor(partition, offsets.get(topic["name"], {}).get(partition), code)
                for partition in topic["partitions"]
            ],
        }
        for topic in asked
    ]
    if code and version >= MANY_GROUPS:
        topics = []
    return {"group": group["group"], "topics": topics, "error_code": code}


def _cursor(partition: int, cursor: Offset | None, code: int) -> Fields:
    if cursor is None:
        return {"partition": partition, "offset": -1, "metadata": "", "error_code": code}
    return {
        "partition": partition,
        "offset": cursor.offset,
        "leader_epoch": cursor.term,
        "metadata": cursor.metadata,
        "error_code": code,
    }
