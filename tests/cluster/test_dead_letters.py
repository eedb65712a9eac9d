"""Poison messages with real processes: once in the dead-letter topic, and back from there."""

import contextlib
import http.client
import json
from typing import Any

from raftline.chaos.rig import Rig, wait_for
from raftline.chaos.traffic import Caller
from tests.cluster.conftest import MakeRig

T = "/v1/topics/orders"
Row = dict[str, Any]


class Worker:
    """Calls through whichever node answers."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._caller = Caller(rig)
        rig.at_close.append(self._caller.close)

    def call(self, method: str, path: str, body: Row | None = None) -> Row:
        """Return the answer of the first node that has one; a refusal is tried elsewhere."""
        data = None if body is None else json.dumps(body).encode()
        found: list[Row] = []
        told: list[str] = []

        def attempt() -> bool:
            for name in self._rig.running():
                with contextlib.suppress(OSError, http.client.HTTPException):
                    answer = self._caller.call(name, method, path, data, timeout_ms=4_000)
                    if answer.status < 300:
                        found.append(json.loads(answer.body))
                        return True
                    told.append(f"{answer.status} {answer.body!r}")
            return False

        wait_for(attempt, 20, lambda: f"{method} {path}: {told[-3:]}")
        return found[0]

    def publish(self, *values: str) -> None:
        messages = [{"value": v, "key": v, "headers": {"trace": "t1"}} for v in values]
        rows = self.call("POST", f"{T}/messages", {"messages": messages})["results"]
        assert all(row["error"] is None for row in rows), rows

    def receive(self, wait: str = "3s") -> list[Row]:
        body = {"count": 50, "wait": wait, "lease": "20s", "member": "w-1"}
        return self.call("POST", f"{T}/groups/workers/receive", body)["messages"]

    def settle(self, verb: str, message: Row, **more: Any) -> None:
        self.call("POST", f"/v1/messages/{verb}", {"lease_token": message["lease_token"], **more})

    def letters(self, query: str = "") -> list[Row]:
        return self.call("GET", f"{T}/dlq{query}")["letters"]

    def stored(self) -> int:
        """Return how many messages the dead-letter topic ever took, listed or not."""
        return self.call("GET", "/v1/topics/orders.dlq/partitions/0/offsets")["commit_end"]


def leader(rig: Rig, topic: str) -> str | None:
    said = rig.command("topic", "show", topic, "--json")
    if said.exit:
        return None
    number = said.json()["partitions"][0]["leader"]
    return rig.name_of(number) if number else None


def orders(rig: Rig, *settings: str) -> Worker:
    sets = [word for setting in settings for word in ("--set", setting)]
    said = rig.command("topic", "create", "orders", "--partitions", "1", *sets)
    assert said.exit == 0, said
    return Worker(rig)


def test_the_fourth_failure_lands_once_and_a_redrive_brings_it_back(make_rig: MakeRig) -> None:
    rig = make_rig()
    worker = orders(rig)
    worker.publish("good", "poison", "fine")
    for attempt in range(1, 5):
        got = worker.receive()
        while attempt == 1 and len(got) < 3:
            got += worker.receive()
        for message in got:
            if message["value"] == "poison":
                assert (message["offset"], message["attempt"]) == (1, attempt)
                worker.settle("nack", message, delay=0, reason="no such customer")
            else:
                worker.settle("ack", message)
        assert attempt == 4 or worker.letters() == []
    wait_for(lambda: len(worker.letters()) == 1, 10)
    (letter,) = worker.letters("?reason=MAX_RETRIES&group=workers&key=poison")
    assert (letter["value"], letter["key"], letter["headers"]) == (
        "poison",
        "poison",
        {"trace": "t1"},
    )
    assert letter["origin"] == {
        "id": "orders.0.1",
        "topic": "orders",
        "partition": 0,
        "offset": 1,
    }
    assert (letter["state"], letter["attempts"], letter["generation"]) == ("dead", 4, 0)
    assert (letter["member"], letter["error"]) == ("w-1", "no such customer")
    assert letter["first_ms"] <= letter["last_ms"] <= letter["dead_ms"]
    raw = worker.call("GET", "/v1/topics/orders.dlq/partitions/0/messages")["messages"][0]
    assert raw["headers"]["raftline-origin"] == "orders/0@1"
    assert raw["headers"]["raftline-reason"] == "MAX_RETRIES"
    envelope = worker.call("GET", f"{T}/dlq/{letter['id']}?form=envelope")
    assert (envelope["original_offset"], envelope["delivery_attempts"]) == (1, 4)
    assert worker.receive("0s") == []

    tried = worker.call("POST", f"{T}/dlq/redrive", {"all": True, "dry_run": True})
    assert (tried["matched"], tried["redriven"]) == (1, 1)
    done = worker.call("POST", f"{T}/dlq/redrive", {"ids": [letter["id"]]})
    assert (done["matched"], done["redriven"], done["skipped"]) == (1, 1, [])
    (again,) = worker.receive()
    assert (again["offset"], again["attempt"], again["value"]) == (1, 1, "poison")
    worker.settle("ack", again)
    assert [row["state"] for row in worker.letters()] == ["redriven"]
    purged = worker.call("POST", f"{T}/dlq/purge", {"all": True})
    assert purged["purged"] == 1
    assert worker.letters() == []
    assert worker.stored() == 1
    assert rig.verify().exit == 0


def test_leaders_die_while_letters_are_on_their_way(make_rig: MakeRig) -> None:
    rig = make_rig()
    worker = orders(rig)
    count = 40
    worker.publish(*[f"m{n}" for n in range(count)])
    done: set[int] = set()
    victims = ["orders", "orders.dlq", "orders"]

    def work() -> bool:
        for message in worker.receive("1s"):
            offset = message["offset"]
            with contextlib.suppress(AssertionError):
                worker.settle("reject" if offset % 4 == 0 else "ack", message)
                done.add(offset)
            if len(done) % 12 == 11 and victims:
                victim = leader(rig, victims.pop(0))
                if victim is not None:
                    rig.kill(victim)
                    rig.restart(victim)
        return len(done) == count

    wait_for(work, 60, lambda: f"{sorted(done)}")
    poison = [n for n in range(count) if n % 4 == 0]
    wait_for(lambda: len(worker.letters()) >= len(poison), 20)
    assert sorted(row["origin"]["offset"] for row in worker.letters()) == poison
    assert worker.stored() == len(poison)
    assert rig.verify().exit == 0


def test_a_dead_letter_topic_that_is_away_stops_nothing(make_rig: MakeRig) -> None:
    rig = make_rig()
    worker = orders(rig)
    said = rig.command(
        "topic", "create", "orders.dlq", "--partitions", "1", "--replication-factor", "1"
    )
    assert said.exit == 0, said
    home = leader(rig, "orders.dlq")
    assert home is not None
    rig.kill(home)
    worker.publish("bad", "good")
    got: list[Row] = []
    while len(got) < 2:
        got += worker.receive()
    for message in got:
        worker.settle("reject" if message["value"] == "bad" else "ack", message, reason="no")
    for n in range(5):
        worker.publish(f"more {n}")
        (message,) = worker.receive()
        worker.settle("ack", message)
    rig.restart(home)
    wait_for(lambda: len(worker.letters()) == 1, 20)
    assert worker.letters()[0]["value"] == "bad"
    assert worker.stored() == 1
