"""A worker as anybody would write one: receives, works, acks every message by itself.

    python worker_process.py '{"ports": [8080, 8081], "topic": "jobs", "log": "w-1.log", ...}'

Plain sockets, nothing of Raftline. It stays with a node until that fails, then goes to the next.
Two forms: *tokens* (JSON, one request an ack) and *ranges* (stored batches; the acks of a receive
are ranges of one message each in one request). What it does is written to its log, one line each,
so that nothing is lost when it is killed::

    got <time> <partition> <offset> <attempt>      received
    did <time> <partition> <offset> <attempt>      worked on
    ok | lost | unknown, the same                  what became of the ack
"""

import http.client
import json
import os
import sys
import time
from typing import Any

SOCKET_S = 15.0
CALL_MS = 8_000
WAIT_MS = 1_000
BATCH = "application/vnd.raftline.batch"
Place = tuple[int, int, int]  # partition, offset, attempt


class Worker:
    """One worker."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.ports: list[int] = spec["ports"]
        self.at = spec.get("first", 0) % len(self.ports)
        self.line: http.client.HTTPConnection | None = None
        self.log = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def run(self) -> None:
        """Work until killed."""
        work = self.by_token if self.spec["form"] == "tokens" else self.by_range
        while True:
            work()

    def by_token(self) -> None:
        """Receive some as JSON; ack one after the other."""
        answer = self.receive({})
        if answer is None:
            return
        rows = json.loads(answer[2])["messages"]
        places = [(row["partition"], row["offset"], row["attempt"]) for row in rows]
        self.note("got", *places)
        for row, place in zip(rows, places, strict=True):
            self.work(place)
            self.ack("/v1/messages/ack", {"lease_token": row["lease_token"]}, [place])

    def by_range(self) -> None:
        """Receive some as stored batches; ack all of them, each as a range of its own."""
        answer = self.receive({"Accept": BATCH})
        if answer is None or not answer[1]["Raftline-Spans"]:
            return
        partition = int(answer[1]["Raftline-Partition"])
        term, sequence = map(int, answer[1]["Raftline-Lease"].split("."))
        numbers = [int(text) for text in answer[1]["Raftline-Spans"].split(",")]
        spans = [tuple(numbers[at : at + 4]) for at in range(0, len(numbers), 4)]
        for start, end, attempt, _ in spans:
            self.note("got", *[(partition, offset, attempt) for offset in range(start, end)])
        for start, end, attempt, generation in spans:
            places = [(partition, offset, attempt) for offset in range(start, end)]
            for place in places:
                self.work(place)
            ranges = [edge for offset in range(start, end) for edge in (offset, offset + 1)]
            topic, group = self.spec["topic"], self.spec["group"]
            path = f"/v1/topics/{topic}/partitions/{partition}/groups/{group}/settle"
            settle = ["ack", term, sequence, attempt, generation, ranges]
            self.ack(path, {"settles": [settle]}, places)

    def work(self, place: Place) -> None:
        """Do what the message asks for."""
        time.sleep(self.spec["work_s"])
        self.note("did", place)

    def receive(self, fields: dict[str, str]) -> tuple[int, Any, bytes] | None:
        """Receive; None: try again."""
        body = {
            "count": self.spec["count"],
            "wait": WAIT_MS,
            "lease": self.spec["lease_ms"],
            "member": self.spec["member"],
        }
        path = f"/v1/topics/{self.spec['topic']}/groups/{self.spec['group']}/receive"
        answer = self.call(path, body, fields)
        if answer is None or answer[0] != 200:
            self.move_on()
            return None
        return answer

    def ack(self, path: str, body: dict[str, Any], places: list[Place]) -> None:
        """Ack until something is known; ``unknown`` if it was after an answer had got lost."""
        is_sure = True
        for _ in range(40):
            answer = self.call(path, body, {})
            if answer is not None and answer[0] in (200, 409):
                lost = self.lost_of(answer, places)
                self.note("ok", *[place for place in places if place not in lost])
                self.note("lost" if is_sure else "unknown", *lost)
                return
            if answer is None or answer[0] == 504:
                is_sure = False
            self.move_on()
        self.note("unknown", *places)

    def lost_of(self, answer: tuple[int, Any, bytes], places: list[Place]) -> list[Place]:
        if answer[0] == 409:
            return places
        ranges = [edge for lost in json.loads(answer[2]).get("lost", []) for edge in lost]
        pairs = list(zip(ranges[::2], ranges[1::2], strict=True))
        return [p for p in places if any(start <= p[1] < end for start, end in pairs)]

    def call(
        self, path: str, body: dict[str, Any], fields: dict[str, str]
    ) -> tuple[int, Any, bytes] | None:
        """Post; None: no answer."""
        try:
            if self.line is None:
                port = self.ports[self.at]
                self.line = http.client.HTTPConnection("127.0.0.1", port, timeout=SOCKET_S)
            timed = f"{path}?timeout_ms={CALL_MS}"
            self.line.request("POST", timed, json.dumps(body), fields)
            reply = self.line.getresponse()
            return reply.status, reply.headers, reply.read()
        except (OSError, http.client.HTTPException):
            return None

    def move_on(self) -> None:
        """Go to the next node."""
        if self.line is not None:
            self.line.close()
        self.line = None
        self.at = (self.at + 1) % len(self.ports)
        time.sleep(0.05)

    def note(self, what: str, *places: Place) -> None:
        """Write down what happened; a file's bytes outlive their process."""
        now = time.monotonic()
        lines = [f"{what} {now:.6f} {p} {o} {a}\n" for p, o, a in places]
        os.write(self.log, "".join(lines).encode())


if __name__ == "__main__":
    Worker(json.loads(sys.argv[1])).run()
