"""What a cluster holds, as tables of Spark.

====================  ==============================================================
``orders``            messages; with an archive, those it holds as well
``orders.archive``    messages of the archive alone
``orders.dlq``        dead letters: the message, and what became of it
``orders.trace``      what happened to messages, one row per message and event
``raftline.topics``   topics, one row per partition
``raftline.groups``   groups, one row per partition
``raftline.nodes``    nodes
====================  ==============================================================

Keys, values and headers come as text, unless ``decode`` is ``binary``.
"""

# pyright: basic
# Spark says too little of its types for more.

import difflib
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from raftline.client.caller import Caller
from raftline.model.dead_letter import HEADERS
from raftline.model.errors import (
    InvalidArgument,
    NotFound,
    UnknownGroup,
    UnknownTopic,
)
from raftline.model.names import DEAD_LETTERS, TRACES, is_dead_letter_topic
from raftline.pipeline.trace_events import SQL_SCHEMA, to_events

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ARCHIVE = ".archive"
SYSTEM = ("raftline.topics", "raftline.groups", "raftline.nodes")
DECODES = ("text", "binary")
SPREAD_MAX = 10_000  # offsets that one row of a trace is spread into at once
_STORY = {
    "group": "string",
    "generation": "int",
    "reason": "string",
    "attempts": "int",
    "member": "string",
    "error": "string",
    "lost": "string",
}
_STORY_TIMES = ("first", "last", "dead")
_PATTERN = re.compile(r"[\\{}\[\]*?]")


class Tables:
    """Tables of one cluster in one session."""

    __slots__ = ("_caller", "_spark", "archive", "decode", "options", "servers")

    def __init__(
        self,
        spark: "SparkSession",
        servers: str,
        *,
        archive: str = "",
        decode: str = "text",
        options: dict[str, str] | None = None,
    ) -> None:
        if decode not in DECODES:
            raise InvalidArgument(f"no decode {decode!r}", f"use {' or '.join(DECODES)}")
        self._spark = spark
        self._caller = Caller(servers)
        self.servers = servers
        self.archive = archive  # a directory; "true": where each topic says; "": none
        self.decode = decode
        self.options = options or {}  # of the data source, for every topic

    def close(self) -> None:
        """Hang up."""
        self._caller.close()

    def find(self, name: str) -> "DataFrame":
        """Return the table of a name.

        Raises:
            NotFound: there is none, and what is like it.
        """
        if name in SYSTEM:
            return getattr(self, "_" + name.partition(".")[2])()
        names = self.topic_names()
        if name in names:
            return self.letters(name) if is_dead_letter_topic(name) else self.topic(name)
        source, _, kind = name.rpartition(".")
        if source in names or (kind == "archive" and self.archive):
            match f".{kind}":
                case ".trace":
                    return self.trace(source)
                case ".archive":
                    return self.archived(source)
                case ".dlq":
                    return self.no_letters()
                case _:
                    pass
        raise self._unknown(name, names)

    def topic_names(self) -> list[str]:
        """Return the names of all topics."""
        return [row["name"] for row in self._caller.call("GET", "/v1/topics")["topics"]]

    def check_topic(self, name: str) -> None:
        """Refuse a topic that there is not. Raises UnknownTopic."""
        self._caller.call("GET", _path(name))

    def _unknown(self, name: str, names: list[str]) -> NotFound:
        near = difflib.get_close_matches(name, [*names, *SYSTEM], n=3)
        known = ", ".join(near or sorted(names)[:10]) or "none yet"
        return NotFound(
            f"there is no table {name!r}: no topic, dead letters, trace or archive of that name",
            f"{'did you mean' if near else 'topics'}: {known}; all: select * from raftline.topics",
        )

    # ------------------------------------------------------------------ messages

    def raw(self, topic: str, **options: str) -> "DataFrame":
        """Return a topic as the data source reads it."""
        reader = self._spark.read.format("raftline").option("servers", self.servers)
        for name, value in {**self.options, **options, "topic": topic}.items():
            reader = reader.option(name, value)
        return reader.load()

    def topic(self, topic: str) -> "DataFrame":
        """Return a topic, from the archive on if there is one."""
        options = {"archive": self.archive} if self.archive else {}
        return self._decoded(self.raw(topic, **options))

    def archived(self, topic: str) -> "DataFrame":
        """Return what the archive holds of a topic."""
        from raftline.archive.reader import Archive

        root = self.archive
        if root in ("", "true"):
            try:
                settings = self._caller.call("GET", _path(topic))["settings"]
            except UnknownTopic:
                settings = {}
            root = str(settings.get("archive_dir") or "")
        if not root:
            raise InvalidArgument(
                f"where the archive of {topic} is was not said",
                "--archive DIR, or raftline topic set NAME archive_dir=DIR",
            )
        archive = Archive(root)
        partitions = archive.partitions(topic)
        if not partitions:
            raise NotFound(
                f"{root} holds nothing of {topic}", f"it has {', '.join(archive.topics()) or '-'}"
            )
        # Spark takes these names for patterns.
        files = [
            _PATTERN.sub(r"\\\g<0>", piece.path)
            for p in partitions
            for piece in archive.slices(topic, p)
        ]
        return self._decoded(self._within_times(self._spark.read.parquet(*files), topic))

    def _within_times(self, table: "DataFrame", topic: str) -> "DataFrame":
        """Return the messages of the times that the options name; the data source does it else."""
        from pyspark.sql import functions as f

        from raftline.spark import options

        given = {**self.options, "servers": self.servers, "topic": topic}
        asked = options.parse(given, options.BATCH_READ)
        if asked.starting_ms is not None:
            table = table.where(f.col("timestamp") >= f.timestamp_millis(f.lit(asked.starting_ms)))
        if asked.ending_ms is not None:
            table = table.where(f.col("timestamp") < f.timestamp_millis(f.lit(asked.ending_ms)))
        return table

    def _decoded(self, table: "DataFrame", headers: "Column | None" = None) -> "DataFrame":
        from pyspark.sql import functions as f

        chosen = f.col("headers") if headers is None else headers
        if self.decode == "binary":
            return table.withColumn("headers", chosen)
        entries = f.transform(
            f.coalesce(chosen, f.array()),
            lambda header: f.struct(header["key"], header["value"].cast("string")),
        )
        return (
            table.withColumn("key", f.col("key").cast("string"))
            .withColumn("value", f.col("value").cast("string"))
            .withColumn("headers", f.map_from_entries(entries))
        )

    # ------------------------------------------------------------------ dead letters

    def letters(self, topic: str, *, source: str = "", raw: bool = False) -> "DataFrame":
        """Return a dead-letter topic: messages as they were, and their story.

        ``raw``: with key, value and headers as they are stored, too, as ``_key`` and so on.
        """
        from pyspark.sql import functions as f

        from raftline.pipeline.letter_states import state_column

        def ours(name: str) -> "Column":
            found = f.filter(f.col("headers"), lambda h: h["key"] == f"raftline-{name}")
            return f.try_element_at(found, f.lit(-1))["value"].cast("string")

        def moment(name: str) -> "Column":
            return f.timestamp_millis(ours(f"{name}-ms").cast("long"))

        table = self.raw(topic)
        origin = f.col("origin")
        told = table.withColumn("origin", ours("origin")).where(origin.isNotNull())
        place = f.substring_index(origin, "@", 1)
        columns: dict[str, Any] = {name: ours(name).cast(kind) for name, kind in _STORY.items()}
        columns |= {name: moment(name) for name in _STORY_TIMES}
        columns["origin_topic"] = f.regexp_extract(place, r"^(.*)/\d+$", 1)
        columns["origin_partition"] = f.substring_index(place, "/", -1).cast("int")
        columns["origin_offset"] = f.substring_index(origin, "@", -1).cast("long")
        source = source or topic.removesuffix(DEAD_LETTERS)
        columns["state"] = state_column(self.servers, source)(f.col("offset"))
        told = told.withColumns(columns)
        kept = f.filter(f.col("headers"), lambda h: ~h["key"].isin(*HEADERS))
        if raw:
            told = told.withColumns({"_key": f.col("key"), "_value": f.col("value")})
            told = told.withColumn("_headers", kept)
        return self._decoded(told, kept)

    def no_letters(self, *, raw: bool = False) -> "DataFrame":
        """Return the table of a topic that never had a dead letter."""
        text = self.decode == "text"
        payload = "string" if text else "binary"
        headers = "map<string,string>" if text else "array<struct<key:string,value:binary>>"
        columns = [
            "topic string, partition int, offset long, timestamp timestamp",
            f"key {payload}, value {payload}, headers {headers}, priority int, origin string",
            *(f"`{name}` {kind}" for name, kind in _STORY.items()),
            *(f"`{name}` timestamp" for name in _STORY_TIMES),
            "origin_topic string, origin_partition int, origin_offset long, state string",
        ]
        if raw:
            columns.append("_key binary, _value binary")
            columns.append("_headers array<struct<key:string,value:binary>>")
        return self._spark.createDataFrame([], ", ".join(columns))

    # ------------------------------------------------------------------ traces

    def events(self, topic: str) -> "DataFrame":
        """Return the trace of a topic in ranges: see ``trace_events.py``."""
        raw = self.raw(topic + TRACES).select("partition", "offset", "value")
        return raw.mapInArrow(to_events, SQL_SCHEMA)

    def trace(self, topic: str) -> "DataFrame":
        """Return the trace of a topic, one row per message and event."""
        from pyspark.sql import functions as f

        return spread(self.events(topic)).select(
            f.lit(topic).alias("topic"),
            "partition",
            "offset",
            "time",
            "event",
            "group",
            "member",
            "attempt",
            "generation",
            "reason",
            "delay_ms",
            "until",
            "number",
        )

    # ------------------------------------------------------------------ the cluster

    def _topics(self) -> "DataFrame":
        rows: list[tuple[Any, ...]] = []
        for name in self.topic_names():
            for place in self._caller.call("GET", _path(name))["partitions"]:
                bounds = self._caller.call(
                    "GET", f"{_path(name)}/partitions/{place['partition']}/offsets"
                )
                rows.append(
                    (
                        name,
                        place["partition"],
                        place["leader"],
                        place["replicas"],
                        bounds["log_start"],
                        bounds["commit_end"],
                        bounds["commit_end"] - bounds["log_start"],
                    )
                )
        schema = (
            "topic string, partition int, leader int, replicas array<int>, log_start long, "
            "commit_end long, messages long"
        )
        return self._spark.createDataFrame(rows, schema)

    def _nodes(self) -> "DataFrame":
        nodes = self._caller.call("GET", "/v1/cluster")["nodes"]
        rows = [(row["id"], row["name"], row["state"], row.get("http")) for row in nodes]
        return self._spark.createDataFrame(rows, "id int, name string, state string, http string")

    def _groups(self) -> "DataFrame":
        names = {row["group"] for row in self._caller.call("GET", "/v1/groups")["groups"]}
        rows: list[tuple[Any, ...]] = []
        for name in sorted(names):
            try:
                told = self._caller.call("GET", f"/v1/groups/{quote(name, safe='')}")
            except UnknownGroup:
                continue  # gone meanwhile
            rows += _work_rows(name, told) + _stream_rows(name, told)
        schema = (
            "`group` string, kind string, topic string, partition int, next_offset long, "
            "floor long, lag long, fresh long, leased long, resting long, ready long, "
            "dying long, dead long, member string"
        )
        return self._spark.createDataFrame(rows, schema)


def spread(events: "DataFrame") -> "DataFrame":
    """Turn ranges of offsets into rows of one ``offset`` each; what has no range has one row.

    In two steps, so that no single array gets long.
    """
    from pyspark.sql import functions as f

    start, end = f.col("start"), f.coalesce(f.col("end"), f.col("start") + 1)
    steps = f.sequence(start, end - 1, f.lit(SPREAD_MAX).cast("long"))
    pieces = events.withColumn("_from", f.explode_outer(f.when(start < end, steps)))
    last = f.least(f.col("_from") + (SPREAD_MAX - 1), end - 1)
    offsets = f.sequence(f.col("_from"), last)
    return pieces.withColumn("offset", f.explode_outer(offsets)).drop("_from")


def _work_rows(name: str, told: dict[str, Any]) -> list[tuple[Any, ...]]:
    fields = ("next_offset", "floor", "lag", "fresh", "leased", "resting", "ready", "dying", "dead")
    return [
        (name, "work", topic, row["partition"], *(row.get(field) for field in fields), None)
        for topic, rows in told["work"].items()
        for row in rows
    ]


def _stream_rows(name: str, told: dict[str, Any]) -> list[tuple[Any, ...]]:
    stream = told["stream"]
    if stream is None:
        return []
    return [
        (
            name,
            "stream",
            row["topic"],
            row["partition"],
            row.get("cursor"),
            None,
            row.get("lag"),
            *(None,) * 6,
            row.get("owner"),
        )
        for row in stream["partitions"]
    ]


def _path(topic: str) -> str:
    return f"/v1/topics/{quote(topic, safe='')}"
