"""Clients of a cluster under test, what they saw, and the verdict.

Producers with a producer id repeat a batch after "unknown" and "refused" alike, with the same
sequence, until it is stored: nothing may be doubled. Producers without one send every batch once.
Readers read anywhere through any node. Every call goes into a ``History``; in the end everything
is read back through every node and ``raftline.testing.checker`` judges, as it does in simulation.
"""

import http.client
import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from raftline.chaos.crowd import join_all
from raftline.chaos.rig import ChaosProblem, Rig, mono_ms, wait_for
from raftline.model.errors import TimedOut
from raftline.testing.batches import seal
from raftline.testing.checker import Verdict, check
from raftline.testing.history import BODY_FROM, Final, History, Op, Producer, ReplicaLog, Run

BATCH = "application/vnd.raftline.batch"
CALL_MS = 3_000
# Between the node's end of a call and ours lie two cores shared by everything on the machine.
SLACK_MS = 1_500
SOCKET_S = (CALL_MS + 2 * SLACK_MS) / 1000
LONG_POLL_MS = 300
OUTAGE_MS_MAX = 10_000
LEVEL_S_MAX = 25.0
JOIN_S_MAX = 30.0
Role = Callable[[random.Random, str, "Caller"], None]
TEXTS = "chaos-notes"  # single messages as JSON; all other topics take batches


class Answer:
    """An HTTP answer."""

    def __init__(self, status: int, fields: Any, body: bytes) -> None:
        self.status = status
        self.fields = fields
        self.body = body

    def json(self) -> Any:
        """Return the body, read as JSON."""
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, str]:
        """Return the error of an answer that is one."""
        return self.json()["error"] if self.status >= 400 else {}


class Caller:
    """One thread's connections, one for each node."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._connections: dict[str, http.client.HTTPConnection] = {}

    def call(
        self,
        name: str,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        timeout_ms: int = CALL_MS,
        fields: Mapping[str, str] = {},
    ) -> Answer:
        """Make one call. Raises OSError or HTTPException where there is no answer."""
        connection = self._connections.get(name)
        if connection is None:
            address = self._rig.node(name).http.removeprefix("http://")
            connection = http.client.HTTPConnection(address, timeout=SOCKET_S)
            connection.connect()
            self._connections[name] = connection
        headers = {"Raftline-Timeout-Ms": str(timeout_ms), **fields}
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        except (OSError, http.client.HTTPException):
            self.close(name)
            raise

    def close(self, *names: str) -> None:
        """Hang up on these nodes, or on all."""
        for name in names or tuple(self._connections):
            connection = self._connections.pop(name, None)
            if connection is not None:
                connection.close()


class Judgement(msgspec.Struct, frozen=True):
    """What became of the promises under load and faults."""

    verdict: Verdict
    out_of_service: tuple[str, ...]
    outage_ms: float  # the longest time in which a partition acknowledged nothing
    recovery_ms: float  # from the end of the faults until every partition took a write

    def __str__(self) -> str:
        return (
            f"{self.verdict}\n  longest outage {self.outage_ms:.0f} ms, "
            f"recovery {self.recovery_ms:.0f} ms"
        )


class Traffic:
    """Load on a cluster, and the judgement over what came of it."""

    def __init__(
        self,
        rig: Rig,
        *,
        topic: str = "orders",
        partitions: int = 2,
        producers: int = 2,
        plain: int = 1,
        texts: int = 1,
        readers: int = 1,
        batch: int = 5,
        value_bytes: int = 60,
        pause_s: float = 0.01,
        seed: int = 1,
        stubborn: bool = False,
    ) -> None:
        self._stubborn = stubborn
        self.rig = rig
        self.topic = topic
        self.partitions = partitions
        self.batch = batch
        self.value_bytes = value_bytes
        self.pause_s = pause_s
        self.history = History()
        self.problems: list[str] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._seed = seed
        self._boot_ms = 0.0
        self._began_ms = wall_ms()
        self._names = tuple(rig.names)
        roles: list[Role] = [
            *([self._produce] * producers),
            *([self._produce_plain] * plain),
            *([self._produce_text] * texts),
            *([self._read] * readers),
        ]
        self._threads = [
            threading.Thread(target=self._guard, args=(role, i), daemon=True)
            for i, role in enumerate(roles)
        ]
        rig.at_close.append(self._end)
        with rig.client() as client:
            client.create_topic(topic, partitions=partitions, replication_factor=0, settings={})
            if texts:
                client.create_topic(TEXTS, partitions=1, replication_factor=0, settings={})
        self.places = [(topic, p) for p in range(partitions)] + ([(TEXTS, 0)] if texts else [])

    # ------------------------------------------------------------------ load

    def start(self) -> "Traffic":
        """Let all clients begin."""
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """End the load; every client ends within the timeout of its call."""
        self._over.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(JOIN_S_MAX)
                if thread.is_alive():
                    raise ChaosProblem("a client waits beyond every timeout")
        if self.problems:
            raise ChaosProblem(f"clients failed: {self.problems}")

    def hush(self) -> None:
        """Tell all clients to end; returns at once."""
        self._over.set()

    def _end(self) -> None:
        """Let the clients of a run that failed end."""
        self.hush()
        join_all(self._threads)

    def wait_acked(self, count: int, seconds: float = 15.0) -> None:
        """Return once this many more appends were acknowledged."""
        goal = self.acked() + count
        wait_for(
            lambda: self.acked() >= goal,
            seconds,
            lambda: f"{goal - self.acked()} of {count} acks missing; last: {self._last_errors()}",
        )

    def acked(self) -> int:
        """Count acknowledged appends."""
        return sum(1 for op in self._ops() if op.kind == "append" and op.outcome == "ok")

    def _last_errors(self) -> list[str]:
        return [op.error for op in self._ops() if op.error][-3:]

    def _ops(self) -> list[Op]:
        with self._lock:
            return list(self.history.ops)

    def _guard(self, role: Role, number: int) -> None:
        rng = random.Random(self._seed * 1000 + number)
        caller = Caller(self.rig)
        try:
            role(rng, f"{self._seed}.{number}", caller)
        except Exception as error:  # noqa: BLE001
            self.problems.append(f"client {number}: {error!r}")
        finally:
            caller.close()

    def _pick(self, rng: random.Random) -> str:
        """Choose a node: any, but rarely one that is down, unless the clients are stubborn."""
        name = rng.choice(self._names)
        for _ in range(0 if self._stubborn else 2):
            if self.rig.is_down(name):
                name = rng.choice(self._names)
        return name

    def _values(self, who: str, number: int, count: int) -> list[bytes]:
        return [f"{who}/{number}/{i} ".encode().ljust(self.value_bytes, b".") for i in range(count)]

    def _produce(self, rng: random.Random, who: str, caller: Caller) -> None:
        """Send sequenced batches, each until it is stored."""
        producer, epoch = self._new_producer(caller, rng)
        sequences = [0] * self.partitions
        number = 0
        while not self._over.is_set():
            partition = rng.randrange(self.partitions)
            number += 1
            sequence = sequences[partition]
            batch = seal(
                self._values(who, number, self.batch),
                [wall_ms()] * self.batch,
                producer_id=producer,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
            sender = Producer(producer, epoch, sequence)
            tries = 0
            while True:
                op = self.append(caller, self._pick(rng), partition, batch, sender)
                if op.outcome == "ok":
                    sequences[partition] += self.batch
                    break
                tries += 1
                if self._over.is_set() and tries > 3:
                    return
                time.sleep(0.05)
            time.sleep(self.pause_s)

    def _new_producer(self, caller: Caller, rng: random.Random) -> tuple[int, int]:
        while True:
            try:
                answer = caller.call(self._pick(rng), "POST", "/v1/producers")
                if answer.status == 200:
                    reply = answer.json()
                    return reply["producer_id"], reply["epoch"]
            except (OSError, http.client.HTTPException):
                pass
            if self._over.is_set():
                raise ChaosProblem("no producer id until the end")
            time.sleep(0.1)

    def _produce_plain(self, rng: random.Random, who: str, caller: Caller) -> None:
        """Send batches without a sequence, each once."""
        number = 0
        while not self._over.is_set():
            number += 1
            batch = seal(self._values(who, number, self.batch), [wall_ms()] * self.batch)
            partition = rng.randrange(self.partitions)
            self.append(caller, self._pick(rng), partition, batch, None)
            time.sleep(self.pause_s)

    def append(
        self, caller: Caller, name: str, partition: int, batch: bytes, producer: Producer | None
    ) -> Op:
        """Send one batch once."""
        op = self._invoke("append", name, self.topic, partition)
        with self._lock:
            op.ident = self.history.sent(batch[BODY_FROM:])
        op.count = int.from_bytes(batch[57:61], "big")
        op.timestamps_ms = (int.from_bytes(batch[27:35], "big"),) * op.count  # all the same here
        op.producer = producer

        def taken(answer: Answer) -> None:
            row = answer.json()["results"][0]
            op.offset, op.duplicate = row["base_offset"], row["duplicate"]

        path = f"/v1/topics/{self.topic}/partitions/{partition}/messages"
        self._call(caller, op, taken, "POST", path, batch, fields={"Content-Type": BATCH})
        return op

    def bulk(self, messages: int, batch: int, value_bytes: int = 100) -> None:
        """Append many messages to the first partition, in large batches, one after another."""
        caller = Caller(self.rig)
        self.rig.at_close.append(caller.close)
        names = [name for name in self._names if not self.rig.is_down(name)]
        values = [f"{i:0{value_bytes}}".encode() for i in range(batch)]
        for number in range(messages // batch):
            values[0] = f"bulk {number} ".encode().ljust(value_bytes, b".")
            sealed = seal(values, [wall_ms()] * batch)
            op = self.append(caller, names[number % len(names)], 0, sealed, None)
            if op.outcome != "ok":
                raise ChaosProblem(f"{self.topic}/0: {op.error}")

    def _produce_text(self, rng: random.Random, who: str, caller: Caller) -> None:
        """Send single messages as JSON, each once."""
        number = 0
        while not self._over.is_set():
            number += 1
            self._append_text(caller, self._pick(rng), f"text {who} {number}")
            time.sleep(self.pause_s)

    def _append_text(self, caller: Caller, name: str, value: str) -> Op:
        op = self._invoke("append", name, TEXTS, 0)
        with self._lock:
            op.ident = self.history.sent(value.encode())
        op.count = 1

        def taken(answer: Answer) -> None:
            op.offset = answer.json()["results"][0]["offset"]

        body = json.dumps({"messages": [{"value": value}]}).encode()
        self._call(caller, op, taken, "POST", f"/v1/topics/{TEXTS}/messages", body)
        return op

    def _read(self, rng: random.Random, who: str, caller: Caller) -> None:
        """Read anywhere, wait at the end, look up times, through any node."""
        del who
        ends = [0] * self.partitions
        while not self._over.is_set():
            partition = rng.randrange(self.partitions)
            if rng.random() < 0.2:
                op = self._look_up(rng, caller, partition)
            else:
                op = self._read_some(rng, caller, partition, ends[partition])
            ends[partition] = max(ends[partition], op.commit_end)
            time.sleep(self.pause_s * 2)

    def _read_some(self, rng: random.Random, caller: Caller, partition: int, end: int) -> Op:
        op = self._invoke("read", self._pick(rng), self.topic, partition)
        op.offset = rng.choice([0, rng.randrange(end + 1), end])
        op.linearizable = rng.random() < 0.3
        wait_ms = rng.choice([0, 0, LONG_POLL_MS])
        op.timeout_ms += wait_ms

        def taken(answer: Answer) -> None:
            with self._lock:
                op.runs = self.history.runs_of(answer.body)
            op.log_start = int(answer.fields["Raftline-Log-Start"])
            op.commit_end = int(answer.fields["Raftline-Commit-End"])

        query = f"offset={op.offset}&bytes_max=20000&wait_ms={wait_ms}"
        query += "&linearizable=true" if op.linearizable else ""
        path = f"/v1/topics/{self.topic}/partitions/{partition}/messages?{query}"
        self._call(caller, op, taken, "GET", path, None, fields={"Accept": BATCH})
        return op

    def _look_up(self, rng: random.Random, caller: Caller, partition: int) -> Op:
        """Ask for the first message since some moment of this run, or since the future."""
        op = self._invoke("lookup", self._pick(rng), self.topic, partition)
        op.time_ms = rng.randrange(self._began_ms - 1000, wall_ms() + 1000)

        def taken(answer: Answer) -> None:
            reply = answer.json()
            op.offset, op.commit_end = reply["offset"], reply["commit_end"]

        path = f"/v1/topics/{self.topic}/partitions/{partition}/offsets?time={op.time_ms}"
        self._call(caller, op, taken, "GET", path, None)
        return op

    def _invoke(self, kind: str, name: str, topic: str, partition: int) -> Op:
        with self._lock:
            return self.history.invoke(kind, mono_ms(), name, topic, partition, CALL_MS + SLACK_MS)

    def _call(
        self,
        caller: Caller,
        op: Op,
        taken: Callable[[Answer], None],
        method: str,
        path: str,
        body: bytes | None,
        *,
        fields: Mapping[str, str] = {},
    ) -> None:
        """Make a call and note what came of it."""
        outcome, error = "ok", ""
        try:
            answer = caller.call(op.node, method, path, body, fields=fields)
        except ConnectionRefusedError:
            outcome, error, op.excused = "refused", "connection_refused: nobody listens", True
        except (OSError, http.client.HTTPException) as problem:
            outcome, error = "unknown", f"connection_lost: {problem!r}"
        else:
            if answer.status == 200:
                taken(answer)
            else:
                code = answer.error["code"]
                outcome = "unknown" if code == TimedOut.code else "refused"
                error = f"{code}: {answer.error['message']}"
        op.excused = op.excused or self.rig.was_disturbed(op.node, op.invoked_ms)
        with self._lock:
            self.history.end(op, mono_ms(), outcome, error)

    # ------------------------------------------------------------------ judgement

    def finish(
        self, *, allowed_bugs: tuple[str, ...] = (), outage_ms_max: int = OUTAGE_MS_MAX
    ) -> str:
        """Judge, and raise unless every promise was kept. Returns a summary."""
        judged = self.judge(allowed_bugs=allowed_bugs)
        if not judged.verdict.clean or judged.out_of_service or judged.outage_ms >= outage_ms_max:
            raise ChaosProblem(f"{judged}\n  out of service: {judged.out_of_service}")
        return str(judged)

    def judge(self, *, allowed_bugs: tuple[str, ...] = ()) -> "Judgement":
        """After the faults: stop, let it heal, read everything back, check the promises."""
        self._names = tuple(self.rig.running())  # nodes that are gone for good are not asked
        healed_ms = mono_ms()
        recovery_ms = self._calm_writes(healed_ms)
        self.stop()
        ends = self.wait_level()
        verified = self.rig.verify()
        final = Final(
            replicas={
                f"{topic}/{p}": tuple(
                    self._read_back(name, topic, p, ends[(topic, p)])
                    for name in self.rig.running()
                    if self._holds(name, topic, p)
                )
                for topic, p in self.places
            },
            verify="" if verified.exit == 0 else repr(verified),
            out_of_service=self._quarantined(),
            boot_ms=self._boot_ms,
            recovery_ms=recovery_ms,
            bugs=tuple(bug for bug in self.bugs() if not any(w in bug for w in allowed_bugs)),
        )
        return Judgement(
            verdict=check(self.history, final),
            out_of_service=final.out_of_service,
            outage_ms=self.outage_ms(),
            recovery_ms=recovery_ms,
        )

    def _calm_writes(self, since_ms: float) -> float:
        """Write to every partition through every node; return the time until all took one."""
        caller = Caller(self.rig)
        self.rig.at_close.append(caller.close)
        names = self.rig.running()
        number = 0
        for topic, partition in self.places:
            while True:
                number += 1
                op = self._calm_write(caller, names[0], topic, partition, number)
                if op.outcome == "ok":
                    break
                if mono_ms() - since_ms > 3 * OUTAGE_MS_MAX:
                    raise ChaosProblem(f"{topic}/{partition} takes no writes: {op.error}")
                time.sleep(0.1)
        took_ms = mono_ms() - since_ms
        for name in names:
            for topic, partition in self.places:
                number += 1
                op = self._calm_write(caller, name, topic, partition, number)
                op.calm = True
        caller.close()
        return took_ms

    def _calm_write(self, caller: Caller, name: str, topic: str, partition: int, number: int) -> Op:
        if topic == TEXTS:
            return self._append_text(caller, name, f"calm {self._seed} {number}")
        batch = seal([f"calm {self._seed} {number}".encode()], [wall_ms()])
        return self.append(caller, name, partition, batch, None)

    def wait_level(self) -> dict[tuple[str, int], int]:
        """Wait until every replica has everything; return the ends."""
        ends: dict[tuple[str, int], int] = {}
        with self.rig.client() as client:
            for topic, p in self.places:
                ends[(topic, p)] = client.look_up_time(topic, p, 1 << 50)[1]

        def behind() -> list[str]:
            found: list[str] = []
            for name in self.rig.running():
                with self.rig.client(name) as client:
                    for topic in dict.fromkeys(topic for topic, _ in self.places):
                        for row in client.topic(topic)["partitions"]:
                            holds = self.rig.number(name) in row["replicas"]
                            end = ends.get((topic, row["partition"]), 0)
                            if holds and row["commit_end"] < end:
                                found.append(f"{topic}/{row['partition']} on {name}: {row} < {end}")
            return found

        wait_for(lambda: not behind(), LEVEL_S_MAX, lambda: f"behind: {behind()}", 0.2)
        return ends

    def _holds(self, name: str, topic: str, partition: int) -> bool:
        with self.rig.client(name) as client:
            replicas = client.topic(topic)["partitions"][partition]["replicas"]
        return self.rig.number(name) in replicas

    def _read_back(self, name: str, topic: str, partition: int, end: int) -> ReplicaLog:
        """Read one replica from its start to its end, from that node's own bytes."""
        caller = Caller(self.rig)
        self.rig.at_close.append(caller.close)
        path = f"/v1/topics/{topic}/partitions/{partition}"
        bounds = caller.call(name, "GET", f"{path}/offsets").json()
        start = offset = bounds["log_start"]
        runs: list[Run] = []
        while offset < end:
            query = f"{path}/messages?offset={offset}&any_replica=true&limit=10000"
            if topic == TEXTS:
                reply = self._asked(caller, name, query).json()
                rows = reply["messages"]
                runs += [(m["offset"], 1, self.history.ident_of(m["value"].encode())) for m in rows]
            else:
                reply = self._asked(caller, name, query, fields={"Accept": BATCH})
                runs += self.history.runs_of(reply.body)
            reached = runs[-1][0] + runs[-1][1] if runs else 0
            if reached <= offset:
                raise ChaosProblem(f"{topic}/{partition}@{offset} of {end}: nothing from {name}")
            offset = reached
        caller.close()
        return ReplicaLog(name, start, max(offset, start), tuple(runs))

    @staticmethod
    def _asked(caller: Caller, name: str, path: str, *, fields: Mapping[str, str] = {}) -> Answer:
        answer = caller.call(name, "GET", path, fields=fields)
        if answer.status != 200:
            raise ChaosProblem(f"{name} {path}: {answer.status} {answer.body!r}")
        return answer

    def _quarantined(self) -> tuple[str, ...]:
        return tuple(
            text for name in self.rig.running() for text in self.rig.status(name)["quarantined"]
        )

    def bugs(self) -> tuple[str, ...]:
        """Return what the nodes' logs say of our own mistakes."""
        words = ("loop.bug", "Traceback", "node.failed")
        return tuple(
            f"{name}: {line[:3000]}"
            for name in self.rig.names
            for line in self.rig.log_text(name).splitlines()
            if any(word in line for word in words)
        )

    def outage_ms(self) -> float:
        """Return the longest time in which a partition acknowledged nothing, under load."""
        return max((end - start for _, start, end in self.outages()), default=0.0)

    def outages(self) -> list[tuple[str, float, float]]:
        """Return where and from when to when nothing was acknowledged, the longest first."""
        ends: dict[str, list[float]] = {}
        for op in self._ops():
            if (op.kind, op.outcome) == ("append", "ok"):
                ends.setdefault(f"{op.topic}/{op.partition}", []).append(op.ended_ms)
        gaps = [
            (place, before, after)
            for place, times in ends.items()
            for before, after in itertools.pairwise(sorted(times))
        ]
        return sorted(gaps, key=lambda gap: gap[1] - gap[2])


def wall_ms() -> int:
    """Return the time of day."""
    return time.time_ns() // 1_000_000
