"""The promises over HTTP: plain JSON routes, one connection."""

import contextlib
import http.client
import json
from typing import Any
from urllib.parse import quote

from tests.conformance.promises.driver import Leased, Letter, Moved, Placed, Refused, own_headers


class HttpDriver:
    """JSON to one node."""

    name = "http"

    def __init__(self, url: str) -> None:
        host, port = url.removeprefix("http://").split(":")
        self._address = (host, int(port))

    def close(self) -> None:
        """Nothing is kept: every call has a connection of its own."""

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Make a call. Raises Refused."""
        sent = None if body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection(*self._address, timeout=30)
        with contextlib.closing(connection):
            connection.request(method, path, sent, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            answer = json.loads(reply.read() or b"{}")
        if reply.status >= 400:
            raise Refused(answer["error"]["code"], answer["error"]["message"])
        return answer

    def create(self, topic: str, *, partitions: int, **settings: Any) -> None:
        body = {"name": topic, "num_partitions": partitions, "settings": settings}
        self.call("POST", "/v1/topics", body)

    def send(
        self,
        topic: str,
        value: str,
        *,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        priority: int = 0,
        delay_ms: int | None = None,
        dedup_key: str | None = None,
    ) -> Placed:
        wished = {
            "key": key,
            "headers": headers,
            "priority": priority,
            "delay": delay_ms,
            "dedup_key": dedup_key,
        }
        item = {"value": value} | {name: wish for name, wish in wished.items() if wish is not None}
        answer = self.call(
            "POST", f"/v1/topics/{quote(topic, safe='')}/messages", {"messages": [item]}
        )
        (result,) = answer["results"]
        return Placed(
            id=result["id"],
            partition=result["partition"],
            offset=-1 if result["offset"] is None else result["offset"],
            is_duplicate=result.get("duplicate", False),
        )

    def receive(
        self,
        topic: str,
        group: str,
        *,
        count: int = 10,
        wait_ms: int = 0,
        lease_ms: int = 10_000,
        ordered: bool = False,
        member: str = "",
    ) -> list[Leased]:
        body = {
            "count": count,
            "wait": wait_ms,
            "lease": lease_ms,
            "ordered": ordered,
            "member": member,
        }
        answer = self.call("POST", f"/v1/topics/{topic}/groups/{group}/receive", body)
        return [
            Leased(
                id=row["id"],
                partition=row["partition"],
                offset=row["offset"],
                key=row["key"],
                value=row["value"],
                headers=own_headers(row["headers"].items()),
                priority=row.get("priority", 0),
                attempt=row["attempt"],
                handle=row["lease_token"],
            )
            for row in answer["messages"]
        ]

    def settle(
        self,
        message: Leased,
        verb: str,
        *,
        delay_ms: int | None = None,
        reason: str = "",
        lease_ms: int = 0,
    ) -> None:
        body: dict[str, Any] = {"lease_token": message.handle}
        if verb == "nack" and delay_ms is not None:
            body["delay"] = delay_ms
        if verb in ("nack", "reject"):
            body["reason"] = reason
        if verb == "extend":
            body["lease"] = lease_ms
        assert self.call("POST", f"/v1/messages/{verb}", body)["settled"] == 1

    def read(self, topic: str, partition: int = 0) -> list[str]:
        answer = self.call("GET", f"/v1/topics/{topic}/partitions/{partition}/messages")
        return [row["value"] for row in answer["messages"]]

    def offset_at(self, topic: str, time_ms: int) -> int:
        path = f"/v1/topics/{topic}/partitions/0/offsets?time={time_ms}"
        return self.call("GET", path)["offset"]

    def cancel(self, message: str) -> None:
        topic = message.rsplit(".", 2)[0]
        self.call("DELETE", f"/v1/topics/{topic}/delayed/{message}")

    def letters(self, topic: str) -> list[Letter]:
        return [letter_of(row) for row in self.call("GET", f"/v1/topics/{topic}/dlq")["letters"]]

    def redrive(self, topic: str) -> int:
        return self.call("POST", f"/v1/topics/{topic}/dlq/redrive", {"all": True})["redriven"]

    def reset(
        self,
        topic: str,
        group: str,
        *,
        offset: int | None = None,
        time_ms: int | None = None,
        create: bool = False,
        dry_run: bool = False,
    ) -> list[Moved]:
        body: dict[str, Any] = {"topic": topic, "kind": "work", "dry_run": dry_run}
        if offset is not None:
            body["offset"] = offset
        elif time_ms is not None:
            body["time"] = time_ms
        else:
            body["to"] = "earliest"
        if create:
            body["create"] = True
        return moves_of(self.call("POST", f"/v1/groups/{group}/reset", body))


def letter_of(row: dict[str, Any]) -> Letter:
    """Return a letter as JSON tells it."""
    names = ("id", "state", "group", "generation", "reason", "attempts", "member", "error")
    told = {name: row[name] for name in (*names, "key", "value")}
    return Letter(origin=row["origin"]["id"], **told)


def moves_of(answer: dict[str, Any]) -> list[Moved]:
    """Return what a reset did, as JSON tells it."""
    return [
        Moved(partition=row["partition"], start=row["from"], to=row["to"])
        for row in answer["partitions"]
    ]
