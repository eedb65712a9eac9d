"""A network of our own: each node in a network namespace, every packet through here.

State
    For each node a namespace with one TUN device and an address in ``198.18.x.0/24`` (the range
    that is set aside for tests); one more device in the namespace of the run, for its clients.
    The switch reads packets from all devices and passes them on by their destination.

Faults hold for a pair of nodes and a direction: *cut* drops everything, *slow* delays, *disturb*
loses, doubles and delays single packets by chance. Unlike ``wires``, which pass bytes of
connections on, this is what a bad network does: TCP notices late, or not at all.

The switch is a process of its own (``servant``), so that packets do not wait for the run's threads.
Needs root, ``ip`` and ``/dev/net/tun``.
"""

import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from raftline.chaos.servant import Orders, Servant

DEVICE = "/dev/net/tun"
MTU = 9_000
HOST = 254  # the run's own end
LATE_MAX = 20_000  # packets under way
_TUNSETIFF = 0x400454CA
_TUN, _NO_HEAD = 0x0001, 0x1000
_REQUEST = struct.Struct("16sH22x")

Rule = tuple[float, float, float, float]  # loss, doubled, delayed (chances), delay in seconds


def why_not() -> str:
    """Say why there is no such network here; empty if there is."""
    if not Path(DEVICE).exists():
        return f"there is no {DEVICE}"
    if os.geteuid():
        return "network namespaces are made by root only"
    missing = [tool for tool in ("ip", "nsenter") if not shutil.which(tool)]
    return f"{missing[0]} is not installed" if missing else ""


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(done.returncode, f"ip {' '.join(words)}: {done.stderr.strip()}")


def _new_device(name: str) -> int:
    fd = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    fcntl.ioctl(fd, _TUNSETIFF, _REQUEST.pack(name.encode(), _TUN | _NO_HEAD))
    return fd


class Packets:
    """The devices, and what becomes of each packet."""

    def __init__(self, tag: str, net: int, count: int, seed: int) -> None:
        self._tag = tag
        self._rng = random.Random(seed)
        self._rules: dict[tuple[int, int], Rule] = {}
        self._late: list[tuple[float, int, int, bytes]] = []
        self._number = 0
        self.counts = {"packets": 0, "dropped": 0, "doubled": 0, "delayed": 0}
        self.devices: dict[int, int] = {}  # last number of the address: fd
        self._made: list[str] = []
        try:
            for end in (HOST, *range(1, count + 1)):
                self._open(end, net)
        except OSError:
            self.close()
            raise

    def _open(self, end: int, net: int) -> None:
        device = f"{self._tag}-{end}"
        self.devices[end] = _new_device(device)
        where: tuple[str, ...] = ()
        if end != HOST:
            _ip("netns", "add", device)
            self._made.append(device)
            _ip("link", "set", device, "netns", device)
            where = ("-netns", device)
            _ip(*where, "link", "set", "lo", "up")
        _ip(*where, "addr", "add", f"198.18.{net}.{end}/24", "dev", device)
        _ip(*where, "link", "set", device, "mtu", str(MTU), "up")

    def close(self) -> None:
        """Take all devices and namespaces away."""
        for fd in self.devices.values():
            os.close(fd)
        for name in self._made:
            _ip("netns", "del", name)

    def take(self, fd: int) -> None:
        """Pass on what has come by a device."""
        for _ in range(64):
            try:
                packet = os.read(fd, 65_536)
            except BlockingIOError:
                return
            if len(packet) < 20 or packet[0] >> 4 != 4:
                continue  # not IPv4: nobody here speaks anything else
            self.counts["packets"] += 1
            rule = self._rules.get((packet[15], packet[19]))
            if rule is None:
                self._give(packet[19], packet)
            else:
                self._treat(packet, rule)

    def _treat(self, packet: bytes, rule: Rule) -> None:
        loss, doubled, delayed, delay_s = rule
        if self._rng.random() < loss:
            self.counts["dropped"] += 1
            return
        times = 1
        if self._rng.random() < doubled:
            self.counts["doubled"] += 1
            times = 2
        for _ in range(times):
            if self._rng.random() < delayed and len(self._late) < LATE_MAX:
                self.counts["delayed"] += 1
                self._number += 1
                due = time.monotonic() + delay_s
                heapq.heappush(self._late, (due, self._number, packet[19], packet))
            else:
                self._give(packet[19], packet)

    def _give(self, end: int, packet: bytes) -> None:
        fd = self.devices.get(end)
        if fd is not None:
            try:
                os.write(fd, packet)
            except OSError:
                self.counts["dropped"] += 1  # the device is full or down

    def give_late(self) -> float | None:
        """Pass on what is due; return the milliseconds until the next one."""
        while self._late:
            wait_s = self._late[0][0] - time.monotonic()
            if wait_s > 0:
                return wait_s * 1000 + 0.5
            _, _, end, packet = heapq.heappop(self._late)
            self._give(end, packet)
        return None

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry an order out."""
        match order["order"]:
            case "rule":
                self._rules[order["source"], order["target"]] = tuple(order["rule"])
            case "heal":
                self._rules.clear()
            case _:
                pass
        return self.counts


def serve(tag: str, net: int, count: int, seed: int) -> None:
    """Pass packets on and obey orders until the run hangs up."""
    packets = Packets(tag, net, count, seed)
    orders = Orders(packets.obey)
    poll = select.poll()
    for fd in (orders.fd, *packets.devices.values()):
        poll.register(fd, select.POLLIN)
    orders.ready()
    try:
        while True:
            for fd, _ in poll.poll(packets.give_late()):
                if fd != orders.fd:
                    packets.take(fd)
                elif not orders.take():
                    return
    finally:
        packets.close()


class Switch:
    """The run's side. Names of nodes end in their number. Raises OSError if it cannot be made."""

    def __init__(self, count: int, seed: int, log: Path) -> None:
        self._tag = f"rl{os.getpid()}"
        self._net = random.Random(os.urandom(8)).randrange(1, 255)
        words = (self._tag, str(self._net), str(count), str(seed))
        self._servant = Servant("raftline.chaos.switch", *words, log=log)

    def address_of(self, number: int) -> str:
        """Return the address of the node with this number."""
        return f"198.18.{self._net}.{number}"

    def inside(self, number: int) -> tuple[str, ...]:
        """Return the words before a command that is to run in a node's namespace."""
        return ("nsenter", f"--net=/run/netns/{self._tag}-{number}", "--")

    def cut(self, source: str, target: str) -> None:
        """Lose every packet from one node to another."""
        self._rule(source, target, (1.0, 0.0, 0.0, 0.0))

    def slow(self, source: str, target: str, delay_s: float) -> None:
        """Delay every packet."""
        self._rule(source, target, (0.0, 0.0, 1.0, delay_s))

    def disturb(self, source: str, target: str, loss: float) -> None:
        """Lose some packets; double and delay as many."""
        self._rule(source, target, (loss, loss, loss, 0.02))

    def heal(self) -> None:
        """Pass everything on at once again."""
        self._servant.order(order="heal")

    def show(self) -> dict[str, int]:
        """Return counts of packets."""
        return self._servant.order(order="show")

    def close(self) -> None:
        """Take the network away."""
        self._servant.close()

    def _rule(self, source: str, target: str, rule: Rule) -> None:
        ends = {"source": number_of(source), "target": number_of(target)}
        self._servant.order(order="rule", **ends, rule=rule)


def number_of(name: str) -> int:
    """Return the number a node's name ends in."""
    return int(name.rpartition("-")[2])


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
