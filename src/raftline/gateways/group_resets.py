"""Resetting a group: where it goes on reading, or where it would (dry run)."""

from typing import TYPE_CHECKING, Any, cast

import msgspec

from raftline.gateways.fan import Fan
from raftline.gateways.group_reports import Tell, Told, first_fault
from raftline.gateways.places import Place, Places
from raftline.gateways.ports import Calls
from raftline.model.errors import (
    InvalidArgument,
    RaftlineError,
    UnknownGroup,
    UnknownPartition,
)
from raftline.model.groups import Answer, Done, GroupView, Offset, ResetGroup, ShowGroup
from raftline.model.names import check_group_name

if TYPE_CHECKING:
    from raftline.model.calls import Looked

EARLIEST, LATEST = "earliest", "latest"


class Target(msgspec.Struct, frozen=True):
    """Where a reset goes: an end of the log, an offset or a time."""

    end: str = ""  # EARLIEST or LATEST
    offset: int = -1
    time_ms: int = -1


class ResetWish(msgspec.Struct, frozen=True):
    """What is to be reset, and where to."""

    group: str
    topic: str
    target: Target
    partitions: list[int] | None = None  # None: all
    kind: str = "stream"  # "": work if it is no stream group, but a work group of this topic
    dry_run: bool = False
    is_new: bool = False  # a work group that is not there yet begins there


Plan = dict[Place, dict[str, int]]


class GroupResets:
    """Plans and carries out resets."""

    __slots__ = ("_calls", "_places")

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._places = Places(calls)

    def run(self, wish: ResetWish, timeout_ms: int, done: Tell) -> None:
        """Set where a group goes on. A group that is not there yet becomes a stream group."""
        check_group_name(wish.group)
        places = self._chosen(wish.topic, wish.partitions)
        if wish.kind:
            self._run(wish, places, timeout_ms, done)
        else:
            self._find_kind(wish, places, timeout_ms, done)

    def _run(self, wish: ResetWish, places: list[Place], timeout_ms: int, done: Tell) -> None:
        time_ms = wish.target.time_ms

        def bounded(answers: list[Any]) -> None:
            plan = _plan(places, answers, wish.target)
            if isinstance(plan, RaftlineError):
                done(plan)
            elif wish.kind == "work":
                self._reset_work(wish, plan, timeout_ms, done)
            else:
                self._reset_stream(wish, plan, timeout_ms, done)

        calls = [self._places.looking(place, 0, timeout_ms) for place in places]
        if time_ms >= 0:
            calls += [self._places.looking(place, time_ms, timeout_ms) for place in places]
        Fan(calls, bounded).start()

    def _find_kind(self, wish: ResetWish, places: list[Place], timeout_ms: int, done: Tell) -> None:
        """Find out what a group is of which nobody said it; then go on."""

        def go_on(kind: str) -> None:
            self._run(msgspec.structs.replace(wish, kind=kind), places, timeout_ms, done)

        def shown(answers: list[Any]) -> None:
            told = cast("list[Told]", answers)
            fault = first_fault(told)
            if any(not isinstance(answer, RaftlineError) for answer in told):
                go_on("work")
            elif fault is not None:
                done(fault)
            else:
                go_on("stream")

        def viewed(view: Answer | RaftlineError) -> None:
            if isinstance(view, RaftlineError) and not isinstance(view, UnknownGroup):
                done(view)
            elif isinstance(view, GroupView) and wish.topic in {p.topic for p in view.partitions}:
                go_on("stream")
            else:
                arguments: dict[str, object] = {"group": wish.group}
                calls = [
                    self._places.asking(place, "group.show", arguments, timeout_ms)
                    for place in places
                ]
                Fan(calls, shown).start()

        self._calls.group(ShowGroup(wish.group), timeout_ms, viewed)

    def _reset_stream(self, wish: ResetWish, plan: Plan, timeout_ms: int, done: Tell) -> None:
        def reset(answer: Answer | RaftlineError, before: dict[Place, int]) -> None:
            if isinstance(answer, RaftlineError):
                done(answer)
                return
            rows = [
                {"topic": place[0], "partition": place[1], "from": before.get(place, -1), **row}
                for place, row in plan.items()
            ]
            done(_body(wish, rows))

        def shown(view: Answer | RaftlineError) -> None:
            before: dict[Place, int] = {}
            if isinstance(view, GroupView):
                before = {(row.topic, row.partition): row.offset for row in view.partitions}
            elif not isinstance(view, UnknownGroup):
                reset(view, before)
                return
            if wish.dry_run:
                reset(Done(), before)
                return
            offsets: dict[str, dict[int, Offset]] = {}
            for (topic, partition), row in plan.items():
                offsets.setdefault(topic, {})[partition] = Offset(row["to"])
            request = ResetGroup(wish.group, offsets)
            self._calls.group(request, timeout_ms, lambda answer: reset(answer, before))

        self._calls.group(ShowGroup(wish.group), timeout_ms, shown)

    def _reset_work(self, wish: ResetWish, plan: Plan, timeout_ms: int, done: Tell) -> None:
        def reset(answers: list[Any]) -> None:
            told = cast("list[Told]", answers)
            fault = first_fault(told)
            rows = [
                {"topic": place[0], "partition": place[1], "from": answer["floor_before"], **row}
                for (place, row), answer in zip(plan.items(), told, strict=True)
                if not isinstance(answer, RaftlineError)
            ]
            if fault is not None:
                done(fault)
            else:
                done(_body(wish, rows) if rows else UnknownGroup(wish.group))

        calls = [
            self._places.asking(
                place,
                "group.reset",
                {
                    "group": wish.group,
                    "offset": row["to"],
                    "dry_run": wish.dry_run,
                    "open": wish.is_new,
                },
                timeout_ms,
            )
            for place, row in plan.items()
        ]
        Fan(calls, reset).start()

    def _chosen(self, topic: str, partitions: list[int] | None) -> list[Place]:
        places = self._places.of(topic)
        if partitions is None:
            return places
        if not partitions:
            raise InvalidArgument("there are no partitions", "leave them out for all")
        wrong = next((p for p in partitions if not 0 <= p < len(places)), None)
        if wrong is not None:
            raise UnknownPartition(topic, wrong, len(places))
        return [(topic, partition) for partition in sorted(set(partitions))]


def _body(wish: ResetWish, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"group": wish.group, "kind": wish.kind, "dry_run": wish.dry_run, "partitions": rows}


def _plan(places: list[Place], answers: list[Any], target: Target) -> Plan | RaftlineError:
    """Return where each partition goes, within what is kept."""
    fault = next((answer for answer in answers if isinstance(answer, RaftlineError)), None)
    if fault is not None:
        return fault
    plan: Plan = {}
    timed = answers[len(places) :]
    for at, place in enumerate(places):
        bounds: Looked = answers[at]
        end = bounds.commit_end
        start = end if bounds.offset < 0 else bounds.offset
        if target.end:
            to = start if target.end == EARLIEST else end
        elif target.time_ms >= 0:
            to = end if timed[at].offset < 0 else timed[at].offset
        else:
            to = max(start, min(target.offset, end))
        plan[place] = {"to": to, "log_start": start, "commit_end": end}
    return plan
