"""Spark's own Kafka connector against a cluster; run as a program, with the connector's jars.

python kafka_story.py JARS BOOTSTRAP DIRECTORY      prints one JSON object
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f


def main() -> None:
    jars, servers, directory = sys.argv[1:]
    files = ",".join(str(file) for file in sorted(Path(jars).glob("*.jar")))
    builder = SparkSession.builder.master("local[2]").config("spark.jars", files)
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        print(json.dumps(story(spark, servers, directory)))
    finally:
        spark.stop()


def story(spark: SparkSession, servers: str, directory: str) -> dict[str, Any]:
    told: dict[str, Any] = {}
    write(rows(spark, 0, 5000), servers, "source")
    found = read(spark, servers, "source", startingOffsets="earliest")
    told["read"] = found.count()
    told["values"] = found.select("value").distinct().count()
    told["partitions"] = sorted(r[0] for r in found.select("partition").distinct().collect())
    told["header"] = found.select("headers").first()[0][0].asDict()["key"]
    ranged = read(
        spark, servers, "source", startingOffsets='{"source": {"0": 10, "1": 0, "2": 0}}',
        endingOffsets='{"source": {"0": 35, "1": 5, "2": 5}}',
    )  # fmt: skip
    told["ranged"] = ranged.count()

    middle = found.agg(f.expr("percentile_approx(timestamp, 0.5)")).first()[0]
    moment = int(middle.timestamp() * 1000)
    by_time = read(spark, servers, "source", startingTimestamp=str(moment))
    told["by_time"] = by_time.count()
    # From the first such message of each partition on: what lies behind it may be older, as two
    # tasks send through one producer.
    later = found.where(f.unix_millis("timestamp") >= moment)
    firsts = later.groupBy("partition").agg(f.min("offset").alias("first"))
    behind = found.join(firsts, "partition").where(f.col("offset") >= f.col("first"))
    told["by_time_wanted"] = behind.count()

    told["streamed"] = [copy(spark, servers, directory)]
    write(rows(spark, 5000, 6000), servers, "source")
    told["streamed"].append(copy(spark, servers, directory))
    told["streamed"].append(copy(spark, servers, directory))
    copied = read(spark, servers, "copy", startingOffsets="earliest")
    told["copied"] = [copied.count(), copied.select("value").distinct().count()]
    return told


def rows(spark: SparkSession, start: int, end: int) -> DataFrame:
    header = f.array(f.struct(f.lit("colour").alias("key"), f.lit(b"red").alias("value")))
    number = f.col("id").cast("string")
    return spark.range(start, end, numPartitions=2).select(
        number.alias("key"), f.concat(f.lit("v"), number).alias("value"), header.alias("headers")
    )


def write(frame: DataFrame, servers: str, topic: str) -> None:
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", servers)
    writer.option("topic", topic).option("includeHeaders", "true").save()


def read(spark: SparkSession, servers: str, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", topic).option("includeHeaders", "true")
    return reader.options(**options).load()


def copy(spark: SparkSession, servers: str, directory: str) -> int:
    """Copy what is new from one topic to another; return how many rows that were."""
    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    stream = stream.option("subscribe", "source").option("startingOffsets", "earliest")
    stream = stream.option("maxOffsetsPerTrigger", "2000")
    writer = stream.load().select("key", "value").writeStream.format("kafka")
    writer = writer.option("kafka.bootstrap.servers", servers).option("topic", "copy")
    writer = writer.option("checkpointLocation", f"{directory}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(240)
    return sum(int(progress["numInputRows"]) for progress in query.recentProgress)


if __name__ == "__main__":
    main()
