"""The status page: one file of HTML that asks ``/v1/overview`` every two seconds.

It is read when somebody looks for the first time. The page loads nothing from anywhere, and its
policy lets it run its own script and style only.
"""

import base64
import hashlib
import re
from pathlib import Path

from raftline.gateways.http import replies
from raftline.gateways.http.connection import Exchange
from raftline.gateways.http.routes import Request, Router
from raftline.gateways.ports import Calls

HTML = "text/html; charset=utf-8"
FILE = Path(__file__).with_name("status_page.html")
_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
_STYLE = re.compile(rb"<style>(.*?)</style>", re.DOTALL)


class StatusPageRoutes:
    """``/`` and ``/status``."""

    __slots__ = ("_calls", "_extra", "_page")

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._page = b""
        self._extra = ""

    def add_to(self, router: Router) -> None:
        """Add the routes."""
        router.add("GET", "/", self.welcome, produces=f"{HTML}, {replies.TEXT}")
        router.add("GET", "/status", self.page, produces=HTML)

    def welcome(self, exchange: Exchange, request: Request) -> None:
        """Show the status page to browsers, and a line of text to others."""
        if request.wants("text/html"):
            self.page(exchange, request)
            return
        name = self._calls.status().name
        text = f"Raftline node {name}: the API is under /v1, the state under /v1/cluster.\n"
        exchange.send(text.encode(), content_type=replies.TEXT)

    def page(self, exchange: Exchange, request: Request) -> None:
        """Show the state of the cluster; the page keeps itself up to date."""
        if not self._page:
            self._page = FILE.read_bytes()
            self._extra = _policy(self._page)
        exchange.send(self._page, content_type=HTML, extra=self._extra)


def _policy(page: bytes) -> str:
    """Return fields by which a browser runs what is in the page and nothing else."""
    script, style = _hash(_SCRIPT, page), _hash(_STYLE, page)
    return (
        "Content-Security-Policy: default-src 'none'; connect-src 'self'; img-src data:; "
        f"script-src '{script}'; style-src '{style}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Referrer-Policy: no-referrer\r\n"
        "Cache-Control: no-cache\r\n"
    )


def _hash(part: re.Pattern[bytes], page: bytes) -> str:
    found = part.search(page)
    assert found is not None, "the page has one script and one style"
    return "sha256-" + base64.b64encode(hashlib.sha256(found[1]).digest()).decode()
