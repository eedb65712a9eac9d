"""A real browser under test: headless Chromium, driven by its own protocol.

Found in RAFTLINE_CHROMIUM, on the PATH, or fetched by scripts/install_chromium.py.
"""

import base64
import contextlib
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
INSTALL = ROOT / "scripts" / "install_chromium.py"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--window-size=1200,900",
)
LITTLE_FLAGS = ("--no-zygote", "--in-process-gpu")  # of the one we fetch
WAIT_S = 20.0
INSTALL_S = 180.0


def find_chromium() -> str:
    """Return a browser's path; "" if there is none and none can be had."""
    named = os.environ.get("RAFTLINE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), "")
    if named:
        return named
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            [sys.executable, str(INSTALL)],
            capture_output=True,
            text=True,
            timeout=INSTALL_S,
            check=False,
        )
        if done.returncode == 0:
            return done.stdout.split()[-1]
        print(done.stdout, done.stderr, file=sys.stderr)
    return ""


class Page:
    """One page of the browser."""

    def __init__(self, address: str) -> None:
        self._socket = _WebSocket(address)
        self._next = 0
        self.errors: list[str] = []  # what went wrong in the page
        self.call("Runtime.enable")
        self.call("Log.enable")
        self.call("Page.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask the browser; events that come meanwhile are looked at."""
        self._next += 1
        self._socket.send(json.dumps({"id": self._next, "method": method, "params": params}))
        while True:
            told = json.loads(self._socket.receive())
            if told.get("id") == self._next:
                assert "error" not in told, told
                return told["result"]
            self._note(told)

    def _note(self, told: dict[str, Any]) -> None:
        params = told.get("params", {})
        if told.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        elif told.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        told = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def text(self, selector: str) -> str:
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def until(self, condition: Callable[[], Any], what: str = "") -> None:
        end = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < end, (what, self.errors, self.text("body")[:2000])
            time.sleep(0.1)

    def screenshot(self, path: Path) -> None:
        told = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(told["data"]))

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def open_page(program: str) -> Iterator[Page]:
    """Start the browser with one page; both are gone afterwards."""
    flags = FLAGS
    environment = dict(os.environ)
    beside = Path(program).parent
    if (beside / "al2023").exists():
        flags += LITTLE_FLAGS
        # Its libraries come last: those of the system are tried first.
        paths = [os.environ.get("LD_LIBRARY_PATH", ""), str(beside / "al2023" / "lib")]
        environment["LD_LIBRARY_PATH"] = ":".join(filter(None, paths))
        environment["FONTCONFIG_PATH"] = str(beside / "fonts")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        errors = Path(profile) / "stderr"
        with errors.open("wb") as output:
            child = subprocess.Popen(
                [program, *flags, f"--user-data-dir={profile}", "about:blank"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output,
                env=environment,
            )
        try:
            page = Page(_address_of_page(errors, child))
            yield page
            page.close()
        finally:
            child.kill()
            child.wait(10)


def _address_of_page(errors: Path, child: "subprocess.Popen[bytes]") -> str:
    end = time.monotonic() + WAIT_S
    while True:
        said = errors.read_text(errors="replace")
        found = re.search(r"listening on ws://([\d.]+:\d+)/", said)
        if found:
            break
        assert child.poll() is None and time.monotonic() < end, said[-2000:]  # noqa: PT018
        time.sleep(0.05)
    while True:
        with urllib.request.urlopen(f"http://{found[1]}/json/list", timeout=WAIT_S) as reply:
            pages = [row for row in json.load(reply) if row["type"] == "page"]
        if pages:
            return pages[0]["webSocketDebuggerUrl"]
        assert time.monotonic() < end
        time.sleep(0.05)


class _WebSocket:
    """As much of RFC 6455 as a client of one server needs."""

    def __init__(self, address: str) -> None:
        host, _, path = address.removeprefix("ws://").partition("/")
        name, _, port = host.partition(":")
        self._socket = socket.create_connection((name, int(port)), WAIT_S)
        self._file = self._socket.makefile("rb")
        key = base64.b64encode(os.urandom(16)).decode()
        self._socket.sendall(
            f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        assert b"101" in self._file.readline()
        while self._file.readline().strip():
            pass

    def send(self, text: str) -> None:
        data = text.encode()
        mask = os.urandom(4)
        head = bytes([0x81])
        if len(data) < 126:
            head += bytes([0x80 | len(data)])
        elif len(data) < 1 << 16:
            head += bytes([0x80 | 126]) + struct.pack(">H", len(data))
        else:
            head += bytes([0x80 | 127]) + struct.pack(">Q", len(data))
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
        self._socket.sendall(head + mask + masked)

    def receive(self) -> str:
        parts: list[bytes] = []
        while True:
            head = self._file.read(2)
            assert len(head) == 2, "the browser is gone"
            first, second = head
            length = second & 0x7F
            if length == 126:
                (length,) = struct.unpack(">H", self._file.read(2))
            elif length == 127:
                (length,) = struct.unpack(">Q", self._file.read(8))
            data = self._file.read(length)
            if first & 0x0F < 3:
                parts.append(data)
                if first & 0x80:
                    return b"".join(parts).decode()

    def close(self) -> None:
        self._file.close()
        self._socket.close()
