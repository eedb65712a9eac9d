"""Raftline in Spark: a data source for ``format("raftline")``.

::

    raftline.spark.register(spark)
    read = spark.read.format("raftline").option("servers", "http://127.0.0.1:8080")
    read.option("topic", "orders").load()
"""

from typing import TYPE_CHECKING

from raftline.spark.rejects import reject
from raftline.spark.source import RaftlineDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["RaftlineDataSource", "register", "reject"]


def register(spark: "SparkSession") -> None:
    """Make ``format("raftline")`` known to a session."""
    spark.dataSource.register(RaftlineDataSource)
