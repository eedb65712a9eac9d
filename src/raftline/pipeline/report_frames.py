"""What a report is made of: aggregates over traces, all of them done by Spark's own code.

The trace is spread into one row per message and event, put together into one row per message and
group (*ways*), and joined with the messages for their keys and times. Everything else is counted
from that. A message that waited counts from the moment when it was released.
"""

# pyright: basic
# Spark says too little of its types for more.

from typing import TYPE_CHECKING

import msgspec

from raftline.pipeline.tables import Tables, spread

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PERCENTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
ACCURACY = 10_000
SLOWEST = 15  # messages of each group
HOUR_S = 3600
HOT = 15  # keys of each topic
REASON_CHARS_MAX = 80
EXPIRED = "lease expired"
GIVEN = ("DELIVERED", "REDELIVERED")


class Window(msgspec.Struct, frozen=True):
    """Which part of time a report is about: half-open, None is open."""

    from_ms: int | None = None
    to_ms: int | None = None


class Frames:
    """The tables of a report; ``close`` frees what is kept of them."""

    __slots__ = ("events", "messages", "ways")

    def __init__(self, tables: Tables, topics: list[str], window: Window) -> None:
        events = [_events(tables, topic, window) for topic in topics]
        messages = [_messages(tables, topic) for topic in topics]
        every, told = events[0], messages[0]
        for more in events[1:]:
            every = every.unionByName(more)
        for more in messages[1:]:
            told = told.unionByName(more)
        self.events = every.persist()
        self.messages = told
        self.ways = _ways(self.events, told).persist()
        if window.from_ms is not None or window.to_ms is not None:
            self.messages = _within(told, "timestamp", window)

    def close(self) -> None:
        """Free memory."""
        self.ways.unpersist()
        self.events.unpersist()

    # ------------------------------------------------------------------ what is counted

    def bounds(self) -> tuple[int | None, int | None]:
        """Return the first and the last moment, in Unix milliseconds.

        Messages that are older than all traces do not count.
        """
        from pyspark.sql import functions as f

        traced = self.ways.select(f.col("since").alias("at")).union(self.events.select("time"))
        traced = traced.withColumn("is_traced", f.lit(True))
        told = self.messages.select(f.col("timestamp").alias("at"), f.lit(False))
        row = (
            traced.union(told)
            .agg(
                f.unix_millis(f.min(f.when(f.col("is_traced"), f.col("at")))).alias("first"),
                f.unix_millis(f.max("at")).alias("last"),
            )
            .first()
        )
        return (row["first"], row["last"]) if row is not None else (None, None)

    def latencies(self, bucket_s: int) -> "DataFrame":
        """Return percentiles and counts per topic, group and time; sums where those are null.

        Time is ``at``, in buckets, or ``hour``.
        """
        from pyspark.sql import functions as f

        since = f.col("since")
        times = {"at": _bucket(since, bucket_s), "hour": _bucket(since, HOUR_S)}
        self.ways.withColumns(times).createOrReplaceTempView("_raftline_ways")
        shares = ", ".join(map(str, PERCENTILES))
        sets = "(topic, `group`, at), (topic, at), (at), (topic, `group`), (topic), ()"
        sets += ", (topic, `group`, hour)"
        return self.ways.sparkSession.sql(
            f"""select topic, `group`, at, hour,
                count(*) as messages, sum(deliveries) as deliveries,
                sum(greatest(deliveries - 1, 0)) as retries,
                count_if(acked is not null) as acked, count_if(dead) as dead,
                max(deliveries) as attempts_max,
                percentile_approx(to_delivery_ms, array({shares}), {ACCURACY}) as to_delivery_ms,
                percentile_approx(to_ack_ms, array({shares}), {ACCURACY}) as to_ack_ms,
                max(to_delivery_ms) as to_delivery_max_ms, max(to_ack_ms) as to_ack_max_ms
                from _raftline_ways group by grouping sets ({sets})"""
        )

    def throughput(self, bucket_s: int) -> "DataFrame":
        """Return what happened per topic, group, kind and time: published, delivered, acked."""
        from pyspark.sql import functions as f

        names = {"DELIVERED": "delivered", "REDELIVERED": "delivered", "ACKNOWLEDGED": "acked"}
        kind = f.create_map([f.lit(text) for pair in names.items() for text in pair])
        happened = self.events.where(f.col("event").isin(*names)).select(
            "topic", "group", kind[f.col("event")].alias("kind"), f.col("time").alias("at")
        )
        published = self.messages.select(
            "topic",
            f.lit(None).cast("string").alias("group"),
            f.lit("published").alias("kind"),
            f.col("timestamp").alias("at"),
        )
        every = happened.unionByName(published)
        return every.groupBy(
            "topic", "group", "kind", _bucket(f.col("at"), bucket_s).alias("at")
        ).count()

    def troubles(self, bucket_s: int) -> "DataFrame":
        """Return retries and dead letters per topic, group, reason and time."""
        from pyspark.sql import Window as Over
        from pyspark.sql import functions as f

        order = Over.partitionBy("topic", "group", "partition", "offset").orderBy("time", "step")
        before = f.lag("event").over(order)
        said = f.substring(f.lag("reason").over(order), 1, REASON_CHARS_MAX)
        nacked = f.when(before == "NACKED", f.coalesce(said, f.lit("nacked")))
        rows = self.events.withColumns({"why": nacked, "said": said})
        retry = rows.where(f.col("event") == "REDELIVERED").select(
            f.lit("retry").alias("kind"),
            "topic",
            "group",
            f.coalesce("why", f.lit(EXPIRED)).alias("reason"),
            f.lit(None).cast("string").alias("error"),
            "time",
        )
        dead = rows.where(f.col("event") == "DEAD_LETTERED").select(
            f.lit("dead").alias("kind"),
            "topic",
            "group",
            "reason",
            f.col("said").alias("error"),
            "time",
        )
        every = retry.unionByName(dead).withColumn("at", _bucket(f.col("time"), bucket_s))
        return every.groupBy("kind", "topic", "group", "reason", "error", "at").count()

    def slowest(self) -> "DataFrame":
        """Return the messages of each group that took longest to be acked."""
        from pyspark.sql import Window as Over
        from pyspark.sql import functions as f

        order = Over.partitionBy("topic", "group").orderBy(f.col("took_ms").desc(), "offset")
        took = f.coalesce("to_ack_ms", "to_dead_ms", "to_delivery_ms")
        rows = self.ways.withColumn("took_ms", took).where(f.col("took_ms").isNotNull())
        ranked = rows.withColumn("rank", f.row_number().over(order)).where(f.col("rank") <= SLOWEST)
        outcome = (
            f.when(f.col("dead"), "dead")
            .when(f.col("acked").isNotNull(), "acked")
            .otherwise("open")
        )
        return ranked.select(
            "topic",
            "group",
            "partition",
            "offset",
            "key",
            "since",
            "deliveries",
            "to_delivery_ms",
            "took_ms",
            outcome.alias("outcome"),
        )

    def hot_keys(self) -> "DataFrame":
        """Return the keys of each topic with most messages, and how those fared."""
        from pyspark.sql import Window as Over
        from pyspark.sql import functions as f

        counts = self.messages.where(f.col("key").isNotNull()).groupBy("topic", "key").count()
        order = Over.partitionBy("topic").orderBy(f.col("count").desc(), "key")
        ranked = counts.withColumn("rank", f.row_number().over(order)).where(f.col("rank") <= HOT)
        fates = self.ways.groupBy("topic", "key").agg(
            f.sum(f.greatest(f.col("deliveries") - 1, f.lit(0))).alias("retries"),
            f.count_if("dead").alias("dead"),
            f.percentile_approx("to_ack_ms", 0.95, ACCURACY).alias("to_ack_p95_ms"),
        )
        return ranked.join(fates, ["topic", "key"], "left").drop("rank")


def _events(tables: Tables, topic: str, window: Window) -> "DataFrame":
    from pyspark.sql import functions as f

    events = _within(tables.events(topic), "time", window)
    told = f.col("group").isNotNull() | (f.col("event") == "RELEASED")
    events = events.where(told & (f.col("event") != "REPLAYED") & (f.col("event") != "EXTENDED"))
    # A record may hold the lease and the end of one message: the lease comes first.
    step = f.col("record") * 4 + f.when(f.col("event").isin(*GIVEN), 0).otherwise(
        f.when(f.col("event") == "DEAD_LETTERED", 2).otherwise(1)
    )
    return spread(events.withColumn("step", step)).select(
        f.lit(topic).alias("topic"),
        "partition",
        "offset",
        "group",
        "event",
        "time",
        "step",
        "attempt",
        "reason",
    )


def _messages(tables: Tables, topic: str) -> "DataFrame":
    options = {"includeValue": "false"}
    if tables.archive:
        options["archive"] = tables.archive
    raw = tables.raw(topic, **options)
    return raw.select("topic", "partition", "offset", "timestamp", raw["key"].cast("string"))


def _ways(events: "DataFrame", messages: "DataFrame") -> "DataFrame":
    """Return one row per message and group: when it came, how often, and how it ended."""
    from pyspark.sql import functions as f

    event = f.col("event")
    given = event.isin(*GIVEN)
    place = ["topic", "partition", "offset"]
    ways = (
        events.where(f.col("group").isNotNull())
        .groupBy(*place, "group")
        .agg(
            f.min(f.when(given, f.col("time"))).alias("delivered"),
            f.max(f.when(event == "ACKNOWLEDGED", f.col("time"))).alias("acked"),
            f.max(f.when(event == "DEAD_LETTERED", f.col("time"))).alias("died"),
            f.max(f.when(event == "REDRIVEN", f.col("time"))).alias("redriven"),
            f.count_if(given).alias("deliveries"),
        )
    )
    released = (
        events.where(event == "RELEASED").groupBy(*place).agg(f.max("time").alias("released"))
    )
    every = ways.join(messages, place, "left").join(released, place, "left")
    published = f.coalesce("released", "timestamp")
    died, redriven = f.col("died"), f.col("redriven")
    dead = died.isNotNull() & (redriven.isNull() | (redriven < died)) & f.col("acked").isNull()
    return every.select(
        *place,
        "group",
        "key",
        "acked",
        "deliveries",
        f.coalesce(published, "delivered").alias("since"),
        dead.alias("dead"),
        _between(published, f.col("delivered")).alias("to_delivery_ms"),
        _between(published, f.col("acked")).alias("to_ack_ms"),
        _between(published, died).alias("to_dead_ms"),
    )


def _between(start: "Column", end: "Column") -> "Column":
    """Return milliseconds, never less than none: two clocks are involved."""
    from pyspark.sql import functions as f

    return f.greatest(f.unix_millis(end) - f.unix_millis(start), f.lit(0).cast("long"))


def _bucket(column: "Column", bucket_s: int) -> "Column":
    from pyspark.sql import functions as f

    seconds = f.unix_seconds(column)
    return f.timestamp_seconds(seconds - f.pmod(seconds, f.lit(bucket_s)))


def _within(table: "DataFrame", name: str, window: Window) -> "DataFrame":
    from pyspark.sql import functions as f

    if window.from_ms is not None:
        table = table.where(f.col(name) >= f.timestamp_millis(f.lit(window.from_ms)))
    if window.to_ms is not None:
        table = table.where(f.col(name) < f.timestamp_millis(f.lit(window.to_ms)))
    return table
