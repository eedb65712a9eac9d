"""Clients that create and delete the same topics, for the linearizability of the catalog.

Looking a topic up is not part of it: every node answers that from its own copy, which may be a
moment behind.
"""

import random
import threading
import time
from collections import defaultdict

from raftline.chaos.crowd import join_all
from raftline.chaos.linear import FOREVER_MS, Change, is_linearizable
from raftline.chaos.rig import Rig, mono_ms
from raftline.client.client import Client
from raftline.model.errors import NotFound, RaftlineError, TopicExists
from raftline.testing.checker import Violation

CLIENTS = 2
PAUSE_S = 0.3
CALLS_MAX = 60  # of one name: then the next name, because the search grows quickly
CALL_MS = 5_000
JOIN_S_MAX = 30.0


class CatalogTraffic:
    """The load, and its verdict."""

    def __init__(self, rig: Rig, *, seed: int = 1) -> None:
        self._rig = rig
        self._seed = seed
        self._over = threading.Event()
        self._lock = threading.Lock()
        self.changes: dict[str, list[Change]] = defaultdict(list)
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True)
            for number in range(CLIENTS)
        ]
        rig.at_close.append(self._end)

    def start(self) -> "CatalogTraffic":
        """Let all begin."""
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """End the load."""
        self._over.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(JOIN_S_MAX)

    def hush(self) -> None:
        """Tell all to end; returns at once."""
        self._over.set()

    def _end(self) -> None:
        """Let the clients of a run that failed end."""
        self.hush()
        join_all(self._threads)

    def judge(self) -> list[Violation]:
        """Return the names whose calls no order explains."""
        return [
            Violation("P2", "no order of calls on the catalog explains the answers", name)
            for name, changes in self.changes.items()
            if not is_linearizable(changes)
        ]

    def _run(self, number: int) -> None:
        rng = random.Random(self._seed * 10 + number)
        calls = 0
        while not self._over.is_set():
            name = f"chaos-name-{calls // CALLS_MAX}"
            calls += 1
            what = rng.choice(("create", "delete"))
            node = rng.choice(self._rig.founders)
            began_ms = mono_ms()
            told, known = self._call(node, what, name)
            ended_ms = mono_ms() if known else FOREVER_MS
            change = Change(what, began_ms, ended_ms, told, name, node)
            with self._lock:
                self.changes[name].append(change)
            time.sleep(PAUSE_S * rng.random() * 2)

    def _call(self, node: str, what: str, name: str) -> tuple[bool | None, bool]:
        """Return what was told, and whether anything was."""
        with Client(self._rig.node(node).http, timeout_ms=CALL_MS) as client:
            try:
                if what == "create":
                    client.create_topic(name, partitions=1, replication_factor=0, settings={})
                else:
                    client.delete_topic(name)
            except (NotFound, TopicExists):
                return False, True
            except RaftlineError:
                return None, False
        return True, True
