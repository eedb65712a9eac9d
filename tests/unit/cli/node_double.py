"""A scripted HTTP server: answers with what a test laid out, and remembers what it was asked."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Answer = tuple[int, Any]
Script = Callable[[str, str, dict[str, list[str]], Any], Answer]


class ScriptedServer:
    """Serves ``script(method, path, query, body) -> (status, json)`` on a free port."""

    def __init__(self, script: Script) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                url = urlsplit(self.path)
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                outer.asked.append((self.command, self.path, body))
                status, reply = script(self.command, url.path, parse_qs(url.query), body)
                data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
                if status == 0:  # hang up without an answer
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815

            def log_message(self, *args: object) -> None:
                del args

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> "ScriptedServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def refusal(status: int, code: str, message: str = "no", hint: str = "try") -> Answer:
    return status, {"error": {"code": code, "message": message, "hint": hint}}
