"""The document of all routes (OpenAPI 3.1), made from what each route says of itself.

It is put together when somebody asks for it for the first time.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from raftline import __version__
from raftline.gateways.http import replies
from raftline.gateways.http.connection import Exchange
from raftline.gateways.http.routes import TIMEOUT_FIELD, Description, Request, Route, Router

REF = "#/components/schemas/{name}"
_PARAM = re.compile(r"\{(\w+)\}")
_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
_FLAG: dict[str, Any] = {"type": "string", "enum": ["true", "false", "1", "0"]}
_MOMENT: dict[str, Any] = {"type": "string", "description": "RFC 3339, or Unix milliseconds"}


class ErrorText(msgspec.Struct):
    """What went wrong, and what to do about it."""

    code: str
    message: str
    hint: str


class Refusal(msgspec.Struct):
    """The answer of every call that did not do what was asked."""

    error: ErrorText


def _number(low: int, high: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high}


# Parameters by name; one that is not here is a text.
PARAMETERS: dict[str, dict[str, Any]] = {
    "partition": _number(0, 9_999),
    "partitionID": _number(-1, 9_999),
    "number": {"type": "string", "pattern": "^w?[0-9]{1,18}$"},
    "timeout_ms": _number(1, 60_000),
    "wait_ms": _number(0, 60_000),
    "bytes_max": _number(1, 8 << 20),
    "limit": _number(1, 1_000),
    "offset": _number(0, (1 << 62) - 1),
    "end_offset": _number(0, (1 << 62) - 1),
    "task": _number(0, (1 << 62) - 1),
    "attempt": _number(0, (1 << 62) - 1),
    "chunk": _number(0, (1 << 32) - 1),
    "batch": _number(1, 1_000),
    "generation": _number(0, (1 << 62) - 1),
    "poll": _number(0, (1 << 62) - 1),
    "time": _number(0, 1 << 50),
    "linearizable": _FLAG,
    "any_replica": _FLAG,
    "from": _MOMENT,
    "to": _MOMENT,
    "start": _MOMENT,
    "end": _MOMENT,
    "form": {"type": "string", "enum": ["plain", "envelope"]},
    "ack": {"type": "string", "enum": ["auto", "manual"]},
    "status": {"type": "string"},
    "topic": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,249}$"},
}


class OpenApiRoutes:
    """Serves the document."""

    __slots__ = ("_document", "_router")

    def __init__(self, router: Router) -> None:
        self._router = router
        self._document = b""

    def add_to(self, router: Router) -> None:
        """Add the route."""
        router.add("GET", "/openapi.json", self.show, answer=dict[str, Any])

    def show(self, exchange: Exchange, request: Request) -> None:
        """Describe every route of this port (OpenAPI 3.1)."""
        if not self._document:
            self._document = msgspec.json.encode(describe(self._router.routes))
        exchange.send(self._document)


def describe(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the document."""
    routes = list(routes)
    types = _types(routes)
    schemas, components = msgspec.json.schema_components(types, ref_template=REF)
    known = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.pattern, {})[route.method.lower()] = _operation(route, known)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Raftline",
            "version": __version__,
            "description": "The native API under /v1, and the dialects of other queues.",
        },
        "tags": [{"name": tag} for tag in sorted({route.about.tag for route in routes})],
        "paths": paths,
        "components": {"schemas": components},
    }


def _types(routes: list[Route]) -> list[Any]:
    found: dict[str, Any] = {repr(Refusal): Refusal}
    for route in routes:
        for kind in (route.about.body, route.about.answer):
            if kind is not None:
                found.setdefault(repr(kind), kind)
    return list(found.values())


def _operation(route: Route, known: dict[str, Any]) -> dict[str, Any]:
    about = route.about
    operation: dict[str, Any] = {
        "operationId": _name(route),
        "summary": about.summary,
        "tags": [about.tag],
        "parameters": _parameters(route),
        "responses": _responses(about, known),
    }
    if about.body is not None:
        content: dict[str, Any] = {replies.JSON: {"schema": known[repr(about.body)]}}
        if about.sealed == "in":
            content[replies.BATCH] = {"schema": {"type": "string", "format": "binary"}}
        operation["requestBody"] = {"required": not about.body_optional, "content": content}
    elif about.sealed == "in":
        content = {replies.BATCH: {"schema": {"type": "string", "format": "binary"}}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _name(route: Route) -> str:
    words = [_PARAM.sub(r"by_\1", part) for part in route.segments if part]
    return "_".join([route.method.lower(), *words]).replace("-", "_").replace(".", "_")


def _parameters(route: Route) -> list[dict[str, Any]]:
    found = [
        {"name": name, "in": "path", "required": True, "schema": PARAMETERS.get(name, _TEXT)}
        for name in _PARAM.findall(route.pattern)
    ]
    found += [
        {"name": name, "in": "query", "schema": PARAMETERS.get(name, {"type": "string"})}
        for name in sorted(route.query)
    ]
    timeout = TIMEOUT_FIELD.decode().title()
    return [*found, {"name": timeout, "in": "header", "schema": PARAMETERS["timeout_ms"]}]


def _responses(about: Description, known: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {kind: {} for kind in about.produces.split(", ")}
    if about.answer is not None:
        content = {replies.JSON: {"schema": known[repr(about.answer)]}}
    if about.sealed == "out":
        content[replies.BATCH] = {"schema": {"type": "string", "format": "binary"}}
    responses: dict[str, Any] = {
        str(about.status): {"description": about.summary, "content": content},
        "default": {
            "description": "It was refused, or the outcome is unknown (504).",
            "content": {replies.JSON: {"schema": known[repr(Refusal)]}},
        },
    }
    if about.empty_status:
        responses[str(about.empty_status)] = {"description": "There is nothing."}
    return responses
