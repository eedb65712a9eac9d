"""A Spark driver as a process of its own, to be killed: queue (or stream) read to stream write.

    python -m tests.spark.driver_process '{"servers": …, "source": …, "target": …, …}'

It writes a line when the query runs and one for each micro-batch, and ends when all is done.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

SESSION = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.memory": "512m",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def main() -> None:
    asked: dict[str, Any] = json.loads(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    import pyspark
    from pyspark.sql import SparkSession

    import raftline.spark

    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    builder = SparkSession.builder.master(asked["master"]).appName("driver")
    for name, value in SESSION.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    raftline.spark.register(spark)
    reader = spark.readStream.format("raftline").option("servers", asked["servers"])
    reader = reader.option("topic", asked["source"]).option("maxOffsetsPerTrigger", asked["limit"])
    if asked["group"]:
        reader = reader.option("group", asked["group"])
    query = (
        reader.load()
        .select("value")
        .writeStream.format("raftline")
        .option("servers", asked["servers"])
        .option("topic", asked["target"])
        .option("checkpointLocation", asked["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    said = -1
    while query.isActive:
        progress = query.lastProgress
        if progress is not None and progress["batchId"] != said:
            said = progress["batchId"]
            print(f"batch {said}", flush=True)
        time.sleep(0.05)
    error = query.exception()
    if error is not None:
        raise error
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
