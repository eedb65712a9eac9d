"""Messages with a story, for the tests of jobs: some are acked, some retried, some given up on."""

import json
from typing import Any

from raftline.chaos.rig import wait_for
from raftline.client.caller import Caller
from raftline.client.line import Line

GROUP = "billing"
CURRENCIES = ("EUR", "USD", "GBP")


def fill(line: Line, servers: str, topic: str, count: int = 30) -> list[dict[str, Any]]:
    """Publish orders; the group acks them, but for each tenth, which it rejects at last.

    Every fifth is nacked once before. Returns the orders.
    """
    orders = [
        {"id": number, "total": number * 10, "currency": CURRENCIES[number % 3]}
        for number in range(count)
    ]
    for order in orders:
        line.send(
            topic,
            json.dumps(order),
            key=f"c{order['id'] % 4}",
            headers={"source": "web" if order["id"] % 2 else "app"},
        )
    line.flush()
    nacked: set[int] = set()
    settled = 0
    while settled < count:
        got = line.receive_many(topic, group=GROUP, count=100, wait="2s", lease="20s", member="w1")
        assert got, f"{settled} of {count} are settled"
        for message in got:
            number = json.loads(message.value or b"")["id"]
            if number % 5 == 0 and number not in nacked:
                nacked.add(number)
                message.nack("card declined", delay="10ms", wait=True)
                continue
            if number % 10 == 0:
                message.reject("no such customer", wait=True)
            else:
                message.ack(wait=True)
            settled += 1
    wait_for_letters(servers, topic, count // 10)
    return orders


def wait_for_letters(servers: str, topic: str, count: int) -> None:
    """Wait until so many dead letters are in their topic."""
    with Caller(servers) as caller:

        def look() -> bool:
            path = f"/v1/topics/{topic}/dlq"
            return len(caller.call("GET", path, query={"limit": 1000})["letters"]) >= count

        wait_for(look, 20, lambda: f"{topic} has fewer than {count} dead letters")


def assert_other_jobs(told: dict[str, Any], count: int) -> None:
    """Compare what ``cluster_script.py`` says of its later jobs with what ``fill`` made."""
    letters = range(0, count, 10)
    changed = sum(CURRENCIES[number % 3] == "EUR" for number in letters)
    totals = {(row["topic"], row["group"]): row for row in told["report"]["totals"]}
    (total,) = (row for (_, group), row in totals.items() if group == GROUP)
    assert (total["acked"], total["dead"]) == (count - len(letters), len(letters))
    done = told["redrive"]
    assert done["matched"] == len(letters)
    assert (done["transformed"], done["redriven"]) == (changed, len(letters) - changed)
    assert told["optimize"]["topics"] == [told["restore"]["topic"]]
    assert told["restore"]["messages"] == count + changed  # those were appended to the topic
