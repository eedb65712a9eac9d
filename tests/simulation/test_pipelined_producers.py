"""Idempotent producers with five batches on their way, of plain and of taken-apart ones, in faults.

They do as Kafka's clients do: whatever is refused or unknown is sent again, in order and in the
same batches, to whoever leads then. Every message must be stored once, in order unless it waits.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest

from raftline.gateways.kafka.wishes import make_parcel
from raftline.gateways.wanted import NOTHING, Wanted
from raftline.machines.partition.side_car import hash_key
from raftline.model.batch import check_batch
from raftline.model.calls import Appended
from raftline.model.records import open_batch, seal_batch
from raftline.node.led import LedPartition
from raftline.node.node import Node
from raftline.testing import SimCluster, cluster

TOPIC = "orders"
INFLIGHT_MAX = 5  # as with Kafka's clients
SEEDS = 12
STEPS = 500
LOST_MS = 4_000  # then whoever was asked is taken for dead
BATCHES = 250


class Batch:
    """One batch of a producer, whatever became of it."""

    def __init__(self, producer: int, sequence: int, rows: list[tuple[bytes, Wanted]]) -> None:
        self.rows = rows
        self.data = seal_batch(
            [(None, value, (), 1000) for value, _ in rows],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
        )
        self.attempt = 0
        self.asked: str = ""  # the node it is with
        self.asked_ms = 0.0

    def send(self, place: LedPartition, done: Callable[[Any], None]) -> None:
        info = check_batch(self.data)
        wanted = [wish for _, wish in self.rows]
        if any(wish is not NOTHING for wish in wanted):
            place.send_parcel(make_parcel(info, open_batch(self.data), wanted), 3_000, done)
        else:
            place.append(self.data, info, 3_000, done)


class Producer:
    """Sends numbered batches to whoever leads, up to five at once."""

    def __init__(self, sim: SimCluster, number: int, rng: random.Random) -> None:
        self._sim = sim
        self._number = number
        self._rng = rng
        self._sequence = 0
        self._left: list[Batch] = []  # made and not acknowledged, in order
        self._is_draining = False  # something was refused: nothing new until all came back
        self.made: list[tuple[bytes, Wanted]] = []
        self.wrong: list[str] = []

    @property
    def is_done(self) -> bool:
        return not self._left

    def make(self) -> None:
        """Let one more batch be on its way."""
        rows: list[tuple[bytes, Wanted]] = []
        for _ in range(self._rng.randint(1, 4)):
            value = b"%d-%d" % (self._number, len(self.made) + len(rows))
            key = hash_key(value)
            wish = self._rng.choice(
                [
                    NOTHING,
                    NOTHING,
                    NOTHING,
                    Wanted(due_ms=-self._rng.randint(1, 300)),
                    Wanted(dedup_key=value, key_hash=key),
                    Wanted(due_ms=-50, dedup_key=value, key_hash=key),
                ]
            )
            rows.append((value, wish))
        self.made += rows
        self._left.append(Batch(self._number, self._sequence, rows))
        self._sequence += len(rows)

    def step(self) -> None:
        """Give up on who is silent; send what may be sent."""
        now_ms = self._sim.now_ms
        for batch in self._left:
            if batch.asked and now_ms - batch.asked_ms > LOST_MS:
                self._lost(batch)
        with_someone = [batch for batch in self._left if batch.asked]
        if self._is_draining and with_someone:
            return
        self._is_draining = False
        place, name = _leading(self._sim, self._rng)
        if place is None or any(batch.asked != name for batch in with_someone):
            return
        for batch in self._left[:INFLIGHT_MAX]:
            if not batch.asked and not self._is_draining:
                self._send(batch, place, name)

    def died(self, name: str) -> None:
        """Every connection to a node is gone."""
        for batch in self._left:
            if batch.asked == name:
                self._lost(batch)

    def _send(self, batch: Batch, place: LedPartition, name: str) -> None:
        batch.attempt += 1
        attempt = batch.attempt
        batch.asked, batch.asked_ms = name, self._sim.now_ms

        def done(answer: Any) -> None:
            if batch.attempt != attempt or not batch.asked:
                return  # nobody listens any more
            batch.asked = ""
            if isinstance(answer, Appended):
                self._left.remove(batch)
                return
            self._is_draining = True
            if answer.code not in ("not_leader", "out_of_order", "unknown_producer", "timed_out"):
                self.wrong.append(repr(answer))

        batch.send(place, done)

    def _lost(self, batch: Batch) -> None:
        batch.asked = ""
        self._is_draining = True


def _leading(sim: SimCluster, rng: random.Random) -> tuple[LedPartition | None, str]:
    """Return somebody who says that it leads: of several any, as old metadata would."""
    found: list[tuple[LedPartition, str]] = []
    for name in sim.running:
        program = sim.host(name).node
        if isinstance(program, Node):
            place = program.led_partition(TOPIC, 0)
            if isinstance(place, LedPartition):
                found.append((place, name))
    return rng.choice(found) if found else (None, "")


class Faults:
    """Hurts one node at a time."""

    def __init__(self, sim: SimCluster, producers: list[Producer], rng: random.Random) -> None:
        self._sim = sim
        self._producers = producers
        self._rng = rng
        self._mend: Callable[[], None] | None = None

    def step(self) -> None:
        if self._mend is not None:
            self.mend()
            return
        sim, rng = self._sim, self._rng
        _, leader = _leading(sim, rng)
        name = leader if leader and rng.random() < 0.8 else rng.choice(sim.nodes)
        match rng.choice(["kill", "power", "pause", "isolate", "transfer"]):
            case "kill":
                self._end(name, sim.kill)
            case "power":
                self._end(name, sim.power_off)
            case "pause":
                sim.pause(name)
                self._mend = lambda: sim.resume(name)
            case "isolate":
                sim.isolate(name)
                self._mend = sim.heal
            case _:
                self._transfer(leader)

    def mend(self) -> None:
        if self._mend is not None:
            self._mend()
            self._mend = None

    def _end(self, name: str, end: Callable[[str], None]) -> None:
        end(name)
        for producer in self._producers:
            producer.died(name)
        self._mend = lambda: self._sim.start(name)

    def _transfer(self, leader: str) -> None:
        program = self._sim.host(leader).node if leader else None
        if isinstance(program, Node):
            place = program.led_partition(TOPIC, 0)
            if isinstance(place, LedPartition):
                replica = place.replica
                others = [voter for voter in replica.conf.voters if voter != replica.id]
                replica.transfer(self._rng.choice(others))  # type: ignore[arg-type]


def check(sim: SimCluster, producers: list[Producer]) -> None:
    stored = [message.value or b"" for message in sim.read_all(TOPIC)]
    assert len(stored) == len(set(stored)), "something is there twice"
    for producer in producers:
        assert not producer.wrong
    made = [row for producer in producers for row in producer.made]
    assert sorted(stored) == sorted(value for value, _ in made)
    for producer in producers:
        at_once = [value for value, wish in producer.made if wish.due_ms >= 0]
        wanted = set(at_once)
        assert [value for value in stored if value in wanted] == at_once, "out of order"
    assert sim.verify().identical


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_message_is_stored_once_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    with cluster(nodes=3, seed=seed) as sim:
        sim.create_topic(TOPIC, partitions=1)
        producers = [Producer(sim, number, rng) for number in (5, 6)]
        faults = Faults(sim, producers, rng)
        for _ in range(STEPS):
            for producer in producers:
                if rng.random() < BATCHES / STEPS:
                    producer.make()
                producer.step()
            if rng.random() < 0.1:
                faults.step()
            sim.advance(rng.choice(["1ms", "2ms", "4ms", "200ms"]))
        faults.mend()
        sim.heal()

        def all_done() -> bool:
            for producer in producers:
                producer.step()
            return all(producer.is_done for producer in producers)

        sim.run_until(all_done, "60s")
        sim.advance("5s")  # until the last one that waited is there
        check(sim, producers)
