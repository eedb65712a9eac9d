"""How long writes stop when the leader's process dies."""

import socket
import time
from pathlib import Path

from bench.appends import check_end
from bench.cluster import BenchCluster, http_port, running
from bench.figures import Figure, under
from bench.load import LoadSpec, encode_request
from raftline.server.local_cluster import LocalNode

TOPIC = "failover"
LIMIT_S = 20.0
SECTION = "failover: kill -9 of the leader to the next acked append"


def failover(work: Path, *, quick: bool) -> list[Figure]:
    """Kill leaders one after the other; the killed one comes back before the next."""
    kills = 1 if quick else 20
    outages: list[float] = []
    with running(work / "failover", 3) as cluster:
        cluster.create(TOPIC)
        for _ in range(kills):
            outages.append(_kill_once(cluster))
            cluster.start()
        check_end(cluster)
    outages.sort()
    note = " ".join(f"{value:.2f}" for value in outages)
    return [
        Figure(
            section=SECTION,
            name=f"p50 of {kills}",
            value=outages[len(outages) // 2],
            unit="s",
            goal=under(0.5),
            note=note,
        ),
        Figure(section=SECTION, name="max", value=outages[-1], unit="s", goal=under(2.0)),
    ]


def _kill_once(cluster: BenchCluster) -> float:
    """Write for a moment, kill the leader, return the seconds until a survivor acks again."""
    leader = cluster.leader_of(TOPIC)
    others = cluster.followers_of(leader)
    writers = [Writer(node) for node in others]
    until = time.perf_counter() + 0.3
    while time.perf_counter() < until:
        if not writers[0].append(1.0):
            raise SystemExit("an append was refused before the kill")
    begun = time.perf_counter()
    cluster.kill(leader)
    at = 0
    while True:
        if writers[at].append(LIMIT_S):
            break
        if time.perf_counter() - begun > LIMIT_S:
            raise SystemExit(f"no append was acknowledged within {LIMIT_S:.0f} s of a kill")
        at = (at + 1) % len(writers)
    took = time.perf_counter() - begun
    for writer in writers:
        writer.close()
    return took


class Writer:
    """One connection that appends and waits."""

    def __init__(self, node: LocalNode) -> None:
        self._port = http_port(node)
        self._request, _ = encode_request(LoadSpec(port=self._port, topic=TOPIC))
        self._sock = socket.create_connection(("127.0.0.1", self._port))

    def append(self, timeout_s: float) -> bool:
        """Append once; say whether it was acknowledged."""
        self._sock.settimeout(timeout_s)
        self._sock.sendall(self._request)
        reply = b""
        while b"\r\n\r\n" not in reply or not reply.endswith(b"}"):
            more = self._sock.recv(65_536)
            if not more:
                return False
            reply += more
        return reply.startswith(b"HTTP/1.1 200")

    def close(self) -> None:
        self._sock.close()
