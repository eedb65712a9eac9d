"""Packets between real namespaces: whole, late, lost in one direction, lost by chance."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftline.chaos.rig import wait_for
from raftline.chaos.switch import Switch, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason="no network namespaces can be made here")
PORT = 12_000
ECHO = """
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], int(sys.argv[2])))
while True:
    data, sender = server.recvfrom(100)
    server.sendto(data, sender)
"""
ASK = """
import socket, sys, time
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.connect((sys.argv[1], int(sys.argv[2])))
line.settimeout(0.5)
heard, began = [], time.monotonic()
for number in range(int(sys.argv[3])):
    try:
        line.send(str(number).encode())
        heard.append(line.recv(100))
    except (TimeoutError, ConnectionRefusedError):  # nobody answers, or not yet
        pass
print(len(heard), time.monotonic() - began)
"""


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[Switch]:
    made = Switch(2, 1, tmp_path / "log")
    words = [sys.executable, "-c", ECHO, made.address_of(1), str(PORT)]
    echo = subprocess.Popen([*made.inside(1), *words])
    yield made
    echo.kill()
    echo.wait()
    made.close()


def asked(switch: Switch, times: int) -> tuple[int, float]:
    """Ask node 1 from node 2; return how many answers came and how long it took."""
    words = [sys.executable, "-c", ASK, switch.address_of(1), str(PORT), str(times)]
    ran = subprocess.run([*switch.inside(2), *words], capture_output=True, text=True, check=True)
    heard, took = ran.stdout.split()
    return int(heard), float(took)


def test_packets_are_passed_on_late_lost_and_passed_on_again(switch: Switch):
    wait_for(lambda: asked(switch, 1)[0] == 1, 10)
    assert asked(switch, 20)[0] == 20
    switch.slow("node-2", "node-1", 0.1)
    heard, took = asked(switch, 2)
    assert heard == 2
    assert took > 0.2
    switch.heal()
    switch.cut("node-1", "node-2")  # the way back only
    before = switch.show()["dropped"]
    assert asked(switch, 2)[0] == 0
    assert switch.show()["dropped"] == before + 2
    assert from_here(switch) == b"hello"  # the run's own clients are not touched
    switch.heal()
    assert asked(switch, 20)[0] == 20
    switch.disturb("node-2", "node-1", 0.3)
    asked(switch, 20)
    counts = switch.show()
    assert counts["dropped"] > before + 2
    assert counts["doubled"] > 0


def from_here(switch: Switch) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.settimeout(5)
        line.connect((switch.address_of(1), PORT))
        line.send(b"hello")
        return line.recv(100)


def test_nothing_is_left_behind(tmp_path: Path):
    made = Switch(2, 1, tmp_path / "log")
    name = made.inside(1)[1].rpartition("/")[2]
    assert name in subprocess.check_output(["ip", "netns"], text=True)
    made.close()
    time.sleep(0.1)
    assert name not in subprocess.check_output(["ip", "netns"], text=True)
    assert name not in subprocess.check_output(["ip", "link"], text=True)
