"""``raftline pipeline sql``."""

from typing import Any

from raftline.pipeline.job import Job


def run(job: Job, *, query: str, limit: int) -> list[dict[str, Any]]:
    """Return the rows of a query."""
    spark: Any = job.spark
    return [row.asDict() for row in spark.sql(query).limit(limit).collect()]
