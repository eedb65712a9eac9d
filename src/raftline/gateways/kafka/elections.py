"""ElectLeaders: leadership goes back to the replica that is named first, where another has it.

Raft elects, so there is nothing to be asked for where a partition has a leader that is the first of
its replicas, and nothing that could be elected without a majority. What is left is a transfer; the
reply waits until it is done, as long as its client lets it. Of partitions that have no replica here
it is asked who leads them (leader_looks.py), before and after: what is known of them is a guess.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from raftline.gateways.fan import Call, Fan
from raftline.gateways.kafka import schema_admin as schema
from raftline.gateways.kafka.dispatch import Context, Reply, Table
from raftline.gateways.kafka.errors import NONE, REQUEST_TIMED_OUT, missing_code
from raftline.gateways.kafka.leader_looks import LeaderLooks
from raftline.gateways.kafka.ports import KafkaCalls
from raftline.model.calls import PartitionRow, TopicRow
from raftline.model.errors import NoLeader, NotLeader, NotReady, RaftlineError, UnknownPartition
from raftline.model.limits import WAIT_MS_MAX
from raftline.node.ports import Clock

PREFERRED_LEADER_NOT_AVAILABLE = 80
ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
ELECTION_NOT_NEEDED = 84
PREFERRED = 0  # a type of election; the other one, 1, takes any replica that lives
LOOK_AGAIN_MS = 10

Fields = dict[str, Any]
Refusal = tuple[int, str]  # code, text
_DONE: Refusal = (NONE, "")
_NOT_NEEDED: Refusal = (ELECTION_NOT_NEEDED, "it has the leader it should have")
_NO_MAJORITY: Refusal = (ELIGIBLE_LEADERS_NOT_AVAILABLE, "no majority of its replicas is there")


class ElectionsApi:
    """Gives leadership back."""

    __slots__ = ("_calls", "_clock", "_looks")

    def __init__(self, clock: Clock, calls: KafkaCalls) -> None:
        self._clock = clock
        self._calls = calls
        self._looks = LeaderLooks(clock, calls)

    def add_to(self, table: Table) -> None:
        """Serve it."""
        table.add(schema.ELECT_LEADERS, 0, 2, self.elect)

    def elect(self, request: Fields, version: int, context: Context, reply: Reply) -> None:
        """Give partitions their preferred leaders; of all, tell only of those that changed."""
        asked: list[Fields] | None = request["topics"]
        topics = self._all() if asked is None else asked
        timeout_ms = min(max(request["timeout_ms"], 1), WAIT_MS_MAX)
        is_preferred = version == 0 or request["election_type"] == PREFERRED

        def elected(answers: list[Refusal]) -> None:
            left = iter(answers)
            told = [
                {**row, "partitions": [_row(number, next(left)) for number in row["partitions"]]}
                for row in topics
            ]
            if asked is None:
                told = _without(told, ELECTION_NOT_NEEDED)
            reply({"topics": told})

        def looked() -> None:
            silent = {row.id for row in self._calls.nodes_view().nodes if row.state == "silent"}
            calls: list[Call] = []
            for asked_of in topics:
                topic, found = asked_of["topic"], self._calls.find_topic(asked_of["topic"])
                for number in asked_of["partitions"]:
                    row = self._row(topic, number, found)
                    if isinstance(row, RaftlineError):
                        calls.append(_say((missing_code(row), row.message)))
                    elif is_preferred:
                        calls.append(self._preferring(topic, row, silent, timeout_ms, context))
                    else:
                        calls.append(_say(_NOT_NEEDED if row.leader else _NO_MAJORITY))
            Fan(calls, context.guarded(elected)).start()

        self._looks.look(dict.fromkeys(row["topic"] for row in topics), context, looked)

    def _all(self) -> list[Fields]:
        rows = [self._calls.find_topic(name) for name in self._calls.topic_names()]
        return [
            {"topic": row.name, "partitions": [part.partition for part in row.partitions]}
            for row in rows
            if row is not None
        ]

    def _preferring(
        self, topic: str, row: PartitionRow, silent: set[int], timeout_ms: int, context: Context
    ) -> Call:
        first = row.replicas[0]
        if row.leader == first:
            return _say(_NOT_NEEDED)
        if first in silent:  # the leader would take nothing while it waits for that one
            return _say((PREFERRED_LEADER_NOT_AVAILABLE, f"node {first} is not heard of"))
        number, until_ms = row.partition, self._clock.mono_ms() + timeout_ms
        arguments: dict[str, object] = {"topic": topic, "partition": number, "to_node": str(first)}

        def ask(take: Callable[[Any], None]) -> None:
            def begun(answer: dict[str, object] | RaftlineError) -> None:
                if isinstance(answer, RaftlineError):
                    take((PREFERRED_LEADER_NOT_AVAILABLE, answer.message))
                else:
                    self._await(topic, row, until_ms, context, take)

            self._calls.command("cluster.transfer", arguments, timeout_ms, context.guarded(begun))

        return ask

    def _row(self, topic: str, number: int, found: TopicRow | None) -> PartitionRow | RaftlineError:
        if found is None:
            return self._calls.unknown(topic)
        if not 0 <= number < len(found.partitions):
            return UnknownPartition(topic, number, len(found.partitions))
        return found.partitions[number]

    def _await(
        self,
        topic: str,
        row: PartitionRow,
        until_ms: float,
        context: Context,
        take: Callable[[Any], None],
    ) -> None:
        """Wait until the preferred leader leads."""
        first = row.replicas[0]
        leader = self._leader(topic, row.partition)
        if isinstance(leader, RaftlineError):
            take((missing_code(leader), leader.message))
        elif leader == first:
            take(_DONE)
        elif self._clock.mono_ms() > until_ms:
            take((REQUEST_TIMED_OUT, f"node {first} does not lead it yet"))
        else:
            again = context.guarded(lambda: self._await(topic, row, until_ms, context, take))
            if not row.term:  # no replica is here to say it
                places = [(topic, row.partition)]
                again = context.guarded(partial(self._looks.ask, places, context, again))
            self._clock.call_later(LOOK_AGAIN_MS, again)

    def _leader(self, topic: str, number: int) -> int | RaftlineError:
        """Return who leads one partition, 0 if nobody; whatever the number of the others."""
        led = self._calls.led_partition(topic, number)
        if isinstance(led, NotLeader):
            return int(led.extras["leader"])
        if isinstance(led, NoLeader | NotReady):
            return 0
        return led if isinstance(led, RaftlineError) else self._calls.nodes_view().node


def _say(answer: Refusal) -> Call:
    return lambda take: take(answer)


def _row(number: int, answer: Refusal) -> Fields:
    code, text = answer
    return {"partition": number, "error_code": code, "error_message": text or None}


def _without(topics: list[Fields], code: int) -> list[Fields]:
    """Leave out partitions with a code, and topics of which nothing is left."""
    kept = [
        {**row, "partitions": [part for part in row["partitions"] if part["error_code"] != code]}
        for row in topics
    ]
    return [row for row in kept if row["partitions"]]
