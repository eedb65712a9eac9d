"""Groups as people see them: both kinds together, and how far behind they are.

A stream group has its members and cursors in one place. A work group lives on each partition of its
topics by itself, so it is asked for partition by partition (``group.list``, ``group.show`` …).
"""

from collections.abc import Callable
from typing import Any, cast

import msgspec

from raftline.gateways.fan import Call, Fan
from raftline.gateways.places import Place, Places
from raftline.gateways.ports import Calls
from raftline.model.calls import Looked
from raftline.model.errors import RaftlineError, UnknownGroup
from raftline.model.groups import (
    Answer,
    CursorRow,
    DeleteGroup,
    GroupList,
    GroupView,
    ShowGroup,
)

Told = dict[str, Any] | RaftlineError
Tell = Callable[[Told], None]


class GroupReports:
    """Puts together what several shards know of a group."""

    __slots__ = ("_calls", "_places")

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._places = Places(calls)

    # ------------------------------------------------------------------ looking

    def list_all(self, topic: str, timeout_ms: int, done: Tell) -> None:
        """List groups of both kinds; those of one topic if one is named."""
        places = self._places.of(topic)

        def listed(answers: list[Any]) -> None:
            streams, rows = answers[0], cast("list[Told]", answers[1:])
            if isinstance(streams, RaftlineError):
                done(streams)
                return
            assert isinstance(streams, GroupList)
            found = [
                msgspec.to_builtins(row)
                for row in streams.groups
                if not topic or topic in row.topics
            ]
            done({"groups": found + _work_summaries(places, rows)})

        calls: list[Call] = [lambda take: self._calls.stream_groups(timeout_ms, take)]
        calls += [self._places.asking(place, "group.list", {}, timeout_ms) for place in places]
        Fan(calls, listed).start()

    def show(self, group: str, topic: str, timeout_ms: int, done: Tell) -> None:
        """Show a group: members and cursors with their lag; a work group per partition."""
        places = self._places.of(topic)

        def shown(answers: list[Any]) -> None:
            stream, rows = answers[0], cast("list[Told]", answers[1:])
            work = _by_topic(places, rows)
            if isinstance(stream, GroupView):
                self._with_lag(stream, work, timeout_ms, done)
            elif not isinstance(stream, UnknownGroup):
                done(stream)
            elif work:
                done({"group": group, "stream": None, "work": work})
            else:
                done(first_fault(rows) or stream)

        calls: list[Call] = [lambda take: self._calls.group(ShowGroup(group), timeout_ms, take)]
        arguments: dict[str, object] = {"group": group}
        calls += [
            self._places.asking(place, "group.show", arguments, timeout_ms) for place in places
        ]
        Fan(calls, shown).start()

    def _with_lag(self, view: GroupView, work: dict[str, Any], timeout_ms: int, done: Tell) -> None:
        places = [(row.topic, row.partition) for row in view.partitions]

        def looked(answers: list[Any]) -> None:
            rows = [
                _with_bounds(row, answer)
                for row, answer in zip(view.partitions, answers, strict=True)
            ]
            lags = [row["lag"] for row in rows]
            stream = msgspec.to_builtins(view)
            del stream["_"]
            stream["partitions"] = rows
            stream["lag"] = sum(lags) if None not in lags else None
            done({"group": view.group, "stream": stream, "work": work})

        Fan([self._places.looking(place, 0, timeout_ms) for place in places], looked).start()

    def delete(self, group: str, topic: str, timeout_ms: int, done: Tell) -> None:
        """Forget a group of either kind, on all topics or on one.

        The stream group first: who is refused because it has members keeps its work state, too.
        """
        places = self._places.of(topic)
        calls = [self._places.asking(p, "group.drop", {"group": group}, timeout_ms) for p in places]

        def deleted(stream: Answer | RaftlineError) -> None:
            def dropped(answers: list[Any]) -> None:
                rows = cast("list[Told]", answers)
                count = sum(not isinstance(row, RaftlineError) and row["dropped"] for row in rows)
                fault = first_fault(rows)
                if fault is not None:
                    done(fault)
                elif isinstance(stream, UnknownGroup) and not count:
                    done(stream)
                else:
                    done({"group": group, "deleted": True, "work_partitions": count})

            if isinstance(stream, RaftlineError) and not isinstance(stream, UnknownGroup):
                done(stream)
            else:
                Fan(calls, dropped).start()

        if topic:
            deleted(UnknownGroup(group))
        else:
            self._calls.group(DeleteGroup(group), timeout_ms, deleted)


def _with_bounds(row: CursorRow, answer: Looked | RaftlineError) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(row)
    shown.update(commit_end=None, lag=None)
    if isinstance(answer, Looked):
        start = answer.commit_end if answer.offset < 0 else answer.offset
        shown["commit_end"] = answer.commit_end
        shown["lag"] = max(0, answer.commit_end - max(start, row.offset))
    return shown


def _by_topic(places: list[Place], answers: list[Told]) -> dict[str, list[dict[str, Any]]]:
    work: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), answer in zip(places, answers, strict=True):
        if not isinstance(answer, RaftlineError):
            work.setdefault(topic, []).append({"partition": partition, **answer})
    return work


def _work_summaries(places: list[Place], answers: list[Told]) -> list[dict[str, Any]]:
    topics: dict[str, dict[str, int]] = {}  # group -> topic -> lag
    for (topic, _), answer in zip(places, answers, strict=True):
        rows: list[dict[str, Any]] = [] if isinstance(answer, RaftlineError) else answer["groups"]
        for row in rows:
            lags = topics.setdefault(row["group"], {})
            lags[topic] = lags.get(topic, 0) + row["lag"]
    return [
        {
            "group": group,
            "kind": "work",
            "topics": sorted(topics[group]),
            "lag": sum(topics[group].values()),
        }
        for group in sorted(topics)
    ]


def first_fault(answers: list[Told]) -> RaftlineError | None:
    """Return what went wrong, but for partitions that never heard of the group."""
    faults = [a for a in answers if isinstance(a, RaftlineError) and a.code != "unknown_group"]
    return faults[0] if faults else None
